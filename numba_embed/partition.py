"""Which core owns which rows: exact, for tables of up to 2**64 - 1 rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from numba_embed.errors import EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.limits import counts_size, max_embedding_dim
from numba_embed.scalars import MAX_ROWS, check_integer, shown

__all__ = [
    "MAX_LISTED_CORES",
    "SPLITS",
    "CorePartition",
    "IntArray",
    "Split",
    "counts_size",
    "max_embedding_dim",
    "partition_rows",
]

Split = Literal["counts_size", "balanced"]

SPLITS: tuple[Split, ...] = ("counts_size", "balanced")
"""The two ways to share rows among cores: the documented one and that of newer tilings."""

MAX_LISTED_CORES = 2**28
"""Largest ``core_num`` for which arrays with an entry per core are built (2 GiB of int64)."""

IntArray = NDArray[np.int64] | NDArray[np.uint64]
"""int64 wherever that holds every value, else uint64."""

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CorePartition:
    """The rows of a table, shared among cores in consecutive blocks.

    It holds three values whatever `core_num` is; what has an entry per core is computed on request.

    Parameters
    ----------
    num_weights : int
        Rows of the table, V, in ``[0, 2**64 - 1]``.
    core_num : int
        Cores that share them, in ``[1, 2**64 - 1]``.
    split : {"counts_size", "balanced"}
        ``"counts_size"``: every core owns ``V // core_num`` rows, the last one also the remainder.
        ``"balanced"``: the first ``V % core_num`` cores own one row more than the others.

    Raises
    ------
    EmbedTypeError
        If `num_weights` or `core_num` is not an integer (a bool is none), or `split` is no string.
    EmbedValueError
        If one of them lies outside its range, or `split` is not one of the two names.
    """

    num_weights: int
    core_num: int
    split: Split = "counts_size"

    def __post_init__(self) -> None:
        # The usual arguments pass at once: a partition is made on every functional call.
        if (
            type(self.num_weights) is int
            and type(self.core_num) is int
            and 0 <= self.num_weights <= MAX_ROWS
            and 1 <= self.core_num <= MAX_ROWS
            and isinstance(self.split, str)
            and self.split in SPLITS
        ):
            return
        rows = check_integer("num_weights", self.num_weights, 0)
        cores = check_integer("core_num", self.core_num, 1)
        if not isinstance(self.split, str):
            raise EmbedTypeError(f"split must be one of {SPLITS}, got {shown(self.split)}")
        if self.split not in SPLITS:
            raise EmbedValueError(f"split must be one of {SPLITS}, got {shown(self.split)}")
        object.__setattr__(self, "num_weights", rows)
        object.__setattr__(self, "core_num", cores)

    @property
    def counts_size(self) -> int:
        """Rows of the largest share: the entries of one core's frequency buffer. O(1)."""
        quotient, remainder = divmod(self.num_weights, self.core_num)
        if self.split == "balanced":
            return quotient + (remainder > 0)
        return quotient + remainder

    @property
    def row_starts(self) -> IntArray:
        """First row of every core, then `num_weights`: shape ``(core_num + 1,)``, fresh each time.

        int64, or uint64 for tables of 2**63 rows and more. O(core_num) time and memory.

        Raises
        ------
        EmbedValueError
            If `core_num` is above ``MAX_LISTED_CORES``.
        """
        if self.core_num > MAX_LISTED_CORES:
            raise EmbedValueError(
                f"core_num must be at most {MAX_LISTED_CORES} to list the rows of every core, "
                f"got {self.core_num}"
            )
        dtype = np.int64 if self.num_weights <= _INT64_MAX else np.uint64
        quotient, remainder = divmod(self.num_weights, self.core_num)
        cores = np.arange(self.core_num + 1, dtype=dtype)
        starts: IntArray = cores * dtype(quotient)
        if self.split == "balanced":
            np.minimum(cores, dtype(remainder), out=cores)
            starts += cores
        starts[-1] = self.num_weights
        return starts

    @property
    def rows_per_core(self) -> IntArray:
        """Rows that every core owns: shape ``(core_num,)``, dtype and errors as `row_starts`."""
        shares: IntArray = np.diff(self.row_starts)
        return shares

    def rows_of(self, core: int) -> range:
        """Return the rows that one core owns. O(1).

        Parameters
        ----------
        core : int
            In ``[0, core_num)``.

        Returns
        -------
        range

        Raises
        ------
        EmbedTypeError
            If `core` is not an integer.
        EmbedIndexError
            If `core` lies outside ``[0, core_num)``.
        """
        try:
            core = check_integer("core", core, 0, self.core_num - 1)
        except EmbedValueError as error:
            raise EmbedIndexError(str(error)) from None
        quotient, remainder = divmod(self.num_weights, self.core_num)
        if self.split == "balanced":
            start = core * quotient + min(core, remainder)
            return range(start, start + quotient + (core < remainder))
        start = core * quotient
        last = core == self.core_num - 1
        return range(start, self.num_weights if last else start + quotient)

    @overload
    def core_of(self, rows: int | np.integer[Any]) -> int: ...
    @overload
    def core_of(self, rows: NDArray[Any] | Sequence[Any]) -> IntArray: ...
    def core_of(self, rows: ArrayLike) -> int | IntArray:
        """Return the core that owns each row.

        Parameters
        ----------
        rows : int or array_like of integers
            Row numbers in ``[0, num_weights)``, any shape.

        Returns
        -------
        int or ndarray
            An int for a scalar; else the cores in the shape of `rows`, int64 (uint64 if `core_num`
            is above 2**63). Exact over the whole 64-bit range. O(rows.size).

        Raises
        ------
        EmbedTypeError
            If `rows` does not consist of integers.
        EmbedIndexError
            If a row lies outside ``[0, num_weights)``; the first one in C order is named.
        """
        if isinstance(rows, (int, np.integer, np.bool_)):
            try:
                row = check_integer("rows", rows, 0, self.num_weights - 1)
            except EmbedValueError:
                raise self._outside(rows) from None
            return self._core_of_row(row)
        array = self._checked_rows(rows)
        if array.ndim == 0:
            return self._core_of_row(int(array))
        dtype = np.int64 if self.num_weights <= _INT64_MAX else np.uint64
        array = array.astype(dtype)
        quotient, remainder = divmod(self.num_weights, self.core_num)
        cores: NDArray[Any]
        if self.split == "balanced" and remainder:
            # Rows from `wide` on belong to cores that own `quotient` rows; with a quotient of 0
            # there is no such row, and any divisor will do.
            wide = remainder * (quotient + 1)
            cores = array // dtype(quotient + 1)
            late = array >= dtype(wide)
            cores[late] = dtype(remainder) + (array[late] - dtype(wide)) // dtype(quotient or 1)
        elif quotient:
            cores = np.minimum(array // dtype(quotient), dtype(self.core_num - 1))
        else:
            cores = np.full(array.shape, self.core_num - 1, dtype=np.uint64)
        result_dtype = np.int64 if self.core_num <= _INT64_MAX + 1 else np.uint64
        cores = cores.astype(result_dtype, copy=False)
        return cores

    def _core_of_row(self, row: int) -> int:
        quotient, remainder = divmod(self.num_weights, self.core_num)
        if self.split == "balanced":
            wide = remainder * (quotient + 1)
            if row < wide:
                return row // (quotient + 1)
            return remainder + (row - wide) // quotient
        return min(row // quotient, self.core_num - 1) if quotient else self.core_num - 1

    def _checked_rows(self, rows: ArrayLike) -> NDArray[Any]:
        try:
            array = np.asarray(rows)
        except ValueError:
            raise EmbedTypeError("rows must be an array of integers, got a ragged one") from None
        if array.dtype.kind not in "iu":
            if array.size == 0 and not isinstance(rows, np.ndarray):
                return array.astype(np.int64)
            # Integers that share no 64-bit dtype arrive here as floats or objects.
            values = np.asarray(rows, dtype=object).ravel()
            if isinstance(rows, np.ndarray) or any(type(value) is not int for value in values):
                raise EmbedTypeError(f"rows must be integers, got dtype {array.dtype}")
            raise self._outside(next(v for v in values if not 0 <= v < self.num_weights))
        if array.size and (array.min() < 0 or int(array.max()) >= self.num_weights):
            flat = array.ravel()
            outside = flat < 0
            if int(array.max()) >= self.num_weights:
                outside |= flat >= self.num_weights
            raise self._outside(flat[np.argmax(outside)])
        return array

    def _outside(self, row: Any) -> EmbedIndexError:
        return EmbedIndexError(f"rows must lie in [0, {self.num_weights}), got {shown(int(row))}")


def partition_rows(num_weights: int, core_num: int, split: Split = "counts_size") -> CorePartition:
    """Share the rows of a table among cores. O(1) time and memory, however many cores.

    Parameters
    ----------
    num_weights, core_num, split : as there
        See `CorePartition`, which also says how the two splits differ.

    Returns
    -------
    CorePartition

    Raises
    ------
    EmbedTypeError, EmbedValueError
        As `CorePartition`.

    Examples
    --------
    >>> partition_rows(10, 4).rows_per_core
    array([2, 2, 2, 4])
    >>> partition_rows(10, 4, "balanced").rows_per_core
    array([3, 3, 2, 2])
    """
    return CorePartition(num_weights, core_num, split)
