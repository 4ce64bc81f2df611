"""Skip-gram with negative sampling: NumPy forward, gradients of both tables from the library.

For a pair of words (c, o) that stand near each other and K words n drawn at random, the loss is
``-log s(u_o . v_c) - sum log s(-u_n . v_c)`` with the logistic function s, word vectors v and
context vectors u (Mikolov et al., "Distributed Representations of Words and Phrases and their
Compositionality", 2013). Every pair looks one row of v up and K + 1 rows of u, so the gradients of
both tables are two calls of the embedding backward.

No step here depends on how many threads run: products go through einsum, which sums in one order,
and not through BLAS, which may cut its sums by threads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from numba_embed.demo_corpus import Corpus
from numba_embed.dense_plan import plan_dense_backward

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

NEGATIVES = 5
WINDOW = 5
SUBSAMPLE = 1e-4
BLOCK = 1 << 10
MIXED = 64
NOISE_SLOTS = 1 << 20


class Pairs(NamedTuple):
    """One batch: word numbers of the centres (B,) and contexts (B,), and the words read so far."""

    center: Ids
    context: Ids
    words_read: int


def subsampling_keep(corpus: Corpus) -> NDArray[np.float64]:
    """Return for each word how probable it is to be kept; above 1 means always.

    Mikolov et al., section 2.3, in the form of the word2vec program. A short text is thinned less.
    """
    threshold = max(SUBSAMPLE, 50 / len(corpus.ids))
    frequency = corpus.counts / len(corpus.ids)
    keep: NDArray[np.float64] = np.sqrt(threshold / frequency) + threshold / frequency
    return keep


def pairs(corpus: Corpus, batch: int, rng: np.random.Generator) -> Iterator[Pairs]:
    """Yield one epoch of shuffled pairs, in batches of exactly ``batch``; a short rest is dropped.

    Frequent words are left out at random, then each word meets all words at most r places away, r
    drawn from 1 to ``WINDOW``. The text is cut into blocks, and ``MIXED`` blocks from all over it
    are shuffled together: batches are alike, and memory does not grow with the text.
    """
    keep = subsampling_keep(corpus)
    starts = rng.permutation(np.arange(0, len(corpus.ids), BLOCK))
    rest = np.empty((2, 0), dtype=np.int64)
    read = 0
    for first in range(0, len(starts), MIXED):
        blocks = [corpus.ids[start : start + BLOCK] for start in starts[first : first + MIXED]]
        words = np.concatenate(blocks)
        block = np.repeat(np.arange(len(blocks)), [len(piece) for piece in blocks])
        read += len(words)
        kept = rng.random(len(words)) < keep[words]
        pool = np.concatenate([rest, _near_pairs(words[kept], block[kept], rng)], axis=1)
        pool = pool[:, rng.permutation(pool.shape[1])]
        whole = pool.shape[1] // batch * batch
        for at in range(0, whole, batch):
            center, context = pool[:, at : at + batch]
            yield Pairs(center, context, read)
        rest = pool[:, whole:]


def _near_pairs(words: Ids, block: NDArray[np.intp], rng: np.random.Generator) -> Ids:
    """Return (2, n): every word with those of its block that stand within its own radius."""
    radius = rng.integers(1, WINDOW + 1, size=len(words))
    found = [np.empty((2, 0), dtype=np.int64)]
    for distance in range(1, WINDOW + 1):
        left, right = words[:-distance], words[distance:]
        joined = block[:-distance] == block[distance:]
        near = joined & (radius[:-distance] >= distance)
        found.append(np.stack([left[near], right[near]]))
        near = joined & (radius[distance:] >= distance)
        found.append(np.stack([right[near], left[near]]))
    return np.concatenate(found, axis=1)


def noise_table(counts: NDArray[np.int64]) -> Ids:
    """Return a table to draw words from evenly: it holds each in proportion to its count^(3/4)."""
    weight = np.cumsum(counts.astype(np.float64) ** 0.75)
    slots = (np.arange(NOISE_SLOTS) + 0.5) * (weight[-1] / NOISE_SLOTS)
    table: Ids = np.searchsorted(weight, slots).astype(np.int64)
    return table


@dataclass
class Table:
    """One trained table and what its update needs: gradient, squared sums, plan and workspace."""

    weight: Floats
    look_ups: int
    num_threads: int | None

    def __post_init__(self) -> None:
        vocab, dim = self.weight.shape
        self.gradient = np.empty_like(self.weight)
        self._squares = np.full_like(self.weight, 1e-8)
        self._scratch = np.empty_like(self.weight)
        self._plan = plan_dense_backward(
            (self.look_ups, dim),
            np.float32,
            (self.look_ups,),
            np.int64,
            vocab,
            num_threads=self.num_threads,
        )
        self._workspace = self._plan.make_workspace()

    def backward(self, grad: Floats, ids: Ids) -> None:
        """Set ``gradient`` from the look-ups' gradients, shape (look_ups, D)."""
        self._plan.execute(grad, ids, out=self.gradient, workspace=self._workspace)

    def adagrad(self, lr: float) -> None:
        """Take one Adagrad step (Duchi et al., 2011) along ``gradient``."""
        np.square(self.gradient, out=self._scratch)
        self._squares += self._scratch
        np.sqrt(self._squares, out=self._scratch)
        np.divide(self.gradient, self._scratch, out=self._scratch)
        self._scratch *= np.float32(lr)
        self.weight -= self._scratch


