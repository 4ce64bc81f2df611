"""Checking and counting the indices, and the stable order of their positions by row.

`count` reads the indices once: each of T threads checks a chunk, stores it as rows and counts their
lowest digits. If no index is bad, the positions are put in order digit by digit (`sort`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload as _overload

from numba_embed.kernels import memory
from numba_embed.kernels.asking import ask_to_write
from numba_embed.kernels.layout import LINE, MOST_DIGITS
from numba_embed.kernels.memory import pointer_at
from numba_embed.kernels.phases import RUN, STOP, Kernel, Phase
from numba_embed.kernels.sort import (
    clear_counts,
    count_digit,
    counts_to_places,
    digit_counts,
    move_by_digit,
    next_digit,
    order_at,
    place_digit,
)
from numba_embed.runtime import JIT_OPTIONS, cached, jit_inline

overload: Any = _overload

OUT_OF_RANGE = -1
NOT_AN_INTEGER = -2
NONE_BAD = -1


def as_row(index: Any, num_weights: int) -> int:
    """Return an index as a row, or OUT_OF_RANGE, or NOT_AN_INTEGER. Kernels only."""
    raise TypeError("as_row is for use inside kernels")


@overload(as_row, jit_options=JIT_OPTIONS, strict=False)
def _overload_as_row(index: Any, num_weights: Any) -> Any:
    if isinstance(index, types.Float):

        def from_float(index, num_weights):  # type: ignore[no-untyped-def]
            if np.isnan(index) or (np.isfinite(index) and np.floor(index) != index):
                return NOT_AN_INTEGER
            # The number of rows may be no float64: compared as integers.
            if index >= 0.0 and index < 2.0**63 and np.int64(index) < num_weights:
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
def check_chunk(thread: int, call_address: int, index_like: Any, row_like: Any) -> None:
    """Check one thread's chunk of the indices, store it as rows and count their lowest digits.

    Positions that take no part (padding, and out of range where that is dropped) are stored as the
    largest value of the row type. Writes the chunk's rows, the thread's line of the histogram and
    its entry of ``bad``: the first bad position of the chunk, or NONE_BAD.
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    num_weights, padding, dropping = plan.num_weights, plan.padding, plan.dropping != 0
    indices = pointer_at(call.indices, index_like)
    rows = pointer_at(order_at(call, plan, 0), row_like)
    clear_counts(call, plan, thread)
    counts = digit_counts(call, plan, thread)
    mask = (1 << plan.digit_bits) - 1
    none = ~row_like
    bad = memory.words(call.workspace + plan.bad)
    bad[thread] = NONE_BAD
    first, end = memory.chunk(thread, plan.threads, plan.num_positions)
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
            counts[row & mask] += 1


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
def place_rows(call_address: int) -> int:
    """Turn the counts of the lowest digit into places, if no index is bad.

    Notes in the call which index is bad and how many positions take part. Returns whether to go
    on: not if an index is bad.
    """
    if stop_if_bad(call_address) == STOP:
        return STOP
    call = memory.call_at(call_address)
    call.taking_part = counts_to_places(call, memory.plan_at(call.plan))
    call.digit = 0
    return RUN


@jit_inline
def move_rows(thread: int, call_address: int, row_like: Any) -> None:
    """Make entries of one thread's chunk of the rows, and write them to their places.

    The line behind each place is asked for, as in `move_by_digit`.
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    rows = pointer_at(order_at(call, plan, 0), row_like)
    moved = memory.entries(order_at(call, plan, 1))
    ahead = order_at(call, plan, 1) + LINE
    places = digit_counts(call, plan, thread)
    bits, mask, none = np.uint64(plan.position_bits), (1 << plan.digit_bits) - 1, ~row_like
    first, end = memory.chunk(thread, plan.threads, plan.num_positions)
    for position in range(first, end):
        row = rows[position]
        if row != none:
            digit = np.int64(row) & mask
            place = places[digit]
            places[digit] = place + 1
            ask_to_write(ahead + place * 8)
            moved[place] = (np.uint64(row) << bits) | np.uint64(position)


_FURTHER = (
    Phase(count_digit, before=next_digit),
    Phase(move_by_digit, before=place_digit),
)

COUNT = (
    Phase(check_chunk, ("index", "row")),
    Phase(move_rows, ("row",), before=place_rows),
    *_FURTHER * (MOST_DIGITS - 1),
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
