"""The library's own contenders for a case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

import numba_embed as ne
from numba_embed.bench.cases import Case, Operands
from numba_embed.bench.peers import BASE, UnsupportedError
from numba_embed.bench.timing import Contender, in_steps

TITLES = {
    "fresh": "fresh",
    "out": "out=",
    "pooled": "pooled",
    "one_thread": "one thread",
}
"""Contenders, and their columns' titles: one call of the function with a fresh output; a reused
plan, workspace and output; a fresh output whose memory comes from an output pool; as "out", with
one thread."""


class Own(NamedTuple):
    """One of the library's own contenders, and how its result is checked."""

    contender: Contender
    checked: Callable[[], Any]
    """Runs it once on an output that shows what was not written; returns the result."""


def prepare(name: str, case: Case, operands: Operands) -> Own:
    """Return the contender of this name.

    Raises
    ------
    UnsupportedError
        The case has no such contender, or this version of the library has no output pool.
    """
    if name in ("fresh", "pooled"):
        return _fresh(name, case, operands)
    plan = ne.plan_dense_backward(
        operands.grad.shape,
        operands.grad.dtype,
        operands.indices.shape,
        operands.indices.dtype,
        case.V,
        num_threads=1 if name == "one_thread" else None,
        **operands.kwargs,
    )
    workspace = plan.make_workspace()
    out = operands.make_out()

    def call() -> Any:
        return plan.execute(operands.grad, operands.indices, out, case.accumulate, workspace)

    def checked() -> Any:
        out[...] = BASE if case.accumulate else np.nan
        return call()

    return Own(_contender(case, call), checked)


def _fresh(name: str, case: Case, operands: Operands) -> Own:
    if case.accumulate:
        raise UnsupportedError("adds to an array that exists")
    grad, indices, kwargs = operands.grad, operands.indices, operands.kwargs

    def call() -> Any:
        return ne.embedding_dense_backward(grad, indices, case.V, **kwargs)

    if name == "fresh":
        return Own(_contender(case, call), call)
    # Room for the output itself and for what the pool rounds up or keeps beside it.
    limit = 2 * case.out_nbytes + (1 << 20)

    def context() -> AbstractContextManager[Any]:
        return ne.output_pool(limit)

    def checked() -> Any:
        with context():
            call()[...] = np.nan  # dropped: its memory serves the next call
            return call()

    own = _contender(case, call)
    own.context = context
    return Own(own, checked)


def _contender(case: Case, call: Callable[[], Any]) -> Contender:
    if case.steps:
        return Contender(in_steps(call, case.steps), steps=case.steps)
    return Contender(call)
