"""Gradients of embedding tables on the CPU: exact, repeatable to the bit, and fast."""

from importlib import import_module
from typing import TYPE_CHECKING

from numba_embed._version import __version__
from numba_embed.backward import embedding_dense_backward
from numba_embed.dense_plan import Plan, plan_dense_backward
from numba_embed.errors import EmbedError, EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.partition import (
    CorePartition,
    counts_size,
    max_embedding_dim,
    partition_rows,
)
from numba_embed.pool import OutputPool, output_pool
from numba_embed.runtime import CacheWarning
from numba_embed.workspace import RunReport, Workspace, WorkspaceBusyError

if TYPE_CHECKING:
    from numba_embed.chunks import ChunkProgress, embedding_dense_backward_chunks
    from numba_embed.row_backward import RowPlan, embedding_row_gradient, plan_row_gradient
    from numba_embed.row_gradient import RowGradient
    from numba_embed.simulate import simulate_cores
    from numba_embed.simulation import CoreSimulation

__all__ = [
    "CacheWarning",
    "ChunkProgress",
    "CorePartition",
    "CoreSimulation",
    "EmbedError",
    "EmbedIndexError",
    "EmbedTypeError",
    "EmbedValueError",
    "OutputPool",
    "Plan",
    "RowGradient",
    "RowPlan",
    "RunReport",
    "Workspace",
    "WorkspaceBusyError",
    "__version__",
    "counts_size",
    "embedding_dense_backward",
    "embedding_dense_backward_chunks",
    "embedding_row_gradient",
    "max_embedding_dim",
    "output_pool",
    "partition_rows",
    "plan_dense_backward",
    "plan_row_gradient",
    "simulate_cores",
]

_ON_DEMAND = {
    "ChunkProgress": "numba_embed.chunks",
    "CoreSimulation": "numba_embed.simulation",
    "RowGradient": "numba_embed.row_gradient",
    "RowPlan": "numba_embed.row_backward",
    "embedding_dense_backward_chunks": "numba_embed.chunks",
    "embedding_row_gradient": "numba_embed.row_backward",
    "plan_row_gradient": "numba_embed.row_backward",
    "simulate_cores": "numba_embed.simulate",
}
"""What a training loop does not need is imported when it is first asked for."""


def __getattr__(name: str) -> object:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_ON_DEMAND[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
