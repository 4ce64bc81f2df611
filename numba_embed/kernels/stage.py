"""Streaming stores: output rows are gathered in a buffer and leave it as whole cache lines.

An ordinary store first reads the line that it overwrites; a streaming store of a whole aligned line
does not. A thread's rows are one contiguous piece of the output, so only the two ends of that piece
are written with ordinary stores, whatever the alignment or the number of columns.

The state is two numbers: ``place``, the address that the buffer's first byte is bound for, and
``staged``, how many bytes the buffer holds.
"""

from __future__ import annotations

from numba_embed.kernels import layout as at
from numba_embed.kernels.layout import LINE
from numba_embed.kernels.memory import clear_bytes, copy_bytes, stream_line
from numba_embed.runtime import jit

FULL = 8 * (at.STAGE - at.TILE)
"""Bytes from which on the buffer is flushed: another tile may not fit."""


LONG_RUN = 1024
"""Bytes of zeros from which on they are streamed without passing through the buffer."""


@jit
def flush(stage: int, place: int, staged: int) -> int:
    """Write the whole lines of the buffer. Returns how many bytes remain, moved to its start.

    They are less than a line, bound for ``place + staged - remaining``.
    """
    head = min(-place & (LINE - 1), staged)
    if head:
        copy_bytes(place, stage, head)
    end = head + ((staged - head) & ~(LINE - 1))
    for offset in range(head, end, LINE):
        stream_line(place + offset, stage + offset)
    if staged > end:
        copy_bytes(stage, stage + end, staged - end)
    return staged - end


@jit
def finish(stage: int, place: int, staged: int) -> None:
    """Write all that the buffer holds."""
    remaining = flush(stage, place, staged)
    if remaining:
        copy_bytes(place + staged - remaining, stage, remaining)


@jit
def stage_zeros(stage: int, place: int, staged: int, size: int) -> tuple[int, int]:
    """Append ``size`` zero bytes; a long run is streamed straight. Returns (place, staged)."""
    if size > LONG_RUN:
        # Fill the last line up, so that the buffer empties, then stream whole lines of zeros.
        fill = -(place + staged) & (LINE - 1)
        clear_bytes(stage + staged, fill)
        staged += fill
        flush(stage, place, staged)
        place += staged
        size -= fill
        clear_bytes(stage, LINE)
        for _ in range(size // LINE):
            stream_line(place, stage)
            place += LINE
        staged = 0
        size &= LINE - 1
    clear_bytes(stage + staged, size)
    staged += size
    if staged > FULL:
        remaining = flush(stage, place, staged)
        place += staged - remaining
        staged = remaining
    return place, staged
