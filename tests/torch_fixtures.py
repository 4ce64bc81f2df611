"""Fixtures of the tests of the torch backend: recorded calls, and the switch as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch_checks import Call, Calls, backend

from numba_embed.torch import dense


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Record the calls of the kernels."""
    recorded = Calls()
    execute = dense.executor()

    def spy(plan: Any, grad: Any, indices: Any, *rest: Any, **options: Any) -> Any:
        recorded.append(Call(plan.threads, grad, indices, options))
        return execute(plan, grad, indices, *rest, **options)

    monkeypatch.setattr(dense, "executor", lambda: spy)
    return recorded


@pytest.fixture
def switched_off() -> Iterator[None]:
    """Leave torch's own kernel behind, whatever a test does."""
    assert not backend.is_enabled()
    yield
    backend.disable()
    assert not backend.is_enabled()
