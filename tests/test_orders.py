"""The order of additions: bit for bit the documented one, whoever does the additions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import RunPython
from inputs import CORES, THREADS, around, hot_ids, spread, thresholds
from jobs import JOBS, MILLION_JOBS, Job, all_digests, draw, run
from reference import Array, assert_same_bits, ordered_sum

from numba_embed import embedding_dense_backward as E
from numba_embed.order import SumOrder, sum_order


def check(grad: Array, ids: Array, num_weights: int, **options: Any) -> SumOrder:
    """Compare every thread count with the documented order."""
    order = sum_order(ids.size, num_weights, grad.shape[-1])
    want = ordered_sum(
        grad,
        ids,
        num_weights,
        cut=order.cut,
        block_length=order.block_length,
        out_dtype=np.float64,
        padding_idx=options.get("padding_idx"),
        scale=options.get("scale_grad_by_freq", False),
        drop=options.get("on_invalid") == "drop",
    )
    for threads in THREADS:
        out = np.full((num_weights, grad.shape[-1]), np.nan)
        E(grad, ids, num_weights, out=out, num_threads=threads, **options)
        assert_same_bits(out, want)
    return order


def counted_ids(
    random: np.random.Generator, counts: list[int], num_weights: int, size: int
) -> Array:
    """Shuffle a stream in which row r occurs ``counts[r]`` times; other rows share the rest."""
    rest = random.integers(len(counts), num_weights, size - sum(counts))
    return random.permutation(np.concatenate([np.repeat(np.arange(len(counts)), counts), rest]))


@pytest.mark.parametrize("name", ["float64", "float32"])
@pytest.mark.parametrize("size", [5_000, 20_000, 90_000])
def test_rows_just_below_at_and_above_the_cut(size: int, name: str) -> None:
    random = np.random.default_rng(size)
    num_weights = 60_000
    cut = sum_order(size, num_weights, 3).cut
    assert 0 < cut < size // 3
    ids = counted_ids(random, [cut - 1, cut, cut + 1], num_weights, size)
    check(spread(random, (size, 3), name), ids, num_weights)


def test_a_stream_of_one_row_around_the_cut() -> None:
    random = np.random.default_rng(0)
    lengths = thresholds(lambda n: n >= sum_order(n, 60_000, 2).cut, 1, 100_000)
    assert lengths
    for size in around(lengths):
        check(spread(random, (size, 2), "float64"), np.full(size, 11), 60_000)


@pytest.mark.parametrize("num_weights", [30, 200_000])
@pytest.mark.parametrize("blocks", [40, 257, 1024])
def test_streams_around_multiples_of_a_block(blocks: int, num_weights: int) -> None:
    random = np.random.default_rng(blocks)
    for size in around([16 * blocks, 16 * blocks + 16, 16 * blocks + 9]):
        ids = hot_ids(random, size, num_weights)
        check(spread(random, (size, 2), "float64"), ids, num_weights)


# Edges of the small-vocabulary region: (N, V, D) on both sides of every change of the rule, where
# one of the three grows and the other two stay.
SWEEPS: dict[str, tuple[Callable[[int], tuple[int, int, int]], int, int]] = {
    "N": (lambda x: (x, 700, 3), 1, 60_000),
    "V": (lambda x: (40_000, x, 3), 1, 60_000),
    "D": (lambda x: (6_000, 40, x), 1, 3_000),
}
EDGES = [
    (axis, point)
    for axis, (shape, low, high) in SWEEPS.items()
    for point in thresholds(lambda x: sum_order(*shape(x))[:2], low, high)  # noqa: B023
    if axis != "N" or sum_order(point, 700, 3).cut == 0 or sum_order(point - 1, 700, 3).cut == 0
]


def test_the_edges_are_there() -> None:
    """Each sweep meets the region's border, so that the next test is not empty."""
    for axis, (shape, _, _) in SWEEPS.items():
        kinds = {
            sum_order(*shape(near)).cut == 0
            for name, point in EDGES
            if name == axis
            for near in (point - 1, point)
        }
        assert kinds == {True, False}, axis


