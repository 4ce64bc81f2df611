"""Streaming stores: output rows are gathered in a buffer and leave it as whole cache lines.

An ordinary store first reads the line that it overwrites; a streaming store of a whole aligned line
does not. A thread's rows are one contiguous piece of the output, so only the two ends of that piece
are written with ordinary stores, whatever the alignment or the number of columns.

The state is two numbers: ``place``, the address that the buffer's first element is bound for, and
``staged``, how many elements the buffer holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import layout as at
from numba_embed.kernels.bits import LINE, array_at, stream_line
from numba_embed.runtime import jit, jit_inline

_UINT8 = np.zeros(1, np.uint8)

MORE = np.int64(0)
LAST = np.int64(1)


@jit
def flush(stage: Any, stage_address: int, place: int, staged: int, last: int) -> int:
    """Write the buffer's whole lines, and if ``last != 0`` the rest too. Returns how many remain.

    What remains (less than a line) moves to the buffer's start; ``place`` of the next element
    written is ``place + (staged - remaining) * itemsize``.
    """
    size = staged * stage.itemsize
    head = min(-place & (LINE - 1), size)
    if head:
        copy_bytes(place, stage_address, head)
    lines_end = head + ((size - head) & ~(LINE - 1))
    for offset in range(head, lines_end, LINE):
        stream_line(place + offset, stage_address + offset)
    rest = size - lines_end
    if last != 0:
        copy_bytes(place + lines_end, stage_address + lines_end, rest)
        return np.int64(0)
    remaining = rest // stage.itemsize
    first = lines_end // stage.itemsize
    for j in range(remaining):
        stage[j] = stage[first + j]
    return remaining


@jit_inline
def copy_bytes(target: int, source: int, size: int) -> None:
    """Copy a few bytes between addresses."""
    target_view = array_at(target, size, _UINT8)
    source_view = array_at(source, size, _UINT8)
    for j in range(size):
        target_view[j] = source_view[j]


@jit
def stage_zeros(
    stage: Any, stage_address: int, place: int, staged: int, count: int
) -> tuple[int, int]:
    """Append ``count`` zeros; a long run is streamed straight. Returns (place, staged)."""
    itemsize = stage.itemsize
    if count > at.TILE:
        # Fill the last line up, so that the buffer empties, then stream whole lines of zeros.
        fill = ((-(place + staged * itemsize)) & (LINE - 1)) // itemsize
        for j in range(staged, staged + fill):
            stage[j] = 0
        staged += fill
        count -= fill
        flush(stage, stage_address, place, staged, LAST)
        place += staged * itemsize
        staged = np.int64(0)
        per_line = LINE // itemsize
        for j in range(per_line):
            stage[j] = 0
        for _ in range(count // per_line):
            stream_line(place, stage_address)
            place += LINE
        count %= per_line
    for j in range(staged, staged + count):
        stage[j] = 0
    staged += count
    if staged > at.STAGE - at.TILE:
        remaining = flush(stage, stage_address, place, staged, MORE)
        place += (staged - remaining) * itemsize
        staged = remaining
    return place, staged
