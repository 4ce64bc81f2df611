"""EmbeddingBag: torch's module in all but the table's gradient, which no copy of rows precedes."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
from torch_checks import Calls, backend, exact_bags, torch, waves

from numba_embed import EmbedTypeError, EmbedValueError

pytest_plugins = ["torch_fixtures"]
pytestmark = pytest.mark.usefixtures("switched_off")

IDS = torch.tensor([3, 1, 1, 5, 2, 6, 2, 2, 0, 1, 4])
OFFSETS = torch.tensor([0, 3, 3, 8])
WHOLE = torch.tensor([0, 3, 3, 8, 11])
PART = torch.tensor([0, 3, 3, 8, 10])


@pytest.mark.parametrize("mode", ["sum", "weighted", "mean"])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("padding", [None, 2, -6])
def test_gradients(padding: int | None, scale: bool, mode: str, calls: Calls) -> None:
    """Against the obvious loop; what it gives for weights, and second derivatives, numerically."""
    weighted = mode == "weighted"
    mode = "sum" if weighted else mode
    for ids, offsets in itertools.product((IDS, IDS.int()), (OFFSETS, WHOLE, PART)):
        options: dict[str, Any] = {
            "mode": mode,
            "padding_idx": padding,
            "scale_grad_by_freq": scale,
            "include_last_offset": offsets is not OFFSETS,
        }
        module = backend.EmbeddingBag(7, 3, _weight=waves((7, 3)), **options)
        factors = waves((11,)).sin().requires_grad_() if weighted else None
        summed = module(ids, offsets, factors)
        upstream = waves((4, 3))
        summed.backward(upstream)
        truth = exact_bags(upstream, ids, 7, factors, offsets=offsets, **options)
        torch.testing.assert_close(module.weight.grad, truth, rtol=1e-13, atol=1e-15)

        def call(table: Any, *factors: Any, module: Any = module, offsets: Any = offsets) -> Any:
            return torch.func.functional_call(module, {"weight": table}, (IDS, offsets, *factors))

        inputs = [waves((7, 3)).requires_grad_(), *([] if factors is None else [factors])]
        if offsets is PART:
            if not scale:  # a scaled gradient is not the derivative of the sum
                assert torch.autograd.gradcheck(call, inputs)
            assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)
    assert calls


@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_forward_is_torch_s(name: str) -> None:
    ids = IDS[:10].view(2, 5)
    for options in ({}, {"padding_idx": 1}, {"max_norm": 0.5}, {"max_norm": 0.5, "norm_type": 1.0}):
        ours = backend.EmbeddingBag(7, 3, mode=name, _weight=waves((7, 3)), **options)
        theirs = torch.nn.EmbeddingBag(7, 3, mode=name, _weight=waves((7, 3)), **options)
        assert torch.equal(ours(ids), theirs(ids))
        assert torch.equal(ours.weight, theirs.weight)
        assert torch.equal(ours(IDS, OFFSETS), theirs(IDS, OFFSETS))
        assert torch.equal(ours(IDS.int(), OFFSETS), theirs(IDS.int(), OFFSETS))


def test_the_gradient_is_read_where_it_is(calls: Calls) -> None:
    """Bags of many look-ups: the kernels get the bags' rows, one each, not one per look-up."""
    module = backend.EmbeddingBag(1000, 16, mode="sum")
    ids = torch.arange(100_000).remainder(1000).view(2, 50_000)
    summed = module(ids)
    upstream = waves((2, 16), torch.float32)
    seen = []
    summed.register_hook(lambda grad: seen.append(grad.data_ptr()))
    summed.backward(upstream)
    (call,) = calls
    assert call.grad.shape == (2, 16)
    assert [call.grad.ctypes.data] == seen
    assert call.options["position_map"].shape == (100_000,)
    assert call.options["position_weights"] is None
    want = 50 * (upstream[0] + upstream[1])
    torch.testing.assert_close(module.weight.grad, want.expand(1000, 16))


def test_an_expanded_gradient(calls: Calls) -> None:
    module = backend.EmbeddingBag(7, 3, mode="mean", _weight=waves((7, 3)))
    module(IDS, OFFSETS).sum().backward()
    assert set(calls[0].grad.strides) == {0}
    truth = exact_bags(torch.ones(4, 3), IDS, 7, mode="mean", offsets=OFFSETS)
    torch.testing.assert_close(module.weight.grad, truth)


def test_it_stands_in_for_torch_s_module() -> None:
    theirs = torch.nn.EmbeddingBag(7, 3, mode="sum", padding_idx=2)
    ours = backend.EmbeddingBag(7, 3, mode="sum", padding_idx=2)
    assert isinstance(ours, torch.nn.EmbeddingBag)
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours(IDS, OFFSETS), theirs(IDS, OFFSETS))
    assert str(ours) == str(theirs)
    copy = pickle.loads(pickle.dumps(ours))
    assert torch.equal(copy(IDS, OFFSETS), ours(IDS, OFFSETS))
    made = backend.EmbeddingBag.from_pretrained(waves((7, 3)), freeze=False, mode="sum")
    assert isinstance(made, backend.EmbeddingBag)
    made(IDS, OFFSETS).sum().backward()
    assert made.weight.grad.sum() == 33


