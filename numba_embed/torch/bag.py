"""``EmbeddingBag``: torch's module, with the dense gradient of the table from this library."""

from __future__ import annotations

import torch
from torch import Tensor

from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.torch import dense
from numba_embed.torch.bag_operators import bags
from numba_embed.torch.function import checked_padding, checked_weight


class EmbeddingBag(torch.nn.EmbeddingBag):
    """``torch.nn.EmbeddingBag`` whose table gradient comes from this library.

    Takes the same arguments and state, so that one can stand in for the other. Sums and means have
    their dense gradient from this library's kernels; ``mode="max"`` and ``sparse=True``, which
    have no such gradient, stay torch's own, and so does a table that is not on the CPU.

    Notes
    -----
    Sums are carried in float64 and rounded once, and the bits are the same for every number of
    threads. Needs no switch. Unlike torch's, it is twice differentiable with respect to the table.
    Memory per look-up: 8 bytes for its bag and 8 for its weight, where there are weights.
    """

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Look bags of rows up, and add or average them.

        Parameters
        ----------
        input : Tensor, shape (N,) or (B, L)
            Row numbers, int32 or int64; with two dimensions every line is a bag.
        offsets : Tensor, shape (B,) or (B + 1,)
            Where each bag begins, for an ``input`` of shape (N,); one more, the end of the last,
            with ``include_last_offset``.
        per_sample_weights : Tensor, optional
            Factors of the rows, of the shape of ``input`` and the table's dtype; for
            ``mode="sum"`` only.

        Returns
        -------
        Tensor, shape (B, D)
            One row a bag.

        Raises
        ------
        EmbedTypeError, EmbedValueError
            If an argument has another dtype or shape, or does not fit the mode.
        IndexError, RuntimeError
            torch's own errors, for an index out of range or offsets that do not ascend from 0.

        Notes
        -----
        O(N D) time for N look-ups, forward and backward; no gradient per look-up is ever in memory.
        """
        if self.mode == "max" or self.sparse or self.weight.device.type != "cpu":
            return super().forward(input, offsets, per_sample_weights)
        checked_weight(self.weight)
        indices, bounds, factors = self._checked(input, offsets, per_sample_weights)
        if self.max_norm is not None:
            with torch.no_grad():
                torch.embedding_renorm_(self.weight, indices, self.max_norm, self.norm_type)
        padding = checked_padding(self.padding_idx, self.num_embeddings)
        result: Tensor = bags(
            self.weight,
            indices,
            bounds,
            factors,
            self.mode == "mean",
            self.scale_grad_by_freq,
            padding,
        )
        return result

    def _checked(
        self, input: Tensor, offsets: Tensor | None, per_sample_weights: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the indices (N,), where bags begin and the last one ends, and the weights (N,)."""
        if input.dtype not in dense.INDEX_DTYPES:
            raise EmbedTypeError(f"input must be int32 or int64, got {input.dtype}")
        if self.mode not in ("sum", "mean"):
            raise EmbedValueError(f'mode must be "sum", "mean" or "max", got {self.mode!r}')
        if input.dim() == 2:
            if offsets is not None:
                raise EmbedValueError("offsets must be None for an input of two dimensions")
            bags, length = input.shape
            bounds = torch.arange(bags + 1, dtype=input.dtype) * length
        elif input.dim() == 1:
            bounds = self._bounds(input, offsets)
        else:
            raise EmbedValueError(
                f"input must have one or two dimensions, got shape {tuple(input.shape)}"
            )
        if per_sample_weights is not None:
            if self.mode != "sum":
                raise EmbedValueError(
                    f'per_sample_weights must be None unless mode is "sum", got mode {self.mode!r}'
                )
            if per_sample_weights.shape != input.shape:
                raise EmbedValueError(
                    f"per_sample_weights must have the shape of input, {tuple(input.shape)}, got "
                    f"{tuple(per_sample_weights.shape)}"
                )
            if per_sample_weights.dtype != self.weight.dtype:
                raise EmbedTypeError(
                    f"per_sample_weights must have the table's dtype {self.weight.dtype}, got "
                    f"{per_sample_weights.dtype}"
                )
            per_sample_weights = per_sample_weights.reshape(-1)
        return input.reshape(-1), bounds, per_sample_weights

    def _bounds(self, input: Tensor, offsets: Tensor | None) -> Tensor:
        if offsets is None:
            raise EmbedValueError("offsets must be given for an input of one dimension")
        if offsets.dtype not in dense.INDEX_DTYPES:
            raise EmbedTypeError(f"offsets must be int32 or int64, got {offsets.dtype}")
        if offsets.dim() != 1:
            raise EmbedValueError(
                f"offsets must have one dimension, got shape {tuple(offsets.shape)}"
            )
        offsets = offsets.to(input.dtype)
        if self.include_last_offset:
            return offsets
        return torch.cat([offsets, offsets.new_tensor([input.shape[0]])])
