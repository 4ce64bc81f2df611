"""Sums row by row over ordered entries: the algorithm for all but small vocabularies.

Order of summation (see `numba_embed.order`): a row's entries ascend by position; a row of fewer
than ``cut`` entries is summed in that order, a longer one block by block of positions. Threads take
row ranges (and, of wide rows, column ranges) by ticket; each writes its own part of the output. A
hot row's blocks are summed beforehand by all threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import elements, memory, stage
from numba_embed.kernels import layout as at
from numba_embed.kernels.count import COUNT
from numba_embed.kernels.memory import fence, lower_bound, take_ticket
from numba_embed.kernels.phases import RUN, SKIP, Kernel, Phase
from numba_embed.kernels.rows import (
    add_four,
    add_row,
    divide_row,
    narrow_row,
    set_row,
)
from numba_embed.runtime import jit, jit_inline

HOT_WORDS = 3


@jit
def sum_entries(
    like: Any, call: Any, plan: Any, first: int, end: int, column: int, columns: int, total: int,
    buffer: int,
) -> int:  # fmt: skip
    """``total`` = the sum of a row's entries from ``first`` on, in their order, from +0.0 on.

    The row ends at ``end`` or where the entries' row changes. Returns the end.
    """
    taking_part, ahead = call.taking_part, plan.ahead
    order = memory.entries(call.workspace + plan.entries, taking_part)
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
        position = np.int64(entry & mask)
        four = (
            plain
            and place > first
            and place + 3 < end
            and place + ahead + 3 < taking_part
            and order[place + 3] >> bits == row
        )
        if four:
            address = call.workspace + plan.entries + place * 8
            add_four(like, total, address, mask, base, stride, ahead * 8, columns)
            place += 3
        elif plain:
            later = np.int64(order[min(place + ahead, taking_part - 1)] & mask)
            if place == first:
                set_row(like, total, base + position * stride, base + later * stride, columns)
            else:
                add_row(like, total, base + position * stride, base + later * stride, columns)
        else:
            elements.add_position(
                like, call, position, column, columns, total, buffer, place == first
            )
        place += 1
        if place < end:
            entry = order[place]
    return place


@jit_inline
def block_end(call: Any, plan: Any, first: int, end: int) -> int:
    """Return the end of the entries that lie in the same block of positions as the first one."""
    order_address = call.workspace + plan.entries
    mask = (np.uint64(1) << np.uint64(plan.position_bits)) - np.uint64(1)
    length = plan.block_length
    entry = memory.entries(order_address, end)[first]
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
        add_row(np.float64(0), total, part, part, columns)
        first = limit


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
    order = memory.entries(order_address, size)
    hot = memory.words(call.workspace + plan.hot, plan.max_hot * HOT_WORDS)
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
    hot = memory.words(call.workspace + plan.hot, plan.max_hot * HOT_WORDS)
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
def add_hot_blocks(which: int, call: Any, plan: Any, column: int, columns: int, total: int) -> None:
    """``total`` = a hot row's block sums, added in the order of blocks."""
    memory.clear_bytes(total, columns * 8)
    for block in range(which * plan.blocks, (which + 1) * plan.blocks):
        part = call.workspace + plan.hot_sums + (block * plan.columns + column) * 8
        add_row(np.float64(0), total, part, part, columns)


@jit
def cut_rows(piece: int, call: Any, plan: Any) -> tuple[int, int]:
    """Return the first row of a piece, and its first entry: pieces of equal cost.

    The cost of rows ``[0, r)`` is their entries and, where untouched rows are written, the rows
    themselves; it grows with r, so a bisection finds each cut.
    """
    size, order_address = call.taking_part, call.workspace + plan.entries
    num_weights, bits = plan.num_weights, np.uint64(plan.position_bits)
    if piece == 0:
        return np.int64(0), np.int64(0)
    if piece == plan.pieces:
        return num_weights, size
    writes = 1 if call.accumulate == 0 and call.zeroed == 0 else 0
    target = piece * (size + writes * num_weights) // plan.pieces
    low, high = np.int64(0), num_weights
    while low < high:
        middle = (low + high) >> 1
        before = lower_bound(order_address, np.int64(0), size, np.uint64(middle) << bits)
        if before + writes * middle < target:
            low = middle + 1
        else:
            high = middle
    if low == num_weights:
        return low, size
    return low, lower_bound(order_address, np.int64(0), size, np.uint64(low) << bits)


@jit_inline
def cut_end(call: Any, plan: Any, first: int, end: int) -> int:
    """Return the end of the row's entries if it has ``cut`` of them or more, else ``first``."""
    order_address = call.workspace + plan.entries
    order = memory.entries(order_address, end)
    bits = np.uint64(plan.position_bits)
    row = order[first] >> bits
    if first + plan.cut > end or order[first + plan.cut - 1] >> bits != row:
        return first
    key = (row << bits) + np.uint64(plan.num_positions)
    return lower_bound(order_address, first, end, key)


