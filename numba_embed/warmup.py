"""Compiling ahead: the kernels that the first calls of a process would otherwise wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from numba_embed.dense_plan import plan_dense_backward
from numba_embed.order import sum_order
from numba_embed.runtime import pool_size, source_digest
from numba_embed.validation import checked_format

GATHER = (2, 3, 1)
TABLES = (4096, 3, 1)
"""(N, V, D) of the smallest calls that take each algorithm."""


def warmup(
    formats: Sequence[str] = ("float32",),
    index_dtypes: Sequence[str] = ("int64",),
    progress: Callable[[str], None] | None = None,
) -> int:
    """Compile and cache the kernels for some dtypes, serial and parallel.

    Parameters
    ----------
    formats
        Formats of gradient and output: "float16", "bfloat16", "float32", "float64".
    index_dtypes
        Dtypes of the indices. All but int32 and the floats share the kernels of int64.
    progress
        Is called before each step with a line that says what is compiled.

    Returns
    -------
    int
        The number of steps.

    Raises
    ------
    EmbedTypeError
        A name is not a dtype that the operator accepts.
    ModuleNotFoundError
        "bfloat16" was asked for and `ml_dtypes` is not installed.

    Notes
    -----
    Seconds of compilation for every format that is not in the cache yet.
    """
    steps = list(_steps(formats, index_dtypes))
    for label, plan, grad, indices in steps:
        if progress is not None:
            progress(label)
        plan.execute(grad, indices)
    return len(steps)


def _steps(
    formats: Sequence[str], index_dtypes: Sequence[str]
) -> Iterator[tuple[str, Any, Any, Any]]:
    for name in formats:
        dtype = checked_format("formats", name).dtype
        for index_dtype in index_dtypes:
            for n, v, d in (GATHER, TABLES):
                for threads in (1, 2) if pool_size() > 1 else (1,):
                    grad = np.zeros((n, d), np.float32).astype(dtype)
                    indices = np.zeros(n, index_dtype)
                    plan = plan_dense_backward(
                        grad.shape, dtype, indices.shape, indices.dtype, v, num_threads=threads
                    )
                    kind = "parallel" if threads > 1 else "serial"
                    tables = sum_order(n, v, d).by_position
                    label = f"{name}, {index_dtype} indices, {'tables' if tables else 'gather'}"
                    yield f"{label}, {kind}", plan, grad, indices


def cache_info() -> tuple[Path | None, int]:
    """Return the directory of compiled kernels, and how many files of this version it holds.

    Returns
    -------
    directory : Path or None
        None where none is writable.
    files : int
        Compiled kernels; nothing is compiled to count them.
    """
    from numba_embed.kernels.phases import run_phases

    folder = run_phases.serial.stats.cache_path
    if folder is None:
        return None, 0
    files = Path(folder).glob(f"*_{source_digest()}-*.nbc")
    return Path(folder), sum(1 for _ in files)
