"""Loading gradient rows into float64 sums, and storing sums as rows of the output.

The element types are spelled as in `bits`; every other layout (strides, byte order, a weight or a
map per position) is handled here, once, for all algorithms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import memory
from numba_embed.kernels.bits import LINE, array_at, byteswap, narrow, prefetch, widen
from numba_embed.runtime import jit, jit_inline

_INT64 = np.zeros(1, np.int64)
_FLOAT64 = np.zeros(1, np.float64)
_UINT8 = np.zeros(1, np.uint8)


@jit
def grad_address(call: Any, position: int) -> int:
    """Return the address of the gradient row that belongs to a position of the stream."""
    if call.position_map != 0:
        place = call.position_map + position * 8
        position = array_at(place, 1, _INT64)[0]
    if call.grad_dims == 1:
        return call.grad + position * call.grad_strides[0]
    place = call.grad
    for dim in range(call.grad_dims - 1, -1, -1):
        outer = position // call.grad_shape[dim]
        inner = position - outer * call.grad_shape[dim]
        place += inner * call.grad_strides[dim]
        position = outer
    return place


@jit_inline
def grad_columns(like: Any, call: Any, place: int, column: int, size: int, buffer: Any) -> Any:
    """Return ``size`` gradient elements from a column on, of the row at address ``place``.

    A view of the gradient where its columns are contiguous, else a copy in ``buffer``.
    """
    stride, swap = call.grad_column, call.grad_swap
    place += column * stride
    if stride == like.itemsize and swap == 0:
        return array_at(place, size, like)
    for j in range(size):
        value = array_at(place + j * stride, 1, like)[0]
        buffer[j] = byteswap(value) if swap != 0 else value
    return buffer


@jit
def add_position(
    like: Any, call: Any, position: int, column: int, size: int, total: Any, buffer: Any,
    fresh: bool,
) -> None:  # fmt: skip
    """Add the gradient row of a position, ``size`` columns from ``column`` on, to ``total``.

    ``total += row``, or ``+0.0 + row`` where ``fresh`` (a lone -0.0 gives +0.0); each row times its
    position's weight where the call has weights. In float64.
    """
    place = grad_address(call, position)
    source = grad_columns(like, call, place, column, size, buffer)
    if call.position_weights != 0:
        weight = array_at(call.position_weights + position * 8, 1, _FLOAT64)[0]
        for j in range(size):
            total[j] += weight * widen(source[j])
    elif fresh:
        for j in range(size):
            total[j] = 0.0 + widen(source[j])
    else:
        for j in range(size):
            total[j] += widen(source[j])


@jit_inline
def prefetch_grad(call: Any, position: int, offset: int, size: int) -> None:
    """Ask for ``size`` bytes of a position's gradient row, from a byte offset on."""
    place = grad_address(call, position) + offset
    for line in range(0, size, LINE):
        prefetch(place + line)


@jit_inline
def out_address(call: Any, row: int, column: int) -> int:
    """Return the address of an element of the output."""
    return call.out + row * call.out_row + column * call.out_column


@jit_inline
def add_old(like: Any, call: Any, row: int, column: int, size: int, total: Any) -> None:
    """``total = old + total`` with what the output holds: accumulation."""
    place, stride = out_address(call, row, column), call.out_column
    for j in range(size):
        value = array_at(place + j * stride, 1, like)[0]
        if call.out_swap != 0:
            value = byteswap(value)
        total[j] += widen(value)


@jit_inline
def narrow_sums(like: Any, total: Any, size: int, target: Any) -> None:
    """``target[:size] = total[:size]``, each rounded once to the format of ``like``."""
    for j in range(size):
        target[j] = narrow(total[j], like[0])


@jit
def store(like: Any, call: Any, row: int, column: int, size: int, total: Any) -> None:
    """Round ``total[:size]`` into the output, from (row, column) on. Any strides."""
    place, stride = out_address(call, row, column), call.out_column
    if stride == like.itemsize and call.out_swap == 0:
        narrow_sums(like, total, size, array_at(place, size, like))
        return
    for j in range(size):
        value = narrow(total[j], like[0])
        target = array_at(place + j * stride, 1, like)
        target[0] = byteswap(value) if call.out_swap != 0 else value


@jit_inline
def store_zeros(like: Any, call: Any, row: int, end: int, column: int, size: int) -> None:
    """Write zero to ``size`` columns of the rows from ``row`` to before ``end``. Any strides."""
    stride = call.out_column
    for r in range(row, end):
        place = out_address(call, r, column)
        if stride == like.itemsize:
            target = array_at(place, size * like.itemsize, _UINT8)
            memory.clear(target, 0, target.size)
        else:
            for j in range(size):
                target = array_at(place + j * stride, like.itemsize, _UINT8)
                memory.clear(target, 0, target.size)
