"""Inputs that several test files draw, and the check that a refused call changed nothing."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from reference import FLOATS, bits

import numba_embed as ne
from numba_embed.errors import EmbedError

Array = npt.NDArray[Any]

POOL: int = numba.config.NUMBA_NUM_THREADS
THREADS = [1, 2] if POOL > 1 else [1]
CORES = [None, 1, 2, 3, 7, 32, 1000, 2**40]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def ones(size: int, dtype: npt.DTypeLike = np.float32) -> Array:
    """Gradient of ones, shape (size, 1)."""
    return np.ones((size, 1), dtype=dtype)


def normal(random: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    """Draw from the normal distribution, rounded to one of the gradient dtypes."""
    wide = np.float64 if name == "float64" else np.float32
    return random.standard_normal(shape, dtype=wide).astype(FLOATS[name], copy=False)


def spread(random: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    """Draw values whose exponents spread over 16 decades: float64 sums of them show their order."""
    values = random.standard_normal(shape, dtype=np.float32).astype(np.float64)
    return (values * 10.0 ** random.integers(-8, 8, shape)).astype(FLOATS[name])


def hot_ids(random: np.random.Generator, size: int, num_weights: int) -> npt.NDArray[np.int64]:
    """Draw indices of which about half name one row, and the others any."""
    ids = random.integers(0, num_weights, size)
    ids[random.random(size) < 0.5] = num_weights // 3
    return ids


def misaligned(values: Array, by: int = 1) -> Array:
    """Copy an array to an address that no element would choose."""
    memory = bytearray(values.nbytes + by)
    view = np.frombuffer(memory, dtype=values.dtype, offset=by, count=values.size)
    view = view.reshape(values.shape)
    view[...] = values
    assert values.itemsize == 1 or not view.flags.aligned
    return view


def spaced(values: Array, *steps: int) -> Array:
    """Copy an array into a larger one, every ``steps``-th entry; negative steps run backwards."""
    big = np.full([abs(s) * n + 1 for s, n in zip(steps, values.shape, strict=True)], 99).astype(
        values.dtype
    )
    view = big[
        tuple(slice(0, abs(s) * n, abs(s)) for s, n in zip(steps, values.shape, strict=True))
    ]
    view = view[tuple(slice(None, None, -1 if s < 0 else 1) for s in steps)]
    view[...] = values
    return view


def plan_for(grad: Array, ids: Array, num_weights: int, *rest: Any, **options: Any) -> ne.Plan:
    """Plan for arrays, from what a plan may know of them."""
    return ne.plan_dense_backward(
        grad.shape, grad.dtype, ids.shape, ids.dtype, num_weights, *rest, **options
    )


def thresholds(function: Callable[[int], Any], low: int, high: int) -> list[int]:
    """Find where ``function`` of an integer changes: every first argument of a new value.

    Walks in steps of about 1/16 and bisects where two steps differ, so that a change and its
    return within one step go unseen.
    """
    found = []
    while low < high:
        step = min(high, low + max(1, low // 16))
        if function(step) != function(low):
            left, right = low, step
            while right - left > 1:
                middle = (left + right) // 2
                left, right = (
                    (middle, right) if function(middle) == function(low) else (left, middle)
                )
            found.append(right)
        low = step
    return found


def around(points: list[int], lowest: int = 0) -> list[int]:
    """List the points with their neighbours below and above."""
    return sorted(
        {near for point in points for near in (point - 1, point, point + 1) if near >= lowest}
    )


def note_tries(monkeypatch: pytest.MonkeyPatch, small: Any, module: Any) -> list[bool]:
    """Return a list that notes for every try of a short way whether it led to a result.

    ``small`` is the class that runs it, ``module`` the one whose small calls start empty.
    """
    tries: list[bool] = []
    run = small.__call__

    def noting(self: Any, *operands: Any) -> Any:
        result = run(self, *operands)
        tries.append(result is not None)
        return result

    monkeypatch.setattr(small, "__call__", noting)
    monkeypatch.setattr(module, "_small_calls", {})
    return tries


def run_in_threads(work: Callable[[int], None]) -> None:
    """Run ``work`` in four threads at once, with 0, 1, 0 and 1."""
    threads = [threading.Thread(target=work, args=(k % 2,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def refused(
    error: type[Exception] | tuple[type[Exception], ...],
    *parts: object,
    out: Array | None = None,
) -> Iterator[None]:
    """Expect an error of the package's family that names ``parts``, and ``out`` as it was."""
    before = None if out is None else bits(out).copy()
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert isinstance(caught.value, EmbedError), f"{type(caught.value)} is not of the family"
    for part in parts:
        found = re.search(rf"(?<!\w){re.escape(str(part))}(?!\w)", message)
        assert found, f"{part!s} is not named in: {message}"
    if out is not None and before is not None:
        assert np.array_equal(bits(out), before), "a refused call wrote to out"
