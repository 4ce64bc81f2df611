"""The reusable plan: arguments checked into a plan, and a plan run on checked operands."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed import validation as check
from numba_embed.errors import EmbedError, EmbedTypeError, EmbedValueError
from numba_embed.plan import BackwardPlan
from numba_embed.pool import current as current_pool
from numba_embed.runtime import available_threads, pool_size
from numba_embed.sizing import default_core_num, worthwhile_threads
from numba_embed.workspace import RunReport, Workspace

Array = npt.NDArray[Any]


@cache
def executor() -> Any:
    """Return `execute`, importing the kernels at the first run: it takes Numba a while."""
    return import_module("numba_embed.execute").execute


class Plan(BackwardPlan):
    """A reusable plan: made once for shapes, dtypes and attributes, run many times.

    Make one with `plan_dense_backward`. It is immutable; runs of one plan may overlap in time as
    long as each has its own workspace.
    """

    def make_workspace(self) -> Workspace:
        """Allocate a workspace for this plan: `workspace_nbytes` bytes, uninitialised.

        Returns
        -------
        Workspace

        Raises
        ------
        MemoryError
            If the system has no such memory.
        """
        return Workspace(self.workspace_nbytes)

    def execute(
        self,
        grad: Any,
        indices: Any,
        out: Any = None,
        accumulate: bool = False,
        workspace: Workspace | None = None,
        report: RunReport | None = None,
    ) -> Any:
        """Run the plan on arrays of its shapes and dtypes.

        Parameters
        ----------
        grad, indices, out, accumulate : as there
            See `embedding_dense_backward`; sizes and dtypes must be the plan's.
        workspace : Workspace, optional
            Scratch memory to use; by default it is allocated for this run.
        report : RunReport, optional
            Is filled with the look-ups that each core counted.

        Returns
        -------
        array of shape (V, D)
            ``out`` itself where given.

        Raises
        ------
        EmbedTypeError, EmbedValueError, EmbedIndexError
            As `embedding_dense_backward`; also for arrays that do not fit the plan.
        WorkspaceBusyError
            If another thread is running in the same workspace.

        Notes
        -----
        O(N D + V D) time; no memory beside the workspace's and a fresh output's.
        """
        if workspace is not None and not isinstance(workspace, Workspace):
            raise EmbedTypeError(
                f"workspace must be a Workspace or None, got {type(workspace).__name__}"
            )
        if report is not None and not isinstance(report, RunReport):
            raise EmbedTypeError(f"report must be a RunReport or None, got {type(report).__name__}")
        usual = None
        if (
            type(grad) is type(indices) is np.ndarray
            and report is None
            and accumulate is False
            and (current_pool() is None if out is None else type(out) is np.ndarray)
        ):
            usual = (grad.shape, grad.dtype, indices.shape, indices.dtype)
            small = self.small_calls.get(usual)
            if small is not None:
                result = (
                    small(grad, indices, out)
                    if workspace is None
                    else small.holding(workspace, grad, indices, out)
                )
                if result is not None:
                    return result
        grad_array, index_array = checked_operands(self, grad, indices)
        result = self._run(grad_array, index_array, out, accumulate, workspace, report)
        if usual is not None and self.threads == 1:
            remember = import_module("numba_embed.small").remember
            remember(self.small_calls, usual, self, grad, indices)
        return result

    def _run(
        self,
        grad: Array,
        indices: Array,
        out: Any,
        accumulate: bool,
        workspace: Workspace | None,
        report: RunReport | None,
    ) -> Any:
        """Check what is left to check, and run in the workspace or in memory of its own."""
        if accumulate is not False:
            accumulate = check.flag("accumulate", accumulate)
        out_array = None
        if out is not None:
            out_array = check.checked_out(out, self.out_shape, grad, indices)
            if check.checked_format("out", out_array.dtype) is not self.out_format:
                raise EmbedTypeError(
                    f"out must have the plan's dtype {self.out_format.name}, got {out_array.dtype}"
                )
        elif accumulate:
            raise EmbedValueError("out must be given with accumulate=True, got None")
        elif (pool := current_pool()) is not None:
            out_array = pool.empty(self.out_shape, self.out_dtype)
        if workspace is None:
            result = executor()(self, grad, indices, out_array, accumulate, None, report)
            return result if out is None else out
        run = object()
        try:
            scratch = workspace.acquire(self.workspace_nbytes, run)
            result = executor()(self, grad, indices, out_array, accumulate, scratch, report)
        finally:
            workspace.release(run)
        return result if out is None else out


def plan_within(plan: Plan, threads: int) -> Plan:
    """Return a plan for at most so many threads."""
    return plan if threads >= plan.threads else _with_threads(plan, threads)


def checked_operands(plan: BackwardPlan, grad: Any, indices: Any) -> tuple[Array, Array]:
    """Return the operands of a run as arrays, or raise: their sizes and dtypes are the plan's."""
    grad_array, index_array = check.as_array("grad", grad), check.as_array("indices", indices)
    sizes = check.checked_shapes(grad_array.shape, index_array.shape)
    if sizes != (plan.num_positions, plan.embedding_dim):
        raise EmbedValueError(
            f"grad and indices must have the plan's N = {plan.num_positions} and D = "
            f"{plan.embedding_dim}, got shapes {grad_array.shape} and {index_array.shape}"
        )
    if check.checked_format("grad", grad_array.dtype) is not plan.grad_format:
        raise EmbedTypeError(
            f"grad must have the plan's dtype {plan.grad_format.name}, got {grad_array.dtype}"
        )
    check.checked_index_dtype(index_array.dtype)
    return grad_array, index_array


