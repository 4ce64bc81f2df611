"""``ShardedEmbedding``: an embedding table whose rows are split among the ranks of a group."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from numba_embed.distributed.agreement import (
    Call,
    Operation,
    Problem,
    Setting,
    exchange_headers,
)
from numba_embed.distributed.exchange import Exchange
from numba_embed.distributed.gathering import gathered
from numba_embed.distributed.lookup import DTYPES, ShardedLookUp, Sharding, dtype_name, dtype_number
from numba_embed.distributed.shards import fill_normal
from numba_embed.distributed.traffic import Traffic, allreduce_bytes
from numba_embed.errors import EmbedError, EmbedTypeError
from numba_embed.partition import SPLITS, Split, partition_rows
from numba_embed.scalars import check_integer
from numba_embed.torch.function import checked_padding
from numba_embed.validation import flag

_modules = itertools.count()


class ShardedEmbedding(nn.Module):
    """An embedding table of which every rank holds some rows, and all ranks look up all.

    Constructing it, calling it, its backward pass and `full_table` are collectives: all ranks of
    the group do them, in the same order, each with its own batch, which may be empty.

    Parameters
    ----------
    num_embeddings : int
        V, rows of the whole table. Fewer rows than ranks are fine: some ranks hold none.
    embedding_dim : int
        D.
    padding_idx : int, optional
        Row whose gradient is zero, and which starts as zero; a negative one counts from the end.
    scale_grad_by_freq : bool, default False
        Divide the gradient of each row by the number of its look-ups in the batches of all ranks.
    average : bool, default False
        Divide the gradients, which are summed over ranks, by the number of ranks, as
        ``DistributedDataParallel`` does.
    split : {"balanced", "counts_size"}, default "balanced"
        How rows are shared, as by `numba_embed.partition_rows`: evenly, or by the documented
        countsSize split, which gives the last rank the remainder (and all rows, if V is smaller
        than the number of ranks).
    dtype : torch.dtype, optional
        float16, bfloat16, float32 or float64; by default torch's default.
    process_group : ProcessGroup, optional
        Whose ranks share the table; it must carry CPU tensors. By default the default group.

    Attributes
    ----------
    weight : Parameter, shape (len(rows), D)
        This rank's own rows. Its gradient is dense, and of these rows only.
    rows : range
        Which rows of the whole table they are.
    last_traffic : Traffic or None
        Bytes that this rank exchanged in its last look-up and the backward pass of it.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        If an argument is not accepted.
    RankError
        If there is no process group, or on another rank an argument is not accepted or different.

    Notes
    -----
    The table starts from the standard normal distribution, with a seed from rank 0's generator:
    ``torch.manual_seed`` there fixes the whole table, whatever the number of ranks and the split.

    There is no second derivative. A rank whose loss does not depend on the look-up takes part all
    the same: it adds ``0 * rows.sum()`` to its loss.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        scale_grad_by_freq: bool = False,
        average: bool = False,
        split: Split = "balanced",
        dtype: torch.dtype | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        exchange = Exchange(process_group)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        settings: list[Setting] = []
        problem = None
        try:
            num_embeddings = check_integer("num_embeddings", num_embeddings, 0, 2**63 - 1)
            embedding_dim = check_integer("embedding_dim", embedding_dim, 0, 2**63 - 1)
            if dtype not in DTYPES:
                raise EmbedTypeError(
                    f"dtype must be float16, bfloat16, float32 or float64, got {dtype}"
                )
            if padding_idx is not None:
                padding_idx = check_integer("padding_idx", padding_idx, -(2**63), 2**63 - 1)
            padding = checked_padding(padding_idx, num_embeddings)
            scale_grad_by_freq = flag("scale_grad_by_freq", scale_grad_by_freq)
            average = flag("average", average)
            partition = partition_rows(num_embeddings, exchange.size, split)
            settings = [
                Setting("num_embeddings", num_embeddings),
                Setting("embedding_dim", embedding_dim),
                Setting("dtype", dtype_number(dtype), dtype_name),
                Setting("padding_idx", padding, lambda row: str(row if row >= 0 else None)),
                Setting("scale_grad_by_freq", scale_grad_by_freq, lambda on: str(bool(on))),
                Setting("average", average, lambda on: str(bool(on))),
                Setting("split", SPLITS.index(split), lambda number: repr(SPLITS[number])),
            ]
        except EmbedError as error:
            problem = Problem(error)
        seed = int(torch.randint(2**62, ()))
        said = np.tile(np.array([next(_modules), seed]), (exchange.size, 1))
        heard = exchange_headers(exchange, Call(Operation.CONSTRUCT, 0, 0), settings, said, problem)
        module, seed = heard[0, :2].tolist()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding < 0 else padding
        self._sharding = Sharding(exchange, partition, padding, scale_grad_by_freq, average, module)
        self.weight = nn.Parameter(torch.empty(len(self.rows), embedding_dim, dtype=dtype))
        self.reset_parameters(seed)

    @property
    def rows(self) -> range:
        """The rows of the whole table that this rank holds."""
        return self._sharding.partition.rows_of(self._sharding.exchange.rank)

    @property
    def last_traffic(self) -> Traffic | None:
        """What this rank exchanged in its last look-up."""
        return self._sharding.last_traffic

    @property
    def allreduce_bytes(self) -> float:
        """Bytes that a rank would send to all-reduce the dense gradient of the whole table."""
        return allreduce_bytes(
            self.num_embeddings,
            self.embedding_dim,
            self.weight.element_size(),
            self._sharding.exchange.size,
        )

    def reset_parameters(self, seed: int) -> None:
        """Draw this rank's rows anew, from the normal distribution. Local; O(len(rows) D).

        Parameters
        ----------
        seed : int
            The same seed gives the same table for every split.
        """
        with torch.no_grad():
            fill_normal(self.weight, self.rows, seed)
            if self.padding_idx is not None and self.padding_idx in self.rows:
                self.weight[self.padding_idx - self.rows.start] = 0

    def forward(self, input: Tensor) -> Tensor:
        """Look rows up, wherever they are. A collective, and so is its backward pass.

        Parameters
        ----------
        input : Tensor, shape (...)
            This rank's row numbers in [0, V), int32 or int64, on the CPU.

        Returns
        -------
        Tensor, shape (..., D)

        Raises
        ------
        EmbedTypeError
            If the input has another dtype or device.
        EmbedIndexError
            If an index is out of range; the first one in C order is named.
        RankError
            If another rank has one of these errors, makes another call, is gone, or does not join
            within the group's timeout. After the first two the ranks can go on.

        Notes
        -----
        O(N log N + N D) time for N look-ups. Every distinct row travels once: its number and the
        row itself here; in the backward pass its gradient, in the table's dtype where it was looked
        up once, else the sum of its gradients in float64.
        """
        wants_grad = torch.is_grad_enabled() and self.weight.requires_grad
        look_up: Callable[..., Tensor] = ShardedLookUp.apply
        return look_up(self.weight, input, self._sharding, wants_grad)

    def full_table(self, values: Tensor | None = None, *, dst: int | None = None) -> Tensor | None:
        """Put the table together from all ranks. A collective.

        Parameters
        ----------
        values : Tensor, shape (len(rows), ...), optional
            What else to put together: the gradient, or what an optimizer keeps per row. By default
            the weight.
        dst : int, optional
            The only rank that gets the result; by default all do.

        Returns
        -------
        Tensor, shape (V, ...), or None
            None on ranks other than ``dst``.

        Raises
        ------
        EmbedTypeError, EmbedValueError
            If an argument is not accepted.
        RankError
            As `forward`; also if ranks want different things.

        Notes
        -----
        O(V D) time, memory and traffic.
        """
        return gathered(self._sharding, self.weight if values is None else values, dst)

    def extra_repr(self) -> str:
        """Describe the table and this rank's part of it."""
        sharding = self._sharding
        said = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            said.append(f"padding_idx={self.padding_idx}")
        said += [name for name in ("scale_grad_by_freq", "average") if getattr(sharding, name)]
        exchange = sharding.exchange
        rows = f"rows {self.rows.start} to {self.rows.stop}"
        return ", ".join([*said, f"{rows} on rank {exchange.rank} of {exchange.size}"])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:  # it is saved with the state, and read below
            rows = self.rows
            metadata[prefix[:-1]]["rows"] = rows.start, rows.stop, self.num_embeddings

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this rank's rows out of a whole table, or a shard of the same rows as it is."""
        key = f"{prefix}weight"
        given = state_dict.get(key)
        if isinstance(given, Tensor) and given.dim() == 2:
            whole, rows = range(self.num_embeddings), self.rows
            held = whole if len(given) == len(whole) else rows
            if "rows" in local_metadata:
                start, stop, total = local_metadata["rows"]
                held = range(start, stop) if total == len(whole) else range(0)
            if held not in (whole, rows) or len(given) != len(held):
                error_msgs.append(
                    f"{key} must be the whole table of {len(whole)} rows or this rank's "
                    f"{len(rows)} rows {rows.start} to {rows.stop}, got {len(given)} rows"
                    + (f", {held.start} to {held.stop}" if "rows" in local_metadata else "")
                    + "; numba_embed.distributed.reshard cuts saved shards anew"
                )
                return
            if held == whole:
                # A copy, so that a parameter that is assigned does not keep the table alive.
                state_dict = {**state_dict, key: given[rows.start : rows.stop].clone()}
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
