"""Look-ups drawn from Zipf's law, as words of a vocabulary sorted by frequency have them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.scalars import check_integer, shown

MAX_ROWS = 2**53
"""Most rows: ranks are drawn as float64."""

_BLOCK = 2**18


def zipf_indices(exponent: float, count: int, num_weights: int, seed: int) -> NDArray[np.int64]:
    """Draw rows of a table such that row r comes up in proportion to ``(r + 1) ** -exponent``.

    Parameters
    ----------
    exponent : float
        0 (all rows alike) and above; about 1 for words of a text.
    count : int
        How many to draw.
    num_weights : int
        Rows of the table, 1 to 2**53.
    seed : int
        0 and above; the same seed draws the same rows.

    Returns
    -------
    ndarray of int64, shape ``(count,)``

    Raises
    ------
    EmbedTypeError
        If an argument is of the wrong kind.
    EmbedValueError
        If an argument lies outside its range.

    Notes
    -----
    Rejection-inversion sampling: W. Hormann and G. Derflinger, "Rejection-inversion to generate
    variates from monotone discrete distributions", ACM TOMACS 6 (1996). O(count) for any table.
    """
    if isinstance(exponent, (bool, np.bool_)) or not isinstance(
        exponent, (int, float, np.integer, np.floating)
    ):
        raise EmbedTypeError(f"exponent must be a number, got {shown(exponent)}")
    exponent = float(exponent)
    if not (0.0 <= exponent < math.inf):
        raise EmbedValueError(f"exponent must be 0 or above and finite, got {exponent}")
    count = check_integer("count", count, 0, 2**63 - 1)
    ranks = check_integer("num_weights", num_weights, 1, MAX_ROWS)
    generator = np.random.default_rng(check_integer("seed", seed, 0))
    law = _Law(exponent, ranks)
    rows = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        drawn = law.draw(generator.random(min(_BLOCK, count)))[: count - filled]
        rows[filled : filled + drawn.size] = drawn
        filled += drawn.size
    rows -= 1
    return rows


class _Law:
    """The hat function ``x ** -exponent``, its integral, and the integral's inverse."""

    def __init__(self, exponent: float, ranks: int) -> None:
        self.exponent = exponent
        self.ranks = ranks
        low, high = self._integral(np.array([1.5, ranks + 0.5]))
        self.low = float(low) - 1.0
        self.span = float(high) - self.low
        second = self._integral(np.array([2.5])) - 2.0**-exponent
        self.shortcut = 2.0 - float(self._inverse(second)[0])

    def draw(self, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn uniform numbers from [0, 1) into ranks from 1 on; some are rejected."""
        area = self.low + uniform * self.span
        place = self._inverse(area)
        rank = np.clip(np.floor(place + 0.5), 1.0, float(self.ranks))
        kept = rank - place <= self.shortcut
        kept |= area >= self._integral(rank + 0.5) - rank**-self.exponent
        return rank[kept]

    def _integral(self, place: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the integral of the hat from 1 to a place; exact in the limit of exponent 1."""
        log = np.log(place)
        power = (1.0 - self.exponent) * log
        small = np.abs(power) < 1e-8
        return log * np.where(small, 1.0 + power / 2, np.expm1(power) / np.where(small, 1.0, power))

    def _inverse(self, area: NDArray[np.float64]) -> NDArray[np.float64]:
        grown = np.maximum(area * (1.0 - self.exponent), -1.0)
        small = np.abs(grown) < 1e-8
        with np.errstate(divide="ignore"):
            log = np.where(small, 1.0 - grown / 2, np.log1p(grown) / np.where(small, 1.0, grown))
        return np.exp(area * log)
