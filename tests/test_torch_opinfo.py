"""torch's own tests of its operators: its sample inputs and gradient checks, on this library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch_checks import (
    NAMES,
    Calls,
    assert_closer,
    backend,
    dtype_of,
    exact,
    exact_bags,
    torch,
    waves,
)

pytest.importorskip("expecttest", reason="torch's own test inputs need the expecttest package")

from torch.testing._internal.common_methods_invocations import op_db

pytest_plugins = ["torch_fixtures"]
pytestmark = pytest.mark.usefixtures("switched_off")

(EMBEDDING,) = (op for op in op_db if op.name == "nn.functional.embedding")
(BAG,) = (op for op in op_db if op.name == "nn.functional.embedding_bag")


def samples(op: Any, dtype: Any, requires_grad: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    yield from op.sample_inputs("cpu", dtype, requires_grad=requires_grad)


def module_of(weight: Any, mode: str = "mean", **options: Any) -> Any:
    """Give the module for a sample, which is a call of torch's function."""
    return backend.EmbeddingBag(*weight.shape, _weight=weight, mode=mode, **options)


def bag(weight: Any, ids: Any, **options: Any) -> Any:
    """Call the module as torch's function is called."""
    arguments = {name: options.pop(name, None) for name in ("offsets", "per_sample_weights")}
    module = module_of(weight.detach(), **options)
    return torch.func.functional_call(module, {"weight": weight}, (ids,), arguments)


def test_every_dtype_is_tried() -> None:
    names = {dtype_of(name) for name in NAMES}
    for op in (EMBEDDING, BAG):
        assert op.supported_dtypes("cpu") == names
        assert op.supported_backward_dtypes("cpu") == names


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_embedding(name: str, calls: Calls) -> None:
    """The same look-ups; gradients never farther from the truth than torch's."""
    dense = 0
    for sample in samples(EMBEDDING, dtype_of(name), False):
        if sample.kwargs.get("sparse"):
            continue  # another operator's gradient
        (ids,) = sample.args
        results = []
        for on in (False, True):
            weight = sample.input.clone().requires_grad_()
            table = weight.clone()  # max_norm writes to it
            upstream = waves((*ids.shape, weight.shape[1]), weight.dtype)
            if on:
                backend.enable()
            looked_up = EMBEDDING.op(table, ids, **sample.kwargs)
            (grad,) = torch.autograd.grad(looked_up, table, upstream)
            backend.disable()
            results.append((looked_up, grad))
        assert torch.equal(results[0][0], results[1][0])
        dense += 1
        padding = sample.kwargs.get("padding_idx", -len(sample.input) - 1)
        truth = exact(
            upstream,
            ids,
            len(sample.input),
            padding % len(sample.input) if padding >= -len(sample.input) else -1,
            sample.kwargs.get("scale_grad_by_freq", False),
        )
        assert_closer(results[1][1], results[0][1], truth)
    assert len(calls) == dense >= 8


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_embedding_through_the_function(name: str, calls: Calls) -> None:
    for sample in samples(EMBEDDING, dtype_of(name), False):
        if {"sparse", "max_norm"} & set(sample.kwargs):
            continue  # no arguments of the explicit function
        (ids,) = sample.args
        weight = sample.input.clone().requires_grad_()
        looked_up = backend.embedding(weight, ids, **sample.kwargs)
        assert torch.equal(looked_up, EMBEDDING.op(weight, ids, **sample.kwargs))
        upstream = waves(tuple(looked_up.shape), weight.dtype)
        (ours,) = torch.autograd.grad(looked_up, weight, upstream)
        with backend.enabled():
            again = EMBEDDING.op(weight, ids, **sample.kwargs)
            (switched,) = torch.autograd.grad(again, weight, upstream)
        assert torch.equal(ours, switched)
    assert len(calls) >= 12


@pytest.mark.parametrize("function", ["switch", "explicit"])
def test_gradient_checks_of_embedding(function: str, calls: Calls) -> None:
    for sample in samples(EMBEDDING, torch.float64, True):

        def call(weight: Any, sample: Any = sample) -> Any:
            if function == "explicit":
                return backend.embedding(weight, *sample.args, **sample.kwargs)
            return EMBEDDING.op(weight, *sample.args, **sample.kwargs)

        before = len(calls)
        with backend.enabled():
            assert torch.autograd.gradcheck(call, sample.input, check_batched_grad=False)
            assert torch.autograd.gradgradcheck(call, sample.input)
        assert len(calls) > before


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_embedding_bag(name: str, calls: Calls) -> None:
    ours_alone = 0
    for sample in samples(BAG, dtype_of(name), False):
        (ids,) = sample.args
        options = dict(sample.kwargs)
        if options.get("sparse") and options.get("scale_grad_by_freq"):
            continue  # torch has no gradient for the two together
        weights = options.pop("per_sample_weights", None)
        results = []
        for function in (BAG.op, bag):
            table = sample.input.clone().requires_grad_()
            factors = None if weights is None else weights.clone().requires_grad_()
            before = len(calls)
            summed = function(table.clone(), ids, per_sample_weights=factors, **options)
            upstream = waves(tuple(summed.shape), table.dtype)
            summed.backward(upstream)
            results.append((summed, table.grad, None if weights is None else factors.grad))
        (their_sum, their_grad, their_factors), (our_sum, our_grad, our_factors) = results
        assert torch.equal(our_sum, their_sum)
        if weights is not None:
            assert torch.equal(our_factors, their_factors)
        if options.get("sparse") or options["mode"] == "max":
            assert len(calls) == before
            assert torch.equal(our_grad.to_dense(), their_grad.to_dense())
            assert our_grad.is_sparse == their_grad.is_sparse
            continue
        ours_alone += 1
        assert len(calls) == before + 1
        truth = exact_bags(upstream, ids, len(sample.input), weights, **options)
        assert_closer(our_grad, their_grad, truth)
    assert ours_alone >= 30


def test_gradient_checks_of_embedding_bag(calls: Calls) -> None:
    """Second derivatives too, which torch's own does not have."""
    assert not BAG.supports_gradgrad
    for sample in samples(BAG, torch.float64, True):
        options = dict(sample.kwargs)
        weights = options.pop("per_sample_weights", None)
        inputs = [sample.input] if weights is None else [sample.input, weights]

        def call(
            table: Any, factors: Any = None, sample: Any = sample, options: Any = options
        ) -> Any:
            return bag(table, *sample.args, per_sample_weights=factors, **options)

        before = len(calls)
        assert torch.autograd.gradcheck(call, inputs)
        if options["mode"] != "max":
            assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)
            assert len(calls) > before
