"""What else computes this gradient on a CPU. Every peer is imported when it is asked for.

A peer's operands are converted once, outside of the timed part, but for a gradient whose layout it
cannot take: the copy that it needs is part of every call. Every call makes a fresh output, as these
functions do, except in cases that accumulate.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.bench.cases import Case, Operands

Array = npt.NDArray[Any]
Call = Callable[[], Any]

BASE = 1.0
"""What every entry of an output holds before something is added to it."""


class UnsupportedError(Exception):
    """The peer has no such operation."""


class AbsentError(Exception):
    """The peer is not installed, or does not load."""


@dataclass(frozen=True)
class Peer:
    """One other implementation.

    Attributes
    ----------
    name
        Its name on the command line and in the figures.
    title
        What it calls.
    module
        The module that must load.
    prepare
        ``(module, case, operands) -> call``: converts the operands. Raises `UnsupportedError`.
    to_numpy
        ``(result, case) -> array`` of the case's dtype.
    """

    name: str
    title: str
    module: str
    prepare: Callable[[Any, Case, Operands], Call]
    to_numpy: Callable[[Any, Case], Array]

    def load(self, threads: int) -> Any:
        """Import the module, and have it use so many threads where it can be told.

        Raises
        ------
        AbsentError
            It is not installed or does not load.
        """
        # Must be set before the import; TensorFlow reports its build options at length, and JAX
        # looks for accelerators.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError:
            raise AbsentError(f"{self.module.partition('.')[0]} is not installed") from None
        except Exception as error:
            raise AbsentError(f"{type(error).__name__}: {error}") from error
        if self.module == "torch":
            module.set_num_threads(threads)
        if self.module == "tensorflow":
            module.config.set_visible_devices([], "GPU")
        return module


def _torch_operands(torch: Any, case: Case, operands: Operands) -> tuple[Any, Any]:
    grad = operands.grad
    if case.dtype == "bfloat16":
        grad = grad.view(np.int16)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        tensor = torch.from_numpy(grad)
    if case.dtype == "bfloat16":
        tensor = tensor.view(torch.bfloat16)
    return tensor, torch.from_numpy(operands.indices)


def _torch_array(tensor: Any, case: Case) -> Array:
    if case.dtype == "bfloat16":
        import torch

        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(case.numpy_dtype)
    array: Array = tensor.numpy()
    return array


def _torch_dense_backward(torch: Any, case: Case, operands: Operands) -> Call:
    grad, indices = _torch_operands(torch, case, operands)
    backward = torch.ops.aten.embedding_dense_backward
    padding = -1 if case.padding_idx is None else case.padding_idx
    arguments = (grad, indices, case.V, padding, case.scale)
    if not case.accumulate:
        return lambda: backward(*arguments)
    out = torch.full((case.V, case.D), BASE, dtype=grad.dtype)
    return lambda: out.add_(backward(*arguments))


def _torch_index_add(torch: Any, case: Case, operands: Operands) -> Call:
    _refuse(case, scale=True)
    grad, indices = _torch_operands(torch, case, operands)
    if case.accumulate:
        out = torch.full((case.V, case.D), BASE, dtype=grad.dtype)
        return lambda: out.index_add_(0, indices, grad)

    def call() -> Any:
        out = torch.zeros((case.V, case.D), dtype=grad.dtype).index_add_(0, indices, grad)
        if case.padding_idx is not None:
            out[case.padding_idx] = 0
        return out

    return call


def _scipy(sparse: Any, case: Case, operands: Operands) -> Call:
    _refuse(case, scale=True)
    if case.dtype not in ("float32", "float64"):
        raise UnsupportedError(f"no sparse matrices of {case.dtype}")
    grad, indices = operands.grad, operands.indices
    picked = sparse.csr_matrix(
        (np.ones(case.N, grad.dtype), indices, np.arange(case.N + 1)), shape=(case.N, case.V)
    )
    if case.accumulate:
        out = np.full((case.V, case.D), BASE, grad.dtype)
        return lambda: np.add(out, picked.T @ grad, out=out)

    def call() -> Any:
        out = picked.T @ grad
        if case.padding_idx is not None:
            out[case.padding_idx] = 0
        return out

    return call


def _add_at(numpy: Any, case: Case, operands: Operands) -> Call:
    _refuse(case, scale=True)
    grad, indices = operands.grad, operands.indices
    base = np.full((case.V, case.D), BASE, grad.dtype) if case.accumulate else None

    def call() -> Any:
        out = np.zeros((case.V, case.D), grad.dtype) if base is None else base
        np.add.at(out, indices, grad)
        if case.padding_idx is not None:
            out[case.padding_idx] = 0
        return out

    return call


def _jax(jax: Any, case: Case, operands: Operands) -> Call:
    _refuse(case, scale=True, accumulate=True)
    indices = jax.numpy.asarray(operands.indices)
    gradient = _converted(operands.grad, jax.numpy.asarray)

    def segment_sum(grad: Any, indices: Any) -> Any:
        out = jax.ops.segment_sum(grad, indices, num_segments=case.V)
        return out if case.padding_idx is None else out.at[case.padding_idx].set(0)

    compiled = jax.jit(segment_sum)
    return lambda: compiled(gradient(), indices).block_until_ready()


def _tensorflow(tensorflow: Any, case: Case, operands: Operands) -> Call:
    _refuse(case, scale=True, accumulate=True, padding=True)
    gradient = _converted(operands.grad, tensorflow.constant)
    indices = tensorflow.constant(operands.indices)
    segment_sum = tensorflow.math.unsorted_segment_sum
    return lambda: segment_sum(gradient(), indices, case.V)


def _converted(grad: Array, convert: Callable[[Array], Any]) -> Call:
    """Return what gives a gradient as a peer's array: converted before, if it is contiguous."""
    if not grad.flags.c_contiguous:
        return lambda: convert(np.ascontiguousarray(grad))
    converted = convert(grad)
    return lambda: converted


def _refuse(
    case: Case, scale: bool = False, accumulate: bool = False, padding: bool = False
) -> None:
    """Raise UnsupportedError where the case needs one of the features marked here."""
    if scale and case.scale:
        raise UnsupportedError("does not scale by frequency")
    if accumulate and case.accumulate:
        raise UnsupportedError("does not add to an array in place")
    if padding and case.padding_idx is not None:
        raise UnsupportedError("has no padding row")


def _as_is(result: Any, case: Case) -> Array:
    return np.asarray(result)


PEERS: tuple[Peer, ...] = (
    Peer("torch", "torch embedding_dense_backward", "torch", _torch_dense_backward, _torch_array),
    Peer("index_add", "torch index_add_", "torch", _torch_index_add, _torch_array),
    Peer("scipy", "scipy csr.T @ g", "scipy.sparse", _scipy, _as_is),
    Peer("add_at", "numpy add.at", "numpy", _add_at, _as_is),
    Peer("jax", "jax segment_sum", "jax", _jax, _as_is),
    Peer("tensorflow", "tensorflow unsorted_segment_sum", "tensorflow", _tensorflow, _as_is),
)
