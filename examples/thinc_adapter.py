"""Give thinc's embedding layers this library's gradient, and measure what that changes.

    pip install thinc
    python examples/thinc_adapter.py

thinc collects the gradient of ``Embed`` and ``HashEmbed`` with one method of its back end,
``Ops.scatter_add``: ``numpy.add.at`` in general, and on the CPU a loop of BLAS calls where ids are
int32 and all arrays are contiguous. `NumbaEmbedOps` replaces that method; everything else stays
thinc's. The model learns to predict the next token of your Python's standard library.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import Counter
from time import perf_counter
from typing import Any

import numpy as np
import thinc.api as thinc
from thinc.backends.ops import Ops

from numba_embed import embedding_dense_backward
from numba_embed.demo_corpus import stdlib_files

TOKEN = re.compile(r"\w+|[^\w\s]")
CLASSES = 256


@thinc.registry.ops("NumbaEmbedOps")
class NumbaEmbedOps(thinc.NumpyOps):
    """thinc's CPU back end with exact, repeatable, parallel sums of embedding gradients.

    Select it for a model with ``model._to_ops(NumbaEmbedOps())``, or for all models that are made
    in a block with ``thinc.use_ops("numba_embed")``. A negative id, which NumPy counts from the
    end and thinc's BLAS loop skips, is an IndexError here.
    """

    name = "numba_embed"

    def scatter_add(self, table: Any, indices: Any, values: Any) -> None:
        """Add the rows of ``values`` to the rows of ``table``, (V, D), that ``indices`` name."""
        if table.ndim == 2:
            embedding_dense_backward(values, indices, len(table), out=table, accumulate=True)
        else:
            super().scatter_add(table, indices, values)


class AddAtOps(thinc.NumpyOps):
    """What thinc does where its BLAS loop does not apply."""

    name = "add_at"

    def scatter_add(self, table: Any, indices: Any, values: Any) -> None:
        """As the base class of all back ends."""
        Ops.scatter_add(self, table, indices, values)


def timed(ops: Any) -> list[float]:
    """Make an instance note the seconds that each of its gradients takes; return the notes."""
    seconds: list[float] = []
    scatter_add = ops.scatter_add

    def measured(*arguments: Any) -> None:
        start = perf_counter()
        scatter_add(*arguments)
        seconds.append(perf_counter() - start)

    ops.scatter_add = measured
    return seconds


def read_tokens(vocabulary: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the text as token numbers by falling frequency; rare tokens are 0."""
    words: list[str] = []
    for path in stdlib_files():
        words += TOKEN.findall(path.read_text(encoding="utf-8", errors="replace"))
    ranks = {word: i + 1 for i, (word, _) in enumerate(Counter(words).most_common(vocabulary - 1))}
    return np.fromiter((ranks.get(word, 0) for word in words), np.int32)


def train(ops: Any, tokens: Any, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Train one model; return the losses and the seconds of the steps."""
    thinc.fix_random_seed(0)
    model = thinc.chain(
        thinc.Embed(options.width, options.vocabulary),
        thinc.Maxout(64, options.width, nP=2),
        thinc.Softmax(CLASSES, 64),
    )
    model.initialize()
    model._to_ops(ops)
    rate = np.float32(0.5)
    losses, seconds = [], []
    for step in range(options.steps):
        first = step * options.batch % (len(tokens) - options.batch - 1)
        ids = tokens[first : first + options.batch]
        following = np.minimum(tokens[first + 1 : first + 1 + options.batch], CLASSES - 1)
        start = perf_counter()
        scores, backprop = model.begin_update(ids)
        right = scores[np.arange(options.batch), following]
        losses.append(float(-np.log(right + 1e-9).mean()))
        slope = scores.copy()
        slope[np.arange(options.batch), following] -= 1
        backprop(slope / options.batch)
        for node in model.walk():
            for name in node.param_names:
                if node.has_grad(name):
                    node.set_param(name, node.get_param(name) - rate * node.get_grad(name))
                    node.set_grad(name, np.zeros_like(node.get_grad(name)))
        seconds.append(perf_counter() - start)
    return losses, seconds


def main() -> None:
    """Train the same model on each back end, and print losses and times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()

    tokens = read_tokens(options.vocabulary)
    print(
        f"{len(tokens)} tokens, {options.batch} a step, "
        f"table {options.vocabulary} x {options.width}"
    )
    warm = NumbaEmbedOps()
    warm.scatter_add(  # compiles, or loads what was compiled
        np.zeros((options.vocabulary, options.width), np.float32),
        tokens[: options.batch],
        np.zeros((options.batch, options.width), np.float32),
    )
    print("back end              loss: first    last    gradient       step")
    for label, ops in (
        ("numpy.add.at", AddAtOps()),
        ("thinc's BLAS loop", thinc.NumpyOps()),
        ("numba_embed", NumbaEmbedOps()),
    ):
        gradient = timed(ops)
        losses, steps = train(ops, tokens, options)
        print(
            f"{label:20s} {losses[0]:11.6f} {losses[-1]:9.6f} "
            f"{statistics.median(gradient) * 1e3:8.2f} ms {statistics.median(steps) * 1e3:7.1f} ms"
        )


if __name__ == "__main__":
    main()
