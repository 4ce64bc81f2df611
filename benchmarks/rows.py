"""Row gradients beside what else gives the distinct rows and their sums.

``python benchmarks/rows.py --json results.json`` adds the figures to the file. Every contender's
rows and sums are compared with exact ones before anything is timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from numba_embed import embedding_row_gradient
from numba_embed.bench import files, machine
from numba_embed.bench.timing import Contender, round_robin
from numba_embed.cli_support import CliError, check_target, import_extra, integer
from numba_embed.runtime import available_threads
from numba_embed.zipf import zipf_indices

Array = npt.NDArray[Any]
Pair = tuple[Array, Array]

BAR = 3.0
"""How many times faster than the fastest peer a row gradient is meant to be."""


class Workload(NamedTuple):
    """Float32 gradients of N look-ups, (N, D), in a table of V rows."""

    name: str
    V: int
    D: int
    N: int
    rows: str

    def make(self) -> tuple[Array, npt.NDArray[np.int64]]:
        """Draw the gradient and the indices."""
        random = np.random.default_rng([self.V % 2**32, self.N, self.D])
        grad = random.standard_normal((self.N, self.D), dtype=np.float32)
        if self.rows == "zipf":
            ranks = zipf_indices(1.1, self.N, self.V, 0)
            return grad, ranks * 2_654_435_761 % self.V  # a prime: frequent rows lie anywhere
        return grad, random.integers(0, self.V, self.N)


WORKLOADS = (
    Workload("uniform", 10_000_000, 64, 65_536, "uniform"),
    Workload("zipf", 10_000_000, 64, 65_536, "zipf"),
    Workload("zipf, V = 10^6", 1_000_000, 64, 65_536, "zipf"),
    Workload("narrow", 10_000_000, 16, 262_144, "zipf"),
    Workload("wide", 1_000_000, 512, 16_384, "zipf"),
    Workload("V = 10^10", 10_000_000_000, 64, 100_000, "uniform"),
    Workload("small batch", 1_000_000, 64, 4096, "zipf"),
)


class UnsupportedError(Exception):
    """The peer is not there, or cannot run the workload."""


def _ours(work: Workload, grad: Array, ids: Array) -> Callable[[], Pair]:
    def call() -> Pair:
        found = embedding_row_gradient(grad, ids, work.V)
        return found.rows, found.values

    return call


def _numpy(work: Workload, grad: Array, ids: Array) -> Callable[[], Pair]:
    def call() -> Pair:
        rows, inverse = np.unique(ids, return_inverse=True)
        sums = np.zeros((rows.size, work.D), grad.dtype)
        np.add.at(sums, inverse, grad)
        return rows, sums

    return call


def _torch(work: Workload, grad: Array, ids: Array) -> Callable[[], Any]:
    try:
        import torch
    except ModuleNotFoundError:
        raise UnsupportedError("torch is not installed") from None
    torch.set_num_threads(available_threads())
    operands = torch.from_numpy(grad), torch.from_numpy(ids)
    backward = torch.ops.aten.embedding_sparse_backward
    return lambda: backward(*operands, work.V, -1, False).coalesce()


def _jax(work: Workload, grad: Array, ids: Array) -> Callable[[], Any]:
    try:
        import jax
    except ModuleNotFoundError:
        raise UnsupportedError("jax is not installed") from None
    if work.V > 2**31 - 1:
        raise UnsupportedError("indices are int32")
    jnp = jax.numpy
    operands = jnp.asarray(grad), jnp.asarray(ids.astype(np.int32))

    def row_gradient(grad: Any, ids: Any) -> Any:
        # A compiled function needs a size: N rows, those too many being V and zero.
        rows, inverse = jnp.unique(ids, return_inverse=True, size=work.N, fill_value=work.V)
        return rows, jax.ops.segment_sum(grad, inverse, num_segments=work.N)

    compiled = jax.jit(row_gradient)
    return lambda: jax.block_until_ready(compiled(*operands))


def _pair_of_tensors(result: Any, work: Workload) -> Pair:
    return result.indices()[0].numpy(), result.values().numpy()


def _without_padding(result: Any, work: Workload) -> Pair:
    rows, sums = np.asarray(result[0]), np.asarray(result[1])
    return rows[rows < work.V], sums[rows < work.V]


def _as_is(result: Any, work: Workload) -> Pair:
    rows, sums = result
    return rows, sums


OURS = "numba-embed"
CONTENDERS: dict[str, tuple[Callable[..., Callable[[], Any]], Callable[[Any, Workload], Pair]]] = {
    OURS: (_ours, _as_is),
    "torch sparse backward + coalesce": (_torch, _pair_of_tensors),
    "numpy unique + add.at": (_numpy, _as_is),
    "jax unique + segment_sum": (_jax, _without_padding),
}


def problem(found: Pair, want: Pair, exact: bool) -> str | None:
    """Say what is wrong with a result, if anything; ours is correctly rounded."""
    if not np.array_equal(found[0], want[0]):
        return "other rows"
    rounded = want[1].astype(np.float32)
    if exact:
        return None if np.array_equal(found[1], rounded) else "sums are not correctly rounded"
    close = np.allclose(found[1], rounded, rtol=1e-4, atol=1e-3)
    return None if close else "other sums"


def measure(work: Workload, rounds: int) -> dict[str, Any]:
    """Check and time all contenders on a workload. Times in seconds."""
    grad, ids = work.make()
    rows, inverse = np.unique(ids, return_inverse=True)
    sums = np.zeros((rows.size, work.D))
    np.add.at(sums, inverse, grad)
    found: dict[str, Any] = {**work._asdict(), "distinct": rows.size, "seconds": {}, "missing": {}}
    timed: dict[str, Contender] = {}
    for name, (prepare, to_pair) in CONTENDERS.items():
        try:
            call = prepare(work, grad, ids)
        except UnsupportedError as error:
            found["missing"][name] = str(error)
            continue
        wrong = problem(to_pair(call(), work), (rows, sums), name == OURS)
        if wrong is not None:
            raise CliError(f"{name} on {work.name}: {wrong}")
        timed[name] = Contender(call)
        timed[name].calibrate()
    round_robin(list(timed.values()), rounds)
    found["seconds"] = {name: contender.median for name, contender in timed.items()}
    peers = {name: time for name, time in found["seconds"].items() if name != OURS}
    found["best"] = min(peers, key=peers.__getitem__)
    found["ratio"] = peers[found["best"]] / found["seconds"][OURS]
    return found


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    rich_table = import_extra("rich.table", "cli").Table
    table = rich_table(title="Row gradients, float32: median milliseconds")
    table.add_column("workload")
    for name in ("V, D, N", "distinct", *CONTENDERS, "best / ours"):
        table.add_column(name, justify="right")
    for found in results:
        times = [
            f"{found['seconds'][name] * 1e3:.3f}" if name in found["seconds"] else "-"
            for name in CONTENDERS
        ]
        sizes = f"{found['V']}, {found['D']}, {found['N']}"
        table.add_row(found["name"], sizes, str(found["distinct"]), *times, f"{found['ratio']:.2f}")
    import_extra("rich.console", "cli").Console(width=150).print(table)
    lowest = min(found["ratio"] for found in results)
    print(f"smallest ratio {lowest:.2f}, at least {BAR:.0f} is meant")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures to this file")
    parser.add_argument("--repeat", type=integer(1), default=9, metavar="N")
    parser.add_argument("--only", metavar="NAME", help="workloads whose name contains this")
    args = parser.parse_args(argv)
    try:
        if args.json is not None:
            check_target(args.json)
        chosen = [work for work in WORKLOADS if args.only is None or args.only in work.name]
        if not chosen:
            raise CliError(f"no workload is called like {args.only!r}")
        results = [measure(work, args.repeat) for work in chosen]
        show(results)
        if args.json is not None:
            figures = {"rounds": args.repeat, **machine.describe(), "workloads": results}
            files.add(args.json, "rows", figures)
    except CliError as error:
        print(f"rows.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
