"""Things that are no arrays and offer one, or ought to be told what to offer."""

from __future__ import annotations

import array
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import POOL, refused
from reference import FLOATS, Array, assert_same_bits

from numba_embed import embedding_dense_backward as E

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


class Wrapped:
    """Something that is no array and offers one."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.values if dtype is None else self.values.astype(dtype)


class OnlyDLPack:
    """Something that offers nothing but DLPack."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


def test_objects_that_offer_memory() -> None:
    grad = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32)
    ids = np.array([2, 0, 2])
    want = np.array([[3, 4], [0, 0], [6, 8]], dtype=np.float32)
    wide = want.astype(np.float64)
    assert_same_bits(E(grad, array.array("q", [2, 0, 2]), 3), want)
    assert_same_bits(E(grad, array.array("B", [2, 0, 2]), 3), want)
    assert_same_bits(E(grad, memoryview(ids), 3), want)
    assert_same_bits(E(memoryview(grad), ids, 3), want)
    flat = array.array("d", [1, 3, 5])
    assert_same_bits(E(memoryview(flat).cast("B").cast("d", [3, 1]), ids, 3), wide[:, :1])
    assert_same_bits(E(Wrapped(grad), Wrapped(ids), 3), want)
    assert_same_bits(E(OnlyDLPack(grad), OnlyDLPack(ids), 3), want)
    assert_same_bits(E(OnlyDLPack(grad[::-1]), OnlyDLPack(ids[::-1]), 3), want)
    assert_same_bits(E(grad.tolist(), ids.tolist(), 3), wide)
    assert_same_bits(E(((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)), (2, 0, 2), 3), wide)
    assert_same_bits(E(grad.view(np.recarray), ids, 3), want)
    assert_same_bits(E(memoryview(grad).toreadonly(), memoryview(ids).toreadonly(), 3), want)


@pytest.mark.parametrize("bad", ["text", b"bytes", object(), {1: 2}, {1, 2}, 3 + 4j])
def test_objects_that_offer_none(bad: Any) -> None:
    with refused((TypeError, ValueError), "grad"):
        E(bad, [0], 3)
    with refused((TypeError, ValueError), "indices"):
        E(np.ones((1, 1), np.float32), bad, 3)


def test_memory_mapped_output(tmp_path: Path) -> None:
    grad = np.ones((4, 3), dtype=np.float32)
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.dtype(np.float32), (2, 3))
    assert E(grad, [1, 1, 1, 0], 2, out=out) is out
    out.flush()
    want = np.array([[1, 1, 1], [3, 3, 3]], dtype=np.float32)
    assert_same_bits(np.load(tmp_path / "out.npy"), want)


@needs_torch
def test_torch_tensors() -> None:
    import torch

    grad = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    ids = torch.tensor([1, 0, 1, 3])
    want = E(grad.numpy(), ids.numpy(), 4)
    assert_same_bits(E(grad, ids, 4), want)
    assert_same_bits(E(grad.half(), ids.int(), 4), want.astype(np.float16))
    assert_same_bits(E(grad.double(), ids.to(torch.uint8), 4), want.astype(np.float64))
    turned = grad.T.contiguous().T
    assert_same_bits(E(turned, ids.repeat_interleave(2)[::2], 4), want)
    assert_same_bits(E(grad[:1].expand(4, 3), ids, 4), E(grad[:1].expand(4, 3).numpy(), ids, 4))
    out = torch.full((4, 3), float("nan"))
    assert E(grad, ids, 4, out=out) is out
    assert_same_bits(out.numpy(), want)


@needs_torch
def test_torch_tensors_that_need_another_call() -> None:
    import torch

    grad = torch.ones(2, 3)
    ids = torch.tensor([0, 1])
    with refused(TypeError, "grad", "detach"):
        E(grad.clone().requires_grad_(), ids, 4)
    with refused(TypeError, "indices", "detach"):
        E(grad, ids.double().requires_grad_(), 4)
    with refused(TypeError, "grad", "bfloat16", "ml_dtypes"):
        E(grad.bfloat16(), ids, 4)
    with refused(TypeError, "out", "bfloat16"):
        E(grad, ids, 4, out=torch.zeros(4, 3, dtype=torch.bfloat16))
    with refused(TypeError, "out", "detach"):
        E(grad, ids, 4, out=torch.zeros(4, 3, requires_grad=True))
    with refused((TypeError, ValueError), "grad"):
        E(grad.to_sparse(), ids, 4)


@needs_torch
def test_the_advice_for_bfloat16_tensors_works() -> None:
    import torch

    grad = torch.tensor([[1.5, 2.0], [3.0, -4.0]], dtype=torch.bfloat16)
    there = grad.view(torch.int16).numpy().view(FLOATS["bfloat16"])
    want = np.array([[4.5, -2.0]]).astype(FLOATS["bfloat16"])
    assert_same_bits(E(there, [0, 0], 1), want)
    out = torch.empty(1, 2, dtype=torch.bfloat16)
    E(there, [0, 0], 1, out=out.view(torch.int16).numpy().view(FLOATS["bfloat16"]))
    assert out.tolist() == [[4.5, -2.0]]


def test_an_array_without_native_dtype_is_no_surprise() -> None:
    """A pool of one thread or many, the dtype of a fresh result is native and grad's."""
    got = E(np.ones((1, 1), ">f4"), [0], 1, num_threads=POOL)
    assert got.dtype == np.float32
    assert got.dtype.isnative
