"""Seeded jobs whose result shows any change of order, and their digests.

One process runs them in several ways, other processes (more threads, other CPU features) run them
again: all digests of a job must be one.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from inputs import Array, hot_ids, normal, spread
from reference import FLOATS

from numba_embed import embedding_dense_backward


class Job(NamedTuple):
    """One call, but for its thread and core counts."""

    size: int
    num_weights: int
    width: int
    grad: str
    out: str
    padding_idx: int | None = None
    scale: bool = False


JOBS = {
    "float64": Job(200_000, 50_000, 3, "float64", "float64"),
    "float64-small-table": Job(200_000, 1000, 3, "float64", "float64", 7, True),
    "float64-wide": Job(3000, 500, 2100, "float64", "float64"),
    "float32-spread": Job(200_000, 50_000, 2, "float32", "float64", None, True),
    "float32-spread-small-table": Job(200_000, 1000, 2, "float32", "float64"),
}
FORMAT_JOBS = {
    # As many columns as there are loops, and rows of one, few and many look-ups.
    **{name: Job(20_000, 3_000, 45, name, name) for name in ("float16", "bfloat16", "float32")},
    **{
        f"{name}-small-table": Job(20_000, 500, 3, name, name, None, True)
        for name in ("float16", "bfloat16")
    },
}
MILLION_JOBS = {
    "million-float64": Job(10**6, 100_000, 2, "float64", "float64"),
    "million-float64-small-table": Job(10**6, 1000, 2, "float64", "float64"),
    "million-float32": Job(10**6, 100_000, 2, "float32", "float64"),
    "million-float32-small-table": Job(10**6, 1000, 2, "float32", "float64"),
}


def draw(job: Job) -> tuple[Array, Array]:
    """Draw the job's gradient and indices: half of them name one row."""
    random = np.random.default_rng([job.size, job.num_weights, job.width])
    make = spread if job.grad != job.out else normal
    grad = make(random, (job.size, job.width), job.grad)
    return grad, hot_ids(random, job.size, job.num_weights)


def run(job: Job, grad: Array, ids: Array, **options: Any) -> Array:
    """Run a job on what `draw` drew for it."""
    out = np.empty((job.num_weights, job.width), dtype=FLOATS[job.out])
    embedding_dense_backward(
        grad, ids, job.num_weights, job.padding_idx, job.scale, out=out, **options
    )
    return out


def digest(values: Array) -> str:
    """Name an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def all_digests(
    jobs: dict[str, Job], threads: list[int | None], cores: list[int | None]
) -> dict[str, str]:
    """Run every job with every thread and core count; give each job's digest.

    Fails where two runs of one job differ.
    """
    result = {}
    for name, job in jobs.items():
        grad, ids = draw(job)
        first = ""
        for count in threads:
            for core_num in cores:
                out = run(job, grad, ids, num_threads=count, core_num=core_num)
                first = first or digest(out)
                assert digest(out) == first, f"{name}: {count} threads, {core_num} cores"
        result[name] = first
    return result
