"""Properties that hold for every input, on inputs that hypothesis draws."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inputs import CORES, THREADS, hot_ids, spread
from reference import (
    FLOATS,
    Array,
    assert_close_to_exact,
    assert_same_bits,
    bits,
    dense_backward,
    fast_dense_backward,
    ordered_sum,
    round_once,
)

from numba_embed import embedding_dense_backward as E
from numba_embed.order import sum_order


class Problem(NamedTuple):
    """Sizes and attributes of a call, and the seed of its data."""

    size: int
    num_weights: int
    width: int
    seed: int
    padding_idx: int | None
    scale: bool
    threads: int
    cores: int | None

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments that must not change a bit."""
        return {"num_threads": self.threads, "core_num": self.cores}

    def draw(self, kind: str = "spread") -> tuple[Array, Array]:
        """Draw float64 gradients (integers, or such that their order shows) and indices."""
        random = np.random.default_rng(self.seed)
        ids = hot_ids(random, self.size, self.num_weights)
        shape = (self.size, self.width)
        if kind == "integers":
            return random.integers(-50, 51, shape).astype(np.float64), ids
        return spread(random, shape, "float64"), ids


# Lengths on a logarithmic scale: a plain range would hardly ever draw a short one.
LENGTHS = st.one_of(
    st.integers(0, 40),
    st.integers(6, 14).flatmap(lambda power: st.integers(1 << power, 2 << power)),
)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw sizes on both sides of every threshold, within a budget of elements."""
    size = draw(LENGTHS)
    num_weights = draw(st.one_of(st.integers(1, 40), st.integers(1, 40_000)))
    width = draw(st.integers(1, max(1, min(70, 60_000 // max(size, 1)))))
    padding = draw(st.one_of(st.none(), st.integers(-2, num_weights), st.just(num_weights // 3)))
    return Problem(
        size,
        num_weights,
        width,
        draw(st.integers(0, 2**32)),
        padding,
        draw(st.booleans()),
        draw(st.sampled_from(THREADS)),
        draw(st.sampled_from(CORES)),
    )


HOT = Problem(20_000, 30_000, 2, 1, None, False, THREADS[-1], 7)
SMALL = Problem(20_000, 30, 2, 1, 3, True, THREADS[-1], 3)


@given(problems())
@example(HOT)
@example(SMALL)
def test_linearity(problem: Problem) -> None:
    """Gradients of whole numbers: the backward of a sum is the sum of the backwards."""
    one, ids = problem.draw("integers")
    other = np.roll(one, 1)
    rest = (ids, problem.num_weights, problem.padding_idx)
    separate = E(one, *rest, **problem.options) + 3 * E(other, *rest, **problem.options)
    assert_same_bits(E(one + 3 * other, *rest, **problem.options), separate + 0.0)


@given(problems())
@example(HOT)
@example(SMALL)
def test_the_order_of_positions_does_not_matter_to_whole_numbers(problem: Problem) -> None:
    grad, ids = problem.draw("integers")
    moved = np.random.default_rng(problem.seed + 1).permutation(problem.size)
    rest = (problem.num_weights, problem.padding_idx, problem.scale)
    want = E(grad, ids, *rest, **problem.options)
    assert_same_bits(E(grad[moved], ids[moved], *rest, **problem.options), want)
    assert_same_bits(want, fast_dense_backward(grad, ids, *rest))


@given(problems())
@example(HOT._replace(padding_idx=10_000))
@example(SMALL)
def test_the_padding_row_is_zero_and_changes_no_other(problem: Problem) -> None:
    grad, ids = problem.draw()
    padding = problem.num_weights // 3 if problem.padding_idx is None else problem.padding_idx
    rest = (problem.scale,)
    padded = E(grad, ids, problem.num_weights, padding, *rest, **problem.options)
    plain = E(grad, ids, problem.num_weights, None, *rest, **problem.options)
    if 0 <= padding < problem.num_weights:
        plain[padding] = 0.0
    assert_same_bits(padded, plain)


@given(problems(), st.sampled_from(THREADS), st.sampled_from(CORES))
@example(HOT, 1, None)
@example(SMALL, 1, 1000)
def test_threads_and_cores_change_nothing(
    problem: Problem, threads: int, cores: int | None
) -> None:
    grad, ids = problem.draw()
    rest = (problem.num_weights, problem.padding_idx, problem.scale)
    one = E(grad, ids, *rest, **problem.options)
    assert_same_bits(E(grad, ids, *rest, num_threads=threads, core_num=cores), one)
    order = sum_order(problem.size, problem.num_weights, problem.width)
    want = ordered_sum(
        grad,
        ids,
        problem.num_weights,
        cut=order.cut,
        block_length=order.block_length,
        padding_idx=problem.padding_idx,
        scale=problem.scale,
    )
    assert_same_bits(one, want)


@given(problems(), st.integers(0, 5), st.integers(0, 3))
@example(HOT, 0, 1)
@example(SMALL, 4, 2)
def test_strides_change_nothing(problem: Problem, layout: int, ids_layout: int) -> None:
    grad, ids = problem.draw()
    rest = (problem.num_weights, problem.padding_idx, problem.scale)
    want = E(grad, ids, *rest, **problem.options)
    size, width = grad.shape
    wide = np.full((2 * size + 1, 3 * width + 2), np.nan)
    view = [
        np.asfortranarray(grad),
        wide[: 2 * size : 2, 1 : 3 * width + 1 : 3],
        wide[:size, :width][::-1, ::-1],
        wide[:size, 2 : width + 2],
        wide[1 : 2 * size + 1 : 2, :width],
        wide.T[:width, :size].T if width <= 3 * size else wide[:size, :width],
    ][layout][:size]
    if view.shape != grad.shape:
        view = wide[:size, :width]
    view[...] = grad
    spaced = np.full(3 * size + 1, -1, dtype=np.int64)
    ids_view = [
        spaced[: 3 * size : 3],
        spaced[1 : size + 1][::-1],
        spaced[:size],
        spaced[1 : size + 1],
    ][ids_layout]
    ids_view[...] = ids
    assert_same_bits(E(view, ids_view, *rest, **problem.options), want)


@settings(max_examples=25)  # exact sums are slow
@given(problems(), st.sampled_from(list(FLOATS)))
@example(HOT, "float32")
@example(SMALL, "float16")
def test_the_error_bound(problem: Problem, name: str) -> None:
    grad, ids = problem.draw()
    if name != "float64":  # magnitudes that the narrow dtypes hold
        grad = np.random.default_rng(problem.seed).standard_normal(grad.shape)
    grad = grad.astype(FLOATS[name])
    rest = (problem.num_weights, problem.padding_idx, problem.scale)
    got = E(grad, ids, *rest, **problem.options)
    assert got.dtype == FLOATS[name]
    columns = {0, problem.width - 1}
    assert_close_to_exact(got, grad, ids, *rest, columns=columns)


@given(problems(), st.sampled_from(["float32", "float64"]), st.booleans())
@example(HOT, "float64", True)
@example(SMALL, "float32", False)
def test_writing_into_an_output_equals_a_fresh_one(
    problem: Problem, name: str, fortran: bool
) -> None:
    grad, ids = problem.draw()
    grad = grad.astype(name)
    rest = (problem.num_weights, problem.padding_idx, problem.scale)
    order = "F" if fortran else "C"
    out = np.full((problem.num_weights, problem.width), np.nan, dtype=name, order=order)  # type: ignore[call-overload]
    assert E(grad, ids, *rest, out=out, **problem.options) is out
    assert_same_bits(out, E(grad, ids, *rest, **problem.options))


@given(problems(), st.sampled_from(["float32", "float64"]))
@example(HOT, "float32")
@example(SMALL, "float64")
def test_accumulating(problem: Problem, name: str) -> None:
    """Touched rows are old plus sum, rounded once; all others keep their bits, NaN or not."""
    grad, ids = problem.draw("integers")
    rest = (problem.num_weights, problem.padding_idx, problem.scale)
    random = np.random.default_rng(problem.seed)
    old = random.standard_normal((problem.num_weights, problem.width)).astype(name)
    idle = np.setdiff1d(np.arange(problem.num_weights), ids)
    old.view(bits(old).dtype)[idle[::2]] |= np.array(np.nan, dtype=name).view(bits(old).dtype) | 3
    out = old.copy()
    assert E(grad, ids, *rest, out=out, accumulate=True, **problem.options) is out
    assert_same_bits(out, fast_dense_backward(grad, ids, *rest, old=old))


@given(problems(), st.integers(1, 3))
@example(HOT, 2)
@example(SMALL, 1)
def test_dropping_equals_the_filtered_stream(problem: Problem, kinds: int) -> None:
    grad, ids = problem.draw("integers")
    random = np.random.default_rng(problem.seed)
    bad = random.random(problem.size) < 0.3
    outside = np.array([-1, problem.num_weights, 2**62, -(2**63)])
    ids = np.where(bad, random.choice(outside[: kinds + 1], problem.size), ids)
    grad[bad] = np.nan
    rest = (problem.num_weights, problem.padding_idx, problem.scale)
    got = E(grad, ids, *rest, on_invalid="drop", **problem.options)
    assert_same_bits(got, fast_dense_backward(grad[~bad], ids[~bad], *rest))


PAIRS = [(grad, out) for grad in FLOATS for out in FLOATS]

# Both algorithms, serial and parallel, are compiled for each of these, so they are few: every way
# to load and every way to store.
PAIRS_AT_SIZE = [(name, name) for name in FLOATS]
PAIRS_AT_SIZE += [("float16", "float32"), ("float32", "float64")]


@pytest.mark.parametrize(("name", "out_name"), PAIRS)
def test_every_pair_of_dtypes(name: str, out_name: str) -> None:
    """Values whose sums are exact, against the exact loop: what differs is the rounding."""
    random = np.random.default_rng(3)
    dtype = FLOATS[out_name]
    grad = (random.integers(-2000, 2000, (200, 5)) / 1024).astype(FLOATS[name])
    ids = random.integers(0, 20, 200)
    for scale in (False, True):
        out = np.full((20, 5), np.nan, dtype=dtype)
        E(grad, ids, 20, 4, scale, out=out, num_threads=1)
        assert_same_bits(out, dense_backward(grad, ids, 20, 4, scale, out_dtype=dtype))


def around_ties(name: str, out_name: str) -> Array:
    """List numbers of one dtype on, beside and halfway between numbers of another.

    All of its range: subnormals, the edge of overflow, both signs.
    """
    random = np.random.default_rng(5)
    out_dtype, dtype = FLOATS[out_name], FLOATS[name]
    unsigned = bits(np.zeros(1, out_dtype)).dtype
    infinity = int(bits(np.array([np.inf]).astype(out_dtype))[0])
    patterns = random.integers(0, infinity, 3000)
    patterns[:200] = np.arange(200)  # zero and the smallest subnormals
    patterns[200:400] = infinity - 1 - np.arange(200)
    low = patterns.astype(unsigned).view(out_dtype).astype(np.float64)
    high = (patterns - (patterns > 0)).astype(unsigned).view(out_dtype).astype(np.float64)
    with np.errstate(over="ignore"):
        # beyond the largest number the next one would be as far away as the one before
        beyond = low[200] + (low[200] - high[200]) / 2
        tie = np.concatenate([low + (low - high) / 2, [beyond]])
        wide = np.concatenate([low, tie, np.nextafter(tie, 0), np.nextafter(tie, np.inf)])
        values = np.concatenate([wide, -wide]).astype(dtype)
    return values[np.isfinite(values.astype(np.float64))][:, None]


@pytest.mark.parametrize(("name", "out_name"), PAIRS)
def test_every_pair_rounds_once(name: str, out_name: str) -> None:
    """Each number alone in its row: the result is that number, rounded."""
    values = around_ties(name, out_name)
    out = np.empty(values.shape, dtype=FLOATS[out_name])
    E(values, np.arange(len(values)), len(values), out=out, num_threads=1)
    assert_same_bits(out, round_once(values.astype(np.float64) + 0.0, 0, out.dtype))


@pytest.mark.parametrize(("name", "out_name"), PAIRS_AT_SIZE)
def test_pairs_of_dtypes_at_size(name: str, out_name: str) -> None:
    """Where all threads work, in the documented order, with the one rounding at the end."""
    random = np.random.default_rng(4)
    dtype = FLOATS[out_name]
    grad = random.standard_normal((30_000, 3)).astype(FLOATS[name])
    for num_weights in (100, 30_000):
        ids = hot_ids(random, 30_000, num_weights)
        order = sum_order(30_000, num_weights, 3)
        old = random.standard_normal((num_weights, 3)).astype(dtype)
        for start in (None, old):
            want = ordered_sum(
                grad,
                ids,
                num_weights,
                cut=order.cut,
                block_length=order.block_length,
                padding_idx=2,
                scale=True,
                out_dtype=dtype,
                old=start,
            )
            for threads in THREADS:
                out = old.copy()
                adding = start is not None
                E(grad, ids, num_weights, 2, True, out=out, accumulate=adding, num_threads=threads)
                assert_same_bits(out, want)
