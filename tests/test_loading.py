"""Cached code, loaded without what only a compilation needs, and in Numba's own way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from conftest import RunPython
from numba.core import caching, ccallback

import numba_embed as ne
from numba_embed import loading
from numba_embed.runtime import pool_size

SIGNATURE = numba.types.int64(numba.types.int64)
OPTIONS = {"error_model": "numpy"}


def tripled(x: Any) -> Any:
    return x * 3


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Let the parts of Numba be looked at anew, before and after the test."""
    loading._quick_cache.cache_clear()
    yield
    loading._quick_cache.cache_clear()


def another_version(patch: pytest.MonkeyPatch) -> None:
    newest = loading.TRIED[1]
    patch.setattr(numba, "version_info", SimpleNamespace(short=(newest[0], newest[1] + 1)))


def another_name(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(caching.Cache, "_guard_against_spurious_io_errors")


def another_parameter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(caching.Cache, "_load_overload", lambda self, sig, target_context, more: None)


OTHER_NUMBAS = [another_version, another_name, another_parameter]


@pytest.mark.parametrize("change", OTHER_NUMBAS)
def test_a_numba_that_is_built_otherwise_loads_in_its_own_way(
    change: Any, monkeypatch: pytest.MonkeyPatch, forgotten: None
) -> None:
    change(monkeypatch)
    assert loading._quick_cache() is None
    made = loading.dispatcher(tripled, True, **OPTIONS)
    assert type(made._cache) is caching.FunctionCache


def test_this_numba_is_one_that_was_tried() -> None:
    """If this fails with a new Numba: run the suite with `TRIED` raised, then raise it."""
    assert loading._quick_cache() is not None


def test_either_way_finds_what_the_other_has_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: None
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    hits = []
    for change in (None, another_version, None):
        with monkeypatch.context() as patch:
            loading._quick_cache.cache_clear()
            if change is not None:
                change(patch)
            assert (loading._quick_cache() is None) == (change is not None)
            called_back = loading.callback(tripled, SIGNATURE, True, **OPTIONS)
            called = loading.dispatcher(tripled, True, nogil=True, **OPTIONS)
            assert called_back.ctypes(14) == called(14) == 42
            hits.append((called_back.cache_hits, sum(called.stats.cache_hits.values())))
    assert hits == [(0, 0), (1, 1), (1, 1)]
    assert isinstance(called_back, ccallback.CFunc)


def test_without_a_cache_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert loading.callback(tripled, SIGNATURE, False, **OPTIONS).ctypes(2) == 6
    assert not any(tmp_path.iterdir())


def test_a_warm_first_call_makes_nothing_ready_and_later_compilations_do(
    run_python: RunPython,
) -> None:
    def first_calls(threads: int) -> None:
        for num_weights in (5, 9000):
            ids = np.arange(9000) % 4
            ne.embedding_dense_backward(
                np.ones((9000, 1), np.float32), ids, num_weights, num_threads=threads
            )

    for threads in (1, 2):
        first_calls(min(threads, pool_size()))  # now all of it is cached
    code = """
import sys
import numpy as np
from numba.core import event
import numba_embed as ne
from numba_embed.runtime import pool_size

ids = np.arange(9000) % 4
with event.install_recorder("numba:compile") as recorder:
    for threads in (1, min(2, pool_size())):
        for num_weights in (5, 9000):
            out = ne.embedding_dense_backward(
                np.ones((9000, 1), np.float32), ids, num_weights, num_threads=threads
            )
            assert out[:5, 0].tolist() == [2250, 2250, 2250, 2250, 0]
assert not recorder.buffer
ready = [name for name in ("numba.np.arraymath", "scipy.linalg") if name in sys.modules]
assert not ready, ready

import numba

@numba.njit
def reduced(values):
    return values.max() + values.sum()

assert reduced(np.array([3.0, 4.0])) == 11
ids = ids.astype(np.float64)  # a format that may have to be compiled: the usual ones were loaded
out = ne.embedding_dense_backward(np.ones((9000, 1), np.float64), ids, 9000, num_threads=1)
assert out[:5, 0].tolist() == [2250, 2250, 2250, 2250, 0]
"""
    run_python(code)
