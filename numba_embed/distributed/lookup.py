"""The look-up of rows that other ranks own, and the way of their gradients back to them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from numba_embed.distributed.agreement import (
    Call,
    Operation,
    Problem,
    Setting,
    exchange_headers,
)
from numba_embed.distributed.distinct import (
    ONCE,
    REPEATED,
    SILENT,
    DistinctRows,
    distinct_rows,
)
from numba_embed.distributed.exchange import Exchange, Int64Array
from numba_embed.distributed.sums import merged, outgoing_gradients, table_gradient
from numba_embed.distributed.traffic import Traffic
from numba_embed.errors import EmbedIndexError, EmbedTypeError
from numba_embed.partition import CorePartition
from numba_embed.torch.dense import FORMATS, INDEX_DTYPES
from numba_embed.validation import bad_index

DTYPES = tuple(FORMATS)
KINDS = (ONCE, REPEATED, SILENT)


@dataclass
class Sharding:
    """How a table is split, what its gradient is, and how far the ranks have come.

    Attributes
    ----------
    exchange : Exchange
        The ranks.
    partition : CorePartition
        Which of them owns which rows.
    padding_idx : int
        -1 for none.
    scale_grad_by_freq, average : bool
        Whether a row's gradient is divided by the number of its look-ups; by the number of ranks.
    module : int
        Tells this table from others of the same ranks.
    step : int
        Look-ups so far.
    last_traffic : Traffic or None
        Of the last look-up.
    """

    exchange: Exchange
    partition: CorePartition
    padding_idx: int
    scale_grad_by_freq: bool
    average: bool
    module: int = 0
    step: int = 0
    last_traffic: Traffic | None = None
    row_starts: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        self.row_starts = self.partition.row_starts.astype(np.int64)

    @property
    def id_dtype(self) -> type[np.integer]:
        """Holds every row number within a share."""
        return np.int32 if self.partition.counts_size < 2**31 else np.int64


class Received(NamedTuple):
    """What the other ranks look up here: their row numbers, rank by rank.

    ids are numbers within this rank's share; sizes counts them by rank and kind; counts has the
    look-ups of the ``REPEATED`` ones, if those matter.
    """

    ids: Tensor
    sizes: Int64Array
    counts: Tensor | None

    @property
    def kinds(self) -> Int64Array:
        """The kind of each id."""
        return np.repeat(np.tile(KINDS, len(self.sizes)), self.sizes.reshape(-1))


class ShardedLookUp(torch.autograd.Function):
    """Look rows up wherever they are; send their gradients to where they are. A collective."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, indices: Tensor, sharding: Sharding, wants_grad: bool
    ) -> Tensor:
        """Return the rows, shape (*indices.shape, D); see `ShardedEmbedding.forward`."""
        exchange = sharding.exchange
        before = exchange.sent, exchange.received
        sharding.step += 1
        call = Call(Operation.FORWARD, sharding.module, sharding.step)
        batch, problem = _batch_of(weight, indices, sharding)
        settings = [
            Setting("the dtype of weight", dtype_number(weight.dtype), dtype_name),
            Setting(
                "whether a gradient is wanted (requires_grad of weight, torch.no_grad)",
                int(wants_grad),
                lambda number: str(bool(number)),
            ),
        ]
        sizes = exchange_headers(exchange, call, settings, batch.sizes, problem)
        received = _request(sharding, batch, sizes)
        to_each, from_each = received.sizes.sum(axis=1), batch.sizes.sum(axis=1)
        rows = exchange.rows(weight.index_select(0, received.ids), to_each, from_each)
        traffic = Traffic(
            len(batch.rows),
            len(received.ids),
            exchange.sent - before[0],
            exchange.received - before[1],
        )
        sharding.last_traffic = traffic
        ctx.sharding, ctx.call, ctx.traffic = sharding, call, traffic
        ctx.batch, ctx.received = batch, received
        ctx.share, ctx.dtype = weight.shape[0], weight.dtype
        result = rows.index_select(0, torch.from_numpy(batch.place))
        return result.reshape(*indices.shape, weight.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient of this rank's own rows, from all ranks."""
        sharding, batch, received = ctx.sharding, ctx.batch, ctx.received
        exchange = sharding.exchange
        before = exchange.sent, exchange.received
        exchange_headers(exchange, ctx.call._replace(operation=Operation.BACKWARD), [])
        flat = grad.reshape(len(batch.place), grad.shape[-1])
        once, sums = outgoing_gradients(flat, batch)
        theirs, ours = received.sizes, batch.sizes
        once = exchange.rows(once, ours[:, ONCE], theirs[:, ONCE])
        sums = exchange.rows(sums, ours[:, REPEATED], theirs[:, REPEATED])
        ctx.sharding.last_traffic = replace(
            ctx.traffic,
            backward_sent=exchange.sent - before[0],
            backward_received=exchange.received - before[1],
        )
        kinds = received.kinds
        heard = kinds != SILENT
        kinds = kinds[heard]
        counts = None
        if received.counts is not None:
            counts = torch.ones(len(kinds), dtype=torch.int64)
            counts[torch.from_numpy(kinds == REPEATED)] = received.counts
        result = table_gradient(
            merged(once, sums, kinds),
            received.ids[torch.from_numpy(heard)],
            ctx.share,
            ctx.dtype,
            counts,
            exchange.size if sharding.average else 1,
        )
        return result, None, None, None


def _batch_of(
    weight: Tensor, indices: Tensor, sharding: Sharding
) -> tuple[DistinctRows, Problem | None]:
    """Return the distinct rows of the batch; if it is not accepted, no rows, and why."""
    nothing = np.empty(0, np.int64)
    starts, padding = sharding.row_starts, sharding.padding_idx
    empty = distinct_rows(nothing, starts, padding)
    share = int(np.diff(starts)[sharding.exchange.rank])
    if weight.device.type != "cpu" or weight.dtype not in FORMATS:
        allowed = "float16, bfloat16, float32 or float64 on the CPU"
        error = EmbedTypeError(f"weight must be {allowed}, got {weight.dtype} on {weight.device}")
        return empty, Problem(error)
    if weight.dim() != 2 or weight.shape[0] != share:
        error = EmbedTypeError(
            f"weight must hold the {share} rows of this rank, got shape {tuple(weight.shape)}"
        )
        return empty, Problem(error)
    if not isinstance(indices, Tensor):
        error = EmbedTypeError(f"input must be a tensor, got {type(indices).__name__}")
        return empty, Problem(error)
    if indices.dtype not in INDEX_DTYPES or indices.device.type != "cpu":
        error = EmbedTypeError(
            f"input must be int32 or int64 on the CPU, got {indices.dtype} on {indices.device}"
        )
        return empty, Problem(error)
    array = indices.detach().numpy()
    flat = array.reshape(-1)
    size = sharding.partition.num_weights
    if flat.size and not (0 <= flat.min() and flat.max() < size):
        position = int(np.argmax((flat < 0) | (flat >= size)))
        refused = bad_index(array, position, size)
        assert isinstance(refused, EmbedIndexError)
        return empty, Problem(refused, position, int(flat[position]))
    return distinct_rows(flat, starts, padding), None


def _request(sharding: Sharding, batch: DistinctRows, sizes: Int64Array) -> Received:
    """Tell every owner which of its rows this rank's batch looks up; return what others told."""
    exchange = sharding.exchange
    local = (batch.rows - sharding.row_starts[batch.owners]).astype(sharding.id_dtype)
    ids = exchange.rows(torch.from_numpy(local), batch.sizes.sum(axis=1), sizes.sum(axis=1))
    ids = ids.long()  # the kernels for int32 would be compiled for this alone
    counts = None
    if sharding.scale_grad_by_freq:
        mine = torch.from_numpy(batch.counts[batch.kinds == REPEATED])
        counts = exchange.rows(mine, batch.sizes[:, REPEATED], sizes[:, REPEATED])
    return Received(ids, sizes, counts)


def dtype_number(dtype: torch.dtype) -> int:
    """Return the number that a header has for a dtype; -1 for one that is not accepted."""
    return DTYPES.index(dtype) if dtype in DTYPES else -1


def dtype_name(number: int) -> str:
    """Return the name of the dtype that a header has a number for."""
    return str(DTYPES[number]) if 0 <= number < len(DTYPES) else "another dtype"
