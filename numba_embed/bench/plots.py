"""Pictures of the figures. Needs matplotlib (the extra ``plot``), which is imported here only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Blue, orange and green of the Okabe-Ito palette: told apart by every kind of colour vision.
_COLOURS = {"fresh": "#0072B2", "out": "#E69F00", "pooled": "#009E73"}
_LABELS = {"fresh": "fresh output", "out": "out=, reused plan", "pooled": "output pool"}
_QUIET = "#6b6b6b"


def plot_ratios(figures: Mapping[str, Any], width: float = 7) -> Figure:
    """Draw for every case how many times faster than its best peer the library is.

    Parameters
    ----------
    figures : mapping
        What `numba_embed.bench.compare.run` returned.
    width : float, default 7
        Of the picture, in inches.

    Returns
    -------
    matplotlib.figure.Figure
        Not attached to any window; its ``savefig`` writes it.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    cases = [case for case in figures["cases"] if case["best_peer"] is not None]
    shown = [name for name in _COLOURS if any(case[f"ratio_{name}"] is not None for case in cases)]
    figure = Figure(figsize=(width, 1.6 + 0.45 * max(1, len(cases))), dpi=150, layout="constrained")
    axes = figure.subplots()
    height = 0.8 / max(1, len(shown))
    for place, name in enumerate(shown):
        found = [
            (row - 0.4 + height * (place + 0.5), case[f"ratio_{name}"])
            for row, case in enumerate(cases)
            if case[f"ratio_{name}"] is not None
        ]
        at, ratios = zip(*found, strict=True)
        # Bars start at 1, "as fast as the best peer": to the right is faster, to the left slower.
        axes.barh(
            at,
            [ratio - 1 for ratio in ratios],
            height,
            left=1,
            color=_COLOURS[name],
            label=_LABELS[name],
        )
        for y, ratio in found:
            axes.annotate(
                f"{ratio:.3g}",
                (ratio, y),
                xytext=(3 if ratio >= 1 else -3, 0),
                textcoords="offset points",
                ha="left" if ratio >= 1 else "right",
                va="center",
                fontsize=7,
                color=_QUIET,
            )
    axes.axvline(1, color=_QUIET, linewidth=1)
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis)
    axes.margins(x=0.12)
    axes.set_yticks(range(len(cases)), [f"{c['name']}  (best: {c['best_peer']})" for c in cases])
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.set_xlabel("time of the best peer / time of numba-embed")
    axes.set_title(f"{figures['machine']['cpu']}, {figures['threads']} thread(s)", fontsize=11)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    if shown:
        # Below the axes: within them it would hide bars.
        figure.legend(loc="outside lower center", ncols=len(shown), fontsize=8, edgecolor="none")
    return figure


def plot_growth(growth: Mapping[str, Any]) -> Figure:
    """Draw time over N, V and D.

    Parameters
    ----------
    growth : mapping
        What `benchmarks/growth.py` measured: ``sweeps`` by letter, each with ``sizes`` and the
        times ``fresh`` and ``out`` in seconds.

    Returns
    -------
    matplotlib.figure.Figure
        Not attached to any window; its ``savefig`` writes it.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(growth["sweeps"]), squeeze=False)[0]
    for axes, (letter, sweep) in zip(panels, growth["sweeps"].items(), strict=True):
        sizes = sweep["sizes"]
        for name in ("fresh", "out"):
            times = [seconds * 1e3 for seconds in sweep[name]]
            axes.plot(sizes, times, color=_COLOURS[name], label=_LABELS[name], marker="o", ms=4)
        last = max(sweep["fresh"][-1], sweep["out"][-1]) * 1e3
        line = [last * size / sizes[-1] for size in sizes]
        axes.plot(sizes, line, color=_QUIET, linestyle="--", linewidth=1, label="linear")
        axes.set_xscale("log")
        axes.set_yscale("log")
        _plain_ticks(axes.xaxis, (1,))
        _plain_ticks(axes.yaxis)
        fixed = ", ".join(f"{name} = {value}" for name, value in sweep["fixed"].items())
        axes.set_title(f"over {letter}; {fixed}", fontsize=10)
        axes.set_xlabel(letter)
        axes.grid(color="#e3e3e3", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("ms")
    panels[0].legend(fontsize=8, framealpha=0.9, edgecolor="none")
    return figure


def _plain_ticks(axis: Axis, steps: tuple[int, ...] = (1, 2, 5)) -> None:
    """Write 0.5, 1, 2, 5, 10, 1k along a logarithmic axis, not powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(10, subs=steps))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_formatter(NullFormatter())


def _plain(value: float, place: object) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
