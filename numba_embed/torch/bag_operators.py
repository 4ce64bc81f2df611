"""Bags of look-ups as three operators, closed under differentiation and opaque to compilers.

With row r_i of the table for position i, in bag b_i, of weight w_i:

- bags: ``out[b] = sum of w_i table[r_i] over b_i == b``, torch's own forward pass;
- the backward: ``out[r] = sum of w_i grad[b_i] over r_i == r``, on this library's kernels;
- products: ``out[i] = grad[b_i] . table[r_i]``, torch's own operator.

Each is linear in either of its two factors, and the derivatives are the other ones. The kernels
read a bag's gradient row where it is, through a map from positions to bags: no gradient per
look-up is ever in memory. ``offsets`` always has an entry more than there are bags: the end of the
last one; positions behind it are in no bag.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from numba_embed.errors import EmbedValueError
from numba_embed.torch import dense
from numba_embed.torch.backend import output_pool
from numba_embed.torch.function import position_factor

Gradients: TypeAlias = tuple[Tensor | None, ...]

SUM, MEAN = 0, 1
"""torch's numbers of the modes."""


# --- bags -----------------------------------------------------------------------------------------


@torch.library.custom_op(
    "numba_embed::embedding_bag",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor weight, Tensor indices, Tensor offsets, Tensor? per_sample_weights, bool mean, "
    "bool scale_grad_by_freq, SymInt padding_idx) -> Tensor",
)
def bags(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    mean: bool,
    scale_grad_by_freq: bool,
    padding_idx: int,
) -> Tensor:
    """Add or average the rows of each bag; a ``padding_idx`` below 0 means none."""
    # torch does not agree with itself about positions behind the last bag: it gets none.
    end = _checked_end(indices, offsets)
    result: Tensor = torch.embedding_bag(
        weight,
        indices[:end],
        offsets,
        False,
        MEAN if mean else SUM,
        False,
        None if per_sample_weights is None else per_sample_weights[:end],
        True,
        None if padding_idx < 0 else padding_idx,
    )[0]
    return result


@bags.register_fake
def _fake_bags(weight: Tensor, indices: Tensor, offsets: Tensor, *rest: Any) -> Tensor:
    return weight.new_empty((offsets.shape[0] - 1, weight.shape[1]))


def _save_for_bags(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weight, indices, offsets, per_sample_weights, ctx.mean, ctx.scale, ctx.padding_idx = inputs
    ctx.num_weights = weight.shape[0]
    # The table itself is needed for the gradient of the weights only.
    table = weight if ctx.needs_input_grad[3] else None
    ctx.save_for_backward(indices, offsets, per_sample_weights, table)


def _differentiate_bags(ctx: Any, grad: Tensor) -> Gradients:
    indices, offsets, per_sample_weights, table = ctx.saved_tensors
    grad_table = grad_weights = None
    if ctx.needs_input_grad[0]:
        options = ctx.num_weights, ctx.mean, ctx.scale, ctx.padding_idx
        grad_table = backward(grad, indices, offsets, per_sample_weights, *options)
    if ctx.needs_input_grad[3]:
        grad_weights = products(grad, table, indices, offsets, ctx.padding_idx)
    return grad_table, None, None, grad_weights, None, None, None


bags.register_autograd(_differentiate_bags, setup_context=_save_for_bags)


# --- the backward ---------------------------------------------------------------------------------


@torch.library.custom_op(
    "numba_embed::embedding_bag_dense_backward",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor grad, Tensor indices, Tensor offsets, Tensor? per_sample_weights, "
    "SymInt num_weights, bool mean, bool scale_grad_by_freq, SymInt padding_idx) -> Tensor",
)
def backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    num_weights: int,
    mean: bool,
    scale_grad_by_freq: bool,
    padding_idx: int,
) -> Tensor:
    """Return the gradient of the table, (V, D), for that of the bags, (B, D)."""
    bag_of, indices = _in_bags(indices, offsets)
    count = offsets.shape[0] - 1
    if grad.dim() != 2 or grad.shape[0] != count:
        raise EmbedValueError(f"grad must have {count} rows, got shape {tuple(grad.shape)}")
    weights = None
    if per_sample_weights is not None:
        if per_sample_weights.dim() != 1 or per_sample_weights.shape[0] < indices.shape[0]:
            raise EmbedValueError(
                f"per_sample_weights must have {indices.shape[0]} entries, "
                f"got shape {tuple(per_sample_weights.shape)}"
            )
        weights = per_sample_weights[: indices.shape[0]].to(torch.float64)
    elif mean:
        weights = _mean_weights(indices, bag_of, count, padding_idx)
    stream = dense.Stream(
        bag_of.numpy(), None if weights is None else weights.detach().contiguous().numpy()
    )
    return dense.dense_backward(
        grad,
        indices,
        num_weights,
        padding_idx,
        scale_grad_by_freq,
        pool=output_pool(),
        stream=stream,
    )


