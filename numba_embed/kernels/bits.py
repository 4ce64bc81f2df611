"""Number formats in LLVM: widening to float64 and rounding back, one element or eight at a time.

All differences between dtypes live in `widen` and `narrow`. Inside kernels the element type names
the format: float32 and float64 are themselves, **uint16 is float16** and **int16 is bfloat16** (bit
patterns: Numba has neither type on the CPU).

The code is written for LLVM directly, for a scalar or a vector of lanes alike: Numba offers no
vectors, and compiling these loops from Python costs seconds.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config, types
from numba.core.codegen import get_host_cpu_features

I16, I32, I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()

ELEMENT = {types.uint16: I16, types.int16: I16, types.float32: FLOAT, types.float64: DOUBLE}
"""How an element of each format lies in memory."""

SIXTEEN_BITS = {types.uint16: (10, 15), types.int16: (7, 127)}
"""Mantissa bits and exponent bias of the formats that the hardware does not round to."""

DOUBLE_BIAS, DOUBLE_MANTISSA = 1023, 52

MANTISSA = {types.float32: 23, types.float64: DOUBLE_MANTISSA} | {
    element: mantissa for element, (mantissa, _) in SIXTEEN_BITS.items()
}
"""Mantissa bits of every format."""


def target_cpu() -> str:
    """Return the CPU that Numba compiles for, by LLVM's name."""
    return str(config.CPU_NAME or llvm.get_host_cpu_name())


def target_features() -> set[str]:
    """Return the features of the CPU that Numba compiles for, by LLVM's names."""
    # Not all that LLVM finds on this one: Numba leaves AVX out where it is told to.
    features = config.CPU_FEATURES
    features = get_host_cpu_features() if features is None else str(features)
    return {name[1:] for name in features.split(",") if name.startswith("+")}


HAS_F16C = "f16c" in target_features()
"""Whether the target converts half precision in hardware; else LLVM calls a library."""

HAS_AVX512 = target_features() >= {"avx512f", "avx512vl", "avx512bw"}
"""Whether it has 32 registers of eight float64, and masks for elements of all formats."""


def lanes_of(scalar: Any, lanes: int) -> Any:
    """Return the type of ``lanes`` numbers of a scalar type."""
    return scalar if lanes == 1 else ir.VectorType(scalar, lanes)


def constant(scalar: Any, value: Any, lanes: int) -> Any:
    """Return a constant in every lane."""
    if lanes == 1:
        return ir.Constant(scalar, value)
    return ir.Constant(lanes_of(scalar, lanes), [ir.Constant(scalar, value)] * lanes)


def widen(builder: Any, element: Any, value: Any, lanes: int) -> Any:
    """Emit the exact conversion of elements of a format to float64."""
    if element == types.float64:
        return value
    double = lanes_of(DOUBLE, lanes)
    if element == types.float32:
        return builder.fpext(value, double)
    if element == types.int16:  # bfloat16 is the upper half of a float32
        upper = builder.shl(builder.zext(value, lanes_of(I32, lanes)), constant(I32, 16, lanes))
        return builder.fpext(builder.bitcast(upper, lanes_of(FLOAT, lanes)), double)
    if HAS_F16C:
        half = builder.bitcast(value, lanes_of(HALF, lanes))
        return builder.fpext(builder.fpext(half, lanes_of(FLOAT, lanes)), double)
    return _widen_half(builder, value, lanes)


