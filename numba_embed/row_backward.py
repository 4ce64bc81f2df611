"""The operator for the looked-up rows alone: validate, plan, execute, in that order."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray

from numba_embed import validation as check
from numba_embed.dense_plan import MOST_PLANS, Array, checked_operands, planned
from numba_embed.errors import EmbedTypeError
from numba_embed.execute_rows import execute_rows
from numba_embed.plan import BackwardPlan
from numba_embed.pool import current as current_pool
from numba_embed.row_gradient import RowGradient
from numba_embed.runtime import available_threads
from numba_embed.small import remember
from numba_embed.small_rows import SmallRows
from numba_embed.validation import RAISE
from numba_embed.workspace import Workspace

ROW_THREAD_BYTES = 1 << 21
"""By default a thread is used for each so many bytes of gradient rows and values to be moved."""


_small_calls: dict[Any, SmallRows] = {}
"""What runs small calls that pass plain arrays alone: see `numba_embed.small_rows`."""


def embedding_row_gradient(
    grad: Any,
    indices: Any,
    num_weights: int,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    *,
    out_dtype: Any = None,
    on_invalid: str = "raise",
    core_num: int | None = None,
    num_threads: int | None = None,
) -> RowGradient:
    """Sum the rows of ``grad`` that share an index, and return those rows alone.

    Parameters
    ----------
    grad, indices, padding_idx, scale_grad_by_freq, on_invalid, core_num, num_threads : as there
        See `embedding_dense_backward`.
    num_weights : int
        V, the number of rows of the table, up to 2**62.
    out_dtype : dtype, optional
        Of the values: any of the gradient dtypes; by default the gradient's.

    Returns
    -------
    RowGradient
        The distinct rows but for the padding row, ascending, and their gradients.

    Raises
    ------
    EmbedError, EmbedTypeError, EmbedValueError, EmbedIndexError
        As `embedding_dense_backward`.

    Notes
    -----
    The values have the bits of the dense gradient's rows. O(N D) time and O(N) scratch memory (16 N
    bytes, 1/64 of grad's bytes and 4 MiB per thread); nothing grows with ``num_weights``.

    Examples
    --------
    >>> import numpy as np
    >>> grad = np.float32([[1, 2], [3, 4], [5, 6]])
    >>> found = embedding_row_gradient(grad, [7, 10**9, 7], 10**10)
    >>> found
    RowGradient(2 of 10000000000 rows, D = 2, float32)
    >>> found.rows, found.values
    (array([         7, 1000000000]), array([[6., 8.],
           [3., 4.]], dtype=float32))
    """
    usual = None
    if (
        type(grad) is type(indices) is ndarray
        and padding_idx is out_dtype is core_num is num_threads is None
        and scale_grad_by_freq is False
        and type(num_weights) is int
        and on_invalid is RAISE
        and current_pool() is None
    ):
        usual = (grad.shape, grad.dtype, indices.shape, indices.dtype, num_weights)
        small = _small_calls.get(usual)
        if small is not None and (result := small(grad, indices)) is not None:
            return result
    grad_array, index_array = check.as_array("grad", grad), check.as_array("indices", indices)
    plan = _whole_plan(
        grad_array.shape,
        grad_array.dtype,
        index_array.shape,
        index_array.dtype,
        num_weights,
        padding_idx,
        scale_grad_by_freq,
        out_dtype,
        on_invalid,
        core_num,
        num_threads,
    )
    found = _as_wide_as_now(plan, num_threads)._run(grad_array, index_array, None)
    if usual is not None:  # the whole pool's plan: later there may be more threads than now
        remember(_small_calls, usual, plan, grad, indices, SmallRows)
    return found


class RowPlan(BackwardPlan):
    """A reusable plan of row gradients; make one with `plan_row_gradient`.

    Immutable; runs may overlap in time as long as each has its own workspace.
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

    def execute(self, grad: Any, indices: Any, workspace: Workspace | None = None) -> RowGradient:
        """Run the plan on arrays of its sizes and dtypes. Rows and values are fresh.

        Parameters
        ----------
        grad, indices : as there
            See `embedding_row_gradient`; sizes and dtypes must be the plan's.
        workspace : Workspace, optional
            Scratch memory to use; by default it is allocated for this run.

        Returns
        -------
        RowGradient

        Raises
        ------
        EmbedTypeError, EmbedValueError, EmbedIndexError
            As `embedding_row_gradient`; also for arrays that do not fit the plan.
        WorkspaceBusyError
            If another thread is running in the same workspace.

        Notes
        -----
        O(N D) time; fresh memory for rows and values alone.
        """
        if workspace is not None and not isinstance(workspace, Workspace):
            raise EmbedTypeError(
                f"workspace must be a Workspace or None, got {type(workspace).__name__}"
            )
        usual = None
        if type(grad) is type(indices) is ndarray and workspace is None and current_pool() is None:
            usual = (grad.shape, grad.dtype, indices.shape, indices.dtype)
            small = self.small_calls.get(usual)
            if small is not None and (result := small(grad, indices)) is not None:
                found: RowGradient = result
                return found
        grad_array, index_array = checked_operands(self, grad, indices)
        found = self._run(grad_array, index_array, workspace)
        if usual is not None:
            remember(self.small_calls, usual, self, grad, indices, SmallRows)
        return found

    def _within(self, threads: int) -> RowPlan:
        """Return this plan for at most so many threads."""
        return self if threads >= self.threads else _of(self, threads)

    def _run(self, grad: Array, indices: Array, workspace: Workspace | None) -> RowGradient:
        nbytes, dtype = self.workspace_nbytes, self.out_dtype
        if workspace is None:
            found = execute_rows(self, grad, indices, np.empty(nbytes, np.uint8), dtype)
        else:
            run = object()
            try:
                scratch = workspace.acquire(nbytes, run)
                found = execute_rows(self, grad, indices, scratch, dtype)
            finally:
                workspace.release(run)
        return RowGradient._of(*found, self.num_weights)

    def __str__(self) -> str:
        return super().__str__().replace("embedding_dense_backward", "embedding_row_gradient", 1)


