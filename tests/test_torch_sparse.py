"""Sparse gradients in torch: coalesced, the dense ones' bits, and optimizers that take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_checks import NAMES, backend, dtype_of, torch, waves

import numba_embed as ne
from numba_embed import EmbedTypeError

F = torch.nn.functional
IDS = torch.tensor([[1, 4, 4], [0, 1, 1]])


def gradient(weight: Any, ids: Any, upstream: Any, *options: Any, sparse: bool) -> Any:
    weight = weight.clone().requires_grad_()
    backend.embedding(weight, ids, *options, sparse=sparse).backward(upstream)
    return weight.grad


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("padding", [None, 4, -1])
def test_it_is_coalesced_and_has_the_bits_of_the_dense_one(
    padding: int | None, scale: bool
) -> None:
    table = waves((6, 3))
    for ids in (IDS, IDS.int(), IDS[0, 0], IDS[:, :0], IDS.t()):
        upstream = waves((*ids.shape, 3))
        options = padding, scale
        sparse = gradient(table, ids, upstream, *options, sparse=True)
        assert sparse.layout is torch.sparse_coo
        assert sparse.is_coalesced()
        assert sparse.sparse_dim() == sparse.dense_dim() == 1
        assert torch.equal(
            sparse.to_dense(), gradient(table, ids, upstream, *options, sparse=False)
        )
        rows = sparse.indices()[0].tolist()
        kept = {int(i) for i in ids.reshape(-1)} - ({padding % 6} if padding is not None else set())
        assert rows == sorted(kept)
        # torch's own checks of the invariants, and what coalescing again would make of it
        with torch.sparse.check_sparse_tensor_invariants():
            again = torch.sparse_coo_tensor(sparse.indices(), sparse.values(), (6, 3)).coalesce()
        assert torch.equal(again.values(), sparse.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_and_a_large_vocabulary(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.zeros(50_000, 8, dtype=dtype_of(name))
    ids = torch.randint(50_000, (40, 50), generator=generator)
    upstream = torch.randn(40, 50, 8, generator=generator).to(dtype_of(name)).transpose(0, 1)
    sparse = gradient(table, ids.t(), upstream, sparse=True)
    assert sparse.dtype is dtype_of(name)
    dense = gradient(table, ids.t(), upstream, sparse=False)
    assert torch.equal(sparse.to_dense(), dense)
    assert sparse._nnz() == ids.unique().numel()


def test_the_look_up_is_torchs() -> None:
    table = waves((6, 3))
    assert torch.equal(backend.embedding(table, IDS, sparse=True), F.embedding(IDS, table))
    with pytest.raises(IndexError):
        backend.embedding(table, IDS + 3, sparse=True)
    weight = table.requires_grad_()
    (grad,) = torch.autograd.grad(
        backend.embedding(weight, IDS, sparse=True).sum(), weight, create_graph=True
    )
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        torch.autograd.grad(torch.sparse.sum(grad), weight)


def test_gradients_accumulate() -> None:
    weight = waves((6, 3)).requires_grad_()
    dense = waves((6, 3)).requires_grad_()
    for _ in range(2):
        backend.embedding(weight, IDS, sparse=True).pow(2).sum().backward()
        backend.embedding(dense, IDS).pow(2).sum().backward()
    torch.testing.assert_close(weight.grad.to_dense(), dense.grad)


def train(sparse: bool, make: Any, steps: int = 4) -> Any:
    """Train a table on seeded batches, with frequencies, which torch's sparse gradient refuses."""
    generator = torch.Generator().manual_seed(1)
    table = torch.nn.Parameter(torch.randn(300, 6, generator=generator, dtype=torch.float64))
    optimizer = make([table])
    for _ in range(steps):
        optimizer.zero_grad()
        ids = torch.randint(300, (5, 40), generator=generator)
        target = torch.randn(5, 40, 6, generator=generator, dtype=torch.float64)
        rows = backend.embedding(table, ids, 7, True, sparse=sparse)
        (rows - target).pow(2).sum().backward()
        optimizer.step()
    return table.detach()


def test_sgd_takes_the_same_course_as_with_dense_gradients() -> None:
    def make(parameters: Any) -> Any:
        return torch.optim.SGD(parameters, lr=0.1)

    torch.testing.assert_close(train(True, make), train(False, make), rtol=1e-13, atol=1e-14)


class LazyAdam(torch.optim.Optimizer):
    """Adam as SparseAdam defines it, over dense gradients: moments of touched rows alone."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2})
        self.steps, self.first, self.second = 0, 0.0, 0.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        (table,) = self.param_groups[0]["params"]
        self.steps += 1
        rows = (table.grad != 0).any(1, keepdim=True)
        self.first = torch.where(rows, self.first + 0.1 * (table.grad - self.first), self.first)
        square = self.second + 0.001 * (table.grad**2 - self.second)
        self.second = torch.where(rows, square, self.second)
        rate = 1e-2 * (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
        table -= rows * rate * self.first / (self.second.sqrt() + 1e-8)


def test_sparse_adam_takes_the_course_of_lazy_adam() -> None:
    sparse = train(True, lambda p: torch.optim.SparseAdam(p, lr=1e-2))
    torch.testing.assert_close(sparse, train(False, LazyAdam), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["bfloat16", "float64"])
def test_row_gradients_become_tensors(name: str) -> None:
    grad = waves((5, 3), dtype_of(name))
    ids = np.array([7, 2, 7, 9, 2])
    array = grad.view(torch.int16).numpy() if name == "bfloat16" else grad.numpy()
    if name == "bfloat16":
        array = array.view(pytest.importorskip("ml_dtypes").bfloat16)
    found = ne.embedding_row_gradient(array, ids, 10**10, 9)
    made = backend.to_sparse(found)
    assert made.shape == (10**10, 3)
    assert made.is_coalesced()
    assert made.indices().tolist() == [[2, 7]]
    small = gradient(torch.zeros(10, 3, dtype=grad.dtype), torch.tensor(ids), grad, 9, sparse=False)
    assert torch.equal(made.values(), small[[2, 7]])
    made.indices()[0, 0] = 5
    assert found.rows.tolist() == [2, 7]
    with pytest.raises(EmbedTypeError, match="gradient must be a RowGradient, got ndarray"):
        backend.to_sparse(array)
