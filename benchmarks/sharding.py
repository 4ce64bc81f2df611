"""Measure what one host of a sharded table does in a step, and work the whole job's traffic out.

    python benchmarks/sharding.py
    torchrun --standalone --nproc-per-node 2 benchmarks/sharding.py

The first prints, for a table of V rows on so many hosts: the bytes that the hosts send, counted
from drawn batches of all of them; the memory of a host; and the time of every local part of a step,
measured here on a share that is ``--reduce`` times smaller and extrapolated in its rows. The second
measures the exchange itself between processes of this machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numba
import numpy as np
import torch
import torch.distributed as dist

from numba_embed.distributed import ShardedEmbedding, allreduce_bytes
from numba_embed.distributed.distinct import ONCE, REPEATED, DistinctRows, distinct_rows
from numba_embed.distributed.sums import merged, outgoing_gradients, table_gradient
from numba_embed.partition import partition_rows
from numba_embed.zipf import zipf_indices

ITEM = 4  # float32
SPREAD = 2**31 - 1
"""A prime: multiplying by it moves neighbours to different hosts (products fit for V < 2**32)."""


def draw(options: argparse.Namespace, host: int, spread: bool) -> Any:
    """Draw a host's look-ups by Zipf's law: hot rows side by side, or spread over the hosts."""
    ids = zipf_indices(1.0, options.lookups, options.rows, host)
    if spread:
        ids = ids * SPREAD % options.rows
    return ids


def host_bytes(options: argparse.Namespace, batches: list[DistinctRows]) -> tuple[Any, Any]:
    """Return the bytes that each host sends in the forward and in the backward pass."""
    sizes = np.stack([batch.sizes for batch in batches])  # from, to, kind
    sizes[np.arange(options.hosts), np.arange(options.hosts)] = 0
    row = options.width * ITEM
    asked = sizes.sum(axis=2)
    forward = asked.sum(axis=1) * 4 + asked.sum(axis=0) * row
    backward = sizes[:, :, ONCE].sum(axis=1) * row + sizes[:, :, REPEATED].sum(axis=1) * 2 * row
    return forward, backward


def milliseconds(call: Callable[[], Any], repeat: int = 5) -> float:
    """Time a call, after one that is not counted."""
    call()
    found = []
    for _ in range(repeat):
        start = perf_counter()
        call()
        found.append(perf_counter() - start)
    return statistics.median(found) * 1e3


def print_traffic(options: argparse.Namespace) -> list[DistinctRows]:
    """Count the bytes of a step for both orders of the vocabulary; return spread batches."""
    starts = partition_rows(options.rows, options.hosts, "balanced").row_starts
    batches: list[DistinctRows] = []
    for spread in (False, True):
        batches = [
            distinct_rows(draw(options, host, spread), starts, -1) for host in range(options.hosts)
        ]
        forward, backward = host_bytes(options, batches)
        once = np.mean([batch.sizes[:, ONCE].sum() for batch in batches])
        more = np.mean([batch.sizes[:, REPEATED].sum() for batch in batches])
        served = np.sum([batch.sizes.sum(axis=1) for batch in batches], axis=0)
        total = forward + backward
        print(
            f"{'hot rows spread' if spread else 'hot rows on host 0'}: distinct rows of a host "
            f"{once + more:.0f}, once {once:.0f}, repeated {more:.0f}; rows served, mean "
            f"{served.mean():.0f}, most {served.max()}; MB sent, mean {total.mean() / 1e6:.1f} "
            f"(forward {forward.mean() / 1e6:.1f}, backward {backward.mean() / 1e6:.1f}), most "
            f"{total.max() / 1e6:.1f}"
        )
    dense = allreduce_bytes(options.rows, options.width, ITEM, options.hosts)
    share = starts[1] * options.width * ITEM
    print(
        f"all-reduce of the dense gradient: {dense / 1e9:.0f} GB sent by each host\n"
        f"memory of a host: {share / 1e9:.2f} GB of rows, as much of gradient, twice as much of "
        f"Adam's moments, {4 * share / 1e9:.1f} GB in all"
    )
    return batches


def print_times(options: argparse.Namespace, batches: list[DistinctRows]) -> None:
    """Measure host 0's parts of a step."""
    ids, batch = draw(options, 0, True), batches[0]
    starts = partition_rows(options.rows, options.hosts, "balanced").row_starts
    generator = torch.Generator().manual_seed(0)
    grad = torch.randn(options.lookups, options.width, generator=generator)
    width, share = options.width, int(starts[1])
    sizes = np.stack([batch.sizes[0] for batch in batches])
    kinds = np.repeat(np.tile([0, 1, 2], options.hosts), sizes.reshape(-1))
    once = torch.randn(int(sizes[:, ONCE].sum()), width, generator=generator)
    sums = torch.randn(int(sizes[:, REPEATED].sum()), width, generator=generator).double()
    place = torch.from_numpy(batch.place)
    got = torch.randn(len(batch.rows), width, generator=generator)
    asked = np.concatenate([batch.rows[batch.owners == 0] for batch in batches])

    times = {
        "distinct rows": milliseconds(lambda: distinct_rows(ids, starts, -1)),
        "rows to positions": milliseconds(lambda: got.index_select(0, place)),
        "sums before sending": milliseconds(lambda: outgoing_gradients(grad, batch)),
    }
    by_share: dict[str, list[float]] = {"rows to send": [], "owner's sums": [], "Adam": []}
    shares = [share // options.reduce, 2 * share // options.reduce]
    for small in shares:
        rows = torch.from_numpy(asked % small)
        weight = torch.nn.Parameter(torch.zeros(small, width))
        weight.grad = torch.ones_like(weight)
        adam = torch.optim.Adam([weight])
        times_here = (
            milliseconds(lambda weight=weight, rows=rows: weight.detach().index_select(0, rows)),
            milliseconds(
                lambda rows=rows, small=small: table_gradient(
                    merged(once, sums, kinds), rows, small, torch.float32
                )
            ),
            milliseconds(adam.step, 3),
        )
        for found, value in zip(by_share.values(), times_here, strict=True):
            found.append(value)
    for name, (first, second) in by_share.items():
        slope = max(0.0, (second - first) / (shares[1] - shares[0]))
        times[name] = second + slope * (share - shares[1])
        print(f"{name}: {first:.1f} ms with {shares[0]} rows, {second:.1f} ms with {shares[1]}")
    for name, value in times.items():
        print(f"{name:20s} {value:9.1f} ms")


def measure_exchange(options: argparse.Namespace) -> None:
    """Time steps of a real sharded table between the processes of a group."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = options.rows // options.hosts // options.reduce * world
    table = ShardedEmbedding(rows, options.width)
    ids = torch.from_numpy(zipf_indices(1.0, options.lookups, rows, rank) * SPREAD % rows)
    grad = torch.ones(options.lookups, options.width)
    forward, backward, sent = [], [], 0
    for _ in range(6):
        dist.barrier()
        start = perf_counter()
        found = table(ids)
        middle = perf_counter()
        found.backward(grad)
        backward.append(perf_counter() - middle)
        forward.append(middle - start)
        assert table.last_traffic is not None
        sent = table.last_traffic.sent
        table.weight.grad = None
    outgoing = torch.ones(2**25 * world, dtype=torch.uint8)
    lines = np.full(world, 2**25)
    exchange = table._sharding.exchange
    seconds = milliseconds(lambda: exchange.rows(outgoing, lines, lines)) / 1e3
    if rank == 0:
        print(
            f"{world} processes, {rows} rows, {options.lookups} look-ups each: forward "
            f"{statistics.median(forward[1:]) * 1e3:.1f} ms, backward "
            f"{statistics.median(backward[1:]) * 1e3:.1f} ms, {sent / 1e6:.1f} MB sent by rank 0; "
            f"all-reduce of the dense gradient: {table.allreduce_bytes / 1e6:.0f} MB\n"
            f"all-to-all alone: {2**25 * (world - 1) / seconds / 1e9:.2f} GB/s out of a process"
        )
    dist.destroy_process_group()


def main() -> None:
    """Measure what the way of starting asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--lookups", type=int, default=65_536, help="of a host, in a step")
    parser.add_argument("--reduce", type=int, default=32, help="how much smaller a share is here")
    options = parser.parse_args()
    if "RANK" in os.environ:
        measure_exchange(options)
        return
    print(
        f"torch {torch.__version__}, numba {numba.__version__}, {torch.get_num_threads()} threads"
    )
    print_times(options, print_traffic(options))


if __name__ == "__main__":
    main()