def plan_row_gradient(
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
) -> RowPlan:
    """Plan a row gradient from shapes and dtypes alone. O(1): no data is looked at.

    Parameters
    ----------
    grad_shape, grad_dtype, indices_shape, indices_dtype, out_dtype : as there
        See `plan_dense_backward`.
    num_weights, padding_idx, scale_grad_by_freq, on_invalid, core_num, num_threads : as there
        See `embedding_row_gradient`.

    Returns
    -------
    RowPlan
        Knows its largest workspace in bytes, and runs many times.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        As `embedding_row_gradient`, but for what only data can show.
    """
    plan = _whole_plan(
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
    return _as_wide_as_now(plan, num_threads)


def _whole_plan(*arguments: Any) -> RowPlan:
    """Return the plan for all arguments of `plan_row_gradient`, for the whole thread pool."""
    try:
        return _recent_plan(*arguments)
    except TypeError:  # an argument is not hashable, or refused: the checks say so
        return _row_plan(*arguments)


def _as_wide_as_now(plan: RowPlan, num_threads: Any) -> RowPlan:
    """Return the plan for the threads that Numba would use here, unless their number was given."""
    if plan.threads > 1 and num_threads is None:
        return plan._within(available_threads())
    return plan


def _row_plan(*arguments: Any) -> RowPlan:
    """Check all arguments and return the plan, for the whole thread pool unless told otherwise."""
    dense = planned(*arguments, True)
    threads = dense.threads
    if arguments[-1] is None:
        # Not the table's bytes but those of at most N rows are moved, in two launches.
        rows = min(dense.num_weights, dense.num_positions)
        row_bytes = dense.embedding_dim * dense.out_format.itemsize
        read = dense.num_positions * dense.embedding_dim * dense.grad_format.itemsize
        threads = max(1, min(threads, (read + rows * row_bytes) // ROW_THREAD_BYTES))
    return _of(dense, threads)


_recent_plan = lru_cache(maxsize=MOST_PLANS, typed=True)(_row_plan)


@lru_cache(maxsize=MOST_PLANS)
def _of(plan: BackwardPlan, threads: int) -> RowPlan:
    """Return the row plan that differs from a plan in its threads alone."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return RowPlan(**values | {"threads": threads})
