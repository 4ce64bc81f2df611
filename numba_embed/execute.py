"""Phase two: run a plan on checked arrays, in a workspace. The only caller of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.formats import Format
from numba_embed.kernels import layout as at
from numba_embed.kernels.count import NONE_BAD, check, count_per_core, order
from numba_embed.kernels.gather import gather
from numba_embed.kernels.tables import tables
from numba_embed.plan import BackwardPlan
from numba_embed.runtime import launch
from numba_embed.validation import bad_index
from numba_embed.workspace import RunReport

STREAMING_BYTES = 16 << 20
"""Outputs from this size on are written past the caches."""

ZEROED_BYTES = 32 << 20
"""Fresh outputs from this size on come from the system, zeroed, page by page when first touched:
rows that no index names are left alone. Smaller ones are recycled memory, to be written anyway."""

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
) -> Array:
    """Check and count the indices, then sum; ``scratch`` holds the plan's aligned workspace.

    All other checks have passed. Returns ``out``, or a fresh array. Nothing is written to ``out``
    before the last index has been checked.

    Raises
    ------
    EmbedIndexError, EmbedValueError
        For the first bad index in C order.
    """
    n, v, d = plan.num_positions, plan.num_weights, plan.embedding_dim
    call = np.zeros(1, at.CALL)
    address = call.ctypes.data
    index_like, source = _index_operand(plan, indices, scratch)
    call["plan"], call["workspace"] = plan.record_address, scratch.ctypes.data
    call["indices"] = source.ctypes.data
    row_like = plan.row_like
    bad = launch(check, plan.threads, index_like, row_like, address)
    if bad != NONE_BAD:
        raise bad_index(indices, int(bad), v)

    zeroed = False
    if out is None:
        zeroed = v * d * plan.out_format.itemsize >= ZEROED_BYTES
        out = (np.zeros if zeroed else np.empty)((v, d), plan.out_format.dtype)
    if out.size == 0 or (accumulate and n == 0):
        return out
    _describe_grad(call, grad, plan.grad_format)
    _describe_out(call, out, plan.out_format)
    call["accumulate"], call["zeroed"] = accumulate, zeroed
    grad_like, out_like = plan.grad_format.like, plan.out_format.like
    in_tables = plan.order.by_position
    if in_tables:
        counting = accumulate or plan.scale_grad_by_freq or report is not None
        launch(tables, plan.threads, counting, grad_like, out_like, row_like, address)
    else:
        launch(order, plan.threads, row_like, address)
        launch(gather, plan.threads, grad_like, out_like, address)
    if report is not None:
        _fill(report, plan, in_tables, address)
    return out


def _index_operand(
    plan: BackwardPlan, indices: Array, scratch: npt.NDArray[np.uint8]
) -> tuple[np.generic, Array]:
    """Return the kernel's element type and a contiguous native array of it.

    Other dtypes, byte orders and strides are copied as eight-byte words into the workspace.
    """
    like = _INDEX_LIKE.get(indices.dtype)
    if like is not None and indices.flags.c_contiguous and indices.flags.aligned:
        return like, indices
    word: np.dtype[Any] = np.dtype(
        {"f": np.float64, "u": np.uint64}.get(indices.dtype.kind, np.int64)
    )
    offset = plan.conversion_offset
    copy = scratch[offset : offset + indices.size * word.itemsize].view(word)
    copy.reshape(indices.shape)[...] = indices
    return _INDEX_LIKE[word], copy


def _describe_grad(call: npt.NDArray[np.void], grad: Array, form: Format) -> None:
    """Describe grad: its address, its rows' strides (merged where possible) and its columns."""
    merged: list[tuple[int, int]] = []
    for size, stride in zip(grad.shape[:-1], grad.strides[:-1], strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    merged = merged or [(1, 0)]
    call["grad"] = grad.ctypes.data
    call["grad_column"] = grad.strides[-1] if grad.shape[-1] > 1 else form.itemsize
    call["grad_swap"] = not grad.dtype.isnative
    call["grad_dims"] = len(merged)
    for dim, (size, stride) in enumerate(merged):
        call["grad_shape"][0, dim], call["grad_strides"][0, dim] = size, stride


def _describe_out(call: npt.NDArray[np.void], out: Array, form: Format) -> None:
    """Describe out, and decide whether its rows can be streamed."""
    rows, columns = out.shape
    address = out.ctypes.data
    row = out.strides[0] if rows > 1 else columns * form.itemsize
    column = out.strides[1] if columns > 1 else form.itemsize
    call["out"], call["out_row"], call["out_column"] = address, row, column
    call["out_swap"] = not out.dtype.isnative
    call["streaming"] = (
        out.nbytes >= STREAMING_BYTES
        and column == form.itemsize
        and row == columns * form.itemsize
        and out.dtype.isnative
        and address % form.itemsize == 0
    )


def _fill(report: RunReport, plan: BackwardPlan, in_tables: bool, address: int) -> None:
    """Fill a report with what the kernels counted: one entry per core that owns rows."""
    first_core = 0 if plan.num_weights >= plan.core_num else plan.core_num - 1
    lookups = np.zeros(plan.core_num - first_core, np.int64)
    count_per_core.serial(in_tables, first_core, lookups, address)
    report._fill(plan.core_num, first_core, lookups)
