"""The pool of output memory: lent once at a time, bounded, given back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from inputs import Array

from numba_embed import EmbedTypeError, EmbedValueError, embedding_dense_backward
from numba_embed.pool import SMALLEST, OutputPool, current, output_pool

SIZE = 1 << 20


def address(array: Array) -> int:
    return int(array.ctypes.data)


def test_memory_comes_back_and_is_lent_again() -> None:
    pool = OutputPool(10 * SIZE)
    array = pool.take(SIZE)
    assert array.shape == (SIZE,)
    assert array.dtype == np.uint8
    assert array.flags.writeable
    assert address(array) % 64 == 0
    assert pool.idle_nbytes == 0
    place = address(array)
    array[:] = 7
    del array
    assert pool.idle_nbytes == SIZE
    again = pool.take(SIZE)
    assert address(again) == place
    assert pool.idle_nbytes == 0
    assert address(pool.take(SIZE)) != place


@pytest.mark.parametrize(
    "hold",
    [
        lambda array: array[5:],
        lambda array: array[::7].reshape(-1, 1),
        lambda array: array.view(np.float64),
        memoryview,
        lambda array: array.__dlpack__(),
        lambda array: np.frombuffer(array, np.int32),
        lambda array: np.broadcast_to(array[:1], (9, 9)),
    ],
    ids=["slice", "strided", "view", "memoryview", "dlpack", "frombuffer", "broadcast"],
)
def test_a_view_keeps_the_memory(hold: Callable[[Array], Any]) -> None:
    pool = OutputPool(10 * SIZE)
    array = pool.take(SIZE)
    place = address(array)
    view = hold(array)
    del array
    assert pool.idle_nbytes == 0
    others = [pool.take(SIZE) for _ in range(3)]
    assert place not in [address(other) for other in others]
    del view
    gc.collect()
    assert pool.idle_nbytes == SIZE
    assert address(pool.take(SIZE)) == place


def test_empty_gives_arrays() -> None:
    pool = OutputPool(10 * SIZE)
    array = pool.empty((300, 500), np.float64)
    assert array.shape == (300, 500)
    assert array.dtype == np.float64
    assert array.flags.c_contiguous
    place = address(array)
    del array
    assert pool.idle_nbytes == 300 * 500 * 8
    assert address(pool.empty((500, 600), np.float32)) == place
    for shape in ((0, 5), (5, 0), (2, 3)):
        assert pool.empty(shape, np.float32).shape == shape


def test_small_arrays_are_left_to_the_allocator() -> None:
    pool = OutputPool(10 * SIZE)
    array = pool.take(SMALLEST - 1)
    assert array.size == SMALLEST - 1
    del array
    assert pool.idle_nbytes == 0


def test_a_buffer_serves_what_is_little_smaller() -> None:
    pool = OutputPool(100 * SIZE)
    large, small = pool.take(8 * SIZE), pool.take(7 * SIZE)
    places = address(large), address(small)
    del large, small
    assert pool.idle_nbytes == 15 * SIZE
    fitting = pool.take(7 * SIZE - 5)
    assert address(fitting) == places[1], "the smallest that fits"
    other = pool.take(7 * SIZE)
    assert other.size == 7 * SIZE
    assert address(other) == places[0]
    del other
    half = pool.take(4 * SIZE)
    assert pool.idle_nbytes == 8 * SIZE, "twice the size would be a waste"
    assert address(half) not in places


def test_the_limit_bounds_idle_memory() -> None:
    pool = OutputPool(2 * SIZE)
    arrays = [pool.take(SIZE) for _ in range(4)]
    places = [address(array) for array in arrays]
    while arrays:
        arrays.pop(0)
        assert pool.idle_nbytes <= 2 * SIZE
    assert pool.idle_nbytes == 2 * SIZE
    kept = {address(array) for array in [pool.take(SIZE), pool.take(SIZE)]}
    assert kept == set(places[2:]), "what came back last is kept: it is warm"
    array = pool.take(3 * SIZE)
    del array
    assert pool.idle_nbytes <= 2 * SIZE

    nothing = OutputPool(0)
    array = nothing.take(SIZE)
    del array
    assert nothing.idle_nbytes == 0


def test_giving_back_on_request() -> None:
    pool = OutputPool(10 * SIZE)
    used, idle = pool.take(SIZE), pool.take(2 * SIZE)
    del idle
    assert repr(pool) == f"OutputPool({2 * SIZE} of at most {10 * SIZE} bytes idle)"
    assert pool.release() == 2 * SIZE
    assert pool.idle_nbytes == 0
    used[:] = 3
    del used
    assert pool.idle_nbytes == SIZE
    used = pool.take(SIZE)
    pool.close()
    used[:] = 3
    del used
    assert pool.idle_nbytes == 0, "a closed pool keeps nothing"


@pytest.mark.parametrize("limit", [1.5, True, "1", None])
def test_a_limit_of_another_type(limit: Any) -> None:
    with pytest.raises(EmbedTypeError, match="limit_bytes must be an integer >= 0"):
        OutputPool(limit)


def test_a_negative_limit() -> None:
    with pytest.raises(EmbedValueError, match=r"limit_bytes must lie in \[0, \d+\], got -1"):
        OutputPool(-1)


def test_a_cycle_that_is_collected_at_any_moment() -> None:
    """The collector may run inside the pool's own methods, and hand memory back there."""
    pool = OutputPool(50 * SIZE)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            cycle: list[Any] = [pool.take(SIZE)]
            cycle.append(cycle)
            del cycle
            pool.release()
    finally:
        gc.set_threshold(*before)
    gc.collect()
    pool.release()
    assert pool.idle_nbytes == 0


