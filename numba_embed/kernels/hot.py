"""Hot rows: those with ``cut`` entries or more, whose blocks all threads sum beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import layout as at
from numba_embed.kernels import memory
from numba_embed.kernels.memory import lower_bound, take_ticket
from numba_embed.kernels.phases import RUN, SKIP
from numba_embed.kernels.rows import add_row
from numba_embed.kernels.sums import sum_entries
from numba_embed.runtime import jit_inline

HOT_WORDS = 3


@jit_inline
def find_hot(call_address: int) -> int:
    """List the rows that are cut: (row, first entry, end) triples in ``hot``; note how many.

    Returns whether there is any.

    A run of ``cut`` entries or more holds a multiple of ``cut``, so only those places need a look.
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    found = np.int64(0)
    size, order_address = call.taking_part, call.workspace + plan.entries
    order = memory.entries(order_address)
    hot = memory.words(call.workspace + plan.hot)
    bits, cut = np.uint64(plan.position_bits), plan.cut
    end = np.int64(0)
    for place in range(0, size, cut):
        if place >= end:
            row = order[place] >> bits
            first = lower_bound(order_address, np.int64(0), place, row << bits)
            key = (row << bits) + np.uint64(plan.num_positions)
            end = lower_bound(order_address, place, size, key)
            if end - first >= cut:
                hot[found * HOT_WORDS] = np.int64(row)
                hot[found * HOT_WORDS + 1] = first
                hot[found * HOT_WORDS + 2] = end
                found += 1
    call.found = found
    return RUN if found > 0 else SKIP


@jit_inline
def sum_hot_blocks(thread: int, call_address: int, like: Any) -> None:
    """Sum the blocks of hot rows, taking each (row, block) by ticket. Writes ``hot_sums``."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    order_address = call.workspace + plan.entries
    hot = memory.words(call.workspace + plan.hot)
    blocks, columns = plan.blocks, plan.columns
    buffer = call.workspace + plan.private + thread * plan.private_stride + at.SOURCE
    item = take_ticket(call.workspace + plan.tickets)
    while item < call.found * blocks:
        which, block = item // blocks, item % blocks
        key = np.uint64(hot[which * HOT_WORDS]) << np.uint64(plan.position_bits)
        positions = plan.num_positions
        start = key + np.uint64(min(block * plan.block_length, positions))
        limit = key + np.uint64(min((block + 1) * plan.block_length, positions))
        first = lower_bound(
            order_address, hot[which * HOT_WORDS + 1], hot[which * HOT_WORDS + 2], start
        )
        end = lower_bound(order_address, first, hot[which * HOT_WORDS + 2], limit)
        total = call.workspace + plan.hot_sums + item * columns * 8
        for column in range(0, columns, at.TILE):
            width = min(at.TILE, columns - column)
            sum_entries(like, call, plan, first, end, column, width, total + column * 8, buffer)
        item = take_ticket(call.workspace + plan.tickets)


@jit_inline
def hot_number(call: Any, plan: Any, row: int) -> int:
    """Return the number of a row among the hot rows."""
    hot = memory.words(call.workspace + plan.hot)
    which = 0
    while hot[which * HOT_WORDS] != row:
        which += 1
    return which


@jit_inline
def add_hot_blocks(which: int, call: Any, plan: Any, column: int, columns: int, total: int) -> None:
    """``total`` = a hot row's block sums, added in the order of blocks."""
    memory.clear_bytes(total, columns * 8)
    for block in range(which * plan.blocks, (which + 1) * plan.blocks):
        part = call.workspace + plan.hot_sums + (block * plan.columns + column) * 8
        add_row(np.float64(0), total, part, columns)
