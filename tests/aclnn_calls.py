"""Calls in two phases as the tests make them, and what they expect of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from inputs import hot_ids
from reference import Array, assert_same_bits

from numba_embed import aclnn, embedding_dense_backward
from numba_embed.aclnn import Product, Status

OK, MISSING, INVALID, FAILED, INNER = Status
V = 40
SUPPORTED = [Product.ATLAS_TRAINING, Product.ATLAS_A2, Product.ATLAS_A3, Product.ASCEND_950]
VALID: dict[str, Any] = {
    "grad": np.float32([[1, 2, 3], [4, 5, 6]]),
    "indices": np.array([1, 2], np.int32),
    "num_weights": 4,
    "padding_idx": 0,
    "scale_grad_by_freq": False,
    "out": np.full((4, 3), np.nan, np.float32),
    "core_num": 40,
}


def plan(**changes: Any) -> tuple[Status, int, aclnn.OpExecutor | None]:
    """Phase one on a small valid call, but for the changes; a failure gives nothing but a text."""
    status, size, executor = aclnn.embedding_dense_backward_get_workspace_size(
        **{**VALID, "out": np.full((4, 3), np.nan, np.float32), **changes}
    )
    assert isinstance(status, Status)
    if status is OK:
        assert isinstance(executor, aclnn.OpExecutor)
        assert size == executor.plan.workspace_nbytes > 0
    else:
        assert (size, executor) == (0, None)
        assert aclnn.get_recent_err_msg()
    return status, size, executor


def refuse(*parts: object, status: Status = INVALID, **changes: Any) -> None:
    """Expect a refusal whose text names the parts."""
    assert plan(**changes)[0] is status
    for part in parts:
        assert str(part) in aclnn.get_recent_err_msg()


class Call(NamedTuple):
    """Operands of a call, what phase one returned for them, and the right result."""

    grad: Array
    indices: Array
    out: Array
    size: int
    executor: aclnn.OpExecutor
    want: Array

    def run(self, workspace: Any = None, size: Any = None, **options: Any) -> Status:
        """Phase two, by default in a fresh workspace full of ones."""
        workspace = np.full(self.size, 0xFF, np.uint8) if workspace is None else workspace
        size = self.size if size is None else size
        return aclnn.embedding_dense_backward(workspace, size, self.executor, **options)

    def check(self) -> None:
        """Expect the right bits in the output."""
        assert_same_bits(self.out, self.want)

    def check_unused(self) -> None:
        """Expect that nothing was written and that the executor still runs."""
        assert np.isnan(self.out).all()
        assert self.executor.wait() is INVALID
        assert "not been run" in aclnn.get_recent_err_msg()
        assert self.run() is OK
        self.check()


def call(
    size: int = 100,
    width: int = 3,
    v: int = V,
    seed: int = 0,
    padding: int | None = 2,
    scale: bool = True,
    **changes: Any,
) -> Call:
    """Phase one on drawn operands, or on the given ones."""
    random = np.random.default_rng(seed)
    grad = changes.pop("grad", None)
    grad = random.standard_normal((size, width), np.float32) if grad is None else grad
    indices = changes.pop("indices", None)
    indices = hot_ids(random, size, v) if indices is None else indices
    out = changes.pop("out", None)
    out = np.full((v, width), np.nan, np.float32) if out is None else out
    status, nbytes, executor = aclnn.embedding_dense_backward_get_workspace_size(
        grad, indices, v, padding, scale, out, **changes
    )
    assert status is OK, aclnn.get_recent_err_msg()
    assert executor is not None
    try:
        want = embedding_dense_backward(grad, indices, v, padding, scale)
    except (ValueError, IndexError):
        want = np.empty(0, np.float32)
    return Call(grad, indices, out, nbytes, executor, want)


def refused(status: Status, *parts: object, expected: Status = INVALID) -> None:
    """Expect a status, and a text that names the parts."""
    assert status is expected
    for part in parts:
        assert str(part) in aclnn.get_recent_err_msg()
