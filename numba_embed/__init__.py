"""Gradients of embedding tables on the CPU: exact, repeatable to the bit, and fast."""

from numba_embed._version import __version__
from numba_embed.backward import Plan, embedding_dense_backward, plan_dense_backward
from numba_embed.errors import EmbedError, EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.partition import (
    CorePartition,
    counts_size,
    max_embedding_dim,
    partition_rows,
)
from numba_embed.runtime import CacheWarning
from numba_embed.workspace import RunReport, Workspace, WorkspaceBusyError

__all__ = [
    "CacheWarning",
    "CorePartition",
    "EmbedError",
    "EmbedIndexError",
    "EmbedTypeError",
    "EmbedValueError",
    "Plan",
    "RunReport",
    "Workspace",
    "WorkspaceBusyError",
    "__version__",
    "counts_size",
    "embedding_dense_backward",
    "max_embedding_dim",
    "partition_rows",
    "plan_dense_backward",
]
