"""The command line: help, one-line errors, exit codes, Ctrl-C, files whole or untouched."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import numba_embed
from numba_embed.cli import COMMANDS, build_parser, main
from numba_embed.cli_support import CliError, import_extra

RunPython = Callable[..., subprocess.CompletedProcess[str]]

CLI = "from numba_embed.__main__ import entry; entry()"


def exit_code(*arguments: str) -> int:
    """Run the command line in this process; return its exit code, whichever way it ends."""
    try:
        return main(arguments)
    except SystemExit as stop:
        return int(str(stop.code))


def error_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail with exit code 2; return its one line on stderr."""
    assert exit_code(*arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("numba-embed")
    assert ": error: " in lines[0]
    return lines[0]


@pytest.fixture
def text(tmp_path: Path) -> str:
    """Give the name of a short text that can be trained on."""
    path = tmp_path / "text.txt"
    path.write_text("red green blue white black " * 200)
    return str(path)


def commands() -> list[str]:
    """Return the names of all commands."""
    found = re.search(r"\{(.*?)\}|invalid choice", build_parser().format_help())
    assert found is None, "the metavar replaces the list of choices"
    return re.findall(r"^    (\w+) ", build_parser().format_help(), flags=re.MULTILINE)


class TestHelp:
    def test_all_commands_are_listed(self) -> None:
        assert len(commands()) == len(COMMANDS)
        assert {"demo", "info", "warmup"} <= set(commands())

    @pytest.mark.parametrize("name", COMMANDS)
    def test_help_describes_every_option(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = name.removeprefix("cli_")
        assert exit_code(command, "--help") == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"usage: numba-embed {command}")
        assert max(map(len, shown.splitlines())) <= 100
        assert "None" not in shown
        assert importlib.import_module(f"numba_embed.{name}").run

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_code("--version") == 0
        assert capsys.readouterr().out == f"numba-embed {numba_embed.__version__}\n"


class TestOneLineErrors:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ((), "COMMAND"),
            (("dmeo",), "dmeo"),
            (("demo", "--dim"), "--dim"),
            (("demo", "--dim", "0"), "at least 1, got '0'"),
            (("demo", "--dim", "2.5"), "at least 1, got '2.5'"),
            (("demo", "--epochs", "-1"), "--epochs"),
            (("demo", "--vocab", "1"), "at least 2"),
            (("demo", "--batch", "0"), "--batch"),
            (("demo", "--lr", "nan"), "above 0, got 'nan'"),
            (("demo", "--lr", "-1"), "--lr"),
            (("demo", "--lr", "inf"), "--lr"),
            (("demo", "--seed", "-3"), "--seed"),
            (("demo", "--threads", "x"), "--threads"),
            (("demo", "--text"), "--text"),
            (("demo", "extra"), "extra"),
            (("demo", "--dim", "9" * 5000), "got '99999"),
            (("demo", "--text", ""), "name of a file"),
            (("demo", "--out", ""), "name of a file"),
            (("simulate", "--indices", ""), "name of a file"),
            (("bench", "--json", ""), "name of a file"),
            (("info", "--colour"), "--colour"),
        ],
    )
    def test_bad_arguments(
        self, arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert expected in error_line(capsys, *arguments)

    def test_missing_text(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        missing = str(tmp_path / "nowhere.txt")
        assert missing in error_line(capsys, "demo", "--text", missing)

    @pytest.mark.parametrize("content", [b"", b"one", b"\0\1\2 two words", b"\xff\xfe\xfd"])
    def test_text_that_holds_none(
        self, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "text.txt"
        path.write_bytes(content)
        assert "two different words" in error_line(capsys, "demo", "--text", str(path))

    def test_text_shorter_than_a_batch(self, text: str, capsys: pytest.CaptureFixture[str]) -> None:
        line = error_line(capsys, "demo", "--text", text, "--batch", "50000", "--dim", "4")
        assert "50000" in line

    def test_words_outside_the_vocabulary(
        self, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "'violet'" in error_line(capsys, "demo", "--text", text, "--words", "violet")

    def test_more_threads_than_the_pool_has(
        self, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        line = error_line(capsys, "demo", "--text", text, "--threads", "100000")
        assert "num_threads" in line
        assert "100000" in line

    def test_vectors_larger_than_memory(
        self, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for dim in (10**15, 10**30):
            line = error_line(capsys, "demo", "--text", text, "--dim", str(dim))
            assert "memory" in line

    @pytest.mark.parametrize(
        ("target", "expected"),
        [("missing/out.npz", "does not exist"), (".", "no regular file")],
    )
    def test_targets_that_cannot_be_written(
        self,
        target: str,
        expected: str,
        text: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        out = str(tmp_path / target)
        assert expected in error_line(capsys, "demo", "--text", text, "--out", out)

    @pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder without new files")
    def test_a_folder_that_refuses_files_is_found_before_any_work(
        self, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # Whatever its permissions say: root may write anywhere, and yet not there.
        assert "cannot write /proc/x" in error_line(
            capsys, "demo", "--text", text, "--out", "/proc/x"
        )
        assert not capsys.readouterr().out

    def test_a_missing_extra_is_named(self, run_python: RunPython) -> None:
        hide = "import sys; sys.modules['rich'] = None; "
        for command in ("demo", "warmup"):
            done = run_python(hide + CLI, command, check=False)
            assert done.returncode == 2
            assert done.stderr.splitlines() == [
                f"numba-embed {command}: error: this command needs rich, which is not installed: "
                "pip install 'numba-embed[cli]'"
            ]

    def test_import_extra_returns_the_module(self) -> None:
        assert import_extra("json", "cli") is json
        with pytest.raises(CliError, match=r"needs no_such_module.*\[plot\]"):
            import_extra("no_such_module.inner", "plot")


class TestInfo:
    def test_info_works_without_any_extra(self, run_python: RunPython) -> None:
        done = run_python("import sys; sys.modules['rich'] = None; " + CLI, "info", "--json")
        facts = json.loads(done.stdout)
        assert facts["numba_embed"] == numba_embed.__version__
        assert facts["numpy"] == np.__version__
        assert facts["thread pool"] >= 1

    def test_info_shows_the_state_of_the_cache(self, run_python: RunPython, tmp_path: Path) -> None:
        folder = tmp_path / "cache"
        folder.mkdir()
        shown = run_python(CLI, "info", NUMBA_CACHE_DIR=str(folder)).stdout
        assert re.search(rf"^cache directory +{re.escape(str(folder))}", shown, re.MULTILINE)
        assert re.search(r"^cache +cold$", shown, re.MULTILINE)

    def test_info_reports_the_cpu_that_is_asked_for(self, run_python: RunPython) -> None:
        shown = run_python(
            CLI, "info", "--json", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="+avx2,-fma"
        ).stdout
        facts = json.loads(shown)
        assert facts["CPU"] == "generic"
        assert facts["CPU features"] == "avx2"
