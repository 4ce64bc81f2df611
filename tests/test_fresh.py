"""Memory of results and of small runs: what is recycled must not show."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunPython
from inputs import THREADS

import numba_embed as ne
from numba_embed.kernels.layout import HUGE_PAGE
from numba_embed.plan import ZEROED_BYTES
from numba_embed.sizing import fresh_pieces

D = 64


def expected(grad: Any, indices: Any, rows: int) -> Any:
    total = np.zeros((rows, grad.shape[1]))
    np.add.at(total, indices, grad.astype(np.float64))
    return total.astype(grad.dtype)


@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_results_just_below_at_and_above_the_size_that_comes_zeroed(beside: int) -> None:
    rows = ZEROED_BYTES // (4 * D) + beside
    indices = np.array([0, rows - 1, rows - 1])
    grad = np.ones((3, D), np.float32)
    plan = ne.plan_dense_backward(grad.shape, grad.dtype, indices.shape, indices.dtype, rows)
    assert plan.fresh_zeroed == (beside >= 0)
    for _ in range(2):  # the second one may get the memory of the first
        got = ne.embedding_dense_backward(grad, indices, rows)
        np.testing.assert_array_equal(got, expected(grad, indices, rows))
        got[...] = np.nan
        del got


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    "columns", [1, 700, HUGE_PAGE // 4 - 1, HUGE_PAGE // 4, HUGE_PAGE // 4 + 1]
)
def test_rows_lie_anyhow_in_the_pages_by_which_threads_share_a_result(
    columns: int, threads: int
) -> None:
    rows = ZEROED_BYTES // (4 * columns) + 1
    rng = np.random.default_rng(columns)
    indices = rng.permutation(rows)[: max(rows // 10, 13)]
    indices[1] = indices[0]
    grad = np.empty((indices.size, columns), np.float32)
    grad[...] = rng.integers(1, 99, (indices.size, 1))
    plan = ne.plan_dense_backward(
        grad.shape, grad.dtype, indices.shape, indices.dtype, rows, num_threads=threads
    )
    assert plan.fresh_zeroed
    got = plan.execute(grad, indices)
    want = np.bincount(indices, weights=grad[:, 0], minlength=rows).astype(np.float32)
    for column in {0, columns // 2, columns - 1}:
        np.testing.assert_array_equal(got[:, column], want)
    assert (got.min(axis=1) == got.max(axis=1)).all()


@pytest.mark.parametrize("threads", THREADS)
def test_look_ups_in_the_first_page_of_a_large_result(threads: int) -> None:
    """As of a vocabulary by frequency, with one row that is hot: a page is cut by its entries."""
    rng = np.random.default_rng(3)
    rows, size = ZEROED_BYTES // (4 * D) + 7, 12_000
    indices = np.minimum(rng.geometric(0.01, size), rows - 1)
    indices[rng.integers(0, 2, size) == 1] = 5
    grad = rng.integers(-8, 9, (size, D)).astype(np.float32)
    plan = ne.plan_dense_backward(
        grad.shape, grad.dtype, indices.shape, indices.dtype, rows, num_threads=threads
    )
    assert plan.fresh_zeroed
    assert (plan.max_hot > 0) == (threads > 1)
    np.testing.assert_array_equal(plan.execute(grad, indices), expected(grad, indices, rows))


@pytest.mark.parametrize(
    ("start", "nbytes", "pieces"),
    [
        (0, HUGE_PAGE, 17),
        (0, HUGE_PAGE + 1, 18),
        (16, HUGE_PAGE - 16, 17),
        (16, HUGE_PAGE, 18),
        (HUGE_PAGE - 1, 2, 18),
    ],
)
def test_a_fresh_result_has_a_piece_more_for_each_page(
    start: int, nbytes: int, pieces: int
) -> None:
    assert fresh_pieces(2, 7 * HUGE_PAGE + start, nbytes) == pieces
    assert fresh_pieces(1, 7 * HUGE_PAGE + start, nbytes) == 1


def test_pages_that_no_row_touches_are_never_made(run_python: RunPython) -> None:
    code = """
import numpy as np
import numba_embed as ne

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

grad, indices = np.ones((64, 64), np.float32), np.arange(64) * 60_000
ne.embedding_dense_backward(grad, indices, 4_000_000)  # compiles
before = resident()
got = ne.embedding_dense_backward(grad, indices, 4_000_000)
print(got.nbytes, resident() - before, got[60_000, 0], got[1, 1])
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("the system does not report resident memory")
    nbytes, grown, *values = run_python(code).stdout.split()
    assert int(nbytes) == 1_024_000_000
    assert int(grown) < 192 << 20  # 64 rows, each in a page of 2 MiB where the system has such
    assert values == ["1.0", "0.0"]


