"""How positions are put in order by the digits of their rows: every number of digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inputs import THREADS, around, refused, spread, thresholds
from reference import assert_same_bits

import numba_embed as ne
from numba_embed.digits import MAX_BITS, cut_digits, most_bits
from numba_embed.kernels.layout import MOST_DIGITS
from numba_embed.plan import MAX_ROWS

TABLES = {
    300: 1,
    5000: 2,
    10**6: 2,
    10**8: 3,
    2**32 - 1: 3,
    2**40: 4,
    10**13: 4,
    2**50: 5,
    2**52: 5,
}
"""Rows of a table, and how many digits they have where look-ups are many."""


@pytest.mark.parametrize("positions", [0, 1, 100, 10**4, 10**6, 2**40])
@pytest.mark.parametrize("threads", [1, 2, 64])
def test_digits_hold_every_row(positions: int, threads: int) -> None:
    for many in [0, *around([1 << bits for bits in range(62)], 1), MAX_ROWS]:
        if not 0 <= many <= MAX_ROWS:
            continue
        bits, digits = cut_digits(positions, many, threads)
        assert 1 <= digits <= MOST_DIGITS
        assert 1 <= bits <= MAX_BITS
        assert bits * digits >= max(many - 1, 1).bit_length()
        assert bits <= max(most_bits(), -(-62 // MOST_DIGITS))


def test_few_positions_have_short_digits() -> None:
    assert cut_digits(10**6, 10**6, 1) == (10, 2)
    bits, digits = cut_digits(10, 10**6, 1)
    assert bits < 10
    assert digits > 2


def drawn(random: np.random.Generator, many: int, size: int) -> Any:
    """Draw look-ups: a hot row, neighbours, both ends and any others; and a gradient."""
    rows = random.integers(0, many, size)
    rows[: size // 4] = many // 2
    rows[size // 4 : size // 3] = many - 1 - np.arange(size // 3 - size // 4) % 7
    rows[-3:] = 0
    return random.permutation(rows), spread(random, (size, 2), "float64")


def expected(rows: Any, grad: Any) -> tuple[Any, Any]:
    """Return the distinct rows and their sums, added one by one in stream order."""
    distinct, inverse = np.unique(rows, return_inverse=True)
    sums = np.zeros((distinct.size, 2))
    np.add.at(sums, inverse, grad)
    return distinct, sums


@pytest.mark.parametrize("size", [3, 40, 1500])
@pytest.mark.parametrize("many", TABLES)
def test_every_number_of_digits(many: int, size: int) -> None:
    """Plain indices, and such as are converted into the workspace first, for all threads."""
    rows, grad = drawn(np.random.default_rng(many % 2**32 + size), many, size)
    want = expected(rows, grad)
    backwards = np.ascontiguousarray(rows[::-1])[::-1]
    kinds = [rows, backwards, rows.astype(">i8"), rows.astype(np.float64), rows.astype(np.uint64)]
    if many <= 2**32:
        kinds.append(rows.astype(np.uint32))
    for ids in kinds:
        for threads in THREADS:
            found = ne.embedding_row_gradient(grad, ids, many, num_threads=threads)
            assert_same_bits(found.rows, want[0])
            # Fewer look-ups of a row than are ever cut: sums in stream order, bit for bit.
            assert_same_bits(found.values, want[1])


def test_all_numbers_of_digits_occur() -> None:
    found = {cut_digits(size, many, 1)[1] for many in TABLES for size in (3, 40, 1500)}
    assert found == set(range(1, MOST_DIGITS + 1))
    for many, digits in TABLES.items():
        assert cut_digits(10**7, many, 1)[1] == digits


@pytest.mark.parametrize("many", [300, 5000, 10**8])
def test_positions_that_take_no_part(many: int) -> None:
    """Padding and dropped indices, whatever the number of digits; and nothing else left."""
    rows, grad = drawn(np.random.default_rng(many), many, 600)
    ids = rows.copy()
    ids[::5], ids[1::5] = many, -1
    taking = (ids >= 0) & (ids < many) & (ids != many // 2)
    want = expected(ids[taking], grad[taking])
    for threads in THREADS:
        options: Any = {"on_invalid": "drop", "num_threads": threads}
        found = ne.embedding_row_gradient(grad, ids, many, many // 2, **options)
        assert_same_bits(found.rows, want[0])
        assert_same_bits(found.values, want[1])
        none = ne.embedding_row_gradient(grad, np.full(600, many), many, **options)
        assert none.rows.size == 0
        assert none.values.shape == (0, 2)
        with refused(ne.EmbedIndexError, many, many):
            ne.embedding_row_gradient(grad, np.full(600, many), many, num_threads=threads)


def test_sizes_around_the_thresholds_of_digits() -> None:
    """Numbers of positions at which the digits of a table change, on either side."""
    many = 10**6
    sizes = around(thresholds(lambda size: cut_digits(size, many, 1), 1, 20_000), 1)
    assert len(sizes) >= 6
    for size in sizes:
        rows, grad = drawn(np.random.default_rng(size), many, max(size, 8))
        rows, grad = rows[:size], grad[:size]
        want = expected(rows, grad)
        for threads in THREADS:
            found = ne.embedding_row_gradient(grad, rows, many, num_threads=threads)
            assert_same_bits(found.rows, want[0])
            np.testing.assert_allclose(found.values, want[1], rtol=1e-9, atol=1e-6)
