"""How many bytes a step sends, and what an all-reduce of the dense gradient would send instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """What one rank exchanged with the other ranks in one look-up and its backward pass.

    Bytes are those of the messages, headers included; what a rank keeps for itself is not counted,
    and neither is what the transport adds.

    Attributes
    ----------
    rows_requested : int
        Distinct rows that this rank looked up, its own ones included.
    rows_served : int
        Rows that all ranks looked up here, each once per rank.
    forward_sent, forward_received : int
        Bytes of the look-up: row numbers one way, rows the other.
    backward_sent, backward_received : int
        Bytes of the gradients; 0 until the backward pass has run.
    """

    rows_requested: int
    rows_served: int
    forward_sent: int
    forward_received: int
    backward_sent: int = 0
    backward_received: int = 0

    @property
    def sent(self) -> int:
        """Bytes sent in the whole step."""
        return self.forward_sent + self.backward_sent

    @property
    def received(self) -> int:
        """Bytes received in the whole step."""
        return self.forward_received + self.backward_received


def allreduce_bytes(
    num_embeddings: int, embedding_dim: int, itemsize: int, world_size: int
) -> float:
    """Return the bytes that each rank sends to all-reduce the dense gradient of a whole table.

    ``2 (W - 1) / W * V * D * itemsize``: the least that an all-reduce can do; a ring does it
    (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
    2009). O(1); nothing is checked.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        V and D.
    itemsize : int
        Bytes of a number.
    world_size : int
        W, the number of ranks, 1 or more.
    """
    whole = num_embeddings * embedding_dim * itemsize
    return 2 * (world_size - 1) * whole / world_size
