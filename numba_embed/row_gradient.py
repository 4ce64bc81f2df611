"""The gradient of the looked-up rows alone: O(N) time and memory, however large the table."""

from __future__ import annotations

import operator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed import validation as check
from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.execute_rows import put_rows
from numba_embed.formats import Format
from numba_embed.runtime import threads_for
from numba_embed.scalars import shown
from numba_embed.sizing import THREAD_BYTES

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class RowGradient:
    """The gradient of a table of V rows, of which all but the listed ones are zero.

    Attributes
    ----------
    rows
        int64, (R,): the rows that were looked up, ascending, each once. Read-only.
    values
        (R, D), C-contiguous: their gradients, of one of the gradient dtypes.
    num_weights
        V.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        If the rows are not ascending integers in [0, V), or the values do not fit them. O(R).
    """

    rows: npt.NDArray[np.int64]
    values: Array
    num_weights: int

    def __post_init__(self) -> None:
        num_weights = check.checked_num_weights(self.num_weights)
        rows, values = check.as_array("rows", self.rows), check.as_array("values", self.values)
        check.checked_format("values", values.dtype)
        if rows.dtype.kind not in "iu" or (rows.ndim == 1 and rows.dtype == np.uint64):
            raise EmbedTypeError(f"rows must be integers that fit int64, got {rows.dtype}")
        if rows.ndim != 1 or values.ndim != 2 or len(rows) != len(values):
            raise EmbedValueError(
                f"rows and values must have shapes (R,) and (R, D), got {rows.shape} and "
                f"{values.shape}"
            )
        if rows.size and (rows[0] < 0 or rows[-1] >= num_weights or np.any(rows[1:] <= rows[:-1])):
            raise EmbedValueError(
                f"rows must ascend, each once, within [0, {num_weights}), got {_first_wrong(rows)}"
            )
        native = values.dtype.newbyteorder("=") if values.dtype.kind == "f" else values.dtype
        values = np.ascontiguousarray(values, native)
        # Rows of its own: nobody's later write may send a value outside of a table.
        self._set(np.array(rows, np.int64), values, num_weights)

    def _set(self, rows: npt.NDArray[np.int64], values: Array, num_weights: int) -> None:
        rows.flags.writeable = False
        self.__dict__.update(rows=rows, values=values, num_weights=num_weights)

    @classmethod
    def _of(cls, rows: npt.NDArray[np.int64], values: Array, num_weights: int) -> RowGradient:
        """Make one of what the kernels gave, without looking at every row again."""
        made = object.__new__(cls)
        made._set(rows, values, num_weights)
        return made

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the dense gradient, (V, D)."""
        return self.num_weights, self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of rows and values."""
        return self.rows.nbytes + self.values.nbytes

    def __repr__(self) -> str:
        return (
            f"RowGradient({len(self.rows)} of {self.num_weights} rows, "
            f"D = {self.values.shape[1]}, {self.dtype.name})"
        )

    def to_dense(self, out: Any = None, *, num_threads: int | None = None) -> Any:
        """Write the dense gradient: these rows, and zero in all others. O(V D).

        Parameters
        ----------
        out : array, shape (V, D), optional
            Where to: any of the gradient dtypes (another one than the values' rounds them again),
            any strides, not overlapping. By default a fresh array of the values' dtype.
        num_threads : int, optional
            Threads to use; by default what the work repays.

        Returns
        -------
        array, shape (V, D)
            ``out`` itself where given.

        Raises
        ------
        EmbedTypeError, EmbedValueError
            If ``out`` has another dtype or shape, is read-only or overlaps.
        """
        threads = check.checked_num_threads(num_threads)
        if out is None:
            target = np.zeros(self.shape, self.dtype)
            form = self._format
        else:
            target, form = self._checked("out", out)
            target[...] = 0
        self._put(target, form, None, threads)
        return target if out is None else out

    def add_to(self, weight: Any, alpha: float = 1.0, *, num_threads: int | None = None) -> Any:
        """Add ``alpha`` times the gradient to a table in place, touching the listed rows alone.

        ``weight[rows] += alpha * values`` in float64, with one rounding to the table's dtype: with
        ``alpha = -learning_rate`` a step of gradient descent. O(R D), in parallel.

        Parameters
        ----------
        weight : array, shape (V, D)
            The table: any of the gradient dtypes, any strides, not overlapping itself or this
            gradient. A CPU tensor works as it is, a parameter as ``weight.detach()``.
        alpha : float, default 1.0
            The factor.
        num_threads : int, optional
            Threads to use; by default what the work repays. Changes no bit.

        Returns
        -------
        array, shape (V, D)
            ``weight`` itself.

        Raises
        ------
        EmbedTypeError, EmbedValueError
            If an argument does not fit; nothing is written then.
        """
        factor = _checked_factor(alpha)
        threads = check.checked_num_threads(num_threads)
        target, form = self._checked("weight", weight)
        self._put(target, form, factor, threads)
        return weight

    @property
    def _format(self) -> Format:
        return check.checked_format("values", self.dtype)

    def _checked(self, name: str, target: Any) -> tuple[Array, Format]:
        """Return what is to be written to, and its format."""
        operands = (("values", self.values), ("rows", self.rows))
        array = check.checked_target(name, target, self.shape, operands)
        return array, check.checked_format(name, array.dtype)

    def _put(self, target: Array, form: Format, alpha: float | None, threads: int | None) -> None:
        if threads is None:
            moved = self.nbytes + 2 * self.values.size * form.itemsize
            threads = threads_for(moved, THREAD_BYTES)
        put_rows(self.rows, self.values, self._format, target, form, alpha, threads)


def _checked_factor(alpha: Any) -> float:
    """Return a real number as a float."""
    if isinstance(alpha, (float, np.floating)):
        return float(alpha)
    if not isinstance(alpha, (bool, np.bool_)):
        with suppress(Exception):  # a foreign __index__ may raise anything
            return float(operator.index(alpha))
    raise EmbedTypeError(
        f"alpha must be a real number, got {shown(alpha)} of type {type(alpha).__name__}"
    )


def _first_wrong(rows: Array) -> str:
    """Say which of the rows is out of order or out of range, first of all."""
    falls = np.flatnonzero(rows[1:] <= rows[:-1])
    if rows[0] < 0:
        return f"rows[0] = {rows[0]}"
    if falls.size:
        k = int(falls[0]) + 1
        return f"rows[{k}] = {rows[k]} after {rows[k - 1]}"
    return f"rows[{rows.size - 1}] = {rows[-1]}"
