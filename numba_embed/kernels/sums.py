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
from numba_embed.kernels.runs import ASKS, add_entry, add_two, copy_entry, set_entry, sum_run
from numba_embed.runtime import jit, jit_inline

SHORT = 8
"""Most entries of a run that is summed in registers, part by part of the columns. Fewer than any
``cut``, so that a short run is one sum."""


@jit
def sum_entries(
    like: Any, call: Any, plan: Any, first: int, end: int, column: int, columns: int, total: int,
    buffer: int,
) -> int:  # fmt: skip
    """``total`` = the sum of a row's entries from ``first`` on, in their order, from +0.0 on.

    The row ends at ``end`` or where the entries' row changes. Returns the end.
    """
    taking_part, reach = call.taking_part, ASKS * plan.ask_step
    order = memory.entries(call.workspace + plan.entries)
    bits = np.uint64(plan.position_bits)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    base, stride = call.grad + column * call.grad_column, call.grad_strides[0]
    plain = call.plain != 0
    if first >= end:
        memory.clear_bytes(total, columns * 8)
        return end
    entry = order[first]
    row = entry >> bits
    place = first
    while place < end and entry >> bits == row:
        if plain:
            address = call.workspace + plan.entries + place * 8
            step = plan.ask_step * 8 if place + reach + 1 < taking_part else 0
            if place == first:
                set_entry(like, total, address, mask, base, stride, step, columns)
            elif place + 1 < end and order[place + 1] >> bits == row:
                add_two(like, total, address, mask, base, stride, step, columns)
                place += 1
            else:
                add_entry(like, total, address, mask, base, stride, step, columns)
        else:
            position = np.int64(entry & mask)
            later = np.int64(order[min(place + reach, taking_part - 1)] & mask)
            elements.ask_position(call, later, column, columns)
            elements.add_position(
                like, call, position, column, columns, total, buffer, place == first
            )
        place += 1
        if place < end:
            entry = order[place]
    return place


@jit
def short_run(call: Any, plan: Any, first: int, end: int) -> int:
    """Return how many entries a row has that begins at ``first``, if `store_run` may sum them.

    Else 0: where they are more than `SHORT`, where a sum of several must be scaled, or any be added
    to what the output holds, and where gradient rows are not plain.
    """
    if call.plain == 0 or call.accumulate != 0:
        return 0
    most = SHORT if plan.scale == 0 else 1
    order = memory.entries(call.workspace + plan.entries)
    bits = np.uint64(plan.position_bits)
    row = order[first] >> bits
    place, limit = first + 1, min(end, first + most + 1)
    while place < limit and order[place] >> bits == row:
        place += 1
    return 0 if place - first > most else place - first


@jit
def store_run(
    like: Any, out_like: Any, call: Any, plan: Any, first: int, count: int, column: int,
    columns: int, target: int,
) -> None:  # fmt: skip
    """Write the rounded sum of a `short_run` to an address, with no private buffer between."""
    entries, step = call.workspace + plan.entries, plan.ask_step
    if first + count + ASKS * step > call.taking_part:
        step = 0
    mask = (np.uint64(1) << np.uint64(plan.position_bits)) - np.uint64(1)
    base, stride = call.grad + column * call.grad_column, call.grad_strides[0]
    address, step = entries + first * 8, step * 8
    if count == 1 and same_format(like, out_like):
        copy_entry(like, target, address, mask, base, stride, step, columns)
    else:
        sum_run(like, out_like, target, address, count, mask, base, stride, step, columns)


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
