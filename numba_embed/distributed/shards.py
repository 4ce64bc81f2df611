"""Shards of a table: their first rows, cutting them anew, and putting them together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from numba_embed.errors import EmbedTypeError, EmbedValueError

BLOCK_ROWS = 1024
"""Rows that are drawn from one seed: see `fill_normal`."""


def reshard(shards: Sequence[Tensor], rows: range) -> Tensor:
    """Cut a range of rows out of a table that was saved in shards.

    Parameters
    ----------
    shards : sequence of Tensor, shape (rows of that shard, ...)
        What the ranks of another run held, in the order of the ranks: weights, or what an optimizer
        keeps per row. Only the shards that overlap are read, so memory-mapped ones
        (``torch.load(..., mmap=True)``) may be larger than the memory.
    rows : range
        Which rows of the whole table to return; `ShardedEmbedding.rows` for the ones of a rank.

    Returns
    -------
    Tensor, shape (len(rows), ...)
        A copy.

    Raises
    ------
    EmbedTypeError
        If the shards differ in dtype, or are no tensors.
    EmbedValueError
        If they differ in shape behind the first dimension, or there are not enough rows.

    Notes
    -----
    Local: no process group is needed. O(len(rows)) time and memory.
    """
    if not shards or not all(isinstance(shard, Tensor) for shard in shards):
        raise EmbedTypeError("shards must be a sequence of at least one tensor")
    first = shards[0]
    for number, shard in enumerate(shards):
        if shard.dtype != first.dtype:
            raise EmbedTypeError(
                f"shards must have one dtype, got {first.dtype} and, in shard {number}, "
                f"{shard.dtype}"
            )
        if shard.dim() == 0 or shard.shape[1:] != first.shape[1:]:
            raise EmbedValueError(
                f"shards must agree but for their rows, got shape {tuple(first.shape)} and, in "
                f"shard {number}, {tuple(shard.shape)}"
            )
    total = sum(len(shard) for shard in shards)
    if rows.step != 1 or rows.start < 0 or rows.stop > total:
        raise EmbedValueError(f"rows must lie within the {total} rows of the shards, got {rows}")
    result = first.new_empty((len(rows), *first.shape[1:]))
    start = 0
    for shard in shards:
        low, high = max(rows.start, start), min(rows.stop, start + len(shard))
        if low < high:
            result[low - rows.start : high - rows.start] = shard[low - start : high - start]
        start += len(shard)
    return result


def fill_normal(values: Tensor, rows: range, seed: int) -> None:
    """Draw a table's rows from the normal distribution, the same ones for every split.

    Parameters
    ----------
    values : Tensor, shape (len(rows), D)
        Is overwritten.
    rows : range
        Which rows of the whole table these are.
    seed : int
        Not negative. Every ``BLOCK_ROWS`` rows of the table have a generator of their own, made of
        the seed and the number of the block.
    """
    width = values.shape[1]
    for block in range(rows.start // BLOCK_ROWS, -(-rows.stop // BLOCK_ROWS) if rows else 0):
        start = block * BLOCK_ROWS
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, block])))
        drawn = generator.standard_normal((BLOCK_ROWS, width), dtype=np.float32)
        low, high = max(rows.start, start), min(rows.stop, start + BLOCK_ROWS)
        part = torch.from_numpy(drawn[low - start : high - start])
        values[low - rows.start : high - rows.start] = part