def _widen_half(builder: Any, value: Any, lanes: int) -> Any:
    """Emit float16 -> float64 in integer code, by selection instead of branches."""

    def number(bits: int) -> Any:
        return constant(I64, bits, lanes)

    double = lanes_of(DOUBLE, lanes)
    bits = builder.zext(value, lanes_of(I64, lanes))
    magnitude = builder.and_(bits, number(0x7FFF))
    sign = builder.shl(builder.and_(bits, number(0x8000)), number(48))
    shifted = builder.shl(magnitude, number(42))
    normal = builder.add(shifted, number((DOUBLE_BIAS - 15) << DOUBLE_MANTISSA))
    special = builder.or_(shifted, number(0x7FF << DOUBLE_MANTISSA))
    quanta = builder.fmul(builder.sitofp(magnitude, double), constant(DOUBLE, 2.0**-24, lanes))
    subnormal = builder.bitcast(quanta, lanes_of(I64, lanes))
    small = builder.icmp_unsigned("<", magnitude, number(0x0400))
    large = builder.icmp_unsigned(">=", magnitude, number(0x7C00))
    result = builder.select(small, subnormal, builder.select(large, special, normal))
    return builder.bitcast(builder.or_(result, sign), double)


def narrow(builder: Any, element: Any, value: Any, lanes: int) -> Any:
    """Emit the conversion of float64 to a format: one rounding, to nearest even.

    Every NaN becomes one canonical quiet NaN.
    """
    if element == types.uint16 and HAS_F16C:
        return _narrow_to_half(builder, value, lanes)
    if element == types.int16:
        return _narrow_to_bfloat(builder, value, lanes)
    nan = builder.fcmp_unordered("uno", value, value)
    if element in SIXTEEN_BITS:
        return _narrow_to_16_bits(builder, element, value, nan, lanes)
    if element == types.float32:
        value = builder.fptrunc(value, lanes_of(FLOAT, lanes))
    return builder.select(nan, constant(ELEMENT[element], float("nan"), lanes), value)


def sum_of_one(builder: Any, element: Any, bits: Any, lanes: int) -> Any:
    """Emit ``narrow(+0.0 + widen(elements))`` on the elements' bits, as integers.

    That is each as it is, but that -0.0 becomes +0.0 and every NaN the canonical one.
    """

    def number(bits: int) -> Any:
        return constant(ir.IntType(element.bitwidth), bits, lanes)

    half = 1 << (element.bitwidth - 1)
    mantissa = MANTISSA[element]
    infinity = half - (1 << mantissa)
    magnitude = builder.and_(bits, number(half - 1))
    nan = builder.icmp_signed(">", magnitude, number(infinity))
    zero = builder.icmp_unsigned("==", magnitude, number(0))
    quiet = number(infinity | (1 << (mantissa - 1)))
    return builder.select(nan, quiet, builder.select(zero, magnitude, bits))


def _narrow_to_odd(builder: Any, value: Any, lanes: int) -> Any:
    """Emit float64 -> float32, inexact results rounded to the neighbour with an odd last bit.

    A second rounding, to a format shorter by two bits or more, then gives what one rounding gives:
    the odd bit says that something lies beyond. Not so where float32 is subnormal.
    """

    def number(bits: int) -> Any:
        return constant(I64, bits, lanes)

    lost = (1 << 29) - 1
    bits = builder.bitcast(value, lanes_of(I64, lanes))
    carried = builder.add(builder.and_(bits, number(lost)), number(lost))
    odd = builder.and_(builder.or_(bits, carried), number(~lost))
    return builder.fptrunc(builder.bitcast(odd, lanes_of(DOUBLE, lanes)), lanes_of(FLOAT, lanes))


def _narrow_to_half(builder: Any, value: Any, lanes: int) -> Any:
    """Emit the rounding of float64 to float16 by the hardware's float32 -> float16."""

    def number(bits: int) -> Any:
        return constant(I16, bits, lanes)

    odd = _narrow_to_odd(builder, value, lanes)  # subnormals of float32 are far below those here
    half = builder.bitcast(builder.fptrunc(odd, lanes_of(HALF, lanes)), lanes_of(I16, lanes))
    nan = builder.icmp_signed(">", builder.and_(half, number(0x7FFF)), number(0x7C00))
    return builder.select(nan, number(0x7E00), half)


