"""The stable order of the positions by row: one counting pass for each digit of the rows' numbers.

The lowest digit comes first. In a pass each of T threads counts the digits of its chunk of the
positions, then all counts become places, then each thread moves its positions there. Equal digits
keep their order, so that after the last pass positions are ordered by row, and within a row by
position. No branch depends on the data, and no row is touched that no position names.

The first pass is `numba_embed.kernels.count`'s, which reads the indices themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import memory
from numba_embed.kernels.asking import ask_to_write
from numba_embed.kernels.layout import LINE, MOST_DIGITS
from numba_embed.kernels.phases import RUN, SKIP
from numba_embed.runtime import jit_inline


@jit_inline
def order_at(call: Any, plan: Any, digits: int) -> int:
    """Return the address of the positions when they are in the order of so many digits.

    Two places serve in turn, such that the last pass writes to ``entries``.
    """
    if (plan.digits - digits) % 2 == 0:
        return call.workspace + plan.entries
    return call.workspace + plan.scattered


@jit_inline
def digit_counts(call: Any, plan: Any, thread: int) -> Any:
    """Return one thread's line of the histogram: a counter for each value of a digit."""
    return memory.words(call.workspace + plan.histogram + (thread << plan.digit_bits) * 8)


@jit_inline
def clear_counts(call: Any, plan: Any, thread: int) -> None:
    """Set one thread's line of the histogram to zero."""
    line = call.workspace + plan.histogram + (thread << plan.digit_bits) * 8
    memory.clear_bytes(line, 8 << plan.digit_bits)


@jit_inline
def counts_to_places(call: Any, plan: Any) -> int:
    """Turn the histogram into each thread's first place for each digit. Returns the sum of all."""
    running = 0
    histogram = digit_counts(call, plan, 0)
    digits, end = 1 << plan.digit_bits, plan.threads << plan.digit_bits
    for digit in range(digits):
        place = digit  # not a range, whose length takes a division to know
        while place < end:
            count = histogram[place]
            histogram[place] = running
            running += count
            place += digits
    return running


@jit_inline
def next_digit(call_address: int) -> int:
    """Go on to the next digit. If there is none, all further counting and moving is left out."""
    call = memory.call_at(call_address)
    call.digit += 1
    if call.digit < memory.plan_at(call.plan).digits:
        return RUN
    return 2 * (MOST_DIGITS - call.digit) * SKIP


@jit_inline
def count_digit(thread: int, call_address: int) -> None:
    """Count the digits of one thread's chunk of the entries. Writes its line of the histogram."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    clear_counts(call, plan, thread)
    counts = digit_counts(call, plan, thread)
    order = memory.entries(order_at(call, plan, call.digit))
    shift = np.uint64(plan.position_bits + call.digit * plan.digit_bits)
    mask = (np.uint64(1) << np.uint64(plan.digit_bits)) - np.uint64(1)
    first, end = memory.chunk(thread, plan.threads, call.taking_part)
    for place in range(first, end):
        counts[(order[place] >> shift) & mask] += 1


@jit_inline
def place_digit(call_address: int) -> int:
    """Turn the counts of a digit into places."""
    call = memory.call_at(call_address)
    counts_to_places(call, memory.plan_at(call.plan))
    return RUN


@jit_inline
def move_by_digit(thread: int, call_address: int) -> None:
    """Move one thread's chunk of the entries to their places, and to no others.

    The line behind each place is asked for: another core wrote half of these lines last, and where
    the two share no cache a write waits for that (two threads ordered *w2v* in 0.8 of the time on a
    Zen 5 while its cores had no common last level, and in 1.02 while they had one).
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    places = digit_counts(call, plan, thread)
    order = memory.entries(order_at(call, plan, call.digit))
    moved = memory.entries(order_at(call, plan, call.digit + 1))
    ahead = order_at(call, plan, call.digit + 1) + LINE
    shift = np.uint64(plan.position_bits + call.digit * plan.digit_bits)
    mask = (np.uint64(1) << np.uint64(plan.digit_bits)) - np.uint64(1)
    first, end = memory.chunk(thread, plan.threads, call.taking_part)
    for place in range(first, end):
        entry = order[place]
        digit = (entry >> shift) & mask
        target = places[digit]
        places[digit] = target + 1
        moved[target] = entry
        ask_to_write(ahead + target * 8)
