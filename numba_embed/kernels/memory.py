"""Raw memory: pointers, streaming stores, tickets, and the cutting of work."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from numba_embed.kernels import layout as at
from numba_embed.runtime import intrinsic, jit


@intrinsic
def pointer_at(typingctx: Any, address: Any, like: Any) -> Any:
    """Return a pointer to elements of the type of ``like`` at an address.

    It is indexed as an array is, but knows no length: a negative index is not counted from the end,
    which costs two instructions per access where the compiler cannot tell the sign.
    """
    return types.CPointer(like)(types.int64, like), _as_pointer


def _as_pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.inttoptr(args[0], context.get_value_type(signature.return_type))


def _pointer_intrinsic(name: str, dtype: Any) -> Any:
    """Return an intrinsic ``address -> pointer`` to a fixed element type."""

    def pointer(typingctx: Any, address: Any) -> Any:
        return types.CPointer(dtype)(types.int64), _as_pointer

    pointer.__name__ = name
    return intrinsic(pointer)


words = _pointer_intrinsic("words", types.int64)
entries = _pointer_intrinsic("entries", types.uint64)
"""Pointers to int64, and to uint64, at an address."""


def _record_intrinsic(name: str, dtype: np.dtype[np.void]) -> Any:
    """Return an intrinsic that reads an address as a record of this dtype."""
    record = numba.from_dtype(dtype)

    def record_at(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(record))

        return record(types.int64), codegen

    record_at.__name__ = name
    return intrinsic(record_at)


call_at = _record_intrinsic("call_at", at.CALL)
plan_at = _record_intrinsic("plan_at", at.PLAN)
"""The records at an address."""


@intrinsic
def itemsize(typingctx: Any, like: Any) -> Any:
    """Return the bytes of an element of the type of ``like``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.int64, like.bitwidth // 8)

    return types.int64(like), codegen


@intrinsic
def same_format(typingctx: Any, like: Any, other: Any) -> Any:
    """Return whether elements of two types have the same format, a constant of the kernel."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.boolean, like == other)

    return types.boolean(like, other), codegen


@intrinsic
def stream_line(typingctx: Any, destination: Any, source: Any) -> Any:
    """Copy a line past the caches, between addresses; ``destination`` is aligned to it.

    Weakly ordered: `fence` before another thread may read.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = ir.VectorType(ir.FloatType(), at.LINE // 4).as_pointer()
        value = builder.load(builder.inttoptr(args[1], line), align=1)
        store = builder.store(value, builder.inttoptr(args[0], line), align=at.LINE)
        one = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", one)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def fence(typingctx: Any) -> Any:
    """Order all earlier stores, streaming ones included, before all later ones."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def copy_bytes(typingctx: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes between addresses that do not overlap, or overlap wholly."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (builder.inttoptr(arg, cgutils.voidptr_t) for arg in args[:2])
        cgutils.raw_memmove(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def clear_bytes(typingctx: Any, target: Any, size: Any) -> Any:
    """Set bytes at an address to zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cgutils.memset(builder, builder.inttoptr(args[0], cgutils.voidptr_t), args[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def take_ticket(typingctx: Any, address: Any) -> Any:
    """Return the int64 at an address and add one to it, atomically: the next piece of work."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.int64), codegen


@jit
def chunk(piece: int, pieces: int, size: int) -> tuple[int, int]:
    """Return the half-open range of ``size`` things that makes one of ``pieces`` equal pieces."""
    share, rest = size // pieces, size % pieces
    first = piece * share + min(piece, rest)
    return first, first + share + (1 if piece < rest else 0)


@jit
def lower_bound(order_address: int, first: int, end: int, key: Any) -> int:
    """Return the first place in the ascending entries ``[first, end)`` with at least ``key``."""
    order = entries(order_address)
    while first < end:
        middle = (first + end) >> 1
        if order[middle] < key:
            first = middle + 1
        else:
            end = middle
    return first
