"""Exact answers about memory: whether an output overlaps an operand, or itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import address_of

MAX_WORK = 10_000_000
"""Bound on NumPy's exact search, whose cost can grow exponentially with contrived strides."""


def share_memory(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether any byte belongs to both arrays; interleaved views may well share none.

    Raises
    ------
    numpy.exceptions.TooHardError
        If the strides are so contrived that the question stays open after ``MAX_WORK`` steps.
    """
    if one.flags.c_contiguous and other.flags.c_contiguous:
        first, second = address_of(one), address_of(other)
        return max(first, second) < min(first + one.nbytes, second + other.nbytes)
    if not np.may_share_memory(one, other):
        return False
    return bool(np.shares_memory(one, other, max_work=MAX_WORK))  # type: ignore[arg-type]


def overlaps_itself(array: npt.NDArray[Any]) -> bool:
    """Return whether two elements of a 2-d array share a byte.

    O(1) for nested dimensions, which all ordinary views have; else O(rows or columns).
    """
    if array.flags.c_contiguous:
        return False
    dims = [
        (abs(stride), size)
        for stride, size in zip(array.strides, array.shape, strict=True)
        if size > 1
    ]
    if array.size < 2 or not dims:
        return False
    dims.sort()
    inner, inner_size = dims[0]
    if inner < array.itemsize:
        return True
    if len(dims) == 1:
        return False
    outer, outer_size = dims[1]
    reach = inner * (inner_size - 1)
    if outer >= reach + array.itemsize:
        return False
    # Two elements differ by i outer and j inner steps: is some i * outer close to some j * inner?
    most = min(outer_size - 1, (reach + array.itemsize) // outer)
    for first in range(1, most + 1, 1 << 20):
        distance = np.arange(first, min(first + (1 << 20), most + 1), dtype=np.int64) * outer
        steps = distance // inner
        near = (distance - steps * inner < array.itemsize) & (steps < inner_size)
        following = ((steps + 1) * inner - distance < array.itemsize) & (steps + 1 < inner_size)
        if bool((near | following).any()):
            return True
    return False
