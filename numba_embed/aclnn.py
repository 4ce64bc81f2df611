"""The operator as Ascend CANN publishes it: plan in one call, run in another, and get a status.

Phase one checks every parameter against a product's dtype list and limits, and returns the size of
the workspace and an executor. Phase two runs the executor in memory that the caller provides. Both
are a thin layer over `numba_embed.Plan`: the bits are those of the functional call. Nothing raises:
every failure is a `Status`, and `get_recent_err_msg` has its text.

Who may touch what, as on a device:

* Phase one looks at shapes, dtypes, strides and where the memory lies, never at data: what grad and
  indices hold counts from phase two on. (A nested list has no memory to share: it is copied in
  phase one.) The executor keeps the operands alive until it has run.
* From the call of phase two until it returns, or with a stream until ``executor.wait()`` returns,
  grad, indices, out and the workspace belong to the run: do not write grad or indices, do not touch
  out or the workspace. Nothing guards against it.
* Runs may share grad and indices. They may share a workspace, or one may read what another writes,
  only in sequence: on a stream of one worker, or after ``executor.wait()``.

Examples
--------
The published example:

>>> import numpy as np
>>> from numba_embed import aclnn
>>> grad = np.float32([[1, 2, 3], [4, 5, 6]])
>>> indices = np.array([1, 2])
>>> out = np.empty((4, 3), np.float32)
>>> status, workspace_size, executor = aclnn.embedding_dense_backward_get_workspace_size(
...     grad, indices, 4, 0, False, out
... )
>>> status
<Status.ACLNN_SUCCESS: 0>
>>> workspace = bytearray(workspace_size)
>>> aclnn.embedding_dense_backward(workspace, workspace_size, executor)
<Status.ACLNN_SUCCESS: 0>
>>> out
array([[0., 0., 0.],
       [1., 2., 3.],
       [4., 5., 6.],
       [0., 0., 0.]], dtype=float32)
"""

from __future__ import annotations

import warnings
from concurrent.futures import Executor
from enum import IntEnum
from typing import Any

import numpy as np

from numba_embed import validation as check
from numba_embed.aclnn_executor import (
    AdvisoryWarning,
    MissingError,
    OpExecutor,
    Status,
    failed,
    this_thread,
    used_up,
)
from numba_embed.dense_plan import plan_dense_backward
from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.products import Product, advisories, dim_refusals, dtype_refusals
from numba_embed.scalars import integer
from numba_embed.workspace import Workspace

__all__ = [
    *("AdvisoryWarning", "OpExecutor", "Product", "Status", "SysParamOpt"),
    *("ctx_get_sys_param_opt", "ctx_set_sys_param_opt", "embedding_dense_backward"),
    *("embedding_dense_backward_get_workspace_size", "get_recent_err_msg"),
]


class SysParamOpt(IntEnum):
    """Options of the calling thread; each is 0 unless set.

    DETERMINISTIC never changes a bit of a result here: results are always deterministic. It
    selects whether the advisory about high performance in deterministic mode applies.
    """

    DETERMINISTIC = 0


def embedding_dense_backward_get_workspace_size(
    grad: Any,
    indices: Any,
    num_weights: int,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
    out: Any,
    *,
    product: Product | str = Product.ATLAS_A2,
    core_num: int | None = None,
) -> tuple[Status, int, OpExecutor | None]:
    """Phase one: check every parameter and plan the computation. O(1), reads no data.

    Parameters
    ----------
    grad, indices, num_weights, padding_idx, scale_grad_by_freq : as there
        See `numba_embed.embedding_dense_backward`; dtypes are those that the product accepts.
    out : array, shape (num_weights, D)
        Where phase two writes; its dtype may differ from grad's. It must not overlap an operand.
    product : Product or str
        Whose dtypes and limits apply.
    core_num : int, optional
        Cores that share the rows; by default 32 on ATLAS_TRAINING, 48 on ATLAS_A2 and ATLAS_A3.
        Must be given on ASCEND_950.

    Returns
    -------
    status : Status
        ACLNN_ERR_PARAM_NULLPTR if grad, indices or out is None; ACLNN_ERR_PARAM_INVALID for
        anything else that is not accepted; ACLNN_ERR_INNER for an internal failure.
    workspace_size : int
        Bytes that phase two needs at any address; 0 unless the status is ACLNN_SUCCESS.
    executor : OpExecutor or None
        For phase two; None unless the status is ACLNN_SUCCESS.

    Warns
    -----
    AdvisoryWarning
        Once for each guarantee that the product does not give at sizes that it accepts.
    """
    try:
        _refuse_missing(grad=grad, indices=indices, out=out)
        chosen = Product.parse(product)
        grad_array, index_array = check.as_array("grad", grad), check.as_array("indices", indices)
        dtypes = grad_array.dtype, index_array.dtype, check.as_array("out", out).dtype
        _refuse(_dtype_refusals(chosen, *dtypes))
        plan = plan_dense_backward(
            grad_array.shape,
            dtypes[0],
            index_array.shape,
            dtypes[1],
            num_weights,
            padding_idx,
            scale_grad_by_freq,
            out_dtype=dtypes[2],
            core_num=_cores(chosen, core_num),
        )
        n, v, d = plan.num_positions, plan.num_weights, plan.embedding_dim
        scale = plan.scale_grad_by_freq
        _refuse(dim_refusals(chosen, v, plan.core_num, d, dtypes[1].name, scale))
        for advisory in advisories(chosen, n, v, deterministic=this_thread.deterministic == 1):
            warnings.warn(advisory.message, AdvisoryWarning, stacklevel=2)
        out_array = check.checked_out(out, (v, d), grad_array, index_array)
        executor = OpExecutor(plan, grad_array, index_array, out_array)
        return Status.ACLNN_SUCCESS, plan.workspace_nbytes, executor
    except Exception as error:
        return failed(error), 0, None


