"""torch.compile: what reaches the kernels under which compiler, in counted calls."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_checks import Calls, backend, exact_bags, torch, waves

pytest_plugins = ["torch_fixtures"]
config = pytest.importorskip("torch._inductor.config")
pytestmark = pytest.mark.usefixtures("switched_off")

F = torch.nn.functional
IDS = torch.tensor([[1, 4, 4], [0, 1, 1]])
STEPS = 3


def train(call: Callable[[Any, Any], Any], compiler: str) -> list[Any]:
    """Take some steps with a compiled loss; return their gradients."""
    torch.compiler.reset()
    weight = waves((6, 3)).requires_grad_()
    compiled = torch.compile(
        lambda weight, ids: (call(weight, ids) * 2).sin().sum(), backend=compiler, fullgraph=True
    )
    grads = []
    for step in range(STEPS):
        weight.grad = None
        compiled(weight, IDS.roll(step)).backward()
        grads.append(weight.grad)
    return grads


def switched(weight: Any, ids: Any) -> Any:
    return F.embedding(ids, weight)


def want() -> list[Any]:
    grads = []
    for step in range(STEPS):
        weight = waves((6, 3)).requires_grad_()
        (F.embedding(IDS.roll(step), weight) * 2).sin().sum().backward()
        grads.append(weight.grad)
    return grads


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_the_switch_works_where_the_operator_stays_whole(
    compiler: str,
    calls: Calls,
) -> None:
    expected = want()
    with backend.enabled():
        torch.testing.assert_close(train(switched, compiler), expected)
    assert len(calls) == STEPS


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_the_function_stays_whole(compiler: str, calls: Calls) -> None:
    torch.testing.assert_close(train(backend.embedding, compiler), want())
    assert len(calls) == STEPS


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_decomposes_the_operator_and_keeps_the_function(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(config, "compile_threads", 1)
    expected = want()
    with backend.enabled():
        torch.testing.assert_close(train(switched, "inductor"), expected)
    assert not calls, "the switch has no effect under inductor, which the guide says"
    torch.testing.assert_close(train(backend.embedding, "inductor"), expected)
    assert len(calls) == STEPS


def test_compiled_bags(calls: Calls) -> None:
    """The module stays one graph, for both ways to say where bags begin."""
    torch.compiler.reset()
    offsets = torch.tensor([0, 2, 2])
    module = backend.EmbeddingBag(6, 3, mode="mean", padding_idx=4, _weight=waves((6, 3)))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    for ids, bounds in ((IDS, None), (IDS.flatten(), offsets)):
        module.zero_grad()
        summed = compiled(ids, bounds)
        upstream = waves(tuple(summed.shape))
        summed.backward(upstream)
        truth = exact_bags(upstream, ids, 6, mode="mean", offsets=bounds, padding_idx=4)
        torch.testing.assert_close(module.weight.grad, truth)
    assert len(calls) == 2
