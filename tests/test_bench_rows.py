"""The benchmark of row gradients: contenders are checked, then timed, and the figures are kept."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from test_bench_scripts import script

from numba_embed.bench import files, timing

NUMPY = "numpy unique + add.at"
TORCH = "torch sparse backward + coalesce"
JAX = "jax unique + segment_sum"


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Give the script with two small workloads, in a hurry."""
    monkeypatch.setattr(timing, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-6)
    module = script("benchmarks/rows.py")
    small = module.Workload("small", 1000, 4, 300, "zipf")
    large = module.Workload("large", 10**10, 4, 300, "uniform")
    monkeypatch.setattr(module, "WORKLOADS", (small, large))
    return module


def test_figures_of_every_contender(
    rows: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich", reason="the table needs rich")
    rows.CONTENDERS.pop(JAX)  # its import takes longer than all of these tests
    target = tmp_path / "figures.json"
    assert rows.main(["--json", str(target), "--repeat", "2"]) == 0
    figures = files.read(target)["rows"]
    assert figures["rounds"] == 2
    assert [one["name"] for one in figures["workloads"]] == ["small", "large"]
    for one in figures["workloads"]:
        assert set(one["seconds"]) | set(one["missing"]) == set(rows.CONTENDERS)
        peers = [time for name, time in one["seconds"].items() if name != rows.OURS]
        assert one["ratio"] == pytest.approx(min(peers) / one["seconds"][rows.OURS])
        assert one["distinct"] <= 300
    out = capsys.readouterr().out
    assert "small" in out
    assert "at least 3 is meant" in out


def test_a_wrong_result_is_not_timed(
    rows: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, as_is = rows.CONTENDERS[NUMPY]

    def other_rows(found: Any, work: Any) -> Any:
        listed, sums = as_is(found, work)
        return listed + 1, sums

    monkeypatch.setattr(rows, "CONTENDERS", {NUMPY: (rows.CONTENDERS[NUMPY][0], other_rows)})
    assert rows.main(["--only", "small"]) == 2
    assert "other rows" in capsys.readouterr().err
    assert rows.main(["--only", "nothing"]) == 2
    want = np.array([3]), np.array([[1.0]])
    nearly = np.array([3]), np.array([[1.0 + 2.0**-20]], np.float32)
    assert rows.problem(nearly, want, exact=True) is not None
    assert rows.problem(nearly, want, exact=False) is None
    assert rows.problem((want[0], nearly[1] + 1), want, exact=False) == "other sums"


def test_jax_is_asked_where_it_can_index(rows: ModuleType) -> None:
    prepare, _ = rows.CONTENDERS[JAX]
    work = rows.WORKLOADS[1]
    with pytest.raises(rows.UnsupportedError):
        prepare(work, *work.make())
