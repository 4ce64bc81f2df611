"""The looked-up rows alone: listed from the ordered entries over all V rows, and summed.

`list_rows` orders the positions and counts the distinct rows of each piece of the entries; then
there can be memory for all of them. `sum_listed` lists the rows and sums each with every bit of the
order of `gather`, since that depends on the entries' positions and on the plan's cut alone. A piece
owns the rows that *begin* in its entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import layout as at
from numba_embed.kernels import memory, stage
from numba_embed.kernels.count import COUNT
from numba_embed.kernels.gather import store_row
from numba_embed.kernels.hot import find_hot, sum_hot_blocks
from numba_embed.kernels.memory import fence, lower_bound, take_ticket
from numba_embed.kernels.phases import RUN, Kernel, Phase
from numba_embed.kernels.sums import longest_stored, row_end
from numba_embed.runtime import jit_inline

ROWS, HEADS = 0, 1
"""What these kernels need besides a call record, whose `more` names it: int64 words. The first is
the address of the list of rows, int64 (R,). One for each piece follows: the number of rows that
begin in it, and later of those that begin before it."""


@jit_inline
def count_heads(thread: int, call_address: int) -> None:
    """Count the entries that are the first of their row, in each of one thread's pieces."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    size = call.taking_part
    order = memory.entries(call.workspace + plan.entries)
    heads = memory.words(call.more + HEADS * 8)
    bits = np.uint64(plan.position_bits)
    first_piece, end_piece = memory.chunk(thread, plan.threads, call.pieces)
    for piece in range(first_piece, end_piece):
        first, end = memory.chunk(piece, call.pieces, size)
        found = np.int64(0)
        if first == 0 and end > 0:
            found, first = np.int64(1), np.int64(1)
        for place in range(first, end):
            if order[place] >> bits != order[place - 1] >> bits:
                found += 1
        heads[piece] = found


@jit_inline
def prefix_heads(call_address: int) -> int:
    """Turn the pieces' counts into the number of rows before each piece."""
    call = memory.call_at(call_address)
    heads = memory.words(call.more + HEADS * 8)
    running = np.int64(0)
    for piece in range(call.pieces):
        found = heads[piece]
        heads[piece] = running
        running += found
    return RUN


@jit_inline
def sum_begun(
    grad_like: Any, out_like: Any, call: Any, plan: Any, piece: int, left: int, right: int,
    base: int,
) -> None:  # fmt: skip
    """List and sum the rows that begin in a piece of the entries, columns ``[left, right)``.

    The output is C-contiguous and native. Writes the rows' numbers and sums, and nothing else.
    """
    size, order_address = call.taking_part, call.workspace + plan.entries
    order = memory.entries(order_address)
    listing = memory.words(call.more)
    rows, number = listing[ROWS], listing[HEADS + piece]
    bits = np.uint64(plan.position_bits)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    streaming = call.streaming != 0 and right - left == plan.columns
    buffer, staged = base + at.STAGED, np.int64(0)
    most = longest_stored(call, plan)
    bound = call.out + number * call.out_row  # where the buffer's first byte belongs
    place, end = memory.chunk(piece, call.pieces, size)
    if 0 < place < end:  # the rest of a row that began before
        key = (order[place - 1] & ~mask) + np.uint64(plan.num_positions)
        place = lower_bound(order_address, place, end, key)
    while place < end:
        row = np.int64(order[place] >> bits)
        memory.words(rows + number * 8)[0] = row
        last = row_end(call, plan, place, size)
        bound, staged = store_row(
            grad_like, out_like, call, plan, row, number, place, last, left, right,
            last - place <= most, streaming, base, bound, staged,
        )  # fmt: skip
        place = last
        number += 1
    stage.finish(buffer, bound, staged)


@jit_inline
def sum_begun_rows(thread: int, call_address: int, grad_like: Any, out_like: Any) -> None:
    """Take pieces of the entries, and column slices of wide rows, by ticket."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    slices = plan.column_slices
    base = call.workspace + plan.private + thread * plan.private_stride
    item = take_ticket(call.workspace + plan.tickets)
    while item < call.pieces * slices:
        left, right = memory.chunk(item % slices, slices, plan.columns)
        sum_begun(grad_like, out_like, call, plan, item // slices, left, right, base)
        item = take_ticket(call.workspace + plan.tickets)
    fence()


_HOT = Phase(sum_hot_blocks, ("grad",), before=find_hot)
_ROWS = Phase(sum_begun_rows, ("grad", "out"), before=prefix_heads)

list_rows = Kernel(*COUNT, Phase(count_heads))
"""Check and order the positions, then count the rows that begin in each piece of the entries."""

sum_listed, sum_listed_hot = Kernel(_ROWS), Kernel(_HOT, _ROWS)
"""List and sum those rows; the latter for plans with ``max_hot`` > 0."""