def test_what_a_small_run_was_told_does_not_reach_the_next() -> None:
    rng = np.random.default_rng(0)
    rows, indices = 10, np.array([3, 3, 7])
    grad = rng.integers(-8, 9, (3, 4)).astype(np.float32)
    plain = expected(grad, indices, rows)
    plan = ne.plan_dense_backward(grad.shape, grad.dtype, indices.shape, indices.dtype, rows)
    strided = np.zeros((rows, 8), np.float32)[:, ::2]
    for _ in range(2):
        np.testing.assert_array_equal(plan.execute(grad, indices), plain)
        out = np.ones((rows, 4), np.float32)
        np.testing.assert_array_equal(plan.execute(grad, indices, out, accumulate=True), plain + 1)
        np.testing.assert_array_equal(plan.execute(grad, indices), plain)
        np.testing.assert_array_equal(plan.execute(grad[:, ::-1], indices), plain[:, ::-1])
        np.testing.assert_array_equal(plan.execute(grad, indices, strided), plain)
        with pytest.raises(ne.EmbedIndexError):
            plan.execute(grad, np.array([3, 3, 10]))
        np.testing.assert_array_equal(plan.execute(grad, indices.astype(np.uint8)), plain)
        report = ne.RunReport()
        np.testing.assert_array_equal(plan.execute(grad, indices, report=report), plain)
        assert report.lookups == 3
        assert plan.execute(np.empty((3, 4), np.float32), indices) is not None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda plan: pickle.loads(pickle.dumps(plan))])
def test_a_used_plan_can_be_copied(copied: Callable[[ne.Plan], ne.Plan]) -> None:
    grad, indices = np.ones((3, 2), np.float32), np.array([1, 1, 0])
    plan = ne.plan_dense_backward(grad.shape, grad.dtype, indices.shape, indices.dtype, 3)
    plan.execute(grad, indices)
    other = copied(plan)
    assert other == plan
    assert other.grad_format is plan.grad_format
    del plan
    np.testing.assert_array_equal(other.execute(grad, indices), expected(grad, indices, 3))


@pytest.mark.parametrize("make", [ne.plan_dense_backward, ne.plan_row_gradient])
def test_an_interrupt_leaves_the_workspace_free(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    grad, indices = np.ones((3, 2), np.float32), np.array([1, 1, 0])
    plan = make(grad.shape, grad.dtype, indices.shape, indices.dtype, 3)
    workspace = plan.make_workspace()
    acquire = ne.Workspace.acquire

    def interrupted(self: ne.Workspace, needed: int, run: object) -> Any:
        acquire(self, needed, run)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ne.Workspace, "acquire", interrupted)
        with pytest.raises(KeyboardInterrupt):
            plan.execute(grad, indices, workspace=workspace)
    plan.execute(grad, indices, workspace=workspace)
    # One that another run holds stays with it.
    held = object()
    acquire(workspace, 1, held)
    with pytest.raises(ne.WorkspaceBusyError):
        plan.execute(grad, indices, workspace=workspace)
    with pytest.raises(ne.WorkspaceBusyError):
        plan.execute(grad, indices, workspace=workspace)
    workspace.release(held)
    plan.execute(grad, indices, workspace=workspace)


def test_results_beyond_memory_are_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        ne.embedding_dense_backward(np.ones((4, 3), np.float32), np.arange(4), 10**13)


def test_threads_that_share_a_small_plan() -> None:
    rng = np.random.default_rng(1)
    operands = [
        (rng.integers(-8, 9, (5, 4)).astype(np.float32), rng.integers(0, 9, 5)) for _ in "abcd"
    ]
    failed: list[int] = []

    def work(which: int) -> None:
        grad, indices = operands[which]
        right = expected(grad, indices, 9)
        for _ in range(300):
            if not np.array_equal(ne.embedding_dense_backward(grad, indices, 9), right):
                failed.append(which)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("place", [0, 1, 2499, 2500, 2501, 4999])
def test_bad_indices_of_small_vocabularies(place: int, threads: int) -> None:
    """There a loop without branches checks, and another one behind it names the culprit."""
    indices = np.arange(5000) % 30
    grad = np.ones((5000, 2), np.float32)
    indices[4999] = 29
    indices[place] = 30
    with pytest.raises(ne.EmbedIndexError, match=rf"position {place} "):
        ne.embedding_dense_backward(grad, indices, 30, num_threads=threads)
    got = ne.embedding_dense_backward(grad, indices, 30, 5, on_invalid="drop", num_threads=threads)
    right = np.bincount(indices, minlength=31)[:30].astype(np.float32)
    right[5] = 0
    np.testing.assert_array_equal(got, np.stack([right, right], axis=1))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13])
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 100])
def test_rows_of_every_small_count(count: int, columns: int) -> None:
    """Two rows are added at a time where there are so many, from nine on not in registers."""
    rng = np.random.default_rng(count)
    indices = rng.permutation(np.repeat(np.arange(40), count))
    grad = rng.integers(-99, 99, (indices.size, columns)).astype(np.float32)
    got = ne.embedding_dense_backward(grad, indices, 41, num_threads=1)
    np.testing.assert_array_equal(got, expected(grad, indices, 41))
