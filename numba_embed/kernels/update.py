"""Rows of a compact array into rows of a table: added with a factor, or put in their place.

Each (row, tile of columns) is written by one thread, and reads nothing that another one writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange, types

from numba_embed.kernels import layout as at
from numba_embed.kernels import memory
from numba_embed.kernels.bits import ELEMENT, narrow
from numba_embed.kernels.rows import (
    _call_loop,
    _load,
    _splat,
    _store,
    copy_columns,
    intrinsic,
)
from numba_embed.runtime import Launcher, jit

UPDATE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "threads",
            "rows",  # int64 (size,): the distinct rows
            "size",
            "columns",
            "values",  # (size, columns), C-contiguous and native
            # The table's first element, its strides in bytes, 1 for the other byte order.
            "target",
            "target_row",
            "target_column",
            "target_swap",
            "buffers",  # BUFFER bytes for each thread
        )
    ]
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
        value = _load(builder, value_like, args[1], column, lanes)
        old = _load(builder, like, args[0], column, lanes)
        product = builder.fmul(_splat(builder, args[2], lanes), value)
        result = narrow(builder, like, builder.fadd(old, product), lanes)
        _store(builder, result, args[0], column, ELEMENT[like], lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = f"add_scaled_row.{value_like}.{like}"
        return _call_loop(context, builder, name, args[2:], emit)

    arguments = (value_like, like, types.int64, types.int64, types.float64, types.int64)
    return types.void(*arguments), codegen


@intrinsic
def convert_row(
    typingctx: Any, value_like: Any, like: Any, target: Any, source: Any, columns: Any
) -> Any:
    """``target[:columns] = source[:columns]``, rounded once to the format."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        value = _load(builder, value_like, args[1], column, lanes)
        result = narrow(builder, like, value, lanes)
        _store(builder, result, args[0], column, ELEMENT[like], lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = f"convert_row.{value_like}.{like}"
        return _call_loop(context, builder, name, args[2:], emit)

    return types.void(value_like, like, types.int64, types.int64, types.int64), codegen


@jit
def update_chunk(
    thread: int, adding: bool, alpha: float, value_like: Any, like: Any, address: int
) -> None:
    """Update one thread's share of the (row, tile) pairs."""
    update = update_at(address)
    columns, size = update.columns, update.size
    tiles = -(-columns // at.TILE)
    rows = memory.words(update.rows, size)
    buffer = update.buffers + thread * BUFFER
    value_bytes, bytes_ = memory.itemsize(value_like), memory.itemsize(like)
    plain = update.target_column == bytes_ and update.target_swap == 0
    ask = min(min(columns, at.TILE) * bytes_, MAX_ASK)
    first, end = memory.chunk(thread, update.threads, size * tiles)
    for item in range(first, end):
        place, column = item // tiles, item % tiles * at.TILE
        width = min(at.TILE, columns - column)
        source = update.values + (place * columns + column) * value_bytes
        target = update.target + rows[place] * update.target_row + column * update.target_column
        if plain and place + AHEAD < size:
            later = update.target + rows[place + AHEAD] * update.target_row
            memory.prefetch(later + column * bytes_, ask)
        into = target
        if not plain:
            into = buffer
            if adding:
                copy_columns(
                    like, buffer, bytes_, target, update.target_column, update.target_swap, width
                )
        if adding:
            add_scaled_row(value_like, like, into, source, alpha, width)
        else:
            convert_row(value_like, like, into, source, width)
        if not plain:
            copy_columns(
                like, target, update.target_column, buffer, bytes_, update.target_swap, width
            )


@jit
def pieces_of(address: int) -> int:
    """Return the number of pieces that the update is cut into."""
    return update_at(address).threads


@Launcher
def update_rows(adding: bool, alpha: float, value_like: Any, like: Any, address: int) -> None:
    """Add ``alpha`` times each row of values to its row of the table, or put it there as it is."""
    threads = pieces_of(address)
    for thread in prange(threads):
        update_chunk(np.int64(thread), adding, alpha, value_like, like, address)
