"""The distinct rows of a batch, by the rank that owns them: what travels, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from numba_embed.distributed.exchange import Int64Array

ONCE, REPEATED, SILENT = range(3)
"""Rows looked up once, more often, and rows whose gradient nobody wants: the padding row."""


@dataclass(frozen=True)
class DistinctRows:
    """The rows that one rank's batch looks up, each once, in the order in which they travel.

    They are sorted by owner, then by kind (``ONCE``, ``REPEATED``, ``SILENT``), then by number, so
    that what goes to one rank is one slice, and so is each kind within it.

    Attributes
    ----------
    rows : ndarray of int64, shape (U,)
        Row numbers of the whole table.
    counts : ndarray of int64, shape (U,)
        How often the batch looks each of them up.
    first : ndarray of int64, shape (U,)
        The position of a row's first look-up.
    place : ndarray of int64, shape (N,)
        For each position of the batch, where its row stands in ``rows``.
    kinds : ndarray of int8, shape (U,)
    sizes : ndarray of int64, shape (ranks, 3)
        Rows of each owner and kind.
    """

    rows: Int64Array
    counts: Int64Array
    first: Int64Array
    place: Int64Array
    kinds: npt.NDArray[np.int8]
    sizes: Int64Array

    @property
    def owners(self) -> Int64Array:
        """The rank that owns each of the rows: shape (U,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes.sum(axis=1))


def distinct_rows(
    indices: npt.NDArray[np.integer], row_starts: Int64Array, padding_idx: int
) -> DistinctRows:
    """Find the distinct rows of a batch. O(N log N).

    Parameters
    ----------
    indices : ndarray of integers, shape (N,)
        In [0, V).
    row_starts : ndarray of int64, shape (ranks + 1,)
        The first row of each rank, and V.
    padding_idx : int
        The padding row; -1 for none.
    """
    rows, first, inverse, counts = np.unique(
        indices.astype(np.int64, copy=False),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    ranks = len(row_starts) - 1
    owners = np.repeat(np.arange(ranks), np.diff(np.searchsorted(rows, row_starts)))
    kinds = np.where(counts > 1, REPEATED, ONCE)
    kinds[rows == padding_idx] = SILENT
    group = 3 * owners + kinds
    order = np.argsort(group, kind="stable")
    rank_of = np.empty_like(order)
    rank_of[order] = np.arange(len(order))
    return DistinctRows(
        rows[order],
        counts[order],
        first[order],
        rank_of[inverse.reshape(-1)],
        kinds[order].astype(np.int8),
        np.bincount(group, minlength=3 * ranks).reshape(ranks, 3),
    )
