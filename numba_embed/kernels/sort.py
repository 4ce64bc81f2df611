"""Ordering the entries of one bucket: by counting where rows are dense, else by merging."""

from __future__ import annotations

import numpy as np

from numba_embed.kernels.memory import copy_bytes, entries, pointer_at
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
    source: int, target: int, size: int, row: int, rows: int, bits: int, frequency: int,
    counters: int,
) -> None:  # fmt: skip
    """Write the ``size`` entries at address ``source`` in ascending order to ``target``.

    The entries belong to ``rows`` rows from ``row`` on and are in stream order; ``bits`` is the
    width of a position; ``counters`` uint32 lie at ``frequency``. The source may be overwritten.
    """
    if rows == 1:
        copy_bytes(target, source, size * 8)
    elif size * SPARSE < rows or rows > counters or size >= MAX_COUNTED:
        merge_sort(source, target, size)
    else:
        counting_sort(source, target, size, row, rows, bits, frequency)


@jit
def counting_sort(
    source: int, target: int, size: int, row: int, rows: int, bits: int, frequency: int
) -> None:
    """Order one bucket stably by counting its look-ups row by row. O(entries + rows)."""
    unordered, ordered = entries(source), entries(target)
    count = pointer_at(frequency, np.uint32(0))
    shift = np.uint64(bits)
    for key in range(rows):
        count[key] = 0
    for place in range(size):
        count[np.int64(unordered[place] >> shift) - row] += np.uint32(1)
    running = np.uint32(0)
    for key in range(rows):
        looked_up = count[key]
        count[key] = running
        running += looked_up
    for place in range(size):
        entry = unordered[place]
        key = np.int64(entry >> shift) - row
        ordered[np.int64(count[key])] = entry
        count[key] += np.uint32(1)


@jit
def merge_sort(source: int, target: int, size: int) -> None:
    """Sort the entries at ``source`` into ``target``. O(n log n), no other memory."""
    passes, width = 0, RUN
    while width < size:
        width *= 2
        passes += 1
    one, other = source, target
    if passes % 2 == 0:
        copy_bytes(target, source, size * 8)
        one, other = target, source
    first = entries(one)
    for start in range(0, size, RUN):
        for place in range(start + 1, min(start + RUN, size)):
            entry = first[place]
            hole = place
            while hole > start and first[hole - 1] > entry:
                first[hole] = first[hole - 1]
                hole -= 1
            first[hole] = entry
    width = RUN
    for _ in range(passes):
        for start in range(0, size, 2 * width):
            middle = min(start + width, size)
            merge(one, other, start, middle, min(start + 2 * width, size))
        one, other = other, one
        width *= 2


@jit
def merge(source: int, target: int, left: int, middle: int, end: int) -> None:
    """Merge the ascending entries ``[left, middle)`` and ``[middle, end)`` into ``target``."""
    one, other = entries(source), entries(target)
    right = middle
    for place in range(left, end):
        if left < middle and (right >= end or one[left] <= one[right]):
            other[place] = one[left]
            left += 1
        else:
            other[place] = one[right]
            right += 1
