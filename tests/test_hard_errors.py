"""Inputs that must be refused: the class, what the message names, and that nothing was written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest
from inputs import POOL, THREADS, ones, refused
from reference import Array, assert_same_bits

from numba_embed import embedding_dense_backward as E

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def marked(rows: int, columns: int = 1) -> Array:
    """An output whose every bit can be recognised."""
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) + 0.25


@pytest.mark.parametrize("threads", THREADS)
def test_row_06_an_index_beyond_the_table(threads: int) -> None:
    out = marked(5)
    with refused(IndexError, "indices", 5, 0, "[0, 5)", out=out):
        E(ones(1), [5], 5, out=out, num_threads=threads)
    with refused(IndexError, "indices", 10**17, 0, "[0, 5)", out=out):
        E(ones(1), [10**17], 5, -1, True, out=out, num_threads=threads)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("threads", THREADS)
def test_row_06_a_bad_value_only_in_the_last_of_a_million(threads: int, scale: bool) -> None:
    for num_weights in (50, 300_000):
        out = marked(num_weights)
        ids = np.zeros(10**6, dtype=np.int64)
        ids[-1] = num_weights
        parts = ("indices", num_weights, 999_999, f"[0, {num_weights})")
        with refused(IndexError, *parts, out=out):
            E(ones(10**6), ids, num_weights, 3, scale, out=out, num_threads=threads)
        with refused(IndexError, *parts, out=out):
            E(ones(10**6), ids, num_weights, out=out, accumulate=True, num_threads=threads)


@pytest.mark.parametrize("threads", THREADS)
def test_row_06_the_first_bad_value_is_the_one_named(threads: int) -> None:
    """However many there are, in whichever thread's part of the stream they lie."""
    random = np.random.default_rng(6)
    for num_weights in (50, 300_000):
        ids = random.integers(0, num_weights, 300_000)
        bad = np.sort(random.choice(300_000, 200, replace=False))
        ids[bad] = num_weights + np.arange(200)
        for first in (0, 120):  # the second time all bad ones lie beyond the middle
            ids[bad[:first]] = 0
            with refused(IndexError, "indices", num_weights + first, bad[first]):
                E(ones(300_000), ids, num_weights, num_threads=threads)


def test_row_06_the_position_is_that_of_c_order() -> None:
    ids = np.zeros((2, 3), dtype=np.int64)
    ids[1, 0], ids[0, 2] = 9, 8
    for layout in (ids, np.asfortranarray(ids), ids[::-1].copy()[::-1]):
        with refused(IndexError, "indices", 8, "[0, 4)"):
            E(np.ones((2, 3, 1), np.float32), layout, 4)


def test_row_06_errors_of_both_kinds_in_order() -> None:
    with refused(IndexError, "indices", 1):
        E(ones(3), np.array([0, 99.0, 2.5]), 4)
    with refused(ValueError, "indices", 2.5, 1):
        E(ones(3), np.array([0, 2.5, 99.0]), 4)


@pytest.mark.parametrize("num_weights", [3, 20_000])  # by tables, and row by row
@pytest.mark.parametrize("threads", THREADS)
def test_dropping_drops_no_float_that_is_no_integer(threads: int, num_weights: int) -> None:
    """Out of range is one thing, no index at all another."""
    ids = np.zeros(40_000)
    ids[100], ids[39_990] = 1e300, np.inf
    got = E(ones(40_000), ids, num_weights, on_invalid="drop", num_threads=threads)
    assert got[0, 0] == 39_998
    for bad in (2.5, np.nan):
        ids[39_000] = bad
        out = marked(num_weights)
        with refused(ValueError, "indices", bad, 39_000, out=out):
            E(ones(40_000), ids, num_weights, out=out, on_invalid="drop", num_threads=threads)


@pytest.mark.parametrize("padding", [None, -1, 2])
def test_row_07_minus_one_is_no_index(padding: int | None) -> None:
    with refused(IndexError, "indices", -1, 1, "[0, 4)"):
        E(ones(2), [0, -1], 4, padding)