def embedding_dense_backward(
    workspace: Any,
    workspace_size: int,
    executor: OpExecutor | None,
    stream: Executor | None = None,
) -> Status:
    """Phase two: run an executor in the first ``workspace_size`` bytes of ``workspace``.

    Parameters
    ----------
    workspace : buffer
        Writable, C-contiguous, at any address, and apart from the operands: an array, a bytearray,
        a memory map. Nothing whose size depends on the operands is allocated besides.
    workspace_size : int
        At least what phase one returned.
    executor : OpExecutor
        From phase one.
    stream : concurrent.futures.Executor, optional
        A pool of threads to queue the run in; then this call's success means that it is queued, and
        ``executor.wait()`` returns how it ended.

    Returns
    -------
    Status
        ACLNN_ERR_PARAM_NULLPTR if workspace or executor is None. ACLNN_ERR_PARAM_INVALID if the
        workspace is too small, read-only or overlaps an operand, another parameter is of the wrong
        kind, or the executor has been used; neither uses the executor up. All else does:
        ACLNN_ERR_RUNTIME_ERROR if the run failed, with ``out`` untouched where an index is bad, or
        if the stream did not run it; ACLNN_ERR_INNER for an internal failure.

    Notes
    -----
    `KeyboardInterrupt` and `SystemExit` are no failures of the call and pass through it.
    """
    try:
        _refuse_missing(workspace=workspace, executor=executor)
        if not isinstance(executor, OpExecutor):
            raise EmbedTypeError(f"executor must be phase one's, got {type(executor).__name__}")
        if stream is not None and not isinstance(stream, Executor):
            raise EmbedTypeError(
                f"stream must be a concurrent.futures.Executor or None, got {type(stream).__name__}"
            )
        return executor.start(_held(workspace, workspace_size, executor), stream)
    except Exception as error:
        return failed(error)


def get_recent_err_msg() -> str:
    """Return the text of the calling thread's last failure; empty if there was none. O(1)."""
    return this_thread.message


def ctx_set_sys_param_opt(opt: SysParamOpt, value: int) -> Status:
    """Set an option of the calling thread. O(1).

    Parameters
    ----------
    opt : SysParamOpt
        Which one.
    value : int
        0 or 1.

    Returns
    -------
    Status
        ACLNN_ERR_PARAM_INVALID for anything else.
    """
    try:
        _checked_option(opt)
        this_thread.deterministic = int(check.flag("value", value))
    except Exception as error:
        return failed(error)
    return Status.ACLNN_SUCCESS


def ctx_get_sys_param_opt(opt: SysParamOpt) -> tuple[Status, int]:
    """Return the value of an option of the calling thread. O(1).

    Parameters
    ----------
    opt : SysParamOpt
        Which one.

    Returns
    -------
    status : Status
        ACLNN_ERR_PARAM_INVALID if there is no such option.
    value : int
        0 or 1; 0 unless it was set.
    """
    try:
        _checked_option(opt)
    except Exception as error:
        return failed(error), 0
    return Status.ACLNN_SUCCESS, this_thread.deterministic


def _dtype_refusals(
    product: Product, grad: np.dtype[Any], indices: np.dtype[Any], out: np.dtype[Any]
) -> tuple[str, ...]:
    """Return why a product refuses the dtypes, one sentence each."""
    found = dtype_refusals(product, grad.name, indices.name)
    accepted = product.grad_dtypes
    if accepted and out.name not in accepted:
        found += (f"out has dtype {out.name}, {product.value} accepts {', '.join(accepted)}",)
    return found


def _cores(product: Product, core_num: int | None) -> int:
    """Return the cores that share the rows."""
    cores = product.default_core_num if core_num is None else core_num
    if cores is None:
        raise EmbedValueError(f"core_num must be given for {product.value}, got None")
    return cores


def _refuse(reasons: tuple[str, ...]) -> None:
    if reasons:
        raise EmbedValueError("; ".join(reasons))


def _held(workspace: Any, workspace_size: Any, executor: OpExecutor) -> Workspace:
    """Return the workspace's first ``workspace_size`` bytes, if an executor can run in them."""
    size = integer("workspace_size", workspace_size)
    needed = executor.plan.workspace_nbytes
    if size < needed:
        raise EmbedValueError(f"workspace_size must be at least {needed}, got {size}")
    try:
        whole = Workspace(memoryview(workspace))
    except (TypeError, ValueError, BufferError) as error:
        raise EmbedValueError(
            f"workspace must be a writable C-contiguous buffer, got {type(workspace).__name__}: "
            f"{error}"
        ) from error
    if whole.nbytes < size:
        raise EmbedValueError(
            f"workspace must have the {size} bytes that workspace_size says, got {whole.nbytes}"
        )
    held, operands = Workspace(whole.bytes[:size]), executor._operands
    if operands is None:
        raise used_up()
    for name, operand in zip(("grad", "indices", "out"), operands, strict=True):
        check.refuse_overlap("workspace", held.bytes, name, operand)
    return held


def _refuse_missing(**parameters: Any) -> None:
    for name, value in parameters.items():
        if value is None:
            raise MissingError(f"{name} is missing: it must not be None")


def _checked_option(opt: Any) -> None:
    if integer("opt", opt, "a SysParamOpt") != SysParamOpt.DETERMINISTIC:
        raise EmbedValueError(f"opt must be SysParamOpt.DETERMINISTIC, got {opt}")
