"""Phase two from several threads and on streams: who wins, in which order, and who is told."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from aclnn_calls import FAILED, INVALID, OK, Call, V, call, refused
from inputs import POOL
from reference import assert_same_bits

from numba_embed import aclnn, embedding_dense_backward
from numba_embed.aclnn import Product, Status


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
