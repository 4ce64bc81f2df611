"""The documented split is what the kernels use: each core reports the look-ups that it counted."""

from __future__ import annotations

import numpy as np
import pytest
from inputs import THREADS, around, plan_for
from reference import Array, assert_same_bits

import numba_embed as ne


def documented_split(ids: Array, num_weights: int, core_num: int) -> Array:
    """Count look-ups per core: V // cores rows each, the last core also owns the remainder."""
    rows = num_weights // core_num
    core = np.minimum(ids // rows, core_num - 1) if rows else np.full(ids.shape, core_num - 1)
    return np.bincount(core, minlength=core_num)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("num_weights", [1, 5, 100, 1000, 5000, 30_522, 200_000])
def test_each_core_counts_the_rows_of_the_documented_split(num_weights: int, threads: int) -> None:
    random = np.random.default_rng(num_weights)
    edges = around([num_weights // 3, num_weights // 32, num_weights - num_weights % 7])
    for size in (30, 9000):
        ids = random.integers(0, num_weights, size)
        ids[: len(edges)] = np.clip(edges, 0, num_weights - 1)
        grad = np.ones((size, 1), dtype=np.float32)
        for cores in (None, 1, 2, 3, 7, 32, 64, 1000, 70_000):
            plan = plan_for(grad, ids, num_weights, core_num=cores, num_threads=threads)
            assert cores is None or plan.partition.core_num == cores
            report = ne.RunReport()
            plan.execute(grad, ids, report=report)
            assert report.lookups_per_core.dtype == np.int64
            core_num = plan.partition.core_num
            want = documented_split(ids, num_weights, core_num)
            assert np.array_equal(report.lookups_per_core, want), (size, cores)
            owners = np.asarray(plan.partition.core_of(ids)).astype(np.int64)
            assert np.array_equal(np.bincount(owners, minlength=core_num), want), (size, cores)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("num_weights", [20, 6000])
def test_padding_and_dropped_positions_are_not_counted(num_weights: int, threads: int) -> None:
    random = np.random.default_rng(8)
    ids = random.integers(-3, num_weights + 3, 20_000)
    ids[::5] = 7
    grad = np.ones((20_000, 1), dtype=np.float64)
    plan = plan_for(
        grad, ids, num_weights, 7, True, on_invalid="drop", core_num=6, num_threads=threads
    )
    report = ne.RunReport()
    out = plan.execute(grad, ids, report=report)
    kept = ids[(ids >= 0) & (ids < num_weights) & (ids != 7)]
    assert np.array_equal(report.lookups_per_core, documented_split(kept, num_weights, 6))
    assert_same_bits(out, np.isin(np.arange(num_weights), kept).astype(np.float64)[:, None])


def test_a_report_is_filled_anew_by_every_run() -> None:
    grad, ids = np.ones((4, 2), np.float32), np.array([0, 1, 1, 5])
    plan = plan_for(grad, ids, 6, core_num=3)
    report = ne.RunReport()
    for _ in range(2):
        plan.execute(grad, ids, report=report)
        assert report.lookups_per_core.tolist() == [3, 0, 1]
    plan.execute(
        grad, ids * 0 + 2, out=np.zeros((6, 2), np.float32), accumulate=True, report=report
    )
    assert report.lookups_per_core.tolist() == [0, 4, 0]
    empty = ne.plan_dense_backward((0, 2), "float32", (0,), "int64", 6, core_num=3)
    empty.execute(grad[:0], ids[:0], report=report)
    assert report.lookups_per_core.tolist() == [0, 0, 0]


@pytest.mark.parametrize("core_num", [2**31, 2**63, 2**63 + 1, 2**64 - 1])
def test_cores_of_which_only_the_last_owns_rows(core_num: int) -> None:
    grad, ids = np.ones((4, 2), np.float32), np.array([0, 1, 1, 5])
    report = ne.RunReport()
    plan_for(grad, ids, 6, core_num=core_num).execute(grad, ids, report=report)
    assert report.lookups == 4
    with pytest.raises(ne.EmbedValueError, match="core_num"):
        _ = report.lookups_per_core
