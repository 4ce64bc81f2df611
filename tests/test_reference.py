"""The reference itself, checked with rational numbers and by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    FLOATS,
    Array,
    assert_close_to_exact,
    assert_same_bits,
    bits,
    dense_backward,
    exact_sum,
    fast_dense_backward,
    ordered_sum,
    round_once,
    ulp,
)

NARROW = ["float16", "bfloat16", "float32"]


def nearest_by_search(number: Fraction, name: str) -> float:
    """Round a positive number to a dtype by bisecting its sorted bit patterns."""
    dtype = FLOATS[name]
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.itemsize]

    def value(pattern: int) -> Fraction | None:
        number = float(np.array([pattern], dtype=unsigned).view(dtype)[0])
        return Fraction(number) if np.isfinite(number) else None

    low, high = 0, int(bits(np.array([np.inf]).astype(dtype))[0])
    while high - low > 1:
        middle = (low + high) // 2
        at = value(middle)
        low, high = (middle, high) if at is not None and at <= number else (low, middle)
    below, above = value(low), value(high)
    assert below is not None
    if above is None:  # infinity takes the place of the number that would follow the largest
        before = value(low - 1)
        assert before is not None
        above = below + (below - before)
    closer = low if number - below < above - number else high
    if number - below == above - number:
        closer = low if low % 2 == 0 else high
    return float(np.array([closer], dtype=unsigned).view(dtype)[0])


@pytest.mark.parametrize("name", NARROW)
@given(st.data())
def test_round_once_agrees_with_rational_numbers(name: str, data: st.DataObject) -> None:
    """Near ties of every binade, with a hair on either side that float64 cannot hold."""
    top = {"float16": 0x7BFF, "bfloat16": 0x7F7F, "float32": 0x7F7FFFFF}[name]
    dtype = FLOATS[name]
    unsigned = {2: np.uint16, 4: np.uint32}[dtype.itemsize]
    pattern = data.draw(st.integers(0, top))
    value = float(np.array([pattern], dtype=unsigned).view(dtype)[0])
    tie = value + ulp(value, dtype) / 2
    for wide in (value, tie, np.nextafter(tie, 0), np.nextafter(tie, np.inf)):
        for lost in (-1, 0, 1):
            number = Fraction(float(wide)) + lost * Fraction(1, 2**1100)
            if number < 0:
                continue
            want = nearest_by_search(number, name)
            assert float(round_once(wide, lost, dtype)) == want, (wide, lost)
            assert float(round_once(-wide, -lost, dtype)) == -want, (wide, lost)


def test_round_once_of_special_values() -> None:
    for dtype in FLOATS.values():
        got = round_once([np.inf, -np.inf, 0.0, -np.nan], [0, 0, 0, 0], dtype)
        assert_same_bits(got[:3], np.array([np.inf, -np.inf, 0.0]).astype(dtype))
        assert bits(got)[3] == bits(np.array([np.nan]).astype(dtype))[0]


def test_exact_sum_keeps_the_sign_of_what_it_lost() -> None:
    assert exact_sum([1.0, 2.0**-60]) == (1.0, 1)
    assert exact_sum([1.0, -(2.0**-60)]) == (1.0, -1)
    assert exact_sum([1.0, 2.0]) == (3.0, 0)
    assert exact_sum([1e308, np.inf]) == (np.inf, 0)
    assert np.isnan(exact_sum([np.inf, -np.inf])[0])
    assert not np.signbit(exact_sum([-0.0])[0])


def test_a_tie_that_only_fsum_sees() -> None:
    """1 + 2^-11 is a tie of float16; 2^-70 more is lost to float64 and still decides."""
    grad = np.array([[1.0], [2.0**-11], [2.0**-70]])
    got = dense_backward(grad, [0, 0, 0], 1, out_dtype=np.float16)
    assert float(got[0, 0]) == 1 + 2.0**-10
    assert_same_bits(
        fast_dense_backward(grad[:2], [0, 0], 1, out_dtype=np.float16), np.ones((1, 1), np.float16)
    )


def test_the_worked_example() -> None:
    grad = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    want = np.array([[0, 0, 0], [1, 2, 3], [4, 5, 6], [0, 0, 0]], dtype=np.float32)
    assert_same_bits(dense_backward(grad, [1, 2], 4, 0), want)
    assert_same_bits(fast_dense_backward(grad, [1, 2], 4, 0), want)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("name", list(FLOATS))
def test_the_fast_reference_agrees_with_the_slow_one(name: str, scale: bool) -> None:
    random = np.random.default_rng(5)
    grad = random.standard_normal((9, 40, 3)).astype(FLOATS[name])
    ids = random.integers(-2, 33, (9, 40))
    for dtype in FLOATS.values():
        for old in (None, random.standard_normal((30, 3)).astype(dtype)):
            slow = dense_backward(grad, ids, 30, 4, scale, out_dtype=dtype, old=old, drop=True)
            fast = fast_dense_backward(grad, ids, 30, 4, scale, out_dtype=dtype, old=old, drop=True)
            assert_same_bits(fast, slow)


def ordered_loop(grad: Array, ids: Array, num_weights: int, cut: int, block_length: int) -> Array:
    """The order word by word, in Python floats."""
    out = np.zeros((num_weights, grad.shape[1]))
    for row in range(num_weights):
        positions = [i for i, value in enumerate(ids.tolist()) if value == row]
        for column in range(grad.shape[1]):
            sums: dict[int, float] = {}
            for i in positions:
                block = 0 if len(positions) < cut else i // block_length
                sums[block] = sums.get(block, 0.0) + float(grad[i, column])
            total = 0.0
            for block in sorted(sums):
                total += sums[block]
            out[row, column] = total
    return out


@pytest.mark.parametrize("cut", [0, 1, 5, 20, 1000])
@pytest.mark.parametrize("block_length", [1, 7, 50, 100, 101, 1000])
def test_the_ordered_sum_is_the_order_word_by_word(cut: int, block_length: int) -> None:
    random = np.random.default_rng(cut + block_length)
    grad = random.standard_normal((101, 2)) * 10.0 ** random.integers(-8, 8, (101, 1))
    ids = np.minimum(random.integers(0, 20, 101), 9)
    got = ordered_sum(grad, ids, 10, cut=cut, block_length=block_length)
    assert_same_bits(got, ordered_loop(grad, ids, 10, cut, block_length))


def test_orders_can_be_told_apart() -> None:
    """The data that the order tests draw show a changed order, or those tests show nothing."""
    random = np.random.default_rng(1)
    grad = random.standard_normal((1000, 1))
    ids = np.zeros(1000, dtype=np.int64)
    results = {
        float(ordered_sum(grad, ids, 1, cut=cut, block_length=length)[0, 0])
        for cut, length in [(2000, 1), (0, 10), (0, 100), (0, 500)]
    }
    assert len(results) > 2


def test_the_comparisons_do_compare() -> None:
    one = np.ones((1, 2), dtype=np.float32)
    near = np.nextafter(one, np.float32(2))
    grad = np.ones((1, 2), dtype=np.float32)
    assert_same_bits(one, one.copy())
    assert_close_to_exact(one, grad, [0], 1)
    for wrong in (
        near,
        -one,
        one.astype(np.float64),
        one[0],
        [[1.0, 1.0]],
        one * np.float32(np.nan),
    ):
        with pytest.raises(AssertionError):
            assert_same_bits(wrong, one)
    with pytest.raises(AssertionError):
        assert_same_bits(np.zeros(1), np.array([-0.0]))
    with pytest.raises(AssertionError):
        assert_close_to_exact(near, grad, [0], 1)
    with pytest.raises(AssertionError):
        assert_close_to_exact(np.array([[1, 1], [0, 1]], np.float32), grad, [0], 2)
    with pytest.raises(AssertionError):
        assert_close_to_exact(one, grad, [0], 1, 0)


def test_an_ulp_of_each_format() -> None:
    assert ulp(1.0, np.float16) == 2.0**-10
    assert ulp(1.5, FLOATS["bfloat16"]) == 2.0**-7
    assert ulp(0.0, np.float32) == 2.0**-149
    assert ulp(-4.0, np.float64) == 2.0**-50
