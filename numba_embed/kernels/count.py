"""Checking and counting the indices, and the stable order of their positions by row.

`count` reads the indices once: each of T threads checks a chunk and counts its look-ups per bucket,
a bucket being one core's rows, or a slice or a group of cores. Then it sends every position to its
bucket in one stable pass, and counts and orders core by core within a bucket, whose frequency
buffer fits the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload as _overload

from numba_embed.kernels import layout as at
from numba_embed.kernels import memory
from numba_embed.kernels.memory import pointer_at, take_ticket
from numba_embed.kernels.phases import RUN, STOP, Kernel, Phase
from numba_embed.kernels.sort import order_bucket
from numba_embed.runtime import JIT_OPTIONS, cached, jit_inline

overload: Any = _overload

OUT_OF_RANGE = -1
NOT_AN_INTEGER = -2
NONE_BAD = -1

BUCKET_GROUPS = 64
"""Groups of buckets per thread, the unit in which threads take buckets."""


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
def bucket_map(plan: Any) -> Any:
    """Return what `bucket_of` needs of the plan, as a tuple of scalars."""
    return (
        plan.last_start,
        plan.outer_rows,
        plan.slices,
        plan.last_base,
        1.0 / plan.outer_rows,
        1.0 / plan.width,
        1.0 / plan.last_width,
    )


@jit_inline
def bucket_of(row: int, mapping: Any) -> int:
    """Return the bucket that holds a row."""
    last_start, outer_rows, slices, last_base, per_outer, per_width, per_last = mapping
    if row >= last_start:
        bucket = last_base + divide(row - last_start, per_last)
    else:
        bucket = divide(row, per_outer)
        if slices > 1:
            inner = divide(row - bucket * outer_rows, per_width)
            bucket = bucket * slices + inner
    return bucket


@jit_inline
def bucket_rows(bucket: int, plan: Any) -> tuple[int, int]:
    """Return the half-open range of rows of a bucket: the inverse of `bucket_of`."""
    if bucket >= plan.last_base:
        first = plan.last_start + (bucket - plan.last_base) * plan.last_width
        return first, min(first + plan.last_width, plan.num_weights)
    outer, inner = bucket // plan.slices, bucket % plan.slices
    first = outer * plan.outer_rows + inner * plan.width
    limit = min((outer + 1) * plan.outer_rows, plan.last_start)
    return min(first, limit), min(first + plan.width, limit)


@jit_inline
def check_chunk(thread: int, call_address: int, index_like: Any, row_like: Any) -> None:
    """Check one thread's chunk of the indices, store it as rows and count look-ups per bucket.

    Positions that take no part (padding, and out of range where that is dropped) are stored as the
    largest value of the row type. Writes the chunk's rows, the thread's line of the histogram and
    its entry of ``bad``: the first bad position of the chunk, or NONE_BAD.
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    size, num_weights, padding = plan.num_positions, plan.num_weights, plan.padding
    dropping = plan.dropping != 0
    indices = pointer_at(call.indices, index_like)
    rows = pointer_at(call.workspace + plan.entries, row_like)
    buckets = plan.buckets
    counts = memory.words(call.workspace + plan.histogram + thread * buckets * 8)
    for bucket in range(buckets):
        counts[bucket] = 0
    mapping = bucket_map(plan)
    none = ~row_like
    bad = memory.words(call.workspace + plan.bad)
    bad[thread] = NONE_BAD
    first, end = memory.chunk(thread, plan.threads, size)
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
            counts[bucket_of(row, mapping)] += 1


@jit_inline
def note_bad(call: Any, plan: Any) -> None:
    """Note in the call the first bad position of all chunks, or NONE_BAD."""
    bad = memory.words(call.workspace + plan.bad)
    call.bad = NONE_BAD
    for thread in range(plan.threads):
        if bad[thread] != NONE_BAD and (call.bad == NONE_BAD or bad[thread] < call.bad):
            call.bad = bad[thread]


@jit_inline
def stop_if_bad(call_address: int) -> int:
    """Note in the call which index is bad. Returns whether to go on."""
    call = memory.call_at(call_address)
    note_bad(call, memory.plan_at(call.plan))
    return RUN if call.bad == NONE_BAD else STOP


