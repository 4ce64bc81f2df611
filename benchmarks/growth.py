"""Time over N, over V and over D, each swept over three decades.

``python benchmarks/growth.py --json results.json --plot growth.png`` adds the figures to the file.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numba_embed.bench import files, ours
from numba_embed.bench.cases import Case
from numba_embed.bench.timing import round_robin
from numba_embed.cli_support import CliError, check_target, import_extra, integer, whole_file

FIXED = {
    "N": Case("growth over N", V=100_000, D=64, N=1),
    "V": Case("growth over V", V=1, D=64, N=65536),
    "D": Case("growth over D", V=10_000, D=1, N=16384),
}
"""What stays the same while a letter grows. The rows are uniform."""

SMALLEST = {"N": 1000, "V": 1000, "D": 8}
DECADES = 3


def sizes(smallest: int, per_decade: int, decades: int = DECADES) -> list[int]:
    """Return sizes at equal ratios, both ends included."""
    steps = per_decade * decades
    return [round(smallest * 10 ** (step / per_decade)) for step in range(steps + 1)]


def sweep(letter: str, values: Sequence[int], rounds: int) -> dict[str, Any]:
    """Time the library at each value of one letter. Times in seconds."""
    fixed = {name: getattr(FIXED[letter], name) for name in "VDN" if name != letter}
    found: dict[str, Any] = {"fixed": fixed, "sizes": list(values), "fresh": [], "out": []}
    for value in values:
        case = replace(FIXED[letter], **{letter: value})
        operands = case.make()
        contenders = {}
        for name in ("fresh", "out"):
            own = ours.prepare(name, case, operands)
            own.checked()  # compiles
            own.contender.calibrate()
            contenders[name] = own.contender
        round_robin(list(contenders.values()), rounds)
        for name, contender in contenders.items():
            found[name].append(contender.median)
    return found | {name + "_exponent": steepest(values, found[name]) for name in ("fresh", "out")}


def steepest(values: Sequence[int], times: Sequence[float]) -> float:
    """Return the largest exponent p of time ~ size ** p over any decade of a sweep.

    1 is linear. Over shorter steps the noise of two times would show more than their growth.
    """
    pairs = [
        (low, high)
        for low in range(len(values))
        for high in range(low + 1, len(values))
        if values[high] >= 9.9 * values[low]
    ] or [(0, len(values) - 1)]
    return max(
        math.log(times[high] / times[low]) / math.log(values[high] / values[low])
        for low, high in pairs
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw them there")
    parser.add_argument("--repeat", type=integer(1), default=7, metavar="N")
    parser.add_argument("--per-decade", type=integer(1), default=4, metavar="N")
    parser.add_argument("--decades", type=integer(1, 3), default=DECADES, metavar="N")
    args = parser.parse_args(argv)
    try:
        for path in filter(None, (args.json, args.plot)):
            check_target(path)
        if args.plot is not None:
            import_extra("matplotlib", "plot")
        growth: dict[str, Any] = {"rounds": args.repeat, "sweeps": {}}
        for letter, smallest in SMALLEST.items():
            values = sizes(smallest, args.per_decade, args.decades)
            found = sweep(letter, values, args.repeat)
            growth["sweeps"][letter] = found
            print(f"{letter}: time ~ {letter} ** p, p at most {found['out_exponent']:.2f} (out=)")
            for value, fresh, out in zip(values, found["fresh"], found["out"], strict=True):
                print(f"  {letter} = {value:<8} fresh {fresh * 1e3:9.3f} ms, {out * 1e3:9.3f} out=")
        if args.json is not None:
            files.add(args.json, "growth", growth)
        if args.plot is not None:
            from numba_embed.bench.plots import plot_growth

            with whole_file(args.plot) as file:
                plot_growth(growth).savefig(file, format=args.plot.suffix[1:] or "png")
    except CliError as error:
        print(f"growth.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
