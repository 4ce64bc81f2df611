"""Checking and counting the indices, and the stable order of their positions by row.

`check` reads the indices once: each of T threads checks a chunk and counts its look-ups per bucket,
a bucket being one core's rows, or a slice or a group of cores. `order` then sends every position to
its bucket in one stable pass, and counts and orders core by core within a bucket, whose frequency
buffer fits the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange, types

from numba_embed.kernels import layout as at
from numba_embed.kernels import memory
from numba_embed.kernels.bits import array_at, overload, take_ticket
from numba_embed.kernels.sort import order_bucket
from numba_embed.runtime import JIT_OPTIONS, jit, jit_inline, kernel

OUT_OF_RANGE = -1
NOT_AN_INTEGER = -2
NONE_BAD = -1

_UINT32 = np.zeros(1, np.uint32)


def as_row(index: Any, num_weights: int) -> int:
    """Return an index as a row, or OUT_OF_RANGE, or NOT_AN_INTEGER. Kernels only."""
    raise TypeError("as_row is for use inside kernels")


@overload(as_row, jit_options=JIT_OPTIONS, strict=False)
def _overload_as_row(index: Any, num_weights: Any) -> Any:
    if isinstance(index, types.Float):

        def from_float(index, num_weights):  # type: ignore[no-untyped-def]
            if np.isnan(index) or (np.isfinite(index) and np.floor(index) != index):
                return NOT_AN_INTEGER
            if index >= 0.0 and index < np.float64(num_weights):
                return np.int64(index)
            return OUT_OF_RANGE

        return from_float

    def from_integer(index, num_weights):  # type: ignore[no-untyped-def]
        # As an unsigned number a negative one is large: one comparison checks both ends.
        if np.uint64(np.int64(index)) < np.uint64(num_weights):
            return np.int64(index)
        return OUT_OF_RANGE

    return from_integer


@jit_inline
def divide(row: int, inverse: float) -> int:
    """Return ``row // d`` where ``inverse`` is 1 / d.

    Exact for rows below 2**50: (row + 1/2) / d is at least 1/(2 d) away from every integer, more
    than the two roundings move it. A float64 product costs a fraction of an integer division.
    """
    return np.int64((np.float64(row) + 0.5) * inverse)


@jit_inline
def bucket_map(params: Any) -> Any:
    """Return what `bucket_of` needs of the plan, as a tuple of scalars."""
    return (
        params[at.LAST_START],
        params[at.OUTER_ROWS],
        params[at.SLICES],
        params[at.LAST_BASE],
        1.0 / params[at.OUTER_ROWS],
        1.0 / params[at.WIDTH],
        1.0 / params[at.LAST_WIDTH],
    )


@jit
def bucket_of(row: int, mapping: Any) -> int:
    """Return the bucket that holds a row."""
    last_start, outer_rows, slices, last_base, per_outer, per_width, per_last = mapping
    if row >= last_start:
        return last_base + divide(row - last_start, per_last)
    outer = divide(row, per_outer)
    if slices == 1:
        return outer
    return outer * slices + divide(row - outer * outer_rows, per_width)


@jit_inline
def bucket_rows(bucket: int, params: Any) -> tuple[int, int]:
    """Return the half-open range of rows of a bucket: the inverse of `bucket_of`."""
    if bucket >= params[at.LAST_BASE]:
        width = params[at.LAST_WIDTH]
        first = params[at.LAST_START] + (bucket - params[at.LAST_BASE]) * width
        return first, min(first + width, params[at.V])
    outer, inner = bucket // params[at.SLICES], bucket % params[at.SLICES]
    first = outer * params[at.OUTER_ROWS] + inner * params[at.WIDTH]
    limit = min((outer + 1) * params[at.OUTER_ROWS], params[at.LAST_START])
    return min(first, limit), min(first + params[at.WIDTH], limit)


@jit
def check_chunk(thread: int, index_like: Any, row_like: Any, operands: Any, params: Any) -> None:
    """Check one thread's chunk of the indices, store it as rows and count look-ups per bucket.

    Positions that take no part (padding, and out of range where that is dropped) are stored as the
    largest value of the row type. Writes the chunk's rows, the thread's line of the histogram and
    its entry of BAD: the first bad position of the chunk, or NONE_BAD.
    """
    size, num_weights, padding = params[at.N], params[at.V], params[at.PADDING]
    dropping = params[at.DROPPING] != 0
    indices = array_at(operands[at.INDICES], size, index_like)
    rows = memory.typed(operands, params[at.ENTRIES], size, row_like)
    buckets = params[at.BUCKETS]
    counts = memory.words(operands, params[at.HISTOGRAM] + thread * buckets * 8, buckets)
    memory.clear(counts, 0, buckets)
    mapping = bucket_map(params)
    none = ~row_like[0]
    bad = memory.words(operands, params[at.BAD], params[at.THREADS])
    bad[thread] = NONE_BAD
    first, end = memory.chunk(thread, params[at.THREADS], size)
    for position in range(first, end):
        row = as_row(indices[position], num_weights)
        if row < 0:
            if row == NOT_AN_INTEGER or not dropping:
                bad[thread] = position
                return
            rows[position] = none
        elif row == padding:
            rows[position] = none
        else:
            rows[position] = row
            if buckets > 0:
                counts[bucket_of(row, mapping)] += 1


@jit
def first_bad(operands: Any, params: Any) -> int:
    """Return the first bad position of all chunks, or NONE_BAD."""
    bad = memory.words(operands, params[at.BAD], params[at.THREADS])
    for thread in range(params[at.THREADS]):
        if bad[thread] != NONE_BAD:
            return bad[thread]
    return NONE_BAD


@kernel
def check(index_like: Any, row_like: Any, operands: Any, params: Any) -> int:
    """Check all indices, store them as rows and count them by bucket.

    Returns the first bad position in stream order, or NONE_BAD.
    """
    for thread in prange(params[at.THREADS]):
        check_chunk(np.int64(thread), index_like, row_like, operands, params)
    return first_bad(operands, params)


@jit
def prefix_buckets(operands: Any, params: Any) -> int:
    """Turn the histogram into each thread's first place in each bucket; fill BUCKET_START.

    Returns how many positions take part.
    """
    buckets, threads = params[at.BUCKETS], params[at.THREADS]
    histogram = memory.words(operands, params[at.HISTOGRAM], threads * buckets)
    start = memory.words(operands, params[at.BUCKET_START], buckets + 1)
    running = 0
    for bucket in range(buckets):
        start[bucket] = running
        for thread in range(threads):
            place = thread * buckets + bucket
            count = histogram[place]
            histogram[place] = running
            running += count
    start[buckets] = running
    return running


@jit
def scatter_chunk(thread: int, row_like: Any, operands: Any, params: Any) -> None:
    """Send the positions of one thread's chunk to their buckets, in stream order.

    Writes the places of SCATTERED that the prefix gave to this thread, and no others.
    """
    size, buckets = params[at.N], params[at.BUCKETS]
    rows = memory.typed(operands, params[at.ENTRIES], size, row_like)
    scattered = memory.entries(operands, params[at.SCATTERED], size)
    place = memory.words(operands, params[at.HISTOGRAM] + thread * buckets * 8, buckets)
    bits = np.uint64(params[at.POSITION_BITS])
    mapping = bucket_map(params)
    none = ~row_like[0]
    first, end = memory.chunk(thread, params[at.THREADS], size)
    for position in range(first, end):
        row = rows[position]
        if row != none:
            bucket = bucket_of(np.int64(row), mapping)
            scattered[place[bucket]] = (np.uint64(row) << bits) | np.uint64(position)
            place[bucket] += 1


@jit
def order_buckets(thread: int, operands: Any, params: Any) -> None:
    """Order bucket after bucket, taking each by ticket. Writes the bucket's range of ENTRIES."""
    size, buckets = params[at.N], params[at.BUCKETS]
    scattered = memory.entries(operands, params[at.SCATTERED], size)
    ordered = memory.entries(operands, params[at.ENTRIES], size)
    start = memory.words(operands, params[at.BUCKET_START], buckets + 1)
    tickets = memory.words(operands, params[at.TICKETS], 1)
    frequency = memory.typed(
        operands, memory.private(params, thread, at.FREQUENCY), params[at.COUNTERS], _UINT32
    )
    bits = np.uint64(params[at.POSITION_BITS])
    groups = min(buckets, 64 * params[at.THREADS])
    group = take_ticket(tickets, 0)
    while group < groups:
        first_bucket, end_bucket = memory.chunk(group, groups, buckets)
        for bucket in range(first_bucket, end_bucket):
            first, end = start[bucket], start[bucket + 1]
            if end > first:
                row, end_row = bucket_rows(bucket, params)
                order_bucket(scattered, ordered, first, end, row, end_row - row, bits, frequency)
        group = take_ticket(tickets, 0)


