"""Threads, forks, caches and imports, each in interpreters of their own."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec

import pytest
from conftest import RunPython
from inputs import THREADS

LAYERS = ["workqueue", "omp", "tbb"]
forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

# A job whose result is known without the package, and whether a run of it is right.
PROLOGUE = """
import os, sys, threading
import numpy as np
import numba
import numba_embed as ne

ids = np.arange(60_000) * 7919 % 20_000
grad = np.ones((60_000, 2), np.float32)
want = np.repeat(np.bincount(ids, minlength=20_000).astype(np.float32)[:, None], 2, axis=1)
few = ids % 50
few_want = np.repeat(np.bincount(few).astype(np.float32)[:, None], 2, axis=1)

def right(threads, **options):
    one = ne.embedding_dense_backward(grad, ids, 20_000, num_threads=threads, **options)
    two = ne.embedding_dense_backward(grad, few, 50, num_threads=threads, **options)
    return np.array_equal(one, want) and np.array_equal(two, few_want)
"""


@pytest.fixture
def layer(request: pytest.FixtureRequest, run_python: RunPython) -> str:
    """Give the name of a threading layer, if this machine has it."""
    name: str = request.param
    probe = "import numba; numba.get_num_threads()"
    if run_python(probe, check=False, NUMBA_THREADING_LAYER=name).returncode:
        pytest.skip(f"numba has no {name} layer here")
    return name


# --- import ---------------------------------------------------------------------------------------


def test_import_starts_no_pool_compiles_nothing_and_loads_no_extra(run_python: RunPython) -> None:
    code = """
import json, os, sys, threading
import numba
from numba.core import event
from numba.np.ufunc import parallel

def tasks():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0

before, modules = tasks(), set(sys.modules)
with event.install_recorder("numba:compile") as recorder:
    import numba_embed
    names = [getattr(numba_embed, name) for name in numba_embed.__all__]
    plan = numba_embed.plan_dense_backward((4, 2), "float32", (4,), "int64", 9)
    repr(plan), plan.partition, plan.workspace_nbytes
loaded = {name.partition(".")[0] for name in set(sys.modules) - modules}
print(json.dumps({
    "compiled": len(recorder.buffer),
    "pool": bool(parallel._is_initialized),
    "threads": tasks() - before,
    "extras": sorted(loaded & {"torch", "rich", "matplotlib", "ml_dtypes", "scipy", "jax"}),
}))
"""
    found = json.loads(run_python(code).stdout)
    assert found == {"compiled": 0, "pool": False, "threads": 0, "extras": []}


def test_one_thread_and_small_calls_start_no_pool(run_python: RunPython) -> None:
    code = (
        PROLOGUE
        + """
from numba.np.ufunc import parallel
assert right(1)
ne.embedding_dense_backward(np.ones((3, 2), np.float32), [0, 1, 1], 4)
assert not parallel._is_initialized
"""
    )
    run_python(code)


def test_bfloat16_without_ml_dtypes_says_so(run_python: RunPython) -> None:
    code = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np
import numba_embed as ne
ne.embedding_dense_backward(np.ones((1, 1), np.float32), [0], 1)
plan = ne.plan_dense_backward((1, 1), "float32", (1,), "int64", 1, out_dtype="bfloat16")
try:
    plan.execute(np.ones((1, 1), np.float32), np.array([0]))
except ImportError as error:
    assert "ml_dtypes" in str(error)
else:
    raise AssertionError("no error")
"""
    run_python(code)


