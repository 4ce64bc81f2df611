"""What every rank of a real process group runs: ``torchrun distributed_jobs.py FOLDER CHECK ...``.

Without names all checks run. Those here are of values; those of `distributed_faults` come after
them, and end with broken connections. What came of each is written to ``FOLDER/rank.json``, for
`test_distributed` to read.
"""

from __future__ import annotations

import copy
import os
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import reference
import torch
import torch.distributed as dist
from distributed_checks import (
    CHECKS,
    PATIENCE,
    RESULTS,
    Batch,
    as_numpy,
    batches,
    check,
    gradient_of,
    message,
    own,
    whole_gradient,
    write,
)

from numba_embed.distributed import RankError, ShardedEmbedding, allreduce_bytes, reshard
from numba_embed.distributed.agreement import MAX_SETTINGS, MAX_SIZES
from numba_embed.distributed.shards import BLOCK_ROWS, fill_normal

HEADER_BYTES = 8 * (6 + MAX_SETTINGS + MAX_SIZES)


@check
def integers_give_the_bits_of_one_process(rank: int, world: int, _: Path) -> None:
    seed = 0
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for num_weights, width in ((1, 3), (world, 1), (3, 2), (1000, 5)):
            for scale, average in ((False, False), (True, False), (False, True), (True, True)):
                seed += 1
                split = "balanced" if seed % 3 else "counts_size"
                padding = (None, 0, -1)[seed % 3]
                table = ShardedEmbedding(
                    num_weights,
                    width,
                    padding,
                    scale_grad_by_freq=scale,
                    average=average,
                    split=split,
                    dtype=dtype,
                )
                parts = batches(world, seed, num_weights, width, dtype)
                got = gradient_of(table, parts[rank])
                want = whole_gradient(parts, table, scale, world if average else 1)
                assert got.shape == table.weight.shape
                reference.assert_same_bits(as_numpy(got), own(table, want))


@check
def other_gradients_agree_to_one_ulp(rank: int, world: int, _: Path) -> None:
    for seed, name in enumerate(("float16", "bfloat16", "float32")):
        dtype = getattr(torch, name)
        table = ShardedEmbedding(50, 4, scale_grad_by_freq=bool(seed % 2), dtype=dtype)
        parts = batches(world, seed, 50, 4, dtype, whole=False)
        got = as_numpy(gradient_of(table, parts[rank])).astype(np.float64)
        want = own(table, whole_gradient(parts, table, bool(seed % 2), 1)).astype(np.float64)
        for one, other in zip(got.ravel().tolist(), want.ravel().tolist(), strict=True):
            assert abs(one - other) <= reference.ulp(other, reference.FLOATS[name])


@check
def sums_are_wide(rank: int, world: int, _: Path) -> None:
    """Neither a rank's own sum nor that of the ranks is rounded on the way."""
    for dtype in (torch.float16, torch.bfloat16):  # whose own sums stop at 2048, and at 256
        table = ShardedEmbedding(1, 1, dtype=dtype)
        share = len(range(rank, 4096, world))
        ids = torch.zeros(share, dtype=torch.int32)
        got = gradient_of(table, Batch(ids, torch.ones(share, 1, dtype=dtype)))
        assert got.tolist() == [[4096.0]] * len(table.rows)
    table = ShardedEmbedding(1, 1, dtype=torch.float32)
    value = {0: [1e8, 1.0], 1: [-1e8, 0.0]}.get(rank, [])
    if world == 1:
        value = [1e8, 1.0, -1e8]
    grad = torch.tensor(value, dtype=torch.float32).reshape(-1, 1)
    got = gradient_of(table, Batch(torch.zeros(len(value), dtype=torch.int64), grad))
    assert got.tolist() == [[1.0]] * len(table.rows)


@check
def timing_changes_nothing(rank: int, world: int, _: Path) -> None:
    table = ShardedEmbedding(20, 3, dtype=torch.float64)
    part = batches(world, 2, 20, 3, torch.float64, whole=False)[rank]
    found = set()
    for late in range(world + 1):
        rows = table(part.ids)
        time.sleep(0.1 * (rank == late))
        table.weight.grad = None
        rows.backward(part.grad)
        found.add(table.weight.grad.numpy().tobytes())
    assert len(found) == 1


