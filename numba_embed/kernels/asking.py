"""Asking for memory before its turn: the one place that says which cache it is to come to."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from numba_embed.kernels import layout as at
from numba_embed.kernels.bits import I32, target_cpu
from numba_embed.kernels.masked import OPAQUE_POINTERS
from numba_embed.runtime import intrinsic

ONCE, LATER, SOON = 0, 2, 3
"""LLVM's localities: for the first-level cache, past the second; for the second; for the first.

What comes from the second-level cache and is needed within a few rows belongs in the first. Rows of
a gradient, at random places in memory, depend on the processor: see `WAITS_FOR_MANY`.
"""

WAITS_FOR_MANY = target_cpu() in {"znver5"}
"""Whether the first-level cache waits for so many lines at once that rows at random places come to
it as fast as a stream.

Elsewhere reading them takes as long as their latency, and they are asked for into the second-level
cache, which waits for enough (measured on a Zen 4; on a Zen 3 there was no difference). On a Zen 5
that costs two threads a fifth of the bandwidth: two threads read rows of 512 bytes at 25 GB/s by
way of the second level, and at 31 past it, which is what they read of a stream.
"""

ROW = ONCE if WAITS_FOR_MANY else LATER
"""How a row of a gradient, at a random place, is asked for."""


def ask_line(builder: Any, pointer: Any, when: int, write: int = 0) -> None:
    """Emit the request for the line at a pointer, to read it or, with 1, to ``write`` it.

    Any address is harmless.
    """
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, I32, I32, I32]),
        "llvm.prefetch.p0" if OPAQUE_POINTERS else "llvm.prefetch.p0i8",
    )
    builder.call(
        function, [builder.bitcast(pointer, cgutils.voidptr_t), I32(write), I32(when), I32(1)]
    )


def _asks(name: str, when: int) -> Any:
    """Make the intrinsic ``name`` (address, bytes), which asks for all lines of a range."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        step, start = (ir.Constant(args[1].type, value) for value in (at.LINE, 0))
        with cgutils.for_range_slice(builder, start, args[1], step) as (offset, _):
            place = builder.inttoptr(builder.add(args[0], offset), cgutils.voidptr_t)
            ask_line(builder, place, when)
        return context.get_dummy_value()

    def ask(typingctx: Any, address: Any, size: Any) -> Any:
        return types.void(types.int64, types.int64), codegen

    ask.__name__ = name
    return intrinsic(ask)


ask_soon = _asks("ask_soon", SOON)
ask_row = _asks("ask_row", ROW)
"""Ask for the cache lines of so many bytes from an address on; see `SOON` and `ROW`. Any address
is harmless."""


@intrinsic
def ask_to_write(typingctx: Any, address: Any) -> Any:
    """Ask for the line at any address, for this core to write: another core gives up its copy."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ask_line(builder, builder.inttoptr(args[0], cgutils.voidptr_t), SOON, write=1)
        return context.get_dummy_value()

    return types.void(types.int64), codegen
