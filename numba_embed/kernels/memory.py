"""Views of the workspace, and the cutting of work among threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import layout as at
from numba_embed.kernels.bits import array_at
from numba_embed.runtime import jit, jit_inline

_INT64 = np.zeros(1, np.int64)
_UINT64 = np.zeros(1, np.uint64)
_FLOAT64 = np.zeros(1, np.float64)


@jit_inline
def words(operands: Any, offset: int, length: int) -> Any:
    """Return ``length`` int64 at a byte offset of the workspace."""
    return array_at(operands[at.WORKSPACE] + offset, length, _INT64)


@jit_inline
def entries(operands: Any, offset: int, length: int) -> Any:
    """Return ``length`` uint64 at a byte offset of the workspace."""
    return array_at(operands[at.WORKSPACE] + offset, length, _UINT64)


@jit_inline
def doubles(operands: Any, offset: int, length: int) -> Any:
    """Return ``length`` float64 at a byte offset of the workspace."""
    return array_at(operands[at.WORKSPACE] + offset, length, _FLOAT64)


@jit_inline
def typed(operands: Any, offset: int, length: int, like: Any) -> Any:
    """Return ``length`` elements of the type of ``like`` at a byte offset of the workspace."""
    return array_at(operands[at.WORKSPACE] + offset, length, like)


@jit_inline
def private(params: Any, thread: int, buffer: int) -> int:
    """Return the byte offset of one of a thread's own buffers."""
    return params[at.PRIVATE] + thread * params[at.PRIVATE_STRIDE] + buffer


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
def reset_tickets(operands: Any, params: Any) -> None:
    """Start handing out pieces of work from 0 again. Between parallel phases only."""
    words(operands, params[at.TICKETS], 1)[0] = 0