def _narrow_to_bfloat(builder: Any, value: Any, lanes: int) -> Any:
    """Emit the rounding of float64 to bfloat16, the upper half of a float32."""

    def number(bits: int) -> Any:
        return constant(I32, bits, lanes)

    bits = builder.bitcast(_narrow_to_odd(builder, value, lanes), lanes_of(I32, lanes))
    magnitude = builder.and_(bits, number(0x7FFFFFFF))
    last = builder.and_(builder.lshr(bits, number(16)), number(1))
    rounded = builder.lshr(builder.add(builder.add(bits, number(0x7FFF)), last), number(16))
    nan = builder.icmp_signed(">", magnitude, number(0x7F800000))
    quick = builder.trunc(builder.select(nan, number(0x7FC0), rounded), lanes_of(I16, lanes))
    # Subnormal numbers, and zero, which is right either way: seldom worth the long way.
    small = builder.fcmp_ordered(
        "<",
        builder.bitcast(magnitude, lanes_of(FLOAT, lanes)),
        constant(FLOAT, 2.0**-126, lanes),
    )
    tiny = builder.and_(small, builder.fcmp_ordered("one", value, constant(DOUBLE, 0.0, lanes)))
    if lanes > 1:
        tiny = builder.icmp_unsigned(
            "!=", builder.bitcast(tiny, ir.IntType(lanes)), ir.IntType(lanes)(0)
        )
    before = builder.block
    with builder.if_then(tiny, likely=False):
        unordered = builder.fcmp_unordered("uno", value, value)
        slow = _narrow_to_16_bits(builder, types.int16, value, unordered, lanes)
        inside = builder.block
    result = builder.phi(lanes_of(I16, lanes))
    result.add_incoming(quick, before)
    result.add_incoming(slow, inside)
    return result


def _narrow_to_16_bits(builder: Any, element: Any, value: Any, nan: Any, lanes: int) -> Any:
    """Emit the rounding of float64 to a 16-bit format, in integer code, by selection.

    By way of float32, if not by `_narrow_to_odd`, it would be rounded twice. Below the
    smallest normal number a float64 addition does the rounding: the sum with 2**52 quanta of the
    format keeps whole quanta only.
    """
    mantissa, bias = SIXTEEN_BITS[element]
    shift = DOUBLE_MANTISSA - mantissa
    infinity = (1 << 15) - (1 << mantissa)

    def number(bits: int) -> Any:
        return constant(I64, bits, lanes)

    integers, doubles = lanes_of(I64, lanes), lanes_of(DOUBLE, lanes)
    bits = builder.bitcast(value, integers)
    sign = builder.and_(builder.lshr(bits, number(48)), number(0x8000))
    magnitude = builder.and_(bits, number((1 << 63) - 1))

    # Normal numbers: round the mantissa to even, then move the exponent to the format's bias. A
    # carry out of the mantissa is right as it is; what overflows becomes infinity.
    even = builder.and_(builder.lshr(magnitude, number(shift)), number(1))
    rounded = builder.add(builder.add(magnitude, number((1 << (shift - 1)) - 1)), even)
    rebased = builder.sub(rounded, number((DOUBLE_BIAS - bias) << DOUBLE_MANTISSA))
    normal = builder.lshr(rebased, number(shift))
    over = builder.icmp_signed(">", normal, number(infinity))
    normal = builder.select(over, number(infinity), normal)

    quanta = number((DOUBLE_BIAS + DOUBLE_MANTISSA + 1 - bias - mantissa) << DOUBLE_MANTISSA)
    total = builder.fadd(builder.bitcast(magnitude, doubles), builder.bitcast(quanta, doubles))
    subnormal = builder.sub(builder.bitcast(total, integers), quanta)
    smallest_normal = number((DOUBLE_BIAS + 1 - bias) << DOUBLE_MANTISSA)
    small = builder.icmp_signed("<", magnitude, smallest_normal)
    result = builder.or_(builder.select(small, subnormal, normal), sign)
    result = builder.select(nan, number(infinity | (1 << (mantissa - 1))), result)
    return builder.trunc(result, lanes_of(I16, lanes))
