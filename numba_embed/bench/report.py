"""The table of the figures, as text: for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numba_embed.bench.ours import TITLES

Figures = Mapping[str, Any]

MARKS = {"absent": "absent", "unsupported": "-", "wrong": "WRONG", "failed": "failed"}
"""What a cell shows in place of a time."""


def milliseconds(seconds: float) -> str:
    """Write a time in milliseconds, with three digits."""
    value = seconds * 1e3
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def shown_contenders(figures: Figures) -> list[str]:
    """Return the library's own contenders that were timed in any case, in their order."""
    return [
        name
        for name in TITLES
        if any(case["contenders"][name]["status"] == "ok" for case in figures["cases"])
    ]


def table(figures: Figures) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of the table of all cases.

    Times are in milliseconds. A gain is the time of the best peer over ours; the last column is the
    limit over the time with ``out=``.
    """
    own = shown_contenders(figures)
    peers = list(figures["peers"])
    titles = ["case", "V, D, N", *(TITLES[name] for name in own), *peers]
    titles += ["gain", "gain out=", "limit", "of limit"]
    rows = []
    for case in figures["cases"]:
        rows.append(
            [
                case["name"],
                f"{case['V']}, {case['D']}, {case['N']}",
                *(_cell(case["contenders"][name]) for name in (*own, *peers)),
                _times(case["ratio_fresh"]),
                _times(case["ratio_out"]),
                milliseconds(case["limit"]),
                _number(case["fraction"]),
            ]
        )
    return titles, rows


def remarks(figures: Figures) -> list[str]:
    """Return a line for every peer that is absent, and every result that is wrong or failed."""
    lines: dict[str, None] = {}
    for case in figures["cases"]:
        for name, title in figures["peers"].items():
            state = case["contenders"][name]
            if state["status"] == "absent":
                lines[f"{title}: absent ({state['reason']})"] = None
            elif state["status"] in ("wrong", "failed"):
                lines[f"{title} on {case['name']}: {state['status']} ({state['reason']})"] = None
    return list(lines)


def headline(figures: Figures) -> str:
    """Return one line: machine, threading layer, threads, and bandwidths of the first case."""
    threads = figures["threads"]
    line = (
        f"{figures['machine']['cpu']}, {threads} thread(s), "
        f"threading layer {figures['threading_layer']}"
    )
    if figures["cases"]:
        read, store = bandwidths(figures, threads)
        line += f", read {read / 1e9:.1f} GB/s, store {store / 1e9:.1f} GB/s"
    return line


def bandwidths(figures: Figures, threads: int) -> tuple[float, float]:
    """Return the medians over the cases of read and store bandwidth, in bytes per second."""
    found: Sequence[Figures] = [case["bandwidth"][str(threads)] for case in figures["cases"]]
    reads, stores = (sorted(one[kind] for one in found) for kind in ("read", "store"))
    return reads[len(reads) // 2], stores[len(stores) // 2]


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown: the first column is text, the others are numbers."""
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def print_table(console: Any, figures: Figures) -> None:
    """Print the table with `rich`."""
    from rich.table import Table

    titles, rows = table(figures)
    shown = Table(title="Time per call in ms", caption=headline(figures), show_lines=False)
    for place, title in enumerate(titles):
        shown.add_column(title, justify="left" if place < 2 else "right", no_wrap=place == 0)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    for line in remarks(figures):
        console.print(line)


def _cell(state: Figures) -> str:
    if state["status"] == "ok":
        return milliseconds(state["median"])
    return MARKS[state["status"]]


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
