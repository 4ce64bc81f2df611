"""``numba-embed simulate`` end to end: what it prints, what it writes and what it refuses."""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from numba_embed import cli_simulate
from numba_embed.cli_report import Bar, size
from numba_embed.cli_support import CliError
from numba_embed.errors import EmbedIndexError
from numba_embed.simulate import compare_splits, sweep_cores
from numba_embed.zipf import zipf_indices

Run = Callable[..., str]
TABLE = ["--num-weights", "1000", "--embedding-dim", "64"]
DRAWN = ["--zipf", "1.1", "--count", "5000", "--seed", "4"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "100")

    def go(*arguments: str) -> str:
        parser = argparse.ArgumentParser()
        cli_simulate.add_parser(parser.add_subparsers())
        args = parser.parse_args(["simulate", *arguments])
        assert args.run(args) == 0
        return capsys.readouterr().out

    return go


def lines_of(output: str, title: str) -> list[list[str]]:
    """The cells of the table under a title."""
    lines = output.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(title))
    rule = next(place for place in range(start, len(lines)) if "────" in lines[place])
    end = next(place for place in range(rule, len(lines)) if not lines[place].strip())
    return [line.split() for line in lines[rule + 1 : end]]


def test_tables_show_the_simulation(run: Run) -> None:
    output = run(*DRAWN, *TABLE, "--cores", "7", "--split", "both")
    indices = zipf_indices(1.1, 5000, 1000, 4)
    both = compare_splits(indices, 1000, 7, 64)
    for split, title in (
        ("counts_size", "Cores, documented split"),
        ("balanced", "Cores, balanced split"),
    ):
        found = both[split]  # type: ignore[index]
        cells = lines_of(output, title)
        assert [int(row[0]) for row in cells] == list(range(7))
        assert [int(row[1]) for row in cells] == found.rows_per_core.tolist()
        assert [int(row[2]) for row in cells] == found.lookups_per_core.tolist()
        assert [int(row[3]) for row in cells] == found.distinct_rows_per_core.tolist()
        longest = max(cells, key=lambda row: len(row[-1]) if "█" in row[-1] else 0)
        assert int(longest[0]) == found.lookups_per_core.argmax()
    totals = {" ".join(row[:-2]): row[-2:] for row in lines_of(output, "Both splits")}
    assert totals["speed-up bound (sum / max)"] == [
        f"{found.speedup_bound:.2f}" for found in both.values()
    ]
    assert totals["largest share of rows"] == ["148", "143"]
    assert f"Hottest rows (look-ups): 0 ({both['balanced'].hottest_rows[0][1]})" in output
    assert "Atlas training series accepts this." in output
    assert "5000 look-ups in 1000 rows of 64 float32 columns, 7 cores" in output


def test_only_the_busiest_of_many_cores_are_listed(run: Run) -> None:
    cells = lines_of(run(*DRAWN, *TABLE, "--cores", "500"), "Cores, documented split: the 64")
    lookups = [int(row[2]) for row in cells]
    assert len(lookups) == 64
    assert lookups == sorted(lookups, reverse=True)
    found = compare_splits(zipf_indices(1.1, 5000, 1000, 4), 1000, 500, 64)["counts_size"]
    assert lookups == sorted(found.lookups_per_core.tolist(), reverse=True)[:64]


def test_file_sweep_json_and_picture(run: Run, tmp_path: Path) -> None:
    indices = np.random.default_rng(0).integers(0, 30000, (50, 40), dtype=np.int32)
    np.save(tmp_path / "ids.npy", indices)
    arguments = ["--indices", str(tmp_path / "ids.npy"), "--num-weights", "30000", "--cores", "64"]
    arguments += ["--embedding-dim", "4950", "--scale-grad-by-freq", "--padding-idx", "-1"]
    arguments += ["--sweep", "61:67:2", "--product", "ATLAS_TRAINING"]
    figures, picture = tmp_path / "a.json", tmp_path / "a.png"
    output = run(*arguments, "--json", str(figures), "--plot", str(picture))
    assert "at most 4947" in " ".join(output.split())
    assert "The smallest core count that would be accepted is 63." in output
    sweep = lines_of(output, "Bound on the speed-up")
    assert [(row[0], row[3]) for row in sweep] == [
        ("61", "no"),
        ("63", "yes"),
        ("65", "yes"),
        ("67", "no"),
    ]
    content = json.loads(figures.read_text())
    options = {"scale_grad_by_freq": True, "padding_idx": -1}
    both = compare_splits(indices, 30000, 64, 4950, **options)  # type: ignore[arg-type]
    assert content["splits"] == {split: found.to_dict() for split, found in both.items()}
    swept = sweep_cores(indices, 30000, [61, 63, 65, 67], 4950, **options)  # type: ignore[arg-type]
    assert content["sweep"] == swept.to_dict()
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1800, 750)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.png", "ids.npy"]


@pytest.mark.parametrize(
    ("cores", "sweep", "name"),
    [
        ("1", "1", "a.svg"),
        ("64", "1:300:13", "a.png"),
        ("65", None, "a.SVG"),
        ("700", None, "a.pdf"),
    ],
)
def test_pictures_of_any_size(
    run: Run, tmp_path: Path, cores: str, sweep: str | None, name: str
) -> None:
    path = tmp_path / name
    swept = ["--sweep", sweep] if sweep else []
    run(*DRAWN, *TABLE, "--cores", cores, *swept, "--plot", str(path))
    start = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}[path.suffix.lower()]
    assert path.read_bytes().startswith(start)
    if path.suffix.lower() == ".svg":
        assert path.read_text().count("<path") > 20


