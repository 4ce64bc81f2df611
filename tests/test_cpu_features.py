"""Other instruction sets: everything compiles, nothing crashes, no bit moves."""

from __future__ import annotations

import json
import platform

import llvmlite.binding
import pytest
from conftest import RunPython
from jobs import FORMAT_JOBS, all_digests

GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
HASWELL = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+f16c,+avx,+sse4.2,+fma"}


def host_features() -> set[str]:
    """Name the features of this machine's CPU."""
    found = llvmlite.binding.get_host_cpu_features()
    return {name for name, present in found.items() if present}


@pytest.mark.parametrize(
    ("variables", "serial", "parallel"),
    [
        pytest.param(
            GENERIC, [name for name in FORMAT_JOBS if name != "float32"], ["float16"], id="generic"
        ),
        pytest.param(HASWELL, ["float16", "float32"], [], id="haswell"),
    ],
)
def test_other_cpu_features_give_the_same_bits(
    variables: dict[str, str], serial: list[str], parallel: list[str], run_python: RunPython
) -> None:
    """No instruction set may be needed, and none may move a bit."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("the CPU names are those of x86-64")
    if variables is HASWELL and not {"avx2", "f16c", "fma"} <= host_features():
        pytest.skip("the host lacks these features")
    code = """
import json, sys
from jobs import FORMAT_JOBS, all_digests
for threads, names in enumerate(json.loads(sys.argv[1]), start=1):
    jobs = {name: FORMAT_JOBS[name] for name in names}
    print(json.dumps(all_digests(jobs, [threads], [None])))

import numpy as np
import numba_embed as ne
zeros = np.full((60, 45), -0.0, np.float16)  # rows of 20 and 40 look-ups
found = ne.embedding_dense_backward(zeros, np.arange(60) // 20 % 2, 5, num_threads=1)
assert not np.signbit(found).any()
"""
    done = run_python(code, json.dumps([serial, parallel]), NUMBA_NUM_THREADS="2", **variables)
    here = all_digests({name: FORMAT_JOBS[name] for name in serial}, [1], [None])
    on_one, on_two = map(json.loads, done.stdout.splitlines())
    assert on_one == here
    assert on_two == {name: here[name] for name in parallel}


@pytest.mark.parametrize("variables", [{}, GENERIC], ids=["host", "generic"])
def test_every_16_bit_pattern_comes_out_as_itself(
    variables: dict[str, str], run_python: RunPython
) -> None:
    code = """
import numpy as np
import ml_dtypes
import numba_embed as ne
for dtype in (np.float16, ml_dtypes.bfloat16):
    every = np.arange(65536, dtype=np.uint16).view(dtype)[:, None]
    got = ne.embedding_dense_backward(every, np.arange(65536), 65536, num_threads=1)
    want = every.astype(np.float32) + np.float32(0)  # -0.0 becomes +0.0
    want[np.isnan(want)] = np.nan
    assert np.array_equal(got.view(np.uint16), want.astype(dtype).view(np.uint16))
"""
    run_python(code, **variables)
