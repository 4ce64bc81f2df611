"""Phase two of the two-phase call: workspaces, single use, threads, streams, and the same bits."""

from __future__ import annotations

import array
import ctypes
import mmap
import pickle
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inputs import POOL, hot_ids
from reference import Array, assert_same_bits, bits

from numba_embed import aclnn, embedding_dense_backward
from numba_embed.aclnn import Product, Status
from numba_embed.backward import Plan

OK, MISSING, INVALID, FAILED, INNER = Status
V = 40


class Call(NamedTuple):
    """Operands of a call, what phase one returned for them, and the right result."""

    grad: Array
    indices: Array
    out: Array
    size: int
    executor: aclnn.OpExecutor
    want: Array

    def run(self, workspace: Any = None, size: Any = None, **options: Any) -> Status:
        """Phase two, by default in a fresh workspace full of ones."""
        workspace = np.full(self.size, 0xFF, np.uint8) if workspace is None else workspace
        size = self.size if size is None else size
        return aclnn.embedding_dense_backward(workspace, size, self.executor, **options)

    def check(self) -> None:
        assert_same_bits(self.out, self.want)

    def check_unused(self) -> None:
        """Expect that nothing was written and that the executor still runs."""
        assert np.isnan(self.out).all()
        assert self.executor.wait() is INVALID
        assert "not been run" in aclnn.get_recent_err_msg()
        assert self.run() is OK
        self.check()


def call(
    size: int = 100,
    width: int = 3,
    v: int = V,
    seed: int = 0,
    padding: int | None = 2,
    scale: bool = True,
    **changes: Any,
) -> Call:
    """Phase one on drawn operands, or on the given ones."""
    random = np.random.default_rng(seed)
    grad = changes.pop("grad", None)
    grad = random.standard_normal((size, width), np.float32) if grad is None else grad
    indices = changes.pop("indices", None)
    indices = hot_ids(random, size, v) if indices is None else indices
    out = changes.pop("out", None)
    out = np.full((v, width), np.nan, np.float32) if out is None else out
    status, nbytes, executor = aclnn.embedding_dense_backward_get_workspace_size(
        grad, indices, v, padding, scale, out, **changes
    )
    assert status is OK, aclnn.get_recent_err_msg()
    assert executor is not None
    try:
        want = embedding_dense_backward(grad, indices, v, padding, scale)
    except (ValueError, IndexError):
        want = np.empty(0, np.float32)
    return Call(grad, indices, out, nbytes, executor, want)


def refused(status: Status, *parts: object, expected: Status = INVALID) -> None:
    assert status is expected
    for part in parts:
        assert str(part) in aclnn.get_recent_err_msg()


# --- workspaces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 7, 8, 63, 64])
def test_a_workspace_at_any_address(offset: int) -> None:
    made = call()
    arena = np.full(made.size + 200, 0xFF, np.uint8)
    start = -arena.ctypes.data % 64 + offset
    assert made.run(arena[start : start + made.size]) is OK
    made.check()
    assert (arena[:start] == 0xFF).all()
    assert (arena[start + made.size :] == 0xFF).all()


