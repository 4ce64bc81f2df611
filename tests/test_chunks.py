"""A stream of batches: sums carried in float64, one rounding at the end, progress, errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import THREADS, hot_ids, normal, refused, spaced, spread
from reference import FLOATS, Array, assert_same_bits, fast_dense_backward, round_once

import numba_embed as ne
from numba_embed import embedding_dense_backward as E
from numba_embed import embedding_dense_backward_chunks as chunks

Batches = list[tuple[Array, Array]]


def cut(grad: Array, ids: Array, *ends: int) -> Batches:
    """Cut a stream into batches."""
    bounds = [0, *ends, ids.size]
    return [(grad[a:b], ids[a:b]) for a, b in itertools.pairwise(bounds)]


class Raises:
    """Raises what no protocol foresees, whatever it is asked."""

    def _raise(self, *arguments: Any) -> Any:
        raise KeyError("x")

    __iter__ = __len__ = __repr__ = _raise


def in_order(batches: Batches, num_weights: int, scale: bool, **options: Any) -> Array:
    """Add the batches' float64 sums one after the other, the documented way."""
    sums = np.zeros((num_weights, batches[0][0].shape[-1]))
    counts = np.zeros(num_weights)
    for grad, ids in batches:
        out = np.empty_like(sums)
        E(grad, ids, num_weights, out=out, **options)
        sums = sums + out
        inside = ids[(ids >= 0) & (ids < num_weights)]
        counts += np.bincount(inside, minlength=num_weights)
    return sums / np.maximum(counts, 1)[:, None] if scale else sums


@pytest.mark.parametrize("num_weights", [50, 4000])
@pytest.mark.parametrize("scale", [False, True])
def test_bits_are_those_of_the_documented_order(num_weights: int, scale: bool) -> None:
    random = np.random.default_rng(num_weights)
    ids = hot_ids(random, 20_000, num_weights)
    grad = spread(random, (20_000, 3), "float64")
    for ends in ((), (0, 1, 9000), (5000, 10_000, 10_000, 20_000)):
        batches = cut(grad, ids, *ends)
        for options in ({}, {"padding_idx": 3}):
            want = in_order(batches, num_weights, scale, **options)
            for threads in THREADS:
                found = chunks(
                    batches, num_weights, scale_grad_by_freq=scale, num_threads=threads, **options
                )
                assert_same_bits(found, want)
                if not ends:
                    assert_same_bits(
                        found, E(grad, ids, num_weights, 3 if options else None, scale)
                    )


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
def test_one_rounding_makes_it_one_call(name: str) -> None:
    """Where float64 sums are exact, cuts do not show: the bits of a call on the whole."""
    random = np.random.default_rng(1)
    ids = hot_ids(random, 6000, 40)
    grad = random.integers(-64, 64, (6000, 5)).astype(FLOATS[name])
    want = E(grad, ids, 40, 7, True)
    assert_same_bits(chunks(cut(grad, ids, 100, 4000), 40, 7, True), want)
    ones = np.ones((5000, 1), FLOATS[name])
    many = chunks(cut(ones, np.zeros(5000, int), *range(100, 5000, 100)), 1)
    assert_same_bits(many, round_once([[5000.0]], 0, FLOATS[name]))


def test_dropped_indices_do_not_count() -> None:
    random = np.random.default_rng(2)
    ids = random.integers(-5, 35, 4000)
    grad = normal(random, (4000, 3), "float32")
    for dtype in (np.int64, np.int8, np.float32):
        found = chunks(cut(grad, ids.astype(dtype), 1234), 30, None, True, on_invalid="drop")
        want = fast_dense_backward(grad, ids, 30, scale=True, drop=True)
        assert_same_bits(found, want)


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_outputs_of_any_dtype_and_layout(name: str) -> None:
    random = np.random.default_rng(3)
    ids, grad = hot_ids(random, 3000, 90), normal(random, (3000, 4), "float32")
    want = np.zeros((90, 4), FLOATS[name])
    E(grad, ids, 90, out=want)
    for out in (want * 0 + 1, np.asfortranarray(want), spaced(want, -2, 3)):
        assert chunks(iter(cut(grad, ids, 50)), 90, out=out) is out
        assert_same_bits(np.ascontiguousarray(out), want)


def test_more_rows_than_are_written_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba_embed.streamed.WRITTEN_ROWS", 100)
    random = np.random.default_rng(4)
    for num_weights in (99, 100, 101, 350):
        ids, grad = hot_ids(random, 3000, num_weights), normal(random, (3000, 2), "float32")
        for scale in (False, True):
            found = chunks(cut(grad, ids, 1000), num_weights, None, scale)
            assert_same_bits(found, E(grad, ids, num_weights, None, scale))


