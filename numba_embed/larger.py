"""The checks of a streamed call, and when a call is streamed without being asked to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed import validation as check
from numba_embed.errors import EmbedValueError
from numba_embed.runtime import available_threads, pool_size
from numba_embed.scalars import integer, shown
from numba_embed.sizing import worthwhile_threads
from numba_embed.streamed import RowStream, Streamed

Array = npt.NDArray[Any]

IN_MEMORY_BYTES = 256 << 20
"""Mapped operands are streamed where the scratch memory of a run in memory could exceed this."""

BLOCK_BYTES = 256 << 20
"""Memory of a block of rows where the caller does not choose."""


def prefers_streaming(grad: Array) -> bool:
    """Whether a run in memory could need more scratch memory than mapped operands should cost.

    That is 16 bytes per position and 1/64 of the gradient.
    """
    positions = grad.size // max(grad.shape[-1], 1) if grad.ndim else 0
    return 16 * positions + grad.nbytes // 64 > IN_MEMORY_BYTES


def default_block_rows(num_weights: int, embedding_dim: int) -> int:
    """Return how many rows take ``BLOCK_BYTES``: two float64 sums per column and a count."""
    return max(1, min(num_weights, BLOCK_BYTES // (16 * embedding_dim + 8)))


def stream_backward(
    grad: Array,
    indices: Array,
    num_weights: Any,
    padding_idx: Any,
    scale_grad_by_freq: Any,
    out: Any,
    accumulate: Any,
    on_invalid: Any,
    core_num: Any,
    num_threads: Any,
    block_rows: Any,
) -> Any:
    """Check all arguments as `embedding_dense_backward` does, and run block of rows by block.

    Raises
    ------
    EmbedTypeError, EmbedValueError, EmbedIndexError
        As there. Nothing is written then.
    """
    grad_format = check.checked_format("grad", grad.dtype)
    check.checked_index_dtype(indices.dtype)
    n, d = check.checked_shapes(grad.shape, indices.shape)
    v = check.checked_num_weights(num_weights)
    padding = check.checked_padding_idx(padding_idx, v)
    scale = check.flag("scale_grad_by_freq", scale_grad_by_freq)
    dropping = check.checked_dropping(on_invalid)
    adding = check.flag("accumulate", accumulate)
    check.checked_core_num(core_num)
    threads = check.checked_num_threads(num_threads)
    rows = default_block_rows(v, d)
    if block_rows is not None:
        rows = integer("block_rows", block_rows, "None or an integer >= 1")
        if rows < 1:
            raise EmbedValueError(f"block_rows must be None or an integer >= 1, got {shown(rows)}")
    out_format = grad_format
    target: Array
    if out is not None:
        target = check.checked_out(out, (v, d), grad, indices)
        out_format = check.checked_format("out", target.dtype)
    elif adding:
        raise EmbedValueError("out must be given with accumulate=True, got None")
    else:
        target = np.empty((v, d), out_format.dtype)
    if threads is None:
        threads = worthwhile_threads(n, v, d, grad_format, out_format, pool_size())
        threads = threads if threads == 1 else min(threads, available_threads())
    Streamed(
        grad=grad,
        stream=RowStream(indices, v, padding, dropping),
        out=target,
        grad_format=grad_format,
        out_format=out_format,
        scale=scale,
        accumulate=adding,
        block_rows=rows,
        threads=threads,
    ).run()
    return target if out is None else out
