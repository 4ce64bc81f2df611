"""Views of the workspace, and the cutting of work among threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import layout as at
from numba_embed.kernels.bits import array_at
from numba_embed.runtime import jit, jit_inline

_PLAN = np.zeros(1, at.PLAN)
_CALL = np.zeros(1, at.CALL)
_INT64 = np.zeros(1, np.int64)
_UINT64 = np.zeros(1, np.uint64)
_FLOAT64 = np.zeros(1, np.float64)


@jit_inline
def records(call_address: int) -> Any:
    """Return the call record at an address, and its plan's record."""
    call = array_at(call_address, 1, _CALL)[0]
    return call, array_at(call.plan, 1, _PLAN)[0]


@jit_inline
def words(call: Any, offset: int, length: int) -> Any:
    """Return ``length`` int64 at a byte offset of the workspace."""
    return array_at(call.workspace + offset, length, _INT64)


@jit_inline
def entries(call: Any, offset: int, length: int) -> Any:
    """Return ``length`` uint64 at a byte offset of the workspace."""
    return array_at(call.workspace + offset, length, _UINT64)


@jit_inline
def doubles(call: Any, offset: int, length: int) -> Any:
    """Return ``length`` float64 at a byte offset of the workspace."""
    return array_at(call.workspace + offset, length, _FLOAT64)


@jit_inline
def typed(call: Any, offset: int, length: int, like: Any) -> Any:
    """Return ``length`` elements of the type of ``like`` at a byte offset of the workspace."""
    return array_at(call.workspace + offset, length, like)


@jit_inline
def private(plan: Any, thread: int, buffer: int) -> int:
    """Return the byte offset of one of a thread's own buffers."""
    return plan.private + thread * plan.private_stride + buffer


@jit_inline
def clear(array: Any, first: int, end: int) -> None:
    """``array[first:end] = 0`` (a slice assignment would compile its error messages too)."""
    for place in range(first, end):
        array[place] = 0


@jit_inline
def copy(source: Any, target: Any, first: int, end: int) -> None:
    """``target[first:end] = source[first:end]``."""
    for place in range(first, end):
        target[place] = source[place]


@jit
def chunk(piece: int, pieces: int, size: int) -> tuple[int, int]:
    """Return the half-open range of ``size`` things that makes one of ``pieces`` equal pieces."""
    share, rest = size // pieces, size % pieces
    first = piece * share + min(piece, rest)
    return first, first + share + (1 if piece < rest else 0)


@jit
def lower_bound(order: Any, first: int, end: int, key: Any) -> int:
    """Return the first place in the ascending ``order[first:end]`` that is not below ``key``."""
    while first < end:
        middle = (first + end) >> 1
        if order[middle] < key:
            first = middle + 1
        else:
            end = middle
    return first


@jit
def reset_tickets(call_address: int) -> None:
    """Start handing out pieces of work from 0 again. Between parallel phases only."""
    call, plan = records(call_address)
    words(call, plan.tickets, 1)[0] = 0


@jit
def threads_of(call_address: int) -> int:
    """Return the number of pieces that a parallel phase is cut into."""
    _, plan = records(call_address)
    return plan.threads
