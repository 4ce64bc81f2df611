"""Sums through partial tables: the algorithm for small vocabularies.

The gradient is streamed in order. Each block of positions has a private float64 table (V, D) that
stays in the cache; the tables are added in the order of blocks. That is the rule of order with
cut = 0. Threads take blocks, then ranges of rows, by ticket.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from numba_embed.kernels import elements, memory
from numba_embed.kernels import layout as at
from numba_embed.kernels.bits import take_ticket
from numba_embed.runtime import jit, jit_inline, kernel


@jit
def fill_tables(
    thread: int, counting: bool, grad_like: Any, row_like: Any, call_address: int
) -> None:
    """Sum blocks of positions into their tables, taking each block by ticket."""
    call, plan = memory.records(call_address)
    size, num_weights, columns = plan.num_positions, plan.num_weights, plan.columns
    rows = memory.typed(call, plan.entries, size, row_like)
    tickets = memory.words(call, plan.tickets, 1)
    buffer = memory.typed(call, memory.private(plan, thread, at.SOURCE), at.TILE, grad_like)
    none = ~row_like[0]
    length = plan.block_length
    block = take_ticket(tickets, 0)
    while block < plan.blocks:
        offset = plan.tables + block * num_weights * columns * 8
        table = memory.doubles(call, offset, num_weights * columns)
        memory.clear(table, 0, num_weights * columns)
        first, end = block * length, min((block + 1) * length, size)
        if counting:
            counts = memory.words(call, plan.table_counts + block * num_weights * 8, num_weights)
            memory.clear(counts, 0, num_weights)
            for position in range(first, end):
                if rows[position] != none:
                    counts[rows[position]] += 1
        for position in range(first, end):
            if rows[position] != none:
                start = offset + np.int64(rows[position]) * columns * 8
                for column in range(0, columns, at.TILE):
                    width = min(at.TILE, columns - column)
                    total = memory.doubles(call, start + column * 8, width)
                    elements.add_position(
                        grad_like, call, position, column, width, total, buffer, False
                    )
        block = take_ticket(tickets, 0)


@jit
def reduce_tables(thread: int, out_like: Any, call_address: int) -> None:
    """Add the tables in the order of blocks, a group of rows at a time, and write those rows."""
    call, plan = memory.records(call_address)
    num_weights, columns = plan.num_weights, plan.columns
    tickets = memory.words(call, plan.tickets, 1)
    group_rows = max(1, at.TILE // columns)
    groups = -(-num_weights // group_rows)
    total = memory.doubles(call, memory.private(plan, thread, at.SUM), at.TILE)
    plain = call.accumulate == 0 and (
        call.out_row == columns * out_like.itemsize and call.out_column == out_like.itemsize
    )
    piece = take_ticket(tickets, 0)
    while piece < plan.pieces:
        first_group, end_group = memory.chunk(piece, plan.pieces, groups)
        for group in range(first_group, end_group):
            row, end_row = group * group_rows, min((group + 1) * group_rows, num_weights)
            for column in range(0, columns, at.TILE):
                width = min(at.TILE, columns - column)
                size = (end_row - row) * width
                add_tables(row, column, size, call, plan, total)
                if plan.scale != 0:
                    divide_by_counts(row, end_row, width, call, plan, total)
                if plain:
                    elements.store(out_like, call, row, column, size, total)
                else:
                    write_rows(row, end_row, column, width, thread, out_like, call, plan)
        piece = take_ticket(tickets, 0)


@jit_inline
def add_tables(row: int, column: int, size: int, call: Any, plan: Any, total: Any) -> None:
    """``total[:size]`` = the tables' elements from (row, column) on, added in block order."""
    table_size = plan.num_weights * plan.columns
    start = plan.tables + (row * plan.columns + column) * 8
    memory.clear(total, 0, size)
    for block in range(plan.blocks):
        table = memory.doubles(call, start + block * table_size * 8, size)
        for j in range(size):
            total[j] += table[j]


@jit_inline
def row_count(row: int, call: Any, plan: Any) -> int:
    """Return the frequency of a row, over all blocks."""
    num_weights, blocks = plan.num_weights, plan.blocks
    counts = memory.words(call, plan.table_counts, blocks * num_weights)
    count = 0
    for block in range(blocks):
        count += counts[block * num_weights + row]
    return count


@jit_inline
def divide_by_counts(row: int, end_row: int, width: int, call: Any, plan: Any, total: Any) -> None:
    """Divide each row of ``total`` by the row's frequency; rows nobody names stay zero."""
    for r in range(row, end_row):
        count = max(1, row_count(r, call, plan))
        for j in range((r - row) * width, (r - row + 1) * width):
            total[j] /= count


@jit_inline
def write_rows(
    row: int, end_row: int, column: int, width: int, thread: int, out_like: Any, call: Any,
    plan: Any,
) -> None:  # fmt: skip
    """Write rows one by one, accumulating if asked; then rows nobody names keep their bits."""
    accumulating = call.accumulate != 0
    for r in range(row, end_row):
        if accumulating and row_count(r, call, plan) == 0:
            continue
        offset = memory.private(plan, thread, at.SUM) + (r - row) * width * 8
        part = memory.doubles(call, offset, width)
        if accumulating:
            elements.add_old(out_like, call, r, column, width, part)
        elements.store(out_like, call, r, column, width, part)


@kernel
def tables(counting: bool, grad_like: Any, out_like: Any, row_like: Any, call_address: int) -> None:
    """Sum the gradient by row through partial tables, and write out."""
    threads = memory.threads_of(call_address)
    memory.reset_tickets(call_address)
    for thread in prange(threads):
        fill_tables(np.int64(thread), counting, grad_like, row_like, call_address)
    memory.reset_tickets(call_address)
    for thread in prange(threads):
        reduce_tables(np.int64(thread), out_like, call_address)
