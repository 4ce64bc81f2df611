"""Where gradient rows and output rows lie in memory, whatever the layout of the arrays.

Strides, byte order, a map or a weight per position are handled here, once, for all algorithms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels.asking import ask_row
from numba_embed.kernels.layout import LINE
from numba_embed.kernels.memory import clear_bytes, itemsize, pointer_at, words
from numba_embed.kernels.rows import (
    add_row,
    add_weighted_row,
    copy_columns,
    narrow_row,
    set_row,
)
from numba_embed.runtime import jit


@jit
def grad_address(call: Any, position: int) -> int:
    """Return the address of the gradient row that belongs to a position of the stream."""
    if call.position_map != 0:
        position = words(call.position_map + position * 8)[0]
    if call.grad_dims == 1:
        return call.grad + position * call.grad_strides[0]
    place = call.grad
    for dim in range(call.grad_dims - 1, -1, -1):
        outer = position // call.grad_shape[dim]
        place += (position - outer * call.grad_shape[dim]) * call.grad_strides[dim]
        position = outer
    return place


MAX_ASK = 2048
"""Most bytes of a row with any strides that are asked for ahead."""


@jit
def ask_position(call: Any, position: int, column: int, columns: int) -> None:
    """Ask for a position's gradient row, if its elements lie close together."""
    span = columns * abs(call.grad_column)
    source = grad_address(call, position) + column * call.grad_column
    if call.grad_column < 0:
        source -= span
    if abs(call.grad_column) < LINE:
        ask_row(source, min(span, MAX_ASK))


@jit
def add_position(
    like: Any, call: Any, position: int, column: int, columns: int, total: int, buffer: int,
    fresh: bool,
) -> None:  # fmt: skip
    """Add a position's gradient row, ``columns`` of it from ``column`` on, to ``total``.

    ``fresh``: set ``total`` instead. ``buffer`` takes a contiguous copy where the row needs one.
    """
    source = grad_address(call, position) + column * call.grad_column
    if call.grad_column != itemsize(like) or call.grad_swap != 0:
        copy_columns(
            like, buffer, itemsize(like), source, call.grad_column, call.grad_swap, columns
        )
        source = buffer
    if call.position_weights != 0:
        weight = pointer_at(call.position_weights + position * 8, np.float64(0))[0]
        if fresh:
            clear_bytes(total, columns * 8)
        add_weighted_row(like, total, source, weight, columns)
    elif fresh:
        set_row(like, total, source, columns)
    else:
        add_row(like, total, source, columns)


@jit
def out_address(call: Any, row: int, column: int) -> int:
    """Return the address of an element of the output."""
    return call.out + row * call.out_row + column * call.out_column


@jit
def contiguous_rows(like: Any, call: Any) -> bool:
    """Return whether the output's rows are native elements side by side."""
    return call.out_column == itemsize(like) and call.out_swap == 0


@jit
def add_old(
    like: Any, call: Any, row: int, column: int, columns: int, total: int, buffer: int
) -> None:
    """``total += old`` with what the output holds, from (row, column) on: accumulation."""
    source = out_address(call, row, column)
    if not contiguous_rows(like, call):
        copy_columns(like, buffer, itemsize(like), source, call.out_column, call.out_swap, columns)
        source = buffer
    add_row(like, total, source, columns)


@jit
def store(
    like: Any, call: Any, row: int, column: int, columns: int, total: int, buffer: int
) -> None:
    """Round ``total`` into the output, from (row, column) on. Any strides."""
    target = out_address(call, row, column)
    if contiguous_rows(like, call):
        narrow_row(like, target, total, columns)
    else:
        narrow_row(like, buffer, total, columns)
        copy_columns(like, target, call.out_column, buffer, itemsize(like), call.out_swap, columns)


@jit
def store_zeros(like: Any, call: Any, row: int, end: int, column: int, columns: int) -> None:
    """Write zero to ``columns`` columns of the rows from ``row`` to before ``end``. Any strides."""
    for r in range(row, end):
        target = out_address(call, r, column)
        if call.out_column == itemsize(like):
            clear_bytes(target, columns * itemsize(like))
        else:
            for j in range(columns):
                clear_bytes(target + j * call.out_column, itemsize(like))
