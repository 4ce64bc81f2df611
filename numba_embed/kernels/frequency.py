"""Counting look-ups by row or by range of rows, for the simulator.

Both kernels look at the rows of a window ``[low, low + size)`` and pass over all others, so that a
table of any size is counted window by window, in memory that does not grow with it.
"""

from __future__ import annotations

from typing import Any

from numba_embed.runtime import cached


@cached
def count_window(rows: Any, low: int, size: int, shift: int, counts: Any) -> None:
    """Add the look-ups of a window to ``counts``, one entry for each ``2**shift`` rows.

    ``rows`` is uint64 (n,), ``low``, ``size`` and ``shift`` are uint64; ``counts`` is int64, of
    at least ``(size - 1 >> shift) + 1`` entries, and is what this writes.
    """
    for row in rows:
        offset = row - low  # wraps around for a row below the window, and so is large
        if offset < size:
            counts[offset >> shift] += 1


@cached
def gather_window(rows: Any, low: int, size: int, gathered: Any, filled: int) -> int:
    """Append the rows of a window to ``gathered``, uint64, of which ``filled`` entries are in use.

    Rows are kept in stream order; those beyond the end of ``gathered`` are dropped. Returns how
    many entries are in use afterwards.
    """
    for row in rows:
        if row - low < size and filled < gathered.size:
            gathered[filled] = row
            filled += 1
    return filled
