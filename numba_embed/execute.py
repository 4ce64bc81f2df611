"""Phase two: run a plan on checked arrays, in a workspace."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from numba_embed.address import OBJECT_OFFSET, address_of
from numba_embed.formats import Format
from numba_embed.kernels.count import NONE_BAD, count, count_per_core
from numba_embed.kernels.gather import gather, gather_hot
from numba_embed.kernels.layout import CALL, call_word
from numba_embed.kernels.phases import Kernel, Program
from numba_embed.kernels.tables import tables
from numba_embed.plan import ALIGNMENT, BackwardPlan
from numba_embed.sizing import fresh_pieces
from numba_embed.validation import bad_index
from numba_embed.workspace import RunReport

WORKSPACE, GRAD, OUT = map(call_word, ("workspace", "grad", "out"))
ACCUMULATE, ZEROED, STREAMING = map(call_word, ("accumulate", "zeroed", "streaming"))
PIECES = call_word("pieces")
COUNTING, BAD, MORE = map(call_word, ("counting", "bad", "more"))
MAP, WEIGHTS, PLAIN = map(call_word, ("position_map", "position_weights", "plain"))

pointer = id if OBJECT_OFFSET else address_of
"""How a launch names an array; see `numba_embed.kernels.layout`."""

SPARE_BYTES = 1 << 16
"""Scratch memory up to this size stays with its plan: making it takes a tenth of a small call."""

Array = npt.NDArray[Any]

Kernels = dict[tuple[str, str], Kernel]

_KERNELS: Kernels = {
    ("whole", "tables"): tables,
    ("whole", "gather"): gather,
    ("whole", "gather_hot"): gather_hot,
    ("count", "gather"): count,
    ("count", "gather_hot"): count,
}
"""What to launch for a part of a run, by the plan's algorithm."""

_NO_INDEX = np.int64(0)
INDEX_LIKE: dict[np.dtype[Any], np.generic] = {
    np.dtype(np.int32): np.int32(0),
    np.dtype(np.int64): np.int64(0),
    # An unsigned index above 2**63 - 1 reads as a negative one, which is out of range as well.
    np.dtype(np.uint64): np.int64(0),
    np.dtype(np.float64): np.float64(0),
}


def execute(
    plan: BackwardPlan,
    grad: Array,
    indices: Array,
    out: Array | None,
    accumulate: bool,
    scratch: npt.NDArray[np.uint8] | None,
    report: RunReport | None = None,
    *,
    dtype: npt.DTypeLike | None = None,
    position_map: npt.NDArray[np.int64] | None = None,
    position_weights: npt.NDArray[np.float64] | None = None,
) -> Array:
    """Check and count the indices, then sum.

    All other checks have passed. ``scratch`` has ``plan.workspace_nbytes`` bytes at any address, or
    is None: then it is allocated, and kept for the plan's next run where it is small. Returns
    ``out``, or a fresh array. Nothing is written to ``out`` before the last index has been checked.
    ``dtype`` is that of a fresh array: the output format's, or another of its size. With a map,
    position i takes row ``position_map[i]`` of grad, which then has any number of rows; with
    weights the row is multiplied by ``position_weights[i]``. Both are contiguous, of shape (N,).

    Raises
    ------
    EmbedIndexError, EmbedValueError
        For the first bad index in C order.
    """
    spare = take_spare(plan) if scratch is None else Spare.of(plan, scratch)
    call, address, memory = spare
    index_like, source = _index_operand(plan, indices, memory)
    zeroed = out is None and plan.fresh_zeroed
    if out is None:
        make = np.zeros if zeroed else np.empty
        out = make(plan.out_shape, plan.out_dtype if dtype is None else dtype)
    _describe(plan, call, grad, out)
    if zeroed or accumulate or plan.scale_grad_by_freq or report is not None:
        call[ZEROED], call[ACCUMULATE], call[COUNTING] = zeroed, accumulate, True
    if zeroed:
        call[STREAMING] = 0  # the system has just zeroed the pages: their lines lie in the caches
        call[PIECES] = fresh_pieces(plan.threads, address_of(out), plan.out_nbytes)
    if position_map is not None:
        call[MAP], call[PLAIN] = address_of(position_map), 0
    if position_weights is not None:
        call[WEIGHTS], call[PLAIN] = address_of(position_weights), 0

    writes = out.size > 0 and not (accumulate and plan.num_positions == 0)
    part = "whole" if writes else "count"
    _run(plan, part, address, index_like, _KERNELS, pointer(source), pointer(grad), pointer(out))
    if call[BAD] != NONE_BAD:
        raise bad_index(indices, int(call[BAD]), plan.num_weights)
    if report is not None:
        _fill(report, plan, address)
    if scratch is None and memory.size <= SPARE_BYTES and not plan.spares:
        plan.spares.append(spare)
    return out


