"""How the rows of all cores are cut into buckets, the unit in which positions are put in order."""

from __future__ import annotations

from dataclasses import dataclass

from numba_embed.machine import cache_sizes

MIN_ROWS, MAX_ROWS = 256, 1 << 16
"""Bounds of `core_rows` and `most_buckets`, whatever the caches."""


def core_rows() -> int:
    """Return the rows of a default core, and of a bucket: a power of two.

    Their uint32 frequencies stay in a first-level cache (4096 rows in one of 32 KiB).
    """
    return _power(cache_sizes().resident // 4)


def most_buckets() -> int:
    """Return about how many buckets' int64 write positions stay in a first-level cache.

    Up to so many rows every row is its own bucket: one pass orders the positions completely.
    """
    return _power(cache_sizes().resident // 8)


def _power(size: int) -> int:
    """Return the largest power of two up to ``size``, within the bounds."""
    return 1 << (max(MIN_ROWS, min(MAX_ROWS, size)).bit_length() - 1)


EXACT_ROWS = 1 << 50
"""Rows below this are sent to their buckets exactly; the kernels divide in float64."""


@dataclass(frozen=True)
class Buckets:
    """How rows are cut into buckets: whole cores, slices of a core, or groups of cores.

    Rows below ``last_start`` (all cores but the last) come in units of ``outer_rows`` rows, each
    cut into ``slices`` buckets of ``width`` rows; the last core's rows make buckets of
    ``last_width`` rows, numbered from ``last_base`` on.
    """

    core_rows: int
    last_start: int
    outer_rows: int
    slices: int
    width: int
    last_base: int
    last_width: int
    count: int

    @property
    def largest(self) -> int:
        """Rows of the largest bucket."""
        return max(self.width, self.last_width)


def cut_buckets(num_weights: int, core_num: int) -> Buckets:
    """Cut the rows into buckets for ``core_num`` cores of the documented split. O(1).

    A core that is too large for a bucket is cut into slices, small cores are grouped, and the last
    core, which owns the remainder, is cut by itself: V = 100 on 64 cores leaves it 37 rows.
    """
    target = 1
    if num_weights > most_buckets():
        target = max(core_rows(), -(-num_weights // most_buckets()))
    owned = num_weights // core_num
    if num_weights > EXACT_ROWS:
        # A row near a cut may be sent to the bucket beside its own. The order survives that, since
        # larger rows never go to smaller buckets and buckets so wide are sorted by comparing, as
        # long as all buckets are wide and no row lies so near to the end of the last one.
        count = -(-num_weights // target)
        width = -(-(num_weights + (num_weights >> 40)) // count)
        return Buckets(owned, 0, 1, 1, 1, 0, width, count)
    last_start = (core_num - 1) * owned
    last_rows = num_weights - last_start
    slices = 1
    if owned > target:
        slices = -(-owned // target)
        outer_rows, width = owned, -(-owned // slices)
    else:
        outer_rows = width = owned * max(1, target // owned) if owned else 1
    last_base = -(-last_start // outer_rows) * slices
    last_width = max(1, min(target, last_rows))
    count = last_base + -(-last_rows // last_width)
    return Buckets(owned, last_start, outer_rows, slices, width, last_base, last_width, count)
