"""Arrays of any layout, read piece by piece: for files that are mapped and larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt


def in_pieces(array: npt.NDArray[Any], size: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the elements in C order, at most ``size`` at a time, each piece 1-d and native.

    Any strides and byte order; O(size) memory. A piece is valid until the next one is asked for.
    """
    if array.size == 0:
        return
    walk = np.nditer(
        [array],
        flags=["external_loop", "buffered"],
        op_flags=[["readonly", "nbo", "aligned"]],
        order="C",
        buffersize=size,
    )
    for item in walk:
        found: npt.NDArray[Any] = np.asarray(item)
        # What needs no copy comes in one piece, whatever the size of the buffer.
        for start in range(0, found.size, size):
            yield found[start : start + size]
