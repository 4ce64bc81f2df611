"""Row frequencies in windows of any size, against a plain count."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numba_embed import frequencies
from numba_embed.errors import EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.frequencies import IndexStream

MAX = 2**64 - 1


def counted(indices: npt.ArrayLike, num_weights: int) -> list[tuple[int, int]]:
    """All windows of a stream as (row, count), after checking their form."""
    found: list[tuple[int, int]] = []
    for rows, running in IndexStream(indices, num_weights).frequencies():
        assert rows.dtype == np.uint64
        assert running.dtype == np.int64
        assert running.shape == (rows.size + 1,)
        assert running[0] == 0
        found += zip(rows.tolist(), np.diff(running).tolist(), strict=True)
    return found


def plain(indices: npt.NDArray[Any]) -> list[tuple[int, int]]:
    return sorted(Counter(int(row) for row in indices.ravel().tolist()).items())


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows so small that a few look-ups need every kind of cut."""
    monkeypatch.setattr(frequencies, "_BLOCK", 16)
    monkeypatch.setattr(frequencies, "_COUNTERS", 8)
    monkeypatch.setattr(frequencies, "_GATHERED", 8)
    monkeypatch.setattr(frequencies, "_RANGES", 4)


@pytest.mark.parametrize("num_weights", [1, 7, 8, 9, 31, 33, 100, 1000, 10**6, 2**40, 2**63, MAX])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 60, 400])
@pytest.mark.usefixtures("tiny")
def test_windows_of_every_kind(num_weights: int, count: int) -> None:
    random = np.random.default_rng([num_weights % 2**32, count])
    indices = random.integers(0, num_weights, count, dtype=np.uint64)
    indices[::3] = num_weights - 1
    indices[1::7] //= np.uint64(3)
    assert counted(indices, num_weights) == plain(indices)
    same = np.full(count, num_weights // 2, np.uint64)
    assert counted(same, num_weights) == plain(same)


@given(data=st.data())
@settings(max_examples=40)
def test_any_cut_gives_the_same(data: st.DataObject) -> None:
    num_weights = data.draw(st.sampled_from([5, 50, 300, 2**20, 2**50, MAX]))
    rows = data.draw(st.lists(st.integers(0, num_weights - 1), max_size=60))
    indices = np.array(rows, dtype=np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        ranges = data.draw(st.sampled_from([2, 4, 16]))
        patch.setattr(frequencies, "_RANGES", ranges)
        patch.setattr(frequencies, "_COUNTERS", data.draw(st.integers(ranges, 64)))
        patch.setattr(frequencies, "_GATHERED", data.draw(st.integers(1, 64)))
        assert counted(indices, num_weights) == plain(indices)


def test_real_sizes_of_the_windows() -> None:
    random = np.random.default_rng(0)
    for num_weights in (2**23, 2**23 + 1, 2**34):
        indices = random.integers(0, num_weights, 5000)
        indices[:900] = 17
        assert counted(indices, num_weights) == plain(indices)


def test_more_look_ups_than_are_gathered_at_once() -> None:
    random = np.random.default_rng(0)
    indices = random.integers(0, 2**40, 2**23 + 3)
    indices[: 2**22] = 99
    rows, counts = np.unique(indices, return_counts=True)
    windows = list(IndexStream(indices, 2**40).frequencies())
    assert len(windows) > 1
    assert (np.concatenate([window[0] for window in windows]) == rows).all()
    assert (np.concatenate([np.diff(window[1]) for window in windows]) == counts).all()


DTYPES = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "float32", "float64", "bool"])
@pytest.mark.usefixtures("tiny")
def test_dtypes_and_layouts(dtype: str, order: str) -> None:
    random = np.random.default_rng(3)
    high = 2 if dtype == "bool" else 100
    plain_ids = random.integers(0, high, (6, 5, 4))
    indices = plain_ids.astype(np.dtype(dtype).newbyteorder(order))
    for view in (
        indices,
        indices.T,
        np.asfortranarray(indices),
        indices[::-1, 1::2],
        indices[2, 3, 1:2].reshape(()),
        np.broadcast_to(indices[0, 0], (9, 4)),
        indices[:0],
    ):
        view.flags.writeable = False
        assert counted(view, 128) == plain(view)