def test_sizes_of_zero() -> None:
    for mode in ("sum", "mean"):
        module = backend.EmbeddingBag(7, 3, mode=mode, _weight=waves((7, 3)))
        for ids, offsets in (
            (IDS[:0], torch.tensor([0, 0])),
            (IDS[:0], torch.tensor([0])),
            (IDS[:0].view(0, 5), None),
            (IDS[:0].view(5, 0), None),
        ):
            module.zero_grad()
            out = module(ids, offsets)
            assert out.shape == (len(offsets) if offsets is not None else len(ids), 3)
            out.sum().backward()
            assert module.weight.grad.count_nonzero() == 0


def test_what_keeps_torch_s_own_gradient(calls: Calls) -> None:
    for options in ({"mode": "max"}, {"mode": "sum", "sparse": True}):
        ours = backend.EmbeddingBag(7, 3, _weight=waves((7, 3)), **options)
        theirs = torch.nn.EmbeddingBag(7, 3, _weight=waves((7, 3)), **options)
        for module in (ours, theirs):
            module(IDS, OFFSETS).sum().backward()
        assert torch.equal(ours.weight.grad.to_dense(), theirs.weight.grad.to_dense())
    meta = backend.EmbeddingBag(7, 3, mode="sum", device="meta")
    assert meta(IDS.to("meta"), OFFSETS.to("meta")).shape == (4, 3)
    assert not calls


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_operators_pass_torch_s_checks(dynamic: bool) -> None:
    tests = [
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic" if dynamic else "test_aot_dispatch_static",
    ]
    operators = torch.ops.numba_embed
    table, grad = waves((7, 3)).requires_grad_(), waves((4, 3)).requires_grad_()
    factors = waves((11,)).requires_grad_()
    for weights, mean in ((None, True), (factors, False)):
        torch.library.opcheck(
            operators.embedding_bag, (table, IDS, WHOLE, weights, mean, False, 2), test_utils=tests
        )
        constant = None if weights is None else weights.detach()
        torch.library.opcheck(
            operators.embedding_bag_dense_backward,
            (grad.detach(), IDS, WHOLE, constant, 7, mean, True, -1),
            test_utils=tests,
        )
    torch.library.opcheck(
        operators.embedding_bag_products,
        (grad.detach(), table.detach(), IDS, WHOLE, 2),
        test_utils=tests,
    )


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((IDS,), {}, EmbedValueError, "offsets must be given"),
        ((IDS.view(1, 11), OFFSETS), {}, EmbedValueError, "offsets must be None"),
        ((IDS.view(1, 1, 11),), {}, EmbedValueError, "input must have one or two dimensions"),
        ((IDS.short(), OFFSETS), {}, EmbedTypeError, "input must be int32 or int64"),
        ((IDS, OFFSETS.float()), {}, EmbedTypeError, "offsets must be int32 or int64"),
        ((IDS, OFFSETS.view(2, 2)), {}, EmbedValueError, "offsets must have one dimension"),
        ((IDS, OFFSETS + 1), {}, EmbedValueError, "offsets must ascend from 0 to at most 11"),
        ((IDS, OFFSETS.flip(0)), {}, EmbedValueError, "offsets must ascend from 0"),
        ((IDS, torch.tensor([0, 5, 3])), {}, EmbedValueError, "offsets must ascend from 0"),
        ((IDS, torch.tensor([0, 12])), {"include_last_offset": True}, EmbedValueError, "offsets"),
        ((IDS, OFFSETS[:0]), {"include_last_offset": True}, EmbedValueError, "offsets"),
        ((IDS, OFFSETS, torch.ones(11)), {"mode": "mean"}, EmbedValueError, 'mode is "sum"'),
        ((IDS, OFFSETS, torch.ones(10)), {}, EmbedValueError, r"\(11,\), got \(10,\)"),
        ((IDS, OFFSETS, torch.ones(11).double()), {}, EmbedTypeError, "per_sample_weights must"),
        ((IDS + 1, OFFSETS), {}, (IndexError, RuntimeError), "."),
        ((IDS - 1, OFFSETS), {}, (IndexError, RuntimeError), "."),
    ],
)
def test_what_is_refused(arguments: Any, options: Any, error: Any, text: str) -> None:
    module = backend.EmbeddingBag(7, 3, **{"mode": "sum", **options})
    with pytest.raises(error, match=text):
        module(*arguments)


def test_a_backward_that_would_read_elsewhere_is_refused() -> None:
    """The operators are public to torch: they check what the module ensures."""
    run = torch.ops.numba_embed.embedding_bag_dense_backward
    grad = waves((4, 3))
    with pytest.raises(EmbedValueError, match="grad must have 4 rows"):
        run(grad[:3], IDS, WHOLE, None, 7, False, False, -1)
    with pytest.raises(EmbedValueError, match="offsets must ascend"):
        run(grad, IDS[:10], WHOLE, None, 7, False, False, -1)
    with pytest.raises(EmbedValueError, match="per_sample_weights must have 11 entries"):
        run(grad, IDS, WHOLE, waves((10,)), 7, False, False, -1)
    with pytest.raises(IndexError, match="out of range"):
        run(grad, IDS, WHOLE, None, 6, False, False, -1)
