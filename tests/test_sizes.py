"""Large inputs and outputs: 64-bit offsets, and the memory that a run really takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import RunPython
from inputs import THREADS, refused
from reference import assert_same_bits, bits

from numba_embed import embedding_dense_backward as E


def test_peak_memory_is_the_plans(run_python: RunPython) -> None:
    """What the process really takes while running is the workspace, not more."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the system does not report the peak of resident memory")
    code = """
import re
import numpy as np
import numba_embed as ne

def resident(name):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

for size, many, width in ((1_000_000, 300_000, 4), (1_000_000, 60, 4), (5000, 3_000_000, 4)):
    grad = np.ones((size, width), np.float32)
    ids = np.arange(size) * 7919 % many
    ids[: size // 2] = 5
    out = np.ones((many, width), np.float32)
    for threads in (1, 2):
        plan = ne.plan_dense_backward(
            grad.shape, grad.dtype, ids.shape, ids.dtype, many, num_threads=threads
        )
        small = plan.execute(grad, ids, out=out)  # compiled, pool and stacks in place
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = resident("VmRSS")
        plan.execute(grad, ids, out=out)
        taken = resident("VmHWM") - before
        assert taken <= plan.workspace_nbytes + (2 << 20), (size, threads, taken, plan)
"""
    run_python(code, NUMBA_NUM_THREADS="2")


@pytest.mark.parametrize("threads", THREADS)
def test_gradients_of_more_than_2_to_the_31_elements(threads: int) -> None:
    """All positions but three are padding, so that nearly none of the memory is touched."""
    size, width = 70_001, 32_768
    try:
        grad = np.zeros((size, width), dtype=np.float16)
    except MemoryError:
        pytest.skip("the system does not lend 5 GB of address space")
    assert grad.size > 2**31
    ids = np.full(size, 2)
    ids[[0, 68_000, 70_000]] = 1
    grad[[0, 68_000, 70_000]] = np.array([1, 2, 4], dtype=np.float16)[:, None]
    got = E(grad, ids, 3, 2, num_threads=threads)
    want = np.zeros((3, width), dtype=np.float16)
    want[1] = 7
    assert_same_bits(got, want)
    assert_same_bits(E(grad[:, ::-1], ids, 3, 2, num_threads=threads), want)
    assert_same_bits(E(grad[::-1], ids[::-1], 3, 2, num_threads=threads), want)


@pytest.mark.parametrize("threads", THREADS)
def test_outputs_of_more_than_2_to_the_31_elements(threads: int) -> None:
    """Accumulation touches the named rows only, so that nearly none of the memory is needed."""
    num_weights, width = 70_001, 32_768
    try:
        out = np.zeros((num_weights, width), dtype=np.float16)
    except MemoryError:
        pytest.skip("the system does not lend 5 GB of address space")
    assert out.size > 2**31
    ids = np.array([70_000, 0, 68_000, 70_000])
    grad = np.arange(1, 5, dtype=np.float16)[:, None] * np.ones(width, np.float16)
    E(grad, ids, num_weights, out=out, accumulate=True, num_threads=threads)
    assert (out[[0, 68_000, 70_000]] == np.array([[2], [3], [5]], np.float16)).all()
    for near in (1, 67_999, 68_001, 69_999, 4465, 2464):
        assert not bits(out[near]).any()


@pytest.mark.parametrize("cores", [None, 1, 7, 2**40])
def test_tables_of_more_than_2_to_the_32_rows(cores: int | None) -> None:
    """A fresh result of that size is memory that nobody has touched, but for the named rows."""
    num_weights = 2**32 + 10
    rows = np.array([2**32 + 9, 0, 2**32 - 1, 2**32, 2**32 + 9, 5])
    grad = np.arange(1, 7, dtype=np.float16)[:, None]
    try:
        got = E(grad, rows, num_weights, 5, num_threads=1, core_num=cores)
    except MemoryError:
        pytest.skip("the system does not lend 9 GB of address space")
    seen = got[[2**32 + 9, 0, 2**32 - 1, 2**32, 5, 1, 2**32 + 8], 0]
    assert seen.tolist() == [6, 2, 3, 4, 0, 0, 0]
    rows[3] = num_weights
    with refused(IndexError, "indices", num_weights, 3, f"[0, {num_weights})"):
        E(grad, rows, num_weights, num_threads=1, core_num=cores)


def test_a_long_stream_of_one_gradient_row() -> None:
    """N * D beyond 2^31 through zero strides: no memory, all of the arithmetic."""
    size, width = 66_000, 33_000
    grad = np.broadcast_to(np.float32(1), (size, width))
    assert grad.size > 2**31
    ids = np.arange(size) % 3
    got = E(grad, ids, 3, scale_grad_by_freq=True, out=np.empty((3, width), np.float32))
    assert_same_bits(got, np.ones((3, width), np.float32))
