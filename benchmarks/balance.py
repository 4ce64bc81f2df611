"""The simulator's claim against reality: predicted and measured balance of the cores.

One thread per core, on the cores that this machine has. Every thread runs the library's own serial
kernels on the rows of its core, as a device core does: it looks at all indices and sums what it
owns.
``python benchmarks/balance.py --markdown table.md`` writes the table of the simulation guide.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import numba_embed as ne
from numba_embed.bench import files
from numba_embed.cli_support import CliError, check_target, import_extra, integer, whole_file
from numba_embed.partition import SPLITS, Split
from numba_embed.zipf import zipf_indices

V, D, N = 100_000, 64, 262_144


class Input(NamedTuple):
    """Look-ups with a name.

    Attributes
    ----------
    name
        What the rows are.
    num_weights
        Rows of the table.
    indices
        int64, (N,).
    """

    name: str
    num_weights: int
    indices: npt.NDArray[np.int64]


def inputs(size: int) -> list[Input]:
    """Return skewed and uniform look-ups, ``size`` each, the same in every process."""
    random = np.random.default_rng(4)
    ranks = zipf_indices(1.1, size, V, 4)
    hot = random.integers(0, V, size)
    hot[random.random(size) < 0.5] = V - 1
    return [
        Input("uniform", V, random.integers(0, V, size)),
        Input("Zipf 1.1, rows in any order", V, random.permutation(V)[ranks]),
        Input("Zipf 1.1, most frequent rows first", V, ranks),
        Input("half of all look-ups in the last row", V, hot),
        Input("3 rows, uniform", 3, random.integers(0, 3, size)),
    ]


def measure(given: Input, split: Split, core_num: int, rounds: int) -> dict[str, Any]:
    """Return predicted shares, and the CPU seconds of every core (medians over rounds)."""
    random = np.random.default_rng(5)
    grad = random.standard_normal((given.indices.size, D), dtype=np.float32)
    simulation = ne.simulate_cores(given.indices, given.num_weights, core_num, D, split=split)
    starts = simulation.partition.row_starts
    out = np.empty((given.num_weights, D), np.float32)

    runs = []
    for core in range(core_num):
        first, end = int(starts[core]), int(starts[core + 1])
        plan = ne.plan_dense_backward(
            grad.shape, grad.dtype, given.indices.shape, np.int64, end - first,
            on_invalid="drop", num_threads=1,
        )  # fmt: skip
        runs.append((plan, given.indices - first, out[first:end], plan.make_workspace()))

    def work(core: int, seconds: npt.NDArray[np.float64], start: threading.Barrier) -> None:
        plan, shifted, part, workspace = runs[core]
        start.wait()
        before = time.thread_time()
        plan.execute(grad, shifted, part, workspace=workspace)
        seconds[core] = time.thread_time() - before

    seconds = np.zeros((rounds + 1, core_num))
    for line in seconds:
        start = threading.Barrier(core_num)
        threads = [
            threading.Thread(target=work, args=(core, line, start)) for core in range(core_num)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = ne.embedding_dense_backward(grad, given.indices, given.num_weights)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)
    return {
        "input": given.name,
        "split": split,
        "core_num": core_num,
        "lookups": simulation.lookups_per_core.tolist(),
        "bytes": [int(n) for n in simulation.bytes_moved_per_core],
        "seconds": np.median(seconds[1:], axis=0).tolist(),  # the first round compiles
    }


def imbalance(shares: Sequence[float]) -> float:
    """Return the busiest core's share over the mean."""
    return max(shares) * len(shares) / sum(shares)


def rows_of(found: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the table's rows as text."""
    return [
        (
            one["input"],
            one["split"],
            *(f"{imbalance(one[key]):.2f}" for key in ("lookups", "bytes", "seconds")),
            " / ".join(f"{1e3 * second:.1f}" for second in one["seconds"]),
        )
        for one in found
    ]


COLUMNS = (
    "Look-ups",
    "Split",
    "Predicted, look-ups",
    "Predicted, bytes",
    "Measured, CPU time",
    "ms per core",
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures to this file")
    parser.add_argument("--markdown", type=Path, metavar="FILE.md", help="write the table there")
    parser.add_argument("--cores", type=integer(1), default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--count", type=integer(1), default=N, metavar="N", help="look-ups")
    parser.add_argument("--repeat", type=integer(1), default=7, metavar="N")
    args = parser.parse_args(argv)
    try:
        for path in filter(None, (args.json, args.markdown)):
            check_target(path)
        import_extra("rich", "cli")
        found = [
            measure(given, split, args.cores, args.repeat)
            for given in inputs(args.count)
            for split in SPLITS
        ]
        show(found, args.cores)
        if args.json is not None:
            files.add(args.json, "balance", {"rounds": args.repeat, "runs": found})
        if args.markdown is not None:
            lines = [COLUMNS, ("---",) * len(COLUMNS), *rows_of(found)]
            with whole_file(args.markdown) as file:
                file.write("".join(f"| {' | '.join(line)} |\n" for line in lines).encode())
    except CliError as error:
        print(f"balance.py: error: {error}", file=sys.stderr)
        return 2
    return 0


def show(found: Sequence[dict[str, Any]], cores: int) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Busiest core over the mean, {cores} cores, one thread each")
    for column in COLUMNS:
        table.add_column(column)
    for row in rows_of(found):
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
