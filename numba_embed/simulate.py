"""What a partition of the rows among cores means for given look-ups: who is late, and what fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from numba_embed.errors import EmbedValueError
from numba_embed.frequencies import IndexStream
from numba_embed.partition import SPLITS, CorePartition, Split, partition_rows
from numba_embed.products import (
    Product,
    advisories,
    dim_refusals,
    dtype_refusals,
    smallest_accepted_core_num,
)
from numba_embed.scalars import check_integer, integer
from numba_embed.simulation import CoreSimulation, CoreSweep
from numba_embed.validation import checked_format, checked_index_dtype, flag

HOTTEST = 10
"""Most rows that are listed as the hottest."""


def simulate_cores(
    indices: ArrayLike,
    num_weights: int,
    core_num: int,
    embedding_dim: int,
    *,
    split: Split = "counts_size",
    grad_dtype: DTypeLike = "float32",
    indices_dtype: DTypeLike | None = None,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    product: Product | str = Product.ATLAS_TRAINING,
) -> CoreSimulation:
    """Work out what every core would do for these look-ups, without any gradient.

    Parameters
    ----------
    indices : array_like
        Rows that are looked up, in ``[0, num_weights)``: 0 to 8 dims, any index dtype and layout.
        A memory-mapped array is read block by block.
    num_weights : int
        Rows of the table, V.
    core_num : int
        Cores that share the rows, at most 2**28 here.
    embedding_dim : int
        Columns of the table, D.
    split : {"counts_size", "balanced"}
        How rows are shared, see `CorePartition`.
    grad_dtype : dtype_like
        float16, bfloat16 (by name, or the ml_dtypes one), float32 or float64.
    indices_dtype : dtype_like, optional
        Index dtype to assume; that of `indices` by default.
    padding_idx : int, optional
        A row whose look-ups take no part. Negative, or V and above: no row.
    scale_grad_by_freq : bool
        Whether frequencies are needed, which is when the embedding dimension is limited.
    product : Product or str
        Whose dtypes and limits apply. The Atlas training series is the one with a published buffer.

    Returns
    -------
    CoreSimulation

    Raises
    ------
    EmbedTypeError
        If an argument is of the wrong kind or dtype.
    EmbedValueError
        If an argument has a wrong value, or a float index is not an integer.
    EmbedIndexError
        If an index lies outside ``[0, num_weights)``; the first one in C order is named.

    Notes
    -----
    O(N + V) time for V up to 2**23 or N up to 2**23, where the indices are read once; beyond that
    they are read about N / 2**23 times. Memory: 300 MiB at most, plus 16 bytes a core.
    """
    study = _Study(num_weights, embedding_dim, grad_dtype, padding_idx, scale_grad_by_freq, product)
    return study.run(indices, indices_dtype, [partition_rows(num_weights, core_num, split)])[0]


def compare_splits(
    indices: ArrayLike,
    num_weights: int,
    core_num: int,
    embedding_dim: int,
    *,
    grad_dtype: DTypeLike = "float32",
    indices_dtype: DTypeLike | None = None,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    product: Product | str = Product.ATLAS_TRAINING,
) -> dict[Split, CoreSimulation]:
    """Return the simulation of every split, counting the look-ups once.

    Parameters
    ----------
    indices, num_weights, core_num, embedding_dim : as there
        See `simulate_cores`.
    grad_dtype, indices_dtype, padding_idx, scale_grad_by_freq, product : as there
        See `simulate_cores`.

    Returns
    -------
    dict of str to CoreSimulation
        By the name of the split, "counts_size" first.

    Raises
    ------
    EmbedTypeError, EmbedValueError, EmbedIndexError
        As `simulate_cores`.

    Notes
    -----
    Time and memory are those of `simulate_cores`, with 32 bytes a core.
    """
    study = _Study(num_weights, embedding_dim, grad_dtype, padding_idx, scale_grad_by_freq, product)
    parts = [partition_rows(num_weights, core_num, split) for split in SPLITS]
    return dict(zip(SPLITS, study.run(indices, indices_dtype, parts), strict=True))


def sweep_cores(
    indices: ArrayLike,
    num_weights: int,
    core_nums: Iterable[int],
    embedding_dim: int,
    *,
    grad_dtype: DTypeLike = "float32",
    indices_dtype: DTypeLike | None = None,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    product: Product | str = Product.ATLAS_TRAINING,
) -> CoreSweep:
    """Return the simulation of every split for every core count, counting the look-ups once.

    Parameters
    ----------
    core_nums : iterable of int
        The core counts, at least one.
    indices, num_weights, embedding_dim : as there
        See `simulate_cores`.
    grad_dtype, indices_dtype, padding_idx, scale_grad_by_freq, product : as there
        See `simulate_cores`.

    Returns
    -------
    CoreSweep

    Raises
    ------
    EmbedTypeError, EmbedValueError, EmbedIndexError
        As `simulate_cores`; an EmbedValueError also without any core count.

    Notes
    -----
    Time as `simulate_cores`, and a search of O(log V) for each core. Memory: 16 bytes per core of
    all simulations together.
    """
    study = _Study(num_weights, embedding_dim, grad_dtype, padding_idx, scale_grad_by_freq, product)
    counts = list(core_nums)
    if not counts:
        raise EmbedValueError("core_nums must hold at least one core count, got none")
    parts = [partition_rows(num_weights, count, split) for split in SPLITS for count in counts]
    found = study.run(indices, indices_dtype, parts)
    cut = len(counts)
    return CoreSweep({SPLITS[0]: tuple(found[:cut]), SPLITS[1]: tuple(found[cut:])})


class _Study:
    """The checked arguments that all simulations of one call share."""

    def __init__(
        self,
        num_weights: int,
        embedding_dim: int,
        grad_dtype: DTypeLike,
        padding_idx: int | None,
        scale_grad_by_freq: bool,
        product: Product | str,
    ) -> None:
        self.num_weights = check_integer("num_weights", num_weights, 0)
        self.embedding_dim = check_integer("embedding_dim", embedding_dim, 0)
        self.grad_dtype = checked_format("grad_dtype", grad_dtype).name
        self.padding_idx = None if padding_idx is None else integer("padding_idx", padding_idx)
        self.scale_grad_by_freq = flag("scale_grad_by_freq", scale_grad_by_freq)
        self.product = Product.parse(product)

    def run(
        self, indices: ArrayLike, indices_dtype: DTypeLike | None, parts: Sequence[CorePartition]
    ) -> list[CoreSimulation]:
        """Count the look-ups and return the simulation of every partition."""
        stream = IndexStream(indices, self.num_weights)
        dtype = checked_index_dtype(
            stream.indices.dtype if indices_dtype is None else indices_dtype
        ).name
        tallies = [_Tally(part) for part in parts]
        hottest = _Hottest(self.padding_idx)
        for rows, running in stream.frequencies():
            hottest.add(rows, running)
            for tally in tallies:
                tally.add(rows, running)
        for tally in tallies:
            tally.leave_out(self.padding_idx, hottest.padding_lookups)
        columns, scale = self.embedding_dim, self.scale_grad_by_freq
        smallest = smallest_accepted_core_num(
            self.product, self.num_weights, columns, self.grad_dtype, dtype, scale
        )
        unfit = dtype_refusals(self.product, self.grad_dtype, dtype)
        notes = advisories(self.product, len(stream), self.num_weights)
        return [
            CoreSimulation(
                partition=tally.partition,
                embedding_dim=columns,
                grad_dtype=self.grad_dtype,
                indices_dtype=dtype,
                padding_idx=self.padding_idx,
                scale_grad_by_freq=scale,
                product=self.product,
                num_lookups=len(stream),
                padding_lookups=hottest.padding_lookups,
                lookups_per_core=_frozen(tally.lookups),
                distinct_rows_per_core=_frozen(tally.distinct),
                hottest_rows=tuple(hottest.rows),
                refusals=unfit
                + dim_refusals(
                    self.product, self.num_weights, tally.partition.core_num, columns, dtype, scale
                ),
                smallest_core_num=smallest,
                advisories=tuple(note.message for note in notes),
            )
            for tally in tallies
        ]


class _Tally:
    """Look-ups and distinct rows of every core of one partition."""

    def __init__(self, partition: CorePartition) -> None:
        self.partition = partition
        self.starts = partition.row_starts.astype(np.uint64)
        self.lookups = np.zeros(partition.core_num, dtype=np.int64)
        self.distinct = np.zeros(partition.core_num, dtype=np.int64)

    def add(self, rows: NDArray[np.uint64], running: NDArray[np.int64]) -> None:
        """Add a window: its rows, ascending, and the running sum of their counts from 0 on."""
        places = np.searchsorted(rows, self.starts)
        self.lookups += np.diff(running[places])
        self.distinct += np.diff(places)

    def leave_out(self, row: int | None, lookups: int) -> None:
        """Take a row's look-ups out again."""
        if row is not None and lookups:
            core = self.partition.core_of(row)
            self.lookups[core] -= lookups
            self.distinct[core] -= 1