def test_blocks_keep_c_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequencies, "_BLOCK", 16)
    indices = np.arange(120).reshape(6, 5, 4).T
    read = np.concatenate(list(IndexStream(indices, 120).blocks()))
    assert read.dtype == np.uint64
    assert read.tolist() == indices.ravel().tolist()


def test_memory_mapped_file(tmp_path: Path) -> None:
    indices = np.random.default_rng(1).integers(0, 1000, (300, 70), dtype=np.int32)
    np.save(tmp_path / "ids.npy", indices)
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    assert counted(mapped, 1000) == plain(indices)


def test_a_large_file_is_never_held_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.int64, (5_000_000,))
    mapped[:] = np.arange(5_000_000) % 1000
    mapped.flush()
    mapped = np.load(path, mmap_mode="r")
    counted(mapped[:10], 1000)  # compiles
    tracemalloc.start()
    found = counted(mapped, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [(row, 5000) for row in range(1000)]
    assert peak < mapped.nbytes / 5


@pytest.mark.parametrize("num_weights", [100, 2**30])
@pytest.mark.usefixtures("tiny")
def test_the_first_bad_index_is_named(num_weights: int) -> None:
    indices = np.zeros((5, 10), np.int64)
    indices[3, 4], indices[3, 9], indices[4, 0] = num_weights, -1, -7
    with pytest.raises(
        EmbedIndexError, match=rf"indices\[3, 4\] = {num_weights} .*, {num_weights}"
    ):
        counted(indices, num_weights)
    indices[2, 8] = -5
    with pytest.raises(EmbedIndexError, match=r"indices\[2, 8\] = -5 \(position 28 in C order\)"):
        counted(indices, num_weights)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (2.5, EmbedValueError),
        (-2.5, EmbedValueError),
        (float("nan"), EmbedValueError),
        (float("inf"), EmbedIndexError),
        (-1.0, EmbedIndexError),
        (100.0, EmbedIndexError),
        (1e300, EmbedIndexError),
    ],
)
@pytest.mark.filterwarnings("error")
def test_float_indices(value: float, error: type[Exception]) -> None:
    indices = np.array([1.0, 99.0, value, -1.0, 0.5])
    with pytest.raises(error, match=r"indices\[2\] = .* \[0, 100\)") as caught:
        counted(indices, 100)
    assert type(caught.value) is error
    assert counted(indices[:2], 100) == [(1, 1), (99, 1)]


def test_bounds_are_exact_at_64_bits() -> None:
    assert counted(np.array([MAX - 1], np.uint64), MAX) == [(MAX - 1, 1)]
    with pytest.raises(EmbedIndexError, match=str(MAX)):
        counted(np.array([MAX], np.uint64), MAX)
    # 2**53 is a float64, and a row of a table of 2**53 + 1 rows, which is none.
    assert counted(np.array([2.0**53]), 2**53 + 1) == [(2**53, 1)]
    with pytest.raises(EmbedIndexError):
        counted(np.array([2.0**53]), 2**53)
    assert counted(np.array([-0.0]), 1) == [(0, 1)]


def test_refusals() -> None:
    for bad in (np.zeros(3, complex), np.array(["a"]), np.zeros(3, "i4,i4"), np.zeros(3, "m8[s]")):
        with pytest.raises(EmbedTypeError, match="indices must be"):
            IndexStream(bad, 10)
    with pytest.raises(EmbedValueError, match="at most 8 dimensions, got 9"):
        IndexStream(np.zeros((1,) * 9, int), 10)
    with pytest.raises(EmbedIndexError, match="num_weights is 0"):
        counted([0], 0)
    assert counted(np.zeros((0, 3), int), 0) == []
    assert counted([], 0) == []


def test_groups_cover_all_ranges_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequencies, "_GATHERED", 10)
    for counts in itertools.product([0, 4, 11], repeat=5):
        for few in (0, 1, 2, 5):
            groups = list(frequencies._groups(np.array(counts), few))
            assert [0, *(end for _, end in groups)] == [*(first for first, _ in groups), 5]
            for first, end in groups:
                assert end - first <= max(few, 1) or sum(counts[first:end]) <= 10