def test_the_accumulator_may_be_a_file(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    ids, grad = hot_ids(random, 3000, 90), normal(random, (3000, 4), "float32")
    sums = np.memmap(tmp_path / "sums", np.float64, "w+", shape=(90, 4))
    found = chunks(cut(grad, ids, 50), 90, None, True, accumulator=sums)
    assert_same_bits(found, E(grad, ids, 90, None, True))
    want = np.zeros((90, 4))
    E(grad, ids, 90, out=want)
    np.testing.assert_allclose(sums, want, rtol=1e-14, atol=1e-12)


def test_progress_is_reported_after_every_batch() -> None:
    grad, ids = np.ones((60, 2)), np.zeros((60,), int)
    batches = cut(grad, ids, 10, 10, 30)
    seen: list[ne.ChunkProgress] = []
    chunks(batches, 4, progress=seen.append)
    assert seen == [(1, 10, 4), (2, 10, 4), (3, 30, 4), (4, 60, 4)]
    seen.clear()
    chunks((batch for batch in batches), 4, progress=seen.append)
    assert [report.total for report in seen] == [None] * 4
    assert seen[-1].positions == 60


def test_nothing_and_empty_batches() -> None:
    out = np.full((3, 2), 7.0, np.float32)
    assert chunks([], 3, out=out) is out
    assert not out.any()
    empty = (np.ones((0, 2), np.float32), np.zeros(0, int))
    assert_same_bits(chunks([empty, empty], 3), np.zeros((3, 2), np.float32))
    assert chunks([(np.ones((1, 0)), [0])], 3).shape == (3, 0)
    with refused(ne.EmbedValueError, "batches", "out"):
        chunks([], 3)
    with refused(ne.EmbedValueError, "batches", "out"):
        chunks([], 3, accumulator=np.zeros((3, 2)))


def test_an_error_in_the_middle_leaves_out_alone() -> None:
    out = np.full((4, 2), 7.0)
    good = (np.ones((3, 2)), np.array([0, 1, 1]))
    for bad, error, parts in (
        ((np.ones((2, 2)), [0, 4]), ne.EmbedIndexError, ("batch 2", "indices[1]", 4)),
        ((np.ones((2, 2)), [0.5, 1]), ne.EmbedValueError, ("batch 2", "indices[0]")),
        ((np.ones((2, 3)), [0, 1]), ne.EmbedValueError, ("batch 2", "D = 2", (2, 3))),
        ((np.ones((2, 2)), [0]), ne.EmbedValueError, ("batch 2", "agree")),
        ((np.ones((2, 2), int), [0, 1]), ne.EmbedTypeError, ("batch 2", "grad", "int64")),
        ((np.ones((2, 2)),), ne.EmbedTypeError, ("batch 2", "pairs", "tuple")),
        (5, ne.EmbedTypeError, ("batch 2", "pairs", "int")),
    ):
        sums = np.zeros((4, 2))
        with refused(error, *parts, out=out):
            chunks([good, good, bad, good], 4, out=out, accumulator=sums)
        assert sums[:, 0].tolist() == [2, 4, 0, 0]

    def broken() -> Iterator[Any]:
        yield good
        raise RuntimeError("no more")

    before = out.copy()
    with pytest.raises(RuntimeError, match="no more"):
        chunks(broken(), 4, out=out)
    assert_same_bits(out, before)


def test_bad_arguments_are_refused_before_a_batch_is_asked_for() -> None:
    def untouched() -> Iterator[Any]:
        raise AssertionError("a batch was asked for")
        yield

    out = np.ones((4, 2))
    for options, error, parts in (
        ({"num_weights": -1}, ne.EmbedValueError, ("num_weights", -1)),
        ({"padding_idx": 1.5}, ne.EmbedTypeError, ("padding_idx",)),
        ({"scale_grad_by_freq": 3}, ne.EmbedTypeError, ("scale_grad_by_freq",)),
        ({"on_invalid": "?"}, ne.EmbedValueError, ("on_invalid",)),
        ({"num_threads": 0}, ne.EmbedValueError, ("num_threads",)),
        ({"core_num": 0}, ne.EmbedValueError, ("core_num",)),
        ({"progress": 3}, ne.EmbedTypeError, ("progress", 3)),
        ({"out": out[:3]}, ne.EmbedValueError, ("out", (3, 2))),
        ({"out": out[0]}, ne.EmbedValueError, ("out",)),
        ({"out": out.astype(int)}, ne.EmbedTypeError, ("out", "int64")),
        ({"accumulator": out.astype("f4")}, ne.EmbedTypeError, ("accumulator", "float32")),
        ({"accumulator": np.ones((2, 4)).T}, ne.EmbedTypeError, ("accumulator",)),
        ({"accumulator": np.ones((3, 2))}, ne.EmbedValueError, ("accumulator", (3, 2))),
        ({"accumulator": out}, ne.EmbedValueError, ("out", "accumulator")),
        ({"accumulator": np.zeros((4, 3))}, ne.EmbedValueError, ("out", (4, 3))),
    ):
        with refused(error, *parts, out=out):
            chunks(untouched(), **{"num_weights": 4, "out": out, **options})


@pytest.mark.parametrize("batches", [None, 3, Raises()])
def test_what_is_no_iterable_is_refused(batches: Any) -> None:
    with refused(ne.EmbedTypeError, "batches must be an iterable of pairs"):
        chunks(batches, 4)


@pytest.mark.parametrize("batch", [3, (), (1, 2, 3), Raises()])
def test_what_is_no_pair_is_refused(batch: Any) -> None:
    with refused(ne.EmbedTypeError, "batch 0: batches must give pairs"):
        chunks([batch], 4)


def test_a_foreign_object_that_cannot_be_quoted_is_named_by_its_type() -> None:
    with refused(ne.EmbedTypeError, "progress must be callable or None"):
        chunks([], 4, progress=Raises())  # type: ignore[arg-type]


def test_a_length_that_cannot_be_had_is_unknown() -> None:
    class Unmeasured:
        def __iter__(self) -> Iterator[Any]:
            yield np.ones((1, 2)), [3]

        def __len__(self) -> int:
            raise KeyError("x")

    told: list[ne.ChunkProgress] = []
    assert chunks(Unmeasured(), 4, progress=told.append)[3].tolist() == [1, 1]
    assert told == [(1, 1, None)]
