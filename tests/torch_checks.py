"""What the tests of the torch backend share: counted calls, exact gradients, closer-than checks."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import numba_embed.torch as backend  # noqa: E402, F401

Tensor: Any = torch.Tensor

NAMES = ["float16", "bfloat16", "float32", "float64"]


class Call(NamedTuple):
    """One run of the kernels: the arrays that they read, and what they were told."""

    threads: int
    grad: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    options: dict[str, Any]


class Calls(list[Call]):
    """Every run of the kernels through the torch backend since the fixture was set up."""


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


def waves(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    """Give a tensor of different values between -1 and 1."""
    size = int(np.prod(shape))
    return torch.arange(1, size + 1, dtype=torch.float64).cos().reshape(shape).to(dtype)


def exact(
    grad: Tensor, indices: Tensor, num_weights: int, padding: int = -1, scale: bool = False
) -> Tensor:
    """Sum rows in extended precision, the obvious way; float64."""
    rows = grad.detach().to(torch.float64).reshape(indices.numel(), grad.shape[-1]).numpy()
    ids = indices.numpy().reshape(-1)
    total = np.zeros((num_weights, rows.shape[1]), np.longdouble)
    np.add.at(total, ids, rows.astype(np.longdouble))
    if scale:
        total /= np.maximum(np.bincount(ids, minlength=num_weights), 1)[:, None]
    if padding >= 0:
        total[padding] = 0
    return torch.from_numpy(total.astype(np.float64))


def assert_closer(ours: Tensor, theirs: Tensor, truth: Tensor) -> None:
    """Wherever ours differs from torch's, it is at least as close to the float64 result."""
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ours.dtype == torch.float64:
        torch.testing.assert_close(ours, truth, rtol=1e-13, atol=1e-15)
        return
    our_error = (ours.double() - truth).abs()
    their_error = (theirs.double() - truth).abs()
    worse = (our_error > their_error) & (ours != theirs)
    assert not worse.any(), f"{our_error[worse]} > {their_error[worse]}"


def exact_bags(
    grad: Tensor,
    indices: Tensor,
    num_weights: int,
    factors: Tensor | None = None,
    *,
    mode: str,
    offsets: Tensor | None = None,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    include_last_offset: bool = False,
    **unused: Any,
) -> Tensor:
    """Sum the bags' gradients by row in extended precision, bag by bag; float64."""
    size = indices.numel()
    if offsets is None:
        bounds = list(range(0, size + 1, indices.shape[1]))
    else:
        bounds = offsets.tolist() + ([] if include_last_offset else [size])
    ids = indices.reshape(-1).tolist()
    weights = [1.0] * size if factors is None else factors.detach().double().reshape(-1).tolist()
    padding = None if padding_idx is None else padding_idx % num_weights
    rows = grad.detach().double().numpy().astype(np.longdouble)
    total = np.zeros((num_weights, rows.shape[1]), np.longdouble)
    frequency = np.bincount(ids[: bounds[-1]], minlength=num_weights)
    for bag, (first, end) in enumerate(itertools.pairwise(bounds)):
        places = [place for place in range(first, end) if ids[place] != padding]
        for place in places:
            weight = weights[place] / (len(places) if mode == "mean" else 1)
            weight /= frequency[ids[place]] if scale_grad_by_freq else 1
            total[ids[place]] += weight * rows[bag]
    return torch.from_numpy(total.astype(np.float64))
