"""Loops over one row, in LLVM: add, divide, round and store, eight columns at a time.

Each is an intrinsic on plain addresses. ``like`` is a number whose type names the format (see
`bits`); totals are float64. Every loop is a function of its module, so that a kernel that uses it
in several places holds it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

from numba_embed.kernels.bits import DOUBLE, ELEMENT, I32, I64, constant, lanes_of, narrow, widen
from numba_embed.kernels.layout import LINE

intrinsic: Any = _intrinsic

OPAQUE_POINTERS = llvmlite.binding.llvm_version_info[0] >= 15

LANES = 8
"""Columns per step: one AVX-512 vector of float64, two of AVX2, four of SSE2 or NEON."""

RUN_LANES = 32
"""Columns of a short run that are summed in registers at a time: eight of AVX2's sixteen."""

ASKS = 2
"""How many times a gradient row is asked for before its turn. A processor that waits for many lines
drops requests for more, and asking again later makes up for it. Four times measured no better on
large gradients, and slower where the gradient is in the cache."""

Emit = Callable[[Any, Any, Any, int], None]
"""Emits one step: (builder, arguments of the function, column, lanes)."""


def _call_loop(
    context: Any,
    builder: Any,
    name: str,
    args: Any,
    emit: Emit,
    steps: tuple[int, ...] = (LANES, 1),
) -> Any:
    """Call the function ``name`` of the module, a loop over ``args[-1]`` columns.

    It takes as many columns at a time as the first of the steps says while it can, then as the
    next one says, and so on.
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


def _pointer(builder: Any, address: Any, column: Any, scalar: Any, lanes: int) -> Any:
    kind = scalar if lanes == 1 else ir.VectorType(scalar, lanes)
    first = builder.gep(builder.inttoptr(address, scalar.as_pointer()), [column])
    return builder.bitcast(first, kind.as_pointer())


def _load(builder: Any, element: Any, address: Any, column: Any, lanes: int) -> Any:
    """Load elements as float64. Any alignment: operands may lie anywhere."""
    pointer = _pointer(builder, address, column, ELEMENT[element], lanes)
    return widen(builder, element, builder.load(pointer, align=1), lanes)


def _store(builder: Any, value: Any, address: Any, column: Any, scalar: Any, lanes: int) -> None:
    builder.store(value, _pointer(builder, address, column, scalar, lanes), align=1)


def _ask(builder: Any, element: Any, address: Any, column: Any) -> None:
    """Ask for the cache line that holds an element, to be read once. Any address is harmless.

    Where the processor knows the difference, the line does not push others out of the larger
    caches: tables that a gradient is added to stay there.
    """
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, I32, I32, I32]),
        "llvm.prefetch.p0" if OPAQUE_POINTERS else "llvm.prefetch.p0i8",
    )
    pointer = _pointer(builder, address, column, ELEMENT[element], 1)
    pointer = builder.bitcast(pointer, cgutils.voidptr_t)
    builder.call(function, [pointer, I32(0), I32(0), I32(1)])


def _splat(builder: Any, value: Any, lanes: int) -> Any:
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
        value = _load(builder, like, args[1], column, lanes)
        zero = _splat(builder, ir.Constant(DOUBLE, 0.0), lanes)
        _store(builder, builder.fadd(value, zero), args[0], column, DOUBLE, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call_loop(context, builder, f"set_row.{like}", args[1:], emit)

    return types.void(like, types.int64, types.int64, types.int64), codegen


@intrinsic
def add_row(typingctx: Any, like: Any, total: Any, source: Any, later: Any, columns: Any) -> Any:
    """``total[:columns] += source[:columns]``; asks for the columns of the row at ``later``.

    They are asked for on the way, line by line: that keeps few requests waiting at a time, and
    measured faster than a whole row at once.
    """

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        _ask(builder, like, args[2], column)
        value = _load(builder, like, args[1], column, lanes)
        old = _load(builder, types.float64, args[0], column, lanes)
        _store(builder, builder.fadd(old, value), args[0], column, DOUBLE, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call_loop(context, builder, f"add_row.{like}", args[1:], emit)

    return types.void(like, types.int64, types.int64, types.int64, types.int64), codegen


def _entry_row(builder: Any, address: Any, mask: Any, base: Any, stride: Any) -> Any:
    """Return where the row of the entry at an address lies: ``base + (entry & mask) * stride``."""
    entry = builder.load(builder.inttoptr(address, I64.as_pointer()))
    return builder.add(base, builder.mul(builder.and_(entry, mask), stride))


def _adds_entries(name: str, count: int, fresh: bool) -> Any:
    """Make the intrinsic ``name``, which adds the rows of ``count`` entries to a total, in turn.

    The entries lie one after the other at an address. ``fresh``: from +0.0 on, whatever the total
    was. Asks for the rows of the entries ``step`` bytes further on, twice that, ... `ASKS` times.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        like = signature.args[0]
        _, total, entries, mask, base, stride, step, columns = args

        def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
            sources, laters, total = args[:count], args[count:-2], args[-2]
            width = min(lanes, LANES)
            for later in laters if lanes >= LANES else ():
                _ask(builder, like, later, column)
            for k in range(0, lanes, width):
                part = builder.add(column, ir.Constant(I64, k))
                value = _splat(builder, ir.Constant(DOUBLE, 0.0), width)
                if not fresh:
                    value = _load(builder, types.float64, total, part, width)
                for source in sources:
                    value = builder.fadd(value, _load(builder, like, source, part, width))
                _store(builder, value, total, part, DOUBLE, width)

        rows = []
        for _ in range(1 + ASKS):
            for k in range(count):
                address = builder.add(entries, ir.Constant(I64, 8 * k))
                rows.append(_entry_row(builder, address, mask, base, stride))
            entries = builder.add(entries, step)
        last = builder.sub(columns, ir.Constant(I64, 1))
        for later in rows[count:]:  # a row that is not aligned reaches into one line more
            _ask(builder, like, later, last)
        args = [*rows, total, columns]
        line = LINE * 8 // like.bitwidth  # columns, so that full steps ask for each line once
        steps = tuple(dict.fromkeys((line, LANES, 1)))
        return _call_loop(context, builder, f"{name}.{like}", args, emit, steps)

    def adds_entries(
        typingctx: Any, like: Any, total: Any, entries: Any, mask: Any, base: Any, stride: Any,
        step: Any, columns: Any,
    ) -> Any:  # fmt: skip
        i64 = types.int64
        return types.void(like, i64, i64, types.uint64, i64, i64, i64, i64), codegen

    adds_entries.__name__ = name
    return intrinsic(adds_entries)


