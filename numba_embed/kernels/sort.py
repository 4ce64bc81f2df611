"""Ordering the entries of one bucket: by counting where rows are dense, else by merging."""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import memory
from numba_embed.runtime import jit, jit_inline

RUN = 16
"""Runs up to this length are sorted by insertion."""

SPARSE = 16
"""With more than this many rows per entry, clearing and summing the counters costs more than
comparing."""

MAX_COUNTED = 1 << 32
"""Counters are uint32."""


@jit_inline
def order_bucket(
    source: Any, target: Any, first: int, end: int, row: int, rows: int, bits: Any, frequency: Any
) -> None:
    """Write ``source[first:end]`` in ascending order to ``target[first:end]``.

    The entries belong to ``rows`` rows from ``row`` on and are already in stream order; ``bits`` is
    the width of the position. ``source[first:end]`` may be overwritten.
    """
    if rows == 1:
        memory.copy(source, target, first, end)
    elif (end - first) * SPARSE < rows or rows > frequency.size or end - first >= MAX_COUNTED:
        merge_sort(source, target, first, end)
    else:
        counting_sort(source, target, first, end, row, rows, bits, frequency)


@jit
def counting_sort(
    source: Any, target: Any, first: int, end: int, row: int, rows: int, bits: Any, frequency: Any
) -> None:
    """Order one bucket stably by counting its look-ups row by row. O(entries + rows)."""
    memory.clear(frequency, 0, rows)
    for place in range(first, end):
        frequency[np.int64(source[place] >> bits) - row] += np.uint32(1)
    running = np.uint32(0)
    for key in range(rows):
        count = frequency[key]
        frequency[key] = running
        running += count
    for place in range(first, end):
        entry = source[place]
        key = np.int64(entry >> bits) - row
        target[first + np.int64(frequency[key])] = entry
        frequency[key] += np.uint32(1)


@jit
def merge_sort(source: Any, target: Any, first: int, end: int) -> None:
    """Sort ``source[first:end]`` into ``target[first:end]``. O(n log n), no other memory."""
    passes, width = 0, RUN
    while width < end - first:
        width *= 2
        passes += 1
    one, other = source, target
    if passes % 2 == 0:
        memory.copy(source, target, first, end)
        one, other = target, source
    for start in range(first, end, RUN):
        for place in range(start + 1, min(start + RUN, end)):
            entry = one[place]
            hole = place
            while hole > start and one[hole - 1] > entry:
                one[hole] = one[hole - 1]
                hole -= 1
            one[hole] = entry
    width = RUN
    for _ in range(passes):
        for start in range(first, end, 2 * width):
            merge(one, other, start, min(start + width, end), min(start + 2 * width, end))
        one, other = other, one
        width *= 2


@jit_inline
def merge(one: Any, other: Any, left: int, middle: int, end: int) -> None:
    """Merge the ascending ``one[left:middle]`` and ``one[middle:end]`` into ``other``."""
    right = middle
    for place in range(left, end):
        if left < middle and (right >= end or one[left] <= one[right]):
            other[place] = one[left]
            left += 1
        else:
            other[place] = one[right]
            right += 1