@backward.register_fake
def _fake_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    num_weights: int,
    *rest: Any,
) -> Tensor:
    return grad.new_empty((num_weights, grad.shape[1]))


def _checked_end(indices: Tensor, offsets: Tensor) -> int:
    """Return the number of positions in bags.

    Raises
    ------
    EmbedValueError
        If the offsets are no offsets of bags.
    """
    places = offsets[[0, -1]].tolist() if offsets.shape[0] else []
    falling = offsets.shape[0] > 1 and bool((offsets.diff() < 0).any())
    if not places or places[0] != 0 or falling or places[-1] > indices.shape[0]:
        raise EmbedValueError(
            f"offsets must ascend from 0 to at most {indices.shape[0]}, the number of indices"
        )
    return int(places[-1])


def _in_bags(indices: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return each position's bag, int64 (N,), and the N indices that are in bags."""
    end = _checked_end(indices, offsets)
    lengths = offsets.diff().long()
    return torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths), indices[:end]


def _mean_weights(indices: Tensor, bag_of: Tensor, count: int, padding_idx: int) -> Tensor:
    """Return one over the size of each position's bag, float64 (N,). Padding does not count."""
    taking_part = (indices != padding_idx).long()
    sizes = torch.zeros(count, dtype=torch.int64).index_add(0, bag_of, taking_part)
    # A bag of padding only has the size 0, and no position that takes part.
    return sizes.clamp(min=1)[bag_of].to(torch.float64).reciprocal()


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, indices, offsets, per_sample_weights, ctx.num_weights = inputs[:5]
    ctx.mean, ctx.scale, ctx.padding_idx = inputs[5:]
    saved_grad = grad if ctx.needs_input_grad[3] else None
    ctx.save_for_backward(saved_grad, indices, offsets, per_sample_weights)


def _differentiate_backward(ctx: Any, grad: Tensor) -> Gradients:
    bag_grad, indices, offsets, weights = ctx.saved_tensors
    padding = ctx.padding_idx
    bag_of, inside = _in_bags(indices, offsets)
    factor = position_factor(inside, ctx.num_weights, padding, ctx.scale, grad.dtype)
    if ctx.mean:
        weights = _mean_weights(inside, bag_of, offsets.shape[0] - 1, padding).to(grad.dtype)
    factors = None if weights is None else weights[: inside.shape[0]]
    if factor is not None:
        factors = factor if factors is None else factors * factor
    grad_bags = bags(grad, inside, offsets, factors, False, False, padding)
    grad_weights = None
    if ctx.needs_input_grad[3]:
        grad_weights = products(bag_grad, grad, indices, offsets, padding)
        if factor is not None:
            outside = indices.shape[0] - inside.shape[0]
            grad_weights = grad_weights * torch.nn.functional.pad(factor, (0, outside))
    return grad_bags, None, None, grad_weights, None, None, None, None


backward.register_autograd(_differentiate_backward, setup_context=_save_for_backward)


# --- products -------------------------------------------------------------------------------------


@torch.library.custom_op(
    "numba_embed::embedding_bag_products",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor grad, Tensor table, Tensor indices, Tensor offsets, SymInt padding_idx) "
    "-> Tensor",
)
def products(
    grad: Tensor, table: Tensor, indices: Tensor, offsets: Tensor, padding_idx: int
) -> Tensor:
    """Return each position's product of its bag's gradient with its row of the table."""
    bag_of, inside = _in_bags(indices, offsets)
    result: Tensor = torch.ops.aten._embedding_bag_per_sample_weights_backward(
        grad.contiguous(),
        table,
        inside.contiguous(),
        offsets.contiguous(),
        bag_of.to(indices.dtype),
        SUM,
        padding_idx,
    )
    return torch.nn.functional.pad(result, (0, indices.shape[0] - inside.shape[0]))


@products.register_fake
def _fake_products(
    grad: Tensor, table: Tensor, indices: Tensor, offsets: Tensor, padding_idx: int
) -> Tensor:
    return grad.new_empty(indices.shape)


def _save_for_products(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, table, indices, offsets, ctx.padding_idx = inputs
    ctx.save_for_backward(grad, table, indices, offsets)


def _differentiate_products(ctx: Any, weights: Tensor) -> Gradients:
    grad, table, indices, offsets = ctx.saved_tensors
    padding = ctx.padding_idx
    grad_grad = grad_table = None
    if ctx.needs_input_grad[0]:
        grad_grad = bags(table, indices, offsets, weights, False, False, padding)
    if ctx.needs_input_grad[1]:
        options = table.shape[0], False, False, padding
        grad_table = backward(grad, indices, offsets, weights, *options)
    return grad_grad, grad_table, None, None, None


products.register_autograd(_differentiate_products, setup_context=_save_for_products)
