"""Plans and workspaces: what they know beforehand, what they count, and how they are reused."""

from __future__ import annotations

import dataclasses
import threading
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from inputs import THREADS, hot_ids, normal, plan_for, refused
from reference import FLOATS, Array, assert_same_bits, bits

import numba_embed as ne
from numba_embed import embedding_dense_backward as E
from numba_embed.execute import SPARE_BYTES
from numba_embed.runtime import pool_size

I64 = np.dtype(np.int64)


def allowed(size: int, num_weights: int, grad_bytes: int, threads: int) -> int:
    """Bound of the memory beyond inputs and output, in bytes."""
    return 16 * size + 8 * num_weights + grad_bytes // 64 + (threads << 22)


def test_a_plan_needs_shapes_and_dtypes_only() -> None:
    plan = ne.plan_dense_backward((2, 3, 5), "float32", (2, 3), "int32", 10)
    assert isinstance(plan, ne.Plan)
    assert plan.partition == ne.CorePartition(10, plan.partition.core_num)
    assert isinstance(plan.workspace_nbytes, int)
    got = plan.execute(np.ones((2, 3, 5), np.float32), np.arange(6, dtype=np.int32).reshape(2, 3))
    assert_same_bits(got, np.repeat(np.array([1] * 6 + [0] * 4, np.float32)[:, None], 5, axis=1))
    assert (
        plan.partition.counts_size == 10 // plan.partition.core_num + 10 % plan.partition.core_num
    )
    huge = ne.plan_dense_backward((2**33, 2**20), np.float16, (2**33,), np.int64, 2**24)
    bound = allowed(2**33, 2**24, 2**54, pool_size())
    assert 0 < huge.workspace_nbytes <= bound
    bfloat16 = ne.plan_dense_backward((4, 2), np.dtype(ml_dtypes.bfloat16), (4,), "uint8", 3)
    assert bfloat16.workspace_nbytes > 0


def test_a_plan_is_frozen_and_readable() -> None:
    plan = ne.plan_dense_backward((6, 5), "float32", (6,), "int64", 1234, 7, True, core_num=3)
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        plan.core_num = 4  # type: ignore[misc]
    assert plan.partition.core_num == 3
    text = str(plan)
    for part in ("1234", "float32", "padding", "3 core", str(plan.workspace_nbytes)):
        assert part in text, f"{part} is missing in:\n{text}"
    assert "1234" in repr(plan)
    assert len(repr(plan)) < 2000


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"grad_shape": (6, 5, 1)}, ValueError),
        ({"grad_dtype": "int32"}, TypeError),
        ({"grad_dtype": "no dtype"}, TypeError),
        ({"indices_shape": (5,)}, ValueError),
        ({"indices_dtype": "complex64"}, TypeError),
        ({"num_weights": -1}, ValueError),
        ({"num_weights": 2.0}, TypeError),
        ({"padding_idx": 1.0}, TypeError),
        ({"scale_grad_by_freq": "yes"}, TypeError),
        ({"out_dtype": "int8"}, TypeError),
        ({"on_invalid": "clip"}, ValueError),
        ({"core_num": 0}, ValueError),
        ({"num_threads": 0}, ValueError),
    ],
)
def test_a_plan_checks_what_it_is_given(change: dict[str, Any], error: type[Exception]) -> None:
    good: dict[str, Any] = {
        "grad_shape": (6, 5),
        "grad_dtype": "float32",
        "indices_shape": (6,),
        "indices_dtype": "int64",
        "num_weights": 10,
    }
    ne.plan_dense_backward(**good)
    name = {"grad_shape": "grad", "grad_dtype": "grad", "indices_shape": "indices"}
    name |= {"indices_dtype": "indices", "out_dtype": "out"}
    (changed,) = change
    with refused(error, name.get(changed, changed)):
        ne.plan_dense_backward(**{**good, **change})


