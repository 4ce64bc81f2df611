"""The simulator against a plain loop over the look-ups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import numba_embed as ne
from numba_embed import frequencies
from numba_embed.errors import EmbedError, EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.partition import SPLITS, Split
from numba_embed.products import Product
from numba_embed.simulate import HOTTEST, compare_splits, simulate_cores, sweep_cores
from numba_embed.simulation import CoreSimulation

MAX = 2**64 - 1


def owners(num_weights: int, core_num: int, split: str) -> list[int]:
    """The owner of every row."""
    quotient, remainder = divmod(num_weights, core_num)
    shares = [quotient] * core_num
    for core in range(remainder):
        shares[core if split == "balanced" else -1] += 1
    return [core for core, share in enumerate(shares) for _ in range(share)]


def check_against_a_loop(
    found: CoreSimulation, indices: npt.NDArray[Any], itemsizes: tuple[int, int]
) -> None:
    owner = owners(found.num_weights, found.core_num, found.split)
    lookups = [0] * found.core_num
    touched: list[set[int]] = [set() for _ in range(found.core_num)]
    counts: dict[int, int] = {}
    padding = 0
    for row in indices.ravel().tolist():
        if row == found.padding_idx:
            padding += 1
            continue
        lookups[owner[row]] += 1
        touched[owner[row]].add(row)
        counts[row] = counts.get(row, 0) + 1
    rows = [owner.count(core) for core in range(found.core_num)]
    grad, index = itemsizes
    columns = found.embedding_dim
    moved = [
        count * (columns * grad + index) + share * columns * grad
        for count, share in zip(lookups, rows, strict=True)
    ]
    assert found.lookups_per_core.tolist() == lookups
    assert found.distinct_rows_per_core.tolist() == [len(rows) for rows in touched]
    assert found.rows_per_core.tolist() == rows
    assert found.bytes_moved_per_core.tolist() == moved
    hottest = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:HOTTEST]
    assert list(found.hottest_rows) == hottest
    assert found.padding_lookups == padding
    assert found.num_lookups == indices.size
    if sum(lookups):
        mean = sum(lookups) / found.core_num
        assert found.imbalance == pytest.approx(max(lookups) / mean)
        assert found.speedup_bound == pytest.approx(sum(lookups) / max(lookups))
        waited = sum(max(lookups) - count for count in lookups)
        assert found.idle_share == pytest.approx(waited / (max(lookups) * found.core_num))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("core_num", [1, 2, 3, 7, 32, 100, 101, 300])
@pytest.mark.parametrize("padding", [None, 0, 57, 99, 100, -1, -(2**70)])
def test_against_a_loop(split: Split, core_num: int, padding: int | None) -> None:
    random = np.random.default_rng(core_num)
    indices = (100 * random.random((40, 25)) ** 3).astype(np.int32)
    found = simulate_cores(indices, 100, core_num, 24, split=split, padding_idx=padding)
    assert (found.split, found.core_num, found.num_weights) == (split, core_num, 100)
    check_against_a_loop(found, indices, (4, 4))


@given(
    num_weights=st.integers(1, 60),
    core_num=st.integers(1, 70),
    padding=st.none() | st.integers(-2, 62),
    split=st.sampled_from(SPLITS),
    ids=st.lists(st.floats(0, 1, exclude_max=True), max_size=80),
    tiny=st.booleans(),
)
def test_property(
    num_weights: int,
    core_num: int,
    padding: int | None,
    split: Split,
    ids: list[float],
    tiny: bool,
) -> None:
    indices = (np.array(ids) * num_weights).astype(np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        if tiny:
            for name in ("_COUNTERS", "_GATHERED", "_RANGES"):
                patch.setattr(frequencies, name, 4)
        found = simulate_cores(indices, num_weights, core_num, 5, split=split, padding_idx=padding)
    check_against_a_loop(found, indices, (4, 1))


@pytest.mark.parametrize(
    ("grad_dtype", "name", "size"),
    [
        ("bfloat16", "bfloat16", 2),
        (ml_dtypes.bfloat16, "bfloat16", 2),
        (np.float16, "float16", 2),
        (np.dtype(">f4"), "float32", 4),
        ("float64", "float64", 8),
    ],
)
def test_bytes_follow_the_dtypes(grad_dtype: Any, name: str, size: int) -> None:
    indices = np.array([0, 1, 1, 9])
    found = simulate_cores(indices, 10, 2, 7, grad_dtype=grad_dtype, indices_dtype="int16")
    assert (found.grad_dtype, found.indices_dtype) == (name, "int16")
    check_against_a_loop(found, indices, (size, 2))
    assert simulate_cores(indices, 10, 2, 7).indices_dtype == "int64"


def test_buffers_against_the_limit() -> None:
    indices = np.zeros(3, np.int32)
    found = simulate_cores(indices, 30000, 32, 4899, scale_grad_by_freq=True)
    assert found.buffer_bytes_per_core.tolist() == [937 * 4 + 4899 * 36] * 31 + [180176]
    assert found.buffer_limit == 180192
    assert found.accepted
    assert found.refusals == ()
    wide = simulate_cores(indices, 30000, 32, 4900, scale_grad_by_freq=True)
    assert wide.buffer_bytes_per_core.max() == 180212
    assert not wide.accepted
    assert "at most 4899" in wide.refusals[0]
    long = simulate_cores(indices, 30000, 32, 8628, scale_grad_by_freq=True, indices_dtype=np.int64)
    assert long.buffer_bytes_per_core.max() == 953 * 8 + 8628 * 20
    assert long.accepted
    # Without frequencies nothing limits, and other products publish no buffer.
    assert simulate_cores(indices, 30000, 32, 10**6).buffer_limit is None
    assert simulate_cores(indices, 30000, 32, 10**6).accepted
    other = simulate_cores(indices, 30000, 32, 10**6, scale_grad_by_freq=True, product="ATLAS_A2")
    assert other.accepted
    assert other.buffer_limit is None


def test_acceptance_jumps_and_the_smallest_core_count() -> None:
    indices = np.zeros(3, np.int32)
    sweep = sweep_cores(indices, 30000, range(60, 70), 4950, scale_grad_by_freq=True)
    assert sweep.core_nums == tuple(range(60, 70))
    legal = [count for count, yes in zip(sweep.core_nums, sweep.accepted(), strict=True) if yes]
    assert legal == [63, 65, 66, 68, 69]
    for split in SPLITS:
        assert {found.smallest_core_num for found in sweep.simulations[split]} == {63}
    none = simulate_cores(indices, 30000, 64, 5006, scale_grad_by_freq=True)
    assert (none.accepted, none.smallest_core_num) == (False, None)
    dtype = simulate_cores(indices, 30000, 64, 10, grad_dtype="bfloat16")
    assert (dtype.accepted, dtype.smallest_core_num) == (False, None)
    assert "bfloat16" in dtype.refusals[0]
    gone = simulate_cores(indices, 30000, 64, 10, product=Product.ATLAS_INFERENCE)
    assert "does not support" in gone.refusals[0]


def test_advisories_need_no_array_of_that_size() -> None:
    many = np.broadcast_to(np.int8(0), (2,))
    assert (
        simulate_cores(many, 2**31, 4, 1, product="ATLAS_A3")
        .advisories[0]
        .startswith("2147483648 num_weights")
    )
    assert simulate_cores(many, 2**31 - 1, 4, 1, product="ATLAS_A3").advisories == ()


def test_several_partitions_equal_single_ones() -> None:
    indices = np.random.default_rng(1).integers(0, 1000, 5000)
    options: dict[str, Any] = {"padding_idx": 3, "grad_dtype": "float16"}
    counts = [48, 1, 7, 64]
    sweep = sweep_cores(indices, 1000, iter(counts), 16, **options)
    assert sweep.core_nums == tuple(counts)
    for split in SPLITS:
        single = [simulate_cores(indices, 1000, c, 16, split=split, **options) for c in counts]
        assert [found.to_dict() for found in sweep.simulations[split]] == [
            found.to_dict() for found in single
        ]
        assert sweep.speedup_bounds(split).tolist() == [found.speedup_bound for found in single]
        both = compare_splits(indices, 1000, 48, 16, **options)
        assert list(both) == list(SPLITS)
        assert both[split].to_dict() == single[0].to_dict()
    assert sweep.to_dict()["balanced"][0]["core_num"] == 48
    with pytest.raises(EmbedValueError, match="split must be one of"):
        sweep.speedup_bounds("none")  # type: ignore[arg-type]


@pytest.mark.parametrize("core_num", [1, 7, 32, 1000])
@pytest.mark.parametrize("padding", [None, 57])
def test_the_kernels_count_what_the_simulator_says(core_num: int, padding: int | None) -> None:
    random = np.random.default_rng(2)
    indices = (500 * random.random((40, 50)) ** 3).astype(np.int64)
    grad = np.ones((40, 50, 3), np.float32)
    plan = ne.plan_dense_backward(
        grad.shape, grad.dtype, indices.shape, indices.dtype, 500, padding, core_num=core_num
    )
    report = ne.RunReport()
    plan.execute(grad, indices, report=report)
    found = simulate_cores(indices, 500, core_num, 3, padding_idx=padding)
    assert plan.partition == found.partition
    assert report.lookups_per_core is not None
    assert report.lookups_per_core.tolist() == found.lookups_per_core.tolist()


def test_nothing_to_do_is_balanced() -> None:
    for num_weights, indices, padding in ((10, [], None), (0, [], None), (10, [4, 4], 4)):
        found = simulate_cores(indices, num_weights, 3, 8, padding_idx=padding)
        assert found.lookups_per_core.tolist() == [0, 0, 0]
        assert (found.imbalance, found.speedup_bound, found.idle_share) == (1.0, 3.0, 0.0)
        assert found.hottest_rows == ()
        assert "busiest core 0 with 0" in str(found)


def test_one_hot_row_is_one_core() -> None:
    found = simulate_cores(np.full(1000, 99), 100, 64, 8)
    assert (found.imbalance, found.speedup_bound) == (64.0, 1.0)
    assert found.idle_share == pytest.approx(63 / 64)
    assert found.hottest_rows == ((99, 1000),)
    assert found.lookups_per_core[-1] == 1000


def test_tables_of_any_size_are_exact() -> None:
    indices = np.array([0, 5, MAX - 1, MAX - 1], np.uint64)
    found = simulate_cores(indices, MAX, 4, 100)
    share = MAX // 4
    assert found.rows_per_core.tolist() == [share, share, share, share + 3]
    assert found.lookups_per_core.tolist() == [2, 0, 0, 2]
    assert found.bytes_moved_per_core.tolist()[3] == 2 * 408 + (share + 3) * 400
    assert found.buffer_bytes_per_core.tolist()[0] == share * 4 + 3600
    assert found.hottest_rows[0] == (MAX - 1, 2)
    assert json.loads(json.dumps(found.to_dict()))["rows_per_core"][0] == share


def test_memory_mapped_file(tmp_path: Path) -> None:
    indices = np.random.default_rng(1).integers(0, 1000, (300, 70), dtype=np.int32)
    np.save(tmp_path / "ids.npy", indices)
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    assert (
        simulate_cores(mapped, 1000, 7, 4).to_dict()
        == simulate_cores(indices, 1000, 7, 4).to_dict()
    )


def test_results_are_read_only_and_print() -> None:
    found = simulate_cores([1, 2, 2], 10, 2, 5000, scale_grad_by_freq=True, indices_dtype="int32")
    with pytest.raises(ValueError, match="read-only"):
        found.lookups_per_core[0] = 1
    text = str(found)
    assert "10 rows of 5000 columns" in text
    assert "2 cores, split counts_size" in text
    assert "accepted" in text
    refused = str(simulate_cores([1], 100, 2, 5000, scale_grad_by_freq=True, indices_dtype="int32"))
    assert "refused: embedding_dim is 5000" in refused
    assert "smallest core count accepted is 3" in refused


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"indices": [10]}, EmbedIndexError, r"indices\[0\] = 10"),
        ({"indices": [0.5]}, EmbedValueError, "not an integer"),
        ({"indices": ["a"]}, EmbedTypeError, "indices"),
        ({"num_weights": True}, EmbedTypeError, "num_weights"),
        ({"num_weights": -1}, EmbedValueError, "num_weights"),
        ({"core_num": 0}, EmbedValueError, "core_num"),
        ({"core_num": 2.0}, EmbedTypeError, "core_num"),
        ({"core_num": 2**40}, EmbedValueError, "core_num"),
        ({"embedding_dim": -1}, EmbedValueError, "embedding_dim"),
        ({"embedding_dim": 1.0}, EmbedTypeError, "embedding_dim"),
        ({"split": "even"}, EmbedValueError, "split"),
        ({"grad_dtype": "int32"}, EmbedTypeError, "grad_dtype"),
        ({"indices_dtype": "complex64"}, EmbedTypeError, "indices"),
        ({"padding_idx": 1.0}, EmbedTypeError, "padding_idx"),
        ({"padding_idx": True}, EmbedTypeError, "padding_idx"),
        ({"scale_grad_by_freq": "yes"}, EmbedTypeError, "scale_grad_by_freq"),
        ({"product": "atlas"}, EmbedValueError, "product"),
    ],
)
def test_arguments_are_checked(change: dict[str, Any], error: type[EmbedError], match: str) -> None:
    arguments: dict[str, Any] = {
        "indices": [1, 2],
        "num_weights": 10,
        "core_num": 2,
        "embedding_dim": 3,
    }
    with pytest.raises(error, match=match):
        simulate_cores(**{**arguments, **change})


def test_a_sweep_needs_core_counts() -> None:
    with pytest.raises(EmbedValueError, match="core_nums"):
        sweep_cores([1], 10, [], 3)
    with pytest.raises(EmbedValueError, match="core_num must lie in"):
        sweep_cores([1], 10, [1, 0], 3)
