"""Rows of a compact array into rows of a table: added with a factor, or put in their place.

Each (row, tile of columns) is written by one thread, and reads nothing that another one writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from numba_embed.kernels import layout as at
from numba_embed.kernels import memory
from numba_embed.kernels.asking import ask_soon
from numba_embed.kernels.bits import ELEMENT, narrow
from numba_embed.kernels.phases import Kernel, Phase
from numba_embed.kernels.rows import call_loop, copy_columns, load, splat, store
from numba_embed.runtime import intrinsic, jit_inline

UPDATE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "rows",  # int64 (size,): the distinct rows
            "size",
            "columns",
            "values",  # (size, columns), C-contiguous and native
            # The table's first element, its strides in bytes, 1 for the other byte order.
            "target",
            "target_row",
            "target_column",
            "target_swap",
            "adding",  # 1: alpha times a row is added; 0: the row is put in place
        )
    ]
    + [("alpha", np.float64)]
)

BUFFER = 8 * at.TILE
"""Bytes of a thread's buffer: a tile of table elements."""

AHEAD = 8
"""Rows of the table that are asked for ahead of their turn: they lie anywhere."""

MAX_ASK = 512

update_at = memory._record_intrinsic("update_at", UPDATE)


@intrinsic
def add_scaled_row(
    typingctx: Any, value_like: Any, like: Any, target: Any, source: Any, alpha: Any, columns: Any
) -> Any:
    """``target[:columns] += alpha * source[:columns]`` in float64, rounded once to the format."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        value = load(builder, value_like, args[1], column, lanes)
        old = load(builder, like, args[0], column, lanes)
        product = builder.fmul(splat(builder, args[2], lanes), value)
        result = narrow(builder, like, builder.fadd(old, product), lanes)
        store(builder, result, args[0], column, ELEMENT[like], lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = f"add_scaled_row.{value_like}.{like}"
        return call_loop(context, builder, name, args[2:], emit)

    arguments = (value_like, like, types.int64, types.int64, types.float64, types.int64)
    return types.void(*arguments), codegen


@intrinsic
def convert_row(
    typingctx: Any, value_like: Any, like: Any, target: Any, source: Any, columns: Any
) -> Any:
    """``target[:columns] = source[:columns]``, rounded once to the format."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        value = load(builder, value_like, args[1], column, lanes)
        result = narrow(builder, like, value, lanes)
        store(builder, result, args[0], column, ELEMENT[like], lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = f"convert_row.{value_like}.{like}"
        return call_loop(context, builder, name, args[2:], emit)

    return types.void(value_like, like, types.int64, types.int64, types.int64), codegen


@jit_inline
def update_chunk(thread: int, call_address: int, value_like: Any, like: Any) -> None:
    """Update one thread's share of the (row, tile) pairs."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    update = update_at(call.more)
    columns, size, adding = update.columns, update.size, update.adding != 0
    tiles = -(-columns // at.TILE)
    rows = memory.words(update.rows)
    buffer = call.workspace + plan.private + thread * plan.private_stride
    value_bytes, bytes_ = memory.itemsize(value_like), memory.itemsize(like)
    plain = update.target_column == bytes_ and update.target_swap == 0
    ask = min(min(columns, at.TILE) * bytes_, MAX_ASK)
    first, end = memory.chunk(thread, plan.threads, size * tiles)
    for item in range(first, end):
        place, column = item // tiles, item % tiles * at.TILE
        width = min(at.TILE, columns - column)
        source = update.values + (place * columns + column) * value_bytes
        target = update.target + rows[place] * update.target_row + column * update.target_column
        if plain and place + AHEAD < size:
            later = update.target + rows[place + AHEAD] * update.target_row
            ask_soon(later + column * bytes_, ask)
        into = target
        if not plain:
            into = buffer
            if adding:
                copy_columns(
                    like, buffer, bytes_, target, update.target_column, update.target_swap, width
                )
        if adding:
            add_scaled_row(value_like, like, into, source, update.alpha, width)
        else:
            convert_row(value_like, like, into, source, width)
        if not plain:
            copy_columns(
                like, target, update.target_column, buffer, bytes_, update.target_swap, width
            )


update_rows = Kernel(Phase(update_chunk, ("grad", "out")))
"""Add ``alpha`` times each row of values to its row of the table, or put it there as it is.

Values are of the format of gradients, the table of that of outputs.
"""
