"""Small inputs on which implementations of this operator have failed, by their numbers: values.

Rows 6, 7, 14, 18 and 23 are in test_hard_errors.py, 26 to 28 in test_runtime.py, 30 in
test_orders.py.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from inputs import INTEGERS, THREADS, around, ones, refused, thresholds
from reference import FLOATS, Array, assert_same_bits, bits, dense_backward

from numba_embed import embedding_dense_backward as E
from numba_embed.order import sum_order

NAN = float("nan")


def column(*values: float, dtype: str = "float32") -> Array:
    """One column of a result."""
    return np.array(values).reshape(-1, 1).astype(FLOATS[dtype])


def test_row_01_padding_row_is_zero() -> None:
    assert_same_bits(E(ones(4), [0, 1, 1, 2], 5, 0), column(0, 2, 1, 0, 0))


# Every length at which a table of one row changes its order of summation, and its neighbours.
STREAMS = around(
    [1, 264, 768, 4096, 65536, *thresholds(lambda n: sum_order(n, 1, 1)[:2], 1, 10_000)]
)


@pytest.mark.parametrize("threads", THREADS)
def test_row_02_counts_are_exact_at_every_threshold(threads: int) -> None:
    for size in STREAMS:
        ids = np.zeros(size, dtype=np.int64)
        assert_same_bits(E(ones(size), ids, 1, 0, num_threads=threads), column(0))
        assert_same_bits(E(ones(size), ids, 1, -1, num_threads=threads), column(size))


@pytest.mark.parametrize("threads", [None, *THREADS])
def test_row_03_a_million_ones(threads: int | None) -> None:
    ids = np.zeros(10**6, dtype=np.int64)
    assert_same_bits(E(ones(10**6), ids, 1, num_threads=threads), column(10**6))
    wide = E(ones(10**6), ids, 500_000, num_threads=threads)
    assert wide[0, 0] == 10**6
    assert not bits(wide[1:]).any()


def test_row_04_bfloat16_counts_beyond_256() -> None:
    got = E(ones(1000, FLOATS["bfloat16"]), [0] * 1000, 1)
    assert_same_bits(got, column(1000, dtype="bfloat16"))


def test_row_05_float16_counts_beyond_2048() -> None:
    assert_same_bits(E(ones(4096, np.float16), [0] * 4096, 1), column(4096, dtype="float16"))
    assert_same_bits(E(ones(2049, np.float16), [0] * 2049, 1), column(2048, dtype="float16"))
    grad = column(60000, 60000, -60000, dtype="float16")
    assert_same_bits(E(grad, [0, 0, 0], 1), column(60000, dtype="float16"))


@pytest.mark.parametrize("padding", [-1, 3, 4, -2, -(2**62), 2**62, 2**80, None])
def test_row_08_a_padding_index_outside_the_table_pads_nothing(padding: int | None) -> None:
    assert_same_bits(E(ones(2), [2, 2], 3, padding), column(0, 0, 2))


@pytest.mark.parametrize("num_weights", [9, 33, 100, 30522, 50257])
def test_row_09_every_row_of_out_is_written(num_weights: int) -> None:
    for width in (1, 5):
        out = np.full((num_weights, width), NAN, dtype=np.float32)
        got = E(np.ones((8, width), np.float32), [0] * 8, num_weights, out=out)
        assert got is out
        want = np.zeros((num_weights, width), dtype=np.float32)
        want[0] = 8
        assert_same_bits(out, want)


def test_row_10_scaling() -> None:
    assert_same_bits(E(ones(3), [1, 1, 3], 4, -1, True), column(0, 1, 0, 1))


def test_row_11_scaling_with_two_dimensions() -> None:
    ids = np.array([[7, 2, 3, 4], [8, 4, 4, 7]])
    got = E(np.ones((2, 4, 3), np.float32), ids, 10, scale_grad_by_freq=True)
    want = np.zeros((10, 3), dtype=np.float32)
    want[[2, 3, 4, 7, 8]] = 1
    assert_same_bits(got, want)


def test_row_12_strided_indices() -> None:
    base = np.array([1, 9, 2, 9, 1, 9])
    for ids in (
        base[::2],
        base[::2][::-1],
        base.astype(np.int32)[::2],
        base.astype(np.float64)[::2],
    ):
        assert_same_bits(E(ones(3), ids, 3), column(0, 2, 1))
    # grad (2, 3) in C order meets indices (2, 3) whose memory runs down the columns
    ids = np.array([[0, 1], [1, 2], [0, 2]]).T
    grad = np.arange(6, dtype=np.float32).reshape(2, 3, 1)
    assert_same_bits(E(grad, ids, 3), column(0 + 2, 1 + 3, 4 + 5))


def test_row_13_layouts_of_grad() -> None:
    want = np.array([[2, 2], [0, 0], [1, 1]], dtype=np.float32)
    repeated = np.broadcast_to(np.float32(1), (3, 2))
    reversed_rows = np.ones((3, 2), np.float32)[::-1]
    every_other = np.ones((3, 4), np.float32)
    every_other[:, 1::2] = 77
    for grad in (
        repeated,
        np.ascontiguousarray(repeated),
        np.asfortranarray(repeated),
        every_other[:, ::2],
        reversed_rows,
    ):
        assert_same_bits(E(grad, [0, 0, 2], 3), want)


@pytest.mark.parametrize("name", INTEGERS)
def test_row_15_every_integer_dtype(name: str) -> None:
    ids = np.array([0, 2, 2], dtype=name)
    assert_same_bits(E(ones(3), ids, 3), column(1, 0, 2))


def test_row_15_integers_at_their_ends() -> None:
    want = np.zeros((256, 1), dtype=np.float32)
    want[255] = 1
    assert_same_bits(E(ones(1), np.array([255], np.uint8), 256), want)
    for ids, num_weights in (
        (np.array([-1], np.int8), 255),
        (np.array([-1], np.int8), 256),
        (np.array([2**32 + 1], np.int64), 4),
        (np.array([2**63], np.uint64), 4),
        (np.array([2**64 - 1], np.uint64), 4),
        (np.array([2**32 - 1], np.uint32), 4),
        (np.array([-(2**63)], np.int64), 4),
    ):
        with refused(IndexError, "indices", int(ids[0]), f"[0, {num_weights})"):
            E(ones(1), ids, num_weights)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_row_16_float_indices(name: str) -> None:
    for ids in ([0.0, 2.0], [-0.0, 2.0]):
        assert_same_bits(E(ones(2), np.array(ids, name), 3), column(1, 0, 1))
    for bad in (0.5, -0.5, 2.5, NAN):
        for scale in (False, True):
            with refused(ValueError, "indices", bad, 1):
                E(ones(2), np.array([1.0, bad], name), 3, None, scale)
    large = {"float16": 60000.0, "float32": 1e30, "float64": 1e300}[name]
    for bad in (large, -large, 3.0, -1.0, np.inf, -np.inf):
        with refused(IndexError, "indices", 1, "[0, 3)"):
            E(ones(2), np.array([1.0, bad], name), 3)


def test_row_16_bool_indices() -> None:
    assert_same_bits(E(ones(2), np.array([True, False]), 3), column(1, 1, 0))


def test_row_17_empties() -> None:
    none = np.zeros((0,), dtype=np.int64)
    got = E(np.zeros((0, 4), np.float32), none, 10, 5, True)
    assert_same_bits(got, np.zeros((10, 4), np.float32))
    assert_same_bits(E(np.zeros((2, 0), np.float32), [3, 3], 10), np.zeros((10, 0), np.float32))
    assert_same_bits(E(np.zeros((0, 3), np.float32), none, 0), np.zeros((0, 3), np.float32))
    got = E(np.zeros((2, 0, 3, 4), np.float16), np.zeros((0, 7), np.int8), 2)
    assert_same_bits(got, np.zeros((2, 4), np.float16))
    with refused(IndexError, "indices", 0, "num_weights is 0"):
        E(ones(1), [0], 0)
    with refused(IndexError, "indices", 10, 1, "[0, 10)"):
        E(np.zeros((2, 0), np.float32), [3, 10], 10)
    out = np.full((10, 4), NAN, dtype=np.float32)
    assert E(np.zeros((0, 4), np.float32), none, 10, out=out) is out
    assert_same_bits(out, np.zeros((10, 4), np.float32))


def test_row_19_one_lookup_without_dimensions() -> None:
    want = np.zeros((10, 3), dtype=np.float32)
    want[5] = 1
    for ids in (5, np.int32(5), np.array(5), np.array(5.0)):
        assert_same_bits(E(np.ones(3, np.float32), ids, 10), want)


def test_row_20_float32_sums_are_wide() -> None:
    assert_same_bits(E(column(1e8, 1, -1e8), [0, 0, 0], 1), column(1))
    assert_same_bits(E(column(2**24, 1, 1), [0, 0, 0], 1), column(16777218))


def test_row_21_scaling_divides_before_rounding() -> None:
    assert_same_bits(E(ones(10), [0] * 10, 1, None, True), column(1))
    assert_same_bits(E(column(3e38, 3e38), [0, 0], 1, None, True), column(3e38))
    for name in ("float16", "bfloat16"):
        grad = ones(3, FLOATS[name])
        assert_same_bits(E(grad, [0, 0, 0], 1, None, True), column(1, dtype=name))


@pytest.mark.parametrize("name", list(FLOATS))
def test_row_22_nan_and_infinity(name: str) -> None:
    nan = column(NAN, 1, dtype=name)
    assert_same_bits(E(nan, [0, 1], 2, 0), column(0, 1, dtype=name))
    both = column(np.inf, -np.inf, np.inf, 1, dtype=name)
    assert_same_bits(E(both, [0, 0, 1, 1], 3), column(NAN, np.inf, 0, dtype=name))
    got = E(both, [0, 0, 1, 1], 3, None, True)
    assert_same_bits(got, column(NAN, np.inf, 0, dtype=name))
    # a negative NaN with a payload comes out as the one canonical NaN
    odd = nan.copy()
    odd.view(bits(odd).dtype)[0] |= 1 << (8 * odd.itemsize - 1) | 5
    for dtype in FLOATS.values():
        out = np.zeros((2, 1), dtype=dtype)
        assert bits(E(odd, [0, 1], 2, out=out))[0, 0] == bits(np.array([NAN]).astype(dtype))[0]


def test_row_24_foreign_layouts_give_the_same_bits(tmp_path: Path) -> None:
    random = np.random.default_rng(24)
    grad = random.standard_normal((50, 3), dtype=np.float32)
    ids = random.integers(0, 9, 50)
    want = E(grad, ids, 9)
    frozen, frozen_ids = grad.copy(), ids.copy()
    frozen.flags.writeable = frozen_ids.flags.writeable = False
    np.save(tmp_path / "grad.npy", grad)
    np.save(tmp_path / "ids.npy", ids)
    mapped = np.load(tmp_path / "grad.npy", mmap_mode="r")
    mapped_ids = np.load(tmp_path / "ids.npy", mmap_mode="r")
    for other in (frozen, mapped, grad.astype(">f4")):
        for other_ids in (frozen_ids, mapped_ids, ids.astype(">i8")):
            assert_same_bits(E(other, other_ids, 9), want)


@pytest.mark.parametrize("width", [1, 3, 7, 8, 20, 31, 33, 60, 8960])
def test_row_25_widths(width: int) -> None:
    for name in ("float32", "float16", "bfloat16"):
        grad = np.ones((2, width), dtype=FLOATS[name])
        for scale, value in ((False, 2), (True, 1)):
            want = np.zeros((2, width), dtype=FLOATS[name])
            want[0] = value
            assert_same_bits(E(grad, [0, 0], 2, None, scale), want)


def test_row_29_one_rounding() -> None:
    got = E(column(1, 2.0**-8, 2.0**-40, dtype="bfloat16"), [0] * 3, 1)
    assert_same_bits(got, column(1.0078125, dtype="bfloat16"))
    got = E(column(1, 2.0**-11, 2.0**-24, dtype="float16"), [0] * 3, 1)
    assert_same_bits(got, column(1.0009765625, dtype="float16"))
    got = E(column(1, 2.0**-24, 2.0**-50), [0] * 3, 1)
    assert_same_bits(got, column(1 + 2.0**-23))


@pytest.mark.parametrize(("name", "quantum"), [("float16", 2.0**-24), ("bfloat16", 2.0**-133)])
def test_subnormal_numbers_are_rounded_once(name: str, quantum: float) -> None:
    """Halves of the least number, and next to nothing beside them, either way; some large ones."""
    halves = np.arange(1, 256, 2) * (quantum / 2)
    values = np.concatenate([halves, halves + quantum * 2.0**-40, halves - quantum * 2.0**-40])
    values = np.concatenate([values, -values, [1.0, 3.0, np.nan, np.inf, 0.0, 1e300]])
    for width in (1, 8, 9):
        grad = values[: values.size // width * width].reshape(-1, width)
        want = dense_backward(grad, np.arange(len(grad)), len(grad), out_dtype=FLOATS[name])
        out = np.empty_like(want)
        E(grad, np.arange(len(grad)), len(grad), out=out)
        assert_same_bits(out, want)


def test_row_31_negative_zero_and_interleaved_halves() -> None:
    for dtype in FLOATS.values():
        assert_same_bits(E(np.array([[-0.0]]).astype(dtype), [0], 1), np.zeros((1, 1), dtype))
    buffer = np.arange(24, dtype=np.float32).reshape(4, 6)
    grad = buffer[:, 1::2]
    want = E(grad.copy(), [3, 1, 1, 0], 4)
    out = buffer[:, ::2]
    kept = grad.copy()
    assert E(grad, [3, 1, 1, 0], 4, out=out) is out
    assert_same_bits(out, want)
    assert_same_bits(grad, kept)


@pytest.mark.parametrize(
    ("size", "num_weights", "width", "cores"),
    [(1000, 50, 3, 2**40), (1, 2, 10**7, None), (4096, 5 * 10**6, 2, None)],
)
def test_row_32_memory_stays_within_the_bound(
    size: int, num_weights: int, width: int, cores: int | None
) -> None:
    ids = np.arange(size) * 7919 % num_weights
    grad = np.ones((size, width), dtype=np.float32)
    out = np.full((num_weights, width), NAN, dtype=np.float32)
    for threads in THREADS:
        tracemalloc.start()
        try:
            E(grad, ids, num_weights, out=out, core_num=cores, num_threads=threads)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= 16 * size + 8 * num_weights + grad.nbytes // 64 + (threads << 22)
        want = np.bincount(ids, minlength=num_weights).astype(np.float32)
        assert np.array_equal(out, np.broadcast_to(want[:, None], out.shape))
