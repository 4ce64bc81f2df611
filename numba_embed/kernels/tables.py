"""Sums through partial tables: the algorithm for small vocabularies.

The gradient is streamed in order. Each block of positions has a private float64 table (V, D) that
stays in the cache; the tables are added in the order of blocks. That is the rule of order with
``cut`` = 0. Threads take blocks, then ranges of rows, by ticket.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import elements, memory
from numba_embed.kernels import layout as at
from numba_embed.kernels.count import CHECK, stop_if_bad
from numba_embed.kernels.memory import array_at, take_ticket
from numba_embed.kernels.phases import Kernel, Phase
from numba_embed.kernels.rows import add_row, divide_row, load_number
from numba_embed.runtime import jit_inline

SOON, SOON_OF_ONE, ASK = 3, 16, 512
"""How many positions ahead a table's row is asked for, the same for rows of one column, and at most
how many bytes: the gradient that passes pushes much of a table out of the second-level cache."""


@jit_inline
def fill_tables(thread: int, call_address: int, grad_like: Any, row_like: Any) -> None:
    """Sum blocks of positions into their tables, taking each block by ticket."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    size, num_weights, length = plan.num_positions, plan.num_weights, plan.block_length
    rows = array_at(call.workspace + plan.entries, size, row_like)
    table_bytes = num_weights * plan.columns * 8
    buffer = call.workspace + plan.private + thread * plan.private_stride + at.SOURCE
    none = ~row_like
    block = take_ticket(call.workspace + plan.tickets)
    while block < plan.blocks:
        table = call.workspace + plan.tables + block * table_bytes
        memory.clear_bytes(table, table_bytes)
        first, end = min(block * length, size), min((block + 1) * length, size)
        if call.counting != 0:
            counts_address = call.workspace + plan.table_counts + block * num_weights * 8
            memory.clear_bytes(counts_address, num_weights * 8)
            counts = memory.words(counts_address, num_weights)
            for position in range(first, end):
                if rows[position] != none:
                    counts[rows[position]] += 1
        fill_table(grad_like, row_like, call, plan, first, end, table, buffer)
        block = take_ticket(call.workspace + plan.tickets)


@jit_inline
def fill_table(
    like: Any, row_like: Any, call: Any, plan: Any, first: int, end: int, table: int, buffer: int
) -> None:
    """Add the gradient rows of the positions ``[first, end)`` to a table, in stream order."""
    rows = array_at(call.workspace + plan.entries, end, row_like)
    none = ~row_like
    base, stride, columns = call.grad, call.grad_strides[0], plan.columns
    plain = call.plain != 0
    ahead, ask = plan.ahead * stride, min(columns * 8, ASK)
    if plain and columns == 1:
        sums = array_at(table, plan.num_weights, np.float64(0))
        for position in range(first, end):
            soon = np.int64(rows[min(position + SOON_OF_ONE, end - 1)])
            memory.prefetch(table + soon * 8, 8)
            if rows[position] != none:
                sums[rows[position]] += load_number(like, base + position * stride)
    elif plain:
        for position in range(first, end):
            if rows[position] != none:
                total = table + np.int64(rows[position]) * columns * 8
                source = base + position * stride
                soon = rows[min(position + SOON, end - 1)]
                if soon != none:
                    memory.prefetch(table + np.int64(soon) * columns * 8, ask)
                add_row(like, total, source, source + ahead, columns)
    else:
        for position in range(first, end):
            if rows[position] != none:
                total = table + np.int64(rows[position]) * columns * 8
                for column in range(0, columns, at.TILE):
                    elements.add_position(
                        like, call, position, column, min(at.TILE, columns - column),
                        total + column * 8, buffer, False,
                    )  # fmt: skip


@jit_inline
def reduce_tables(thread: int, call_address: int, out_like: Any) -> None:
    """Add the tables in the order of blocks, a group of rows at a time, and write those rows."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    num_weights, columns = plan.num_weights, plan.columns
    group_rows = max(1, at.TILE // columns)
    groups = -(-num_weights // group_rows)
    itemsize = memory.itemsize(out_like)
    base = call.workspace + plan.private + thread * plan.private_stride
    total, buffer = base + at.SUM, base + at.SOURCE
    together = (
        call.accumulate == 0 and call.out_row == columns * itemsize and call.out_column == itemsize
    )
    piece = take_ticket(call.workspace + plan.tickets)
    while piece < plan.pieces:
        first_group, end_group = memory.chunk(piece, plan.pieces, groups)
        for group in range(first_group, end_group):
            row, end_row = group * group_rows, min((group + 1) * group_rows, num_weights)
            for column in range(0, columns, at.TILE):
                width = min(at.TILE, columns - column)
                size = (end_row - row) * width
                add_tables(row, column, size, call, plan, total)
                if together and plan.scale == 0:
                    elements.store(out_like, call, row, column, size, total, buffer)
                else:
                    write_rows(out_like, call, plan, row, end_row, column, width, base)
        piece = take_ticket(call.workspace + plan.tickets)


@jit_inline
def add_tables(row: int, column: int, size: int, call: Any, plan: Any, total: int) -> None:
    """``total`` = ``size`` elements of the tables from (row, column) on, added in block order."""
    table_bytes = plan.num_weights * plan.columns * 8
    part = call.workspace + plan.tables + (row * plan.columns + column) * 8
    memory.clear_bytes(total, size * 8)
    for block in range(plan.blocks):
        table = part + block * table_bytes
        add_row(np.float64(0), total, table, table, size)


@jit_inline
def write_rows(
    like: Any, call: Any, plan: Any, row: int, end_row: int, column: int, width: int, base: int
) -> None:
    """Scale rows, add what the output holds, and write them one by one.

    When accumulating, rows that no index names keep their bits; else they are written as zero.
    """
    num_weights, blocks = plan.num_weights, plan.blocks
    counts = memory.words(call.workspace + plan.table_counts, blocks * num_weights)
    for r in range(row, end_row):
        total = base + at.SUM + (r - row) * width * 8
        if call.accumulate != 0 or plan.scale != 0:
            count = 0
            for block in range(blocks):
                count += counts[block * num_weights + r]
            if count == 0 and call.accumulate != 0:
                continue
            if count > 0 and plan.scale != 0:
                divide_row(total, np.float64(count), width)
            if call.accumulate != 0:
                elements.add_old(like, call, r, column, width, total, base + at.SOURCE)
        elements.store(like, call, r, column, width, total, base + at.SOURCE)


tables = Kernel(
    CHECK,
    Phase(fill_tables, ("grad", "row"), before=stop_if_bad),
    Phase(reduce_tables, ("out",)),
)
"""Check the indices, sum the gradient by row through partial tables, and write out."""
