"""Intrinsics and number formats: raw memory, conversions, streaming stores, tickets.

All differences between dtypes live in `widen` and `narrow`. Inside kernels the element type names
the format: float32 and float64 are themselves, **uint16 is float16** and **int16 is bfloat16** (bit
patterns: Numba has neither type on the CPU).
"""

from __future__ import annotations

import math
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import config, extending, types
from numba.core import cgutils
from numba.np.arrayobj import populate_array

from numba_embed.runtime import JIT_OPTIONS, jit

intrinsic: Any = extending.intrinsic
overload: Any = extending.overload

LINE = 64
"""Bytes of a cache line, the unit of streaming stores."""


def _has_f16c() -> bool:
    """Whether the target converts half precision in hardware (else LLVM calls a library)."""
    features = config.CPU_FEATURES
    if features is None:
        return bool(llvmlite.binding.get_host_cpu_features().get("f16c", False))
    return "+f16c" in str(features).split(",")


HAS_F16C = _has_f16c()

# --- raw memory -----------------------------------------------------------------------------------


@intrinsic
def array_at(typingctx: Any, address: Any, length: Any, like: Any) -> Any:
    """Return a C-contiguous view of ``length`` elements of the type of ``like`` at an address.

    What `numba.carray` does, without a compilation per call site.
    """
    array = types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(array)(context, builder)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(_data_type(context)))
        populate_array(
            view,
            data=builder.inttoptr(args[0], _data_type(context).as_pointer()),
            shape=(args[1],),
            strides=(itemsize,),
            itemsize=itemsize,
            meminfo=None,
        )
        return view._getvalue()

    def _data_type(context: Any) -> Any:
        return context.get_data_type(array.dtype)

    return array(types.int64, types.int64, like), codegen


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at ``address``, to be read soon. Any address is harmless."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32]),
            "llvm.prefetch.p0" if _opaque_pointers() else "llvm.prefetch.p0i8",
        )
        pointer = builder.inttoptr(args[0], cgutils.voidptr_t)
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _opaque_pointers() -> bool:
    return llvmlite.binding.llvm_version_info[0] >= 15


@intrinsic
def stream_line(typingctx: Any, destination: Any, source: Any) -> Any:
    """Copy a line past the caches, between addresses; ``destination`` is aligned to LINE.

    Weakly ordered: `fence` before another thread may read.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = ir.VectorType(ir.FloatType(), LINE // 4).as_pointer()
        value = builder.load(builder.inttoptr(args[1], line), align=1)
        store = builder.store(value, builder.inttoptr(args[0], line), align=LINE)
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
def take_ticket(typingctx: Any, counters: Any, index: Any) -> Any:
    """Return ``counters[index]`` and add one to it, atomically: the next piece of work."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", builder.gep(data, [args[1]]), one, "monotonic")

    return types.int64(counters, types.int64), codegen


# --- number formats -------------------------------------------------------------------------------

_INTEGER_OF = {types.float32: types.uint32, types.float64: types.uint64}


@intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:
    """Return the bit pattern of a float32 or float64."""
    integer = _INTEGER_OF[value]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(signature.return_type))

    return integer(value), codegen


