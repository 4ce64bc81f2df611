"""The sum of one row over its ordered entries, by the rule of order (see `numba_embed.order`).

A row's entries ascend by position. A row of fewer than ``cut`` entries is summed in that order, a
longer one block by block of positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import elements, memory
from numba_embed.kernels import layout as at
from numba_embed.kernels.memory import lower_bound, same_format
from numba_embed.kernels.rows import add_row
from numba_embed.kernels.runs import (
    ASKS,
    LONG_RUNS,
    SHORT_RUN,
    add_entry,
    add_two,
    copy_entry,
    set_entry,
    sum_long_run,
    sum_short_run,
)
from numba_embed.runtime import jit, jit_inline


@jit
def row_end(call: Any, plan: Any, first: int, end: int) -> int:
    """Return where the entries of the row end whose first is at ``first``; at ``end`` at most.

    For a ``cut`` of 1 and more, up to which entries are looked at one after the other.
    """
    order_address = call.workspace + plan.entries
    order = memory.entries(order_address)
    bits, cut = np.uint64(plan.position_bits), plan.cut
    row = order[first] >> bits
    place, limit = first + 1, min(end, first + cut)
    while place < limit and order[place] >> bits == row:
        place += 1
    if place == limit and place < end:
        key = (row << bits) + np.uint64(plan.num_positions)
        return lower_bound(order_address, place, end, key)
    return place


@jit
def sum_entries(
    like: Any, call: Any, plan: Any, first: int, end: int, column: int, columns: int, total: int,
    buffer: int,
) -> None:  # fmt: skip
    """``total`` = the sum of the entries ``[first, end)``, of one row, in order, from +0.0 on."""
    if first >= end:
        memory.clear_bytes(total, columns * 8)
    elif call.plain != 0:
        if LONG_RUNS or end - first <= SHORT_RUN:
            store_run(like, np.float64(0), call, plan, first, end, column, columns, total)
        else:
            add_run(like, call, plan, first, end, column, columns, total)
    else:
        reach, furthest = ASKS * plan.ask_step, call.taking_part - 1
        order = memory.entries(call.workspace + plan.entries)
        mask = (np.uint64(1) << np.uint64(plan.position_bits)) - np.uint64(1)
        for place in range(first, end):
            later = np.int64(order[min(place + reach, furthest)] & mask)
            elements.ask_position(call, later, column, columns)
            position = np.int64(order[place] & mask)
            elements.add_position(
                like, call, position, column, columns, total, buffer, place == first
            )


@jit
def add_run(
    like: Any, call: Any, plan: Any, first: int, end: int, column: int, columns: int, total: int
) -> None:
    """``total`` = the sum of the entries ``[first, end)``, two at a time. Plain gradients only."""
    entries, step = call.workspace + plan.entries, plan.ask_step * 8
    mask = (np.uint64(1) << np.uint64(plan.position_bits)) - np.uint64(1)
    base, stride = call.grad + column * call.grad_column, call.grad_strides[0]
    last = entries + (call.taking_part - 1) * 8
    set_entry(like, total, entries + first * 8, mask, base, stride, step, last, columns)
    place = first + 1
    while place + 1 < end:
        add_two(like, total, entries + place * 8, mask, base, stride, step, last, columns)
        place += 2
    if place < end:
        add_entry(like, total, entries + place * 8, mask, base, stride, step, last, columns)


@jit
def longest_stored(call: Any, plan: Any) -> int:
    """Return of how many entries a row may be such that `store_run` is all it takes to write it.

    None where any must be added to what the output holds, and where gradient rows are not plain.
    """
    if call.plain == 0 or call.accumulate != 0:
        return 0
    if plan.scale != 0:
        return 1
    return plan.cut - 1 if LONG_RUNS else SHORT_RUN


@jit
def store_run(
    like: Any, out_like: Any, call: Any, plan: Any, first: int, end: int, column: int,
    columns: int, target: int,
) -> None:  # fmt: skip
    """Write the rounded sum of the entries ``[first, end)`` to an address. Plain gradients only."""
    entries, step, count = call.workspace + plan.entries, plan.ask_step * 8, end - first
    mask = (np.uint64(1) << np.uint64(plan.position_bits)) - np.uint64(1)
    base, stride = call.grad + column * call.grad_column, call.grad_strides[0]
    address, last = entries + first * 8, entries + (call.taking_part - 1) * 8
    if LONG_RUNS and count > SHORT_RUN:
        sum_long_run(
            like, out_like, target, address, count, mask, base, stride, step, last, columns
        )
        return
    if address + count * 8 + ASKS * step > last:
        step = 0
    if count == 1 and same_format(like, out_like):
        copy_entry(like, target, address, mask, base, stride, step, columns)
    else:
        sum_short_run(
            like, out_like, target, address, count, mask, base, stride, step, last, columns
        )


@jit_inline
def block_end(call: Any, plan: Any, first: int, end: int) -> int:
    """Return the end of the entries that lie in the same block of positions as the first one."""
    order_address = call.workspace + plan.entries
    mask = (np.uint64(1) << np.uint64(plan.position_bits)) - np.uint64(1)
    length = plan.block_length
    entry = memory.entries(order_address)[first]
    block = np.int64(entry & mask) // length
    limit = np.uint64(min((block + 1) * length, plan.num_positions))
    return lower_bound(order_address, first, end, (entry & ~mask) + limit)


@jit_inline
def sum_blocks(
    like: Any, call: Any, plan: Any, first: int, end: int, column: int, columns: int, total: int,
    buffer: int,
) -> None:  # fmt: skip
    """``total`` = the block sums of a cut row's entries, added in the order of blocks."""
    part = total + at.PART - at.SUM
    memory.clear_bytes(total, columns * 8)
    while first < end:
        limit = block_end(call, plan, first, end)
        sum_entries(like, call, plan, first, limit, column, columns, part, buffer)
        add_row(np.float64(0), total, part, columns)
        first = limit