# --- threads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS, indirect=True)
def test_row_26_several_python_threads_at_once(layer: str, run_python: RunPython) -> None:
    code = (
        PROLOGUE
        + """
wrong = []
gate = threading.Barrier(4)

def work(number):
    gate.wait()
    for step in range(50):
        if not right([None, 2, 1, 2][(number + step) % 4]):
            wrong.append((number, step))

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
assert numba.threading_layer() == sys.argv[1]
print("done")
"""
    )
    done = run_python(code, layer, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2")
    assert done.stdout == "done\n"


def test_the_mask_is_each_threads_own(run_python: RunPython) -> None:
    code = (
        PROLOGUE
        + """
numba.set_num_threads(3)
seen = []

def work():
    numba.set_num_threads(2)
    for threads in (4, 1, None, 3):
        assert right(threads)
        seen.append(numba.get_num_threads())
    try:
        ne.embedding_dense_backward(grad, ids, 100, num_threads=4)
    except IndexError:
        seen.append(numba.get_num_threads())

thread = threading.Thread(target=work)
thread.start()
for threads in (4, 2):
    assert right(threads)
thread.join()
assert seen == [2] * 5, seen
assert numba.get_num_threads() == 3
"""
    )
    run_python(code, NUMBA_NUM_THREADS="4")


def test_kernels_let_other_threads_run(run_python: RunPython) -> None:
    """While a one-thread call runs, another Python thread gets its turns."""
    code = (
        PROLOGUE
        + """
import time
big = np.ones((400_000, 16), np.float32)
rows = np.arange(400_000) * 7919 % 100_000
for many in (100_000, 50):
    call = lambda: ne.embedding_dense_backward(big, rows % many, many, num_threads=1)
    call()
    done = threading.Event()
    turns = []

    def count():
        while not done.is_set():
            turns.append(time.perf_counter())
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    began = time.perf_counter()
    for _ in range(5):
        call()
    ended = time.perf_counter()
    done.set()
    thread.join()
    inside = [turn for turn in turns if began < turn < ended]
    # with the GIL held a call is one gap of its whole length
    assert len(inside) > 100, len(inside)
"""
    )
    run_python(code)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torchs_threads_are_left_alone(run_python: RunPython) -> None:
    code = (
        PROLOGUE
        + """
import torch
torch.set_num_threads(3)
for threads in (None, 1, 2):
    assert right(threads)
    assert torch.get_num_threads() == 3
a = torch.rand(300, 300)
assert torch.equal(a @ a, a @ a)
assert right(2)
"""
    )
    run_python(code)


# --- fork -----------------------------------------------------------------------------------------


@forking
@pytest.mark.parametrize("layer", LAYERS, indirect=True)
@pytest.mark.parametrize("before", THREADS)
def test_row_27_a_forked_child_computes(layer: str, before: int, run_python: RunPython) -> None:
    code = (
        PROLOGUE
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
assert right(int(sys.argv[1]))
for threads in (1, 2, None):
    child = os.fork()
    if child == 0:
        os._exit(0 if right(threads) and right(2) else 3)
    status = os.waitpid(child, 0)[1]
    assert status == 0, (threads, status)
assert right(2)
"""
    )
    run_python(code, str(before), NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2")


@forking
def test_row_27_a_forked_pool_of_workers(run_python: RunPython) -> None:
    code = (
        PROLOGUE
        + """
import multiprocessing
assert right(2)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(pool.map(right, [1, 2, 2, 1, 2]))
"""
    )
    run_python("import warnings; warnings.simplefilter('ignore')\n" + code, NUMBA_NUM_THREADS="2")


@forking
def test_row_27_a_fork_inside_a_call_of_another_thread(run_python: RunPython) -> None:
    """Locks that another thread held at the fork are held in the child by nobody."""
    code = (
        PROLOGUE
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
assert right(2)
stop = threading.Event()

def work():
    while not stop.is_set():
        right(2)

thread = threading.Thread(target=work)
thread.start()
statuses = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        os._exit(0 if right(2) else 3)
    statuses.append(os.waitpid(child, 0)[1])
stop.set()
thread.join()
assert statuses == [0] * 10, statuses
"""
    )
    run_python(code, NUMBA_THREADING_LAYER="workqueue", NUMBA_NUM_THREADS="2")


@forking
@pytest.mark.parametrize("layer", ["omp"], indirect=True)
def test_a_child_forked_before_the_first_call_beside_a_launched_pool(
    layer: str, run_python: RunPython
) -> None:
    """A pool that somebody else launched is dead in the child; the first call is made there."""
    code = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numba
import numba_embed as ne

numba.get_num_threads()
child = os.fork()
if child == 0:
    import numpy as np
    ids = np.arange(60_000) * 7919 % 20_000
    out = ne.embedding_dense_backward(np.ones((60_000, 2), np.float32), ids, 20_000, num_threads=2)
    right = np.array_equal(out[:, 0], np.bincount(ids, minlength=20_000))
    os._exit(0 if right else 3)
assert os.waitpid(child, 0)[1] == 0
"""
    run_python(code, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2")