@lru_cache(maxsize=256)
def _with_threads(plan: Plan, threads: int) -> Plan:
    return replace(plan, threads=threads)


def plan_dense_backward(
    grad_shape: tuple[int, ...],
    grad_dtype: Any,
    indices_shape: tuple[int, ...],
    indices_dtype: Any,
    num_weights: int,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    *,
    out_dtype: Any = None,
    on_invalid: str = "raise",
    core_num: int | None = None,
    num_threads: int | None = None,
) -> Plan:
    """Plan a backward pass from shapes and dtypes alone. O(1): no data is looked at.

    Parameters
    ----------
    grad_shape : tuple of int
        Shape of the gradient, (..., D).
    grad_dtype : dtype_like
        Its dtype. "bfloat16" is understood as a name without `ml_dtypes`.
    indices_shape : tuple of int
        Shape of the indices: as many entries as the gradient has rows.
    indices_dtype : dtype_like
        Their dtype.
    num_weights, padding_idx, scale_grad_by_freq, on_invalid, core_num, num_threads : as there
        See `embedding_dense_backward`.
    out_dtype : dtype, optional
        Of the result; by default the gradient's.

    Returns
    -------
    Plan
        Knows its partition and its largest workspace in bytes, and runs many times.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        As `embedding_dense_backward`, but for what only data can show.
    """
    plan = planned(
        check.checked_shape("grad_shape", grad_shape),
        grad_dtype,
        check.checked_shape("indices_shape", indices_shape),
        indices_dtype,
        num_weights,
        padding_idx,
        scale_grad_by_freq,
        out_dtype,
        on_invalid,
        core_num,
        num_threads,
    )
    if plan.threads > 1 and num_threads is None:
        plan = plan_within(plan, available_threads())
    return plan


def _plan(
    grad_shape: tuple[int, ...],
    grad_dtype: Any,
    indices_shape: tuple[int, ...],
    indices_dtype: Any,
    num_weights: Any,
    padding_idx: Any,
    scale_grad_by_freq: Any,
    out_dtype: Any,
    on_invalid: Any,
    core_num: Any,
    num_threads: Any,
    rows_only: bool = False,
) -> Plan:
    """Check all arguments and return the plan, for the whole thread pool unless told otherwise.

    ``rows_only``: of the result, only the rows that are looked up need to exist.
    """
    grad_format = check.checked_format("grad", grad_dtype)
    out_format = grad_format if out_dtype is None else check.checked_format("out", out_dtype)
    check.checked_index_dtype(indices_dtype)
    n, d = check.checked_shapes(grad_shape, indices_shape)
    v = check.checked_num_weights(num_weights)
    check.refuse_absurd(n, min(v, n) if rows_only else v, d)
    threads = check.checked_num_threads(num_threads)
    if threads is None:
        threads = worthwhile_threads(n, v, d, grad_format, out_format, pool_size())
    cores = check.checked_core_num(core_num)
    return Plan(
        n,
        v,
        d,
        grad_format,
        out_format,
        check.checked_padding_idx(padding_idx, v),
        check.flag("scale_grad_by_freq", scale_grad_by_freq),
        check.checked_dropping(on_invalid),
        default_core_num(v) if cores is None else cores,
        threads,
    )


MOST_PLANS = 256
"""Plans that are kept for calls to come."""

recent_plan = lru_cache(maxsize=MOST_PLANS, typed=True)(_plan)
"""Plans are immutable, so calls with the same arguments share one. ``typed``: 1 is not True."""


def planned(*arguments: Any) -> Plan:
    """Return the plan for all arguments, for the whole thread pool unless they tell otherwise."""
    try:
        return recent_plan(*arguments)
    except EmbedError:
        raise
    except Exception:  # an argument is not hashable: the checks say what is wrong with it
        return _plan(*arguments)