@intrinsic
def float64_of(typingctx: Any, bits: Any) -> Any:
    """Return the float64 that has this bit pattern."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


@intrinsic
def byteswap(typingctx: Any, value: Any) -> Any:
    """Reverse the bytes of an element of any format."""
    width = {types.float64: 64, types.float32: 32}.get(value, 16)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(width)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(integer, [integer]), f"llvm.bswap.i{width}"
        )
        swapped = builder.call(function, [builder.bitcast(args[0], integer)])
        return builder.bitcast(swapped, context.get_value_type(signature.return_type))

    return value(value), codegen


@intrinsic
def _half_to_float_f16c(typingctx: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@jit
def _half_to_double_integer(bits: Any) -> Any:
    """Convert a float16 pattern without branches, so that the loop around it is vectorised."""
    magnitude = np.uint64(bits) & np.uint64(0x7FFF)
    sign = (np.uint64(bits) & np.uint64(0x8000)) << np.uint64(48)
    normal = (magnitude << np.uint64(42)) + np.uint64((1023 - 15) << 52)
    special = (magnitude << np.uint64(42)) | np.uint64(0x7FF << 52)
    subnormal = bits_of(np.float64(np.int64(magnitude)) * 2.0**-24)
    pattern = normal
    if magnitude < np.uint64(0x0400):
        pattern = subnormal
    if magnitude >= np.uint64(0x7C00):
        pattern = special
    return float64_of(pattern | sign)


def widen(value: Any) -> float:
    """Return an element as float64, exactly. Kernels only: see the overload."""
    raise TypeError("widen is for use inside kernels")


@overload(widen, jit_options=JIT_OPTIONS, strict=False)
def _overload_widen(value: Any) -> Any:
    if value == types.uint16 and HAS_F16C:
        return lambda value: np.float64(_half_to_float_f16c(value))
    if value == types.uint16:
        return lambda value: _half_to_double_integer(value)
    if value == types.int16:  # bfloat16 is the upper half of a float32
        return lambda value: np.float64(_float32_of(np.uint32(np.uint16(value)) << np.uint32(16)))
    return lambda value: np.float64(value)


@intrinsic
def _float32_of(typingctx: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), codegen


@jit
def _round_to_16_bits(value: Any, mantissa: Any, bias: Any) -> Any:
    """Round a float64 once, to nearest even, to a 16-bit format; return its pattern (uint64).

    Integer code without branches: the hardware has no such conversion, and one by way of float32
    would round twice. Below the smallest normal number a float64 addition does the rounding: the
    sum with 2**52 quanta keeps whole quanta only.
    """
    pattern = bits_of(value)
    sign = (pattern >> np.uint64(48)) & np.uint64(0x8000)
    magnitude = pattern & np.uint64(0x7FFF_FFFF_FFFF_FFFF)
    shift = np.uint64(52 - mantissa)
    even = (magnitude >> shift) & np.uint64(1)
    # Numbers below the smallest normal wrap around here; the other branch is selected for them.
    rebased = magnitude - (np.uint64(1023 - bias) << np.uint64(52))
    normal = (rebased + ((np.uint64(1) << (shift - np.uint64(1))) - np.uint64(1)) + even) >> shift
    infinity = np.uint64(0x7FFF) >> np.uint64(mantissa) << np.uint64(mantissa)
    normal = min(normal, infinity)
    quanta = float64_of(np.uint64(1023 + 52 + 1 - bias - mantissa) << np.uint64(52))
    subnormal = bits_of(float64_of(magnitude) + quanta) - bits_of(quanta)
    result = normal
    if magnitude < (np.uint64(1024 - bias) << np.uint64(52)):
        result = subnormal
    result |= sign
    if magnitude > np.uint64(0x7FF << 52):
        result = infinity | (np.uint64(1) << np.uint64(mantissa - 1))
    return result


def narrow(value: float, like: Any) -> Any:
    """Return a float64 rounded once to the format of ``like``; every NaN as one canonical NaN."""
    raise TypeError("narrow is for use inside kernels")


@overload(narrow, jit_options=JIT_OPTIONS, strict=False)
def _overload_narrow(value: Any, like: Any) -> Any:
    if like == types.uint16:
        return lambda value, like: np.uint16(_round_to_16_bits(value, 10, 15))
    if like == types.int16:
        return lambda value, like: np.int16(np.uint16(_round_to_16_bits(value, 7, 127)))
    if like == types.float32:
        return lambda value, like: np.float32(np.nan) if math.isnan(value) else np.float32(value)
    return lambda value, like: np.nan if math.isnan(value) else value
