"""Messages between the ranks of a process group: who disagrees or is missing ends in an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from numba_embed.errors import EmbedError, EmbedTypeError

if dist.is_available() and not dist.is_initialized():
    # Default arguments in there are the default group at the time of the import. Imported later,
    # by the first DistributedDataParallel, they would keep that group's threads running past
    # destroy_process_group, and one of these may abort the process while the interpreter ends.
    import torch.distributed.nn.functional

Int64Array = npt.NDArray[np.int64]
Result = TypeVar("Result")


class RankError(EmbedError, RuntimeError):
    """Another rank failed, disagrees, is gone, or did not answer within the group's timeout."""


class Exchange:
    """The collectives of one process group, with the bytes that they moved.

    Every method is a collective: all ranks of the group must call it.

    Parameters
    ----------
    group : ProcessGroup, optional
        A group that carries CPU tensors, such as one of gloo; by default the default group.

    Attributes
    ----------
    rank, size : int
        This process's number in the group, and how many there are.
    sent, received : int
        Bytes to and from other ranks since the beginning.

    Raises
    ------
    RankError
        If there is no process group, or this process is not part of it.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not dist.is_initialized():
            raise RankError(
                "there is no process group: call torch.distributed.init_process_group('gloo') first"
            )
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        if self.rank < 0:
            raise RankError("this process is not part of the process group")
        self.sent = self.received = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Exchange:
        """Return the same object: a group is a connection, and copies of a module share it."""
        return self

    def __getstate__(self) -> Any:
        raise EmbedTypeError(
            "a ShardedEmbedding cannot be pickled with its process group; save its state_dict()"
        )

    def words(self, outgoing: Int64Array) -> Int64Array:
        """Send each rank its line of small numbers, and return the lines that came.

        Parameters
        ----------
        outgoing : ndarray of int64, shape (size, K)
            Line r goes to rank r; K is the same on all ranks.

        Returns
        -------
        ndarray of int64, shape (size, K)
            Line r came from rank r.
        """
        lines = np.ones(self.size, np.int64)
        return self.rows(torch.from_numpy(outgoing), lines, lines).numpy()

    def rows(self, outgoing: Tensor, to_each: Int64Array, from_each: Int64Array) -> Tensor:
        """Send each rank its rows of a tensor, and return the rows that came, by rank.

        Parameters
        ----------
        outgoing : Tensor, shape (sum(to_each), ...)
            Rows in the order of the ranks that they go to, contiguous.
        to_each, from_each : ndarray of int64, shape (size,)
            Rows that go to each rank, and that come from each.
        """
        incoming = outgoing.new_empty((int(from_each.sum()), *outgoing.shape[1:]))
        self._attempt(
            lambda: dist.all_to_all_single(
                incoming, outgoing, from_each.tolist(), to_each.tolist(), group=self.group
            )
        )
        row_bytes = math.prod(outgoing.shape[1:]) * outgoing.element_size()
        self.sent += (len(outgoing) - int(to_each[self.rank])) * row_bytes
        self.received += (len(incoming) - int(from_each[self.rank])) * row_bytes
        return incoming

    def broadcast(self, values: Tensor, source: int) -> None:
        """Overwrite a contiguous tensor by the one of rank ``source``."""
        root = source if self.group is None else dist.get_global_rank(self.group, source)
        self._attempt(lambda: dist.broadcast(values, root, group=self.group))

    def _attempt(self, collective: Callable[[], Result]) -> Result:
        try:
            return collective()
        except RuntimeError as error:
            raise RankError(
                f"rank {self.rank} of {self.size}: an exchange of a ShardedEmbedding failed; "
                "another rank has ended, or did not join within the process group's timeout, "
                f"and the group cannot be used any more: {error}"
            ) from error
