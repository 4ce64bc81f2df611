"""Sums row by row over ordered entries: the algorithm for all but small vocabularies.

Order of summation (see `numba_embed.order`): a row's entries ascend by position; a row of fewer
than cut entries is summed in that order, a longer one block by block of positions. Threads take
row ranges (and, of wide rows, column ranges) by ticket; each writes its own part of the output. A
hot row's blocks are summed beforehand by all threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from numba_embed.kernels import elements, memory, stage
from numba_embed.kernels import layout as at
from numba_embed.kernels.bits import array_at, fence, narrow, take_ticket
from numba_embed.runtime import jit, jit_inline, kernel

AHEAD = 4096
"""Bytes of gradient rows that are asked for ahead of their turn."""

MAX_AHEAD = 16
MAX_LINES = 512
"""Most rows, and most bytes of one row, that are asked for: the hardware fetches on from there."""

HOT_WORDS = 3


@jit
def sum_entries(
    like: Any, call: Any, order: Any, first: int, end: int, mask: Any, ahead: int, total: Any,
    column: int, size: int, buffer: Any,
) -> None:  # fmt: skip
    """``total[:size]`` = the sum of the entries ``[first, end)``, in their order, from +0.0 on."""
    touched = min(size * like.itemsize, MAX_LINES)
    offset = column * call.grad_column
    weighted = call.position_weights != 0
    if weighted:
        memory.clear(total, 0, size)
    for place in range(first, end):
        if place + ahead < order.size:
            later = np.int64(order[place + ahead] & mask)
            elements.prefetch_grad(call, later, offset, touched)
        position = np.int64(order[place] & mask)
        fresh = place == first and not weighted
        elements.add_position(like, call, position, column, size, total, buffer, fresh)


@jit_inline
def block_end(order: Any, first: int, end: int, plan: Any) -> int:
    """Return the end of the entries that lie in the same block of positions as the first one."""
    mask = (np.uint64(1) << np.uint64(plan.position_bits)) - np.uint64(1)
    length = np.uint64(plan.block_length)
    entry = order[first]
    limit = ((entry & mask) // length + np.uint64(1)) * length
    return memory.lower_bound(order, first, end, (entry & ~mask) + limit)


@jit
def sum_blocks(
    like: Any, call: Any, plan: Any, order: Any, first: int, end: int, mask: Any, ahead: int,
    total: Any, part: Any, column: int, size: int, buffer: Any,
) -> None:  # fmt: skip
    """``total[:size]`` = the block sums of a cut row's entries, added in the order of blocks."""
    memory.clear(total, 0, size)
    while first < end:
        limit = block_end(order, first, end, plan)
        sum_entries(like, call, order, first, limit, mask, ahead, part, column, size, buffer)
        for j in range(size):
            total[j] += part[j]
        first = limit


@jit
def find_hot(taking_part: int, call_address: int) -> int:
    """List the rows that are cut: (row, first entry, end) triples in hot. Returns how many.

    A run of cut entries or more holds a multiple of cut, so only those places need a look.
    """
    call, plan = memory.records(call_address)
    found = np.int64(0)
    if plan.max_hot == 0:
        return found
    order = memory.entries(call, plan.entries, taking_part)
    hot = memory.words(call, plan.hot, plan.max_hot * HOT_WORDS)
    bits, cut = np.uint64(plan.position_bits), plan.cut
    end = np.int64(0)
    for place in range(0, order.size, cut):
        if place >= end:
            row = order[place] >> bits
            first = memory.lower_bound(order, np.int64(0), place, row << bits)
            end = memory.lower_bound(order, place, order.size, (row + np.uint64(1)) << bits)
            if end - first >= cut:
                hot[found * HOT_WORDS] = np.int64(row)
                hot[found * HOT_WORDS + 1] = first
                hot[found * HOT_WORDS + 2] = end
                found += 1
    return found


