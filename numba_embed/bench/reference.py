"""The independent check: sums in float64 by another way, and how far a result may be from them.

NumPy alone: the positions are sorted by row and summed run by run. Not a timed part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.bench.cases import Case, Operands

Array = npt.NDArray[Any]

ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff: how much of a number one rounding can move it."""

TINY = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""The smallest positive number."""

_ENTRIES = 1 << 22
"""Entries of the largest float64 array made on the way."""


class WrongResultError(Exception):
    """The library's own result is wrong: nothing that it takes to compute it is worth timing."""


class Reference:
    """The expected rows of a case.

    Parameters
    ----------
    case, operands
        The case and what its ``make`` returned. O(N log N + N D) time, O(N + R D) memory for R
        distinct rows.
    """

    def __init__(self, case: Case, operands: Operands) -> None:
        ids = operands.indices.astype(np.int64)
        kept = np.arange(ids.size)
        if case.padding_idx is not None:
            kept = kept[ids != case.padding_idx]
        kept = kept[np.argsort(ids[kept], kind="stable")]
        rows, starts, counts = np.unique(ids[kept], return_index=True, return_counts=True)
        self.case = case
        self.rows, self.counts = rows, counts
        self.sums: npt.NDArray[np.float64] = np.zeros((rows.size, case.D))
        self.sizes: npt.NDArray[np.float64] = np.zeros((rows.size, case.D))
        """The sums of the absolute values, by which errors are measured."""
        if not rows.size:
            return
        width = max(1, _ENTRIES // kept.size)
        for first in range(0, case.D, width):
            columns = slice(first, first + width)
            terms = operands.grad[kept, columns].astype(np.float64)
            np.add.reduceat(terms, starts, axis=0, out=self.sums[:, columns])
            np.add.reduceat(np.abs(terms), starts, axis=0, out=self.sizes[:, columns])
        if case.scale:
            self.sums /= counts[:, None]
            self.sizes /= counts[:, None]

    def problem(self, out: Any, *, exact: bool, base: float = 0.0) -> str | None:
        """Say what is wrong with a result, or None if it is right.

        Parameters
        ----------
        out
            The result, (V, D), of the case's dtype.
        exact
            Hold it to one rounding of a float64 sum. Otherwise each addition may round in the
            output's own format. The bound is then tight enough to miss no lost contribution: a sum
            of values of random sign lies within a few roundings of the sum of their sizes.
            Values that are all the same may be off by as much at each addition.
        base
            What every entry held before, for a case that accumulates.
        """
        case = self.case
        if not isinstance(out, np.ndarray) or out.shape != (case.V, case.D):
            return f"shape {np.shape(out)}, expected {(case.V, case.D)}"
        if out.dtype != case.numpy_dtype:
            return f"dtype {out.dtype}, expected {case.numpy_dtype}"
        unit, tiny = ROUNDING[case.dtype], TINY[case.dtype]
        height = max(1, _ENTRIES // max(1, case.D))
        for first in range(0, self.rows.size, height):
            part = slice(first, first + height)
            want = self.sums[part] + base
            sizes = self.sizes[part] + abs(base)
            additions = 2.0**-52 * self.counts[part, None] * sizes
            error = np.abs(out[self.rows[part]].astype(np.float64) - want)
            if exact:
                bound = unit * np.abs(want) + additions + tiny
            else:
                roundings = self.counts[part, None] if case.layout == "broadcast" else 0
                bound = (16 + roundings) * unit * sizes + additions + tiny
            wrong = np.argwhere(~(error <= bound))  # a NaN is wrong, too
            if len(wrong):
                row, column = wrong[0]
                at = self.rows[first + row], column
                return f"row {at[0]}, column {at[1]}: {out[at]}, expected {want[row, column]}"
        return self._untouched_problem(out, base)

    def _untouched_problem(self, out: Array, base: float) -> str | None:
        """Say which row that nothing was added to does not hold ``base``."""
        touched = np.zeros(self.case.V, dtype=bool)
        touched[self.rows] = True
        height = max(1, _ENTRIES // max(1, self.case.D))
        for first in range(0, self.case.V, height):
            part = out[first : first + height]
            wrong = (part != np.asarray(base, out.dtype)).any(axis=1) & ~touched[first:][:height]
            if wrong.any():
                return f"row {first + int(wrong.argmax())} should hold {base}: nothing was added"
        return None
