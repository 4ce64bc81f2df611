"""Rows are summed in registers, some columns at a time (`kernels/runs.py`): the documented bits.

The lengths of runs and the numbers of columns lie around every threshold of those loops; the values
are such that a sum in another order differs.
"""

from __future__ import annotations

import numpy as np
import pytest
from inputs import THREADS, around, misaligned, normal, spaced, spread
from reference import FLOATS, Array, assert_same_bits, ordered_sum

from numba_embed import embedding_dense_backward, embedding_row_gradient, execute_rows
from numba_embed.kernels.layout import LINE, MAX_ASK_STEP, TILE
from numba_embed.kernels.rows import LANES
from numba_embed.kernels.runs import (
    ASKS,
    LONG_LANES,
    LONG_TAILS,
    SHORT_LANES,
    SHORT_RUN,
    SHORT_TAILS,
)
from numba_embed.order import sum_order

V = 600
# Beside the bounds of a run, those from which on it asks for its own rows further on.
LENGTHS = around([1, SHORT_RUN, *(ASKS * MAX_ASK_STEP // part for part in (1, 2, 4))], lowest=1)
STEPS = sorted({LANES, 1, *SHORT_LANES, *SHORT_TAILS, *LONG_LANES, *LONG_TAILS})
WIDTHS = around([*STEPS, sum(STEPS), TILE, 2 * TILE], lowest=1)


def problem(name: str, width: int) -> tuple[Array, Array, Array, Array]:
    """Draw a gradient and indices, and sum them in the documented order.

    A tenth of the rows is looked up, as often as one of `LENGTHS` says. Returns the gradient, the
    indices, the dense sum and those rows.
    """
    random = np.random.default_rng(width)
    rows = random.permutation(V)[: V // 10]
    ids = random.permutation(np.repeat(rows, np.resize(LENGTHS, rows.size)))
    draw = normal if name == "float16" else spread  # float16 has not so many decades
    grad = draw(random, (ids.size, width), name)
    grad[random.random(grad.shape) < 0.1] = -0.0
    order = sum_order(ids.size, V, width)
    want = ordered_sum(grad, ids, V, cut=order.cut, block_length=order.block_length)
    return grad, ids, want, np.sort(rows)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", FLOATS)
def test_every_length_and_width(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grad, ids, want, rows = problem(name, width)
    for operand in (grad, misaligned(grad)):
        for threads in THREADS:
            found = embedding_dense_backward(operand, ids, V, num_threads=threads)
            assert_same_bits(found, want)
    beside = np.full((V, width + 9), 7, grad.dtype)
    embedding_dense_backward(grad, ids, V, out=beside[:, :width])
    assert_same_bits(beside[:, :width], want)
    assert (beside[:, width:] == 7).all()
    for limit in (execute_rows.streamed_bytes(), 0):
        monkeypatch.setattr(execute_rows, "streamed_bytes", lambda limit=limit: limit)
        for threads in THREADS:
            listed = embedding_row_gradient(grad, ids, V, num_threads=threads)
            assert_same_bits(listed.rows, rows)
            assert_same_bits(listed.values, want[rows])


def every_kind(name: str, size: int) -> Array:
    """Return numbers by their bits: of 16 bits all there are, else any, and those around the ends
    of each kind (zeros, subnormal, normal, infinite, NaN, quiet and signalling)."""
    dtype = FLOATS[name]
    bits = np.dtype(f"u{dtype.itemsize}")
    if dtype.itemsize == 2:
        return np.resize(np.arange(1 << 16, dtype=bits), size).view(dtype)
    finfo = np.finfo(dtype)
    kinds = np.array([0, finfo.smallest_subnormal, finfo.tiny, 1, finfo.max, np.inf, np.nan], dtype)
    ends = (kinds.view(bits)[:, None] + np.array([-1, 0, 1]).astype(bits)).ravel()
    ends = np.concatenate([ends, ends ^ bits.type(1 << (8 * dtype.itemsize - 1))])
    some = np.random.default_rng(0).integers(0, 1 << 8 * dtype.itemsize, size, bits, endpoint=False)
    some[: ends.size] = ends
    return some.view(dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_a_row_that_is_looked_up_once_keeps_its_bits(name: str) -> None:
    """But for NaN, of which there is one, and -0.0: whatever the numbers, in every step."""
    for width in around([LINE // FLOATS[name].itemsize, LINE], lowest=1):
        rows = -(-(1 << 16) // width)
        grad = every_kind(name, rows * width).reshape(rows, width)
        want = grad.copy()
        want[want != want] = np.nan
        want[want == 0] = 0.0
        ids = np.random.default_rng(width).permutation(rows)
        for operand in (grad[ids], misaligned(grad[ids])):
            assert_same_bits(embedding_dense_backward(operand, ids, rows), want)
            assert_same_bits(embedding_row_gradient(operand, ids, rows).values, want)


@pytest.mark.parametrize("width", [*STEPS, sum(STEPS)])
def test_sums_of_negative_zeros_are_positive(width: int) -> None:
    """From +0.0 on, in every loop: short and long runs, whole rows and rows with gaps between."""
    for length in LENGTHS:
        ids = np.repeat([3, 1], length)
        plain = np.full((ids.size, width), -0.0, np.float32)
        for grad in (plain, spaced(plain, 2, 3)):
            found = embedding_dense_backward(grad, ids, 5)
            assert_same_bits(found, np.zeros_like(found))


@pytest.mark.parametrize("width", [5, 40, sum(LONG_TAILS)])
@pytest.mark.parametrize("name", FLOATS)
def test_outputs_and_options_that_need_more_than_a_rounded_sum(name: str, width: int) -> None:
    grad, ids, want, rows = problem(name, width)
    order = sum_order(ids.size, V, width)
    random = np.random.default_rng(width)
    old = normal(random, want.shape, name)
    for out in (np.full_like(want, 7), misaligned(want), spaced(old, 2, 3), np.asfortranarray(old)):
        assert_same_bits(embedding_dense_backward(grad, ids, V, out=out), want)
    swapped = np.zeros(want.shape, want.dtype.newbyteorder())
    if name != "bfloat16":  # which knows no other byte order
        embedding_dense_backward(grad, ids, V, out=swapped)
        assert_same_bits(swapped.astype(want.dtype), want)

    options = {"cut": order.cut, "block_length": order.block_length}
    added = ordered_sum(grad, ids, V, old=old, **options)
    assert_same_bits(embedding_dense_backward(grad, ids, V, out=old.copy(), accumulate=True), added)
    scaled = ordered_sum(grad, ids, V, scale=True, **options)
    assert_same_bits(embedding_dense_backward(grad, ids, V, scale_grad_by_freq=True), scaled)
    listed = embedding_row_gradient(grad, ids, V, scale_grad_by_freq=True)
    assert_same_bits(listed.values, scaled[rows])
