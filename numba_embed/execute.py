"""Phase two: run a plan on checked arrays, in a workspace. The only caller of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import address_of
from numba_embed.formats import Format
from numba_embed.kernels.count import NONE_BAD, count, count_per_core
from numba_embed.kernels.gather import gather
from numba_embed.kernels.layout import CALL, call_word
from numba_embed.kernels.tables import tables
from numba_embed.plan import BackwardPlan
from numba_embed.runtime import launch
from numba_embed.validation import bad_index
from numba_embed.workspace import RunReport

WORKSPACE, INDICES = call_word("workspace"), call_word("indices")
GRAD, OUT = call_word("grad"), call_word("out")
ACCUMULATE, ZEROED, STREAMING = map(call_word, ("accumulate", "zeroed", "streaming"))
MAP, WEIGHTS, PLAIN = map(call_word, ("position_map", "position_weights", "plain"))

Array = npt.NDArray[Any]

_INDEX_LIKE: dict[np.dtype[Any], np.generic] = {
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
    scratch: npt.NDArray[np.uint8],
    report: RunReport | None = None,
    *,
    zeroed: bool = False,
    position_map: npt.NDArray[np.int64] | None = None,
    position_weights: npt.NDArray[np.float64] | None = None,
) -> Array:
    """Check and count the indices, then sum; ``scratch`` holds the plan's aligned workspace.

    All other checks have passed. Returns ``out``, or a fresh array. Nothing is written to ``out``
    before the last index has been checked. ``zeroed`` says that ``out`` is zero already. With a
    map, position i takes row ``position_map[i]`` of grad, which then has any number of rows; with
    weights the row is multiplied by ``position_weights[i]``. Both are contiguous, of shape (N,).

    Raises
    ------
    EmbedIndexError, EmbedValueError
        For the first bad index in C order.
    """
    call = counted(plan, indices, scratch)
    address = address_of(call)
    if out is None:
        make = np.zeros if plan.fresh_zeroed else np.empty
        out = make(plan.out_shape, plan.out_dtype)
        zeroed = plan.fresh_zeroed
    elif not (out.flags.c_contiguous and out.dtype.isnative):
        describe_out(call, out, plan.out_format)
    call[ZEROED] = zeroed
    if position_map is not None:
        call[MAP] = address_of(position_map)
    if position_weights is not None:
        call[WEIGHTS] = address_of(position_weights)
    if out.size > 0 and not (accumulate and plan.num_positions == 0):
        sum_counted(plan, grad, out, accumulate, call, address, report is not None)
    if report is not None:
        _fill(report, plan, address)
    return out


def counted(
    plan: BackwardPlan, indices: Array, scratch: npt.NDArray[np.uint8]
) -> npt.NDArray[np.int64]:
    """Check and count the indices into ``scratch``. Returns the call record, as words.

    Raises
    ------
    EmbedIndexError, EmbedValueError
        For the first bad index in C order.
    """
    call = plan.call_template.copy()
    index_like, source = _index_operand(plan, indices, scratch)
    call[WORKSPACE] = address_of(scratch)
    call[INDICES] = address_of(source)
    bad = launch(count, plan.threads, index_like, plan.row_like, address_of(call))
    if bad != NONE_BAD:
        raise bad_index(indices, int(bad), plan.num_weights)
    return call


def sum_counted(
    plan: BackwardPlan,
    grad: Array,
    out: Array,
    accumulate: bool,
    call: npt.NDArray[np.int64],
    address: int,
    reporting: bool,
) -> None:
    """Sum the counted positions into ``out``, which has elements."""
    call[GRAD] = address_of(grad)
    if not (grad.flags.c_contiguous and grad.dtype.isnative):
        describe_grad(call, grad, plan.grad_format)
    if call[MAP] or call[WEIGHTS]:
        call[PLAIN] = 0
    call[OUT] = address_of(out)
    if call[STREAMING] and call[OUT] % plan.out_format.itemsize:
        call[STREAMING] = 0  # elements that straddle lines cannot be gathered to whole lines
    call[ACCUMULATE] = accumulate
    grad_like, out_like = plan.grad_format.like, plan.out_format.like
    if plan.order.by_position:
        counting = accumulate or plan.scale_grad_by_freq or reporting
        launch(tables, plan.threads, counting, grad_like, out_like, plan.row_like, address)
    else:
        launch(gather, plan.threads, grad_like, out_like, address)


def _index_operand(
    plan: BackwardPlan, indices: Array, scratch: npt.NDArray[np.uint8]
) -> tuple[np.generic, Array]:
    """Return the kernel's element type and a contiguous native array of it.

    Other dtypes, byte orders and strides are copied as eight-byte words into the workspace.
    """
    like = _INDEX_LIKE.get(indices.dtype)
    if like is not None and indices.flags.c_contiguous and indices.flags.aligned:
        return like, indices
    word = _word_dtype(indices.dtype)
    offset = plan.conversion_offset
    copy = scratch[offset : offset + indices.size * word.itemsize].view(word)
    copy.reshape(indices.shape)[...] = indices
    return _INDEX_LIKE[word], copy


def index_words(indices: Array) -> tuple[np.generic, Array]:
    """Return the kernels' element type and a contiguous native array of it, copied if need be."""
    like = _INDEX_LIKE.get(indices.dtype)
    if like is None:
        indices = indices.astype(_word_dtype(indices.dtype))
        like = _INDEX_LIKE[indices.dtype]
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
    count_per_core.serial(plan.order.by_position, first_core, lookups, address)
    report._fill(plan.core_num, first_core, lookups)
