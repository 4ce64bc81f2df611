"""Write docs/performance.md and its pictures from the figures of a benchmark run.

``python tools/performance_doc.py results.json [--notes NOTES.md] [--out docs/performance.md]``: the
figures come from ``numba-embed bench --json``, to which ``benchmarks/growth.py --json`` and
``benchmarks/cold_start.py --json`` add theirs. The notes, in Markdown, say what bounds what.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numba_embed.bench import files
from numba_embed.bench.ours import TITLES
from numba_embed.bench.report import (
    bandwidths,
    markdown,
    milliseconds,
    remarks,
    shown_contenders,
    table,
)
from numba_embed.cli_support import CliError, check_target, import_extra, whole_file
from numba_embed.plan import ZEROED_BYTES

Figures = Mapping[str, Any]

OWN = {
    "fresh": "one call of `embedding_dense_backward`, which makes its output",
    "out": "`plan.execute` with a reused plan, workspace and `out=`",
    "pooled": "as fresh, with the output's memory from `output_pool`",
    "one_thread": "as out=, with `num_threads=1`",
}

START_CASES = 9
"""Of the picture on the documentation's start page: the first ones of the table, good and bad."""


def document(figures: Figures, pictures: Mapping[str, str], notes: str | None) -> str:
    """Return the text of the document; ``pictures`` are file names by kind."""
    return "\n\n".join(_parts(figures, pictures, notes)) + "\n"


def _parts(figures: Figures, pictures: Mapping[str, str], notes: str | None) -> Iterator[str]:
    yield "# Performance"
    yield "<!-- Written by tools/performance_doc.py from the figures of a run: change it there. -->"
    yield (
        "Every workload below was timed in turn with every peer, in one process and with the same "
        "number of threads: one sample of each contender per round, and the median of the rounds "
        "counts. Each result was compared with float64 sums before anything was timed. Operands "
        "were converted to the peer's own types outside of the timed part, but for gradients whose "
        "layout a peer cannot take: those it copies in every call."
    )
    yield _machine(figures)
    yield "## Time per call"
    titles, rows = table(figures)
    yield markdown(titles, rows)
    if "ratios" in pictures:
        yield f"![Time of the best peer over ours, per workload]({pictures['ratios']})"
    yield "\n".join(_legend(figures))
    yield from _memory(figures)
    if "bounds" in figures:
        yield from _bounds(figures["bounds"])
        yield from _fresh(figures["bounds"])
    yield from _neighbours(figures)
    if "growth" in figures:
        yield from _growth(figures["growth"], pictures)
    if "cold_start" in figures:
        yield from _cold_start(figures["cold_start"])
    if notes is not None:
        yield notes.strip()
    yield "## Do it again"
    commands = [figures["command"]]
    if "growth" in figures:
        commands.append("python benchmarks/growth.py --json results.json")
    if "cold_start" in figures:
        commands.append("python benchmarks/cold_start.py --json results.json")
    if "bounds" in figures:
        commands.append("python benchmarks/bounds.py --json results.json")
    ending = "" if notes is None else " --notes benchmarks/NOTES.md"
    commands.append(f"python tools/performance_doc.py results.json{ending}")
    install = "pip install -e '.[bench]'  # and the peers: torch, jax, tensorflow-cpu"
    yield "\n".join(
        [
            "<!-- not executed: a measurement of up to half an hour -->",
            "```sh",
            install,
            *commands,
            "```",
        ]
    )


def _machine(figures: Figures) -> str:
    machine = figures["machine"]
    caches = ", ".join(f"{level} {size}" for level, size in machine["caches"].items())
    facts = {
        "Date": figures["date"],
        "CPU": f"{machine['cpu']}, {machine['cores']} cores",
        "Compiled for": f"{machine['compiled_for']} ({machine['features']})",
        "Caches": caches or "not known",
        "Platform": machine["platform"],
        "Threads": f"{figures['threads']}, threading layer {figures['threading_layer']}",
        "Versions": ", ".join(f"{name} {one}" for name, one in figures["versions"].items()),
        "Samples": f"{figures['rounds']} of each contender; shorter calls many times per sample",
        "Command": f"`{figures['command']}`",
    }
    if figures.get("touch_bytes"):
        facts["Memory"] = (
            f"{figures['touch_bytes'] >> 30} GiB touched and freed before each round of a case "
            f"with a result of {ZEROED_BYTES >> 20} MiB or more"
        )
    return markdown_pairs(facts)


