"""The explicit function: a look-up whose gradient comes from this library, whatever the switch.

Two operators of their own, opaque to ``torch.compile``: the look-up and its backward. The backward
is linear in the gradient, so its own derivative is a look-up again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.torch import dense
from numba_embed.torch.backend import output_pool
from numba_embed.torch.sparse import SparseLookUp


@torch.library.custom_op(
    "numba_embed::embedding",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor weight, Tensor indices, SymInt padding_idx, bool scale_grad_by_freq) -> Tensor",
)
def _look_up(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool) -> Tensor:
    return torch.embedding(weight, indices)


@_look_up.register_fake
def _fake_look_up(
    weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    return weight.new_empty((*indices.shape, weight.shape[1]))


@torch.library.custom_op(
    "numba_embed::embedding_dense_backward",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor grad, Tensor indices, SymInt num_weights, SymInt padding_idx, "
    "bool scale_grad_by_freq) -> Tensor",
)
def _backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    return dense.dense_backward(
        grad, indices, num_weights, padding_idx, scale_grad_by_freq, pool=output_pool()
    )


@_backward.register_fake
def _fake_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    return grad.new_empty((num_weights, grad.shape[-1]))


def _save_for_look_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weight, indices, ctx.padding_idx, ctx.scale = inputs
    ctx.num_weights = weight.shape[0]
    ctx.save_for_backward(indices)


def _differentiate_look_up(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    (indices,) = ctx.saved_tensors
    return _backward(grad, indices, ctx.num_weights, ctx.padding_idx, ctx.scale), None, None, None


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, indices, ctx.num_weights, ctx.padding_idx, ctx.scale = inputs
    ctx.save_for_backward(indices)


def _differentiate_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
    """Look the row up again that a position's gradient was added to, unless it went nowhere."""
    (indices,) = ctx.saved_tensors
    factor = position_factor(indices, ctx.num_weights, ctx.padding_idx, ctx.scale, grad.dtype)
    rows = _look_up(grad, indices, -1, False)
    return rows if factor is None else rows * factor.unsqueeze(-1), None, None, None, None


def position_factor(
    indices: Tensor, num_weights: int, padding_idx: int, scale: bool, dtype: torch.dtype
) -> Tensor | None:
    """Return by what a position's gradient is multiplied on its way to the table; None: by 1.

    Zero at the padding row, and with ``scale`` one over the frequency of the position's row.
    """
    factor = None
    if scale:
        flat = indices.reshape(-1).long()
        count = torch.zeros(num_weights, dtype=torch.int64).index_add(
            0, flat, torch.ones_like(flat)
        )
        factor = count[indices.long()].to(torch.float64).reciprocal()
    if padding_idx >= 0:
        kept = indices != padding_idx
        factor = kept if factor is None else factor * kept
    return None if factor is None else factor.to(dtype)


_look_up.register_autograd(_differentiate_look_up, setup_context=_save_for_look_up)
_backward.register_autograd(_differentiate_backward, setup_context=_save_for_backward)


def checked_padding(padding_idx: int | None, num_weights: int) -> int:
    """Return the padding row, or -1 for none; counts from the end where negative, as torch does.

    Raises
    ------
    EmbedValueError
        If there is no such row.
    """
    if padding_idx is None:
        return -1
    if not -num_weights <= padding_idx < num_weights:
        raise EmbedValueError(
            f"padding_idx must be None or in [{-num_weights}, {num_weights}), got {padding_idx}"
        )
    return padding_idx + num_weights if padding_idx < 0 else padding_idx


def checked_weight(weight: Tensor) -> None:
    """Refuse what is no table on the CPU.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        If the device or the dtype, or the shape, is another.
    """
    if weight.device.type != "cpu":
        raise EmbedTypeError(f"weight must be on the CPU, got a tensor on {weight.device}")
    if weight.dtype not in dense.FORMATS:
        raise EmbedTypeError(
            f"weight must be float16, bfloat16, float32 or float64, got {weight.dtype}"
        )
    if weight.dim() != 2:
        raise EmbedValueError(f"weight must have shape (V, D), got {tuple(weight.shape)}")


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    *,
    sparse: bool = False,
) -> Tensor:
    """Look rows of a table up; the gradient of the table is computed by this library.

    Parameters
    ----------
    weight : Tensor, shape (V, D)
        The table, on the CPU: float16, bfloat16, float32 or float64.
    indices : Tensor, shape (...)
        Row numbers in [0, V), int32 or int64.
    padding_idx : int, optional
        Row whose gradient is zero; a negative one counts from the end.
    scale_grad_by_freq : bool, default False
        Divide the gradient of each row by the number of its look-ups.
    sparse : bool, default False
        Make the table's gradient a sparse COO tensor of the looked-up rows, coalesced already, as
        ``SparseAdam`` and ``SGD`` take it, in O(N D); its values are those of the dense one's rows.
        Differentiable once.

    Returns
    -------
    Tensor, shape (..., D)
        The rows, as ``torch.nn.functional.embedding`` gives them.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        If an argument has another type, dtype, device or shape.
    IndexError
        If an index is out of range.

    Notes
    -----
    Needs no switch, and stays one operator under ``torch.compile``, inductor included. Twice
    differentiable; unlike torch's, the second derivative honours ``scale_grad_by_freq``. Outputs
    come from the pool of `numba_embed.output_pool`, or of the switch, where there is one.
    """
    checked_weight(weight)
    if indices.dtype not in dense.INDEX_DTYPES:
        raise EmbedTypeError(f"indices must be int32 or int64, got {indices.dtype}")
    padding = checked_padding(padding_idx, weight.shape[0])
    if sparse:
        apply: Any = SparseLookUp.apply
        looked_up: Tensor = apply(weight, indices, padding, scale_grad_by_freq)
        return looked_up
    result: Tensor = _look_up(weight, indices, padding, scale_grad_by_freq)
    return result