@pytest.mark.parametrize("bad", [0, -1, POOL + 1, 10**9])
def test_row_14_thread_counts_out_of_range(bad: int) -> None:
    before = numba.get_num_threads()
    out = marked(2)
    with refused(ValueError, "num_threads", bad, POOL, out=out):
        E(ones(1), [0], 2, out=out, num_threads=bad)
    assert numba.get_num_threads() == before


@pytest.mark.parametrize("bad", [1.5, True, "2", np.float64(1), [1]])
def test_row_14_thread_counts_of_the_wrong_kind(bad: Any) -> None:
    with refused(TypeError, "num_threads"):
        E(ones(1), [0], 2, num_threads=bad)


@pytest.mark.parametrize("mask", THREADS)
@pytest.mark.parametrize("threads", [None, *THREADS, np.int32(1)])
def test_row_14_the_mask_is_left_alone(threads: Any, mask: int) -> None:
    before = numba.get_num_threads()
    ids = np.arange(100_000) % 50_000
    numba.set_num_threads(mask)
    try:
        got = E(ones(100_000), ids, 50_000, num_threads=threads)
        assert_same_bits(got, np.full((50_000, 1), 2, np.float32))
        assert numba.get_num_threads() == mask
        ids[-1] = 50_000
        with refused(IndexError, 99_999):
            E(ones(100_000), ids, 50_000, num_threads=threads)
        assert numba.get_num_threads() == mask
    finally:
        numba.set_num_threads(before)


def test_row_18_sizes_that_disagree() -> None:
    out = marked(5, 2)
    with refused(ValueError, "grad", "indices", "(3, 2)", "(2,)", out=out):
        E(np.ones((3, 2), np.float32), [0, 1], 5, out=out)
    with refused(ValueError, "grad", "indices", "(4,)"):
        E(np.ones(4, np.float32), [0, 1, 2, 3], 5)
    with refused(ValueError, "grad", "indices", "(3,)"):
        E(np.ones(3, np.float32), [0], 5)
    with refused(ValueError, "grad"):
        E(np.float32(1), 0, 5)
    with refused(ValueError, "grad", 8):
        E(np.ones((1,) * 8 + (3,), np.float32), np.zeros((1,) * 8, np.int64), 5)
    with refused(ValueError, "indices", 8):
        E(np.ones((1, 3), np.float32), np.zeros((1,) * 9, np.int64), 5)


def test_row_18_leading_shapes_may_differ() -> None:
    grad = np.ones((2, 2, 7, 3), np.float32)
    got = E(grad, np.zeros((4, 7), np.uint8), 1)
    assert_same_bits(got, np.full((1, 3), 28, np.float32))


def test_row_23_outputs_that_overlap_an_input() -> None:
    ids = np.array([0, 1, 1, 0])
    grad = marked(4, 3)
    with refused(ValueError, "out", "grad", out=grad):
        E(grad, ids, 4, out=grad)
    buffer = marked(6, 3)
    with refused(ValueError, "out", "grad", out=buffer):
        E(buffer[:4], ids, 4, out=buffer[2:])
    with refused(ValueError, "out", "grad", out=buffer):
        E(buffer[:4][::-1], ids, 1, out=buffer[3:4])
    shared = np.arange(4)
    with refused(ValueError, "out", "indices", out=shared):
        E(ones(4), shared, 4, out=shared.view(np.float64).reshape(4, 1))


def test_row_23_outputs_that_cannot_be_written() -> None:
    ids = [0, 1, 1, 0]
    row = np.arange(3, dtype=np.float32)
    twice = np.lib.stride_tricks.as_strided(row, (4, 3), (0, 4))
    with refused(ValueError, "out", out=row):
        E(np.ones((4, 3), np.float32), ids, 4, out=twice)
    sliding = np.arange(6, dtype=np.float32)
    with refused(ValueError, "out", out=sliding):
        window = np.lib.stride_tricks.as_strided(sliding, (4, 3), (4, 4))
        E(np.ones((4, 3), np.float32), ids, 4, out=window)
    frozen = marked(4, 3)
    frozen.flags.writeable = False
    with refused(ValueError, "out", out=frozen):
        E(np.ones((4, 3), np.float32), ids, 4, out=frozen)
    for shape in ((4, 2), (3, 4), (5, 3), (12,), (4, 3, 1)):
        out = np.full(shape, 0.25, dtype=np.float32)
        with refused(ValueError, "out", "(4, 3)", shape, out=out):
            E(np.ones((4, 3), np.float32), ids, 4, out=out)


