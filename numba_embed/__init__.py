"""Gradients of embedding tables on the CPU: exact, repeatable to the bit, and fast."""

from importlib import import_module
from typing import TYPE_CHECKING

from numba_embed._version import __version__
from numba_embed.errors import EmbedError, EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.runtime import CacheWarning  # what a fork has to be told is told at import

if TYPE_CHECKING:
    from numba_embed.backward import embedding_dense_backward
    from numba_embed.chunks import ChunkProgress, embedding_dense_backward_chunks
    from numba_embed.dense_plan import Plan, plan_dense_backward
    from numba_embed.limits import counts_size, max_embedding_dim
    from numba_embed.partition import CorePartition, partition_rows
    from numba_embed.pool import OutputPool, output_pool
    from numba_embed.row_backward import RowPlan, embedding_row_gradient, plan_row_gradient
    from numba_embed.row_gradient import RowGradient
    from numba_embed.simulate import simulate_cores
    from numba_embed.simulation import CoreSimulation
    from numba_embed.workspace import RunReport, Workspace, WorkspaceBusyError

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
    "ChunkProgress": "chunks",
    "CorePartition": "partition",
    "CoreSimulation": "simulation",
    "OutputPool": "pool",
    "Plan": "dense_plan",
    "RowGradient": "row_gradient",
    "RowPlan": "row_backward",
    "RunReport": "workspace",
    "Workspace": "workspace",
    "WorkspaceBusyError": "workspace",
    "counts_size": "limits",
    "embedding_dense_backward": "backward",
    "embedding_dense_backward_chunks": "chunks",
    "embedding_row_gradient": "row_backward",
    "max_embedding_dim": "limits",
    "output_pool": "pool",
    "partition_rows": "partition",
    "plan_dense_backward": "dense_plan",
    "plan_row_gradient": "row_backward",
    "simulate_cores": "simulate",
}
"""The module of each name that is imported when it is first asked for."""


def __getattr__(name: str) -> object:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_ON_DEMAND[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