@pytest.mark.parametrize(("axis", "point"), EDGES)
def test_both_sides_of_the_small_vocabulary_region(axis: str, point: int) -> None:
    for near in (point - 1, point, point + 1):
        size, num_weights, width = SWEEPS[axis][0](near)
        if not num_weights:
            continue
        random = np.random.default_rng(near)
        # one hot row and one rare row show the two ways of summing
        ids = hot_ids(random, size, num_weights)
        check(spread(random, (size, width), "float64"), ids, num_weights)


@pytest.mark.parametrize(
    "width", [1, 2, 5, 8, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 4100]
)
def test_widths(width: int) -> None:
    random = np.random.default_rng(width)
    size = 1400
    for num_weights in (3, 90_000 // width + 500):
        ids = hot_ids(random, size, num_weights)
        check(spread(random, (size, width), "float64"), ids, num_weights)


@pytest.mark.parametrize("num_weights", [50, 40_000])
def test_options_follow_the_order_too(num_weights: int) -> None:
    random = np.random.default_rng(num_weights)
    ids = hot_ids(random, 30_000, num_weights)
    grad = spread(random, (30_000, 2), "float64")
    hot = num_weights // 3
    check(grad, ids, num_weights, scale_grad_by_freq=True)
    check(grad, ids, num_weights, padding_idx=hot)
    check(grad, ids, num_weights, padding_idx=hot + 1, scale_grad_by_freq=True)
    ids[random.random(ids.size) < 0.1] = -7
    ids[random.random(ids.size) < 0.1] = num_weights
    check(grad, ids, num_weights, on_invalid="drop", scale_grad_by_freq=True)
    order = sum_order(ids.size, num_weights, 2)
    old = spread(random, (num_weights, 2), "float64")
    want = ordered_sum(
        grad,
        ids,
        num_weights,
        cut=order.cut,
        block_length=order.block_length,
        padding_idx=hot + 1,
        scale=True,
        old=old,
        drop=True,
    )
    for threads in THREADS:
        out = old.copy()
        E(
            grad,
            ids,
            num_weights,
            hot + 1,
            True,
            out=out,
            accumulate=True,
            on_invalid="drop",
            num_threads=threads,
        )
        assert_same_bits(out, want)


@pytest.mark.parametrize("name", list(JOBS))
def test_no_thread_or_core_count_changes_a_bit(name: str) -> None:
    all_digests({name: JOBS[name]}, [None, *THREADS], CORES)


def job_in_order(job: Job, grad: Array, ids: Array) -> Array:
    """Sum a job by the reference of the order."""
    order = sum_order(job.size, job.num_weights, job.width)
    return ordered_sum(
        grad,
        ids,
        job.num_weights,
        cut=order.cut,
        block_length=order.block_length,
        padding_idx=job.padding_idx,
        scale=job.scale,
        out_dtype=np.float64,
    )


@pytest.mark.parametrize("name", list(MILLION_JOBS))
def test_row_30_a_million_positions_half_of_them_one_row(name: str) -> None:
    job = MILLION_JOBS[name]
    grad, ids = draw(job)
    want = job_in_order(job, grad, ids)
    for threads in THREADS:
        for cores in CORES:
            assert_same_bits(run(job, grad, ids, num_threads=threads, core_num=cores), want)


def test_row_30_four_threads(run_python: RunPython) -> None:
    """Four threads, on a machine of tiny caches, agree with one and two, there and here."""
    code = """
import json
from jobs import JOBS, MILLION_JOBS, all_digests
print(json.dumps(all_digests(JOBS | MILLION_JOBS, [1, 2, 3, 4, None], [None, 1, 7, 1000])))
"""
    machine = {"NUMBA_NUM_THREADS": "4", "NUMBA_EMBED_CACHE_SIZES": "2K,64K,256K"}
    there = json.loads(run_python(code, **machine).stdout)
    assert there == all_digests(JOBS | MILLION_JOBS, [1], [None])
