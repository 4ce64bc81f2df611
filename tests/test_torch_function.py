"""The explicit look-up: the same gradient without a switch, and an operator of its own."""

from __future__ import annotations

from typing import Any

import pytest
from torch_checks import Calls, backend, exact, torch, waves

from numba_embed import EmbedTypeError, EmbedValueError
from numba_embed.pool import output_pool

pytest_plugins = ["torch_fixtures"]
pytestmark = pytest.mark.usefixtures("switched_off")

F = torch.nn.functional
IDS = torch.tensor([[1, 4, 4], [0, 1, 1]])


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("padding", [None, 4, -1])
def test_forward_and_gradient(padding: int | None, scale: bool, calls: Calls) -> None:
    weight = waves((6, 3)).requires_grad_()
    for ids in (IDS, IDS.int(), IDS[0, 0], IDS[:, :0]):
        got = backend.embedding(weight, ids, padding, scale)
        assert torch.equal(got, F.embedding(ids, weight, padding))
        assert got.requires_grad
        upstream = waves(tuple(got.shape))
        (grad,) = torch.autograd.grad(got, weight, upstream)
        row = -1 if padding is None else padding % 6
        torch.testing.assert_close(grad, exact(upstream, ids, 6, row, scale), rtol=1e-14, atol=0)
    assert len(calls) == 4
    with torch.no_grad():
        assert not backend.embedding(weight, IDS).requires_grad


def test_second_derivatives_honour_padding_and_frequency() -> None:
    """The gradient is linear: its derivative is its matrix, which `exact` gives column by column.

    torch's own leaves the frequency out there.
    """
    for padding, scale in ((-1, False), (4, False), (-1, True), (4, True)):
        weight = waves((6, 2)).requires_grad_()
        upstream = waves((2, 3, 2)).sin().requires_grad_()
        row = None if padding < 0 else padding
        looked_up = backend.embedding(weight, IDS, row, scale)
        (grad,) = torch.autograd.grad(looked_up, weight, upstream, create_graph=True)
        (second,) = torch.autograd.grad((grad * waves((6, 2))).sum(), upstream)
        for place in range(12):
            unit = torch.zeros(12, dtype=torch.float64)
            unit[place] = 1
            moved = exact(unit.view(2, 3, 2), IDS, 6, padding, scale)
            want = (moved * waves((6, 2))).sum()
            torch.testing.assert_close(second.reshape(-1)[place], want, rtol=1e-14, atol=0)
    weight = waves((6, 2)).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda w: backend.embedding(w, IDS).pow(3), weight)


def test_the_switch_does_not_matter(calls: Calls) -> None:
    weight = waves((6, 3)).requires_grad_()
    results = []
    for on in (False, True, False):
        if on:
            backend.enable(on_invalid="drop")
        else:
            backend.disable()
        (grad,) = torch.autograd.grad(backend.embedding(weight, IDS).sum(), weight)
        results.append(grad)
    assert len(calls) == 3
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_memory_from_the_pool_of_the_thread(calls: Calls) -> None:
    weight = torch.zeros(3000, 32, requires_grad=True)
    ids = torch.arange(100)
    places = set()
    with output_pool(1 << 30) as pool:
        for _ in range(3):
            weight.grad = None
            backend.embedding(weight, ids).sum().backward()
            assert weight.grad is not None
            assert weight.grad[:100].eq(1).all()
            assert weight.grad[100:].eq(0).all()
            places.add(weight.grad.data_ptr())
        weight.grad = None
        assert pool.idle_nbytes >= 3000 * 32 * 4
    assert len(places) == 1
    assert len(calls) == 3


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_operators_pass_torch_s_checks(dynamic: bool) -> None:
    """Schema, registration, shapes without data, and tracing of forward and backward."""
    tests = [
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic" if dynamic else "test_aot_dispatch_static",
    ]
    operators = torch.ops.numba_embed
    weight = waves((6, 3)).requires_grad_()
    torch.library.opcheck(operators.embedding, (weight, IDS, 4, True), test_utils=tests)
    grad = waves((2, 3, 3)).requires_grad_()
    torch.library.opcheck(
        operators.embedding_dense_backward, (grad, IDS, 6, -1, False), test_utils=tests
    )


def test_mapping_falls_back_to_a_loop(calls: Calls) -> None:
    weight = waves((6, 3))
    many = torch.stack([IDS, IDS.flip(0), IDS.flip(1)])
    got = torch.func.vmap(lambda ids: backend.embedding(weight, ids))(many)
    assert torch.equal(got, F.embedding(many, weight))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((torch.ones(6), IDS), EmbedValueError, r"weight must have shape \(V, D\), got \(6,\)"),
        ((torch.ones(6, 3).int(), IDS), EmbedTypeError, "weight must be float16, bfloat16"),
        ((torch.ones(6, 3, device="meta"), IDS), EmbedTypeError, "weight must be on the CPU"),
        ((torch.ones(6, 3), IDS.short()), EmbedTypeError, "indices must be int32 or int64"),
        ((torch.ones(6, 3), IDS, 6), EmbedValueError, r"padding_idx must be None or in \[-6, 6\)"),
        ((torch.ones(6, 3), IDS, -7), EmbedValueError, "padding_idx"),
        ((torch.ones(6, 3), IDS + 5), IndexError, "out of range"),
        ((torch.ones(6, 3), IDS - 1), IndexError, "out of range"),
    ],
)
def test_what_is_refused(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        backend.embedding(*arguments)
