"""The limit that memory sets: measured bandwidths, and the bytes that a case must move."""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from numba_embed.bench.cases import LINE, Case, Operands
from numba_embed.kernels.asking import ask_soon
from numba_embed.kernels.memory import fence, pointer_at, stream_line

DEFAULT_BYTES = 1 << 28
"""Size of the buffer that is read and written: far beyond the caches of most machines."""

_WORDS = LINE // 8
_STREAMS = 4
_AHEAD = 1024


class Bandwidth(NamedTuple):
    """Bytes per second, read and written past the caches."""

    read: float
    store: float


class Traffic(NamedTuple):
    """Bytes that a case must read and write when it fills an existing output."""

    read: int
    written: int

    def limit(self, bandwidth: Bandwidth) -> float:
        """Return the seconds that this takes at least."""
        return self.read / bandwidth.read + self.written / bandwidth.store


def traffic(case: Case, operands: Operands, rows: int, positions: int) -> Traffic:
    """Return what a case must move: ``(gradient + indices) read, output written``.

    Parameters
    ----------
    case, operands
        The case and what its ``make`` returned.
    rows
        Distinct rows that take part. A case that accumulates reads and writes those only.
    positions
        Look-ups that take part: no gradient needs to be read for the others.
    """
    itemsize = operands.grad.itemsize
    row_stride, column_stride = operands.grad.strides
    # Columns that are less than a cache line apart cost all the bytes between them.
    grad_row = (case.D - 1) * min(abs(column_stride), LINE) + itemsize
    grad = grad_row * (positions if row_stride else min(positions, 1))
    touched = rows * case.D * itemsize
    if case.accumulate:
        return Traffic(grad + operands.indices.nbytes + touched, touched)
    return Traffic(grad + operands.indices.nbytes, case.out_nbytes)


class Roofline:
    """Measures bandwidths in this process, as often as asked.

    Parameters
    ----------
    nbytes : int, optional
        Size of the buffer, allocated once; `DEFAULT_BYTES` by default.
    """

    def __init__(self, nbytes: int | None = None) -> None:
        nbytes = DEFAULT_BYTES if nbytes is None else nbytes
        raw = np.empty(nbytes + LINE, np.uint8)
        start = -raw.ctypes.data % LINE
        self._lines = nbytes // LINE
        self._words: npt.NDArray[np.int64] = raw[start : start + self._lines * LINE].view(np.int64)
        self._pattern: npt.NDArray[np.int64] = np.full(_WORDS, 1, np.int64)
        for threads in (1, 2):  # compiles, and touches every page
            self.measure(threads)

    def measure(self, threads: int) -> Bandwidth:
        """Write the buffer once and read it once with so many threads."""
        start = perf_counter()
        _store(self._words, self._pattern.ctypes.data, threads)
        stored = perf_counter()
        total = _read(self._words, threads)
        done = perf_counter()
        if total != self._words.size:
            raise AssertionError(f"{self._words.size} words of 1 add up to {total}")
        nbytes = self._words.nbytes
        return Bandwidth(read=nbytes / (done - stored), store=nbytes / (stored - start))


def _read_words(words: Any, pieces: int) -> int:
    # Four places at once, asked for ahead: a plain loop over one reads at two thirds of the speed
    # on some machines, and would be a limit that kernels can beat.
    totals = np.zeros(pieces, np.int64)
    address = words.ctypes.data
    stream = words.size // _WORDS // (pieces * _STREAMS)
    for piece in numba.prange(pieces):
        total = 0
        for line in range(stream):
            for k in range(_STREAMS):
                first = ((np.int64(piece) * _STREAMS + k) * stream + line) * _WORDS
                ask_soon(address + first * 8 + _AHEAD, LINE)
                values = pointer_at(address + first * 8, np.int64(0))
                for i in range(_WORDS):
                    total += values[i]
        totals[piece] = total
    rest = words[stream * pieces * _STREAMS * _WORDS :]
    return int(totals.sum() + rest.sum())


def _store_lines(words: Any, pattern: int, pieces: int) -> None:
    lines = words.size // _WORDS
    address = words.ctypes.data
    for piece in numba.prange(pieces):
        first = np.int64(piece) * lines // pieces
        end = (np.int64(piece) + 1) * lines // pieces
        for line in range(first, end):
            stream_line(np.int64(address + line * LINE), pattern)
        fence()


_read: Any = numba.njit(parallel=True, nogil=True)(_read_words)
_store: Any = numba.njit(parallel=True, nogil=True)(_store_lines)
