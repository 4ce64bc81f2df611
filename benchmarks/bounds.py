"""What bounds a call: reading the gradient's rows in the table's order, and making fresh pages.

A stripped kernel: it touches every cache line of every gradient row in the order in which the
library adds them, asking as often and as far ahead, and adds nothing up by row. Its time, with and
without asking ahead, and that of reading the same rows in the order of memory, stand beside the
time of the whole call. And where the result is large and fresh: a program that only has the system
make its pages, with as many threads, beside the whole call.
``python benchmarks/bounds.py --json results.json`` adds the figures to the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numba
import numpy as np

from numba_embed.bench import files, ours
from numba_embed.bench.cases import CASES, LINE, Case
from numba_embed.cli_support import CliError, check_target, integer
from numba_embed.kernels.asking import ask_row
from numba_embed.kernels.layout import HUGE_PAGE, ask_step
from numba_embed.kernels.memory import pointer_at
from numba_embed.kernels.runs import ASKS
from numba_embed.runtime import available_threads

NAMES = ("lm", "rec", "w2v", "small vocabulary", "hot row", "positions")
FRESH_NAMES = ("lm", "rec", "w2v", "hot row", "huge and sparse")
"""The cases of the one measurement, and of the other."""


@numba.njit(parallel=True, nogil=True)
def touch(address: int, order: Any, row_bytes: int, step: int, asks: int, threads: int) -> int:
    """Read all rows in this order, asking for each ``asks`` times, ``step`` rows apart.

    ``order`` has ``ASKS * step`` more entries than rows.
    """
    totals = np.zeros(threads, np.int64)
    size = order.size - ASKS * step
    for thread in numba.prange(threads):
        total = 0
        for place in range(thread * size // threads, (thread + 1) * size // threads):
            row = order[place] * row_bytes
            for ask in range(1, asks + 1):
                ask_row(address + order[place + ask * step] * row_bytes, row_bytes)
            for line in range(0, row_bytes, LINE):
                total += pointer_at(address + row + line, np.int64(0))[0]
        totals[thread] = total
    return totals.sum()


@numba.njit(parallel=True, nogil=True)
def make_pages(memory: Any) -> None:
    """Have the system make the huge pages of bytes fresh from it, by writing one byte to each."""
    for page in numba.prange(memory.size // HUGE_PAGE):
        memory[page * HUGE_PAGE] = 1
    memory[-1] = 1


def measure(case: Case, rounds: int) -> dict[str, float]:
    """Return seconds: the whole call with ``out=``; rows in the table's order, in memory's."""
    threads = available_threads()
    operands = case.make()
    row_bytes = case.D * operands.grad.itemsize
    step = ask_step(row_bytes)

    def padded(order: Any) -> Any:
        return np.concatenate([order, np.full(ASKS * step, order[-1])])

    by_row = padded(np.argsort(operands.indices, kind="stable"))
    in_memory = padded(np.arange(case.N))
    address = operands.grad.ctypes.data
    runs = {
        "call": ours.prepare("out", case, operands).contender.call,
        "table_order": lambda: touch(address, by_row, row_bytes, step, ASKS, threads),
        "not_asked": lambda: touch(address, by_row, row_bytes, step, 0, threads),
        "memory_order": lambda: touch(address, in_memory, row_bytes, step, ASKS, threads),
    }
    return medians(runs, rounds)


def measure_fresh(case: Case, rounds: int) -> dict[str, float]:
    """Return seconds: the whole call with a fresh result; making the pages of one and no more."""

    def pages() -> Any:
        memory = np.empty(case.out_nbytes, np.uint8)
        make_pages(memory)
        return memory

    operands = case.make()
    return medians(
        {"fresh": ours.prepare("fresh", case, operands).contender.call, "pages": pages}, rounds
    )


def medians(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each run, in turn. Results are dropped beside the clock."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = perf_counter()
            result = run()
            if turn:  # the first one compiles
                seconds[name].append(perf_counter() - start)
            del result
    return {name: median(times) for name, times in seconds.items()}


def _report(case: Case, seconds: Mapping[str, float]) -> None:
    print(f"{case.name}: " + ", ".join(f"{key} {1e3 * seconds[key]:.2f} ms" for key in seconds))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures to this file")
    parser.add_argument("--repeat", type=integer(1), default=9, metavar="N")
    args = parser.parse_args(argv)
    try:
        if args.json is not None:
            check_target(args.json)
        bounds: dict[str, Any] = {"rounds": args.repeat, "threads": available_threads()}
        bounds["cases"], bounds["fresh"] = {}, {}
        for case in CASES:
            if case.name in NAMES:
                found = measure(case, args.repeat)
                bounds["cases"][case.name] = found | {"N": case.N}
                _report(case, found)
            if case.name in FRESH_NAMES:
                found = measure_fresh(case, args.repeat)
                bounds["fresh"][case.name] = found | {"nbytes": case.out_nbytes}
                _report(case, found)
        if args.json is not None:
            files.add(args.json, "bounds", bounds)
    except CliError as error:
        print(f"bounds.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
