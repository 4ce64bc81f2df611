"""Sums of the gradient rows of a run of entries, in LLVM: where gathering spends its time.

An entry is a row of the table and a position of the stream in one number; the gradient row of the
entry at an address lies at ``base + (entry & mask) * stride``. Rows are asked for long before their
turn (`ASKS`), by way of the entries further on.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from numba_embed.kernels.bits import (
    DOUBLE,
    ELEMENT,
    HAS_AVX512,
    I64,
    constant,
    lanes_of,
    narrow,
    sum_of_one,
)
from numba_embed.kernels.layout import LINE
from numba_embed.kernels.rows import LANES, ask, call_loop, load, pointer, splat, store
from numba_embed.runtime import intrinsic
from numba_embed.sizing import ask_step

RUN_LANES = (128, 64, 32, LANES, 1) if HAS_AVX512 else (32, LANES, 1)
"""Columns of a run that are summed in registers at a time, while there are so many: at most half of
the registers, of AVX-512's 32 or of 16."""

LONGEST_RUN = (1 << 62) if HAS_AVX512 else 8
"""Most entries of a run that is summed so. Where few columns fit, a long run's rows would be read
in too many parts: they are added to a private buffer instead, two at a time. (In registers, the
workload *w2v* takes 0.8 of the time with AVX-512, *positions* and *hot row* 1.2 to 1.3 without.)"""

ASKS = 2
"""How many times a gradient row is asked for before its turn. A processor that waits for many lines
drops requests for more, and asking again later makes up for it. Three and four times measured no
better on large gradients, and slower where the gradient is in the cache."""


def _entry_row(builder: Any, address: Any, mask: Any, base: Any, stride: Any) -> Any:
    """Return where the row of the entry at an address lies: ``base + (entry & mask) * stride``."""
    entry = builder.load(builder.inttoptr(address, I64.as_pointer()))
    return builder.add(base, builder.mul(builder.and_(entry, mask), stride))


def _further(builder: Any, entry: Any, step: Any, last: Any) -> Any:
    """Return the address of the entry ``step`` bytes further on, or of the last one."""
    further = builder.add(entry, step)
    return builder.select(builder.icmp_unsigned("<", further, last), further, last)


def _adds_entries(name: str, count: int, fresh: bool) -> Any:
    """Make the intrinsic ``name``, which adds the rows of ``count`` entries to a total, in turn.

    The entries lie one after the other at an address. ``fresh``: from +0.0 on, whatever the total
    was. Asks for the rows of the entries ``step`` bytes further on, twice that, ... `ASKS` times.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        like = signature.args[0]
        _, total, entries, mask, base, stride, step, last, columns = args

        def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
            sources, laters, total = args[:count], args[count:-2], args[-2]
            width = min(lanes, LANES)
            for later in laters if lanes >= LANES else ():
                ask(builder, like, later, column)
            for k in range(0, lanes, width):
                part = builder.add(column, ir.Constant(I64, k))
                value = splat(builder, ir.Constant(DOUBLE, 0.0), width)
                if not fresh:
                    value = load(builder, types.float64, total, part, width)
                for source in sources:
                    value = builder.fadd(value, load(builder, like, source, part, width))
                store(builder, value, total, part, DOUBLE, width)

        rows = []
        for ask_number in range(1 + ASKS):
            for k in range(count):
                address = builder.add(entries, ir.Constant(I64, 8 * k))
                for _ in range(ask_number):
                    address = _further(builder, address, step, last)
                rows.append(_entry_row(builder, address, mask, base, stride))
        end = builder.sub(columns, ir.Constant(I64, 1))
        for later in rows[count:]:  # a row that is not aligned reaches into one line more
            ask(builder, like, later, end)
        args = [*rows, total, columns]
        line = LINE * 8 // like.bitwidth  # columns, so that full steps ask for each line once
        steps = tuple(dict.fromkeys((line, LANES, 1)))
        return call_loop(context, builder, f"{name}.{like}", args, emit, steps)

    def adds_entries(
        typingctx: Any, like: Any, total: Any, entries: Any, mask: Any, base: Any, stride: Any,
        step: Any, last: Any, columns: Any,
    ) -> Any:  # fmt: skip
        i64 = types.int64
        return types.void(like, i64, i64, types.uint64, i64, i64, i64, i64, i64), codegen

    adds_entries.__name__ = name
    return intrinsic(adds_entries)


set_entry = _adds_entries("set_entry", 1, True)
add_entry = _adds_entries("add_entry", 1, False)
add_two = _adds_entries("add_two", 2, False)
"""``total[:columns]`` = the row of an entry from +0.0 on; += that row; += the rows of two entries.

