"""The number formats that gradients and outputs may have, and their spelling inside kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Format:
    """A floating point format.

    Attributes
    ----------
    name
        NumPy's name of the dtype.
    itemsize
        Bytes of an element.
    like
        A zero of the type that stands for the format inside kernels: Numba has no float16 or
        bfloat16 on the CPU, so uint16 is float16 and int16 is bfloat16 (bit patterns).
    """

    name: str
    itemsize: int
    like: np.generic

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        """Stay the one object of its name: formats are compared by identity."""
        return format_named, (self.name,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; for bfloat16 that of `ml_dtypes`.

        Raises
        ------
        ModuleNotFoundError
            If the format is bfloat16 and `ml_dtypes` is not installed.
        """
        return bfloat16_dtype() if self.name == "bfloat16" else np.dtype(self.name)


FLOAT16 = Format("float16", 2, np.uint16(0))
BFLOAT16 = Format("bfloat16", 2, np.int16(0))
FLOAT32 = Format("float32", 4, np.float32(0))
FLOAT64 = Format("float64", 8, np.float64(0))

_BY_DTYPE = {np.dtype(f.name): f for f in (FLOAT16, FLOAT32, FLOAT64)}
_BY_NAME = {f.name: f for f in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}

ACCEPTED = "float16, bfloat16, float32 or float64"


def format_of(dtype: np.dtype[Any]) -> Format | None:
    """Return the format of a dtype of either byte order, or None if it is none of the four."""
    found = _BY_DTYPE.get(dtype)
    if found is not None:
        return found
    if dtype.kind == "f":
        return _BY_DTYPE.get(dtype.newbyteorder("="))
    # ml_dtypes gives its bfloat16 the kind of raw bytes; its name and type tell it.
    if dtype.name == "bfloat16" and dtype.itemsize == 2 and dtype.names is None:
        return BFLOAT16
    return None


def format_named(name: str) -> Format | None:
    """Return the format of this name, or None. Needs no `ml_dtypes` for "bfloat16"."""
    return _BY_NAME.get(name)


def bfloat16_dtype() -> np.dtype[Any]:
    """Return the NumPy dtype of bfloat16.

    Raises
    ------
    ModuleNotFoundError
        If `ml_dtypes`, which defines it, is not installed.
    """
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a bfloat16 array needs the ml_dtypes package (pip install ml_dtypes)"
        ) from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
