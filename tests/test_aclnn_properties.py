"""Whatever phase one accepts, phase two completes with the bits of the functional call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from aclnn_calls import INVALID, OK
from hypothesis import example, given
from hypothesis import strategies as st
from reference import Array, assert_same_bits

from numba_embed import aclnn, embedding_dense_backward
from numba_embed.aclnn import Product


def laid_out(values: Array, layout: str) -> Array:
    """Give the same values in other memory."""
    if layout == "reversed":
        return values[::-1].copy()[::-1]
    if layout == "sparse":
        wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1] + 1), values.dtype)
        view = wide[..., 1::2]
        view[...] = values
        return view
    return np.asfortranarray(values) if layout == "fortran" else values


LAYOUTS = st.sampled_from(["plain", "reversed", "sparse", "fortran"])


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """Draw parameters of phase one; about one draw in three has something to refuse."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    width, v = draw(st.integers(0, 6)), draw(st.integers(1, 30))
    grad_dtype = draw(st.sampled_from(["float32", "float32", "float16", "float64"]))
    index_dtype = draw(st.sampled_from(["int64", "uint8", "int16", "float32", "uint32"]))
    size = int(np.prod(shape))
    grad = random.standard_normal((*shape, width)).astype(grad_dtype)
    ids = random.integers(0, v, size).astype(index_dtype)
    ids = ids if draw(st.booleans()) else ids.reshape(shape)
    if draw(st.integers(0, 15)) == 0:
        ids = ids.ravel()[:-1]
    out_shape = (v, width + (draw(st.integers(0, 15)) == 0))
    out = laid_out(np.full(out_shape, np.nan, np.float32), draw(LAYOUTS))
    out.flags.writeable = draw(st.integers(0, 15)) > 0
    return {
        "grad": laid_out(grad, draw(LAYOUTS)),
        "indices": laid_out(ids, draw(LAYOUTS)),
        "num_weights": v,
        "padding_idx": draw(st.one_of(st.none(), st.integers(-1, 30))),
        "scale_grad_by_freq": draw(st.booleans()),
        "out": out,
        "product": draw(st.sampled_from(Product)),
        "core_num": draw(st.sampled_from([None, 1, 7, 32, 2**40])),
    }


EXAMPLE = {
    "grad": np.float32([[1, 2, 3], [4, 5, 6]]),
    "indices": np.array([1, 2]),
    "num_weights": 4,
    "padding_idx": 0,
    "scale_grad_by_freq": False,
    "out": np.full((4, 3), np.nan, np.float32),
    "product": Product.ATLAS_TRAINING,
    "core_num": None,
}


@given(parameters(), st.integers(0, 70), st.booleans())
@example(EXAMPLE, 0, False)
def test_what_phase_one_accepts_completes_with_the_same_bits(
    drawn: dict[str, Any], offset: int, queued: bool
) -> None:
    status, size, executor = aclnn.embedding_dense_backward_get_workspace_size(**drawn)
    grad, indices, out, product = (drawn[key] for key in ("grad", "indices", "out", "product"))
    refusable = (
        not product.supported
        or (product is Product.ASCEND_950 and drawn["core_num"] is None)
        or grad.dtype == np.float64
        or indices.dtype == np.uint32
        or indices.size * grad.shape[-1] != grad.size
        or indices.size != int(np.prod(grad.shape[:-1]))
        or out.shape != (drawn["num_weights"], grad.shape[-1])
        or not out.flags.writeable
    )
    assert status is (INVALID if refusable else OK), aclnn.get_recent_err_msg()
    if executor is None:
        return
    workspace = np.full(size + offset, 0xFF, np.uint8)[offset:]
    if queued:
        with ThreadPoolExecutor(1) as stream:
            assert aclnn.embedding_dense_backward(workspace, size, executor, stream) is OK
    else:
        assert aclnn.embedding_dense_backward(workspace, size, executor) is OK
    assert executor.wait() is OK
    want = np.empty(out.shape, out.dtype)
    embedding_dense_backward(
        grad,
        indices,
        drawn["num_weights"],
        drawn["padding_idx"],
        drawn["scale_grad_by_freq"],
        out=want,
    )
    assert_same_bits(out, want)
