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
from numba_embed.kernels.asking import ask_soon
from numba_embed.kernels.count import NONE_BAD, NOT_AN_INTEGER, as_row, stop_if_bad
from numba_embed.kernels.memory import pointer_at, take_ticket
from numba_embed.kernels.phases import Kernel, Phase
from numba_embed.kernels.rows import add_row, add_row_ahead, divide_row, load_number
from numba_embed.kernels.runs import ASKS
from numba_embed.runtime import jit_inline

SOON, SOON_OF_ONE, ASK = 3, 16, 512
"""How many positions ahead a table's row is asked for, the same for rows of one column, and at most
how many bytes: the gradient that passes pushes much of a table out of the second-level cache."""

WINDOW, WINDOWS_AHEAD = 64, 4
"""Positions of one column whose indices are checked at once, and how many windows ahead operands
are asked for: in bursts of whole lines, they are too fast for the processor to see them coming.
(Without asking, windows of 64 took 1.2 times as long on a Zen 4, larger ones 1.7 times.)"""


@jit_inline
def fill_tables(thread: int, call_address: int, index_like: Any, grad_like: Any) -> None:
    """Check blocks of positions and sum them into their tables, taking each block by ticket.

    Writes the thread's entry of ``bad``: its first bad position, or NONE_BAD. Blocks are taken in
    ascending order, so the least of all threads' is the first bad position of the stream.
    """
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    size, num_weights, length = plan.num_positions, plan.num_weights, plan.block_length
    table_bytes = num_weights * plan.columns * 8
    buffer = call.workspace + plan.private + thread * plan.private_stride + at.SOURCE
    bad = memory.words(call.workspace + plan.bad)
    bad[thread] = NONE_BAD
    block = take_ticket(call.workspace + plan.tickets)
    while block < plan.blocks and bad[thread] == NONE_BAD:
        table = call.workspace + plan.tables + block * table_bytes
        memory.clear_bytes(table, table_bytes)
        first, end = min(block * length, size), min((block + 1) * length, size)
        if call.counting != 0:
            count_block(index_like, call, plan, first, end, block)
        bad[thread] = fill_table(index_like, grad_like, call, plan, first, end, table, buffer)
        block = take_ticket(call.workspace + plan.tickets)


@jit_inline
def count_block(like: Any, call: Any, plan: Any, first: int, end: int, block: int) -> None:
    """Count the look-ups of each row in the positions ``[first, end)``."""
    indices, num_weights = pointer_at(call.indices, like), plan.num_weights
    counts_address = call.workspace + plan.table_counts + block * num_weights * 8
    memory.clear_bytes(counts_address, num_weights * 8)
    counts = memory.words(counts_address)
    for position in range(first, end):
        row = as_row(indices[position], num_weights)
        if row >= 0 and row != plan.padding:
            counts[row] += 1


@jit_inline
def fill_table(
    index_like: Any, like: Any, call: Any, plan: Any, first: int, end: int, table: int, buffer: int
) -> int:
    """Add the gradient rows of the positions ``[first, end)`` to a table, in stream order.

    Returns the first position whose index is bad, where it stops, or NONE_BAD.
    """
    indices = pointer_at(call.indices, index_like)
    num_weights, padding, dropping = plan.num_weights, plan.padding, plan.dropping != 0
    base, stride, columns = call.grad, call.grad_strides[0], plan.columns
    plain = call.plain != 0
    if plain and columns == 1:
        return fill_column(index_like, like, call, plan, first, end, table)
    ahead, ask = ASKS * plan.ask_step * stride, min(columns * 8, ASK)
    for position in range(first, end):
        row = as_row(indices[position], num_weights)
        if row < 0:
            if row == NOT_AN_INTEGER or not dropping:
                return position
        elif row != padding:
            total = table + row * columns * 8
            if plain:
                soon = as_row(indices[min(position + SOON, end - 1)], num_weights)
                ask_soon(table + soon * columns * 8, ask)  # harmless where that one is bad
                source = base + position * stride
                add_row_ahead(like, total, source, source + ahead, columns)
            else:
                for column in range(0, columns, at.TILE):
                    elements.add_position(
                        like, call, position, column, min(at.TILE, columns - column),
                        total + column * 8, buffer, False,
                    )  # fmt: skip
    return np.int64(NONE_BAD)


@jit_inline
def fill_column(
    index_like: Any, like: Any, call: Any, plan: Any, first: int, end: int, table: int
) -> int:
    """`fill_table` for a contiguous gradient of one column: a loop as short as can be.

    The indices of a window are checked first, by vectors, so that additions need no check.
    """
    indices = pointer_at(call.indices, index_like)
    num_weights, padding, dropping = plan.num_weights, plan.padding, plan.dropping != 0
    base, stride, size = call.grad, call.grad_strides[0], memory.itemsize(index_like)
    sums = pointer_at(table, np.float64(0))
    ask_grad = WINDOW * stride if stride <= at.LINE else 0
    for start in range(first, end, WINDOW):
        stop = min(start + WINDOW, end)
        later = start + WINDOWS_AHEAD * WINDOW
        ask_soon(call.indices + later * size, WINDOW * size)
        ask_soon(base + later * stride, ask_grad)
        checked = min(stop + SOON_OF_ONE, plan.num_positions)
        bad = 0
        for position in range(start, checked):
            bad |= as_row(indices[position], num_weights) < 0
        if bad == 0 and checked == stop + SOON_OF_ONE:
            for position in range(start, stop):
                ask_soon(table + np.int64(indices[position + SOON_OF_ONE]) * 8, 8)
                row = np.int64(indices[position])
                if row != padding:
                    sums[np.uint64(row)] += load_number(like, base + position * stride)
            continue
        for position in range(start, stop):  # at the end of the stream, or with a bad index
            row = as_row(indices[position], num_weights)
            if row < 0:
                if row == NOT_AN_INTEGER or not dropping:
                    return position
            elif row != padding:
                sums[np.uint64(row)] += load_number(like, base + position * stride)
    return np.int64(NONE_BAD)


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
    while piece < call.pieces:
        first_group, end_group = memory.chunk(piece, call.pieces, groups)
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
        add_row(np.float64(0), total, table, size)


@jit_inline
def write_rows(
    like: Any, call: Any, plan: Any, row: int, end_row: int, column: int, width: int, base: int
) -> None:
    """Scale rows, add what the output holds, and write them one by one.

    When accumulating, rows that no index names keep their bits; else they are written as zero.
    """
    num_weights, blocks = plan.num_weights, plan.blocks
    counts = memory.words(call.workspace + plan.table_counts)
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
    Phase(fill_tables, ("index", "grad")),
    Phase(reduce_tables, ("out",), before=stop_if_bad),
)
"""Check the indices and sum the gradient by row into partial tables; add those, and write out."""
