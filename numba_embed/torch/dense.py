"""The dense gradient of an embedding table from tensors to a tensor, without copying an operand."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from numba_embed.dense_plan import Plan, executor, plan_within, recent_plan
from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.formats import Format
from numba_embed.pool import OutputPool
from numba_embed.runtime import available_threads

Array = npt.NDArray[Any]

FORMATS = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
INDEX_DTYPES = (torch.int32, torch.int64)

MAX_DIMS = 8


class Stream(NamedTuple):
    """What makes positions of a bag of look-ups of them: see `numba_embed.execute.execute`."""

    position_map: npt.NDArray[np.int64]
    position_weights: npt.NDArray[np.float64] | None


def as_array(tensor: Tensor) -> Array:
    """Return a tensor's memory as an array; bfloat16, which NumPy lacks, as int16 bit patterns."""
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.int16)
    array: Array = tensor.numpy()
    return array


def array_dtype(form: Format) -> npt.DTypeLike:
    """Return the dtype of arrays that `as_array` and `as_tensor` take for a format."""
    return np.int16 if form.name == "bfloat16" else form.dtype


def as_tensor(array: Array, form: str) -> Tensor:
    """Return an array's memory as a tensor of a format; bfloat16 from its bit patterns, too."""
    if form != "bfloat16":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def dense_backward(
    grad: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
    on_invalid: str = "raise",
    pool: OutputPool | None = None,
    stream: Stream | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Sum the rows of ``grad`` that share an index.

    Parameters
    ----------
    grad : Tensor, shape (..., D)
        float16, bfloat16, float32 or float64, any strides: N rows, or with a ``stream`` as many as
        its map refers to.
    indices : Tensor, shape (...)
        N indices, int32 or int64.
    num_weights, padding_idx, scale_grad_by_freq
        As of ``aten::embedding_dense_backward``; a ``padding_idx`` outside [0, V) is no row.
    on_invalid : {"raise", "drop"}
        Whether an index out of range is an error or is skipped.
    pool : OutputPool, optional
        Lends the memory of the result and of the workspace.
    stream : Stream, optional
        The gradient row of each position, and its weight.
    out_dtype : torch.dtype, optional
        Of the result; by default grad's.

    Returns
    -------
    Tensor, shape (V, D)

    Raises
    ------
    EmbedTypeError, EmbedValueError, EmbedIndexError
        For dtypes that are not accepted, sizes that disagree, and indices out of range.
    """
    form = FORMATS.get(grad.dtype)
    if form is None:
        raise EmbedTypeError(
            f"grad must be float16, bfloat16, float32 or float64, got {grad.dtype}"
        )
    if indices.dtype not in INDEX_DTYPES:
        raise EmbedTypeError(f"indices must be int32 or int64, got {indices.dtype}")
    size = indices.numel()
    if grad.dim() == 0 or (stream is None and math.prod(grad.shape[:-1]) != size):
        raise EmbedValueError(
            f"grad and indices must agree: grad of shape {tuple(grad.shape)} with {size} indices "
            f"of shape {tuple(indices.shape)}"
        )
    if grad.dim() > MAX_DIMS:
        grad = grad.flatten(0, -2)  # a view, unless the strides forbid one

    plan: Plan = recent_plan(
        (size, grad.shape[-1]),
        form,
        (size,),
        np.int64,
        num_weights,
        padding_idx,
        scale_grad_by_freq,
        None if out_dtype is None else FORMATS[out_dtype],
        on_invalid,
        None,
        None,
    )
    if plan.threads > 1:
        threads = torch.get_num_threads()
        plan = plan_within(plan, min(threads, available_threads()) if threads > 1 else 1)
    dtype = array_dtype(plan.out_format)
    out = None if pool is None else pool.empty(plan.out_shape, dtype)
    scratch = None if pool is None else pool.take(plan.workspace_nbytes)
    out = executor()(
        plan,
        as_array(grad),
        as_array(indices),
        out,
        False,
        scratch,
        dtype=dtype,
        **(stream._asdict() if stream else {}),
    )
    return as_tensor(out, plan.out_format.name)
