"""The adapter for thinc trains the same model as thinc's own back end, where thinc is installed."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("thinc", reason="thinc is not installed")

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "thinc_adapter.py"


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_it_adds_as_numpy_does(dtype: str) -> None:
    ops: Any = runpy.run_path(str(EXAMPLE))["NumbaEmbedOps"]()
    random = np.random.default_rng(0)
    ids = random.integers(0, 9, 200).astype(dtype)
    values = random.integers(-9, 10, (200, 4)).astype(np.float32)
    table = random.integers(-9, 10, (12, 4)).astype(np.float32)
    want = table.copy()
    np.add.at(want, ids, values)
    ops.scatter_add(table, ids, values)
    np.testing.assert_array_equal(table, want)
    line = np.zeros(9, np.float32)
    ops.scatter_add(line, ids, values[:, 0])
    np.testing.assert_array_equal(line, np.bincount(ids, values[:, 0], 9))


def test_three_ways_train_one_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "--vocabulary 400 --width 8 --batch 256".split()
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, *sizes])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    rows = re.findall(
        r"^(numpy\.add\.at|thinc's BLAS loop|numba_embed) +(\S+) +(\S+)", printed, re.M
    )
    assert len(rows) == 3
    for _, first, last in rows:
        assert float(first) == pytest.approx(float(rows[0][1]), abs=1e-5)
        assert float(last) == pytest.approx(float(rows[0][2]), abs=1e-4)
