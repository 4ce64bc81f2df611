"""How the rows of all cores are cut into buckets, the unit in which positions are put in order."""

from __future__ import annotations

from dataclasses import dataclass

CORE_ROWS = 4096
"""Rows of a default core, and of a bucket: their uint32 frequencies fit a first-level cache."""

DIRECT_ROWS = 2048
"""Up to so many rows every row is its own bucket: one pass orders the positions completely."""

MAX_BUCKETS = 2048
"""About the most buckets whose write positions stay in the cache while positions are sent."""

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
    if num_weights > DIRECT_ROWS:
        target = max(CORE_ROWS, -(-num_weights // MAX_BUCKETS))
    core_rows = num_weights // core_num
    if num_weights > EXACT_ROWS:
        # A row near a cut may be sent to the bucket beside its own. The order survives that, since
        # larger rows never go to smaller buckets and buckets so wide are sorted by comparing, as
        # long as all buckets are wide and no row lies so near to the end of the last one.
        count = -(-num_weights // target)
        width = -(-(num_weights + (num_weights >> 40)) // count)
        return Buckets(core_rows, 0, 1, 1, 1, 0, width, count)
    last_start = (core_num - 1) * core_rows
    last_rows = num_weights - last_start
    slices = 1
    if core_rows > target:
        slices = -(-core_rows // target)
        outer_rows, width = core_rows, -(-core_rows // slices)
    else:
        outer_rows = width = core_rows * max(1, target // core_rows) if core_rows else 1
    last_base = -(-last_start // outer_rows) * slices
    last_width = max(1, min(target, last_rows))
    count = last_base + -(-last_rows // last_width)
    return Buckets(core_rows, last_start, outer_rows, slices, width, last_base, last_width, count)
