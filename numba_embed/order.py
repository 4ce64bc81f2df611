"""The one rule of order: how a row's contributions are added, from N, V and D alone.

Addition of floats does not commute with regrouping, so a result that is to be repeatable to the
bit needs one fixed order. This is it; every algorithm, serial or parallel, follows it:

* A row with fewer than ``cut`` contributions is summed in the order of the stream, in float64,
  starting at +0.0.
* A row with ``cut`` contributions or more is cut by *position*: contributions whose positions fall
  into the same block ``[k * block_length, (k + 1) * block_length)`` are summed as above, and the
  block sums are added in the order of the blocks, starting at +0.0. (A block without contributions
  adds +0.0, which changes nothing.)

Blocks are cut by position, not by occurrence, because an algorithm that streams the gradient piece
by piece into partial tables can follow only such a cut. In the small-vocabulary region ``cut`` is
0: there every row is cut, and partial tables are possible.

Nothing here may depend on the number of threads, cores, caches or the layout of the arrays.
"""

from __future__ import annotations

from typing import NamedTuple

BLOCKS = 16
"""The most blocks that a stream of positions is cut into."""

MAX_CUT = 4096
MIN_CUT = 512
"""Bounds of ``cut``. A hot row keeps ``BLOCKS`` partial sums, so ``MAX_CUT >= 256 * BLOCKS`` holds
their memory to 1/64 of the gradient's, even where that is float16."""

WIDE = 2048
"""From this embedding dimension on threads share rows by columns; partial tables do not pay."""

SMALL_TABLE = 1 << 17
"""Largest V * D of a partial table (1 MiB in float64: it stays in a second-level cache)."""

SMALL_STREAM = 4096
"""Streams shorter than this are not worth partial tables."""


class SumOrder(NamedTuple):
    """Where the sum of a row is cut.

    Attributes
    ----------
    cut
        Rows with at least this many contributions are cut; 0 in the small-vocabulary region.
    blocks
        Number of blocks of the stream.
    block_length
        Positions per block; the last block may be shorter.
    """

    cut: int
    blocks: int
    block_length: int

    @property
    def by_position(self) -> bool:
        """Whether every row is cut, so that partial tables can be used."""
        return self.cut == 0


def sum_order(num_positions: int, num_weights: int, embedding_dim: int) -> SumOrder:
    """Return the order of summation for N positions, V rows and D columns.

    Parameters
    ----------
    num_positions, num_weights, embedding_dim : int
        N, V and D, each >= 0.

    Returns
    -------
    SumOrder
        The cut, the number of blocks and their length in positions.

    Notes
    -----
    O(1). The arguments are trusted.
    """
    blocks = _small_vocabulary_blocks(num_positions, num_weights, embedding_dim)
    cut = 0
    if blocks < 2:
        blocks = BLOCKS
        cut = min(MAX_CUT, max(MIN_CUT, num_positions // BLOCKS))
    return SumOrder(cut, blocks, max(1, -(-num_positions // blocks)))


def _small_vocabulary_blocks(n: int, v: int, d: int) -> int:
    """Return how many partial tables pay, a power of two; below 2 for none.

    Zeroing and reducing a table costs V * D, filling it N * D / blocks: 4 V positions a block keep
    the overhead small. The last bound is memory: tables and their counts take at most 8 N bytes
    (indices that need a copy take the other half of the 16 N allowed) and the 4 MiB of one thread.
    """
    if n < max(8 * v, SMALL_STREAM) or not 0 < v * d <= SMALL_TABLE or d >= WIDE:
        return 0
    blocks = min(BLOCKS, n // (4 * v), (8 * n + (1 << 22)) // (8 * v * (d + 1)))
    return 1 << (blocks.bit_length() - 1) if blocks else 0
