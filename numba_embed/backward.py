"""The operator: validate, plan, execute, in that order."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy import ndarray

from numba_embed import validation as check
from numba_embed.dense_plan import plan_within, planned
from numba_embed.pool import current as current_pool
from numba_embed.runtime import available_threads
from numba_embed.validation import RAISE

_small_calls: dict[Any, Any] = {}
"""What runs small calls that pass plain arrays alone: see `numba_embed.small`."""


def embedding_dense_backward(
    grad: Any,
    indices: Any,
    num_weights: int,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    *,
    out: Any = None,
    accumulate: bool = False,
    on_invalid: str = "raise",
    core_num: int | None = None,
    num_threads: int | None = None,
    block_rows: int | None = None,
) -> Any:
    """Sum the rows of ``grad`` that share an index into the row of that index.

    Parameters
    ----------
    grad : array_like of shape (..., D)
        Gradient of the looked-up rows, 2 to 8 dimensions (1 with a 0-d index): float16, bfloat16,
        float32 or float64, any strides and byte order. Flattened to (N, D) in C order.
    indices : array_like of shape (...)
        N row numbers in [0, num_weights), 0 to 8 dimensions: any integer dtype, bool, or floats
        that hold integers. Flattened in C order; only the sizes must agree with ``grad``.
    num_weights : int
        V, the number of rows of the table.
    padding_idx : int, optional
        Row whose gradient is zero. A value outside [0, V) names no row.
    scale_grad_by_freq : bool, default False
        Divide the sum of each row by the number of its look-ups, in float64, before rounding.
    out : array of shape (V, D), optional
        Where to write the result: any of the grad dtypes, any strides, not overlapping itself or an
        operand. Every row is written. By default a fresh array of grad's dtype.
    accumulate : bool, default False
        Add to what ``out`` holds, which must be given: a row becomes
        ``round(float64(old) + sum)``; the padding row and rows that no index names keep their bits.
    on_invalid : {"raise", "drop"}, default "raise"
        Whether an index out of range is an error or is skipped.
    core_num : int, optional
        Logical cores that own rows by the documented countsSize split; by default as many as make
        one core's frequency buffer fit the cache. Changes no bit of the result.
    num_threads : int, optional
        Threads to use, 1 to the size of Numba's pool; by default as many as Numba would use and the
        amount of work repays. Changes no bit of the result.
    block_rows : int, optional
        Stream: do so many rows of the table at a time, the positions passing by, in memory of
        ``block_rows * (16 D + 8)`` bytes and a few MiB, whatever N and V are. By default only where
        an operand is a `numpy.memmap` and the scratch memory stated below could exceed 256 MiB;
        then as many rows as take 256 MiB. Changes no bit of the result.

    Returns
    -------
    array of shape (V, D)
        ``out`` itself where given.

    Raises
    ------
    EmbedTypeError
        An argument has a kind or dtype that is not accepted.
    EmbedValueError
        A shape or value is not accepted, a float index is no integer, or ``out`` is read-only or
        overlaps.
    EmbedIndexError
        An index is out of range; the first in C order is named. ``out`` keeps every bit.

    Notes
    -----
    float16, bfloat16 and float32 gradients are summed in float64 and rounded once. The bits of the
    result depend on the values, N, V and D alone. O(N D + V D) time; scratch memory of at most
    16 N + 8 V bytes, 1/64 of grad's bytes and 4 MiB per thread.

    Examples
    --------
    >>> import numpy as np
    >>> grad = np.float32([[1, 2, 3], [4, 5, 6]])
    >>> embedding_dense_backward(grad, [1, 2], 4, padding_idx=0)
    array([[0., 0., 0.],
           [1., 2., 3.],
           [4., 5., 6.],
           [0., 0., 0.]], dtype=float32)
    """
    usual = None
    if (
        type(grad) is type(indices) is ndarray
        and padding_idx is core_num is num_threads is block_rows is None
        and scale_grad_by_freq is accumulate is False
        and type(num_weights) is int
        and on_invalid is RAISE
        and (current_pool() is None if out is None else type(out) is ndarray)
    ):
        # Hashing all arguments with their types takes longer than a small sum.
        dtype = None if out is None else out.dtype
        usual = (grad.shape, grad.dtype, indices.shape, indices.dtype, num_weights, dtype)
        small = _small_calls.get(usual)
        if small is not None and (result := small(grad, indices, out)) is not None:
            return result
    grad_array, index_array = check.as_array("grad", grad), check.as_array("indices", indices)
    if block_rows is not None or any(isinstance(x, np.memmap) for x in (grad, indices, out)):
        larger = import_module("numba_embed.larger")
        if block_rows is not None or larger.prefers_streaming(grad_array):
            return larger.stream_backward(
                grad_array,
                index_array,
                num_weights,
                padding_idx,
                scale_grad_by_freq,
                out,
                accumulate,
                on_invalid,
                core_num,
                num_threads,
                block_rows,
            )
    plan = planned(
        grad_array.shape,
        grad_array.dtype,
        index_array.shape,
        index_array.dtype,
        num_weights,
        padding_idx,
        scale_grad_by_freq,
        None if out is None else check.as_array("out", out).dtype,
        on_invalid,
        core_num,
        num_threads,
    )
    # A plan for fewer threads than are there now is not remembered: later there may be more.
    small_plan = plan.threads == 1
    if plan.threads > 1 and num_threads is None:
        plan = plan_within(plan, available_threads())
    result = plan._run(grad_array, index_array, out, accumulate, None, None)
    if usual is not None and small_plan:
        import_module("numba_embed.small").remember(_small_calls, usual, plan, grad, indices)
    return result