Two in one loop load and store the total once, and read in two places at once."""


@intrinsic
def copy_entry(
    typingctx: Any, like: Any, target: Any, entry: Any, mask: Any, base: Any, stride: Any,
    step: Any, last: Any, columns: Any,
) -> Any:  # fmt: skip
    """``target[:columns]`` = the row of one entry, in the same format: `sum_run` of a single one.

    What rounding would give is the element itself, or nearly, so that no number is widened and
    narrowed: that was a quarter of the time of 64 columns of float32 in the cache, and nearly half
    of the workload *rec bfloat16*'s on one thread.
    """
    integer = ir.IntType(like.bitwidth)

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        target, source, *laters, _ = args
        for later in laters if lanes > 1 else ():
            ask(builder, like, later, column)
        bits = builder.load(pointer(builder, source, column, integer, lanes), align=1)
        value = sum_of_one(builder, like, bits, lanes)
        builder.store(value, pointer(builder, target, column, integer, lanes), align=1)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, target, entry, mask, base, stride, step, last, columns = args
        rows = []
        for _ in range(1 + ASKS):
            rows.append(_entry_row(builder, entry, mask, base, stride))
            entry = _further(builder, entry, step, last)
        end = builder.sub(columns, ir.Constant(I64, 1))
        for later in rows[1:]:  # a row that is not aligned reaches into one line more
            ask(builder, like, later, end)
        steps = tuple(dict.fromkeys((LINE * 8 // like.bitwidth, LANES, 1)))
        args = [target, *rows, columns]
        return call_loop(context, builder, f"copy_entry.{like}", args, emit, steps)

    i64 = types.int64
    return types.void(like, i64, i64, types.uint64, i64, i64, i64, i64, i64), codegen


@intrinsic
def sum_run(
    typingctx: Any, like: Any, out_like: Any, target: Any, entries: Any, count: Any, mask: Any,
    base: Any, stride: Any, step: Any, last: Any, columns: Any,
) -> Any:  # fmt: skip
    """``target[:columns]`` = the rows of ``count`` entries, added from +0.0 on and rounded once.

    The entries lie one after the other at an address, at least one of them; an entry's row at
    ``base + (entry & mask) * stride``. Asks for the rows of the entries ``step`` bytes further on,
    twice that, ... `ASKS` times.
    The sums stay in registers, of as many columns at a time as `RUN_LANES` says.
    """

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        target, entries, count, mask, base, stride, step, last, _ = args
        width = min(lanes, LANES)
        # Of a long run what comes next are the same columns of its next rows.
        near = ask_step(lanes * like.bitwidth // 8)
        long = builder.icmp_signed(">", count, ir.Constant(I64, ASKS * near))
        step = builder.select(long, ir.Constant(I64, 8 * near), step)
        # From here on columns are constants: sums of two would not fit the registers.
        size = ir.Constant(I64, like.bitwidth // 8)
        base = builder.add(base, builder.mul(column, size))
        parts = [ir.Constant(I64, k) for k in range(0, lanes, width)]
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
            further = _further(builder, further, step, last)
        source, laters = rows[0], rows[1:]
        # A row that is not aligned reaches into one line more, which its last column names.
        for k in sorted({*range(0, lanes, LINE * 8 // like.bitwidth), lanes - 1}):
            for later in laters:
                ask(builder, like, later, ir.Constant(I64, k))
        added = []
        for total, part in zip(sums, parts, strict=True):
            total.add_incoming(constant(DOUBLE, 0.0, width), before)
            value = builder.fadd(total, load(builder, like, source, part, width))
            total.add_incoming(value, body)
            added.append(value)
        following = builder.add(place, ir.Constant(I64, 8))
        place.add_incoming(following, body)
        builder.cbranch(builder.icmp_unsigned("<", following, end), body, after)
        builder.position_at_end(after)
        for total, part in zip(added, parts, strict=True):
            result = narrow(builder, out_like, total, width)
            there = builder.add(column, part)
            store(builder, result, target, there, ELEMENT[out_like], width)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = f"sum_run.{like}.{out_like}"
        return call_loop(context, builder, name, args[2:], emit, RUN_LANES)

    i64 = types.int64
    integers = [types.uint64, *[i64] * 5]
    return types.void(like, out_like, i64, i64, i64, *integers), codegen
