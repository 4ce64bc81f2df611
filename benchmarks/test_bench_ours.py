"""The library on every case: a fresh output, a reused one, a pooled one, and one thread."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from numba_embed.bench import ours
from numba_embed.bench.peers import BASE, UnsupportedError


@pytest.mark.parametrize("contender", ours.TITLES)
def test_ours(timer: Any, prepared: Any, contender: str) -> None:
    case = prepared.case
    try:
        own = ours.prepare(contender, case, prepared.operands)
    except UnsupportedError as error:
        pytest.skip(str(error))
    base = BASE if case.accumulate else 0.0
    assert prepared.reference.problem(own.checked(), exact=True, base=base) is None
    with nullcontext() if own.contender.context is None else own.contender.context():
        timer(own.contender.call)
