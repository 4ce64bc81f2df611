"""What a call is given, from its sizes: threads, default cores, pieces of work.

None of it moves a bit of a result.
"""

from __future__ import annotations

from numba_embed.formats import Format
from numba_embed.kernels.layout import HUGE_PAGE
from numba_embed.machine import cache_sizes

MIN_CORE_ROWS, MAX_CORE_ROWS = 256, 1 << 16
"""Bounds of a default core's rows, whatever the caches."""

PIECES_PER_THREAD = 8
"""Row ranges per thread: enough to even out what a cost estimate misses."""

THREAD_BYTES = 1 << 18
"""By default a thread is used for each so many bytes to be moved; less does not repay a launch."""


def num_pieces(threads: int, rows: int) -> int:
    """Return how many ranges so many rows are cut into, which threads take by ticket."""
    return 1 if threads == 1 else max(1, min(PIECES_PER_THREAD * threads, rows))


def fresh_pieces(threads: int, address: int, nbytes: int) -> int:
    """Return the same for rows of so many bytes, > 0, at an address, fresh from the system.

    One piece more for each huge page. A virtual machine may have to wait for its host a hundred
    times as long for one page as for the next; a thread that waits holds up one range, and others
    do the rest.
    """
    pages = (address + nbytes - 1) // HUGE_PAGE - address // HUGE_PAGE + 1
    return 1 if threads == 1 else PIECES_PER_THREAD * threads + pages


def default_core_num(num_weights: int) -> int:
    """Return the number of cores whose uint32 frequency buffers would stay in a first-level cache.

    A power of two rows each: 4096 with a cache of 32 KiB.
    """
    fitting = max(MIN_CORE_ROWS, min(MAX_CORE_ROWS, cache_sizes().resident // 4))
    return max(1, -(-num_weights // (1 << (fitting.bit_length() - 1))))


def worthwhile_threads(n: int, v: int, d: int, grad: Format, out: Format, available: int) -> int:
    """Return how many of the available threads repay their launch, from the bytes to be moved."""
    nbytes = n * d * grad.itemsize + v * d * out.itemsize + 3 * 8 * n
    return max(1, min(available, nbytes // THREAD_BYTES))
