"""The row partition against a plain list of shares, and its exactness up to 2**64 - 1."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numba_embed.errors import EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.partition import (
    MAX_LISTED_CORES,
    SPLITS,
    CorePartition,
    counts_size,
    partition_rows,
)

MAX = 2**64 - 1


def plain_shares(num_weights: int, core_num: int, split: str) -> list[int]:
    """Rows per core, dealt out as the documentation words it."""
    shares = [num_weights // core_num] * core_num
    if split == "counts_size":
        shares[-1] += num_weights % core_num
    else:
        for core in range(num_weights % core_num):
            shares[core] += 1
    return shares


def plain_starts(num_weights: int, core_num: int, split: str) -> list[int]:
    starts = [0]
    for share in plain_shares(num_weights, core_num, split):
        starts.append(starts[-1] + share)
    return starts


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("num_weights", [0, 1, 2, 3, 7, 31, 32, 33, 64, 100, 257, 1000])
def test_grid_against_plain_shares(num_weights: int, split: str) -> None:
    for core_num in [*range(1, 40), 63, 64, 65, 100, 257, 1000, 1001, 4099]:
        part = partition_rows(num_weights, core_num, split)
        shares = plain_shares(num_weights, core_num, split)
        starts = plain_starts(num_weights, core_num, split)
        assert part.rows_per_core.tolist() == shares
        assert part.row_starts.tolist() == starts
        assert part.row_starts.dtype == part.rows_per_core.dtype == np.int64
        assert part.counts_size == max(shares)
        owners = [core for core, share in enumerate(shares) for _ in range(share)]
        assert part.core_of(np.arange(num_weights)).tolist() == owners
        assert [part.core_of(row) for row in range(num_weights)] == owners
        for core in {0, core_num // 2, core_num - 1}:
            assert part.rows_of(core) == range(starts[core], starts[core + 1])


@pytest.mark.parametrize(
    ("num_weights", "core_num", "split", "shares"),
    [
        (10, 4, "counts_size", [2, 2, 2, 4]),
        (10, 4, "balanced", [3, 3, 2, 2]),
        (3, 5, "counts_size", [0, 0, 0, 0, 3]),
        (3, 5, "balanced", [1, 1, 1, 0, 0]),
        (0, 3, "counts_size", [0, 0, 0]),
        (0, 3, "balanced", [0, 0, 0]),
        (8, 4, "counts_size", [2, 2, 2, 2]),
        (100, 64, "counts_size", [1] * 63 + [37]),
    ],
)
def test_hand_worked(num_weights: int, core_num: int, split: str, shares: list[int]) -> None:
    assert partition_rows(num_weights, core_num, split).rows_per_core.tolist() == shares


@pytest.mark.parametrize("split", SPLITS)
@given(data=st.data())
def test_exact_over_64_bits(split: str, data: st.DataObject) -> None:
    num_weights = data.draw(st.integers(1, MAX) | st.integers(MAX - 1000, MAX))
    core_num = data.draw(st.integers(1, 300) | st.integers(1, MAX) | st.integers(MAX - 9, MAX))
    part = partition_rows(num_weights, core_num, split)
    near = st.integers(0, num_weights - 1) | st.integers(max(0, num_weights - 400), num_weights - 1)
    rows = data.draw(st.lists(near, min_size=1, max_size=20))
    cores = part.core_of(np.array(rows, dtype=np.uint64))
    assert [int(core) for core in cores] == [part.core_of(row) for row in rows]
    for row, core in zip(rows, cores, strict=True):
        owned = part.rows_of(int(core))
        assert owned.start <= row < owned.stop
        assert owned.stop - owned.start <= part.counts_size
    if core_num <= 300:
        starts = plain_starts(num_weights, core_num, split)
        assert part.row_starts.tolist() == starts
        assert part.row_starts.dtype == (np.int64 if num_weights < 2**63 else np.uint64)
        assert part.rows_per_core.tolist() == plain_shares(num_weights, core_num, split)
        for core in range(core_num):
            if starts[core] < starts[core + 1]:
                assert part.core_of(starts[core]) == core
                assert part.core_of(starts[core + 1] - 1) == core


def test_counts_size_is_the_largest_documented_share() -> None:
    for num_weights in range(0, 200, 7):
        for core_num in range(1, 220):
            assert counts_size(num_weights, core_num) == max(
                plain_shares(num_weights, core_num, "counts_size")
            )
    assert counts_size(30000, 32) == 937 + 16
    assert counts_size(MAX, 1) == MAX
    assert counts_size(MAX, 2**32) == 2**32 - 1 + 2**32 - 1
    assert counts_size(MAX - 1, MAX) == MAX - 1


def test_cores_are_64_bit_where_they_must_be() -> None:
    assert partition_rows(MAX, MAX).core_of(np.array([MAX - 1], np.uint64)).dtype == np.uint64
    assert partition_rows(5, 2**63).core_of([4]).dtype == np.int64
    assert partition_rows(5, 2**63).core_of([4]).tolist() == [2**63 - 1]


@pytest.mark.parametrize("split", SPLITS)
def test_absurd_core_num_costs_nothing(split: str) -> None:
    tracemalloc.start()
    part = partition_rows(100, 2**40, split)
    owners = part.core_of(np.arange(100))
    size = part.counts_size
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert size == (100 if split == "counts_size" else 1)
    assert owners.tolist() == ([2**40 - 1] * 100 if split == "counts_size" else list(range(100)))
    for attribute in ("row_starts", "rows_per_core"):
        with pytest.raises(EmbedValueError, match=f"core_num .*{MAX_LISTED_CORES}.*{2**40}"):
            getattr(part, attribute)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("num_weights", [2**63 - 1, 2**63, 2**64 - 2, MAX])
def test_ends_of_the_64_bit_range(num_weights: int, split: str) -> None:
    for core_num in [1, 2, 3, 2**32, 2**63 - 1, 2**63, num_weights, MAX]:
        part = partition_rows(num_weights, core_num, split)
        rows = [0, 1, num_weights // 2, num_weights - 2, num_weights - 1]
        owners = part.core_of(np.array(rows, np.uint64)).tolist()
        assert owners == [part.core_of(row) for row in rows]
        assert all(row in part.rows_of(core) for row, core in zip(rows, owners, strict=True))


def test_core_of_shapes_and_kinds() -> None:
    part = partition_rows(10, 4)
    assert type(part.core_of(9)) is int
    assert type(part.core_of(np.uint8(9))) is int
    assert type(part.core_of(np.array(9))) is int
    assert part.core_of([[0, 3], [7, 9]]).tolist() == [[0, 1], [3, 3]]
    assert part.core_of([]).shape == (0,)
    assert part.core_of(np.empty((0, 3), np.int16)).shape == (0, 3)
    assert part.core_of(np.array([9, 2], dtype=">i4")).tolist() == [3, 1]
    rows = np.arange(10)[::-2]
    assert part.core_of(rows).tolist() == [3, 3, 2, 1, 0]
    assert rows.tolist() == [9, 7, 5, 3, 1]
    assert partition_rows(300, 7).core_of(np.array([100], np.int8)).tolist() == [100 // 42]


@pytest.mark.parametrize(
    "rows", [-1, 10, 2**70, np.int64(-1), [3, 10], [3, -1], [-1, 2**63], [2**64], np.array(10)]
)
def test_rows_outside(rows: object) -> None:
    with pytest.raises(EmbedIndexError, match=r"rows must lie in \[0, 10\), got"):
        partition_rows(10, 4).core_of(rows)


def test_the_first_bad_row_is_named() -> None:
    with pytest.raises(EmbedIndexError, match=r"got 12$"):
        partition_rows(10, 4).core_of(np.array([[1, 12], [-3, 10]]))
    with pytest.raises(EmbedIndexError, match=r"got 0$"):
        partition_rows(0, 4).core_of(0)


@pytest.mark.parametrize(
    "rows", [2.0, True, np.True_, [1.0], np.zeros(3, bool), "a", [[1], [1, 2]]]
)
def test_rows_of_a_wrong_kind(rows: object) -> None:
    with pytest.raises(EmbedTypeError, match="rows must be"):
        partition_rows(10, 4).core_of(rows)


def test_rows_of_refuses_other_cores() -> None:
    part = partition_rows(10, 4)
    for core in (-1, 4, 2**70):
        with pytest.raises(EmbedIndexError, match=rf"core must lie in \[0, 3\], got {core}"):
            part.rows_of(core)
    with pytest.raises(EmbedTypeError, match="core must be an integer"):
        part.rows_of(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["num_weights", "core_num"])
@pytest.mark.parametrize("value", [True, np.False_, 3.0, np.float32(3), "3", None, [3]])
@pytest.mark.parametrize("function", [partition_rows, CorePartition, counts_size])
def test_arguments_of_a_wrong_kind(function: object, name: str, value: object) -> None:
    with pytest.raises(EmbedTypeError, match=f"{name} must be an integer"):
        function(**{"num_weights": 10, "core_num": 4, name: value})  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_weights", -1), ("num_weights", 2**64), ("core_num", 0), ("core_num", 2**64)],
)
@pytest.mark.parametrize("function", [partition_rows, CorePartition, counts_size])
def test_arguments_out_of_range(function: object, name: str, value: int) -> None:
    with pytest.raises(EmbedValueError, match=rf"{name} must lie in .* got {value}"):
        function(**{"num_weights": 10, "core_num": 4, name: value})  # type: ignore[operator]


def test_split_is_checked() -> None:
    with pytest.raises(EmbedValueError, match=r"split must be one of .*'even'"):
        partition_rows(10, 4, "even")  # type: ignore[arg-type]
    with pytest.raises(EmbedTypeError, match="split must be one of"):
        partition_rows(10, 4, ["balanced"])  # type: ignore[arg-type]


def test_frozen_small_and_equal_by_value() -> None:
    part = partition_rows(np.uint16(10), np.int64(4))
    assert type(part.num_weights) is type(part.core_num) is int
    assert part == partition_rows(10, 4)
    assert hash(part) == hash(partition_rows(10, 4))
    assert part != partition_rows(10, 4, "balanced")
    assert pickle.loads(pickle.dumps(part)) == part
    with pytest.raises(dataclasses.FrozenInstanceError):
        part.core_num = 5  # type: ignore[misc]
    assert not hasattr(part, "__dict__")
    part.row_starts[0] = 7
    assert part.row_starts[0] == 0
