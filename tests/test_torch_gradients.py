"""Gradients through the switched kernel: values, dtypes, layouts without a copy, autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from torch_checks import NAMES, Calls, assert_closer, backend, dtype_of, exact, torch, waves

from numba_embed import EmbedTypeError, EmbedValueError

pytest_plugins = ["torch_fixtures"]
pytestmark = pytest.mark.usefixtures("switched_off")

BACKWARD = torch.ops.aten.embedding_dense_backward
F = torch.nn.functional


def ids_of(size: int, num_weights: int, dtype: Any = torch.int64) -> Any:
    generator = torch.Generator().manual_seed(size)
    return torch.randint(0, num_weights, (size,), generator=generator, dtype=dtype)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, index_dtype: Any, scale: bool, calls: Calls) -> None:
    """Small tables and large: never farther from the truth than torch."""
    for size, num_weights, width in ((7, 5, 3), (5000, 20, 4), (600, 9000, 5)):
        ids = ids_of(size, num_weights, index_dtype)
        for padding in (-1, int(ids[0])):
            grad = waves((size, width), dtype_of(name))
            theirs = BACKWARD(grad, ids, num_weights, padding, scale)
            with backend.enabled():
                ours = BACKWARD(grad, ids, num_weights, padding, scale)
            assert_closer(ours, theirs, exact(grad, ids, num_weights, padding, scale))
    assert len(calls) == 6


def layouts(grad: Any) -> dict[str, Any]:
    """Lay the same values out in other ways."""
    size = grad.shape[0]
    wide = torch.empty(size, 2 * grad.shape[1], dtype=grad.dtype)
    wide[:, ::2] = grad
    return {
        "contiguous": grad,
        "columns apart": wide[:, ::2],
        "rows apart": torch.cat([grad, grad], 1)[:, : grad.shape[1]],
        "transposed": grad.T.contiguous().T,
        "offset": torch.cat([grad[:1], grad])[1:],
    }


@pytest.mark.parametrize("name", NAMES)
def test_no_operand_is_copied(name: str, calls: Calls) -> None:
    ids = ids_of(60, 9)
    values = waves((60, 4), dtype_of(name))
    wide_ids = torch.stack([ids, ids], 1)
    want = None
    with backend.enabled():
        for layout, grad in layouts(values).items():
            for indices in (ids, wide_ids[:, 0], ids.view(3, 4, 5)):
                got = BACKWARD(grad, indices, 9, -1, False)
                want = got if want is None else want
                assert torch.equal(got, want), layout
                array = calls[-1].grad
                assert array.ctypes.data == grad.data_ptr(), layout
                assert array.strides == tuple(s * grad.element_size() for s in grad.stride())
                assert calls[-1].indices.ctypes.data == indices.data_ptr()
        spread = values[:1].expand(60, 4)
        got = BACKWARD(spread, ids, 9, -1, False)
        assert calls[-1].grad.strides[0] == 0
        assert calls[-1].grad.ctypes.data == values.data_ptr()
        assert torch.equal(got, BACKWARD(spread.contiguous(), ids, 9, -1, False))


def test_the_expanded_gradient_of_a_sum(calls: Calls) -> None:
    table = torch.nn.Embedding(9, 4)
    with backend.enabled():
        table(ids_of(60, 9).view(3, 20)).sum().backward()
    assert set(calls[-1].grad.strides) == {0}
    assert table.weight.grad.sum() == 240


@pytest.mark.parametrize("dims", [0, 1, 7, 8, 9, 12])
def test_any_number_of_dimensions(dims: int) -> None:
    shape = (2,) * dims
    ids = torch.arange(2**dims).remainder(5).view(shape)
    for grad in (
        waves((*shape, 3)),
        waves((3, *shape)).movedim(0, -1),
        waves((3,)).expand(*shape, 3),
    ):
        with backend.enabled():
            got = BACKWARD(grad, ids, 5, -1, False)
        torch.testing.assert_close(got, exact(grad, ids, 5), rtol=1e-13, atol=1e-15)


def test_empty_sizes() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    with backend.enabled():
        assert BACKWARD(torch.zeros(0, 4), none, 3, -1, False).tolist() == [[0.0] * 4] * 3
        assert BACKWARD(torch.zeros(0, 4), none, 0, -1, False).shape == (0, 4)
        assert BACKWARD(torch.zeros(2, 0), none.new_zeros(2), 3, -1, True).shape == (3, 0)
        table = torch.nn.Embedding(3, 4)
        table(none.view(0, 7)).sum().backward()
    assert table.weight.grad.count_nonzero() == 0


def test_what_is_refused() -> None:
    grad, ids = torch.ones(2, 3), torch.tensor([0, 1])
    with backend.enabled():
        for dtype in (torch.int16, torch.uint8, torch.bool, torch.float32):
            with pytest.raises(EmbedTypeError, match="indices must be int32 or int64"):
                BACKWARD(grad, ids.to(dtype), 3, -1, False)
        for dtype in (torch.int64, torch.complex64, torch.bool):
            with pytest.raises(EmbedTypeError, match="grad must be float16, bfloat16, float32 or"):
                BACKWARD(grad.to(dtype), ids, 3, -1, False)
        with pytest.raises(EmbedValueError, match=r"grad of shape \(2, 3\) with 3 indices"):
            BACKWARD(grad, torch.tensor([0, 1, 2]), 3, -1, False)
        with pytest.raises(EmbedValueError, match="num_weights"):
            BACKWARD(grad, ids, -3, -1, False)


@pytest.mark.parametrize("name", NAMES)
def test_autograd_keeps_the_memory_that_the_kernel_filled(name: str) -> None:
    """The gradient becomes ``.grad`` as it is: no copy, in memory that no one else holds."""
    seen = []
    table = torch.nn.Embedding(2000, 40, dtype=dtype_of(name))
    table.weight.register_hook(lambda grad: seen.append(grad.data_ptr()))
    with backend.enabled():
        table(ids_of(50, 2000)).sum().backward()
    grad = table.weight.grad
    assert grad.dtype == dtype_of(name)
    assert grad.is_contiguous()
    assert seen == [grad.data_ptr()]
    grad.mul_(2).add_(1)
    assert grad.sum(dtype=torch.float64) == 2 * 50 * 40 + 2000 * 40


def test_gradients_accumulate_and_tied_tables_share(calls: Calls) -> None:
    """Two backward passes into one ``.grad``, and a table that is also the output layer."""
    losses = []
    for on in (False, True):
        torch.manual_seed(0)
        table = torch.nn.Embedding(30, 8, padding_idx=3, dtype=torch.float64)
        ids = ids_of(40, 30).view(5, 8)
        if on:
            backend.enable()
        for _ in range(2):
            logits = F.linear(table(ids), table.weight)
            F.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
        losses.append(table.weight.grad)
    assert len(calls) == 2
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=1e-14)


def test_double_backward_is_torch_s(calls: Calls) -> None:
    ids = ids_of(12, 7).view(3, 4)
    weight = waves((7, 5)).requires_grad_()
    want = None
    for on in (False, True):
        if on:
            backend.enable()
        first = torch.autograd.grad(
            F.embedding(ids, weight).pow(3).sum(), weight, create_graph=True
        )
        second = torch.autograd.grad(first[0].pow(2).sum(), weight)
        want = second if want is None else want
    assert len(calls) == 2
    torch.testing.assert_close(second, want, rtol=1e-12, atol=1e-14)
    assert torch.autograd.gradcheck(lambda w: F.embedding(ids, w), weight)
    assert torch.autograd.gradgradcheck(lambda w: F.embedding(ids, w), weight)


def test_lazy_signs_and_conjugates() -> None:
    """Views that torch negates only when they are read arrive negated."""
    ids = ids_of(20, 6)
    imaginary = torch.complex(waves((20, 3)), waves((20, 3)).sin()).conj().imag
    assert imaginary.is_neg()
    with backend.enabled():
        got = BACKWARD(imaginary, ids, 6, -1, False)
    torch.testing.assert_close(got, exact(imaginary.clone(), ids, 6), rtol=1e-13, atol=1e-15)


def test_transforms_that_map_and_differentiate(calls: Calls) -> None:
    """torch.func reaches the operator through its own rules."""
    ids = ids_of(30, 7).view(6, 5)
    weight = waves((7, 4))

    def loss(weight: Any, ids: Any) -> Any:
        return F.embedding(ids, weight, padding_idx=2).pow(2).sum()

    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    want = grads(weight, ids)
    jacobian = torch.func.jacrev(lambda w: F.embedding(ids[0], w).sum(1))(weight)
    assert not calls
    with backend.enabled():
        torch.testing.assert_close(grads(weight, ids), want, rtol=1e-12, atol=1e-14)
        assert calls
        again = torch.func.jacrev(lambda w: F.embedding(ids[0], w).sum(1))(weight)
    torch.testing.assert_close(again, jacobian)


def test_deterministic_algorithms_are_accepted(calls: Calls) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with backend.enabled():
            table = torch.nn.Embedding(9, 4)
            table(ids_of(60, 9)).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(calls) == 1


def test_threads_are_bounded_and_left_alone(calls: Calls) -> None:
    """The smaller of torch's number and Numba's mask; both are as before afterwards."""
    grad, ids = waves((20_000, 64), torch.float32), ids_of(20_000, 30_000)
    pool = numba.config.NUMBA_NUM_THREADS
    before, mask = torch.get_num_threads(), numba.get_num_threads()
    results = []
    try:
        with backend.enabled():
            for torch_threads, numba_threads in ((1, pool), (pool, 1), (pool, pool), (64, pool)):
                torch.set_num_threads(torch_threads)
                numba.set_num_threads(numba_threads)
                results.append(BACKWARD(grad, ids, 30_000, -1, False))
                assert calls[-1].threads == min(torch_threads, numba_threads)
                assert torch.get_num_threads() == torch_threads
                assert numba.get_num_threads() == numba_threads
    finally:
        torch.set_num_threads(before)
        numba.set_num_threads(mask)
    assert all(torch.equal(result, results[0]) for result in results)


def test_small_calls_stay_on_one_thread(calls: Calls) -> None:
    with backend.enabled():
        BACKWARD(torch.ones(2, 3), torch.tensor([0, 1]), 5, -1, False)
    assert calls[-1].threads == 1


def test_bfloat16_needs_no_other_package(run_python: Callable[..., Any]) -> None:
    run_python(
        "import sys\n"
        "sys.modules['ml_dtypes'] = None\n"
        "import torch, numba_embed.torch as backend\n"
        "table = torch.nn.Embedding(9, 4, dtype=torch.bfloat16)\n"
        "with backend.enabled():\n"
        "    table(torch.full((1000,), 2)).sum().backward()\n"
        "assert table.weight.grad[2].tolist() == [1000] * 4\n"
        "assert table.weight.grad.sum() == 4000\n"
    )


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_sums_that_stall_in_a_narrow_format(name: str) -> None:
    """torch adds in the narrow format, where a sum of ones stops at 2048, or at 256."""
    size = 5000
    grad = torch.ones(size, 2, dtype=dtype_of(name))
    ids = torch.zeros(size, dtype=torch.int64)
    stalled = BACKWARD(grad, ids, 3, -1, False)
    with backend.enabled():
        ours = BACKWARD(grad, ids, 3, -1, False)
    assert stalled[0, 0] == {"float16": 2048, "bfloat16": 256}[name]
    assert ours[0, 0] == torch.tensor(5000.0).to(dtype_of(name))


def test_held_gradients_are_never_overwritten(calls: Calls) -> None:
    """With reused memory too: whatever still refers to a gradient keeps its bytes."""
    table = torch.nn.Embedding(3000, 32)
    ids = ids_of(500, 3000)
    held: list[tuple[Any, Any]] = []
    holds = (
        lambda grad: grad,
        lambda grad: grad[5:, ::3],
        lambda grad: grad.numpy(),
        lambda grad: grad.detach().view(-1),
        lambda grad: np.from_dlpack(grad),
    )
    with backend.enabled(reuse_outputs=1 << 30):
        for step, hold in enumerate(holds):
            table.zero_grad()
            (table(ids) * (step + 1)).sum().backward()
            view = torch.as_tensor(hold(table.weight.grad))
            held.append((view, view.clone()))
        table.zero_grad()
        (table(ids) * 99).sum().backward()
    for view, copy in held:
        assert torch.equal(view, copy)
    assert len(calls) == 6
