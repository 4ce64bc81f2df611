"""How the command line ends: files whole or untouched, output that nobody takes, Ctrl-C."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from numba_embed.cli_support import CliError, check_target, whole_file

RunPython = Callable[..., subprocess.CompletedProcess[str]]

CLI = "from numba_embed.__main__ import entry; entry()"


class TestWholeFile:
    def test_the_target_appears_only_when_it_is_whole(self, tmp_path: Path) -> None:
        target = tmp_path / "out.bin"
        with whole_file(target) as file:
            file.write(b"half")
            file.flush()
            assert not target.exists()
            file.write(b" and half")
        assert target.read_bytes() == b"half and half"
        assert os.listdir(tmp_path) == ["out.bin"]

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
    def test_an_interrupted_write_leaves_the_old_file(
        self, error: type[BaseException], tmp_path: Path
    ) -> None:
        target = tmp_path / "out.bin"
        target.write_bytes(b"old")

        def write() -> None:
            with whole_file(target) as file:
                file.write(b"new")
                raise error

        with pytest.raises(error):
            write()
        assert target.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["out.bin"]

    def test_an_interrupt_after_the_renaming_is_no_other_error(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        replace = os.replace

        def interrupted(*names: str) -> None:
            replace(*names)
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "a") as file:
            file.write(b"x")
        assert os.listdir(tmp_path) == ["a"]

    def test_a_name_may_be_as_long_as_the_file_system_allows(self, tmp_path: Path) -> None:
        target = tmp_path / ("n" * 250)
        check_target(target)
        with whole_file(target) as file:
            file.write(b"x")
        assert target.read_bytes() == b"x"

    def test_a_disk_that_fills_is_named(self, tmp_path: Path) -> None:
        def write() -> None:
            with whole_file(tmp_path / "a"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.raises(CliError, match=r"cannot write .*a: No space left"):
            write()
        assert os.listdir(tmp_path) == []

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        link = tmp_path / "link.bin"
        link.symlink_to(tmp_path / "real" / "out.bin")
        check_target(link)
        with whole_file(link) as file:
            file.write(b"x")
        assert link.is_symlink()
        assert (tmp_path / "real" / "out.bin").read_bytes() == b"x"

    @pytest.mark.skipif(os.name == "nt", reason="file modes are POSIX's")
    def test_the_mode_is_that_of_an_ordinary_file(self, tmp_path: Path) -> None:
        with whole_file(tmp_path / "a") as file:
            file.write(b"x")
        (tmp_path / "b").write_bytes(b"x")
        assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def start(
    package_dir: Path, *arguments: str, stdout: Any = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start the command line in a process of its own, its output in pipes."""
    # A shell's background job has Ctrl-C switched off, and so have all that it starts.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    return subprocess.Popen(
        [sys.executable, "-c", heed + CLI, *arguments],
        env={**os.environ, "PYTHONPATH": str(package_dir.parent)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_reader_that_leaves_early_is_no_error(package_dir: Path) -> None:
    process = start(package_dir, "info")
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=300)
    assert "Traceback" not in errors


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
def test_output_that_cannot_be_written_is_one_line(package_dir: Path) -> None:
    with open("/dev/full", "w") as full:
        process = start(package_dir, "info", stdout=full)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 2
    assert errors == "numba-embed info: error: No space left on device\n"


def test_output_may_hold_what_its_encoding_cannot_say(
    tmp_path: Path, run_python: RunPython
) -> None:
    figures = tmp_path / "\u1234.json"
    table = ("--zipf", "1", "--count", "9", "--num-weights", "9", "--embedding-dim", "1")
    done = run_python(CLI, "simulate", *table, "--json", str(figures), PYTHONIOENCODING="ascii")
    assert "\\u1234.json" in done.stdout
    assert figures.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to a whole group of processes")
def test_ctrl_c_ends_the_run_and_leaves_no_file(package_dir: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("red green blue white black " * 200)
    before = os.listdir(tmp_path)
    out = str(tmp_path / "vectors.npz")
    process = start(
        package_dir,
        *("demo", "--text", str(text), "--epochs", "1000000", "--dim", "8", "--batch", "64"),
        *("--out", out),
    )
    assert process.stdout is not None
    assert any("loss" in line for line in process.stdout), process.stderr
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert errors == "numba-embed demo: interrupted\n"
    assert os.listdir(tmp_path) == before


INTERRUPTED_AT = """
import atexit, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
moment = sys.argv.pop(1)
class Late:
    def __del__(self):
        raise KeyboardInterrupt
if moment == "a finalizer":
    atexit.register(Late)
if moment == "the end":
    atexit.register(signal.raise_signal, signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from numba_embed.__main__ import entry
entry()
"""


@pytest.mark.skipif(os.name == "nt", reason="a process that a signal ends is POSIX's")
@pytest.mark.parametrize(
    ("moment", "line", "code"),
    [
        ("argparse", "numba-embed: interrupted\n", 130),
        ("numpy", "numba-embed: interrupted\n", 130),
        ("numba", "numba-embed: interrupted\n", 130),
        ("numba_embed.runtime", "numba-embed: interrupted\n", 130),
        ("numba_embed.warmup", "numba-embed info: interrupted\n", 130),
        ("a finalizer", "", 0),
        ("the end", "", -signal.SIGINT),  # a shell reports 130 for this too
    ],
)
def test_ctrl_c_at_any_moment_is_at_most_one_line(
    moment: str, line: str, code: int, run_python: RunPython
) -> None:
    done = run_python(INTERRUPTED_AT, moment, "info", check=False)
    assert (done.returncode, done.stderr) == (code, line)
