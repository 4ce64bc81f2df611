"""Memory for a result that nobody has given: recycled, or from the system and zero already."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.plan import BackwardPlan

Array = npt.NDArray[Any]

_SYSTEM: Any = mmap
_PAGES = all(
    hasattr(mmap, name) for name in ("MAP_PRIVATE", "MAP_ANONYMOUS", "MADV_NOHUGEPAGE", "PAGESIZE")
)


def fresh_output(plan: BackwardPlan, dtype: Any = None) -> tuple[Array, bool]:
    """Return memory for the result of a plan, (V, D), and whether it is known to be zero.

    Small results are recycled memory. Large ones come from the system, which zeroes each page when
    it is first touched: the kernels leave rows alone that no index names. NumPy asks for huge
    pages, which is right where most are touched; where few are, they would be zeroed in vain.
    """
    dtype = plan.out_dtype if dtype is None else np.dtype(dtype)
    if not plan.fresh_zeroed:
        return np.empty(plan.out_shape, dtype), False
    if not (_PAGES and plan.few_pages):
        return np.zeros(plan.out_shape, dtype), True
    flags = _SYSTEM.MAP_PRIVATE | _SYSTEM.MAP_ANONYMOUS
    try:
        pages = _SYSTEM.mmap(-1, plan.out_nbytes, flags=flags)
    except OSError:  # NumPy says it as users expect
        return np.zeros(plan.out_shape, dtype), True
    with suppress(OSError):  # a kernel without huge pages has none to avoid
        pages.madvise(_SYSTEM.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(plan.out_shape), True
