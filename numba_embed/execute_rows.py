"""Phase two of the row gradient, and the use of its rows: compact sums in, rows of a table out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import address_of
from numba_embed.execute import STREAMING, Kernels, execute, run_counted, run_sum
from numba_embed.formats import Format
from numba_embed.job import Job
from numba_embed.kernels.compact import HEADS, ROWS, list_rows, sum_listed, sum_listed_hot
from numba_embed.kernels.update import BUFFER, UPDATE, update_rows
from numba_embed.machine import cache_sizes
from numba_embed.plan import ALIGNMENT, BackwardPlan
from numba_embed.pool import current as current_pool
from numba_embed.workspace import RunReport

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

KERNELS: Kernels = {
    ("count", "gather"): list_rows,
    ("count", "gather_hot"): list_rows,
    ("sum", "gather"): sum_listed,
    ("sum", "gather_hot"): sum_listed_hot,
}
"""What to launch for a part of a run, by the plan's algorithm."""


def streamed_bytes() -> int:
    """Return the size from which on values are written past the caches.

    They are as large as the gradient rows that pass at the same time, or nearly so: half of what
    a table may have.
    """
    return cache_sizes().outgrown // 2


def execute_rows(
    plan: BackwardPlan,
    grad: Array,
    indices: Array,
    scratch: npt.NDArray[np.uint8],
    dtype: npt.DTypeLike,
) -> tuple[Rows, Array]:
    """Sum the looked-up rows alone. Returns those rows, ascending, and their sums, fresh arrays.

    All other checks have passed; ``scratch`` has ``plan.workspace_nbytes`` bytes at any address;
    ``dtype`` is the output format's, or one of its size. A pool of outputs, where there is one,
    lends the values.

    Raises
    ------
    EmbedIndexError, EmbedValueError
        For the first bad index in C order.
    """
    if plan.order.by_position:
        return _from_tables(plan, grad, indices, scratch, dtype)
    listing = np.empty(HEADS + plan.pieces, np.int64)  # as many pieces as a call record begins with
    call = run_counted(plan, indices, scratch, KERNELS, address_of(listing))
    num_rows = sum(listing[HEADS:].tolist())  # a handful: faster than by NumPy
    rows: Rows = np.empty(num_rows, np.int64)
    listing[ROWS] = address_of(rows)
    values = _empty((num_rows, plan.embedding_dim), dtype)
    call[STREAMING] = values.nbytes >= streamed_bytes()
    run_sum(plan, grad, values, call, KERNELS)
    return rows, values


def _from_tables(
    plan: BackwardPlan,
    grad: Array,
    indices: Array,
    scratch: npt.NDArray[np.uint8],
    dtype: npt.DTypeLike,
) -> tuple[Rows, Array]:
    """Take the rows from the whole table, of a small vocabulary: V is at most N / 8 there."""
    dense = _empty(plan.out_shape, dtype)
    execute(plan, grad, indices, dense, False, scratch, RunReport())  # which counts frequencies
    start = -address_of(scratch) % ALIGNMENT + int(plan._laid_out[0]["table_counts"][0])
    words = plan.order.blocks * plan.num_weights
    counts = scratch[start : start + 8 * words].view(np.int64)
    rows = np.flatnonzero(counts.reshape(plan.order.blocks, plan.num_weights).any(axis=0))
    return rows, dense if rows.size == plan.num_weights else dense[rows]


def _empty(shape: tuple[int, int], dtype: npt.DTypeLike) -> Array:
    pool = current_pool()
    return np.empty(shape, dtype) if pool is None else pool.empty(shape, dtype)


def put_rows(
    rows: Rows,
    values: Array,
    value_format: Format,
    target: Array,
    target_format: Format,
    alpha: float | None,
    threads: int,
) -> None:
    """Put each row of ``values`` (C-contiguous, native) into its row of ``target``.

    With an ``alpha``, ``alpha`` times the row is added to what is there instead.
    """
    if not values.size:
        return
    record = np.zeros(1, UPDATE)
    size, columns = values.shape
    for name, value in (
        ("rows", address_of(rows)),
        ("size", size),
        ("columns", columns),
        ("values", address_of(values)),
        ("target", address_of(target)),
        ("target_row", target.strides[0]),
        ("target_column", target.strides[1] if columns > 1 else target.itemsize),
        ("target_swap", not target.dtype.isnative),
        ("adding", alpha is not None),
        ("alpha", 0.0 if alpha is None else alpha),
    ):
        record[name] = value
    Job(threads, record, BUFFER).run(update_rows, value_format, target_format)
