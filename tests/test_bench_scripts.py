"""The scripts around the benchmark: growth, cold start, and the document made of the figures."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from numba_embed.bench import compare, files, roofline, timing
from numba_embed.bench.cases import select
from numba_embed.bench.peers import PEERS
from numba_embed.cli_support import CliError

RunPython = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).resolve().parent.parent
PNG = b"\x89PNG\r\n\x1a\n"
BENCH = "import sys; from numba_embed.cli import main; sys.exit(main(['bench', *sys.argv[1:]]))"


def script(path: str) -> ModuleType:
    """Load a script that is no part of the package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_script", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(roofline, "DEFAULT_BYTES", 1 << 14)


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """Give the figures of a quick run, with one peer that is always there."""
    cases = [case.small() for case in select("w2v,w2v float16,hot row,accumulate")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "SETTLE_SECONDS", 0.0)
        return compare.run(
            cases,
            [peer for peer in PEERS if peer.name == "add_at"],
            rounds=2,
            command="numba-embed bench --repeat 2",
            roofline_bytes=1 << 14,
        )


class TestFiles:
    def test_figures_are_added_to(self, tmp_path: Path) -> None:
        target = tmp_path / "figures.json"
        files.add(target, "growth", {"a": 1})
        files.add(target, "cold_start", [2])
        files.add(target, "growth", {"b": 3})
        assert files.read(target) == {"growth": {"b": 3}, "cold_start": [2]}

    @pytest.mark.parametrize("content", [None, b"", b"[1]", b"\xff", b"{"])
    def test_what_holds_no_figures_is_an_error(self, content: bytes | None, tmp_path: Path) -> None:
        target = tmp_path / "figures.json"
        if content is not None:
            target.write_bytes(content)
        with pytest.raises(CliError, match="holds no figures"):
            files.read(target)