def test_threads_never_share_memory() -> None:
    pool = OutputPool(4 * SIZE)
    start = threading.Barrier(4)

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        start.wait()
        held: list[Array] = []
        for step in range(200):
            array = pool.take(int(random.integers(SMALLEST, 2 * SMALLEST)))
            array[:] = number
            held.append(array)
            if len(held) > 3:
                held.pop(int(random.integers(0, 4)))
            assert all((array == number).all() for array in held), f"step {step}"

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, number) for number in range(4)]:
            done.result()
    assert 0 < pool.idle_nbytes <= 4 * SIZE


def test_the_current_pool_is_the_innermost_of_this_thread() -> None:
    assert current() is None
    with output_pool(SIZE) as outer:
        assert current() is outer
        assert outer.limit_bytes == SIZE
        with output_pool(2 * SIZE) as inner:
            assert current() is inner
        assert current() is outer
        with ThreadPoolExecutor(1) as other:
            assert other.submit(current).result() is None
        mine = OutputPool(SIZE)
        with mine.active() as active:
            assert active is mine
            assert current() is mine
        array = outer.take(SIZE)
    assert current() is None
    with pytest.raises(KeyError), output_pool(SIZE):
        raise KeyError
    assert current() is None
    array[:] = 1
    del array
    assert outer.idle_nbytes == 0


def test_calls_draw_their_outputs_from_it() -> None:
    grad, ids = np.ones((4, 64), np.float32), np.array([1, 5, 5, 999])
    want = embedding_dense_backward(grad, ids, 1000)
    with output_pool(SIZE) as pool:
        first = embedding_dense_backward(grad, ids, 1000)
        place = address(first)
        second = embedding_dense_backward(grad, ids, 1000)
        assert address(second) != place
        np.testing.assert_array_equal(first, want)
        del first
        assert pool.idle_nbytes == want.nbytes
        second[:] = 9
        given = np.empty_like(want)
        assert embedding_dense_backward(grad, ids, 1000, out=given) is given
        third = embedding_dense_backward(grad[:2], ids[:2], 1000)
        assert address(third) == place
        np.testing.assert_array_equal(third, embedding_dense_backward(grad[:2], ids[:2], 1000))
        with pytest.raises(IndexError):
            embedding_dense_backward(grad, ids, 999)
        assert pool.idle_nbytes == want.nbytes


def test_a_forked_child_has_an_empty_pool(run_python: Callable[..., Any]) -> None:
    run_python(
        "import os, sys\n"
        "if not hasattr(os, 'fork'): sys.exit()\n"
        "from numba_embed.pool import OutputPool\n"
        "pool = OutputPool(1 << 30)\n"
        "held, idle = pool.take(1 << 20), pool.take(1 << 20)\n"
        "del idle\n"
        "pool._lock.acquire()\n"  # as another thread might at the moment of the fork
        "child = os.fork()\n"
        "if child == 0:\n"
        "    fresh = pool.take(1 << 20)\n"
        "    assert fresh.ctypes.data != held.ctypes.data\n"
        "    del held\n"
        "    os._exit(0 if pool.idle_nbytes == 1 << 20 else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
