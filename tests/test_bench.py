"""The comparison: results are checked before any clock starts, peers may be absent or wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import numba_embed as ne
from numba_embed.bench import compare, timing
from numba_embed.bench.cases import CASES, Case, Operands, select
from numba_embed.bench.peers import Peer, UnsupportedError
from numba_embed.bench.reference import Reference, WrongResultError
from numba_embed.bench.report import headline, markdown, milliseconds, remarks, table
from numba_embed.bench.timing import Contender

BY_NAME = {case.name: case for case in CASES}
TINY = BY_NAME["tiny"]
BUFFER = 1 << 14


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take short samples without pauses: nobody looks at these times."""
    monkeypatch.setattr(timing, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(compare, "BANDWIDTH_SAMPLES", 1)


def fake_peer(name: str, compute: Callable[[Case, Operands], Any], module: str = "numpy") -> Peer:
    return Peer(
        name,
        f"the {name} one",
        module,
        lambda module, case, operands: lambda: compute(case, operands),
        lambda result, case: np.asarray(result),
    )


def right(case: Case, operands: Operands) -> Any:
    out = np.zeros((case.V, case.D), np.float32)
    np.add.at(out, operands.indices, operands.grad)
    return out


def run(cases: list[Case], peers: list[Peer], rounds: int = 2) -> dict[str, Any]:
    return compare.run(cases, peers, rounds=rounds, command="made up", roofline_bytes=BUFFER)


class TestCompare:
    def test_all_results_are_checked_before_any_is_timed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events: list[str] = []
        check, calibrate = Reference.problem, Contender.calibrate

        def problem(self: Reference, out: Any, **options: Any) -> str | None:
            events.append("check")
            return check(self, out, **options)

        def noted(self: Contender) -> None:
            events.append("time")
            calibrate(self)

        monkeypatch.setattr(Reference, "problem", problem)
        monkeypatch.setattr(Contender, "calibrate", noted)
        run([TINY], [fake_peer("good", right)])
        assert events == sorted(events)
        assert events.count("check") == events.count("time") >= 4

    def test_a_wrong_peer_is_shown_and_never_timed(self) -> None:
        calls = 0

        def wrong(case: Case, operands: Operands) -> Any:
            nonlocal calls
            calls += 1
            out = right(case, operands)
            out[operands.indices[0], 0] += 1
            return out

        figures = run([TINY], [fake_peer("bad", wrong), fake_peer("good", right)])
        (case,) = figures["cases"]
        assert calls == 1
        assert case["contenders"]["bad"]["status"] == "wrong"
        assert case["best_peer"] == "good"
        assert "WRONG" in table(figures)[1][0]
        assert remarks(figures)[0].startswith("the bad one on tiny: wrong (row ")

    def test_an_absent_peer_is_shown_as_absent(self) -> None:
        figures = run([TINY], [fake_peer("lost", right, module="no_such_module.inner")])
        (case,) = figures["cases"]
        assert case["contenders"]["lost"] == {
            "status": "absent",
            "reason": "no_such_module is not installed",
        }
        assert case["best_peer"] is None
        assert case["ratio_fresh"] is None
        assert "absent" in table(figures)[1][0]
        assert remarks(figures) == ["the lost one: absent (no_such_module is not installed)"]

    def test_a_peer_that_raises_does_not_end_the_run(self) -> None:
        def fail(case: Case, operands: Operands) -> Any:
            raise RuntimeError("no luck\ntoday")

        def refuse(case: Case, operands: Operands) -> Any:
            raise UnsupportedError("has no such thing")

        figures = run([TINY], [fake_peer("broken", fail), fake_peer("other", refuse)])
        states = figures["cases"][0]["contenders"]
        assert states["broken"] == {"status": "failed", "reason": "RuntimeError: no luck"}
        assert states["other"] == {"status": "unsupported", "reason": "has no such thing"}

    def test_a_wrong_result_of_the_library_ends_the_run(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            ne, "embedding_dense_backward", lambda grad, indices, rows, **_: np.zeros((rows, 16))
        )
        with pytest.raises(WrongResultError, match="tiny, fresh: dtype float64"):
            run([TINY], [])

    def test_rows_that_out_is_missing_are_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ne.Plan, "execute", lambda self, grad, indices, out, *_: out)
        with pytest.raises(WrongResultError, match=r"tiny, out=: row .*nan"):
            run([TINY], [])

    def test_the_figures_hold_everything(self) -> None:
        progress: list[Case] = []
        cases = [BY_NAME[name].small() for name in ("w2v", "int32 indices", "accumulate")]
        peer = fake_peer("good", lambda case, operands: right(case, operands) + case.accumulate)
        figures = compare.run(
            cases,
            [peer],
            rounds=3,
            command="typed",
            roofline_bytes=BUFFER,
            progress=progress.append,
        )
        assert progress == cases
        assert json.loads(json.dumps(figures)) == figures
        assert figures["schema"] == 1
        assert figures["command"] == "typed"
        assert figures["rounds"] == 3
        assert figures["peers"] == {"good": "the good one"}
        assert figures["versions"]["numba-embed"] == ne.__version__
        assert figures["versions"]["numpy"] == np.__version__
        assert {"cpu", "cores", "caches", "platform"} <= set(figures["machine"])
        assert figures["threads"] >= 1
        assert "cache directory" not in json.dumps(figures), "no path of this machine"
        for case, found in zip(cases, figures["cases"], strict=True):
            assert (found["name"], found["V"], found["D"]) == (case.name, case.V, case.D)
            assert {"1", str(figures["threads"])} == set(found["bandwidth"])
            assert found["limit"] > 0
            for name, state in found["contenders"].items():
                if state["status"] == "ok":
                    assert len(state["samples"]) == 3
                    assert state["median"] == pytest.approx(np.median(state["samples"]))
                else:
                    assert name == "pooled" or case.accumulate
            assert found["ratio_out"] == pytest.approx(
                found["contenders"]["good"]["median"] / found["contenders"]["out"]["median"]
            )
        assert figures["cases"][2]["contenders"]["fresh"]["status"] == "unsupported"
        assert figures["cases"][1]["versus"]["name"] == "w2v"
        assert "versus" not in figures["cases"][0]

    def test_what_follows_from_the_medians(self) -> None:
        times = {"fresh": 4.0, "out": 2.0, "one_thread": 3.0, "a": 16.0, "b": 8.0}
        states: dict[str, Any] = {
            name: {"status": "ok", "median": median} for name, median in times.items()
        }
        states["c"] = states["pooled"] = {"status": "absent"}
        case = {"contenders": states, "limit": 1.0, "one_thread_limit": 1.5}
        assert compare.summary(case, ["a", "b", "c"]) == {
            "best_peer": "b",
            "ratio_fresh": 2.0,
            "ratio_out": 4.0,
            "ratio_pooled": None,
            "fraction": 0.5,
            "one_thread_fraction": 0.5,
            "thread_speedup": 1.5,
        }

    def test_neighbours_are_compared_per_byte(self) -> None:
        def case(name: str, neighbour: str | None, median: float, read: int) -> dict[str, Any]:
            state = {"out": {"status": "ok", "median": median}}
            moved = {"read": read, "written": 100}
            return {"name": name, "neighbour": neighbour, "contenders": state, "bytes": moved}

        cases = [case("one", None, 2.0, 300), case("two", "one", 3.0, 100), case("x", "?", 1, 1)]
        compare.add_comparisons(cases)
        assert cases[1]["versus"] == {"name": "one", "time": 1.5, "per_byte": 3.0}
        assert "versus" not in cases[0]
        assert "versus" not in cases[2]