@check
def traffic_is_by_distinct_rows(rank: int, world: int, _: Path) -> None:
    for scale in (False, True):
        table = ShardedEmbedding(300, 6, 5, scale_grad_by_freq=scale, dtype=torch.bfloat16)
        parts = batches(world, 3, 300, 6, torch.bfloat16)
        gradient_of(table, parts[rank])
        expected = {"forward": [0, 0], "backward": [0, 0]}
        owners = [range(r * 300 // world, (r + 1) * 300 // world) for r in range(world)]
        served = 0
        for source, part in enumerate(parts):
            found, counts = np.unique(part.ids.numpy(), return_counts=True)
            for owner in range(world):
                mine = (found >= owners[owner].start) & (found < owners[owner].stop)
                once = int((mine & (counts == 1) & (found != 5)).sum())
                more = int((mine & (counts > 1) & (found != 5)).sum())
                served += int(mine.sum()) * (owner == rank)
                if source == owner:
                    continue
                ask = HEADER_BYTES + 4 * int(mine.sum()) + 8 * more * scale
                answer = int(mine.sum()) * 6 * 2
                back = HEADER_BYTES + once * 6 * 2 + more * 6 * 8
                for way, end in enumerate((source, owner)):
                    if end == rank:
                        expected["forward"][way] += ask
                        expected["forward"][1 - way] += answer
                        expected["backward"][way] += back
        seen = table.last_traffic
        assert seen is not None
        assert [seen.forward_sent, seen.forward_received] == expected["forward"]
        assert [seen.backward_sent, seen.backward_received] == expected["backward"]
        assert seen.rows_requested == len(np.unique(parts[rank].ids.numpy()))
        assert seen.rows_served == served
        assert seen.sent == expected["forward"][0] + expected["backward"][0]
        assert seen.received == expected["forward"][1] + expected["backward"][1]
        assert table.allreduce_bytes == allreduce_bytes(300, 6, 2, world)
        assert table.allreduce_bytes == 2 * (world - 1) / world * 300 * 6 * 2


@check
def every_split_starts_from_one_table(rank: int, world: int, _: Path) -> None:
    size = 2 * BLOCK_ROWS + 3
    for split in ("balanced", "counts_size"):
        torch.manual_seed(7 if rank == 0 else rank)
        table = ShardedEmbedding(size, 3, 1, split=split)
        whole = table.full_table()
        torch.manual_seed(7)
        want = torch.empty(size, 3)
        fill_normal(want, range(size), int(torch.randint(2**62, ())))
        want[1] = 0
        assert torch.equal(whole, want)
        assert abs(float(want.mean())) < 0.05
        assert abs(float(want.std()) - 1) < 0.05
        assert torch.equal(table.weight, own(table, whole))
        ids = torch.tensor([[0, 1, size - 1], [size - 1, rank, 5]], dtype=torch.int32)
        assert torch.equal(table(ids), whole[ids.long()])
        assert torch.equal(table(ids[0, 0]), whole[0])
        for dst in range(world):
            only = table.full_table(table.weight * 2, dst=dst)
            assert (only is None) == (rank != dst)
            assert only is None or torch.equal(only, whole * 2)


@check
def narrow_and_empty_tables(rank: int, world: int, _: Path) -> None:
    table = ShardedEmbedding(5, 2, dtype=torch.float16)
    ids = torch.tensor([4, 0, 4])
    assert torch.equal(table(ids), table.full_table()[ids])
    for num_weights, width, size in ((5, 0, 3), (0, 4, 0), (5, 4, 0)):
        table = ShardedEmbedding(num_weights, width)
        rows = table(torch.zeros(2, size, dtype=torch.int64))
        assert rows.shape == (2, size, width)
        rows.sum().backward()
        assert table.weight.grad.shape == (len(table.rows), width)
        assert not table.weight.grad.any()
        assert table.full_table().shape == (num_weights, width)


@check
def a_rank_saves_alone(rank: int, world: int, folder: Path) -> None:
    model = torch.nn.Sequential(ShardedEmbedding(11, 2), torch.nn.Linear(2, 2))
    if rank == 0:  # no other rank joins
        torch.save(model.state_dict(), folder / "alone.pt")
        model.load_state_dict(torch.load(folder / "alone.pt"))
    dist.barrier()
    table = model[0]
    wrong = (table.rows.start, table.rows.stop) != (0, len(own(table, range(11))))
    loaded = torch.load(folder / "alone.pt")
    if wrong or rank:
        said = message(RuntimeError, model.load_state_dict, loaded)
        assert "whole table of 11 rows" in said, said
        assert f"this rank's {len(table.rows)} rows" in said, said
        before = table.weight.clone()
        assert torch.equal(table.weight, before)
    full = torch.arange(22.0).reshape(11, 2)
    for assign in (False, True):
        table.load_state_dict({"weight": full}, assign=assign)
        assert torch.equal(table.weight, own(table, full))
        assert table.weight.untyped_storage().nbytes() == len(table.rows) * 8
        table.reset_parameters(0)
    said = message(RuntimeError, table.load_state_dict, {"weight": full[:1]})
    assert "got 1 rows" in said or len(table.rows) == 1, said


@check
def shards_are_cut_anew(rank: int, world: int, folder: Path) -> None:
    old = ShardedEmbedding(23, 2, dtype=torch.bfloat16)
    whole = old.full_table()
    torch.save(old.state_dict(), folder / f"shard-{rank}.pt")
    dist.barrier()
    files = [folder / f"shard-{r}.pt" for r in range(world)]
    shards = [torch.load(file, mmap=True)["weight"] for file in files]
    for split in ("balanced", "counts_size"):
        new = ShardedEmbedding(23, 2, split=split, dtype=torch.bfloat16)
        new.load_state_dict({"weight": reshard(shards, new.rows)})
        assert torch.equal(new.full_table(), whole)
    half = dist.new_group(list(range(world // 2)), timeout=PATIENCE)
    if rank < world // 2:
        new = ShardedEmbedding(23, 2, dtype=torch.bfloat16, process_group=half)
        new.load_state_dict({"weight": reshard(shards, new.rows)})
        assert torch.equal(new.full_table(), whole)


@check
def a_group_of_some_ranks(rank: int, world: int, _: Path) -> None:
    """The order of a group, not that of the whole job, says who owns what."""
    members = [world - 1, 0]
    group = dist.new_group(members, timeout=PATIENCE)
    if rank in members:
        place = dist.get_rank(group)
        table = ShardedEmbedding(9, 2, process_group=group)
        assert table.rows == (range(0, 5), range(5, 9))[place]
        parts = batches(2, 3, 9, 2, torch.float32)
        got = gradient_of(table, parts[place])
        want = whole_gradient(parts, table, False, 1)
        reference.assert_same_bits(got.numpy(), own(table, want))
        assert len(table.full_table()) == 9
    else:
        said = message(RankError, ShardedEmbedding, 9, 2, process_group=group)
        assert "not part of" in said


@check
def optimizers_see_an_ordinary_table(rank: int, world: int, _: Path) -> None:
    """Two accumulated batches a step, Adam, and a table with fewer rows than ranks."""
    for num_weights in (2, 40):
        table = ShardedEmbedding(num_weights, 3, dtype=torch.float64)
        other = torch.nn.Embedding.from_pretrained(table.full_table(), freeze=False)
        optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (table, other)]
        for step in range(3):
            for module, optimizer in zip((table, other), optimizers, strict=True):
                optimizer.zero_grad()
                for seed in (2 * step, 2 * step + 1):
                    parts = batches(world, seed, num_weights, 3, torch.float64)
                    for part in parts if module is other else [parts[rank]]:
                        module(part.ids).backward(part.grad)
                optimizer.step()
        torch.testing.assert_close(table.full_table(), other.weight.detach())
        moments = optimizers[0].state[table.weight]["exp_avg"]
        want = optimizers[1].state[other.weight]["exp_avg"]
        torch.testing.assert_close(table.full_table(moments), want)


@check
def copies_and_frozen_tables(rank: int, world: int, _: Path) -> None:
    table = ShardedEmbedding(8, 2)
    twin = copy.deepcopy(table)
    with torch.no_grad():
        twin.weight += 1
    ids = torch.tensor([0, 7])
    assert torch.equal(twin(ids), table(ids) + 1)
    table.weight.requires_grad_(False)
    assert not table(ids).requires_grad
    rows = twin(ids)
    (first,) = torch.autograd.grad(rows.pow(2).sum(), twin.weight, create_graph=True)
    assert "twice" in message(RuntimeError, first.sum().backward)
    assert f"8, 2, rows {table.rows.start} to {table.rows.stop} on rank {rank}" in repr(table)
    assert "state_dict" in message(TypeError, torch.save, table, os.devnull)


def main() -> None:
    import distributed_faults  # noqa: F401  adds its checks

    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", timeout=PATIENCE)
    rank, world = dist.get_rank(), dist.get_world_size()
    for name in sys.argv[2:] or CHECKS:
        function = CHECKS[name]
        RESULTS[name] = ""
        start = time.perf_counter()
        try:
            function(rank, world, folder)
        except Exception:
            RESULTS[name] = traceback.format_exc()
        if os.environ.get("SHOW") and rank == 0:
            print(name, round(time.perf_counter() - start, 2), RESULTS[name], flush=True)
    write(rank, folder)
    if "a_dead_rank" in RESULTS:  # nothing is left to part from in good order
        os._exit(0)
    # Left to the interpreter's end, gloo's threads may abort the process.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
