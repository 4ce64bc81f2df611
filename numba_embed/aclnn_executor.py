"""What the two-phase call returns: a status, and the executor that carries a plan to its run."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import Executor, Future
from enum import IntEnum
from typing import Any

import numpy.typing as npt

from numba_embed.dense_plan import Plan
from numba_embed.errors import EmbedError, EmbedTypeError, EmbedValueError
from numba_embed.workspace import Workspace

Array = npt.NDArray[Any]
Operands = tuple[Array, Array, Array]


class Status(IntEnum):
    """What a call returns; names and values are the published ones."""

    ACLNN_SUCCESS = 0
    ACLNN_ERR_PARAM_NULLPTR = 161001
    ACLNN_ERR_PARAM_INVALID = 161002
    ACLNN_ERR_RUNTIME_ERROR = 361001
    ACLNN_ERR_INNER = 561000


class AdvisoryWarning(UserWarning):
    """At these sizes the product's documentation guarantees less; the call goes on.

    A warning filter that makes an error of it refuses the call: ACLNN_ERR_PARAM_INVALID.
    """


class _Thread(threading.local):
    """What belongs to the calling thread."""

    message = ""
    deterministic = 0


this_thread = _Thread()


class MissingError(EmbedTypeError):
    """A parameter is None that must not be."""


def failed(error: Exception) -> Status:
    """Return the status of a failure and keep its text for the calling thread."""
    this_thread.message = _text(error)
    if isinstance(error, MissingError):
        return Status.ACLNN_ERR_PARAM_NULLPTR
    if isinstance(error, (EmbedError, AdvisoryWarning)):
        return Status.ACLNN_ERR_PARAM_INVALID
    return Status.ACLNN_ERR_INNER


def _text(error: Exception) -> str:
    """Return the text of an error; that of a foreign one names its type and cannot fail."""
    if isinstance(error, (EmbedError, AdvisoryWarning)):
        return str(error)
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def used_up() -> EmbedValueError:
    """Return the error for a second run."""
    return EmbedValueError("executor has been used: it runs once; call phase one again")


class OpExecutor:
    """A planned computation and its operands. Phase one makes it; it runs once.

    Attributes
    ----------
    plan : Plan
        What phase one planned.
    """

    def __init__(self, plan: Plan, grad: Array, indices: Array, out: Array) -> None:
        self.plan = plan
        # Views: what the caller does to its arrays' shapes or flags no longer matters.
        self._operands: Operands | None = (grad.view(), indices.view(), out.view())
        self._workspace: Workspace | None = None
        self._lock = threading.Lock()
        self._state = "new"
        self._over = threading.Event()
        self._status, self._message = Status.ACLNN_SUCCESS, ""

    def wait(self) -> Status:
        """Wait until the run is over and return its status.

        A failure's text becomes the calling thread's `get_recent_err_msg`. Before phase two there
        is no run to wait for: ACLNN_ERR_PARAM_INVALID.

        Returns
        -------
        Status
            That of phase two, run to its end.
        """
        if self._state == "new":
            return failed(EmbedValueError("executor has not been run: there is no run to wait for"))
        self._over.wait()
        if self._status is not Status.ACLNN_SUCCESS:
            this_thread.message = self._message
        return self._status

    def _advance(self, before: str, after: str) -> bool:
        """Go from one state to the next, unless another call was faster."""
        with self._lock:
            if self._state != before:
                return False
            self._state = after
            return True

    def start(self, workspace: Workspace, stream: Executor | None) -> Status:
        """Run in a checked workspace, here or on a stream.

        Parameters
        ----------
        workspace : Workspace
            Of the plan's size at least.
        stream : concurrent.futures.Executor or None
            Where to queue the run; None runs it before this returns.

        Returns
        -------
        Status
            Of the run, or of the queueing.

        Raises
        ------
        EmbedValueError
            If it has been started before; of several threads one gets through.
        """
        if not self._advance("new", "queued"):
            raise used_up()
        self._workspace = workspace
        if stream is None:
            self._run()
            return self.wait()
        try:
            stream.submit(self._run).add_done_callback(self._abandoned)
        except Exception as error:
            self._abort(f"stream did not take the run: {_text(error)}")
            return self.wait()
        return Status.ACLNN_SUCCESS

    def _run(self) -> None:
        """Run, once. However that ends, whoever waits is released."""
        if not self._advance("queued", "running"):
            return
        operands, workspace = self._operands, self._workspace
        status, message = Status.ACLNN_ERR_RUNTIME_ERROR, "the run was interrupted"
        try:
            assert operands is not None
            self.plan.execute(*operands, workspace=workspace)
            status, message = Status.ACLNN_SUCCESS, ""
        except EmbedError as error:  # all that was left to check is the data
            status, message = Status.ACLNN_ERR_RUNTIME_ERROR, str(error)
        except Exception as error:
            status, message = Status.ACLNN_ERR_INNER, _text(error)
        finally:
            del operands, workspace
            self._end(status, message)

    def _abandoned(self, future: Future[None]) -> None:
        """Give the run up if its stream dropped it: cancelled, broken, or not of threads."""
        error = None if future.cancelled() else future.exception()
        reason = "cancelled" if error is None else repr(error)
        self._abort(f"stream dropped the run before it began: {reason}")

    def _abort(self, message: str) -> None:
        if self._advance("queued", "aborted"):
            self._end(Status.ACLNN_ERR_RUNTIME_ERROR, message)

    def _end(self, status: Status, message: str) -> None:
        # Let go of the caller's memory first: a buffer may be resized once the run is over.
        self._operands = self._workspace = None
        self._status, self._message = status, message
        self._over.set()
