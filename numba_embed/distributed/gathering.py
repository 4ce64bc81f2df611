"""Putting a table together from the ranks that hold it."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from numba_embed.distributed.agreement import (
    Call,
    Operation,
    Problem,
    Setting,
    exchange_headers,
)
from numba_embed.distributed.lookup import Sharding
from numba_embed.errors import EmbedError, EmbedTypeError, EmbedValueError
from numba_embed.scalars import check_integer


def gathered(sharding: Sharding, values: Tensor, dst: int | None) -> Tensor | None:
    """Return the whole table of which ``values`` are this rank's rows. A collective.

    See `numba_embed.distributed.ShardedEmbedding.full_table`.
    """
    exchange, partition = sharding.exchange, sharding.partition
    rows = partition.rows_of(exchange.rank)
    problem, row_bytes = None, 0
    try:
        if not isinstance(values, Tensor) or values.device.type != "cpu":
            raise EmbedTypeError(f"values must be a tensor on the CPU, got {values!r}")
        if values.dim() == 0 or len(values) != len(rows):
            raise EmbedValueError(
                f"values must have the {len(rows)} rows of this rank, got shape "
                f"{tuple(values.shape)}"
            )
        if dst is not None:
            dst = check_integer("dst", dst, 0, exchange.size - 1)
        row_bytes = math.prod(values.shape[1:]) * values.element_size()
        values = values.detach().contiguous()
    except EmbedError as error:
        problem = Problem(error)
    settings = [
        Setting("dst", -1 if dst is None or problem else dst, lambda n: str(n if n >= 0 else None)),
        Setting("the bytes of a row of values", row_bytes),
    ]
    call = Call(Operation.GATHER, sharding.module, sharding.step)
    exchange_headers(exchange, call, settings, problem=problem)
    shares = np.diff(sharding.row_starts)
    if dst is not None:
        to_each = np.where(np.arange(exchange.size) == dst, len(rows), 0)
        from_each = shares if exchange.rank == dst else np.zeros_like(shares)
        table = exchange.rows(values, to_each, from_each)
        return table if exchange.rank == dst else None
    table = values.new_empty((partition.num_weights, *values.shape[1:]))
    table[rows.start : rows.stop] = values
    for rank in np.flatnonzero(shares).tolist():
        share = partition.rows_of(rank)
        exchange.broadcast(table[share.start : share.stop], rank)
    return table
