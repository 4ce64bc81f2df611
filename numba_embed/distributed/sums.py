"""The sums of the two sides of the exchange: before a gradient travels, and at its row's owner."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from numba_embed.distributed.distinct import ONCE, REPEATED, DistinctRows
from numba_embed.distributed.exchange import Int64Array
from numba_embed.torch.backend import output_pool
from numba_embed.torch.dense import dense_backward


def outgoing_gradients(grad: Tensor, batch: DistinctRows) -> tuple[Tensor, Tensor]:
    """Return what a batch's rows have to add to the table's gradient.

    Parameters
    ----------
    grad : Tensor, shape (N, D)
        Gradient of the looked-up rows, any strides.
    batch : DistinctRows
        Of the N look-ups.

    Returns
    -------
    once : Tensor, shape (rows looked up once, D)
        Their gradients as they are, of grad's dtype.
    sums : Tensor, shape (rows looked up more often, D)
        float64, summed by this library's kernels and not rounded.
    """
    once = grad[torch.from_numpy(batch.first[batch.kinds == ONCE])]
    return once, presum(grad, batch)


def presum(grad: Tensor, batch: DistinctRows) -> Tensor:
    """Sum the gradients of the rows that the batch looks up more than once; float64."""
    repeated = batch.kinds == REPEATED
    number = np.where(repeated, np.cumsum(repeated) - 1, -1)
    size = int(repeated.sum())
    if not size:
        return grad.new_empty((0, grad.shape[1]), dtype=torch.float64)
    slots = torch.from_numpy(number[batch.place])
    # Positions of all other rows have the slot -1, and are passed over.
    return dense_backward(grad, slots, size, -1, False, "drop", out_dtype=torch.float64)


def merged(once: Tensor, sums: Tensor, kinds: Int64Array) -> Tensor:
    """Return what all ranks sent, in the order of the ranks.

    Parameters
    ----------
    once : Tensor, shape (A, D)
        Gradients of rows that a rank looked up once.
    sums : Tensor, shape (B, D)
        float64 sums of a rank's other rows.
    kinds : ndarray of int, shape (A + B,)
        Whether the next row is of ``once`` or of ``sums``.

    Returns
    -------
    Tensor, shape (A + B, D)
        float64; or ``once`` itself, if there are no sums.
    """
    if not len(sums):
        return once
    result = once.new_empty((len(kinds), once.shape[1]), dtype=torch.float64)
    result[torch.from_numpy(kinds == ONCE)] = once.double()
    result[torch.from_numpy(kinds == REPEATED)] = sums
    return result


def table_gradient(
    parts: Tensor,
    rows: Tensor,
    num_rows: int,
    dtype: torch.dtype,
    counts: Tensor | None = None,
    ranks: int = 1,
) -> Tensor:
    """Sum by row what the ranks sent, and round once.

    Parameters
    ----------
    parts : Tensor, shape (R, D)
        In the order of the ranks; no rank has two parts for one row.
    rows : Tensor, shape (R,)
        int32 or int64, in [0, num_rows).
    num_rows : int
        Rows of this rank's share.
    dtype : torch.dtype
        Of the result.
    counts : Tensor, shape (R,), optional
        int64, the look-ups in each part: a row's sum is divided by their number, in float64.
    ranks : int, default 1
        By what every row is divided then.

    Returns
    -------
    Tensor, shape (num_rows, D)
        Zero in the rows that nobody looked up. The bits depend on the values and the order of the
        parts only.
    """
    pool = output_pool()
    if counts is None and ranks == 1:
        return dense_backward(parts, rows, num_rows, -1, False, pool=pool, out_dtype=dtype)
    # The division comes between the sum and the rounding: first the sums of the rows that there
    # are, not rounded, and then each of them to its place in the table.
    found, inverse = np.unique(rows.numpy(), return_inverse=True)
    slots = torch.from_numpy(inverse.reshape(-1))
    sums = dense_backward(parts, slots, len(found), -1, False, out_dtype=torch.float64)
    if counts is not None:
        lookups = torch.zeros(len(found), dtype=torch.int64).index_add_(0, slots, counts)
        sums /= lookups.unsqueeze(1)
    sums /= ranks  # on its own: so it has the bits of one process's float64 gradient divided by it
    places = torch.from_numpy(found)
    return dense_backward(sums, places, num_rows, -1, False, pool=pool, out_dtype=dtype)
