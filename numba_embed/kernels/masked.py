"""Loads and stores of the first lanes of a vector, in LLVM: for columns that fill no whole one.

Memory beyond those lanes is neither read nor written. With AVX-512 each is one instruction;
elsewhere LLVM makes branches of it.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir

from numba_embed.kernels.bits import I32, I64

OPAQUE_POINTERS = llvmlite.binding.llvm_version_info[0] >= 15

_SHORT = {"half": "f16", "float": "f32", "double": "f64"}


def first_lanes(builder: Any, count: Any, lanes: int) -> Any:
    """Return a mask: true in so many of the first lanes."""
    vector = ir.VectorType(I64, lanes)
    numbers = ir.Constant(vector, [I64(lane) for lane in range(lanes)])
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), count, I32(0))
    same = ir.Constant(ir.VectorType(I32, lanes), [I32(0)] * lanes)
    every = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), same)
    return builder.icmp_signed("<", numbers, every)


def load_lanes(builder: Any, place: Any, mask: Any, vector: Any) -> Any:
    """Load the lanes of a mask, at any alignment; the others become zero."""
    zero = ir.Constant(vector, [ir.Constant(vector.element, 0)] * vector.count)
    arguments = [place, I32(1), mask, zero]
    return builder.call(_intrinsic(builder, "load", vector, vector, arguments), arguments)


def store_lanes(builder: Any, value: Any, place: Any, mask: Any) -> None:
    """Store the lanes of a mask, at any alignment."""
    arguments = [value, place, I32(1), mask]
    builder.call(_intrinsic(builder, "store", value.type, ir.VoidType(), arguments), arguments)


def _intrinsic(builder: Any, what: str, vector: Any, result: Any, arguments: Any) -> Any:
    scalar = str(vector.element)
    name = f"v{vector.count}{_SHORT.get(scalar, scalar)}"
    pointed = "p0" if OPAQUE_POINTERS else f"p0{name}"
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.module.declare_intrinsic(f"llvm.masked.{what}.{name}.{pointed}", fnty=signature)
