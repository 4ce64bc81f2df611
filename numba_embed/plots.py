"""Pictures of a simulation. Needs matplotlib (the extra ``plot``), which is imported here only.

No window is opened and no global state of matplotlib is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from numba_embed.partition import Split
from numba_embed.simulation import CoreSimulation, CoreSweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue and orange of the Okabe-Ito palette: told apart by every kind of colour vision.
_COLOURS: dict[Split, str] = {"counts_size": "#0072B2", "balanced": "#E69F00"}
_LABELS: dict[Split, str] = {"counts_size": "documented split", "balanced": "balanced split"}
_LINES: dict[Split, dict[str, Any]] = {
    # Where both bounds agree the wide line still shows at both sides of the narrow one.
    "counts_size": {"linewidth": 3.4, "solid_capstyle": "round"},
    "balanced": {"linewidth": 1.4},
}
_QUIET = "#6b6b6b"

_MOST_BARS = 64
"""Cores up to which every core gets a bar of its own."""


def plot_simulation(simulations: Mapping[Split, CoreSimulation], sweep: CoreSweep) -> Figure:
    """Draw the look-ups of every core, and the speed-up bound over core counts.

    Parameters
    ----------
    simulations : mapping
        The splits to compare, as `numba_embed.simulate.compare_splits` returns them.
    sweep : CoreSweep
        The bounds to draw, as `numba_embed.simulate.sweep_cores` returns them.

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

    figure = Figure(figsize=(12, 5), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_lookups(left, simulations)
    _draw_bounds(right, sweep)
    first = next(iter(simulations.values()))
    figure.suptitle(
        f"{_short(first.num_lookups)} look-ups in a table of {_short(first.num_weights)} rows and "
        f"{first.embedding_dim} columns",
        fontsize=13,
    )
    return figure


def _draw_lookups(axes: Axes, simulations: Mapping[Split, CoreSimulation]) -> None:
    first = next(iter(simulations.values()))
    cores = np.arange(first.core_num)
    width = 0.8 / len(simulations)
    for place, (split, found) in enumerate(simulations.items()):
        label = f"{_LABELS[split]}: at most {found.speedup_bound:.1f} times faster than one core"
        colour = _COLOURS[split]
        if first.core_num <= _MOST_BARS:
            at = cores - 0.4 + width * (place + 0.5)
            axes.bar(at, found.lookups_per_core, width, color=colour, label=label)
        else:
            edges = np.arange(first.core_num + 1) - 0.5
            width = 3.0 if place == 0 else 1.2
            axes.stairs(found.lookups_per_core, edges, color=colour, label=label, linewidth=width)
    mean = float(first.lookups_per_core.mean())
    axes.axhline(mean, color=_QUIET, linestyle="--", linewidth=1, label="mean: perfect balance")
    axes.set_title(f"Look-ups per core, {first.core_num} cores")
    axes.set_xlabel("core")
    axes.set_ylabel("look-ups")
    axes.set_xlim(-0.6, first.core_num - 0.4)
    axes.margins(y=0.05)
    axes.set_ylim(0, None)
    _tidy(axes)
    # Above the bars, whichever core is the busy one.
    axes.set_ylim(0, axes.get_ylim()[1] * 1.3)


def _draw_bounds(axes: Axes, sweep: CoreSweep) -> None:
    order = np.argsort(sweep.core_nums)
    counts = np.array(sweep.core_nums)[order]
    accepted = sweep.accepted()[order]
    axes.plot(counts, counts, color=_QUIET, linestyle="--", linewidth=1, label="perfect balance")
    top = 1.0
    for split in sweep.simulations:
        bounds = sweep.speedup_bounds(split)[order]
        top = max(top, float(bounds.max()))
        axes.plot(
            counts,
            bounds,
            color=_COLOURS[split],
            label=_LABELS[split],
            marker="o" if counts.size == 1 else None,
            **_LINES[split],
        )
    product = next(iter(sweep.simulations.values()))[0].product.value
    if not accepted.all():
        axes.plot(
            counts[~accepted],
            np.zeros(int((~accepted).sum())),
            linestyle="none",
            marker="x",
            markersize=5,
            color="#D55E00",
            clip_on=False,
            zorder=5,
            label=f"refused by {product}",
        )
    axes.set_title("Bound on the speed-up over one core")
    axes.set_xlabel("cores")
    axes.set_ylabel("all look-ups / those of the busiest core")
    # The dashed line may leave the picture where the bounds stay far below it.
    axes.set_ylim(0, max(1.3 * top, 2.0))
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    if axes.get_ylim()[1] >= 1000:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper left", fontsize=9, framealpha=0.9, edgecolor="none")


def _short(number: int) -> str:
    """Write a number with three digits and a unit: 100000000 is 100 million."""
    for size, unit in ((10**12, " trillion"), (10**9, " billion"), (10**6, " million")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:,}".replace(",", " ") if number >= 10000 else str(number)
