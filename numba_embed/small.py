"""Small calls: the shortest way to the kernels for plain arrays and no options.

What a call of a few look-ups takes is all validation and dispatch. Here everything that shapes and
dtypes decide has been decided by an earlier call: what is left is memory for the result, a record
with three addresses, and one launch. The result is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import OBJECT_OFFSET, address_of
from numba_embed.dense_plan import MOST_PLANS
from numba_embed.execute import BAD, INDEX_LIKE, SPARE_BYTES, program_of, take_spare
from numba_embed.kernels.count import NONE_BAD
from numba_embed.kernels.phases import run_phases
from numba_embed.plan import BackwardPlan
from numba_embed.validation import bad_index
from numba_embed.workspace import Workspace

Array = npt.NDArray[Any]


def remember(
    calls: dict[Any, Any],
    key: Any,
    plan: BackwardPlan,
    grad: Array,
    indices: Array,
    small: Any = None,
) -> None:
    """Note under ``key`` what runs calls like the one that has just ended, if they are small.

    ``small`` is the class that does, `SmallCall` or another like it.
    """
    small = SmallCall if small is None else small
    if len(calls) < MOST_PLANS and small.suits(plan, grad.dtype, indices.dtype):
        calls[key] = small(plan, indices.dtype)


def reads_directly(
    plan: BackwardPlan, grad_dtype: np.dtype[Any], index_dtype: np.dtype[Any]
) -> bool:
    """Whether a plan has one thread, and kernels can read contiguous operands as they are."""
    return bool(
        OBJECT_OFFSET and plan.threads == 1 and grad_dtype.isnative and index_dtype in INDEX_LIKE
    )


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
        self._launch = run_phases.entry
        self._shape, self._dtype = plan.out_shape, plan.out_dtype
        self._records = plan.small_records
        if not self._records:
            self._records.append(self._record())

    @staticmethod
    def suits(plan: BackwardPlan, grad_dtype: np.dtype[Any], index_dtype: np.dtype[Any]) -> bool:
        """Whether calls of a plan are small, and such that kernels can read the arrays directly."""
        return bool(
            reads_directly(plan, grad_dtype, index_dtype)
            and plan.workspace_nbytes <= SPARE_BYTES
            and plan.out_nbytes
            and not plan.fresh_zeroed
        )

    def __call__(self, grad: Array, indices: Array, out: Array | None) -> Array | None:
        """Return the result, in ``out`` if given; or None if that is for others to do.

        That is so where an array is not contiguous, aligned and writable, or where ``out`` has not
        the plan's shape and dtype or overlaps an operand.

        Raises
        ------
        EmbedIndexError, EmbedValueError
            For the first bad index in C order.
        """
        if not (grad.flags.carray and indices.flags.carray):
            return None
        if out is None:
            out = np.empty(self._shape, self._dtype)
        elif not self._fits(out, grad, indices):
            return None
        # What an interrupted call held is not used again.
        try:
            held = self._records.pop()  # a record serves one call at a time
        except IndexError:
            held = self._record()
        words, address, _ = held
        self._launch(self._program, self._phases, 1, address, id(indices), id(grad), id(out))
        bad = words[BAD]
        self._records.append(held)
        if bad != NONE_BAD:
            raise bad_index(indices, bad, self._plan.num_weights)
        return out

    def holding(
        self, workspace: Workspace, grad: Array, indices: Array, out: Array | None
    ) -> Array | None:
        """Call this while a workspace is held, though the scratch memory is the record's own.

        Raises
        ------
        EmbedValueError
            Also for a workspace that is too small.
        WorkspaceBusyError
            If another thread is using the workspace.
        """
        run = object()
        try:
            workspace.acquire(self._plan.workspace_nbytes, run)
            return self(grad, indices, out)
        finally:
            workspace.release(run)

    def _fits(self, out: Array, grad: Array, indices: Array) -> bool:
        """Whether the result can be written to ``out`` as it lies there."""
        if out.shape != self._shape or out.dtype != self._dtype or not out.flags.carray:
            return False
        first, end = address_of(out), address_of(out) + out.nbytes
        for other in (grad, indices):
            start = address_of(other)
            if start < end and first < start + other.nbytes:
                return False
        return True

    def _record(self) -> tuple[Any, int, Any]:
        """Return a call record as a sequence of int, its address, and its scratch memory."""
        spare = take_spare(self._plan)
        record: Any = spare.call
        return memoryview(record), spare.address, spare.scratch