set_entry = _adds_entries("set_entry", 1, True)
add_entry = _adds_entries("add_entry", 1, False)
add_two = _adds_entries("add_two", 2, False)
"""``total[:columns]`` = the row of an entry from +0.0 on; += that row; += the rows of two entries.

Two in one loop load and store the total once, and read in two places at once."""


@intrinsic
def sum_run(
    typingctx: Any, like: Any, out_like: Any, target: Any, entries: Any, count: Any, mask: Any,
    base: Any, stride: Any, step: Any, columns: Any,
) -> Any:  # fmt: skip
    """``target[:columns]`` = the rows of ``count`` entries, added from +0.0 on and rounded once.

    The entries lie one after the other at an address, at least one of them; an entry's row at
    ``base + (entry & mask) * stride``. Asks for the rows of the entries ``step`` bytes further on,
    twice that, ... `ASKS` times.
    The sums stay in registers: for runs so short that their rows stay in the first-level cache
    from one part of the columns to the next.
    """

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        target, entries, count, mask, base, stride, step, _ = args
        width = min(lanes, LANES)
        parts = [builder.add(column, ir.Constant(I64, k)) for k in range(0, lanes, width)]
        end = builder.add(entries, builder.mul(count, ir.Constant(I64, 8)))
        before, body = builder.block, builder.append_basic_block("entry")
        after = builder.append_basic_block("summed")
        builder.branch(body)
        builder.position_at_end(body)
        place = builder.phi(I64)
        place.add_incoming(entries, before)
        sums = [builder.phi(lanes_of(DOUBLE, width)) for _ in parts]

        further, rows = place, []
        for _ in range(1 + ASKS):
            rows.append(_entry_row(builder, further, mask, base, stride))
            further = builder.add(further, step)
        source, laters = rows[0], rows[1:]
        # A row that is not aligned reaches into one line more, which its last column names.
        for k in sorted({*range(0, lanes, LINE * 8 // like.bitwidth), lanes - 1}):
            for later in laters:
                _ask(builder, like, later, builder.add(column, ir.Constant(I64, k)))
        added = []
        for total, part in zip(sums, parts, strict=True):
            total.add_incoming(constant(DOUBLE, 0.0, width), before)
            value = builder.fadd(total, _load(builder, like, source, part, width))
            total.add_incoming(value, body)
            added.append(value)
        following = builder.add(place, ir.Constant(I64, 8))
        place.add_incoming(following, body)
        builder.cbranch(builder.icmp_unsigned("<", following, end), body, after)
        builder.position_at_end(after)
        for total, part in zip(added, parts, strict=True):
            result = narrow(builder, out_like, total, width)
            _store(builder, result, target, part, ELEMENT[out_like], width)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = f"sum_run.{like}.{out_like}"
        return _call_loop(context, builder, name, args[2:], emit, (RUN_LANES, LANES, 1))

    i64 = types.int64
    return types.void(like, out_like, i64, i64, i64, types.uint64, i64, i64, i64, i64), codegen


@intrinsic
def add_weighted_row(
    typingctx: Any, like: Any, total: Any, source: Any, weight: Any, columns: Any
) -> Any:
    """``total[:columns] += weight * source[:columns]``, product and sum each rounded."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        value = _load(builder, like, args[1], column, lanes)
        product = builder.fmul(_splat(builder, args[2], lanes), value)
        old = _load(builder, types.float64, args[0], column, lanes)
        _store(builder, builder.fadd(old, product), args[0], column, DOUBLE, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call_loop(context, builder, f"add_weighted_row.{like}", args[1:], emit)

    return types.void(like, types.int64, types.int64, types.float64, types.int64), codegen


@intrinsic
def divide_row(typingctx: Any, total: Any, divisor: Any, columns: Any) -> Any:
    """``total[:columns] /= divisor``."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        old = _load(builder, types.float64, args[0], column, lanes)
        quotient = builder.fdiv(old, _splat(builder, args[1], lanes))
        _store(builder, quotient, args[0], column, DOUBLE, lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call_loop(context, builder, "divide_row", args, emit)

    return types.void(types.int64, types.float64, types.int64), codegen


@intrinsic
def narrow_row(typingctx: Any, like: Any, target: Any, total: Any, columns: Any) -> Any:
    """``target[:columns] = total[:columns]``, each rounded once to the format."""

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        value = _load(builder, types.float64, args[1], column, lanes)
        result = narrow(builder, like, value, lanes)
        _store(builder, result, args[0], column, ELEMENT[like], lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call_loop(context, builder, f"narrow_row.{like}", args[1:], emit)

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
        return _call_loop(context, builder, f"copy_columns.{like}", args[1:], emit)

    integers = [types.int64] * 6
    return types.void(like, *integers), codegen


@intrinsic
def load_number(typingctx: Any, like: Any, address: Any) -> Any:
    """Return the element at an address as float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(builder, like, args[1], ir.Constant(I64, 0), 1)

    return types.float64(like, types.int64), codegen