def test_products_bring_their_core_count(run: Run) -> None:
    assert "columns, 32 cores" in run(*DRAWN, *TABLE)
    assert "bfloat16 columns, 48 cores" in run(
        *DRAWN, *TABLE, "--product", "atlas-a2", "--grad-dtype", "bfloat16"
    )
    with pytest.raises(CliError, match="--cores must be given"):
        run(*DRAWN, *TABLE, "--product", "ascend-950")
    refused = run(*DRAWN, *TABLE, "--product", "atlas-inference", "--cores", "8")
    assert "does not support the operator" in refused
    assert "No core count would be accepted." in refused
    big = ["--zipf", "0", "--count", "9", "--num-weights", "2147483648", "--embedding-dim", "1"]
    output = run(*big, "--product", "atlas-a3")
    assert "Note: 2147483648 num_weights, more than 2147483647" in output


def test_empty_file_and_padding(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.zeros((0, 3), np.int64))
    output = run("--indices", str(tmp_path / "none.npy"), *TABLE)
    assert output.startswith("0 look-ups")
    assert "Hottest" not in output
    np.save(tmp_path / "some.npy", np.array([5, 5, 6]))
    output = run("--indices", str(tmp_path / "some.npy"), *TABLE, "--padding-idx", "5")
    assert "2 of them padding" in output


def test_unusable_files(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for content in (b"", b"hello there, no array", b"\x93NUMPY\x01\x00"):
        path.write_bytes(content)
        with pytest.raises(CliError, match=r"x\.npy is no \.npy file"):
            run("--indices", str(path), *TABLE)
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(CliError, match=r"x\.npy is no \.npy file"):
        run("--indices", str(path), *TABLE)
    np.savez(tmp_path / "y.npz", a=np.zeros(3))
    with pytest.raises(CliError, match=r"y\.npz is no \.npy file"):
        run("--indices", str(tmp_path / "y.npz"), *TABLE)
    with pytest.raises(CliError, match=r"cannot read .*missing"):
        run("--indices", str(tmp_path / "missing.npy"), *TABLE)
    np.save(path, np.array([1, 1000]))
    with pytest.raises(EmbedIndexError, match=r"indices\[1\] = 1000"):
        run("--indices", str(path), *TABLE, "--json", str(tmp_path / "out.json"))
    assert not (tmp_path / "out.json").exists()


def test_targets_are_checked_before_any_work(run: Run, tmp_path: Path) -> None:
    with pytest.raises(CliError, match="must end in"):
        run(*DRAWN, *TABLE, "--plot", str(tmp_path / "a.xyz"))
    for option in ("--json", "--plot"):
        with pytest.raises(CliError, match="does not exist"):
            run(*DRAWN, *TABLE, option, str(tmp_path / "no" / "a.png"))


@pytest.mark.parametrize(("module", "extra"), [("rich.console", "cli"), ("matplotlib", "plot")])
def test_missing_extras_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, module: str, extra: str, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CliError, match=rf"numba-embed\[{extra}\]"):
        run(*DRAWN, *TABLE, "--plot", str(tmp_path / "a.png"))


@pytest.mark.parametrize(
    ("text", "counts"),
    [("1:4", [1, 2, 3, 4]), ("8:20:5", [8, 13, 18]), ("48", [48]), ("9,3,3", [9, 3, 3])],
)
def test_core_counts(text: str, counts: list[int]) -> None:
    assert cli_simulate.core_counts(text) == counts


@pytest.mark.parametrize(
    "text", ["", "a", "1:", "0:3", "5:3", "1:9:0", "1:2:3:4", "4,0", "1:99999999999", "3:2:-1"]
)
def test_core_counts_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected core counts"):
        cli_simulate.core_counts(text)


def test_core_counts_of_a_curve() -> None:
    assert cli_simulate.plotted_cores(8) == list(range(1, 65))
    assert cli_simulate.plotted_cores(200) == list(range(1, 201))
    spread = cli_simulate.plotted_cores(100_000)
    assert len(spread) < 200
    assert spread[0] == 1
    assert spread[-1] == 100_000


class Options:
    max_width = 10

    def __init__(self, ascii_only: bool) -> None:
        self.ascii_only = ascii_only


@pytest.mark.parametrize(
    ("share", "blocks", "ascii_only"),
    [(0, "", ""), (0.5, "█" * 5, "#" * 5), (0.0625, "▋", "#"), (1, "█" * 10, "#" * 10)],
)
def test_bars(share: float, blocks: str, ascii_only: str) -> None:
    assert "".join(Bar(share).__rich_console__(None, Options(False))) == blocks
    assert "".join(Bar(share).__rich_console__(None, Options(True))) == ascii_only


def test_sizes() -> None:
    assert size(0) == "0 B"
    assert size(999) == "999 B"
    assert size(1000) == "0.977 KiB"
    assert size(180192) == "176 KiB"
    assert size(5 * 2**40) == "5 TiB"
    assert size(2**64) == "16 EiB"
