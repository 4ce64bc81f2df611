"""Small row gradients: the shortest way to the kernels, as `numba_embed.small` for dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import address_of
from numba_embed.execute import (
    BAD,
    INDEX_LIKE,
    MORE,
    STREAMING,
    WORKSPACE,
    program_of,
)
from numba_embed.execute_rows import KERNELS, streamed_bytes
from numba_embed.kernels.compact import HEADS, ROWS
from numba_embed.kernels.count import NONE_BAD
from numba_embed.kernels.layout import call_word
from numba_embed.kernels.phases import run_phases
from numba_embed.plan import ALIGNMENT, BackwardPlan
from numba_embed.row_gradient import RowGradient
from numba_embed.small import reads_directly
from numba_embed.validation import bad_index

Array = npt.NDArray[Any]

_LISTING = call_word("grad_strides") + 7
"""Where the words of `numba_embed.kernels.compact` lie: behind the call record."""


class SmallRows:
    """Runs a row plan of one thread on arrays of exactly its shapes and dtypes.

    Parameters
    ----------
    plan
        A plan that `suits`.
    index_dtype
        Of the indices.
    """

    __slots__ = ("_count", "_launch", "_plan", "_records", "_sum")

    def __init__(self, plan: BackwardPlan, index_dtype: np.dtype[Any]) -> None:
        self._plan = plan
        like = INDEX_LIKE[index_dtype]
        self._count = program_of(plan, "count", like, KERNELS)
        self._sum = program_of(plan, "sum", like, KERNELS)
        self._launch = run_phases.entry
        self._records: list[tuple[Any, int]] = []

    @staticmethod
    def suits(plan: BackwardPlan, grad_dtype: np.dtype[Any], index_dtype: np.dtype[Any]) -> bool:
        """Whether calls of a plan are small, and such that kernels can read the arrays directly."""
        values = plan.num_positions * plan.embedding_dim * plan.out_format.itemsize
        return bool(
            reads_directly(plan, grad_dtype, index_dtype)
            and not plan.order.by_position
            and values < streamed_bytes()
        )

    def __call__(self, grad: Array, indices: Array) -> RowGradient | None:
        """Return the result; or None where an array is not contiguous, aligned and writable.

        Raises
        ------
        EmbedIndexError, EmbedValueError
            For the first bad index in C order.
        """
        if not (grad.flags.carray and indices.flags.carray):
            return None
        plan, count, add = self._plan, self._count, self._sum
        scratch = np.empty(plan.workspace_nbytes, np.uint8)
        start = address_of(scratch)
        try:
            held = self._records.pop()  # a record serves one call at a time
        except IndexError:
            held = self._record()
        words, address = held
        words[WORKSPACE] = start + -start % ALIGNMENT
        self._launch(count.address, count.phases, 1, address, id(indices), 0, 0)
        bad = words[BAD]
        if bad != NONE_BAD:
            self._records.append(held)
            raise bad_index(indices, bad, plan.num_weights)
        num_rows = words[_LISTING + HEADS]
        rows: npt.NDArray[np.int64] = np.empty(num_rows, np.int64)
        values = np.empty((num_rows, plan.embedding_dim), plan.out_dtype)
        words[_LISTING + ROWS] = address_of(rows)
        self._launch(add.address, add.phases, 1, address, 0, id(grad), id(values))
        self._records.append(held)
        return RowGradient._of(rows, values, plan.num_weights)

    def _record(self) -> tuple[Any, int]:
        """Return a call record with its listing behind it, as a sequence of int; its address."""
        record: Any = np.zeros(_LISTING + HEADS + 1, np.int64)
        record[:_LISTING] = self._plan.call_template
        record[STREAMING] = 0
        record[MORE] = address_of(record) + 8 * _LISTING
        return memoryview(record), address_of(record)