@jit
def sum_hot_blocks(thread: int, found: int, taking_part: int, like: Any, call_address: int) -> None:
    """Sum the blocks of hot rows, taking each (row, block) by ticket. Writes hot_sums."""
    call, plan = memory.records(call_address)
    order = memory.entries(call, plan.entries, taking_part)
    tickets = memory.words(call, plan.tickets, 1)
    hot = memory.words(call, plan.hot, plan.max_hot * HOT_WORDS)
    blocks, columns = plan.blocks, plan.columns
    bits = np.uint64(plan.position_bits)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    buffer = memory.typed(call, memory.private(plan, thread, at.SOURCE), at.TILE, like)
    ahead = rows_ahead(like, columns)
    item = take_ticket(tickets, 0)
    while item < found * blocks:
        which, block = item // blocks, item % blocks
        key = np.uint64(hot[which * HOT_WORDS]) << bits
        first, end = hot[which * HOT_WORDS + 1], hot[which * HOT_WORDS + 2]
        start = np.uint64(block * plan.block_length)
        limit = start + np.uint64(plan.block_length)
        first = memory.lower_bound(order, first, end, key + start)
        end = memory.lower_bound(order, first, end, key + limit)
        for column in range(0, columns, at.TILE):
            size = min(at.TILE, columns - column)
            offset = plan.hot_sums + (item * columns + column) * 8
            total = memory.doubles(call, offset, size)
            if first == end:
                memory.clear(total, 0, size)
            sum_entries(like, call, order, first, end, mask, ahead, total, column, size, buffer)
        item = take_ticket(tickets, 0)


@jit_inline
def add_hot_blocks(which: int, call: Any, plan: Any, total: Any, column: int, size: int) -> None:
    """``total[:size]`` = a hot row's block sums, added in the order of blocks."""
    blocks, columns = plan.blocks, plan.columns
    memory.clear(total, 0, size)
    for block in range(blocks):
        offset = plan.hot_sums + ((which * blocks + block) * columns + column) * 8
        part = memory.doubles(call, offset, size)
        for j in range(size):
            total[j] += part[j]