@kernel
def order(row_like: Any, operands: Any, params: Any) -> int:
    """Order the positions by row, stably. Returns how many take part.

    Afterwards ENTRIES holds that many entries ``row << POSITION_BITS | position``, ascending.
    """
    threads = params[at.THREADS]
    taking_part = prefix_buckets(operands, params)
    for thread in prange(threads):
        scatter_chunk(np.int64(thread), row_like, operands, params)
    memory.reset_tickets(operands, params)
    for thread in prange(threads):
        order_buckets(np.int64(thread), operands, params)
    return taking_part


@kernel
def count_per_core(
    in_tables: bool, taking_part: int, first_core: int, lookups: Any, operands: Any, params: Any
) -> None:
    """Add up the look-ups that were counted, by core; ``lookups[0]`` is ``first_core``'s.

    From the frequencies of the partial tables, or from the ordered entries. Serial only.
    """
    core_rows = max(1, params[at.CORE_ROWS])
    if in_tables:
        num_weights, blocks = params[at.V], params[at.BLOCKS]
        counts = memory.words(operands, params[at.TABLE_COUNTS], blocks * num_weights)
        for place in range(blocks * num_weights):
            core = min((place % num_weights) // core_rows - first_core, lookups.size - 1)
            lookups[max(core, 0)] += counts[place]
        return
    order = memory.entries(operands, params[at.ENTRIES], taking_part)
    bits = np.uint64(params[at.POSITION_BITS])
    for place in range(taking_part):
        core = min(np.int64(order[place] >> bits) // core_rows - first_core, lookups.size - 1)
        lookups[max(core, 0)] += 1
