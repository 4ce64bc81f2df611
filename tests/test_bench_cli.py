"""``numba-embed bench``: one-line errors, exit codes, files whole or untouched."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from numba_embed.bench import files, machine, ours, plots, roofline, timing
from numba_embed.bench.peers import PEERS
from numba_embed.cli import main
from numba_embed.cli_bench import PEER_NAMES

RunPython = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).resolve().parent.parent
PNG = b"\x89PNG\r\n\x1a\n"
BENCH = "import sys; from numba_embed.cli import main; sys.exit(main(['bench', *sys.argv[1:]]))"


def exit_code(*arguments: str) -> int:
    try:
        return main(["bench", *arguments])
    except SystemExit as stop:
        return int(str(stop.code))


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(roofline, "DEFAULT_BYTES", 1 << 14)


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("--peers", "torch,pandas"), "got 'torch,pandas'"),
            (("--peers", ","), "--peers"),
            (("--repeat", "0"), "at least 1, got '0'"),
            (("--touch", "-1"), "at least 0, got '-1'"),
            (("--touch", "1000000"), "--touch must be at most half of the memory"),
            (("--filter", "nothing like it"), "the cases are: lm, rec, w2v"),
            (("--plot", "ratios.txt"), "--plot must end in .png"),
            (("--plot", "missing/ratios.png"), "does not exist"),
            (("--json", "missing/figures.json"), "does not exist"),
            (("--json", "."), "no regular file"),
        ],
    )
    def test_one_line_and_exit_code_2(
        self,
        arguments: tuple[str, ...],
        expected: str,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert exit_code(*arguments) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("numba-embed bench: error: ")
        assert expected in lines[0]
        assert not os.listdir(tmp_path)

    @pytest.mark.parametrize(
        ("module", "arguments", "extra"),
        [
            ("rich", (), "bench"),
            ("ml_dtypes", ("--filter", "lm bfloat16"), "bench"),
            ("matplotlib", ("--plot", "ratios.png"), "plot"),
        ],
    )
    def test_a_missing_extra_is_named(
        self, module: str, arguments: tuple[str, ...], extra: str, run_python: RunPython
    ) -> None:
        hide = f"import sys; sys.modules[{module!r}] = None; "
        done = run_python(hide + BENCH, *arguments, check=False)
        assert done.returncode == 2
        assert done.stderr.splitlines() == [
            f"numba-embed bench: error: this command needs {module}, which is not installed: "
            f"pip install 'numba-embed[{extra}]'"
        ]

    def test_a_wrong_result_is_one_line_and_exit_code_1(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        right = ours.prepare

        def off(name: str, *arguments: Any) -> ours.Own:
            own = right(name, *arguments)
            return own._replace(checked=lambda: own.checked() + 1)

        monkeypatch.setattr(ours, "prepare", off)
        assert exit_code("--filter", "tiny", "--peers", "none", "--repeat", "1") == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("numba-embed bench: wrong result: tiny, fresh: row ")


class TestRuns:
    def test_the_command_line_knows_every_peer(self) -> None:
        assert tuple(peer.name for peer in PEERS) == PEER_NAMES

    def test_table_figures_and_picture(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        target, picture = tmp_path / "figures.json", tmp_path / "ratios.png"
        arguments = ["--filter", "tiny,one look-up", "--peers", "add_at", "--repeat", "2"]
        assert exit_code(*arguments, "--json", str(target), "--plot", str(picture)) == 0
        shown = capsys.readouterr().out
        assert "one look-up" in shown
        assert "10, 16, 1" in shown
        found = files.read(target)
        assert [case["name"] for case in found["cases"]] == ["tiny", "one look-up"]
        assert found["command"] == (
            "numba-embed bench --filter 'tiny,one look-up' --peers add_at --repeat 2 "
            "--json results.json"
        )
        assert picture.read_bytes().startswith(PNG)
        assert sorted(os.listdir(tmp_path)) == ["figures.json", "ratios.png"]

    def test_memory_is_touched_for_large_results(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given: list[int] = []
        monkeypatch.setattr(timing, "touch_memory", given.append)
        monkeypatch.setattr(machine, "memory_bytes", lambda: 2 << 30)
        names = "tiny,8960 columns"
        arguments = ("--filter", names, "--peers", "none", "--repeat", "2", "--touch", "1")
        assert exit_code(*arguments, "--json") == 0
        assert given == [0, 0, 1 << 30, 1 << 30]  # in each round of each case
        found = json.loads(capsys.readouterr().out)
        assert found["touch_bytes"] == 1 << 30
        assert "--repeat 2 --touch 1 --json" in found["command"]

    def test_json_alone_goes_to_standard_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_code("--filter", "tiny", "--peers", "none", "--repeat", "1", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["peers"] == {}
        assert found["cases"][0]["best_peer"] is None

    def test_a_picture_that_fails_leaves_the_old_one(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        class Figure:
            def savefig(self, file: Any, format: str) -> None:
                assert format == "png"
                file.write(PNG)
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(plots, "plot_ratios", lambda figures: Figure())
        picture = tmp_path / "ratios.png"
        picture.write_bytes(b"old")
        arguments = ("--filter", "tiny", "--peers", "none", "--repeat", "1")
        assert exit_code(*arguments, "--plot", str(picture)) == 2
        assert picture.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["ratios.png"]

    def test_the_module_is_the_command(self, run_python: RunPython) -> None:
        code = "import runpy, sys; sys.argv[0] = 'bench'; runpy.run_module('numba_embed.bench', "
        done = run_python(code + "run_name='__main__')", "--peers", "pandas", check=False)
        assert done.returncode == 2
        assert "pandas" in done.stderr

    def test_the_library_does_not_import_its_benchmarks(self, run_python: RunPython) -> None:
        code = "import sys, numba_embed.cli; numba_embed.cli.build_parser(); print(*sys.modules)"
        loaded = run_python(code).stdout.split()
        assert "numba_embed.cli_bench" in loaded
        assert not [name for name in loaded if name.startswith("numba_embed.bench")]