@jit_inline
def rows_ahead(like: Any, columns: int) -> int:
    """Return how many entries ahead a gradient row is asked for."""
    return max(1, min(MAX_AHEAD, AHEAD // (columns * like.itemsize)))


@jit
def cut_rows(
    piece: int, pieces: int, like: Any, call: Any, plan: Any, order: Any
) -> tuple[int, int]:
    """Return the first row of a piece, and its first entry: pieces of equal cost.

    The cost of rows ``[0, r)`` is their entries and, where untouched rows are written, the rows
    themselves; it grows with r, so a bisection finds each cut.
    """
    num_weights = plan.num_weights
    if piece == pieces:
        return num_weights, order.size
    writes = 1 if call.accumulate == 0 and call.zeroed == 0 else 0
    bits = np.uint64(plan.position_bits)
    target = piece * (order.size + writes * num_weights) // pieces
    low, high = np.int64(0), num_weights
    while low < high:
        middle = (low + high) >> 1
        key = np.uint64(middle) << bits
        before = memory.lower_bound(order, np.int64(0), order.size, key)
        if before + writes * middle < target:
            low = middle + 1
        else:
            high = middle
    return low, memory.lower_bound(order, np.int64(0), order.size, np.uint64(low) << bits)


@jit
def sum_pieces(
    thread: int, found: int, taking_part: int, grad_like: Any, out_like: Any, call_address: int,
) -> None:  # fmt: skip
    """Sum and write pieces of the table, taking each by ticket."""
    call, plan = memory.records(call_address)
    order = memory.entries(call, plan.entries, taking_part)
    tickets = memory.words(call, plan.tickets, 1)
    pieces, slices = plan.pieces, plan.column_slices
    item = take_ticket(tickets, 0)
    while item < pieces * slices:
        piece, column_slice = item // slices, item % slices
        row, first = cut_rows(piece, pieces, grad_like, call, plan, order)
        end_row, end = cut_rows(piece + 1, pieces, grad_like, call, plan, order)
        column, end_column = memory.chunk(column_slice, slices, plan.columns)
        sum_piece(
            thread, found, grad_like, out_like, call, plan, order,
            (row, end_row), (first, end), (column, end_column),
        )  # fmt: skip
        item = take_ticket(tickets, 0)
    if call.streaming != 0:
        fence()


@jit
def sum_piece(
    thread: int, found: int, grad_like: Any, out_like: Any, call: Any, plan: Any, order: Any,
    rows: Any, span: Any, columns: Any,
) -> None:  # fmt: skip
    """Sum and write the columns ``columns`` of the rows ``rows``, whose entries are ``span``.

    Rows without entries become zero, but where out is zero already or accumulated into.
    """
    base = memory.private(plan, thread, 0)
    total = memory.doubles(call, base + at.SUM, at.TILE)
    part = memory.doubles(call, base + at.PART, at.TILE)
    buffer = memory.typed(call, base + at.SOURCE, at.TILE, grad_like)
    staged_address = call.workspace + base + at.STAGED
    staging = array_at(staged_address, at.STAGE, out_like)
    hot = memory.words(call, plan.hot, plan.max_hot * HOT_WORDS)
    bits = np.uint64(plan.position_bits)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    streaming = call.streaming != 0
    accumulating = call.accumulate != 0
    zero_gaps = not accumulating and call.zeroed == 0
    first_column, end_column = columns
    width = end_column - first_column
    whole = width == plan.columns
    ahead = rows_ahead(grad_like, width)
    next_hot = 0
    row, end_row = rows
    place, staged = elements.out_address(call, row, first_column), np.int64(0)
    first, end = span
    while row < end_row:
        touched = np.int64(order[first] >> bits) if first < end else end_row
        if touched > row:
            if not zero_gaps:
                if streaming:
                    stage.flush(staging, staged_address, place, staged, stage.LAST)
                    place, staged = (
                        elements.out_address(call, touched, first_column),
                        np.int64(0),
                    )
            elif streaming and whole:
                place, staged = stage.stage_zeros(
                    staging, staged_address, place, staged, (touched - row) * width
                )
            else:
                elements.store_zeros(out_like, call, row, touched, first_column, width)
            row = touched
            continue
        last = first + 1
        while last < end and np.int64(order[last] >> bits) == row:
            last += 1
        count = last - first
        which = -1
        if count >= plan.cut and found > 0:
            while hot[next_hot * HOT_WORDS] < row:
                next_hot += 1
            which = next_hot
        if streaming and not whole:
            place = elements.out_address(call, row, first_column)
        for column in range(first_column, end_column, at.TILE):
            size = min(at.TILE, end_column - column)
            if which >= 0:
                add_hot_blocks(which, call, plan, total, column, size)
            elif count >= plan.cut:
                sum_blocks(
                    grad_like, call, plan, order, first, last, mask, ahead, total, part,
                    column, size, buffer,
                )  # fmt: skip
            else:
                sum_entries(
                    grad_like, call, order, first, last, mask, ahead, total, column, size,
                    buffer,
                )  # fmt: skip
            if plan.scale != 0:
                for j in range(size):
                    total[j] /= count
            if accumulating:
                elements.add_old(out_like, call, row, column, size, total)
            if streaming:
                for j in range(size):
                    staging[staged + j] = narrow(total[j], out_like[0])
                staged += size
                if staged > at.STAGE - at.TILE:
                    left = stage.flush(staging, staged_address, place, staged, stage.MORE)
                    place += (staged - left) * out_like.itemsize
                    staged = left
            else:
                elements.store(out_like, call, row, column, size, total)
        if streaming and not whole:
            stage.flush(staging, staged_address, place, staged, stage.LAST)
            staged = np.int64(0)
        first = last
        row += 1
    if streaming:
        stage.flush(staging, staged_address, place, staged, stage.LAST)


@kernel
def gather(grad_like: Any, out_like: Any, taking_part: int, call_address: int) -> None:
    """Sum the gradient by row over the first ``taking_part`` ordered entries, and write out."""
    threads = memory.threads_of(call_address)
    found = find_hot(taking_part, call_address)
    if found > 0:
        memory.reset_tickets(call_address)
        for thread in prange(threads):
            sum_hot_blocks(np.int64(thread), found, taking_part, grad_like, call_address)
    memory.reset_tickets(call_address)
    for thread in prange(threads):
        sum_pieces(np.int64(thread), found, taking_part, grad_like, out_like, call_address)
