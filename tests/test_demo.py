"""The demo: text to numbers, pairs, the loss's gradient, and runs that repeat to the byte."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from numba_embed.demo_corpus import Corpus, read_corpus, stdlib_files, text_files
from numba_embed.demo_train import (
    BLOCK,
    NEGATIVES,
    NOISE_SLOTS,
    WINDOW,
    SkipGram,
    Table,
    neighbours,
    noise_table,
    pairs,
    subsampling_keep,
)
from numba_embed.errors import EmbedValueError

RunPython = Callable[..., subprocess.CompletedProcess[str]]

CLI = "from numba_embed.__main__ import entry; entry()"


def corpus_of(ids: np.ndarray, words: int) -> Corpus:
    """Return a corpus of the given stream, with names for its words."""
    counts = np.bincount(ids, minlength=words).astype(np.int64)
    return Corpus([f"w{n}" for n in range(words)], counts, ids.astype(np.int64), files=1)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Give a file of 4000 words in which letters of a kind keep company."""
    rng = np.random.default_rng(0)
    kinds = [["red", "green", "blue", "white"], ["one", "two", "three", "four"]]
    sentences = [" ".join(rng.choice(kinds[n % 2], 10)) for n in range(400)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(sentences))
    return path


class TestCorpus:
    def test_words_are_numbered_by_frequency_then_alphabet(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("Bee_ant bee2cat, ant BEE x cat's")
        corpus = read_corpus([path], vocab=10)
        assert corpus.words == ["bee", "ant", "cat"]
        assert corpus.counts.tolist() == [3, 2, 2]
        assert corpus.ids.tolist() == [0, 1, 0, 2, 1, 0, 2]
        assert corpus.ids.dtype == np.int64

    def test_vocab_drops_the_rarest_words_from_the_stream(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("aa bb aa cc bb aa")
        corpus = read_corpus([path], vocab=2)
        assert corpus.words == ["aa", "bb"]
        assert corpus.ids.tolist() == [0, 1, 0, 1, 0]

    def test_undecodable_bytes_are_gaps_and_binary_files_are_skipped(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"left\xff\xfe right gr\xc3\xbcn " + b"q" * 41)
        (tmp_path / "b.bin").write_bytes(b"\x7fELF\0 binary words")
        corpus = read_corpus(text_files([str(tmp_path)]), vocab=10)
        assert sorted(corpus.words) == ["grün", "left", "right"]
        assert corpus.files == 1

    def test_reading_stops_at_the_end_of_the_file_that_fills_it(self, tmp_path: Path) -> None:
        for name in "abc":
            (tmp_path / f"{name}.txt").write_text(f"{name * 2} {name * 3}")
        corpus = read_corpus(text_files([str(tmp_path)]), vocab=10, max_words=3)
        assert sorted(corpus.words) == ["aa", "aaa", "bb", "bbb"]

    def test_folders_are_walked_in_order_and_hidden_files_left_out(self, tmp_path: Path) -> None:
        for name in ("b/z.txt", "b/a.txt", "a.txt", ".git/x.txt", "c.txt"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("some text")
        found = [path.relative_to(tmp_path).as_posix() for path in text_files([str(tmp_path)])]
        assert found == ["a.txt", "c.txt", "b/a.txt", "b/z.txt"]

    @pytest.mark.parametrize("content", ["", "word word word", "1 2 3 ..."])
    def test_a_text_without_two_words_is_refused(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "a.txt").write_text(content)
        with pytest.raises(EmbedValueError, match="at least two different words"):
            read_corpus([tmp_path / "a.txt"], vocab=10)

    def test_a_missing_path_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(EmbedValueError, match="nowhere"):
            text_files([tmp_path / "nowhere"])

    def test_the_standard_library_is_found_without_its_tests(self) -> None:
        files = stdlib_files()
        assert any(path.name == "argparse.py" for path in files)
        assert not any({"test", "site-packages"} & set(path.parts[-3:]) for path in files)
        assert files == stdlib_files()


class TestPairs:
    def test_pairs_stand_within_the_window_of_one_block(self) -> None:
        # Every word occurs once, so its number is its place, and nothing is subsampled away.
        corpus = corpus_of(np.arange(3 * BLOCK + 100), 3 * BLOCK + 100)
        assert subsampling_keep(corpus).min() >= 1
        batches = list(pairs(corpus, 64, np.random.default_rng(1)))
        assert all(len(batch.center) == len(batch.context) == 64 for batch in batches)
        assert batches[-1].words_read == len(corpus.ids)
        center = np.concatenate([batch.center for batch in batches])
        context = np.concatenate([batch.context for batch in batches])
        assert np.array_equal(center // BLOCK, context // BLOCK)
        distance, times = np.unique(context - center, return_counts=True)
        assert distance.tolist() == [d for d in range(-WINDOW, WINDOW + 1) if d]
        # A radius is at least d with probability (WINDOW + 1 - d) / WINDOW.
        expected = (WINDOW + 1 - np.abs(distance)) / WINDOW * len(corpus.ids)
        np.testing.assert_allclose(times, expected, rtol=0.1)
        assert len(np.unique(center * len(corpus.ids) + context)) == len(center)

    def test_frequent_words_are_thinned_as_the_formula_says(self) -> None:
        rng = np.random.default_rng(0)
        ids = np.where(rng.random(1 << 20) < 0.1, 0, rng.integers(1, 20_000, 1 << 20))
        corpus = corpus_of(ids, 20_000)
        keep = subsampling_keep(corpus)[0]
        assert keep == pytest.approx((1e-4 / 0.1) ** 0.5 + 1e-4 / 0.1, rel=0.02)
        centers = np.concatenate([b.center for b in pairs(corpus, 512, rng)])
        kept_share = np.mean(centers == 0)
        assert kept_share == pytest.approx(0.1 * keep / (0.1 * keep + 0.9), rel=0.05)

    def test_noise_follows_the_three_quarter_power(self) -> None:
        counts = np.array([1000, 100, 10], dtype=np.int64)
        share = np.bincount(noise_table(counts), minlength=3) / NOISE_SLOTS
        np.testing.assert_allclose(share, counts**0.75 / np.sum(counts**0.75), atol=2e-6)


class TestSkipGram:
    VOCAB, DIM, BATCH = 12, 5, 9

    def model(self) -> SkipGram:
        rng = np.random.default_rng(3)
        corpus = corpus_of(rng.integers(0, self.VOCAB, 500), self.VOCAB)
        model = SkipGram(corpus, self.DIM, self.BATCH, 0.1, rng)
        model.words.weight[:] = rng.standard_normal(model.words.weight.shape)
        model.contexts.weight[:] = rng.standard_normal(model.contexts.weight.shape)
        return model

    def loss(
        self, words: np.ndarray, contexts: np.ndarray, center: np.ndarray, ids: np.ndarray
    ) -> float:
        """Return the summed loss by the formula, pair by pair, in float64."""
        total = 0.0
        for c, (o, *noise) in zip(center, ids, strict=True):
            total += np.log1p(np.exp(-(contexts[o] @ words[c])))
            total += sum(np.log1p(np.exp(contexts[n] @ words[c])) for n in noise if n != o)
        return total

    def test_gradients_and_loss_are_those_of_the_formula(self) -> None:
        model = self.model()
        tables = [table.weight.astype(np.float64) for table in (model.words, model.contexts)]
        rng = np.random.default_rng(4)
        center = rng.integers(0, self.VOCAB, self.BATCH, dtype=np.int64)
        context = rng.integers(0, self.VOCAB, self.BATCH, dtype=np.int64)
        mean_loss = model.step(center, context)
        ids = model._ids.copy()
        assert np.array_equal(ids[:, 0], context)
        # Among so few words, noise meets its own context now and then: that case is in.
        assert (ids[:, 1:] == context[:, None]).any()
        assert mean_loss == pytest.approx(self.loss(*tables, center, ids) / self.BATCH, rel=1e-5)

        step = 1e-5
        for number, table in enumerate((model.words, model.contexts)):
            slope = np.empty(table.weight.shape)
            for at in np.ndindex(*slope.shape):
                ends = []
                for sign in (1, -1):
                    moved = [weight.copy() for weight in tables]
                    moved[number][at] += sign * step
                    ends.append(self.loss(*moved, center, ids))
                slope[at] = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(table.gradient, slope, rtol=1e-3, atol=1e-5)

    def test_adagrad_divides_by_the_root_of_the_summed_squares(self) -> None:
        rng = np.random.default_rng(5)
        table = Table(rng.standard_normal((6, 4)).astype(np.float32), 3, None)
        weight, squares = table.weight.astype(np.float64), 1e-8
        for _ in range(3):
            gradient = rng.standard_normal((6, 4))
            table.gradient[:] = gradient
            table.adagrad(0.1)
            squares = squares + gradient**2
            weight -= 0.1 * gradient / np.sqrt(squares)
        np.testing.assert_allclose(table.weight, weight, rtol=1e-4, atol=1e-5)

    def test_a_step_draws_new_noise_words(self) -> None:
        model = self.model()
        ids = np.zeros(self.BATCH, dtype=np.int64)
        model.step(ids, ids)
        first = model._ids.copy()
        model.step(ids, ids)
        assert first.shape == (self.BATCH, 1 + NEGATIVES)
        assert not np.array_equal(first, model._ids)

    def test_neighbours_are_the_closest_by_angle(self) -> None:
        vectors = np.array([[1, 0], [10, 1], [0, 5], [-1, 0], [3, 3]], dtype=np.float32)
        found = neighbours(vectors, 0, 3)
        assert [row for row, _ in found] == [1, 4, 2]
        assert found[1][1] == pytest.approx(0.5**0.5)


def train(run_python: RunPython, text: Path, out: Path, *more: str) -> str:
    """Run the demo in a process of its own; return what it printed."""
    arguments = ("--epochs", "8", "--dim", "8", "--batch", "256", "--out", str(out), *more)
    done = run_python(CLI, "demo", "--text", str(text), *arguments, NUMBA_NUM_THREADS="2")
    return done.stdout


def test_runs_are_equal_to_the_byte_with_any_threads(
    run_python: RunPython, text: Path, tmp_path: Path
) -> None:
    files = [tmp_path / f"{name}.npz" for name in "abc"]
    train(run_python, text, files[0], "--threads", "1", "--seed", "7")
    train(run_python, text, files[1], "--threads", "2", "--seed", "7")
    train(run_python, text, files[2], "--threads", "1", "--seed", "8")
    first, second, other = (path.read_bytes() for path in files)
    assert first == second
    assert first != other
    with zipfile.ZipFile(files[0]) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_run_learns_and_writes_what_it_learnt(
    run_python: RunPython, text: Path, tmp_path: Path
) -> None:
    printed = train(run_python, text, tmp_path / "v.npz", "--epochs", "60", "--words", "RED", "two")
    losses = [float(line.split()[-1]) for line in printed.splitlines() if ": loss " in line]
    assert len(losses) >= 5
    # At first all scores are 0; one noise word in eight is the context itself and does not count.
    assert losses[0] == pytest.approx((1 + NEGATIVES * 7 / 8) * np.log(2), rel=0.02)
    assert losses[-1] < 0.8 * losses[0]
    assert "the embedding backward took" in printed

    with np.load(tmp_path / "v.npz", allow_pickle=False) as saved:
        assert set(saved) == {"words", "counts", "vectors", "contexts"}
        words = saved["words"].tolist()
        vectors = saved["vectors"]
        assert vectors.shape == saved["contexts"].shape == (8, 8)
        assert vectors.dtype == np.float32
    colours = {"red", "green", "blue", "white"}
    near = {words[row] for row, _ in neighbours(vectors, words.index("red"), 3)}
    assert near == colours - {"red"}
    shown = next(line for line in printed.splitlines() if " red " in line)
    assert all(word in shown for word in near)