def test_a_plan_refuses_other_arrays() -> None:
    grad, ids = np.ones((6, 5), np.float32), np.zeros(6, np.int64)
    plan = plan_for(grad, ids, 10)
    out = np.full((10, 5), 7, dtype=np.float32)
    with refused(ValueError, "grad", "(5, 5)", out=out):
        plan.execute(grad[:5], ids[:5], out=out)
    with refused(ValueError, "indices", "(5,)", out=out):
        plan.execute(grad, ids[:5], out=out)
    with refused(TypeError, "grad", "float64", "float32", out=out):
        plan.execute(grad.astype(np.float64), ids, out=out)
    with refused(TypeError, "out", "float64", "float32"):
        plan.execute(grad, ids, out=out.astype(np.float64))
    with refused(TypeError, "indices", "complex64", out=out):
        plan.execute(grad, ids.astype(np.complex64), out=out)
    with refused(IndexError, "indices", 10, out=out):
        plan.execute(grad, ids + 10, out=out)
    with refused(ValueError, "out"):
        plan.execute(grad, ids, accumulate=True)
    wrong: Any = np.zeros(10**6, np.uint8)
    with refused(TypeError, "workspace"):
        plan.execute(grad, ids, workspace=wrong)
    with refused(TypeError, "report"):
        plan.execute(grad, ids, report=wrong)


def test_a_plan_of_another_output_dtype() -> None:
    grad, ids = np.array([[1, 2], [3, 4]], np.float16), np.array([1, 1])
    plan = plan_for(grad, ids, 2, out_dtype="float32")
    assert_same_bits(plan.execute(grad, ids), np.array([[0, 0], [4, 6]], np.float32))


# --- reuse ----------------------------------------------------------------------------------------

