"""The dense gradient of operands larger than memory: block of rows by block of rows.

The positions stream by once to be checked, and twice for every block of rows that is looked up: to
count its look-ups, which decide the order of additions, and to add them. What is held in memory
grows with the rows of a block and D, not with N or V.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import address_of
from numba_embed.execute import GRAD, OUT, describe_grad, describe_out, index_words
from numba_embed.formats import Format
from numba_embed.job import Job
from numba_embed.kernels.count import NONE_BAD
from numba_embed.kernels.layout import call_word
from numba_embed.kernels.stream import (
    BUFFER,
    STREAM,
    add_and_fold,
    add_stream,
    count_lookups,
    fold_parts,
    read_rows,
    write_rows,
)
from numba_embed.order import sum_order
from numba_embed.pieces import in_pieces
from numba_embed.validation import bad_index

Array = npt.NDArray[Any]

CHUNK = 1 << 18
"""Positions that are read at a time."""

MAX_SPANS = 1 << 16
"""Most ranges of rows whose look-ups are counted while the indices are checked."""

ACCUMULATE = call_word("accumulate")


class RowStream:
    """Indices as a stream of rows, read piece by piece, whatever their layout, as often as need be.

    Parameters
    ----------
    indices
        Of any accepted dtype, byte order and strides.
    num_weights
        V, for the check of every index.
    padding_idx
        The padding row, or None.
    dropping
        Whether indices out of range take no part, instead of being errors.
    """

    def __init__(
        self, indices: Array, num_weights: int, padding_idx: int | None, dropping: bool
    ) -> None:
        self.indices, self.num_weights, self.dropping = indices, num_weights, dropping
        self._padding = -1 if padding_idx is None else padding_idx
        self.rows = np.empty(min(CHUNK, max(indices.size, 1)), np.int64)
        """The piece that was read last: rows, and -1 where a position takes no part."""

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Read piece by piece into `rows`; yield each one's first position and size.

        Raises
        ------
        EmbedIndexError, EmbedValueError
            For the first bad index.
        """
        position = 0
        for chunk in in_pieces(self.indices, self.rows.size):
            size = self._read(chunk, position)
            yield position, size
            position += size

    def _read(self, chunk: Array, position: int) -> int:
        like, words = index_words(chunk)
        operands = address_of(words), words.size, self.num_weights, self._padding, self.dropping
        bad = int(read_rows(like, *operands, address_of(self.rows)))
        if bad != NONE_BAD:
            raise bad_index(self.indices, position + bad, self.num_weights)
        return words.size

    def count(
        self, counts: npt.NDArray[np.int64], first_row: int, num_rows: int, span: int = 1
    ) -> None:
        """Add the look-ups of ``num_rows`` rows to ``counts``, one entry for each ``span`` rows."""
        for _, size in self.pieces():
            block = first_row, num_rows, span
            count_lookups(address_of(self.rows), size, *block, address_of(counts))


