"""Kernels as sequences of phases, and the one parallel loop that runs them all.

A phase is a device function ``work(thread, call_address, *likes)``, which does one thread's part.
Each is compiled once per number formats, to a C function ``(thread, call_address)``; the loop calls
it by its address. So the loop, which takes long to compile when parallel, is compiled once for all
kernels and formats, and serial and parallel runs share all other code.
"""

from __future__ import annotations

import types as python_types
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import prange, types

from numba_embed.kernels.memory import call_at, plan_at, words
from numba_embed.runtime import Launcher, compile_callback, intrinsic, jit, launch

STOP, RUN, SKIP = -1, 0, 1
"""What a step before a phase may answer: end here, run the phase, or go on with the next one; in
place of 1 any number of phases to leave out."""

_WORDS = 2  # of a phase in a program: the address of the step before it, or 0, and of its work


@intrinsic
def _call_work(typingctx: Any, function: Any, thread: Any, call_address: Any) -> Any:
    """Call the C function at an address: void (thread, call_address)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [i64, i64]).as_pointer()
        builder.call(builder.inttoptr(args[0], kind), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def _call_before(typingctx: Any, function: Any, call_address: Any) -> Any:
    """Call the C function at an address: int64 (call_address)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
        kind = ir.FunctionType(i64, [i64]).as_pointer()
        return builder.call(builder.inttoptr(args[0], kind), args[1:])

    return types.int64(types.int64, types.int64), codegen


@jit
def _memory_of(array: int, offset: int) -> int:
    """Return the address of an array's data; the array is named as `pointer` in `execute` does."""
    return words(array + offset)[0] if offset != 0 else array


@jit
def _set_operands(call_address: int, indices: int, grad: int, out: int) -> None:
    """Say in the call record where the operands lie, where they are given."""
    call = call_at(call_address)
    if indices != 0:
        call.indices = _memory_of(indices, call.object_offset)
    if grad != 0:
        call.grad = _memory_of(grad, call.object_offset)
    if out != 0:
        call.out = _memory_of(out, call.object_offset)


@jit
def _before(program: int, phase: int, call_address: int) -> int:
    """Prepare a phase: start the tickets again, and do the step before it. Returns its answer."""
    call = call_at(call_address)
    words(call.workspace + plan_at(call.plan).tickets)[0] = 0
    step = words(program + phase * _WORDS * 8)[0]
    if step == 0:
        return RUN
    return _call_before(step, call_address)


@jit
def _work(program: int, phase: int, thread: int, call_address: int) -> None:
    """Do one thread's part of a phase."""
    _call_work(words(program + phase * _WORDS * 8)[1], thread, call_address)


@Launcher
def run_phases(
    program: int, phases: int, threads: int, call_address: int, indices: int, grad: int, out: int
) -> None:
    """Run the phases of a program one after the other, each in ``threads`` pieces.

    ``indices``, ``grad`` and ``out`` name arrays; 0 leaves what the call record says.
    """
    _set_operands(call_address, indices, grad, out)
    phase = np.int64(0)
    while phase < phases:
        answer = _before(program, phase, call_address)
        if answer == STOP:
            break
        if answer == RUN:
            for thread in prange(threads):
                _work(program, phase, np.int64(thread), call_address)
        phase += max(answer, SKIP)


class Phase(NamedTuple):
    """One phase of a kernel.

    Attributes
    ----------
    work
        Device function ``(thread, call_address, *likes)``.
    likes
        Which of the kernel's number formats it takes, in order: "index", "row", "grad", "out".
    before
        Device function ``(call_address) -> STOP, RUN, or a multiple of SKIP``, run on one thread
        beforehand.
    """

    work: Any
    likes: tuple[str, ...] = ()
    before: Any = None


class Program(NamedTuple):
    """A kernel compiled for some formats.

    Attributes
    ----------
    address, phases
        Of the table of addresses that `run_phases` follows, and its length.
    kept
        What must stay alive for as long as the addresses are used.
    """

    address: int
    phases: int
    kept: Any

    def launch(
        self, threads: int, call_address: int, indices: int = 0, grad: int = 0, out: int = 0
    ) -> None:
        """Run the phases, in parallel where that is safe. For operands see `run_phases`."""
        operands = indices, grad, out
        launch(run_phases, threads, self.address, self.phases, threads, call_address, *operands)


class Kernel:
    """A sequence of phases, compiled per number formats when first needed.

    Parameters
    ----------
    *phases
        Run one after the other.
    """

    def __init__(self, *phases: Phase) -> None:
        self._phases = phases

    def program(self, likes: dict[str, Any]) -> Program:
        """Return the kernel compiled for these number formats, by the names that phases use."""
        addresses: list[int] = []
        kept: list[Any] = []
        for phase in self._phases:
            before = _compiled(phase.before, types.int64(types.int64), _before_shape)
            names = tuple(likes[name] for name in phase.likes)
            work = _compiled(phase.work, _WORK, _WORK_SHAPES[len(names)], names)
            addresses += [0 if before is None else before.address, work.address]
            kept += [before, work]
        table = np.array(addresses, np.int64)
        return Program(table.ctypes.data, len(self._phases), (table, kept))


# What is compiled is a copy of one of these functions whose globals are the device function and the
# formats: constants, so that all phases have the same C signature. Closures would do, but for
# Numba's cache, which keys them by what they hold.

_WORK = types.void(types.int64, types.int64)
device: Any = None
first: Any = None
second: Any = None


def _before_shape(call_address: Any) -> Any:
    return device(call_address)


def _shape_0(thread: Any, call_address: Any) -> Any:
    device(thread, call_address)


def _shape_1(thread: Any, call_address: Any) -> Any:
    device(thread, call_address, first)


def _shape_2(thread: Any, call_address: Any) -> Any:
    device(thread, call_address, first, second)


_WORK_SHAPES = (_shape_0, _shape_1, _shape_2)
_callbacks: dict[str, Any] = {}


def _compiled(device: Any, signature: Any, shape: Any, likes: tuple[Any, ...] = ()) -> Any:
    """Return the C function of a device function for these formats, compiled once per process."""
    if device is None:
        return None
    name = "_".join([device.__name__, *(like.dtype.name for like in likes)])
    if name not in _callbacks:
        names = {"device": device, **dict(zip(("first", "second"), likes, strict=False))}
        function = python_types.FunctionType(shape.__code__, {**globals(), **names}, name)
        _callbacks[name] = compile_callback(function, signature)
    return _callbacks[name]