def markdown_pairs(facts: Mapping[str, Any]) -> str:
    lines = ["| | |", "|---|---|", *(f"| {name} | {fact} |" for name, fact in facts.items())]
    return "\n".join(lines)


def _legend(figures: Figures) -> Iterator[str]:
    yield (
        "Times in milliseconds; float32 and int64 indices unless the name says otherwise. A gain "
        "is the time of the best peer over ours. Peers make a fresh output at every call, but for "
        "*accumulate*, where they add in place if they can (`-`: they cannot). The *training loop* "
        "drops each gradient within the timed part, before the next is made.\n"
    )
    for name in shown_contenders(figures):
        yield f"- **{TITLES[name]}**: {OWN[name]}"
    for name, title in figures["peers"].items():
        yield f"- **{name}**: {title}"
    for line in remarks(figures):
        yield f"- {line}"


def _memory(figures: Figures) -> Iterator[str]:
    yield "## Against the memory"
    lines = []
    for threads in sorted({1, figures["threads"]}):
        read, store = bandwidths(figures, threads)
        lines.append(
            f"{threads} thread(s): read {read / 1e9:.1f} GB/s, "
            f"streaming store {store / 1e9:.1f} GB/s"
        )
    yield (
        "The limit of a case is (gradient + index bytes) / read bandwidth + output bytes / store "
        "bandwidth, measured before and after the case's own rounds with as many threads. Medians "
        f"of the run, {'; '.join(lines)}. What fits the caches can be faster than its limit."
    )
    titles = ["case", "algorithm", "MB", "limit", "out=", "of limit"]
    titles += ["one thread", "of its limit", "one / all threads"]
    rows = []
    for case in figures["cases"]:
        states = case["contenders"]
        rows.append(
            [
                case["name"],
                f"{case['algorithm']}, {case['plan_threads']} thread(s)",
                f"{sum(case['bytes'].values()) / 1e6:.1f}",
                milliseconds(case["limit"]),
                milliseconds(states["out"]["median"]),
                f"{case['fraction']:.2f}",
                milliseconds(states["one_thread"]["median"]),
                f"{case['one_thread_fraction']:.2f}",
                f"{case['thread_speedup']:.2f}x",
            ]
        )
    yield markdown(titles, rows)


def _bounds(bounds: Figures) -> Iterator[str]:
    yield "## What bounds the sums"
    yield (
        "The limit above reads the gradient from one end to the other. The sums read it row by row "
        "in the order of the table. A stripped kernel touches every cache line of every gradient "
        "row in that order, asks as often and as far ahead, and adds nothing: a yardstick for what "
        "the reading alone takes. Calls that read two rows at once (*positions*) or in memory's "
        "order (*small vocabulary*) can be faster than it "
        f"({bounds['threads']} thread(s), milliseconds)."
    )
    columns = {"call": "call, out=", "table_order": "touching rows in the table's order"}
    if all("not_asked" in case for case in bounds["cases"].values()):
        columns["not_asked"] = "without asking ahead"
    columns["memory_order"] = "in memory's order"
    titles = ["case", *columns.values()]
    titles += ["ns per row, call", "touching"]
    rows = [
        [
            name,
            *(milliseconds(case[key]) for key in columns),
            f"{1e9 * case['call'] / case['N']:.0f}",
            f"{1e9 * case['table_order'] / case['N']:.0f}",
        ]
        for name, case in bounds["cases"].items()
    ]
    yield markdown(titles, rows)


