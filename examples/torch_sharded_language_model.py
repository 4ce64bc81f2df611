"""Train the language model of `torch_language_model.py` with its table split among processes.

    torchrun --standalone --nproc-per-node 2 examples/torch_sharded_language_model.py

Two copies of one model, from one seed and on the same batches, train in turn. One is replicated
the usual way: every process holds the whole table, and all gradients are all-reduced. In the other
every process holds some rows of the table, and only the rows that a batch looks up travel. The
script prints the losses of both, which agree to rounding, the time of a step, and the bytes that a
process sends for its table.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_language_model import LanguageModel, batches, read_tokens

import numba_embed.torch as backend
from numba_embed.distributed import ShardedEmbedding


class Body(nn.Module):
    """The model without its table, which is replicated in both copies."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.past, self.mix, self.head = model.past, model.mix, model.head

    def forward(self, rows: Tensor, following: Tensor) -> Tensor:
        """Return the mean loss of ``following``, (B, L), after the tokens of ``rows``."""
        seen = nn.functional.pad(rows.transpose(1, 2), (self.past - 1, 0))
        hidden = nn.functional.glu(self.mix(seen), dim=1).transpose(1, 2)
        loss: Tensor = self.head(hidden.flatten(0, 1), following.flatten()).loss
        return loss


class Copy:
    """One copy of the model, and what was measured."""

    def __init__(self, name: str, table: nn.Module, body: nn.Module) -> None:
        self.name, self.table, self.body = name, table, body
        parameters = [*table.parameters(), *body.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=2e-3)
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def step(self, tokens: Tensor, following: Tensor) -> None:
        """Train on this process's part of a batch; note the whole batch's loss, and the time."""
        start = perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.body(self.table(tokens), following)
        loss.backward()
        self.optimizer.step()
        self.seconds.append(perf_counter() - start)
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        self.losses.append(float(whole) / dist.get_world_size())


def make_copies(vocabulary: int, width: int) -> list[Copy]:
    """Make the two copies, with the same weights."""
    copies = []
    for name in ("replicated", "sharded"):
        torch.manual_seed(0)
        model = LanguageModel(vocabulary, width)
        if name == "replicated":
            table: nn.Module = DistributedDataParallel(model.table)
        else:
            # `average`, since DistributedDataParallel averages the other gradients.
            table = ShardedEmbedding(vocabulary, width, average=True)
            table.load_state_dict(model.table.state_dict())
        copies.append(Copy(name, table, DistributedDataParallel(Body(model))))
    return copies


def train(options: argparse.Namespace) -> None:
    """Train both copies, and report."""
    rank, world = dist.get_rank(), dist.get_world_size()
    stream, vocabulary = read_tokens(options.text, options.vocabulary)
    copies = make_copies(vocabulary, options.width)
    table = copies[1].table
    assert isinstance(table, ShardedEmbedding)
    sent = []
    if rank == 0:
        print(
            f"{len(stream)} tokens, vocabulary {vocabulary}, width {options.width}, {world} "
            f"processes with {options.batch} x {options.length} tokens a step each",
            flush=True,
        )
    steps = batches(stream, options.batch * world, options.length, options.steps)
    for number, (tokens, following) in enumerate(steps, 1):
        part = slice(rank * options.batch, (rank + 1) * options.batch)
        with backend.enabled():  # for the replicated table; the sharded one needs no switch
            for copy in copies:
                copy.step(tokens[part], following[part])
        assert table.last_traffic is not None
        sent.append(table.last_traffic.sent)
        if rank == 0 and number % options.report == 0:
            losses = "   ".join(f"{copy.name}: loss {copy.losses[-1]:.6f}" for copy in copies)
            print(f"step {number:4d}   {losses}", flush=True)
    if rank == 0:
        for copy in copies:
            print(f"{copy.name:10s} {statistics.median(copy.seconds) * 1e3:8.1f} ms a step")
        mean = statistics.mean(sent)
        print(
            f"sent for the table: {mean:.0f} bytes a step, all-reduce of the dense gradient: "
            f"{table.allreduce_bytes:.0f} ({table.allreduce_bytes / mean:.1f} times as much)"
        )
        pairs = zip(copies[0].losses, copies[1].losses, strict=True)
        difference = max(abs(one - other) / one for one, other in pairs)
        print(f"losses: within {difference:.1e} of each other")


def main() -> None:
    """Join the other processes, train, and part from them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="*", default=[], help="files or folders to train on")
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=256, help="length of an embedding")
    parser.add_argument("--batch", type=int, default=8, help="samples of each process")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sample")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--report", type=int, default=5, help="steps between two lines")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    train(options)
    gc.collect()  # modules hold the group, and its threads end with it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
