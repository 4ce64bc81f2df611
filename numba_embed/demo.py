"""``numba-embed demo``: train word vectors on real text, on this machine, in under a minute."""

from __future__ import annotations

import argparse
import os
from collections import deque
from time import perf_counter
from typing import Any

import numpy as np

from numba_embed.cli_support import (
    CliError,
    check_target,
    file_name,
    import_extra,
    integer,
    positive,
    whole_file,
)
from numba_embed.demo_corpus import Corpus, read_corpus, stdlib_files, text_files
from numba_embed.demo_train import SkipGram, neighbours, pairs, subsampling_keep

DEFAULT_WORDS = 2_000_000
"""Of the standard library: as much as the default run has time for."""

FULL_BATCH = 8192

MOST_PAIRS = 2**48
"""Beyond every memory, and within the number of positions that a plan can have."""


def add_parser(subparsers: Any) -> None:
    """Add the command to ``numba-embed``."""
    parser = subparsers.add_parser(
        "demo",
        help="train word vectors on real text and show what they learnt",
        description=(
            "Train skip-gram word vectors with negative sampling. Forward pass and loss are NumPy, "
            "the gradients of both tables come from embedding_dense_backward. The text is the "
            "installed Python standard library, sources and docstrings, or your own. "
            "The same options and seed give the same vectors, byte for byte, on any --threads."
        ),
    )
    add = parser.add_argument
    add(
        "--text",
        nargs="+",
        type=file_name,
        metavar="PATH",
        help="text files, or folders of them (default: the standard library)",
    )
    add(
        "--epochs",
        type=integer(1),
        default=2,
        metavar="N",
        help="passes over the text (default: %(default)s)",
    )
    add(
        "--dim",
        type=integer(1),
        default=64,
        metavar="N",
        help="vector length (default: %(default)s)",
    )
    add(
        "--vocab",
        type=integer(2),
        default=8000,
        metavar="N",
        help="most words kept (default: %(default)s)",
    )
    add(
        "--batch",
        type=integer(1, MOST_PAIRS),
        metavar="N",
        help=f"pairs of words per step (default: {FULL_BATCH}, less for a short text)",
    )
    add("--lr", type=positive, default=0.03, metavar="X", help="step size (default: %(default)s)")
    add(
        "--seed",
        type=integer(0),
        default=0,
        metavar="N",
        help="seed of all that is random (default: 0)",
    )
    add(
        "--threads", type=integer(1), metavar="N", help="threads of the backward (default: Numba's)"
    )
    add(
        "--words",
        nargs="+",
        metavar="WORD",
        help="show the neighbours of these words (default: of a few frequent ones)",
    )
    add("--out", type=file_name, metavar="FILE", help="write words and vectors there, as .npz")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return its exit code."""
    console = import_extra("rich.console", "cli").Console(
        highlight=False, markup=False, soft_wrap=True
    )
    # Between two backwards lies much NumPy: OpenMP's threads should sleep through it, not spin,
    # above all where other programs want the cores. Read when the pool starts, later than here.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if args.out is not None:
        check_target(args.out)
    with console.status("reading text"):
        corpus = _read(args)
    console.print(
        f"{corpus.files:,} files, {len(corpus.ids):,} words, vocabulary of {len(corpus.words):,}"
    )
    shown = _shown_words(corpus, args.words)
    batch = args.batch or max(1, min(FULL_BATCH, len(corpus.ids) // 16))
    rng = np.random.default_rng(args.seed)
    model = SkipGram(corpus, args.dim, batch, args.lr, rng, args.threads)

    start = perf_counter()
    with console.status("compiling kernels, or loading them from the cache"):
        model.compile()
    console.print(f"kernels ready in {perf_counter() - start:.1f} s")
    _train(console, corpus, model, args.epochs, batch, rng)
    _show_neighbours(console, corpus, model, shown)
    if args.out is not None:
        with whole_file(args.out) as file:
            np.savez(
                file,
                words=np.array(corpus.words),
                counts=corpus.counts,
                vectors=model.words.weight,
                contexts=model.contexts.weight,
            )
        console.print(f"wrote {args.out}")
    return 0


def _read(args: argparse.Namespace) -> Corpus:
    if args.text:
        return read_corpus(text_files(args.text), args.vocab)
    return read_corpus(stdlib_files(), args.vocab, DEFAULT_WORDS)


def _shown_words(corpus: Corpus, asked: list[str] | None) -> list[int]:
    """Return the rows whose neighbours are shown at the end."""
    if asked:
        row_of = {word: row for row, word in enumerate(corpus.words)}
        for word in asked:
            if word.lower() not in row_of:
                raise CliError(f"argument --words: {word!r} is not in the vocabulary")
        return [row_of[word.lower()] for word in asked]
    # Words so frequent that the training drops most of them stand beside everything and have no
    # neighbours worth a look.
    keep = subsampling_keep(corpus)
    telling = [
        row for row, word in enumerate(corpus.words[:1000]) if len(word) > 3 and keep[row] > 0.2
    ]
    return telling[:8]


def _train(
    console: Any,
    corpus: Corpus,
    model: SkipGram,
    epochs: int,
    batch: int,
    rng: np.random.Generator,
) -> None:
    progress = import_extra("rich.progress", "cli")
    total = epochs * len(corpus.ids)
    recent: deque[float] = deque(maxlen=max(10, total // batch // 4))
    steps, reports = 0, 0
    start = perf_counter()
    with progress.Progress(
        progress.TextColumn("epoch {task.fields[epoch]}/" + str(epochs)),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("loss {task.fields[loss]:.3f}"),
        progress.TextColumn("backward {task.fields[share]:.0%}"),
        progress.TimeElapsedColumn(),
        console=console,
    ) as bar:
        task = bar.add_task("", total=total, epoch=1, loss=float("nan"), share=0.0)
        for epoch in range(epochs):
            for pair in pairs(corpus, batch, rng):
                recent.append(model.step(pair.center, pair.context))
                steps += 1
                done = epoch * len(corpus.ids) + pair.words_read
                loss = sum(recent) / len(recent)
                share = model.seconds_backward / (perf_counter() - start)
                bar.update(task, completed=done, epoch=epoch + 1, loss=loss, share=share)
                if steps == 1 or done * 10 // total > reports:
                    reports = done * 10 // total
                    console.print(f"  after {steps:5} steps: loss {loss:.3f}")
                    recent.clear()
            if not steps:
                raise CliError(f"the text is too short for one batch of {batch} pairs of words")
    seconds = perf_counter() - start
    console.print(
        f"trained on {steps * batch:,} pairs of words in {seconds:.1f} s; "
        f"the embedding backward took {model.seconds_backward / seconds:.0%} of it"
    )


def _show_neighbours(console: Any, corpus: Corpus, model: SkipGram, rows: list[int]) -> None:
    table = import_extra("rich.table", "cli").Table("word", "nearest words", title="Neighbours")
    for row in rows:
        near = neighbours(model.words.weight, row, 6)
        table.add_row(corpus.words[row], ", ".join(corpus.words[other] for other, _ in near))
    console.print(table)
