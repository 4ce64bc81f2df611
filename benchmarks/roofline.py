"""Measure the memory bandwidth and print each case's limit: ``python benchmarks/roofline.py``."""

from __future__ import annotations

import statistics

from numba_embed.bench.cases import CASES
from numba_embed.bench.reference import Reference
from numba_embed.bench.report import milliseconds
from numba_embed.bench.roofline import Bandwidth, Roofline, traffic
from numba_embed.runtime import available_threads

SAMPLES = 11


def main() -> None:
    """Print bandwidths for one thread and for all, and the limit of every case for all."""
    roofline = Roofline()
    for threads in sorted({1, available_threads()}):
        samples = [roofline.measure(threads) for _ in range(SAMPLES)]
        found = Bandwidth(*map(statistics.median, zip(*samples, strict=True)))
        print(
            f"{threads} thread(s): read {found.read / 1e9:.1f} GB/s, "
            f"store {found.store / 1e9:.1f} GB/s"
        )
    for case in CASES:
        operands = case.make()
        reference = Reference(case, operands)
        moved = traffic(case, operands, reference.rows.size, int(reference.counts.sum()))
        print(
            f"{case.name:20} read {moved.read / 1e6:8.1f} MB, write {moved.written / 1e6:8.1f} MB, "
            f"limit {milliseconds(moved.limit(found))} ms"
        )


if __name__ == "__main__":
    main()
