"""Output memory that is used again: a bounded pool of buffers, for calls that return fresh arrays.

Touching memory that comes fresh from the system costs a page fault for every page, several times
what the sums cost; memory that was used before is there already.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import address_of
from numba_embed.scalars import check_integer

ALIGNMENT = 64

SMALLEST = 1 << 16
"""Smaller arrays are not pooled: the allocator of the process uses their memory again by itself."""

SPARE = 4
"""A buffer serves requests down to its size less one part in so many."""

Bytes = npt.NDArray[np.uint8]


class _Loan:
    """The owner that NumPy sees behind a lent array; when the last view is gone, so is this."""

    __slots__ = ("__array_interface__", "_buffer", "_pool")

    def __init__(self, pool: OutputPool, buffer: Bytes, nbytes: int) -> None:
        self._pool, self._buffer = pool, buffer
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address_of(buffer), False),
        }

    def __del__(self) -> None:
        self._pool._take_back(self._buffer)


class OutputPool:
    """Memory for outputs, which comes back by itself when nothing refers to an output any more.

    Parameters
    ----------
    limit_bytes
        Most bytes of idle memory to keep. What exceeds it goes back to the system at once, the
        memory that has been idle longest first. Memory in use is not counted: it is the caller's.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        If ``limit_bytes`` is no integer >= 0.

    Notes
    -----
    An array from the pool, and every view of it (slices, memoryviews, DLPack capsules, torch
    tensors), keeps its memory from being lent again. Safe from several threads; a forked child
    starts with an empty pool. A lent array holds whatever its memory held before.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = check_integer("limit_bytes", limit_bytes, 0, expected="an integer >= 0")
        self._idle: list[Bytes] = []  # the one that came back last stands last
        self._idle_nbytes = 0
        self._coming_back: deque[Bytes] = deque()
        self._lock = threading.Lock()
        _pools.add(self)

    @property
    def limit_bytes(self) -> int:
        """Most bytes of idle memory that are kept."""
        return self._limit

    @property
    def idle_nbytes(self) -> int:
        """Bytes that wait to be lent."""
        return self._idle_nbytes

    def take(self, nbytes: int) -> Bytes:
        """Lend ``nbytes`` bytes of undefined content, uint8 (nbytes,), at a multiple of 64.

        O(number of idle buffers).

        Parameters
        ----------
        nbytes : int
            0 or more.

        Returns
        -------
        uint8 array of shape (nbytes,)

        Raises
        ------
        MemoryError
            If no idle buffer serves and the system has no such memory.
        """
        if nbytes < SMALLEST:
            return _allocate(nbytes)
        with self._lock:
            buffer = self._pick(nbytes)
        self._settle()
        if buffer is None:
            buffer = _allocate(nbytes)
        lent: Bytes = np.asarray(_Loan(self, buffer, nbytes))
        return lent

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Lend a C-contiguous array of undefined content, as `take` does.

        Parameters
        ----------
        shape : tuple of int
            Its shape.
        dtype : dtype_like
            Its dtype.

        Returns
        -------
        array of shape ``shape``

        Raises
        ------
        MemoryError
            As `take`.
        """
        dtype = np.dtype(dtype)
        return self.take(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)

    def release(self) -> int:
        """Give all idle memory back to the system. Returns its bytes. O(number of idle buffers)."""
        with self._lock:
            freed, self._idle, self._idle_nbytes = self._idle_nbytes, [], 0
        self._settle()
        return freed

    def close(self) -> None:
        """Give all idle memory back, and from now on keep none."""
        self._limit = 0
        self.release()

    @contextmanager
    def active(self) -> Iterator[OutputPool]:
        """Make this the pool from which calls in this thread (or task) draw fresh outputs."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def __repr__(self) -> str:
        return f"OutputPool({self._idle_nbytes} of at most {self._limit} bytes idle)"

    def _pick(self, nbytes: int) -> Bytes | None:
        """Take the smallest idle buffer that serves; of equal ones the one that came last."""
        best = None
        for place, buffer in enumerate(self._idle):
            if nbytes <= buffer.size <= nbytes + nbytes // SPARE and (
                best is None or buffer.size <= self._idle[best].size
            ):
                best = place
        if best is None:
            return None
        self._idle_nbytes -= self._idle[best].size
        return self._idle.pop(best)

    def _take_back(self, buffer: Bytes) -> None:
        # This may run at any point of any thread, in the middle of another method of this very
        # pool too: the garbage collector decides. So it never waits for the lock.
        self._coming_back.append(buffer)
        self._settle()

    def _settle(self) -> None:
        """Shelve what has come back, unless the lock is held: then its holder does it, later."""
        while self._coming_back and self._lock.acquire(blocking=False):
            freed = []  # freeing takes time: outside the lock
            try:
                while self._coming_back:
                    buffer = self._coming_back.popleft()
                    self._idle.append(buffer)
                    self._idle_nbytes += buffer.size
                while self._idle_nbytes > self._limit:
                    freed.append(self._idle.pop(0))
                    self._idle_nbytes -= freed[-1].size
            finally:
                self._lock.release()
            del freed

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # a thread that is not here may have held the old one
        self._idle, self._idle_nbytes = [], 0
        self._coming_back.clear()


def _allocate(nbytes: int) -> Bytes:
    """Return fresh aligned memory. NumPy asks the system for huge pages where there are many."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    offset = -address_of(memory) % ALIGNMENT
    return memory[offset : offset + nbytes]


_pools: weakref.WeakSet[OutputPool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_current: ContextVar[OutputPool | None] = ContextVar("numba_embed_output_pool", default=None)

current = _current.get
"""Return the pool from which fresh outputs are to be drawn here, or None. Costs next to nothing."""


@contextmanager
def output_pool(limit_bytes: int) -> Iterator[OutputPool]:
    """Draw the fresh outputs of calls in this thread (or task) from a pool, while the block lasts.

    Parameters
    ----------
    limit_bytes : int
        Most bytes of idle memory to keep for the next calls.

    Yields
    ------
    OutputPool
        The pool. Blocks nest: the innermost pool serves. At the end of the block its idle memory
        goes back to the system; arrays that are still in use stay valid.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        If ``limit_bytes`` is no integer >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> from numba_embed import embedding_dense_backward
    >>> grad, indices = np.ones((3, 2), np.float32), np.array([1, 2, 2])
    >>> with output_pool(1 << 30):
    ...     for step in range(2):
    ...         table_grad = embedding_dense_backward(grad, indices, 4)
    >>> table_grad[2]
    array([2., 2.], dtype=float32)
    """
    pool = OutputPool(limit_bytes)
    try:
        with pool.active():
            yield pool
    finally:
        pool.close()
