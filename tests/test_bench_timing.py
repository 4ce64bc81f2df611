"""The clockwork: turns, samples, budgets."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from numba_embed.bench import timing
from numba_embed.bench.timing import Contender, in_steps, round_robin


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take short samples without pauses: nobody looks at these times."""
    monkeypatch.setattr(timing, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-6)


class TestTiming:
    def test_contenders_take_turns(self) -> None:
        order: list[str] = []
        several = [Contender(lambda name=name: order.append(name)) for name in "abc"]
        round_robin(several, 4)
        assert order == list("abc" + "bca" + "cab" + "abc")
        assert [len(one.samples) for one in several] == [4, 4, 4]

    def test_memory_is_touched_before_each_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        order: list[int | str] = []
        monkeypatch.setattr(timing, "touch_memory", order.append)
        round_robin([Contender(lambda name=name: order.append(name)) for name in "ab"], 2, 7)
        assert order == [7, "a", "b", 7, "b", "a"]

    def test_a_slow_contender_sits_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timing, "BUDGET_SECONDS", 1e9)
        slow, quick = Contender(lambda: None, spent=1e10), Contender(lambda: None)
        round_robin([slow, quick], 5)
        assert len(slow.samples) == timing.MIN_SAMPLES
        assert len(quick.samples) == 5

    def test_short_calls_are_repeated_within_a_sample(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-3)
        calls = 0

        def call() -> None:
            nonlocal calls
            calls += 1

        contender = Contender(call)
        contender.calibrate()
        assert contender.number > 1
        before = calls
        contender.sample()
        assert calls - before == contender.number

    def test_long_calls_are_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-9)
        contender = Contender(lambda: sum(range(100)))
        contender.calibrate()
        assert contender.number == 1

    def test_times_are_per_step_and_per_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter([0.0, 12.0, 100.0, 106.0])
        monkeypatch.setattr(timing, "perf_counter", lambda: next(clock))
        contender = Contender(in_steps(lambda: None, 3), steps=3, number=2)
        contender.sample()
        contender.sample()
        assert contender.samples == [2.0, 1.0]
        assert contender.median == 1.5

    def test_a_step_drops_its_result_before_the_next(self) -> None:
        alive: list[int] = []

        class Result:
            def __init__(self) -> None:
                assert not alive
                alive.append(1)

            def __del__(self) -> None:
                alive.clear()

        in_steps(Result, 5)()
        assert not alive

    def test_a_context_is_entered_for_each_sample_with_a_call_ahead(self) -> None:
        events: list[str] = []

        @contextmanager
        def context() -> Iterator[None]:
            events.append("enter")
            yield
            events.append("leave")

        Contender(lambda: events.append("call"), context=context).sample()
        assert events == ["enter", "call", "call", "leave"]

    def test_garbage_collection_comes_back(self) -> None:
        seen: list[bool] = []

        def fail() -> None:
            seen.append(gc.isenabled())
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            round_robin([Contender(fail)], 1)
        assert seen == [False]
        assert gc.isenabled()