class TestGrowth:
    def test_sizes_span_three_decades(self) -> None:
        growth = script("benchmarks/growth.py")
        assert growth.sizes(1000, 1) == [1000, 10000, 100000, 1000000]
        assert growth.sizes(8, 2, 1) == [8, 25, 80]

    def test_the_steepest_decade_counts(self) -> None:
        growth = script("benchmarks/growth.py")
        assert growth.steepest([1, 10, 100], [1.0, 1.0, 100.0]) == pytest.approx(2.0)
        assert growth.steepest([1, 3, 10], [1.0, 9.0, 10.0]) == pytest.approx(1.0)
        assert growth.steepest([2, 4], [1.0, 2.0]) == pytest.approx(1.0)

    def test_a_sweep_is_added_and_drawn(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        growth = script("benchmarks/growth.py")
        monkeypatch.setattr(growth, "SMALLEST", {"N": 2, "V": 3, "D": 4})
        small = {letter: case.small() for letter, case in growth.FIXED.items()}
        monkeypatch.setattr(growth, "FIXED", small)
        target, picture = tmp_path / "figures.json", tmp_path / "growth.png"
        files.write(target, {"schema": 1})
        arguments = ["--json", str(target), "--plot", str(picture), "--repeat", "1"]
        assert growth.main([*arguments, "--per-decade", "1", "--decades", "1"]) == 0
        found = files.read(target)
        assert found["schema"] == 1
        assert found["growth"]["sweeps"]["D"]["sizes"] == [4, 40]
        assert found["growth"]["sweeps"]["N"]["fixed"] == {"V": 40, "D": 16}
        assert len(found["growth"]["sweeps"]["V"]["out"]) == 2
        assert picture.read_bytes().startswith(PNG)

    def test_a_missing_folder_is_noticed_first(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        growth = script("benchmarks/growth.py")
        assert growth.main(["--json", str(tmp_path / "missing" / "figures.json")]) == 2
        assert "does not exist" in capsys.readouterr().err


class TestColdStart:
    def test_a_process_reports_its_times(self) -> None:
        cold = script("benchmarks/cold_start.py")
        times = cold.measure(Path(os.environ["NUMBA_CACHE_DIR"]), "gather", 1, "float32")
        assert set(times) == {"import_numba", "import_on_top", "first_call", "second_call"}
        assert 0 < times["second_call"] < times["first_call"]

    def test_every_first_call_is_measured_twice(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        cold = script("benchmarks/cold_start.py")
        seen: list[tuple[Path, str, int]] = []

        def measure(cache: Path, algorithm: str, threads: int, dtype: str) -> dict[str, float]:
            warm = any(one[0] == cache for one in seen)
            seen.append((cache, algorithm, threads))
            (cache / "kernel.nbc").touch()
            return {
                "import_numba": 1.0,
                "import_on_top": 0.5,
                "first_call": 0.25 if warm else 9.0,
                "second_call": 0.0,
            }

        monkeypatch.setattr(cold, "measure", measure)
        monkeypatch.setattr(cold, "pool_size", lambda: 2)
        target = tmp_path / "figures.json"
        assert cold.main(["--json", str(target), "--repeat", "3"]) == 0
        found = files.read(target)["cold_start"]
        assert (found["import_numba"], found["import_on_top"]) == (1.0, 0.5)
        ways = [(call["algorithm"], call["threads"]) for call in found["calls"]]
        assert ways == [(a, t) for a in ("gather", "tables") for t in ("one", "several")]
        for call in found["calls"]:
            assert (call["empty"], call["warm"], call["compiled"]) == (9.0, 0.25, 1)
        assert len(seen) == 4 * 4


class TestBounds:
    def test_a_call_and_its_reading_are_timed(self, tmp_path: Path) -> None:
        bounds = script("benchmarks/bounds.py")
        (case,) = select("hot row")
        found = bounds.measure(case.small(), 2)
        assert set(found) == {"call", "table_order", "not_asked", "memory_order"}
        assert all(seconds > 0 for seconds in found.values())

    def test_a_fresh_call_and_the_making_of_its_pages_are_timed(self) -> None:
        bounds = script("benchmarks/bounds.py")
        (case,) = select("rec")
        found = bounds.measure_fresh(case.small(), 2)
        assert set(found) == {"fresh", "pages"}
        assert all(seconds > 0 for seconds in found.values())

    @pytest.mark.parametrize("beside", [-1, 0, 1])
    def test_every_page_is_made(self, beside: int) -> None:
        bounds = script("benchmarks/bounds.py")
        memory = np.zeros(2 * bounds.HUGE_PAGE + beside, np.uint8)
        bounds.make_pages(memory)
        written = {*range(0, memory.size - bounds.HUGE_PAGE + 1, bounds.HUGE_PAGE), memory.size - 1}
        assert set(np.flatnonzero(memory).tolist()) == written

    def test_touching_reads_a_word_of_every_line(self) -> None:
        """Rows of two lines, in any order, by threads that share them unevenly."""
        bounds = script("benchmarks/bounds.py")
        words = np.arange(5 * 16)
        step = 2
        order = np.array([3, 0, 4, 1, 2] + [2] * (bounds.ASKS * step))
        for asks in (bounds.ASKS, 0):
            for threads in (1, 2, 3):
                total = bounds.touch(words.ctypes.data, order, 128, step, asks, threads)
                assert total == words[::8].sum()


class TestTrainingStep:
    def test_every_part_of_every_step_is_timed(self) -> None:
        pytest.importorskip("torch", reason="the step is PyTorch's")
        module = script("benchmarks/training_step.py")
        (case,) = select("lm bfloat16")
        found = module.measure(case.small(), 2)
        assert list(found) == ["torch", "fresh", "reused"]
        for times in found.values():
            assert times["step"] >= max(times["backward"], times["rest"]) > 0

    def test_a_wrong_gradient_is_not_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch = pytest.importorskip("torch", reason="the step is PyTorch's")
        module = script("benchmarks/training_step.py")

        @contextmanager
        def doubled() -> Iterator[None]:
            with torch.autograd.graph.saved_tensors_hooks(lambda x: (x + 1) % 2, lambda x: x):
                yield

        monkeypatch.setattr(module, "contenders", lambda: {"torch": nullcontext, "ill": doubled})
        (case,) = select("rec")
        with pytest.raises(module.CliError, match="ill on rec"):
            module.measure(case.small(), 2)


class TestDocument:
    def test_everything_is_in_it(self, figures: dict[str, Any], tmp_path: Path) -> None:
        tool = script("tools/performance_doc.py")
        sweep = {
            "fixed": {"V": 1, "D": 2},
            "sizes": [1000, 10000],
            "fresh": [1.0, 9.0],
            "out": [1.0, 8.0],
            "fresh_exponent": 0.95,
            "out_exponent": 0.9,
        }
        call = {"dtype": "float32", "algorithm": "gather", "threads": "one"}
        times = {"call": 4e-3, "table_order": 2e-3, "not_asked": 3e-3, "memory_order": 1e-3}
        everything = {
            **figures,
            "touch_bytes": 3 << 30,
            "bounds": {
                "rounds": 2,
                "threads": 2,
                "cases": {"w2v": {**times, "N": 1000}},
                "fresh": {"rec": {"fresh": 8e-3, "pages": 6e-3, "nbytes": 256 * 10**6}},
            },
            "growth": {"rounds": 3, "sweeps": {"N": sweep}},
            "cold_start": {
                "import_numba": 0.5,
                "import_on_top": 0.125,
                "calls": [{**call, "empty": 6.0, "warm": 0.3, "compiled": 2}],
            },
        }
        source, notes = tmp_path / "results.json", tmp_path / "notes.md"
        files.write(source, everything)
        notes.write_text("## What bounds it\n\nPages.\n")
        target = tmp_path / "performance.md"
        assert tool.main([str(source), "--notes", str(notes), "--out", str(target)]) == 0
        text = target.read_text()
        for case in figures["cases"]:
            assert f"| {case['name']} | {case['V']}, {case['D']}, {case['N']} |" in text
        for part in (
            figures["machine"]["cpu"],
            figures["threading_layer"],
            *figures["versions"].values(),
            "`numba-embed bench --repeat 2`",
            "| Memory | 3 GiB touched",
            "numpy add.at",
            "p at most 0.90",
            "| float32, gather, one thread(s) | 6.0 s | 2 | 0.30 s |",
            "0.12 s on top of Numba's 0.50 s",
            "## What bounds it\n\nPages.",
            "| accumulate | w2v |",
            "| w2v | 4 | 2 | 3 | 1 | 4000 | 2000 |",
            "| rec | 256.0 | 8 | 6 | 0.75 |",
            "python benchmarks/bounds.py --json results.json",
            "python benchmarks/growth.py --json results.json",
        ):
            assert part in text, part
        assert str(tmp_path) not in text
        for kind in ("ratios", "growth"):
            picture = tmp_path / f"performance-{kind}.png"
            assert f"({picture.name})" in text
            assert picture.read_bytes().startswith(PNG)
        assert (tmp_path / "performance-start.png").read_bytes().startswith(PNG)  # docs/index.md's

    def test_what_was_not_measured_is_not_mentioned(
        self, figures: dict[str, Any], tmp_path: Path
    ) -> None:
        tool = script("tools/performance_doc.py")
        source, target = tmp_path / "results.json", tmp_path / "performance.md"
        files.write(source, figures)
        assert tool.main([str(source), "--out", str(target)]) == 0
        text = target.read_text()
        assert "growth" not in text
        assert "cold_start" not in text
        assert not (tmp_path / "performance-growth.png").exists()

    def test_missing_figures_are_one_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tool = script("tools/performance_doc.py")
        assert tool.main([str(tmp_path / "results.json")]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
