"""Gradients of embedding tables on the CPU: exact, repeatable to the bit, and fast."""

from importlib import import_module

from numba_embed import forked as _forked  # noqa: F401  # watches for forks from now on
from numba_embed._version import __version__

TYPE_CHECKING = False  # type checkers know the name; importing it takes longer than all else
if TYPE_CHECKING:
    from numba_embed.backward import embedding_dense_backward
    from numba_embed.chunks import ChunkProgress, embedding_dense_backward_chunks
    from numba_embed.dense_plan import Plan, plan_dense_backward
    from numba_embed.errors import EmbedError, EmbedIndexError, EmbedTypeError, EmbedValueError
    from numba_embed.partition import (
        CorePartition,
        counts_size,
        max_embedding_dim,
        partition_rows,
    )
    from numba_embed.pool import OutputPool, output_pool
    from numba_embed.row_backward import RowPlan, embedding_row_gradient, plan_row_gradient
    from numba_embed.row_gradient import RowGradient
    from numba_embed.runtime import CacheWarning
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

_HOMES = {
    "CacheWarning": "numba_embed.runtime",
    "ChunkProgress": "numba_embed.chunks",
    "CorePartition": "numba_embed.partition",
    "CoreSimulation": "numba_embed.simulation",
    "EmbedError": "numba_embed.errors",
    "EmbedIndexError": "numba_embed.errors",
    "EmbedTypeError": "numba_embed.errors",
    "EmbedValueError": "numba_embed.errors",
    "OutputPool": "numba_embed.pool",
    "Plan": "numba_embed.dense_plan",
    "RowGradient": "numba_embed.row_gradient",
    "RowPlan": "numba_embed.row_backward",
    "RunReport": "numba_embed.workspace",
    "Workspace": "numba_embed.workspace",
    "WorkspaceBusyError": "numba_embed.workspace",
    "counts_size": "numba_embed.partition",
    "embedding_dense_backward": "numba_embed.backward",
    "embedding_dense_backward_chunks": "numba_embed.chunks",
    "embedding_row_gradient": "numba_embed.row_backward",
    "max_embedding_dim": "numba_embed.partition",
    "output_pool": "numba_embed.pool",
    "partition_rows": "numba_embed.partition",
    "plan_dense_backward": "numba_embed.dense_plan",
    "plan_row_gradient": "numba_embed.row_backward",
    "simulate_cores": "numba_embed.simulate",
}
"""Where each public name is defined.

A name's module is imported when the name is first asked for. Importing Numba takes a second, which
the command line could otherwise not be interrupted in without a traceback.
"""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
