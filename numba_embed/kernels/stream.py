"""A block of the table's rows, summed while all positions stream by: for operands beyond memory.

A block has float64 ``totals`` and, for rows that are cut, the ``parts`` of the block of positions
that is passing by; nothing else grows with anything. The order of additions is the rule's: a row's
contributions come by in stream order, and `fold_parts` adds its parts in the order of blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import elements, memory
from numba_embed.kernels import layout as at
from numba_embed.kernels.count import NONE_BAD, NOT_AN_INTEGER, as_row
from numba_embed.kernels.memory import pointer_at, words
from numba_embed.kernels.phases import Kernel, Phase
from numba_embed.kernels.rows import add_row, add_row_ahead, divide_row, set_row
from numba_embed.runtime import cached, jit_inline

STREAM = np.dtype(
    [
        (name, np.int64)
        for name in (
            "columns",
            # The block of rows.
            "first_row",
            "num_rows",
            "cut",  # rows with so many look-ups are summed in parts
            "scale",  # 1: divide by the number of look-ups
            "totals",  # float64 (num_rows, columns), C-contiguous
            "parts",  # the same, or 0: no row is cut
            "counts",  # int64 (num_rows,)
            # The piece of the stream: its rows, -1 where a position takes no part.
            "rows",  # int64 (size,)
            "first_position",
            "size",
        )
    ]
)

BUFFER = at.STAGED
"""Bytes of a thread's buffers, of which at.SUM and at.SOURCE are used."""

SHARED_COLUMNS = 16
"""From so many columns per thread on, threads share the columns of all rows, so that a hot row is
everyone's; below, each has rows of its own."""

stream_at = memory._record_intrinsic("stream_at", STREAM)


@cached
def read_rows(
    index_like: Any, source: int, size: int, num_weights: int, padding: int, dropping: bool,
    target: int,
) -> int:  # fmt: skip
    """Check ``size`` indices and store them as rows, int64; -1 where one takes no part.

    Returns the first bad one, or NONE_BAD. Serial only.
    """
    indices = pointer_at(source, index_like)
    rows = words(target)
    for place in range(size):
        row = as_row(indices[place], num_weights)
        if row < 0 and (row == NOT_AN_INTEGER or not dropping):
            return place
        rows[place] = -1 if row < 0 or row == padding else row
    return NONE_BAD


@cached
def count_lookups(
    rows_address: int, size: int, first_row: int, num_rows: int, span: int, counts_address: int
) -> None:
    """Add the look-ups of the rows ``[first_row, first_row + num_rows)`` to ``counts``.

    int64, one for each ``span`` rows. Serial only.
    """
    rows = words(rows_address)
    counts = words(counts_address)
    for place in range(size):
        row = rows[place] - first_row
        if row >= 0 and row < num_rows:
            counts[row if span == 1 else row // span] += 1


@jit_inline
def add_piece(thread: int, call_address: int, like: Any) -> None:
    """Add a piece of the stream to the block: one thread's columns, or one thread's rows."""
    call = memory.call_at(call_address)
    plan, stream = memory.plan_at(call.plan), stream_at(call.more)
    columns, first_row, first_position = stream.columns, stream.first_row, stream.first_position
    first, end = np.int64(0), stream.num_rows
    left, right = np.int64(0), columns
    if columns >= SHARED_COLUMNS * plan.threads:
        left, right = memory.chunk(thread, plan.threads, columns)
    else:
        first, end = memory.chunk(thread, plan.threads, stream.num_rows)
    rows = words(stream.rows)
    counts = words(stream.counts)
    buffer = call.workspace + plan.private + thread * plan.private_stride + at.SOURCE
    base, stride = call.grad + left * call.grad_column, call.grad_strides[0]
    plain, cut, parted = call.plain != 0, stream.cut, stream.parts != 0
    for place in range(stream.size):
        row = rows[place] - first_row
        if row >= first and row < end:
            sums = stream.parts if parted and counts[row] >= cut else stream.totals
            total = sums + (row * columns + left) * 8
            position = first_position + place
            if plain:
                source = base + position * stride
                add_row_ahead(like, total, source, source + stride, right - left)
            else:
                for column in range(left, right, at.TILE):
                    width = min(at.TILE, right - column)
                    there = total + (column - left) * 8
                    elements.add_position(like, call, position, column, width, there, buffer, False)


@jit_inline
def fold_chunk(thread: int, call_address: int) -> None:
    """Add the parts of one thread's cut rows to their totals, and clear them."""
    call = memory.call_at(call_address)
    plan, stream = memory.plan_at(call.plan), stream_at(call.more)
    counts = words(stream.counts)
    row_bytes = stream.columns * 8
    first, end = memory.chunk(thread, plan.threads, stream.num_rows)
    for row in range(first, end):
        if counts[row] >= stream.cut and counts[row] > 0:
            part = stream.parts + row * row_bytes
            total = stream.totals + row * row_bytes
            add_row(np.float64(0), total, part, stream.columns)
            memory.clear_bytes(part, row_bytes)


@jit_inline
def write_chunk(thread: int, call_address: int, like: Any) -> None:
    """Write one thread's rows of the block to the output; the totals keep their values."""
    call = memory.call_at(call_address)
    plan, stream = memory.plan_at(call.plan), stream_at(call.more)
    counts = words(stream.counts)
    columns = stream.columns
    base = call.workspace + plan.private + thread * plan.private_stride
    total, buffer = base + at.SUM, base + at.SOURCE
    first, end = memory.chunk(thread, plan.threads, stream.num_rows)
    for place in range(first, end):
        row = stream.first_row + place
        if counts[place] == 0:
            if call.accumulate == 0:
                elements.store_zeros(like, call, row, row + 1, 0, columns)
            continue
        for column in range(0, columns, at.TILE):
            width = min(at.TILE, columns - column)
            source = stream.totals + (place * columns + column) * 8
            set_row(np.float64(0), total, source, width)
            if stream.scale != 0:
                divide_row(total, np.float64(counts[place]), width)
            if call.accumulate != 0:
                elements.add_old(like, call, row, column, width, total, buffer)
            elements.store(like, call, row, column, width, total, buffer)


_ADD, _FOLD = Phase(add_piece, ("grad",)), Phase(fold_chunk)

add_stream = Kernel(_ADD)
"""Add a piece of the stream, which lies within one block of positions, to a block of rows."""

add_and_fold, fold_parts = Kernel(_ADD, _FOLD), Kernel(_FOLD)
"""The same at the end of a block of positions, whose parts of all cut rows then go to their totals;
and that end alone."""

write_rows = Kernel(Phase(write_chunk, ("out",)))
"""Scale, add what the output holds, and round a block's rows into the output.

Rows without look-ups become zero, or keep their bits when accumulating.
"""