def test_any_writable_buffer() -> None:
    size = call().size
    for make in (
        bytearray,
        lambda n: memoryview(bytearray(n)),
        lambda n: memoryview(bytearray(n + 5))[3:],
        lambda n: array.array("d", [0.5]) * (n // 8 + 1),
        lambda n: mmap.mmap(-1, n),
        lambda n: (ctypes.c_char * n)(),
        lambda n: np.full((2, n // 8 + 1), np.nan),
        lambda n: np.zeros(n + 1, np.bool_),
    ):
        made = call()
        assert made.run(make(size)) is OK, aclnn.get_recent_err_msg()
        made.check()


def test_one_byte_short() -> None:
    made = call()
    refused(made.run(bytearray(made.size), made.size - 1), made.size, made.size - 1)
    refused(made.run(bytearray(made.size - 1)), made.size, made.size - 1)
    refused(made.run(bytearray(made.size - 1), made.size - 1), made.size, made.size - 1)
    refused(made.run(bytearray(made.size), made.size + 1), made.size, made.size + 1)
    refused(made.run(bytearray(0)), made.size)
    made.check_unused()


def test_larger_workspaces_are_fine_and_used_only_as_far_as_said() -> None:
    for more in (0, 100):
        made = call()
        arena = np.full(made.size + 500, 0xFF, np.uint8)
        assert made.run(arena, made.size + more) is OK
        made.check()
        assert (arena[made.size + more :] == 0xFF).all()


def test_workspaces_that_are_none() -> None:
    made = call()
    refused(made.run(bytes(made.size)), "workspace", "writable")
    frozen = np.zeros(made.size, np.uint8)
    frozen.flags.writeable = False
    refused(made.run(frozen), "workspace", "read-only")
    refused(made.run(np.zeros(2 * made.size, np.uint8)[::2]), "workspace", "contiguous")
    closed = mmap.mmap(-1, made.size)
    closed.close()
    for bad in (made.size, 1.5, [0] * made.size, "x" * made.size, object(), closed):
        refused(made.run(bad), "workspace", type(bad).__name__)
    for bad in (1.5 * made.size, True, "9", [made.size]):
        refused(made.run(bytearray(made.size), bad), "workspace_size")
    phase_two = aclnn.embedding_dense_backward
    refused(phase_two(None, made.size, made.executor), "workspace", expected=MISSING)
    refused(phase_two(bytearray(9), 9, None), "executor", expected=MISSING)
    refused(phase_two(bytearray(9), 9, made), "executor", "Call")  # type: ignore[arg-type]
    refused(made.run(stream="default"), "stream", "str")
    made.check_unused()


@pytest.mark.parametrize("name", ["grad", "indices", "out"])
def test_workspaces_that_overlap_an_operand(name: str) -> None:
    """By a single byte, at either end; next to each other they are fine."""
    shape, dtype = {
        "grad": ((100, 3), np.float32),
        "indices": ((100,), np.int64),
        "out": ((V, 3), np.float32),
    }[name]
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    size = call().size
    arena = np.zeros(2 * size + nbytes, np.uint8)
    operand = arena[size : size + nbytes].view(dtype).reshape(shape)
    operand[...] = np.nan if name == "out" else 1
    made = call(**{name: operand})
    assert made.size == size
    refused(made.run(arena[1 : size + 1]), "workspace", name)
    refused(made.run(arena[size + nbytes - 1 :]), "workspace", name)
    refused(made.run(arena[:], size + 1), "workspace", name)
    made.check_unused()
    for start in (0, size + nbytes):
        operand[...] = np.nan if name == "out" else 1
        made = call(**{name: operand})
        assert made.run(arena[start:], size) is OK
        made.check()


def test_phase_two_allocates_nothing_of_size() -> None:
    """The indices are converted, in the workspace; the run's arrays have 10 000 entries."""
    indices = hot_ids(np.random.default_rng(1), 10_000, 10_000).astype(np.int16)
    options: dict[str, Any] = {"size": 10_000, "width": 1, "v": 10_000, "indices": indices}
    assert call(**options).run() is OK
    made = call(**options)
    workspace = bytearray(made.size)
    tracemalloc.start()
    try:
        assert made.run(workspace) is OK
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    made.check()
    assert made.size > 160_000
    assert peak < 20_000


@pytest.mark.parametrize("queued", [False, True])
def test_memory_is_let_go_once_the_run_is_over(queued: bool) -> None:
    bad = np.full(100, V, np.int64)
    for indices in (None, bad):
        made = call(indices=indices)
        workspace = bytearray(made.size)
        if queued:
            with ThreadPoolExecutor(1) as stream:
                assert made.run(workspace, stream=stream) is OK
                assert made.executor.wait() is (FAILED if indices is bad else OK)
                workspace.clear()  # refused while anything looks at it
        else:
            made.run(workspace)
            workspace.clear()
    made.run(workspace := bytearray(made.size - 1))
    workspace.clear()


# --- one executor, one run ------------------------------------------------------------------------


def test_the_data_are_those_of_phase_two() -> None:
    grad, indices = np.full((100, 3), np.nan, np.float32), np.full(100, -1)
    made = call(grad=grad, indices=indices)
    random = np.random.default_rng(5)
    grad[...] = random.standard_normal((100, 3))
    indices[...] = random.integers(0, V, 100)
    assert made.run() is OK
    assert_same_bits(made.out, embedding_dense_backward(grad, indices, V, 2, True))


def test_an_executor_runs_once() -> None:
    made = call()
    assert made.run() is OK
    assert made.executor.wait() is OK
    made.out[...] = 7
    refused(made.run(), "executor", "once")
    refused(made.run(bytearray(made.size - 1)), made.size)
    assert (made.out == 7).all()
    assert made.executor.wait() is OK
    assert call().run() is OK


def test_the_call_used_twice() -> None:
    """Two executors of the same operands, in one workspace."""
    grad, indices = np.ones((3, 2), np.float32), np.array([0, 3, 3])
    out = np.full((4, 2), np.nan, np.float32)
    workspace = bytearray(1 << 20)
    for factor in (1, 2):
        grad[...] = factor
        made = call(grad=grad, indices=indices, v=4, padding=None, scale=False, out=out)
        assert made.run(workspace, len(workspace)) is OK
        assert_same_bits(out, np.float32([[1, 1], [0, 0], [0, 0], [2, 2]]) * np.float32(factor))


@pytest.mark.parametrize(
    ("bad", "parts"),
    [
        (np.int64(V), (V, "position 99", f"[0, {V})")),
        (np.int32(-1), (-1, "position 99")),
        (np.float64(2.5), (2.5, "position 99", "integer")),
        (np.float64("nan"), ("nan", "position 99")),
    ],
)
def test_a_bad_index(bad: Any, parts: tuple[object, ...]) -> None:
    indices = np.zeros(100, bad.dtype)
    indices[-1] = bad
    out = np.random.default_rng(2).standard_normal((V, 3)).astype(np.float32)
    before = bits(out).copy()
    made = call(indices=indices, out=out)
    refused(made.run(), "indices", *parts, expected=FAILED)
    assert np.array_equal(bits(out), before)
    assert made.executor.wait() is FAILED
    indices[-1] = 0
    refused(made.run(), "executor", "once")
    assert np.array_equal(bits(out), before)


def test_a_table_without_rows() -> None:
    made = call(size=1, v=0, indices=np.zeros(1, np.int64))
    refused(made.run(), "num_weights is 0", expected=FAILED)


def test_what_becomes_of_the_operands_between_the_phases_is_no_matter() -> None:
    grad, out = np.ones((100, 3), np.float32), np.full((V, 3), np.nan, np.float32)
    made = call(grad=grad, out=out)
    out.flags.writeable = False
    grad.shape = (3, 100)
    assert made.run() is OK
    made.check()


def test_internal_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("boom")

    made, other = call(), call()
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as stream:
        patch.setattr(Plan, "execute", fail)
        refused(made.run(), "RuntimeError: boom", expected=INNER)
        assert other.run(stream=stream) is OK
        refused(other.executor.wait(), "RuntimeError: boom", expected=INNER)
    refused(made.run(), "executor", "once")


def test_an_interrupt_passes_and_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    made = call()
    monkeypatch.setattr(Plan, "execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    refused(made.executor.wait(), "interrupted", expected=FAILED)


# --- threads --------------------------------------------------------------------------------------


def in_threads(count: int, function: Callable[[int], None]) -> None:
    """Run a function in threads that start together; re-raise what any of them raised."""
    barrier = threading.Barrier(count)

    def go(number: int) -> None:
        barrier.wait()
        function(number)

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(go, number) for number in range(count)]:
            future.result()


def test_both_phases_from_several_threads() -> None:
    call().run()  # compiles once

    def work(number: int) -> None:
        for step in range(20):
            made = call(seed=100 * number + step, product=list(Product)[number % 3])
            assert made.run() is OK, aclnn.get_recent_err_msg()
            made.check()
            failing = call(indices=np.full(100, V + number))
            refused(failing.run(), f"= {V + number} ", expected=FAILED)

    in_threads(4, work)


def test_of_racing_runs_exactly_one_wins() -> None:
    for attempt in range(50):
        made = call(seed=attempt)
        statuses: list[Status] = []
        waited: list[Status] = []

        def work(
            number: int, made: Call = made, statuses: Any = statuses, waited: Any = waited
        ) -> None:
            statuses.append(made.run())
            if statuses[-1] is INVALID:
                refused(INVALID, "executor", "once")
            waited.append(made.executor.wait())
            made.check()

        in_threads(4, work)
        assert sorted(statuses) == [OK, INVALID, INVALID, INVALID]
        assert waited == [OK] * 4


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_of_one_worker_runs_in_order() -> None:
    """So that runs may share a workspace, and a later one may read what an earlier one wrote."""
    first = call(v=V, width=3, padding=None, scale=False)
    second = call(grad=first.out, indices=np.arange(V) % 5, v=5, padding=None, scale=False)
    workspace = bytearray(max(first.size, second.size))
    gate = threading.Event()
    with ThreadPoolExecutor(1) as stream:
        stream.submit(gate.wait)
        assert first.run(workspace, stream=stream) is OK
        assert second.run(workspace, stream=stream) is OK
        refused(first.run(stream=stream), "executor", "once")
        assert np.isnan(first.out).all()
        gate.set()
        assert second.executor.wait() is OK
        assert first.executor.wait() is OK
    first.check()
    want = embedding_dense_backward(first.want, second.indices, 5)
    assert_same_bits(second.out, want)


@pytest.mark.skipif(POOL < 2, reason="Numba's thread pool has one thread only")
def test_parallel_runs_on_a_stream_of_several_workers() -> None:
    made = [call(size=20_000, width=8, v=9000, seed=seed) for seed in range(4)]
    assert all(one.executor.plan.threads > 1 for one in made)
    with ThreadPoolExecutor(3) as stream:
        assert [one.run(stream=stream) for one in made] == [OK] * 4
        assert [one.executor.wait() for one in made] == [OK] * 4
    for one in made:
        one.check()


def test_a_failure_on_a_stream_is_told_where_it_is_waited_for() -> None:
    made = call(indices=np.full(100, V))
    with ThreadPoolExecutor(1) as stream:
        assert made.run(stream=stream) is OK
        in_threads(2, lambda _: refused(made.executor.wait(), f"= {V} ", expected=FAILED))
        assert stream.submit(aclnn.get_recent_err_msg).result() == ""
    assert np.isnan(made.out).all()


def test_a_stream_that_is_shut_down() -> None:
    made, other, gate = call(), call(), threading.Event()
    stream = ThreadPoolExecutor(1)
    stream.submit(gate.wait)
    assert made.run(stream=stream) is OK
    stream.shutdown(wait=False, cancel_futures=True)
    refused(made.executor.wait(), "stream", "cancelled", expected=FAILED)
    refused(other.run(stream=stream), "stream", "shutdown", expected=FAILED)
    refused(other.executor.wait(), "stream", expected=FAILED)
    gate.set()
    for one in (made, other):
        refused(one.run(), "executor", "once")
        assert np.isnan(one.out).all()


class Keeper(Executor):
    """Takes what is submitted and then does as told."""

    def __init__(self, act: Callable[[Any, Future[Any]], None]) -> None:
        self.act = act
        self.kept: list[Callable[[], Any]] = []

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Any:
        self.kept.append(function)
        future: Future[Any] = Future()
        self.act(function, future)
        return future


def test_a_stream_that_took_a_run_and_failed_cannot_run_it_later() -> None:
    def fail(function: Any, future: Future[Any]) -> None:
        raise RuntimeError("can't start new thread")

    made, stream = call(), Keeper(fail)
    refused(made.run(stream=stream), "start new thread", expected=FAILED)
    stream.kept[0]()
    assert np.isnan(made.out).all()
    refused(made.executor.wait(), "start new thread", expected=FAILED)


def test_a_stream_that_runs_at_once() -> None:
    def at_once(function: Any, future: Future[Any]) -> None:
        future.set_result(function())

    made = call()
    assert made.run(stream=Keeper(at_once)) is OK
    made.check()
    assert made.executor.wait() is OK


def test_a_stream_of_processes_cannot_take_a_run() -> None:
    """Its results would be written to copies: the executor does not travel."""

    def send(function: Any, future: Future[Any]) -> None:
        try:
            pickle.dumps(function)
        except TypeError as error:
            future.set_exception(error)

    made = call()
    assert made.run(stream=Keeper(send)) is OK
    refused(made.executor.wait(), "stream", "pickle", expected=FAILED)


# --- the same bits --------------------------------------------------------------------------------


def laid_out(values: Array, layout: str) -> Array:
    """Give the same values in other memory."""
    if layout == "reversed":
        return values[::-1].copy()[::-1]
    if layout == "sparse":
        wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1] + 1), values.dtype)
        view = wide[..., 1::2]
        view[...] = values
        return view
    return np.asfortranarray(values) if layout == "fortran" else values


