"""Tables of a simulation on the terminal. Needs rich (the extra ``cli``), imported here lazily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numba_embed.partition import Split
from numba_embed.simulation import CoreSimulation, CoreSweep

MOST_LISTED = 64
"""Cores up to which a table lists them all; beyond that the busiest ones."""

_TITLES: dict[Split, str] = {"counts_size": "documented split", "balanced": "balanced split"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Bar:
    """A bar as wide as its column allows, filled in proportion. Rich draws it."""

    share: float

    def __rich_console__(self, console: Any, options: Any) -> Iterator[str]:
        """Yield the bar's characters: blocks of an eighth, or ``#`` where only ASCII shows."""
        if options.ascii_only:
            yield "#" * round(self.share * options.max_width)
            return
        whole, part = divmod(round(self.share * options.max_width * 8), 8)
        yield "█" * whole + (_EIGHTHS[part] if part else "")


def print_simulation(
    console: Any, both: Mapping[Split, CoreSimulation], listed: Sequence[Split]
) -> None:
    """Print the cores of the listed splits, the totals of both, and the product's verdict."""
    first = both["counts_size"]
    console.print(
        f"{first.num_lookups} look-ups in {first.num_weights} rows of {first.embedding_dim} "
        f"{first.grad_dtype} columns, {first.core_num} cores"
        + (f"; {first.padding_lookups} of them padding" if first.padding_lookups else "")
    )
    for split in listed:
        console.print(_cores_table(both[split]))
    console.print(_totals_table(both))
    if first.hottest_rows:
        hot = ", ".join(f"{row} ({count})" for row, count in first.hottest_rows)
        console.print(f"Hottest rows (look-ups): {hot}")
    _print_verdict(console, first)


def print_sweep(console: Any, sweep: CoreSweep) -> None:
    """Print the bound of both splits for every core count, with a bar for the documented one."""
    table = _table("Bound on the speed-up over one core")
    for name in ("cores", "documented", "balanced"):
        table.add_column(name, justify="right")
    table.add_column("accepted")
    table.add_column("documented split", ratio=1, style="cyan")
    bounds = {split: sweep.speedup_bounds(split) for split in sweep.simulations}
    top = max(float(several.max()) for several in bounds.values())
    rows = zip(
        sweep.core_nums, bounds["counts_size"], bounds["balanced"], sweep.accepted(), strict=True
    )
    for cores, documented, balanced, accepted in rows:
        table.add_row(
            str(cores),
            f"{documented:.2f}",
            f"{balanced:.2f}",
            "yes" if accepted else "[red]no[/red]",
            Bar(documented / top),
        )
    console.print(table)


def _table(title: str) -> Any:
    from rich import box
    from rich.table import Table

    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, expand=True)


def _cores_table(found: CoreSimulation) -> Any:
    busiest_first = np.argsort(-found.lookups_per_core, kind="stable")
    shown = np.arange(found.core_num)
    title = f"Cores, {_TITLES[found.split]}"
    if found.core_num > MOST_LISTED:
        shown = busiest_first[:MOST_LISTED]
        title += f": the {MOST_LISTED} busiest of {found.core_num}"
    table = _table(title)
    for name in ("core", "rows", "look-ups", "distinct", "moved", "buffer"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("look-ups", ratio=1, style="cyan", min_width=8)
    rows, moved, buffer = (
        found.rows_per_core,
        found.bytes_moved_per_core,
        found.buffer_bytes_per_core,
    )
    top = max(int(found.lookups_per_core.max()), 1)
    for core in shown.tolist():
        lookups = int(found.lookups_per_core[core])
        table.add_row(
            str(core),
            str(rows[core]),
            str(lookups),
            str(found.distinct_rows_per_core[core]),
            size(int(moved[core])),
            _share_of_buffer(int(buffer[core]), found.buffer_limit),
            Bar(lookups / top),
            style="bold" if core == busiest_first[0] else None,
        )
    return table


def _totals_table(both: Mapping[Split, CoreSimulation]) -> Any:
    table = _table("Both splits")
    table.add_column("")
    for split in both:
        table.add_column(_TITLES[split], justify="right")
    several = tuple(both.values())
    table.add_row("largest share of rows", *(str(found.partition.counts_size) for found in several))
    table.add_row(
        "look-ups of the busiest core", *(str(found.lookups_per_core.max()) for found in several)
    )
    table.add_row("imbalance (max / mean)", *(f"{found.imbalance:.3f}" for found in several))
    table.add_row(
        "speed-up bound (sum / max)", *(f"{found.speedup_bound:.2f}" for found in several)
    )
    table.add_row("idle share", *(f"{found.idle_share:.1%}" for found in several))
    table.add_row(
        "largest buffer",
        *(
            _share_of_buffer(int(found.buffer_bytes_per_core.max()), found.buffer_limit)
            for found in several
        ),
    )
    return table


def _print_verdict(console: Any, found: CoreSimulation) -> None:
    if found.accepted:
        console.print(f"[green]{found.product.value} accepts this.[/green]")
    for reason in found.refusals:
        console.print(f"[red]Refused:[/red] {reason}")
    if not found.accepted:
        smallest = found.smallest_core_num
        console.print(
            "No core count would be accepted."
            if smallest is None
            else f"The smallest core count that would be accepted is {smallest}."
        )
    for note in found.advisories:
        console.print(f"[yellow]Note:[/yellow] {note}")


def _share_of_buffer(used: int, limit: int | None) -> str:
    return size(used) if limit is None else f"{used / limit:.1%}"


def size(count: int) -> str:
    """Write a number of bytes with three digits and a binary unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} EiB"
