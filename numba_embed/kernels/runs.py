"""Sums of the gradient rows of a run of entries, in LLVM: where gathering spends its time.

An entry is a row of the table and a position of the stream in one number; the gradient row of the
entry at an address lies at ``base + (entry & mask) * stride``. Rows are asked for long before their
turn (`ASKS`), by way of the entries further on.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from numba_embed.kernels.asking import LATER, ROW
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
from numba_embed.kernels.layout import LINE, ask_step
from numba_embed.kernels.masked import first_lanes
from numba_embed.kernels.rows import LANES, ask, call_loop, load, pointer, splat, store
from numba_embed.runtime import intrinsic

SHORT_RUN = 8
"""Most entries of a short run: its rows stay in the first-level cache from some columns to the
next, so that few columns at a time will do, and few requests at a time for later rows. Fewer than
any ``cut``."""

LONG_RUNS = HAS_AVX512
"""Whether longer runs are summed in registers, too, and not in memory, two entries at a time.
(*w2v* on two threads takes 0.8 to 0.9 of the time with AVX-512, on one 1.0 to 1.1; *positions* and
*hot row* take 1.2 to 1.3 without.)"""

SHORT_LANES, SHORT_TAILS = ((32,), (LANES, 32)) if HAS_AVX512 else ((32, LANES, 1), ())
LONG_LANES, LONG_TAILS = (128,), (LANES, 32, 64, 96, 128)
"""Columns of a run that are summed in registers at a time; see `call_loop`. The rows of a long run
are read again for each step, so that one does where it can: half of AVX-512's 32 registers."""

SHORT_ASKS, LONG_ASKS = (ROW, ROW), (ROW, LATER)
"""How a gradient row is asked for before its turn, the nearest request first; see `asking`. A
processor that waits for many lines drops requests for more, and asking again makes up for it. Three
and four times measured no better on large gradients, and slower where the gradient is in the cache.
The columns of a long run may lie a power of two apart (*positions*): then few of their rows have
room in the first-level cache, and the earlier request brings them no nearer than the second level.
"""

ASKS = len(SHORT_ASKS)
"""How many times a gradient row is asked for before its turn."""


def _entry_row(builder: Any, address: Any, mask: Any, base: Any, stride: Any) -> Any:
    """Return where the row of the entry at an address lies: ``base + (entry & mask) * stride``."""
    entry = builder.load(builder.inttoptr(address, I64.as_pointer()))
    return builder.add(base, builder.mul(builder.and_(entry, mask), stride))


