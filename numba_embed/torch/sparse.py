"""Sparse gradients of embedding tables: coalesced COO tensors made of row gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from numba_embed.errors import EmbedTypeError
from numba_embed.execute_rows import execute_rows
from numba_embed.row_backward import plan_row_gradient
from numba_embed.row_gradient import RowGradient
from numba_embed.torch import dense


def to_sparse(gradient: RowGradient) -> Tensor:
    """Return a row gradient as a coalesced sparse COO tensor of shape (V, D).

    Parameters
    ----------
    gradient : RowGradient
        Of `numba_embed.embedding_row_gradient`. The tensor shares its values; rows are copied.

    Returns
    -------
    Tensor
        One sparse dimension, one dense; ``is_coalesced()`` is true.

    Raises
    ------
    EmbedTypeError
        If the argument is no `RowGradient`.

    Notes
    -----
    O(R) for R rows: they are neither sorted nor summed again.
    """
    if not isinstance(gradient, RowGradient):
        raise EmbedTypeError(f"gradient must be a RowGradient, got {type(gradient).__name__}")
    values = dense.as_tensor(gradient.values, gradient.values.dtype.name)
    return _coalesced(torch.from_numpy(gradient.rows.copy()), values, gradient.num_weights)


def _coalesced(rows: Tensor, values: Tensor, num_weights: int) -> Tensor:
    """Return the tensor of distinct ascending rows, which is coalesced as it is."""
    return torch.sparse_coo_tensor(
        rows.unsqueeze(0),
        values,
        (num_weights, values.shape[1]),
        check_invariants=False,
        is_coalesced=True,
    )


def sparse_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Sum the rows of ``grad`` that share an index, into a coalesced sparse tensor.

    ``grad`` has the shape of the look-up, ``(*indices.shape, D)``, and ``indices`` is int32 or
    int64. No operand is copied; O(N D), and nothing grows with V.

    Raises
    ------
    EmbedIndexError
        If an index is out of range.
    """
    if grad.dim() > dense.MAX_DIMS:
        grad = grad.flatten(0, -2)  # a view, unless the strides forbid one
    form, size = dense.FORMATS[grad.dtype], indices.numel()
    plan = plan_row_gradient(
        (size, grad.shape[-1]), form, (size,), np.int64, num_weights, padding_idx,
        scale_grad_by_freq,
    )  # fmt: skip
    plan = plan._within(torch.get_num_threads())
    scratch = np.empty(plan.workspace_nbytes, np.uint8)
    dtype = dense.array_dtype(plan.out_format)
    arrays = dense.as_array(grad), dense.as_array(indices)
    rows, values = execute_rows(plan, *arrays, scratch, dtype)
    return _coalesced(torch.from_numpy(rows), dense.as_tensor(values, form), num_weights)


class SparseLookUp(torch.autograd.Function):
    """A look-up whose gradient with respect to the table is sparse; differentiable once."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool
    ) -> Tensor:
        """Look the rows up."""
        ctx.save_for_backward(indices)
        ctx.options = weight.shape[0], padding_idx, scale_grad_by_freq
        return torch.embedding(weight, indices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        """Sum the gradient by row."""
        (indices,) = ctx.saved_tensors
        result = sparse_backward(grad, indices, *ctx.options)
        # torch would take a gradient that nobody else refers to apart and put it together again
        # without the mark that it is coalesced, which every optimizer's step would then sort for.
        # With a reference to it here, for as long as the graph lives, it copies, marks included.
        ctx.gradient = result
        return result, None, None, None
