"""The address of an array's memory, fast: asking NumPy for it takes longer than a small call."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

_DATA_OFFSET = object.__basicsize__
"""Where an array object keeps its data pointer: first behind the object header. NumPy's binary
interface fixes that: its C macros read the pointer from there."""

_read = ctypes.c_size_t.from_address


def _read_pointer(array: npt.NDArray[Any]) -> int:
    return _read(id(array) + _DATA_OFFSET).value


def _ask_numpy(array: npt.NDArray[Any]) -> int:
    return array.ctypes.data


def _layout_holds() -> bool:
    """Whether arrays of this interpreter are laid out as expected (a debug build may differ)."""
    whole = np.empty(16, np.uint8)
    return all(_read_pointer(array) == _ask_numpy(array) for array in (whole, whole[3:]))


OBJECT_OFFSET = _DATA_OFFSET if _layout_holds() else 0
"""Where a kernel finds the data pointer behind an array's `id`; 0 where it must not look."""

address_of = _read_pointer if _layout_holds() else _ask_numpy
"""Return the address of an array's first element. The array must be kept alive by the caller."""
