"""How the rows' numbers are cut into digits, by which the positions are put in order."""

from __future__ import annotations

from numba_embed.kernels.layout import MOST_DIGITS
from numba_embed.machine import cache_sizes

MIN_BITS, MAX_BITS = 8, 16
"""Bounds of `most_bits`, whatever the caches. MOST_DIGITS of 11 bits make the largest row."""

_PASS = 3
"""What counting and moving one position costs, in units of one counter's clearing and summing."""

_START = 32
"""What beginning with another digit costs, in the same units."""


def most_bits() -> int:
    """Return the most bits of a digit: its int64 counters stay in a first-level cache."""
    counters = cache_sizes().resident // 8
    return max(MIN_BITS, min(MAX_BITS, counters.bit_length() - 1))


def cut_digits(num_positions: int, num_weights: int, threads: int) -> tuple[int, int]:
    """Return the bits of a digit and the number of digits, both >= 1, that hold every row. O(1).

    Few positions are ordered fastest by many short digits, many by few long ones.

    Parameters
    ----------
    num_positions, num_weights, threads : int
        N and V, >= 0, and the threads that share the positions and have counters each.
    """
    row_bits = max(1, (num_weights - 1).bit_length()) if num_weights else 1
    least = min(MOST_DIGITS, -(-row_bits // most_bits()))

    def cost(digits: int) -> float:
        counters = threads << -(-row_bits // digits)
        return digits * (_PASS * num_positions / threads + counters + _START)

    digits = min(range(least, MOST_DIGITS + 1), key=cost)
    return -(-row_bits // digits), digits
