"""How often every row is looked up, in bounded memory, for tables and index files of any size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from numba_embed.errors import EmbedValueError
from numba_embed.kernels.frequency import count_window, gather_window
from numba_embed.pieces import in_pieces
from numba_embed.validation import MAX_DIMS, as_array, bad_index, checked_index_dtype

_BLOCK = 2**18
"""Indices that are read at a time."""

_COUNTERS = 2**23
"""Rows that are counted in one array of int64 counters."""

_GATHERED = 2**23
"""Look-ups that are gathered and sorted at once."""

_RANGES = 2**16
"""Ranges that a window too large for either is cut into."""

Frequencies = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""Rows in ascending order, each once, and their look-ups as a running sum from 0 on.

The running sum has one entry more than there are rows: row i is looked up ``sum[i+1] - sum[i]``
times.
"""


class IndexStream:
    """Indices as a stream of rows that can be read again and again, checked the first time.

    Parameters
    ----------
    indices : array_like
        Row numbers in ``[0, num_weights)``: at most 8 dimensions, any index dtype of the library,
        any layout; read in C order. A memory-mapped array is never read as a whole.
    num_weights : int
        Rows of the table.

    Raises
    ------
    EmbedTypeError
        If `indices` is no array or its dtype no index dtype.
    EmbedValueError
        If `indices` has more than 8 dimensions.
    """

    def __init__(self, indices: ArrayLike, num_weights: int) -> None:
        self.indices = as_array("indices", indices)
        checked_index_dtype(self.indices.dtype)
        if self.indices.ndim > MAX_DIMS:
            raise EmbedValueError(
                f"indices must have at most {MAX_DIMS} dimensions, got {self.indices.ndim}: shape "
                f"{self.indices.shape}"
            )
        self.num_weights = num_weights
        self._checked = False

    def __len__(self) -> int:
        return int(self.indices.size)

    def blocks(self) -> Iterator[NDArray[np.uint64]]:
        """Yield the rows in C order, block by block.

        Raises
        ------
        EmbedIndexError
            If an index lies outside ``[0, num_weights)``.
        EmbedValueError
            If a float index is not an integer. Either way the first bad one is named.
        """
        position = 0
        for block in in_pieces(self.indices, _BLOCK):
            if not self._checked:
                self._check(block, position)
            position += block.size
            yield np.ascontiguousarray(block, dtype=np.uint64)
        self._checked = True

    def frequencies(self) -> Iterator[Frequencies]:
        """Yield the rows that are looked up and how often, window by window, ascending.

        Takes about 300 MiB at most, whatever the sizes. Tables of up to 2**23 rows and streams
        of up to 2**23 look-ups are read once; N look-ups in a larger table about N / 2**23 times.
        Errors are those of `blocks`.
        """
        return self._window(0, self.num_weights, len(self))

    def _window(self, low: int, size: int, lookups: int) -> Iterator[Frequencies]:
        if lookups == 0:
            return
        if size <= _COUNTERS:
            counts = self._count(low, size, 0)
            rows = np.flatnonzero(counts)
            yield rows.astype(np.uint64) + np.uint64(low), _running(counts[rows])
        elif lookups <= _GATHERED:
            yield self._sort(low, size, lookups)
        else:
            shift = (size - 1).bit_length() - (_RANGES - 1).bit_length()
            counts = self._count(low, size, shift)
            for first, end in _groups(counts, _COUNTERS >> shift):
                start, stop = first << shift, min(end << shift, size)
                yield from self._window(low + start, stop - start, int(counts[first:end].sum()))

    def _count(self, low: int, size: int, shift: int) -> NDArray[np.int64]:
        counts = np.zeros((max(size, 1) - 1 >> shift) + 1, dtype=np.int64)
        window = np.uint64(low), np.uint64(size), np.uint64(shift)
        for block in self.blocks():
            count_window(block, *window, counts)
        return counts

    def _sort(self, low: int, size: int, lookups: int) -> Frequencies:
        gathered = np.empty(lookups, dtype=np.uint64)
        filled = 0
        for block in self.blocks():
            filled = gather_window(block, np.uint64(low), np.uint64(size), gathered, filled)
        gathered = gathered[:filled]
        gathered.sort()
        new = np.ones(filled + 1, dtype=bool)
        np.not_equal(gathered[1:], gathered[:-1], out=new[1:-1])
        starts = np.flatnonzero(new)
        return gathered[starts[:-1]], starts

    def _check(self, block: NDArray[Any], position: int) -> None:
        """Raise for the first bad index of a block that starts at a position of the stream."""
        if block.dtype.kind == "f":
            # Every float index, and every bound of up to 64 bits, compares exactly as integers.
            wide = block.astype(np.float64)
            with np.errstate(invalid="ignore"):
                whole = (np.floor(wide) == wide) & (wide >= 0) & (wide < 2.0**64)
            rows = np.where(whole, wide, 0).astype(np.uint64)
            good = whole & (rows < self.num_weights)
        elif int(block.min()) >= 0 and int(block.max()) < self.num_weights:
            return
        else:
            good = (block >= 0) & (block.astype(np.uint64) < self.num_weights)
        if not good.all():
            raise bad_index(self.indices, position + int(np.argmin(good)), self.num_weights)


def _running(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    total = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=total[1:])
    return total


def _groups(counts: NDArray[np.int64], few: int) -> Iterator[tuple[int, int]]:
    """Join neighbouring ranges while they fit the counters or the buffer for gathered rows."""
    first, lookups = 0, 0
    for end, count in enumerate(counts.tolist(), 1):
        if end - first > max(few, 1) and lookups + count > _GATHERED:
            yield first, end - 1
            first, lookups = end - 1, 0
        lookups += count
    yield first, len(counts)
