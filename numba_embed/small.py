"""Small calls: the shortest way to the kernels for plain arrays and no options.

What a call of a few look-ups takes is all validation and dispatch. Here everything that shapes and
dtypes decide has been decided by an earlier call: what is left is memory for the result, a record
with three addresses, and one launch. The result is the same.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import OBJECT_OFFSET
from numba_embed.execute import (
    BAD,
    GRAD,
    INDEX_LIKE,
    INDICES,
    OBJECTS,
    OUT,
    SPARE_BYTES,
    Spare,
    program_of,
)
from numba_embed.kernels.count import NONE_BAD
from numba_embed.kernels.phases import run_phases
from numba_embed.plan import BackwardPlan
from numba_embed.validation import bad_index

Array = npt.NDArray[Any]

_write_addresses = struct.Struct("@4q").pack_into
assert (OBJECTS, INDICES, GRAD, OUT) == (0, 1, 2, 3), "what _write_addresses writes"


class SmallCall:
    """Runs a plan of one thread on arrays of exactly its shapes and dtypes.

    Parameters
    ----------
    plan
        A plan that `suits`.
    index_dtype
        Of the indices.
    """

    __slots__ = ("_dtype", "_launch", "_phases", "_plan", "_program", "_records", "_shape")

    def __init__(self, plan: BackwardPlan, index_dtype: np.dtype[Any]) -> None:
        self._plan = plan
        program = program_of(plan, "whole", INDEX_LIKE[index_dtype])
        self._program, self._phases = program.address, program.phases
        self._launch = run_phases.serial
        self._shape, self._dtype = plan.out_shape, plan.out_dtype
        self._records: list[tuple[Any, Any, int, Any]] = []

    @staticmethod
    def suits(plan: BackwardPlan, grad_dtype: np.dtype[Any], index_dtype: np.dtype[Any]) -> bool:
        """Whether calls of a plan are small, and such that kernels can read the arrays directly."""
        return bool(
            OBJECT_OFFSET
            and plan.threads == 1
            and plan.workspace_nbytes <= SPARE_BYTES
            and plan.out_nbytes
            and not plan.fresh_zeroed
            and grad_dtype.isnative
            and index_dtype in INDEX_LIKE
        )

    def __call__(self, grad: Array, indices: Array) -> Array | None:
        """Return the result, or None if one of the arrays is not contiguous, aligned and writable.

        Raises
        ------
        EmbedIndexError, EmbedValueError
            For the first bad index in C order.
        """
        if not (grad.flags.carray and indices.flags.carray):
            return None
        out = np.empty(self._shape, self._dtype)
        try:
            # A record serves one call at a time; what an interrupted call held is not used again.
            held = self._records.pop()
        except IndexError:
            held = self._record()
        record, words, address, _ = held
        _write_addresses(record, 0, OBJECT_OFFSET, id(indices), id(grad), id(out))
        self._launch(self._program, self._phases, 1, address)
        bad = words[BAD]
        self._records.append(held)
        if bad != NONE_BAD:
            raise bad_index(indices, bad, self._plan.num_weights)
        return out

    def _record(self) -> tuple[Any, Any, int, Any]:
        """Return a call record, the same as a sequence of int, its address, and its scratch."""
        spare = Spare.of(self._plan, np.empty(self._plan.workspace_nbytes, np.uint8))
        record: Any = spare.call
        return record, memoryview(record), spare.address, spare.scratch