def run_counted(
    plan: BackwardPlan,
    indices: Array,
    scratch: npt.NDArray[np.uint8],
    kernels: Kernels,
    more: int,
) -> npt.NDArray[np.int64]:
    """Run the part "count" of ``kernels``, which need the record at the address ``more``.

    Returns the call record, for `run_sum`.

    Raises
    ------
    EmbedIndexError, EmbedValueError
        For the first bad index in C order.
    """
    call, address, _ = Spare.of(plan, scratch)
    index_like, source = _index_operand(plan, indices, scratch)
    call[MORE] = more
    _run(plan, "count", address, index_like, kernels, pointer(source))
    if call[BAD] != NONE_BAD:
        raise bad_index(indices, int(call[BAD]), plan.num_weights)
    return call


def run_sum(
    plan: BackwardPlan, grad: Array, out: Array, call: npt.NDArray[np.int64], kernels: Kernels
) -> None:
    """Run the part "sum" of ``kernels`` on what `run_counted` left, into ``out``."""
    _describe(plan, call, grad, out)
    _run(plan, "sum", address_of(call), _NO_INDEX, kernels, 0, pointer(grad), pointer(out))


def _describe(plan: BackwardPlan, call: npt.NDArray[np.int64], grad: Array, out: Array) -> None:
    """Say in the call record how grad and out lie in memory."""
    if not (grad.flags.c_contiguous and grad.dtype.isnative):
        describe_grad(call, grad, plan.grad_format)
    if not (out.flags.c_contiguous and out.dtype.isnative):
        describe_out(call, out, plan.out_format)
    if plan.streaming and address_of(out) % plan.out_format.itemsize:
        call[STREAMING] = 0  # elements that straddle lines cannot be gathered to whole lines


class Spare(NamedTuple):
    """A call record, its address, and the scratch memory that it works in."""

    call: npt.NDArray[np.int64]
    address: int
    scratch: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, plan: BackwardPlan, scratch: npt.NDArray[np.uint8]) -> Spare:
        """Return a fresh record with this memory."""
        call = plan.call_template.copy()
        start = address_of(scratch)
        call[WORKSPACE] = start + -start % ALIGNMENT
        return cls(call, address_of(call), scratch)


def take_spare(plan: BackwardPlan) -> Spare:
    """Return record and memory of an earlier run that has ended, or fresh ones."""
    try:
        spare: Spare = plan.spares.pop()
    except IndexError:
        return Spare.of(plan, np.empty(plan.workspace_nbytes, np.uint8))
    start = spare.call[WORKSPACE]
    spare.call[:] = plan.call_template
    spare.call[WORKSPACE] = start
    return spare


def _run(
    plan: BackwardPlan,
    part: str,
    address: int,
    index_like: Any,
    kernels: Kernels,
    *operands: int,
) -> None:
    """Launch the phases of a run, or of a part of it. Operands are `pointer`, or 0: see there."""
    program = program_of(plan, part, index_like, kernels)
    program.launch(plan.threads, address, *operands)


