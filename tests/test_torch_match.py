"""The same values as torch's own operator, where torch is installed."""

from __future__ import annotations

import numpy as np
import pytest
from inputs import hot_ids

from numba_embed import embedding_dense_backward as E

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("padding", [-1, 3])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("id_name", ["int32", "int64"])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_the_operator_agrees_with_torch(name: str, id_name: str, scale: bool, padding: int) -> None:
    random = np.random.default_rng(1)
    tolerance = {"float32": 1e-5, "float64": 1e-13}[name]
    for shape, num_weights, width in (((7,), 5, 3), ((40, 30), 50, 16), ((5000,), 9000, 8)):
        ids = hot_ids(random, int(np.prod(shape)), num_weights).astype(id_name).reshape(shape)
        grad = random.standard_normal((*shape, width)).astype(name)
        want = torch.ops.aten.embedding_dense_backward(
            torch.from_numpy(grad), torch.from_numpy(ids), num_weights, padding, scale
        )
        got = E(grad, ids, num_weights, padding, scale)
        assert got.dtype == want.numpy().dtype
        assert got.shape == tuple(want.shape)
        # torch sums in the gradient's own dtype: the row's magnitudes bound how far it strays
        magnitude = E(np.abs(grad), ids, num_weights, padding, scale)
        assert np.all(np.abs(got - want.numpy()) <= tolerance * magnitude)


@pytest.mark.parametrize("id_name", ["int32", "int64"])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_whole_numbers_agree_exactly(name: str, id_name: str) -> None:
    random = np.random.default_rng(2)
    ids = random.integers(0, 200, (60, 50)).astype(id_name)
    grad = random.integers(-9, 10, (60, 50, 4)).astype(name)
    for padding in (-1, 0, 199):
        want = torch.ops.aten.embedding_dense_backward(
            torch.from_numpy(grad), torch.from_numpy(ids), 200, padding, False
        )
        assert np.array_equal(E(grad, ids, 200, padding), want.numpy())


def test_the_gradient_of_a_module() -> None:
    """What autograd gives for nn.Embedding is what the operator gives for its inputs."""
    table = torch.nn.Embedding(30, 6, padding_idx=2, scale_grad_by_freq=True).double()
    ids = torch.from_numpy(np.random.default_rng(3).integers(0, 30, (9, 8)))
    looked_up = table(ids)
    upstream = torch.cos(torch.arange(looked_up.numel(), dtype=torch.float64)).view_as(looked_up)
    looked_up.backward(upstream)
    assert table.weight.grad is not None
    got = E(upstream, ids, 30, 2, True)
    np.testing.assert_allclose(got, table.weight.grad.numpy(), rtol=1e-12, atol=1e-14)