@pytest.mark.parametrize("bad", [[[0.0]], "out", 1.0, np.float32(1)])
def test_row_23_outputs_that_are_no_array(bad: Any) -> None:
    with refused((TypeError, ValueError), "out"):
        E(ones(1), [0], 1, out=bad)


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64", "O", "i4,f4", "U3", "M8[s]"])
def test_row_23_outputs_of_other_dtypes(dtype: str) -> None:
    with refused(TypeError, "out"):
        E(ones(1), [0], 1, out=np.zeros((1, 1), dtype=dtype))


@pytest.mark.parametrize(
    "dtype",
    ["int8", "int64", "uint8", "bool", "complex64", "complex128", "O", "i4,f4", "U3", "M8[s]"],
)
def test_row_24_gradients_of_other_dtypes(dtype: str) -> None:
    out = marked(3)
    for size in (0, 2):
        with refused(TypeError, "grad", out=out):
            E(np.zeros((size, 1), dtype=dtype), np.zeros(size, np.int64), 3, out=out)


@pytest.mark.parametrize(
    "dtype", ["complex64", "complex128", "O", "i4,f4", "U3", "M8[s]", BFLOAT16]
)
def test_row_24_indices_of_other_dtypes(dtype: Any) -> None:
    out = marked(3)
    for size in (0, 2):
        with refused(TypeError, "indices", out=out):
            E(ones(size), np.zeros(size, dtype=dtype), 3, out=out)


@pytest.mark.parametrize("bad", [-1, -(2**70)])
def test_num_weights_below_zero(bad: int) -> None:
    with refused(ValueError, "num_weights", bad):
        E(ones(1), [0], bad)


@pytest.mark.parametrize("bad", [3.0, True, np.True_, "3", None, [3]])
def test_num_weights_of_another_kind(bad: Any) -> None:
    with refused(TypeError, "num_weights"):
        E(ones(1), [0], bad)


@pytest.mark.parametrize("bad", [0.0, True, np.False_, "0", [0]])
def test_padding_idx_of_another_kind(bad: Any) -> None:
    with refused(TypeError, "padding_idx"):
        E(ones(1), [0], 3, bad)


def test_numpy_integers_are_integers() -> None:
    want = np.array([[0], [2], [0]], dtype=np.float32)
    kinds: list[Any] = [np.int8, np.uint64, np.int32]
    for kind in kinds:
        assert_same_bits(E(ones(3), [1, 1, 0], kind(3), kind(0), core_num=kind(2)), want)


@pytest.mark.parametrize("bad", [0, -3])
def test_core_num_out_of_range(bad: int) -> None:
    with refused(ValueError, "core_num", bad):
        E(ones(1), [0], 3, core_num=bad)


@pytest.mark.parametrize("bad", [1.0, True, "2"])
def test_core_num_of_another_kind(bad: Any) -> None:
    with refused(TypeError, "core_num"):
        E(ones(1), [0], 3, core_num=bad)


@pytest.mark.parametrize("bad", ["Raise", "", "clip"])
def test_on_invalid_of_an_unknown_name(bad: str) -> None:
    with refused(ValueError, "on_invalid", "raise", "drop"):
        E(ones(1), [0], 3, on_invalid=bad)


def test_accumulating_needs_an_output() -> None:
    with refused(ValueError, "accumulate", "out"):
        E(ones(1), [0], 3, accumulate=True)


def test_a_ragged_list_is_refused() -> None:
    with refused(ValueError, "indices"):
        E(ones(2), [[0], [1, 2]], 3)
    with refused(ValueError, "grad"):
        E([[1.0], [1.0, 2.0]], [0, 1], 3)


def test_missing_inputs_are_refused() -> None:
    with refused(TypeError, "grad"):
        E(None, [0], 3)
    with refused(TypeError, "indices"):
        E(ones(1), None, 3)
