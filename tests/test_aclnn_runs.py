"""Phase two of the two-phase call: workspaces, and executors that run once."""

from __future__ import annotations

import array
import ctypes
import mmap
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from aclnn_calls import FAILED, INNER, MISSING, OK, V, call, refused
from inputs import hot_ids
from reference import assert_same_bits, bits

from numba_embed import aclnn, embedding_dense_backward
from numba_embed.dense_plan import Plan

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