def program_of(
    plan: BackwardPlan, part: str, index_like: Any, kernels: Kernels = _KERNELS
) -> Program:
    """Return the phases of a part of a run, compiled for its formats and kept with the plan."""
    programs = plan.programs
    key = part, type(index_like)
    program = programs.get(key)
    if program is None:
        row, grad, out = plan.row_like, plan.grad_format.like, plan.out_format.like
        likes = {"index": index_like, "row": row, "grad": grad, "out": out}
        program = programs[key] = kernels[part, _algorithm(plan)].program(likes)
    found: Program = program
    return found


def _algorithm(plan: BackwardPlan) -> str:
    return "gather_hot" if plan.max_hot else plan.algorithm


def _index_operand(
    plan: BackwardPlan, indices: Array, scratch: npt.NDArray[np.uint8]
) -> tuple[np.generic, Array]:
    """Return the kernel's element type and a contiguous native array of it.

    Other dtypes, byte orders and strides are copied as eight-byte words into the workspace.
    """
    like = INDEX_LIKE.get(indices.dtype)
    if like is not None and indices.flags.c_contiguous and indices.flags.aligned:
        return like, indices
    word = _word_dtype(indices.dtype)
    offset = plan.conversion_offset + -address_of(scratch) % ALIGNMENT
    copy = scratch[offset : offset + indices.size * word.itemsize].view(word)
    copy.reshape(indices.shape)[...] = indices
    return INDEX_LIKE[word], copy


def index_words(indices: Array) -> tuple[np.generic, Array]:
    """Return the kernels' element type and a contiguous native array of it, copied if need be."""
    like = INDEX_LIKE.get(indices.dtype)
    if like is None:
        indices = indices.astype(_word_dtype(indices.dtype))
        like = INDEX_LIKE[indices.dtype]
    return like, np.ascontiguousarray(indices)


def _word_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the eight-byte dtype that holds indices of a dtype."""
    return np.dtype({"f": np.float64, "u": np.uint64}.get(dtype.kind, np.int64))


def describe_grad(call: npt.NDArray[np.int64], grad: Array, form: Format) -> None:
    """Describe a grad that is not contiguous: its rows' strides, merged where possible."""
    merged: list[tuple[int, int]] = []
    for size, stride in zip(grad.shape[:-1], grad.strides[:-1], strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    merged = merged or [(1, 0)]
    record = call.view(CALL)
    column = grad.strides[-1] if grad.shape[-1] > 1 else form.itemsize
    record["grad_column"] = column
    record["grad_swap"] = not grad.dtype.isnative
    record["plain"] = len(merged) == 1 and column == form.itemsize and grad.dtype.isnative
    record["grad_dims"] = len(merged)
    for dim, (size, stride) in enumerate(merged):
        record["grad_shape"][0, dim], record["grad_strides"][0, dim] = size, stride


def describe_out(call: npt.NDArray[np.int64], out: Array, form: Format) -> None:
    """Describe an out that is not contiguous; its rows cannot be streamed."""
    rows, columns = out.shape
    record = call.view(CALL)
    record["out_row"] = out.strides[0] if rows > 1 else columns * form.itemsize
    record["out_column"] = out.strides[1] if columns > 1 else form.itemsize
    record["out_swap"] = not out.dtype.isnative
    record["streaming"] = 0


def _fill(report: RunReport, plan: BackwardPlan, address: int) -> None:
    """Fill a report with what the kernels counted: one entry per core that owns rows."""
    first_core = 0 if plan.num_weights >= plan.core_num else plan.core_num - 1
    lookups = np.zeros(plan.core_num - first_core, np.int64)
    first_core = min(first_core, 2**63 - 1)  # the only core with rows gets all, whatever its number
    count_per_core(plan.order.by_position, first_core, lookups, address)
    report._fill(plan.core_num, plan.core_num - lookups.size, lookups)