def _further(builder: Any, entry: Any, step: Any, last: Any = None) -> Any:
    """Return the address of the entry ``step`` bytes further on, or of the last one if given."""
    further = builder.add(entry, step)
    if last is None:
        return further
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
    step: Any, columns: Any,
) -> Any:  # fmt: skip
    """``target[:columns]`` = the row of one entry, in the same format: the sum of a single one.

    What rounding would give is the element itself, or nearly, so that no number is widened and
    narrowed: that was a quarter of the time of 64 columns of float32 in the cache, and nearly half
    of the workload *rec bfloat16*'s on one thread.
    """
    integer = ir.IntType(like.bitwidth)

    def emit(builder: Any, args: Any, column: Any, lanes: int) -> None:
        target, source, *laters, _ = args
        for later, when in zip(laters, SHORT_ASKS, strict=True) if lanes > 1 else ():
            ask(builder, like, later, column, when)
        bits = builder.load(pointer(builder, source, column, integer, lanes), align=1)
        value = sum_of_one(builder, like, bits, lanes)
        builder.store(value, pointer(builder, target, column, integer, lanes), align=1)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, target, entry, mask, base, stride, step, columns = args
        rows = []
        for _ in range(1 + ASKS):
            rows.append(_entry_row(builder, entry, mask, base, stride))
            entry = _further(builder, entry, step)
        end = builder.sub(columns, ir.Constant(I64, 1))
        for later, when in zip(rows[1:], SHORT_ASKS, strict=True):
            ask(builder, like, later, end, when)  # one line more of a row that is not aligned
        steps = tuple(dict.fromkeys((LINE * 8 // like.bitwidth, LANES, 1)))
        args = [target, *rows, columns]
        return call_loop(context, builder, f"copy_entry.{like}", args, emit, steps)

    i64 = types.int64
    return types.void(like, i64, i64, types.uint64, i64, i64, i64, i64), codegen


def _sums_run(name: str, long: bool) -> Any:
    """Make the intrinsic ``name``: ``target[:columns]`` = the sum of a run's rows, rounded once.

    It takes the addresses of the target and of the first of ``count`` entries, at least one. They
    lie one after the other; their rows are added from +0.0 on, in registers, some columns at a
    time. Asks for the rows of the entries ``step`` bytes further on, twice that, ... `ASKS` times;
    for a long run no further than ``last``. (For a short one the caller sees to that: 0.04 of the
    time where rows are few.)
    """
    steps, tails = (LONG_LANES, LONG_TAILS) if long else (SHORT_LANES, SHORT_TAILS)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        like, out_like = signature.args[:2]

        def emit(builder: Any, args: Any, column: Any, lanes: int, rest: Any = None) -> None:
            target, entries, count, mask, base, stride, step, last, columns = args
            width = min(lanes, LANES)
            parts = [ir.Constant(I64, k) for k in range(0, lanes, width)]
            asked = [ir.Constant(I64, k) for k in range(0, lanes, LINE * 8 // like.bitwidth)]
            if lanes > 1:  # a row that is not aligned reaches into one line more
                asked.append(ir.Constant(I64, lanes - 1))
            here = None
            if rest is not None:
                final = builder.sub(rest, ir.Constant(I64, 1))
                asked = [_least(builder, k, final) for k in asked]
                fewer = max([0, *(tail for tail in tails if tail < lanes)])
                parts, here = _tail(builder, columns, rest, lanes, fewer)
            if long:  # what comes next are the same columns of the run's next rows
                near = ask_step(lanes * like.bitwidth // 8)
                longer = builder.icmp_signed(">", count, ir.Constant(I64, ASKS * near))
                step = builder.select(longer, ir.Constant(I64, 8 * near), step)
            # Within a row, columns are constants: addresses of their own would take registers.
            size = ir.Constant(I64, like.bitwidth // 8)
            base = builder.add(base, builder.mul(column, size))
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
                further = _further(builder, further, step, last if long else None)
            source, laters = rows[0], rows[1:]
            for k in asked:
                for later, when in zip(laters, LONG_ASKS if long else SHORT_ASKS, strict=True):
                    ask(builder, like, later, k, when)
            added = []
            for total, part in zip(sums, parts, strict=True):
                total.add_incoming(constant(DOUBLE, 0.0, width), before)
                row = load(builder, like, source, part, width, here)
                added.append(builder.fadd(total, row))
                total.add_incoming(added[-1], body)
            following = builder.add(place, ir.Constant(I64, 8))
            place.add_incoming(following, body)
            builder.cbranch(builder.icmp_unsigned("<", following, end), body, after)
            builder.position_at_end(after)
            for total, part in zip(added, parts, strict=True):
                result = narrow(builder, out_like, total, width)
                there = builder.add(column, part)
                store(builder, result, target, there, ELEMENT[out_like], width, here)

        return call_loop(
            context, builder, f"{name}.{like}.{out_like}", args[2:], emit, steps, tails
        )

    def sums_run(
        typingctx: Any, like: Any, out_like: Any, target: Any, entries: Any, count: Any,
        mask: Any, base: Any, stride: Any, step: Any, last: Any, columns: Any,
    ) -> Any:  # fmt: skip
        i64 = types.int64
        integers = [types.uint64, *[i64] * 5]
        return types.void(like, out_like, i64, i64, i64, *integers), codegen

    sums_run.__name__ = name
    return intrinsic(sums_run)


def _least(builder: Any, one: Any, other: Any) -> Any:
    """Return the lesser of two numbers."""
    return builder.select(builder.icmp_signed("<", one, other), one, other)


def _tail(builder: Any, columns: Any, rest: Any, lanes: int, fewer: int) -> tuple[list[Any], Any]:
    """Return where the vectors of a tail begin, and the mask of their columns, for rest > fewer.

    None reaches beyond the row: even a masked one would wait for a line that nobody asked for.
    What would, ends with the row instead, and gives columns before the same bits once more. Only a
    row that is less than a vector is masked.
    """
    begin = builder.sub(rest, I64(LANES))
    if lanes > LANES:
        parts = [ir.Constant(I64, k) for k in range(0, lanes, LANES)]
        for number in range(fewer // LANES, len(parts)):
            parts[number] = _least(builder, parts[number], begin)
        return parts, None
    small = builder.icmp_signed("<", columns, I64(LANES))
    there = first_lanes(builder, builder.select(small, rest, I64(LANES)), LANES)
    return [builder.select(small, I64(0), begin)], there


sum_short_run, sum_long_run = _sums_run("sum_short_run", False), _sums_run("sum_long_run", True)
"""Sums of a run of up to `SHORT_RUN` entries, and of a longer one where there are `LONG_RUNS`."""
