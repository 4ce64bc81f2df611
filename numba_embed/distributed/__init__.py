"""Embedding tables whose rows are split among the processes of a ``torch.distributed`` group.

`ShardedEmbedding` looks rows up wherever they are, and sends each row's gradient, summed locally,
to the rank that owns the row, where this library's kernels add what all ranks sent. `reshard` cuts
the shards that one number of ranks saved for another number of ranks.
"""

from __future__ import annotations

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "numba_embed.distributed needs PyTorch, which is not installed "
        "(pip install 'numba-embed[torch]')",
        name="torch",
    ) from error

if not _torch.distributed.is_available():
    raise ImportError("numba_embed.distributed needs a PyTorch built with torch.distributed")

from numba_embed.distributed.embedding import ShardedEmbedding
from numba_embed.distributed.exchange import RankError
from numba_embed.distributed.shards import reshard
from numba_embed.distributed.traffic import Traffic, allreduce_bytes

__all__ = ["RankError", "ShardedEmbedding", "Traffic", "allreduce_bytes", "reshard"]
