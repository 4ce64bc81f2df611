"""Train a small language model on real text: torch's embedding gradient against numba-embed's.

    python examples/torch_language_model.py

The text is the source code of your Python's standard library; ``--text`` takes files or folders
of your own. Four copies of one model, from one seed and on the same batches, train in turn, a few
steps at a time: with the backend off, on, on with reused memory for the gradients, and on with one
thread for them. Then the script prints the time of a step, how much of it the embedding's gradient
took, and whether the results agree.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numba
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import numba_embed.torch as backend
from numba_embed.demo_corpus import stdlib_files, text_files

TOKEN = re.compile(r"\w+|[^\w\s]")
UNKNOWN = 0
OPERATOR = torch.ops.aten.embedding_dense_backward.default
OFF, ON, REUSED, SERIAL = MODES = ("off", "on", "on, reused", "on, 1 thread")


def read_tokens(paths: list[str], vocabulary: int) -> tuple[Tensor, int]:
    """Return the text as token numbers by falling frequency, int64 (length,), and how many."""
    number_of: dict[str, int] = {}
    stream: list[int] = []
    for path in text_files(paths) if paths else stdlib_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        stream += [number_of.setdefault(token, len(number_of)) for token in TOKEN.findall(text)]
    ranks = {
        old: new + 1 for new, (old, _) in enumerate(Counter(stream).most_common(vocabulary - 1))
    }
    return torch.tensor([ranks.get(token, UNKNOWN) for token in stream]), len(ranks) + 1


class LanguageModel(nn.Module):
    """Predict the next token: a table, one gated convolution over the past, adaptive softmax."""

    def __init__(self, vocabulary: int, width: int, past: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.past = past
        self.mix = nn.Conv1d(width, 2 * width, past)
        cutoffs = [vocabulary // 50 + 1, vocabulary // 6 + 2]
        self.head = nn.AdaptiveLogSoftmaxWithLoss(width, vocabulary, cutoffs)

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        """Return the mean loss of ``following``, (B, L), after ``tokens``, (B, L)."""
        seen = nn.functional.pad(self.table(tokens).transpose(1, 2), (self.past - 1, 0))
        hidden = nn.functional.glu(self.mix(seen), dim=1).transpose(1, 2)
        loss: Tensor = self.head(hidden.flatten(0, 1), following.flatten()).loss
        return loss


@dataclass
class Run:
    """One copy of the model, what it trains with, and what was measured."""

    mode: str
    model: LanguageModel
    optimizer: torch.optim.Optimizer
    reuse_bytes: int
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    gradient_seconds: list[float] = field(default_factory=list)

    @contextmanager
    def switch(self) -> Iterator[None]:
        """Set up what this run's steps are taken with."""
        threads = numba.get_num_threads()
        if self.mode == SERIAL:
            numba.set_num_threads(1)
        reuse = self.reuse_bytes if self.mode == REUSED else None
        try:
            with nullcontext() if self.mode == OFF else backend.enabled(reuse_outputs=reuse):
                yield
        finally:
            numba.set_num_threads(threads)

    def step(self, tokens: Tensor, following: Tensor) -> None:
        """Train on one batch, and note the loss and the time."""
        start = perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(tokens, following)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.step_seconds.append(perf_counter() - start)

    def watched_step(self, tokens: Tensor, following: Tensor) -> None:
        """Train on one batch, and note how long the operator ran instead of the whole step."""
        with Stopwatch() as watch:
            self.step(tokens, following)
        self.step_seconds.pop()
        self.gradient_seconds.append(watch.seconds)


class Stopwatch(TorchDispatchMode):
    """Times the operator, whichever kernel it runs on; slows everything else a little."""

    seconds = 0.0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a torch operator."""
        start = perf_counter()
        result = function(*args, **(kwargs or {}))
        if function is OPERATOR:
            self.seconds += perf_counter() - start
        return result


def batches(stream: Tensor, size: int, length: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens and the ones that follow, both (size, length), from random places."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        starts = torch.randint(0, len(stream) - length - 1, (size, 1), generator=generator)
        tokens = stream[starts + torch.arange(length + 1)]
        yield tokens[:, :-1], tokens[:, 1:]


def train(options: argparse.Namespace, stream: Tensor, vocabulary: int) -> list[Run]:
    """Train the copies in turn, a round of steps each; in the last one the operator is timed."""
    runs = []
    for mode in MODES:
        torch.manual_seed(0)
        model = LanguageModel(vocabulary, options.width)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        runs.append(Run(mode, model, optimizer, 3 * 4 * vocabulary * options.width))
    steps = list(batches(stream, options.batch, options.length, options.steps))
    compile_kernels(runs[0].model, *steps[0])
    for first in range(0, len(steps), options.round):
        for run in runs:
            *timed, last = steps[first : first + options.round]
            with run.switch():
                for tokens, following in timed:
                    run.step(tokens, following)
                run.watched_step(*last)
        print(
            f"step {len(runs[0].losses):4d}   "
            + "   ".join(f"{run.mode}: loss {run.losses[-1]:.6f}" for run in runs),
            flush=True,
        )
    return runs


def compile_kernels(model: LanguageModel, tokens: Tensor, following: Tensor) -> None:
    """Take the gradient once with the backend on, so that no measured step holds a compilation."""
    with backend.enabled():
        model(tokens, following).backward()
    model.zero_grad(set_to_none=True)


def report(runs: list[Run]) -> None:
    """Print times and shares, and whether the results agree."""
    print("\nbackend          step      embedding gradient     share    faster")
    theirs = statistics.median(runs[0].gradient_seconds)
    for run in runs:
        step = statistics.median(run.step_seconds)
        gradient = statistics.median(run.gradient_seconds)
        print(
            f"{run.mode:13s} {step * 1e3:7.1f} ms {gradient * 1e3:16.2f} ms "
            f"{gradient / step:12.1%} {theirs / gradient:8.1f}x"
        )
    off, on, *others = runs
    difference = max(
        abs(one - other) / one for one, other in zip(off.losses, on.losses, strict=True)
    )
    print(f"\nlosses, {off.mode} against {on.mode}: within {difference:.1e} of each other")
    for other in others:
        same = on.losses == other.losses and all(
            torch.equal(one, another)
            for one, another in zip(on.model.parameters(), other.model.parameters(), strict=True)
        )
        print(f'"{on.mode}" and "{other.mode}": {"the same bits" if same else "DIFFERENT BITS"}')


def main() -> None:
    """Read the text, train, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="*", default=[], help="files or folders to train on")
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=256, help="length of an embedding")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128, help="tokens of a sample")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--round", type=int, default=5, help="steps of a model in a row")
    options = parser.parse_args()

    stream, vocabulary = read_tokens(options.text, options.vocabulary)
    print(
        f"{len(stream)} tokens, vocabulary {vocabulary}, width {options.width}, "
        f"{options.batch} x {options.length} tokens a step, {torch.get_num_threads()} threads",
        flush=True,
    )
    report(train(options, stream, vocabulary))


if __name__ == "__main__":
    main()
