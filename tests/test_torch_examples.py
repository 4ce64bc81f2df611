"""The example of a language model runs as it is, on a small text."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from torch_checks import backend

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_the_language_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "--vocabulary 300 --width 16 --batch 4 --length 16 --steps 6 --round 3".split()
    run("torch_language_model.py", monkeypatch, "--text", __file__, *sizes)
    assert not backend.is_enabled()
    printed = capsys.readouterr().out
    losses = [re.findall(r"loss (\S+)", line) for line in printed.splitlines()]
    assert [len(line) for line in losses if line] == [4, 4]
    for off, on, *others in (map(float, line) for line in losses if line):
        assert others == [on, on]
        assert on == pytest.approx(off, rel=1e-5)
    assert re.search(r"losses, off against on: within \d\.\de[-+]\d\d of each other", printed)
    assert printed.count(": the same bits\n") == 2
    table = re.findall(
        r"^(off|on|on, reused|on, 1 thread) +[\d.]+ ms +[\d.]+ ms +[\d.]+% +[\d.]+x$", printed, re.M
    )
    assert table == ["off", "on", "on, reused", "on, 1 thread"]