SHAPES = [(60_000, 50, 8), (60_000, 40_000, 8), (700, 500_000, 3), (900, 20, 2500)]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(("size", "num_weights", "width"), SHAPES)
def test_reuse_allocates_nothing_of_size(
    size: int, num_weights: int, width: int, threads: int
) -> None:
    random = np.random.default_rng(1)
    grads = [normal(random, (size, width), "float32") for _ in range(3)]
    streams: list[Array] = [hot_ids(random, size, num_weights) for _ in range(3)]
    streams.append(streams[0].astype(np.int32)[::-1])  # converted, in the workspace
    plan = plan_for(grads[0], streams[0], num_weights, 1, num_threads=threads)
    workspace = plan.make_workspace()
    assert workspace.nbytes >= plan.workspace_nbytes
    out = np.empty((num_weights, width), dtype=np.float32)
    plan.execute(grads[0], streams[0], out=out, workspace=workspace)
    peaks = []
    for step in range(12):
        grad, ids = grads[step % 3], streams[step % 4]
        tracemalloc.start()
        try:
            plan.execute(grad, ids, out=out, workspace=workspace)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        if step in (0, 11):
            assert_same_bits(out, E(grad, ids, num_weights, 1))
    assert max(peaks) < 20_000, peaks


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(("size", "num_weights", "width"), SHAPES)
def test_the_workspace_is_all_that_a_run_allocates(
    size: int, num_weights: int, width: int, threads: int
) -> None:
    random = np.random.default_rng(2)
    grad, ids = normal(random, (size, width), "float32"), hot_ids(random, size, num_weights)
    plan = plan_for(grad, ids, num_weights, num_threads=threads)
    out = np.empty((num_weights, width), dtype=np.float32)
    plan.execute(grad, ids, out=out)
    tracemalloc.start()
    try:
        plan.execute(grad, ids, out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < plan.workspace_nbytes + 20_000
    if plan.workspace_nbytes > SPARE_BYTES:  # smaller ones stay with the plan
        assert plan.workspace_nbytes <= peak
    assert plan.workspace_nbytes <= allowed(size, num_weights, grad.nbytes, threads)


def test_the_bound_of_memory_holds_for_every_shape() -> None:
    powers = [0, 1, 7, 100, 511, 4096, 20_000, 10**6, 2**31 + 5]
    for size in powers:
        for num_weights in powers:
            for width in (0, 1, 3, 64, 2047, 2048, 10**7):
                if size * width > 2**46 or size * num_weights > 2**60:
                    continue
                for name in ("float16", "float64"):
                    for threads in THREADS:
                        for cores in (None, 1, 1000, 2**40):
                            plan = ne.plan_dense_backward(
                                (size, width),
                                name,
                                (size,),
                                I64,
                                num_weights,
                                num_threads=threads,
                                core_num=cores,
                            )
                            nbytes = size * width * FLOATS[name].itemsize
                            bound = allowed(size, num_weights, nbytes, threads)
                            assert plan.workspace_nbytes <= bound, plan


def test_one_workspace_serves_plans_of_any_size_up_to_its_own() -> None:
    random = np.random.default_rng(3)
    memory = np.full(10**7, 0x5A, dtype=np.uint8)
    workspace = ne.Workspace(memory)
    for size, num_weights in ((50_000, 30_000), (9, 4), (50_000, 40), (0, 5)):
        grad, ids = normal(random, (size, 3), "float64"), hot_ids(random, size, num_weights)
        plan = plan_for(grad, ids, num_weights)
        got = plan.execute(grad, ids, workspace=workspace)
        assert_same_bits(got, E(grad, ids, num_weights))


@pytest.mark.parametrize("offset", [0, 1, 7, 63])
@pytest.mark.parametrize(("size", "num_weights"), [(50_000, 30_000), (50_000, 40)])
def test_a_workspace_at_any_address_and_of_the_exact_size(
    size: int, num_weights: int, offset: int
) -> None:
    """Nothing beyond ``workspace_nbytes`` is touched, wherever the buffer lies."""
    random = np.random.default_rng(4)
    grad, ids = normal(random, (size, 3), "float64"), hot_ids(random, size, num_weights)
    want = E(grad, ids, num_weights)
    for threads in THREADS:
        plan = plan_for(grad, ids, num_weights, num_threads=threads)
        memory = bytearray(b"\xa5" * (plan.workspace_nbytes + 256))
        view = memoryview(memory)[offset + 64 : offset + 64 + plan.workspace_nbytes]
        got = plan.execute(grad, ids, workspace=ne.Workspace(view))
        assert_same_bits(got, want)
        assert set(memory[: offset + 64]) == {0xA5}
        assert set(memory[offset + 64 + plan.workspace_nbytes :]) == {0xA5}


def test_workspaces_that_will_not_do() -> None:
    grad, ids = np.ones((600, 5), np.float32), np.zeros(600, np.int64)
    plan = plan_for(grad, ids, 10)
    out = np.full((10, 5), 7, dtype=np.float32)
    short = ne.Workspace(bytearray(plan.workspace_nbytes - 1))
    parts = ("workspace", plan.workspace_nbytes, plan.workspace_nbytes - 1)
    with refused(ValueError, *parts, out=out):
        plan.execute(grad, ids, out=out, workspace=short)
    with refused(ValueError, "read-only"):
        ne.Workspace(bytes(10))
    frozen = np.zeros(10, np.uint8)
    frozen.flags.writeable = False
    with refused(ValueError, "read-only"):
        ne.Workspace(frozen)
    with refused(ValueError, "contiguous"):
        ne.Workspace(np.zeros(20, np.uint8)[::2])
    with refused(TypeError, "buffer"):
        ne.Workspace([1, 2, 3])
    with refused(TypeError, "buffer"):
        ne.Workspace(None)


def test_one_workspace_in_two_threads_is_an_error() -> None:
    """Two threads run in one workspace until they meet; whoever gets a result gets a right one."""
    random = np.random.default_rng(5)
    grad, ids = normal(random, (200_000, 4), "float64"), hot_ids(random, 200_000, 50_000)
    plan = plan_for(grad, ids, 50_000, num_threads=1)
    workspace = plan.make_workspace()
    want = plan.execute(grad, ids, workspace=workspace)
    met = threading.Event()
    wrong: list[BaseException] = []
    refusals: list[Exception] = []

    def work() -> None:
        out = np.empty_like(want)
        for _ in range(2000):
            if met.is_set():
                return
            try:
                out[:] = 3
                plan.execute(grad, ids, out=out, workspace=workspace)
                assert_same_bits(out, want)
            except ne.WorkspaceBusyError as error:
                refusals.append(error)
                if not (bits(out) == bits(np.full_like(out, 3))).all():
                    wrong.append(AssertionError("a refused run wrote to out"))
                met.set()
            except BaseException as error:
                wrong.append(error)
                met.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert refusals
    assert isinstance(refusals[0], ne.EmbedError)
    assert isinstance(refusals[0], RuntimeError)
    assert "workspace" in str(refusals[0])
    # afterwards, and after a refused call, the workspace is free again
    with refused(IndexError, "indices"):
        plan.execute(grad, ids + 10**6, workspace=workspace)
    assert_same_bits(plan.execute(grad, ids, workspace=workspace), want)


def test_one_plan_in_two_threads_with_two_workspaces() -> None:
    random = np.random.default_rng(6)
    grad, ids = normal(random, (20_000, 4), "float64"), hot_ids(random, 20_000, 30_000)
    plan = plan_for(grad, ids, 30_000, num_threads=1)
    want = plan.execute(grad, ids)
    wrong: list[BaseException] = []

    def work() -> None:
        workspace = plan.make_workspace()
        try:
            for _ in range(20):
                assert_same_bits(plan.execute(grad, ids, workspace=workspace), want)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
