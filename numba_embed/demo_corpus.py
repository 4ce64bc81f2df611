"""Text for the demo: files in, a vocabulary and a stream of word numbers out."""

from __future__ import annotations

import os
import re
import sysconfig
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from numba_embed.errors import EmbedValueError

WORD = re.compile(r"[^\W\d_]{2,}")
"""A word: two letters or more, of any script. Underscores and digits end it, as in names."""

LONGEST = 40
"""Letters in a word at most: a longer run is encoded data."""

STDLIB_SKIPPED = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"}
)
"""Folders that are not the standard library, or its tests, or tables instead of text."""


@dataclass(frozen=True)
class Corpus:
    """Words by falling frequency, and the text as numbers of words.

    Attributes
    ----------
    words : list of str
        The vocabulary; equally frequent words stand in alphabetical order.
    counts : ndarray of int64, shape (len(words),)
        How often each word stands in ``ids``.
    ids : ndarray of int64, one-dimensional
        The text, words outside the vocabulary left out.
    files : int
        How many files were read.
    """

    words: list[str]
    counts: NDArray[np.int64]
    ids: NDArray[np.int64]
    files: int


def stdlib_files() -> list[Path]:
    """Return the installed standard library's Python sources, in one order on every machine."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return list(_walk(root, suffix=".py", skipped=STDLIB_SKIPPED))


def text_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files that ``paths`` name: a file is itself, a folder all visible files below it.

    Raises
    ------
    EmbedValueError
        A path does not exist.
    """
    files: list[Path] = []
    for name in paths:
        path = Path(name)
        if path.is_dir():
            files.extend(_walk(path))
        elif path.exists():
            files.append(path)
        else:
            raise EmbedValueError(f"text must name files or folders that exist, got {str(name)!r}")
    return files


def _walk(root: Path, suffix: str = "", skipped: frozenset[str] = frozenset()) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        # Sorted in place, so that os.walk descends in this order on every file system.
        folders[:] = sorted(d for d in folders if d not in skipped and not d.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(suffix) and not name.startswith(".") and path.is_file():
                yield path


def read_corpus(files: Iterable[Path], vocab: int, max_words: int | None = None) -> Corpus:
    """Read text files and number their words.

    Bytes that are not UTF-8 count as a gap between words. A file with a NUL byte is no text and
    adds nothing.

    Parameters
    ----------
    files : iterable of Path
        Read in this order.
    vocab : int
        Keep that many of the most frequent words.
    max_words : int, optional
        Stop reading after about that many words (at the end of a file).

    Raises
    ------
    EmbedValueError
        Fewer than two different words are found.
    """
    number_of: dict[str, int] = {}
    stream = array("i")
    read = 0
    for path in files:
        data = path.read_bytes()
        if b"\0" in data:
            continue
        read += 1
        for word in WORD.findall(data.decode("utf-8", errors="replace").lower()):
            if len(word) <= LONGEST:
                stream.append(number_of.setdefault(word, len(number_of)))
        if max_words is not None and len(stream) >= max_words:
            break
    if len(number_of) < 2:
        raise EmbedValueError(
            f"text must hold at least two different words, got {len(number_of)} in {read} files"
        )

    raw = np.frombuffer(stream, dtype=np.intc)
    raw_counts = np.bincount(raw, minlength=len(number_of))
    spelling = list(number_of)
    kept = sorted(range(len(spelling)), key=lambda i: (-raw_counts[i], spelling[i]))[:vocab]
    renumber = np.full(len(spelling), -1, dtype=np.int64)
    renumber[kept] = np.arange(len(kept))
    ids = renumber[raw]
    return Corpus(
        words=[spelling[i] for i in kept],
        counts=raw_counts[kept].astype(np.int64),
        ids=ids[ids >= 0],
        files=read,
    )