class SkipGram:
    """Word and context tables, trained batch by batch.

    Parameters
    ----------
    corpus : Corpus
        Gives the vocabulary and the noise distribution.
    dim : int
        Length of a vector.
    batch : int
        Pairs per step.
    lr : float
        Adagrad's step size.
    rng : numpy.random.Generator
        First values and noise words come from it.
    num_threads : int, optional
        For the backward; changes no bit of the result.

    Attributes
    ----------
    words, contexts : Table
        The two tables, each (V, D) float32.
    seconds_backward : float
        Time spent in the embedding backward so far.
    """

    def __init__(
        self,
        corpus: Corpus,
        dim: int,
        batch: int,
        lr: float,
        rng: np.random.Generator,
        num_threads: int | None = None,
    ) -> None:
        vocab = len(corpus.words)
        if vocab * dim > sys.maxsize // np.dtype(np.float64).itemsize:
            # NumPy calls it a ValueError where even the number of bytes is too large.
            raise MemoryError(f"{vocab} vectors of {dim} numbers fit no memory")
        first = (rng.random((vocab, dim), dtype=np.float32) - np.float32(0.5)) / np.float32(dim)
        self.words = Table(first, batch, num_threads)
        self.contexts = Table(np.zeros_like(first), batch * (1 + NEGATIVES), num_threads)
        self.seconds_backward = 0.0
        self._lr = lr
        self._rng = rng
        self._noise = noise_table(corpus.counts)
        self._ids = np.empty((batch, 1 + NEGATIVES), dtype=np.int64)
        self._center = np.empty((batch, dim), dtype=np.float32)
        self._context = np.empty((batch, 1 + NEGATIVES, dim), dtype=np.float32)

    def step(self, center: Ids, context: Ids) -> float:
        """Train on one batch; return the mean loss per pair before the step."""
        ids = self._ids
        ids[:, 0] = context
        slots = self._rng.integers(0, NOISE_SLOTS, size=(len(ids), NEGATIVES), dtype=np.int64)
        ids[:, 1:] = self._noise[slots]
        # Into memory that is there already; any mode but "raise" spares NumPy a second copy.
        v = np.take(self.words.weight, center, axis=0, out=self._center, mode="clip")
        u = np.take(self.contexts.weight, ids, axis=0, out=self._context, mode="clip")

        score = np.einsum("bd,bkd->bk", v, u)
        score[:, 0] *= -1
        # log(1 + exp(s)) and its derivative; the context itself, drawn as noise, teaches nothing.
        counted = ids != context[:, None]
        counted[:, 0] = True
        loss = np.logaddexp(score, 0, dtype=np.float32)[counted].sum(dtype=np.float64)
        slope = counted / (1 + np.exp(-score))
        slope[:, 0] *= -1

        grad_v = np.einsum("bk,bkd->bd", slope, u)
        grad_u = np.multiply(slope[:, :, None], v[:, None, :], out=u)
        self._backward(grad_v, center, grad_u, ids)
        self.words.adagrad(self._lr)
        self.contexts.adagrad(self._lr)
        return float(loss) / len(ids)

    def compile(self) -> None:
        """Run the backward once on zeros, so that no later time holds a compilation."""
        ids = np.zeros_like(self._ids)
        self._backward(
            np.zeros_like(self._center), ids[:, 0].copy(), np.zeros_like(self._context), ids
        )
        self.seconds_backward = 0.0

    def _backward(self, grad_v: Floats, center: Ids, grad_u: Floats, ids: Ids) -> None:
        start = perf_counter()
        self.words.backward(grad_v, center)
        self.contexts.backward(grad_u.reshape(-1, grad_v.shape[1]), ids.ravel())
        self.seconds_backward += perf_counter() - start


def neighbours(vectors: Floats, row: int, count: int) -> list[tuple[int, float]]:
    """Return the ``count`` rows closest to ``row`` by cosine, itself left out, closest first."""
    norm = np.sqrt(np.einsum("vd,vd->v", vectors, vectors)) + np.float32(1e-12)
    cosine = np.einsum("vd,d->v", vectors, vectors[row]) / (norm * norm[row])
    cosine[row] = -np.inf
    best = np.argsort(-cosine, kind="stable")[:count]
    return [(int(i), float(cosine[i])) for i in best]