@jit
def sum_row(
    grad_like: Any, out_like: Any, call: Any, plan: Any, row: int, first: int, end: int,
    column: int, columns: int, base: int,
) -> int:  # fmt: skip
    """Leave a row's sum, scaled and with the old output added, in the buffer at ``base``.

    Its entries start at ``first``; hot rows may have been summed by block. Returns their end.
    """
    total, buffer = base + at.SUM, base + at.SOURCE
    last = cut_end(call, plan, first, end)
    if last == first:
        last = sum_entries(grad_like, call, plan, first, end, column, columns, total, buffer)
    elif call.found > 0:
        which = hot_number(call, plan, row)
        add_hot_blocks(which, call, plan, column, columns, total)
    else:
        sum_blocks(grad_like, call, plan, first, last, column, columns, total, buffer)
    if plan.scale != 0:
        divide_row(total, np.float64(last - first), columns)
    if call.accumulate != 0:
        elements.add_old(out_like, call, row, column, columns, total, buffer)
    return last


@jit_inline
def hot_number(call: Any, plan: Any, row: int) -> int:
    """Return the number of a row among the hot rows."""
    hot = memory.words(call.workspace + plan.hot, call.found * HOT_WORDS)
    which = 0
    while hot[which * HOT_WORDS] != row:
        which += 1
    return which


@jit_inline
def sum_piece(
    grad_like: Any, out_like: Any, call: Any, plan: Any, rows: Any, span: Any, columns: Any,
    base: int,
) -> None:  # fmt: skip
    """Sum and store the columns ``columns`` of the rows ``rows``, whose entries are ``span``.

    Rows without entries become zero, but where out is zero already or accumulated into. A large
    C-contiguous output is written by streaming stores (`stage`); ``whole`` rows follow each other
    in memory, so that the buffer need not be emptied between them.
    """
    order = memory.entries(call.workspace + plan.entries, call.taking_part)
    bits = np.uint64(plan.position_bits)
    zero_gaps = call.accumulate == 0 and call.zeroed == 0
    streaming = call.streaming != 0
    (row, end_row), (first, end), (left, right) = rows, span, columns
    whole = right - left == plan.columns
    buffer = base + at.STAGED
    place, staged = elements.out_address(call, row, left), np.int64(0)
    while row < end_row:
        touched = np.int64(order[first] >> bits) if first < end else end_row
        if touched > row:
            if streaming and whole and zero_gaps:
                size = (touched - row) * call.out_row
                place, staged = stage.stage_zeros(buffer, place, staged, size)
            elif zero_gaps:
                elements.store_zeros(out_like, call, row, touched, left, right - left)
            if streaming and not (whole and zero_gaps):
                stage.finish(buffer, place, staged)
                place, staged = elements.out_address(call, touched, left), np.int64(0)
            row = touched
            continue
        last = first
        for column in range(left, right, at.TILE):
            width = min(at.TILE, right - column)
            last = sum_row(grad_like, out_like, call, plan, row, first, end, column, width, base)
            if streaming:
                narrow_row(out_like, buffer + staged, base + at.SUM, width)
                staged += width * memory.itemsize(out_like)
                if staged > stage.FULL:
                    remaining = stage.flush(buffer, place, staged)
                    place += staged - remaining
                    staged = remaining
            else:
                elements.store(out_like, call, row, column, width, base + at.SUM, base + at.SOURCE)
        first = last
        row += 1
        if streaming and not whole:
            stage.finish(buffer, place, staged)
            place, staged = elements.out_address(call, row, left), np.int64(0)
    stage.finish(buffer, place, staged)


@jit_inline
def sum_pieces(thread: int, call_address: int, grad_like: Any, out_like: Any) -> None:
    """Sum and store pieces of the table, taking each by ticket."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    slices = plan.column_slices
    base = call.workspace + plan.private + thread * plan.private_stride
    item = take_ticket(call.workspace + plan.tickets)
    while item < plan.pieces * slices:
        piece = item // slices
        row, first = cut_rows(piece, call, plan)
        end_row, end = cut_rows(piece + 1, call, plan)
        columns = memory.chunk(item % slices, slices, plan.columns)
        rows, span = (row, end_row), (first, end)
        sum_piece(grad_like, out_like, call, plan, rows, span, columns, base)
        item = take_ticket(call.workspace + plan.tickets)
    fence()


_PIECES = Phase(sum_pieces, ("grad", "out"))

gather = Kernel(*COUNT, _PIECES)
"""Order the positions, sum the gradient row by row over them, and write out."""

gather_hot = Kernel(*COUNT, Phase(sum_hot_blocks, ("grad",), before=find_hot), _PIECES)
"""The same for several threads, which share the blocks of hot rows. Plans with ``max_hot`` > 0."""
