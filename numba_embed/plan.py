"""Phase one: shapes and dtypes in, a frozen plan out. Nothing here looks at data.

The plan fixes the rule of order, the algorithm, the digits by which positions are ordered, and the
layout of the largest workspace that a run can need.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import OBJECT_OFFSET
from numba_embed.digits import cut_digits
from numba_embed.errors import EmbedValueError
from numba_embed.formats import Format
from numba_embed.kernels import layout as at
from numba_embed.kernels.layout import ask_step
from numba_embed.machine import cache_sizes
from numba_embed.order import WIDE, SumOrder, sum_order
from numba_embed.partition import CorePartition, partition_rows
from numba_embed.sizing import num_pieces

ALIGNMENT = 64
"""Bytes of a cache line: buffers start on one, so that threads never write to a shared line."""

MAX_ROWS = 1 << 62
"""Most rows of a table that is looked up: int64 holds them with a bit to spare."""

ZEROED_BYTES = 32 << 20
"""Fresh outputs from this size on come from the system, zeroed, page by page when first touched:
rows that no index names are left alone. Smaller ones are recycled memory, to be written anyway."""

WORD = 8

ENTRY_BITS = 64
"""Bits of an entry of the order, which packs a row and a position."""


class _Layout:
    """Hands out aligned pieces of a workspace."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, nbytes: int) -> int:
        """Reserve ``nbytes`` and return their offset."""
        offset = self.size
        self.size = offset + -(-nbytes // ALIGNMENT) * ALIGNMENT
        return offset


@dataclass(frozen=True)
class BackwardPlan:
    """Everything about a call that shapes, dtypes and attributes decide.

    Attributes
    ----------
    num_positions, num_weights, embedding_dim
        N, V and D.
    grad_format, out_format
        The number formats of grad and out.
    padding_idx
        The padding row, or None if no row is padding.
    scale_grad_by_freq
        Whether a row's sum is divided by its frequency.
    dropping
        Whether indices out of range take no part, instead of being errors.
    core_num
        Number of logical cores that own rows.
    threads
        Number of pieces that parallel phases are cut into.

    Raises
    ------
    EmbedValueError
        If V is above 2**62, or N and V are so large together that a (row, position) pair needs more
        than 64 bits.
    """

    num_positions: int
    num_weights: int
    embedding_dim: int
    grad_format: Format
    out_format: Format
    padding_idx: int | None
    scale_grad_by_freq: bool
    dropping: bool
    core_num: int
    threads: int

    def __post_init__(self) -> None:
        if self.num_positions and self.num_weights > MAX_ROWS:
            raise EmbedValueError(
                f"num_weights must be at most {MAX_ROWS} where there are indices, "
                f"got {self.num_weights}"
            )
        bits = max(self.num_weights - 1, 1).bit_length() + self.position_bits
        if bits > ENTRY_BITS:
            raise EmbedValueError(
                f"num_weights = {self.num_weights} with {self.num_positions} indices is too large: "
                f"a pair of row and position takes {bits} bits, at most {ENTRY_BITS} are supported"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: what is derived holds addresses of this process."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def position_bits(self) -> int:
        """Bits that a position takes; N itself, the end of the last block, fits as well."""
        return max(self.num_positions, 1).bit_length()

    @cached_property
    def order(self) -> SumOrder:
        """The rule by which sums are cut."""
        return sum_order(self.num_positions, self.num_weights, self.embedding_dim)

    @property
    def algorithm(self) -> str:
        """Either "tables" (small vocabularies: partial tables) or "gather" (sums row by row)."""
        return "tables" if self.order.by_position else "gather"

    @property
    def partition(self) -> CorePartition:
        """The documented countsSize split of the rows among ``core_num`` cores."""
        return partition_rows(self.num_weights, self.core_num)

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of the largest workspace that a run can need, slack for alignment included."""
        return self._laid_out[1]

    @cached_property
    def out_shape(self) -> tuple[int, int]:
        """The shape of the result, (V, D)."""
        return self.num_weights, self.embedding_dim

    @cached_property
    def out_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the result."""
        return self.out_format.dtype

    @cached_property
    def out_nbytes(self) -> int:
        """Bytes of the result."""
        return self.num_weights * self.embedding_dim * self.out_format.itemsize

    @cached_property
    def fresh_zeroed(self) -> bool:
        """Whether a fresh result comes zeroed from the system."""
        return self.out_nbytes >= ZEROED_BYTES

    @cached_property
    def streaming(self) -> bool:
        """Whether the result is written past the caches, if it is contiguous."""
        return self.out_nbytes >= cache_sizes().outgrown

    @cached_property
    def spares(self) -> list[Any]:
        """Call records and scratch memory of earlier small runs; see `numba_embed.execute`."""
        return []

    @cached_property
    def small_calls(self) -> dict[Any, Any]:
        """What runs small calls on plain arrays, by shapes and dtypes; see `numba_embed.small`."""
        return {}

    @cached_property
    def small_records(self) -> list[Any]:
        """The call records that small calls of this plan share, each one's scratch with it."""
        return []

    @cached_property
    def call_template(self) -> npt.NDArray[np.int64]:
        """The call record of a run on C-contiguous native arrays, but for their addresses."""
        record = np.zeros(1, at.CALL)
        record["plan"] = self._laid_out[0].ctypes.data
        record["pieces"] = self.pieces
        record["out_row"] = self.embedding_dim * self.out_format.itemsize
        record["out_column"] = self.out_format.itemsize
        record["object_offset"] = OBJECT_OFFSET
        record["streaming"] = self.streaming
        record["plain"] = 1
        record["grad_column"] = self.grad_format.itemsize
        record["grad_dims"] = 1
        record["grad_shape"][0, 0] = self.num_positions
        record["grad_strides"][0, 0] = self.embedding_dim * self.grad_format.itemsize
        return record.view(np.int64)

    @cached_property
    def max_hot(self) -> int:
        """How many rows may be cut and summed by block beforehand, shared by all threads."""
        if self.threads == 1 or self.embedding_dim >= WIDE or self.order.by_position:
            return 0
        return self.num_positions // self.order.cut

    @cached_property
    def pieces(self) -> int:
        """How many ranges of rows the sums are cut into, but for those of fresh zeroed results."""
        return num_pieces(self.threads, self.num_weights)

    @property
    def row_like(self) -> np.uint32 | np.uint64:
        """A zero of the type that holds a checked row."""
        return _NARROW_ROW if self.num_weights < 1 << 32 else _WIDE_ROW

    @cached_property
    def programs(self) -> dict[Any, Any]:
        """What has been compiled for runs of this plan; `numba_embed.execute` fills it."""
        return {}

    @cached_property
    def conversion_offset(self) -> int:
        """Where in the workspace N eight-byte words are free for a copy of the indices."""
        record = self._laid_out[0][0]
        # Not where the rows go: those may be shorter, so that threads would write over indices
        # that others have yet to read.
        rows_in_entries = not self.order.by_position and record["digits"] % 2 == 0
        return int(record["scattered" if rows_in_entries else "entries"])

    @cached_property
    def _laid_out(self) -> tuple[npt.NDArray[np.void], int]:
        return _lay_out(self)

    def __str__(self) -> str:
        partition = self.partition
        return "\n".join(
            (
                f"embedding_dense_backward plan: N = {self.num_positions}, "
                f"V = {self.num_weights}, D = {self.embedding_dim}",
                f"  {self.grad_format.name} -> {self.out_format.name}, padding row "
                f"{self.padding_idx}, scale by frequency: {self.scale_grad_by_freq}",
                f"  algorithm {self.algorithm}, {self.threads} thread(s), {self.core_num} core(s) "
                f"of at most {partition.counts_size} rows",
                f"  rows with >= {self.order.cut} contributions are cut into blocks of "
                f"{self.order.block_length} positions",
                f"  workspace {self.workspace_nbytes} bytes",
            )
        )


_NARROW_ROW, _WIDE_ROW = np.uint32(0), np.uint64(0)


def _lay_out(plan: BackwardPlan) -> tuple[npt.NDArray[np.void], int]:
    """Return the plan record, (1,), and the workspace's size in bytes."""
    n, v, d = plan.num_positions, plan.num_weights, plan.embedding_dim
    threads, order = plan.threads, plan.order
    record = SimpleNamespace(**dict.fromkeys(at.PLAN.names or (), 0))
    record.num_positions, record.num_weights, record.columns = n, v, d
    record.padding = -1 if plan.padding_idx is None else plan.padding_idx
    record.scale, record.dropping = plan.scale_grad_by_freq, plan.dropping
    record.threads = threads
    record.cut, record.blocks, record.block_length = order
    record.position_bits = plan.position_bits
    record.column_slices = 1
    row_bytes = max(1, min(d, at.TILE) * plan.grad_format.itemsize)
    record.ask_step = ask_step(row_bytes)

    layout = _Layout()
    record.core_rows = v // plan.core_num
    if order.by_position:
        record.entries = layout.take(n * WORD)  # converted indices
        record.tables = layout.take(order.blocks * v * d * WORD)
        record.table_counts = layout.take(order.blocks * v * WORD)
    else:
        record.digit_bits, record.digits = cut_digits(n, v, threads)
        record.entries = layout.take(n * WORD)
        record.scattered = layout.take(n * WORD)
        record.histogram = layout.take((threads << record.digit_bits) * WORD)
        if threads > 1 and d >= WIDE:
            record.column_slices = min(4 * threads, d // (WIDE // 4))
        record.max_hot = plan.max_hot
        record.hot = record.scattered  # free again once the positions are in order
        record.hot_sums = layout.take(plan.max_hot * order.blocks * d * WORD)
    record.bad = layout.take(threads * WORD)
    record.tickets = layout.take(WORD)
    record.private_stride = -(-at.PRIVATE // ALIGNMENT) * ALIGNMENT
    record.private = layout.take(threads * record.private_stride)
    return np.array([tuple(vars(record).values())], at.PLAN), layout.size + ALIGNMENT
