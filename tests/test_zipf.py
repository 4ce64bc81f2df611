"""Zipf draws against the law's exact probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.zipf import zipf_indices


@pytest.mark.parametrize("exponent", [0, 0.3, 0.9, 1, 1.0 + 1e-12, 1.1, 2.0, 3.5])
@pytest.mark.parametrize("num_weights", [1, 2, 5, 40])
def test_frequencies_follow_the_law(exponent: float, num_weights: int) -> None:
    count = 200_000
    rows = zipf_indices(exponent, count, num_weights, seed=5)
    assert rows.dtype == np.int64
    assert rows.shape == (count,)
    weights = np.arange(1, num_weights + 1) ** -float(exponent)
    expected = count * weights / weights.sum()
    seen = np.bincount(rows, minlength=num_weights)
    assert seen.size == num_weights
    # Five standard deviations of each binomial, for draws that the seed fixes.
    slack = 5 * np.sqrt(expected * (1 - expected / count)) + 1
    assert (np.abs(seen - expected) <= slack).all()


def test_large_tables_need_no_table() -> None:
    rows = zipf_indices(1.1, 1000, 2**53, seed=1)
    assert rows.min() >= 0
    assert rows.max() < 2**53
    # The tail is in reach: H(n) grows with the logarithm for an exponent near 1.
    assert zipf_indices(1.0, 1000, 2**53, seed=1).max() > 2**40
    uniform = zipf_indices(0, 100_000, 10**12, seed=2)
    assert abs(uniform.mean() / 10**12 - 0.5) < 0.01


def test_a_seed_fixes_the_draws() -> None:
    first = zipf_indices(1.1, 10_000, 1000, seed=3)
    assert (first == zipf_indices(1.1, 10_000, 1000, seed=3)).all()
    assert (first != zipf_indices(1.1, 10_000, 1000, seed=4)).any()
    assert zipf_indices(1.1, 0, 1000, seed=3).shape == (0,)
    assert not zipf_indices(50, 100, 1000, seed=3).any()


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("exponent", True, EmbedTypeError),
        ("exponent", "1", EmbedTypeError),
        ("exponent", -0.1, EmbedValueError),
        ("exponent", float("nan"), EmbedValueError),
        ("exponent", float("inf"), EmbedValueError),
        ("count", 1.0, EmbedTypeError),
        ("count", -1, EmbedValueError),
        ("num_weights", 0, EmbedValueError),
        ("num_weights", 2**53 + 1, EmbedValueError),
        ("seed", -1, EmbedValueError),
        ("seed", None, EmbedTypeError),
    ],
)
def test_arguments_are_checked(name: str, value: object, error: type[Exception]) -> None:
    arguments = {"exponent": 1.1, "count": 3, "num_weights": 10, "seed": 0, name: value}
    with pytest.raises(error, match=name):
        zipf_indices(**arguments)  # type: ignore[arg-type]
