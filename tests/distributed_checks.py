"""What the checks of sharded tables share, which every rank of a process group runs.

A check is a function of the rank, the world's size, and a folder that all ranks share.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import reference
import torch

from numba_embed.distributed import ShardedEmbedding

PATIENCE = timedelta(minutes=15)  # processes may be paused
CHECKS: dict[str, Callable[[int, int, Path], None]] = {}


def check(function: Callable[[int, int, Path], None]) -> Callable[[int, int, Path], None]:
    CHECKS[function.__name__] = function
    return function


class Batch(NamedTuple):
    ids: Any
    grad: Any


def batches(
    world: int, seed: int, num_weights: int, width: int, dtype: torch.dtype, whole: bool = True
) -> list[Batch]:
    """Give every rank's batch: of all sizes, one of them empty; gradients of small integers."""
    made = []
    for rank in range(world):
        random = np.random.default_rng([seed, rank])
        size = (37, 0, 200, 1)[(rank + seed) % 4] if num_weights else 0
        # Low rows are hot, so that some are looked up once and some more often.
        ids = (num_weights * random.random(size) ** 3).astype(np.int64)
        values = (
            random.integers(-8, 9, (size, width)) if whole else random.normal(size=(size, width))
        )
        made.append(Batch(torch.from_numpy(ids), torch.from_numpy(values).to(dtype)))
    return made


def as_numpy(tensor: Any) -> Any:
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(reference.FLOATS["bfloat16"])
    return tensor.numpy()


def whole_gradient(parts: list[Batch], table: ShardedEmbedding, scale: bool, divide: int) -> Any:
    """Give the gradient of one process with all batches, divided before it is rounded."""
    grad = np.concatenate([as_numpy(part.grad) for part in parts])
    ids = np.concatenate([part.ids.numpy() for part in parts])
    options = table.num_embeddings, table.padding_idx, scale
    if divide == 1:
        return reference.fast_dense_backward(grad, ids, *options)
    wide = reference.fast_dense_backward(grad, ids, *options, out_dtype=np.float64) / divide
    return reference.round_once(wide, 0, grad.dtype)


def gradient_of(table: ShardedEmbedding, batch: Batch) -> Any:
    table.weight.grad = None
    table(batch.ids).backward(batch.grad)
    assert table.weight.grad is not None
    return table.weight.grad


def own(table: ShardedEmbedding, whole: Any) -> Any:
    return whole[table.rows.start : table.rows.stop]


def message(kind: type[Exception], call: Callable[..., Any], *args: Any, **options: Any) -> str:
    """Give the text of the error that a call ends in."""
    try:
        call(*args, **options)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


RESULTS: dict[str, str] = {}


def write(rank: int, folder: Path) -> None:
    (folder / f"{rank}.json").write_text(json.dumps(RESULTS))