class TestOutputPool:
    def test_without_a_pool_the_column_is_not_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ne, "output_pool", None)
        figures = run([TINY], [])
        assert figures["cases"][0]["contenders"]["pooled"]["status"] == "unsupported"
        assert "pooled" not in table(figures)[0]

    def test_a_pool_is_entered_with_room_for_the_output(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits: list[int] = []

        @contextmanager
        def output_pool(limit_bytes: int) -> Iterator[None]:
            limits.append(limit_bytes)
            yield

        monkeypatch.setattr(ne, "output_pool", output_pool, raising=False)
        figures = run([replace(TINY, steps=2)], [])
        assert figures["cases"][0]["contenders"]["pooled"]["status"] == "ok"
        assert "pooled" in table(figures)[0]
        assert set(limits) == {2 * 100 * 16 * 4 + (1 << 20)}


class TestReport:
    def test_the_table_names_every_contender(self) -> None:
        figures = run(list(select("tiny")), [fake_peer("good", right)])
        titles, rows = table(figures)
        assert titles[:6] == ["case", "V, D, N", "fresh", "out=", "pooled", "one thread"]
        assert titles[-5:] == ["good", "gain", "gain out=", "limit", "of limit"]
        assert rows[0][:2] == ["tiny", "100, 16, 32"]
        assert all(len(row) == len(titles) for row in rows)
        assert rows[0][-4].endswith("x")
        assert "GB/s" in headline(figures)

    def test_times_have_three_digits(self) -> None:
        shown = [milliseconds(seconds) for seconds in (1.23456, 0.0123456, 1.23456e-6)]
        assert shown == ["1235", "12.3", "0.00123"]

    def test_markdown(self) -> None:
        assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
