"""Scratch memory of a run, and the report of what a run counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.errors import EmbedError, EmbedTypeError, EmbedValueError
from numba_embed.partition import MAX_LISTED_CORES
from numba_embed.scalars import check_integer

LARGEST = 2**62
"""Bytes that a workspace may have; NumPy has no words for more than 2**63."""


class WorkspaceBusyError(EmbedError, RuntimeError):
    """A workspace is being used by another run at the same time."""


class Workspace:
    """Scratch memory that runs of a plan can share one after another, but not at the same time.

    Parameters
    ----------
    buffer
        Any writable C-contiguous buffer, at any address (NumPy array, bytearray, memory map), of at
        least ``plan.workspace_nbytes`` bytes; or that number, to allocate.

    Raises
    ------
    EmbedTypeError
        If ``buffer`` offers no buffer.
    EmbedValueError
        If it is read-only or not contiguous, or the number is negative.
    """

    def __init__(self, buffer: Any) -> None:
        if isinstance(buffer, int) and not isinstance(buffer, bool):
            size = check_integer("buffer", buffer, 0, LARGEST, "a size in bytes or a buffer")
            buffer = np.empty(size, np.uint8)
        try:
            view = memoryview(buffer)
        except (TypeError, ValueError) as error:
            raise EmbedTypeError(
                f"buffer must be a size in bytes or a writable buffer, got {type(buffer).__name__}"
            ) from error
        if "O" in view.format:
            raise EmbedTypeError("buffer must be plain memory, got one that holds objects")
        if view.readonly:
            raise EmbedValueError("buffer must be writable, got a read-only one")
        if not view.c_contiguous:
            raise EmbedValueError(f"buffer must be C-contiguous, got strides {view.strides}")
        self.bytes: npt.NDArray[np.uint8] = (
            np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
        )
        self._holder: dict[str, object] = {}

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.bytes.size

    def acquire(self, needed: int, run: object) -> npt.NDArray[np.uint8]:
        """Take the workspace for one run; `release` gives it back. Returns its bytes.

        Both calls belong into one ``try``: an interrupt between any two steps then leaves the
        workspace free. O(1).

        Parameters
        ----------
        needed : int
            Bytes that the run will use.
        run : object
            Any object that stands for the run.

        Raises
        ------
        EmbedValueError
            If it is smaller than ``needed`` bytes.
        WorkspaceBusyError
            If another thread is using it.
        """
        if self.bytes.size < needed:
            raise EmbedValueError(
                f"workspace must have at least {needed} bytes (plan.workspace_nbytes), "
                f"got {self.bytes.size}"
            )
        # One call, so that nothing comes between taking the workspace and noting by whom.
        if self._holder.setdefault("run", run) is not run:
            raise WorkspaceBusyError(
                "workspace is in use by another thread; give each thread its own"
            )
        return self.bytes

    def release(self, run: object) -> None:
        """Give the workspace back, if it is this run that holds it. O(1).

        Parameters
        ----------
        run : object
            What was given to `acquire`.
        """
        if self._holder.get("run") is run:
            del self._holder["run"]

    def __repr__(self) -> str:
        return f"Workspace({self.nbytes} bytes)"


class RunReport:
    """What a run counted; pass one as ``report=`` and read it afterwards.

    Attributes
    ----------
    lookups
        Number of look-ups that took part: neither of the padding row nor dropped.
    """

    def __init__(self) -> None:
        self.lookups = 0
        self._first_core = 0
        self._core_num = 0
        self._counted: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def _fill(self, core_num: int, first_core: int, counted: npt.NDArray[np.int64]) -> None:
        self._core_num, self._first_core, self._counted = core_num, first_core, counted
        self.lookups = int(counted.sum())

    @property
    def lookups_per_core(self) -> npt.NDArray[np.int64]:
        """int64 of shape (core_num,): the look-ups that each core counted among its rows.

        Raises
        ------
        EmbedValueError
            If the run had so many cores that a list of them is absurd.
        """
        if self._core_num > MAX_LISTED_CORES:
            raise EmbedValueError(
                f"core_num must be at most {MAX_LISTED_CORES} to list every core's look-ups, "
                f"got {self._core_num}"
            )
        lookups = np.zeros(self._core_num, np.int64)
        lookups[self._first_core :] = self._counted
        return lookups

    def __repr__(self) -> str:
        return f"RunReport({self.lookups} look-ups on {self._core_num} core(s))"