class _Hottest:
    """The most looked-up rows but padding: (row, look-ups), falling, ties by rising row."""

    def __init__(self, padding: int | None) -> None:
        self.padding = padding
        self.padding_lookups = 0
        self.rows: list[tuple[int, int]] = []

    def add(self, rows: NDArray[np.uint64], running: NDArray[np.int64]) -> None:
        """Add a window; windows come by ascending rows."""
        counts = np.diff(running)
        if self.padding is not None and 0 <= self.padding <= int(rows[-1]):
            place = int(np.searchsorted(rows, np.uint64(self.padding)))
            if int(rows[place]) == self.padding:
                self.padding_lookups = int(counts[place])
                counts[place] = 0
        # A later row must beat those that are known, not only equal them.
        floor = self.rows[-1][1] if len(self.rows) == HOTTEST else 0
        chosen = np.flatnonzero(counts > floor)
        if chosen.size > HOTTEST:
            few = counts[chosen]
            least = np.partition(few, few.size - HOTTEST)[few.size - HOTTEST]
            above = chosen[few > least]
            chosen = np.concatenate((above, chosen[few == least][: HOTTEST - above.size]))
        found = zip(rows[chosen].tolist(), counts[chosen].tolist(), strict=True)
        self.rows = sorted([*self.rows, *found], key=lambda pair: (-pair[1], pair[0]))[:HOTTEST]


def _frozen(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.flags.writeable = False
    return array
