"""Loops over one row, in LLVM: add, divide, round and store, eight columns at a time.

Each is an intrinsic on plain addresses. ``like`` is a number whose type names the format (see
`bits`); totals are float64. Every loop is a function of its module, so that a kernel that uses it
in several places holds it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from numba_embed.kernels.asking import ROW, ask_line
from numba_embed.kernels.bits import DOUBLE, ELEMENT, I32, I64, lanes_of, narrow, widen
from numba_embed.kernels.masked import load_lanes, store_lanes
from numba_embed.runtime import intrinsic

LANES = 8
"""Columns per step: one AVX-512 vector of float64, two of AVX2, four of SSE2 or NEON."""

Emit = Callable[..., None]
"""Emits one step: (builder, arguments of the function, column, lanes), and in a tail how many of
the lanes there are."""


def call_loop(
    context: Any,
    builder: Any,
    name: str,
    args: Any,
    emit: Emit,
    steps: tuple[int, ...] = (LANES, 1),
    tails: tuple[int, ...] = (),
) -> Any:
    """Call the function ``name`` of the module, a loop over ``args[-1]`` columns.

    It takes as many columns at a time as the first of the steps says while it can, then as the
    next one says, and so on. What is left is one step of the first of the tails that holds it.
    """
    signature = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, signature, f"numba_embed.{name}")
    if function.is_declaration:
        # One copy after linking, and no second vectoriser at work on loops that are vectors:
        # that keeps compilation short.
        function.linkage = "linkonce_odr"
        for attribute in ("nounwind", "noinline", "optsize"):
            function.attributes.add(attribute)
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        done = ir.Constant(I64, 0)
        for lanes in steps:
            end = inner.and_(function.args[-1], ir.Constant(I64, -lanes))
            _emit_steps(inner, done, end, lanes, function.args, emit)
            done = end
        rest = inner.sub(function.args[-1], done)
        for lanes in tails:
            before = inner.sub(rest, ir.Constant(I64, 1))  # of no columns: as an unsigned one large
            with inner.if_then(inner.icmp_unsigned("<", before, ir.Constant(I64, lanes))):
                emit(inner, function.args, done, lanes, rest)
                inner.ret_void()
        inner.ret_void()
    builder.call(function, args)
    return context.get_dummy_value()


def _emit_steps(builder: Any, first: Any, end: Any, lanes: int, args: Any, emit: Emit) -> None:
    """Emit ``for column in range(first, end, lanes): step``."""
    before = builder.block
    head = builder.append_basic_block("head")
    body = builder.append_basic_block("body")
    after = builder.append_basic_block("after")
    builder.branch(head)
    builder.position_at_end(head)
    column = builder.phi(I64)
    column.add_incoming(first, before)
    builder.cbranch(builder.icmp_signed("<", column, end), body, after)
    builder.position_at_end(body)
    emit(builder, args, column, lanes)
    column.add_incoming(builder.add(column, ir.Constant(I64, lanes)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)


def pointer(builder: Any, address: Any, column: Any, scalar: Any, lanes: int) -> Any:
    """Return a pointer to one element or a vector of them, ``column`` elements from an address."""
    kind = scalar if lanes == 1 else ir.VectorType(scalar, lanes)
    first = builder.gep(builder.inttoptr(address, scalar.as_pointer()), [column])
    return builder.bitcast(first, kind.as_pointer())


def load(
    builder: Any, element: Any, address: Any, column: Any, lanes: int, mask: Any = None
) -> Any:
    """Load elements as float64, or those of a mask. Any alignment: operands may lie anywhere."""
    bits = load_bits(builder, ELEMENT[element], address, column, lanes, mask)
    return widen(builder, element, bits, lanes)


def load_bits(
    builder: Any, scalar: Any, address: Any, column: Any, lanes: int, mask: Any = None
) -> Any:
    """Load elements as they are, or those of a mask."""
    place = pointer(builder, address, column, scalar, lanes)
    if mask is not None:
        return load_lanes(builder, place, mask, lanes_of(scalar, lanes))
    return builder.load(place, align=1)


def store(
    builder: Any, value: Any, address: Any, column: Any, scalar: Any, lanes: int, mask: Any = None
) -> None:
    """Store elements, or those of a mask, at any alignment."""
    place = pointer(builder, address, column, scalar, lanes)
    if mask is not None:
        store_lanes(builder, value, place, mask)
    else:
        builder.store(value, place, align=1)


def ask(builder: Any, element: Any, address: Any, column: Any, when: int = ROW) -> None:
    """Ask for the line that holds an element of a row whose turn is later; see `asking`."""
    ask_line(builder, pointer(builder, address, column, ELEMENT[element], 1), when)


def splat(builder: Any, value: Any, lanes: int) -> Any:
    """Return a float64 in every lane."""
    if lanes == 1:
        return value
    vector = ir.VectorType(DOUBLE, lanes)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, I32(0))
    mask = ir.Constant(ir.VectorType(I32, lanes), [I32(0)] * lanes)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


@intrinsic
def set_row(typingctx: Any, like: Any, total: Any, source: Any, columns: Any) -> Any:
    """``total[:columns] = +0.0 + source[:columns]``: the first contribution of a sum."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        value = load(builder, like, args[1], column, lanes)
        zero = splat(builder, ir.Constant(DOUBLE, 0.0), lanes)
        store(builder, builder.fadd(value, zero), args[0], column, DOUBLE, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call_loop(context, builder, f"set_row.{like}", args[1:], emit)

    return types.void(like, types.int64, types.int64, types.int64), codegen


def _add(builder: Any, like: Any, total: Any, source: Any, column: Any, lanes: int) -> None:
    """Emit one step of ``total += source``."""
    value = load(builder, like, source, column, lanes)
    old = load(builder, types.float64, total, column, lanes)
    store(builder, builder.fadd(old, value), total, column, DOUBLE, lanes)


@intrinsic
def add_row(typingctx: Any, like: Any, total: Any, source: Any, columns: Any) -> Any:
    """``total[:columns] += source[:columns]``."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        _add(builder, like, args[0], args[1], column, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call_loop(context, builder, f"add_row.{like}", args[1:], emit)

    return types.void(like, types.int64, types.int64, types.int64), codegen


@intrinsic
def add_row_ahead(
    typingctx: Any, like: Any, total: Any, source: Any, later: Any, columns: Any
) -> Any:
    """``total[:columns] += source[:columns]``; asks for the columns of the row at ``later``.

    They are asked for on the way, line by line: that keeps few requests waiting at a time, and
    measured faster than a whole row at once.
    """

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        ask(builder, like, args[2], column)
        _add(builder, like, args[0], args[1], column, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call_loop(context, builder, f"add_row_ahead.{like}", args[1:], emit)

    return types.void(like, types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def add_weighted_row(
    typingctx: Any, like: Any, total: Any, source: Any, weight: Any, columns: Any
) -> Any:
    """``total[:columns] += weight * source[:columns]``, product and sum each rounded."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        value = load(builder, like, args[1], column, lanes)
        product = builder.fmul(splat(builder, args[2], lanes), value)
        old = load(builder, types.float64, args[0], column, lanes)
        store(builder, builder.fadd(old, product), args[0], column, DOUBLE, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call_loop(context, builder, f"add_weighted_row.{like}", args[1:], emit)

    return types.void(like, types.int64, types.int64, types.float64, types.int64), codegen


@intrinsic
def divide_row(typingctx: Any, total: Any, divisor: Any, columns: Any) -> Any:
    """``total[:columns] /= divisor``."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        old = load(builder, types.float64, args[0], column, lanes)
        quotient = builder.fdiv(old, splat(builder, args[1], lanes))
        store(builder, quotient, args[0], column, DOUBLE, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call_loop(context, builder, "divide_row", args, emit)

    return types.void(types.int64, types.float64, types.int64), codegen


@intrinsic
def narrow_row(typingctx: Any, like: Any, target: Any, total: Any, columns: Any) -> Any:
    """``target[:columns] = total[:columns]``, each rounded once to the format."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        value = load(builder, types.float64, args[1], column, lanes)
        result = narrow(builder, like, value, lanes)
        store(builder, result, args[0], column, ELEMENT[like], lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call_loop(context, builder, f"narrow_row.{like}", args[1:], emit)

    return types.void(like, types.int64, types.int64, types.int64), codegen


@intrinsic
def copy_columns(
    typingctx: Any, like: Any, target: Any, target_stride: Any, source: Any, source_stride: Any,
    swap: Any, columns: Any,
) -> Any:  # fmt: skip
    """Copy elements between any strides in bytes; with ``swap``, in the other byte order."""
    integer = ir.IntType(like.bitwidth)

    def at(builder: Any, address: Any, stride: Any, column: Any) -> Any:
        place = builder.add(address, builder.mul(column, stride))
        return builder.inttoptr(place, integer.as_pointer())

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        for lane in range(lanes):
            place = builder.add(column, ir.Constant(I64, lane))
            value = builder.load(at(builder, args[2], args[3], place), align=1)
            other = builder.trunc(args[4], ir.IntType(1))
            value = builder.select(other, builder.bswap(value), value)
            builder.store(value, at(builder, args[0], args[1], place), align=1)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call_loop(context, builder, f"copy_columns.{like}", args[1:], emit)

    integers = [types.int64] * 6
    return types.void(like, *integers), codegen


@intrinsic
def load_number(typingctx: Any, like: Any, address: Any) -> Any:
    """Return the element at an address as float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return load(builder, like, args[1], ir.Constant(I64, 0), 1)

    return types.float64(like, types.int64), codegen
