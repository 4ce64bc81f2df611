"""The first call of a process, with an empty and with a warm cache of compiled kernels.

``python benchmarks/cold_start.py --json results.json`` adds the figures to the file. Every
measurement is a process of its own; one with an empty cache has a cache directory of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numba_embed.bench import files
from numba_embed.cli_support import CliError, check_target, integer
from numba_embed.runtime import pool_size
from numba_embed.warmup import GATHER, TABLES

SHAPES = {"gather": GATHER, "tables": TABLES}
"""(N, V, D) of a small call that takes each algorithm."""

CHILD = """
import json, sys
from time import perf_counter
n, v, d, threads, dtype = *map(int, sys.argv[1:5]), sys.argv[5]
import numpy as np
start = perf_counter()
import numba
numba_done = perf_counter()
import numba_embed as ne
ne.embedding_dense_backward  # its modules are imported when it is asked for
imported = perf_counter()
if dtype == "bfloat16":
    import ml_dtypes
    dtype = ml_dtypes.bfloat16
grad, indices = np.zeros((n, d), dtype), np.zeros(n, np.int64)
times = []
for call in range(2):
    begin = perf_counter()
    ne.embedding_dense_backward(grad, indices, v, num_threads=threads)
    times.append(perf_counter() - begin)
print(json.dumps({
    "import_numba": numba_done - start, "import_on_top": imported - numba_done,
    "first_call": times[0], "second_call": times[1],
}))
"""


def measure(cache: Path, algorithm: str, threads: int, dtype: str) -> dict[str, float]:
    """Return the times of one fresh process, in seconds."""
    arguments = [*map(str, (*SHAPES[algorithm], threads)), dtype]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    )
    times: dict[str, float] = json.loads(done.stdout)
    return times


def run(dtypes: Sequence[str], warm_rounds: int) -> dict[str, Any]:
    """Measure every first call: algorithms, one thread and several, empty and warm cache."""
    calls: list[dict[str, Any]] = []
    imports: list[dict[str, float]] = []
    for dtype in dtypes:
        for algorithm in SHAPES:
            for threads in (1, 2) if pool_size() > 1 else (1,):
                with tempfile.TemporaryDirectory() as folder:
                    cache = Path(folder)
                    empty = measure(cache, algorithm, threads, dtype)
                    compiled = len(list(cache.rglob("*.nbc")))
                    warm = [measure(cache, algorithm, threads, dtype) for _ in range(warm_rounds)]
                imports += warm
                call = {
                    "dtype": dtype,
                    "algorithm": algorithm,
                    "threads": "one" if threads == 1 else "several",
                    "empty": empty["first_call"],
                    "warm": statistics.median(one["first_call"] for one in warm),
                    "compiled": compiled,
                }
                calls.append(call)
                print(
                    f"{dtype}, {algorithm}, {call['threads']} thread(s): empty cache "
                    f"{call['empty']:.2f} s ({compiled} kernels), warm {call['warm']:.3f} s"
                )
    names = ("import_numba", "import_on_top")
    found = {name: statistics.median(one[name] for one in imports) for name in names}
    print(f"import numba {found['import_numba']:.3f} s, and {found['import_on_top']:.3f} s on top")
    return {**found, "calls": calls}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures to this file")
    parser.add_argument("--dtypes", nargs="+", default=["float32"], metavar="DTYPE")
    parser.add_argument("--repeat", type=integer(1), default=5, metavar="N", help="warm starts")
    args = parser.parse_args(argv)
    try:
        if args.json is not None:
            check_target(args.json)
        found = run(args.dtypes, args.repeat)
        if args.json is not None:
            files.add(args.json, "cold_start", found)
    except CliError as error:
        print(f"cold_start.py: error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"cold_start.py: error: {error.stderr.strip()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