@dataclass
class Streamed:
    """One run; all but the values of the indices has been checked.

    Attributes
    ----------
    grad, out
        The gradient and the output, of any layout.
    stream
        The indices.
    grad_format, out_format
        The number formats.
    scale, accumulate
        Options of the call.
    block_rows
        Rows per block, at least 1.
    threads
        Threads to use.
    """

    grad: Array
    stream: RowStream
    out: Array
    grad_format: Format
    out_format: Format
    scale: bool
    accumulate: bool
    block_rows: int
    threads: int

    def run(self) -> None:
        """Check all indices, then sum and write block after block.

        O(N V / block_rows + N D + V D) time, and memory of ``block_rows * (16 D + 8)`` bytes (half
        of it where no row is cut) and a few MiB.

        Raises
        ------
        EmbedIndexError, EmbedValueError
            For the first bad index in C order; nothing is written then.
        """
        num_weights = self.out.shape[0]
        self.block_rows = min(self.block_rows, max(num_weights, 1))
        # One pass checks all indices. It also finds the blocks that are not looked up, and counts
        # the look-ups of every row where one block is the whole table.
        whole = self.block_rows >= num_weights
        blocks = -(-num_weights // self.block_rows)
        span = 1 if whole else self.block_rows * -(-blocks // MAX_SPANS)
        lookups = np.zeros(-(-num_weights // span), np.int64)
        self.stream.count(lookups, 0, num_weights, span)
        if self.out.size == 0:
            return
        self._prepare()
        for first_row in range(0, num_weights, self.block_rows):
            counts = lookups
            if not whole:
                counts = np.zeros(min(self.block_rows, num_weights - first_row), np.int64)
                if lookups[first_row // span]:
                    self.stream.count(counts, first_row, counts.size)
            self._sum_block(first_row, counts)

    def _prepare(self) -> None:
        """Fill the records that the kernels read, but for what changes from block to block."""
        self._record = np.zeros(1, STREAM)
        self._job = Job(self.threads, self._record, BUFFER)
        call = self._job.call
        call[GRAD], call[OUT] = address_of(self.grad), address_of(self.out)
        call[ACCUMULATE] = self.accumulate
        describe_grad(call, self.grad, self.grad_format)
        describe_out(call, self.out, self.out_format)
        num_weights, columns = self.out.shape
        self._order = sum_order(self.stream.indices.size, num_weights, columns)
        self._totals = np.zeros(self.block_rows * columns)
        self._parts: npt.NDArray[np.float64] | None = None  # made when a block has a cut row
        self._set(
            columns=columns,
            cut=self._order.cut,
            scale=self.scale,
            totals=address_of(self._totals),
            rows=address_of(self.stream.rows),
        )

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._record[name] = value

    def _sum_block(self, first_row: int, counts: npt.NDArray[np.int64]) -> None:
        """Sum a block of rows, whose look-ups are known, and write it."""
        most = int(counts.max(initial=0))
        if most == 0 and self.accumulate:
            return
        cut = most > 0 and most >= self._order.cut
        if cut and self._parts is None:
            self._parts = np.zeros_like(self._totals)
        self._set(
            first_row=first_row,
            num_rows=counts.size,
            counts=address_of(counts),
            parts=address_of(self._parts) if cut and self._parts is not None else 0,
        )
        if most:
            self._totals[: counts.size * self.out.shape[1]] = 0
            for position, size in self.stream.pieces():
                self._add(position, size, cut)
            if cut:
                self._job.run(fold_parts)
        self._job.run(write_rows, out=self.out_format)

    def _add(self, position: int, size: int, cut: bool) -> None:
        """Add a piece of the stream, ending blocks of positions where it passes their end."""
        length = self._order.block_length if cut else size
        first, end = position, position + size
        while first < end:
            limit = min(end, (first // length + 1) * length) if cut else end
            rows = address_of(self.stream.rows) + 8 * (first - position)
            self._set(rows=rows, first_position=first, size=limit - first)
            ends = cut and limit % length == 0
            self._job.run(add_and_fold if ends else add_stream, self.grad_format)
            first = limit


WRITTEN_ROWS = 1 << 16
"""Rows that are written at a time where no counts are kept."""


def write_sums(
    sums: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64] | None,
    out: Array,
    out_format: Format,
    threads: int,
) -> None:
    """Round ``sums``, C-contiguous, into ``out`` of the same shape, which has elements.

    With ``counts``, (V,), each row is divided by its count first; rows without one become zero.
    """
    num_weights, columns = sums.shape
    record = np.zeros(1, STREAM)
    record["columns"], record["scale"] = columns, counts is not None
    job = Job(threads, record, BUFFER)
    job.call[OUT] = address_of(out)
    describe_out(job.call, out, out_format)
    each = np.ones(min(WRITTEN_ROWS, num_weights), np.int64)
    for first_row in range(0, num_weights, WRITTEN_ROWS):
        size = min(WRITTEN_ROWS, num_weights - first_row)
        record["first_row"], record["num_rows"] = first_row, size
        record["totals"] = address_of(sums) + first_row * columns * 8
        here = each if counts is None else counts[first_row:]
        record["counts"] = address_of(here)
        job.run(write_rows, out=out_format)