def _fresh(bounds: Figures) -> Iterator[str]:
    if not bounds.get("fresh"):
        return
    yield "## What bounds fresh results"
    yield (
        "Memory fresh from the system comes zeroed, page by page, when it is first touched, for "
        "every contender. Beside the whole call stands a program that has the system make the huge "
        "pages of such a result and does nothing else, in turn and with as many threads "
        f"({bounds['threads']}; milliseconds)."
    )
    rows = [
        [
            name,
            f"{case['nbytes'] / 1e6:.1f}",
            milliseconds(case["fresh"]),
            milliseconds(case["pages"]),
            f"{case['pages'] / case['fresh']:.2f}",
        ]
        for name, case in bounds["fresh"].items()
    ]
    titles = ["case", "result, MB", "call, fresh", "making its pages", "share of the call"]
    yield markdown(titles, rows)


def _neighbours(figures: Figures) -> Iterator[str]:
    compared = [case for case in figures["cases"] if "versus" in case]
    if not compared:
        return
    yield "## Beside a neighbour"
    yield "The time with `out=` over that of a like case: as it is, and per byte that must move."
    rows = [
        [
            case["name"],
            case["versus"]["name"],
            f"{case['versus']['time']:.2f}x",
            f"{case['versus']['per_byte']:.2f}x",
        ]
        for case in compared
    ]
    yield markdown(["case", "neighbour", "time", "time per byte"], rows)


def _growth(growth: Figures, pictures: Mapping[str, str]) -> Iterator[str]:
    yield "## Growth"
    lines = []
    for letter, sweep in growth["sweeps"].items():
        lines.append(
            f"- over {letter}, from {sweep['sizes'][0]} to {sweep['sizes'][-1]}: time ~ "
            f"{letter}^p with p at most {sweep['out_exponent']:.2f} over any decade "
            f"(`out=`; fresh {sweep['fresh_exponent']:.2f}); 1 is linear"
        )
    yield "\n".join(lines)
    if "growth" in pictures:
        yield f"![Time over N, V and D]({pictures['growth']})"


def _cold_start(cold: Figures) -> Iterator[str]:
    yield "## First call"
    yield (
        f"Importing the package takes {cold['import_on_top']:.2f} s on top of Numba's "
        f"{cold['import_numba']:.2f} s. The first call of a process compiles its kernels, or loads "
        "them from the cache on disk:"
    )
    rows = [
        [
            f"{call['dtype']}, {call['algorithm']}, {call['threads']} thread(s)",
            f"{call['empty']:.1f} s",
            str(call["compiled"]),
            f"{call['warm']:.2f} s",
        ]
        for call in cold["calls"]
    ]
    yield markdown(["first call", "empty cache", "kernels compiled", "warm cache"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", type=Path, metavar="results.json")
    parser.add_argument("--notes", type=Path, metavar="NOTES.md", help="Markdown to include")
    parser.add_argument("--out", type=Path, default=Path("docs/performance.md"), metavar="FILE")
    args = parser.parse_args(argv)
    try:
        figures = files.read(args.figures)
        import_extra("matplotlib", "plot")
        check_target(args.out)
        notes = None if args.notes is None else args.notes.read_text(encoding="utf-8")
        _write(args.out, figures, notes)
    except (CliError, OSError) as error:
        print(f"performance_doc.py: error: {error}", file=sys.stderr)
        return 2
    print(f"written: {args.out}")
    return 0


def _write(out: Path, figures: Figures, notes: str | None) -> None:
    from numba_embed.bench.plots import plot_growth, plot_ratios

    first = {**figures, "cases": figures["cases"][:START_CASES]}
    drawn = {"start": plot_ratios(first, width=6), "ratios": plot_ratios(figures)}
    if "growth" in figures:
        drawn["growth"] = plot_growth(figures["growth"])
    pictures = {kind: f"{out.stem}-{kind}.png" for kind in drawn}
    for kind, figure in drawn.items():
        with whole_file(out.parent / pictures[kind]) as file:
            figure.savefig(file, format="png")
    with whole_file(out) as file:
        file.write(document(figures, pictures, notes).encode())


if __name__ == "__main__":
    sys.exit(main())