@jit_inline
def prefix_buckets(call_address: int) -> int:
    """Turn the histogram into each thread's first place in each bucket; fill ``bucket_start``.

    Notes in the call which index is bad and how many positions take part. Returns whether to go
    on: not if an index is bad.
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    note_bad(call, plan)
    if call.bad != NONE_BAD:
        return STOP
    buckets, threads = plan.buckets, plan.threads
    histogram = memory.words(call.workspace + plan.histogram)
    start = memory.words(call.workspace + plan.bucket_start)
    running = 0
    for bucket in range(buckets):
        start[bucket] = running
        for thread in range(threads):
            place = thread * buckets + bucket
            count = histogram[place]
            histogram[place] = running
            running += count
    start[buckets] = running
    call.taking_part = running
    return RUN


@jit_inline
def scatter_chunk(thread: int, call_address: int, row_like: Any) -> None:
    """Send the positions of one thread's chunk to their buckets, in stream order.

    Writes the places of ``scattered`` that the prefix gave to this thread, and no others.
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    size, buckets = plan.num_positions, plan.buckets
    rows = pointer_at(call.workspace + plan.entries, row_like)
    scattered = memory.entries(call.workspace + plan.scattered)
    places = memory.words(call.workspace + plan.histogram + thread * buckets * 8)
    bits = np.uint64(plan.position_bits)
    mapping = bucket_map(plan)
    none = ~row_like
    first, end = memory.chunk(thread, plan.threads, size)
    for position in range(first, end):
        row = rows[position]
        if row != none:
            bucket = bucket_of(np.int64(row), mapping)
            place = places[bucket]
            places[bucket] = place + 1
            scattered[place] = (np.uint64(row) << bits) | np.uint64(position)


@jit_inline
def order_buckets(thread: int, call_address: int) -> None:
    """Order bucket after bucket, taking groups by ticket. Writes their ranges of ``entries``."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    buckets = plan.buckets
    start = memory.words(call.workspace + plan.bucket_start)
    frequency = call.workspace + plan.private + thread * plan.private_stride + at.FREQUENCY
    groups = min(buckets, BUCKET_GROUPS * plan.threads) if plan.threads > 1 else 1
    group = take_ticket(call.workspace + plan.tickets)
    while group < groups:
        first_bucket, end_bucket = memory.chunk(group, groups, buckets)
        for bucket in range(first_bucket, end_bucket):
            first, end = start[bucket], start[bucket + 1]
            if end > first:
                row, end_row = bucket_rows(bucket, plan)
                order_bucket(
                    call.workspace + plan.scattered + first * 8,
                    call.workspace + plan.entries + first * 8,
                    end - first,
                    row,
                    end_row - row,
                    plan.position_bits,
                    frequency,
                    plan.counters,
                )
        group = take_ticket(call.workspace + plan.tickets)


COUNT = (
    Phase(check_chunk, ("index", "row")),
    Phase(scatter_chunk, ("row",), before=prefix_buckets),
    Phase(order_buckets),
)
"""Check all indices and store them as rows; then order the positions by row, stably.

What follows does not run if an index is bad: ``bad`` of the call is the first bad position in
stream order, or NONE_BAD. Else ``entries`` holds ``taking_part`` ascending entries
``row << position_bits | position``.
"""

count = Kernel(*COUNT)
"""Check, count and order, and no more."""


@cached
def count_per_core(in_tables: bool, first_core: int, lookups: Any, call_address: int) -> None:
    """Add up the look-ups that were counted, by core; ``lookups[0]`` is ``first_core``'s.

    From the frequencies of the partial tables, or from the ordered entries. Serial only.
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    core_rows = max(1, plan.core_rows)
    if in_tables:
        num_weights, blocks = plan.num_weights, plan.blocks
        counts = memory.words(call.workspace + plan.table_counts)
        for place in range(blocks * num_weights):
            core = min((place % num_weights) // core_rows - first_core, lookups.size - 1)
            lookups[max(core, 0)] += counts[place]
        return
    order = memory.entries(call.workspace + plan.entries)
    bits = np.uint64(plan.position_bits)
    for place in range(call.taking_part):
        core = min(np.int64(order[place] >> bits) // core_rows - first_core, lookups.size - 1)
        lookups[max(core, 0)] += 1
