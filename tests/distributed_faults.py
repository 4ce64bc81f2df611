"""Checks of what goes wrong: bad arguments, ranks that disagree, hang or die."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import reference
import torch
import torch.distributed as dist
from distributed_checks import batches, check, gradient_of, message, own, whole_gradient, write

from numba_embed.distributed import RankError, ShardedEmbedding


@check
def a_bad_argument_on_one_rank(rank: int, world: int, _: Path) -> None:
    table = ShardedEmbedding(10, 2, dtype=torch.float64)
    last = world - 1
    for bad in (10, -1):
        ids = torch.tensor([[1, 2], [3, bad if rank == last else 4]])
        if rank == last:
            said = message(IndexError, table, ids)
            assert f"indices[1, 1] = {bad} (position 3 in C order) is out of range" in said
        else:
            said = message(RankError, table, ids)
            assert f"rank {last} was given the index {bad} (position 3" in said
    ids = torch.zeros(3, dtype=torch.int16 if rank == 0 else torch.int64)
    said = message(TypeError if rank == 0 else RankError, table, ids)
    assert ("int32 or int64" if rank == 0 else "rank 0 was given an argument") in said
    said = message(
        ValueError if rank == 0 else RankError, ShardedEmbedding, 10, 2, 10 if rank == 0 else 1
    )
    assert ("padding_idx" if rank == 0 else "rank 0 was given an argument") in said
    said = message(
        ValueError if rank == 0 else RankError,
        table.full_table,
        torch.zeros(100) if rank == 0 else None,
    )
    assert ("values must have the" if rank == 0 else "rank 0 was given an argument") in said
    # The ranks are together still.
    parts = batches(world, 1, 10, 2, torch.float64)
    want = whole_gradient(parts, table, False, 1)
    reference.assert_same_bits(gradient_of(table, parts[rank]).numpy(), own(table, want))


@check
def ranks_that_disagree(rank: int, world: int, _: Path) -> None:
    last = world - 1
    odd = rank == last
    for name, usual, other, shown in (
        ("num_embeddings", 10, 12, ("10", "12")),
        ("embedding_dim", 2, 3, ("2", "3")),
        ("padding_idx", None, 1, ("None", "1")),
        ("dtype", torch.float32, torch.bfloat16, ("torch.float32", "torch.bfloat16")),
        ("split", "balanced", "counts_size", ("'balanced'", "'counts_size'")),
        ("scale_grad_by_freq", False, True, ("False", "True")),
        ("average", True, False, ("True", "False")),
    ):
        options = {"num_embeddings": 10, "embedding_dim": 2, name: other if odd else usual}
        said = message(RankError, ShardedEmbedding, **options)
        want = f"{name} must be the same on all ranks, got {shown[0]} on rank 0 and {shown[1]}"
        assert said == f"{want} on rank {last}", said
    table = ShardedEmbedding(10, 2)
    ids = torch.tensor([1, 2])
    if odd:
        table.double()
    said = message(RankError, table, ids)
    assert f"torch.float32 on rank 0 and torch.float64 on rank {last}" in said
    table.float()
    with torch.set_grad_enabled(not odd):
        said = message(RankError, table, ids)
    assert f"got True on rank 0 and False on rank {last}" in said
    rows = table(ids)
    loss = rows.sum()
    said = message(RankError, table, ids) if odd else message(RankError, loss.backward)
    assert "call must be the same on all ranks, got backward (" in said
    assert "on rank 0 and forward (" in said
    dst = 0 if odd else None
    said = message(RankError, ShardedEmbedding(10, 2).full_table, dst=dst)
    assert said == f"dst must be the same on all ranks, got None on rank 0 and 0 on rank {last}"


@check
def a_hung_rank(rank: int, world: int, _: Path) -> None:
    group = dist.new_group(timeout=timedelta(seconds=3))
    table = ShardedEmbedding(10, 2, process_group=group)
    dist.barrier()
    if rank != world - 1:
        said = message(RankError, table, torch.tensor([rank]))
        assert "did not join within the process group's timeout" in said
        assert f"rank {rank} of {world}" in said
    dist.barrier()


@check
def a_dead_rank(rank: int, world: int, folder: Path) -> None:
    """Comes last: one rank is gone afterwards."""
    table = ShardedEmbedding(10, 2)
    rows = table(torch.tensor([rank]))
    if rank == world - 1:
        write(rank, folder)
        os._exit(0)
    said = message(RankError, rows.sum().backward)
    assert "another rank has ended" in said