LAYOUTS = st.sampled_from(["plain", "reversed", "sparse", "fortran"])


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """Draw parameters of phase one; about one draw in three has something to refuse."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    width, v = draw(st.integers(0, 6)), draw(st.integers(1, 30))
    grad_dtype = draw(st.sampled_from(["float32", "float32", "float16", "float64"]))
    index_dtype = draw(st.sampled_from(["int64", "uint8", "int16", "float32", "uint32"]))
    size = int(np.prod(shape))
    grad = random.standard_normal((*shape, width)).astype(grad_dtype)
    ids = random.integers(0, v, size).astype(index_dtype)
    ids = ids if draw(st.booleans()) else ids.reshape(shape)
    if draw(st.integers(0, 15)) == 0:
        ids = ids.ravel()[:-1]
    out_shape = (v, width + (draw(st.integers(0, 15)) == 0))
    out = laid_out(np.full(out_shape, np.nan, np.float32), draw(LAYOUTS))
    out.flags.writeable = draw(st.integers(0, 15)) > 0
    return {
        "grad": laid_out(grad, draw(LAYOUTS)),
        "indices": laid_out(ids, draw(LAYOUTS)),
        "num_weights": v,
        "padding_idx": draw(st.one_of(st.none(), st.integers(-1, 30))),
        "scale_grad_by_freq": draw(st.booleans()),
        "out": out,
        "product": draw(st.sampled_from(Product)),
        "core_num": draw(st.sampled_from([None, 1, 7, 32, 2**40])),
    }


EXAMPLE = {
    "grad": np.float32([[1, 2, 3], [4, 5, 6]]),
    "indices": np.array([1, 2]),
    "num_weights": 4,
    "padding_idx": 0,
    "scale_grad_by_freq": False,
    "out": np.full((4, 3), np.nan, np.float32),
    "product": Product.ATLAS_TRAINING,
    "core_num": None,
}


@given(parameters(), st.integers(0, 70), st.booleans())
@example(EXAMPLE, 0, False)
def test_what_phase_one_accepts_completes_with_the_same_bits(
    drawn: dict[str, Any], offset: int, queued: bool
) -> None:
    status, size, executor = aclnn.embedding_dense_backward_get_workspace_size(**drawn)
    grad, indices, out, product = (drawn[key] for key in ("grad", "indices", "out", "product"))
    refusable = (
        not product.supported
        or (product is Product.ASCEND_950 and drawn["core_num"] is None)
        or grad.dtype == np.float64
        or indices.dtype == np.uint32
        or indices.size * grad.shape[-1] != grad.size
        or indices.size != int(np.prod(grad.shape[:-1]))
        or out.shape != (drawn["num_weights"], grad.shape[-1])
        or not out.flags.writeable
    )
    assert status is (INVALID if refusable else OK), aclnn.get_recent_err_msg()
    if executor is None:
        return
    workspace = np.full(size + offset, 0xFF, np.uint8)[offset:]
    if queued:
        with ThreadPoolExecutor(1) as stream:
            assert aclnn.embedding_dense_backward(workspace, size, executor, stream) is OK
    else:
        assert aclnn.embedding_dense_backward(workspace, size, executor) is OK
    assert executor.wait() is OK
    want = np.empty(out.shape, out.dtype)
    embedding_dense_backward(
        grad,
        indices,
        drawn["num_weights"],
        drawn["padding_idx"],
        drawn["scale_grad_by_freq"],
        out=want,
    )
    assert_same_bits(out, want)
