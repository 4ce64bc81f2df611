"""What phase one warns about, and what belongs to the calling thread."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import aclnn_calls
import numpy as np
import pytest
from aclnn_calls import INVALID, OK, SUPPORTED, plan, refuse

from numba_embed import aclnn
from numba_embed.aclnn import Product, SysParamOpt

DETERMINISTIC = SysParamOpt.DETERMINISTIC
LIMIT_LOOKUPS, LIMIT = 2139095040, 2147483647


def in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a fresh thread and return what it returned."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def advised(n: int, v: int, product: Product = Product.ATLAS_A2, **changes: Any) -> list[str]:
    """Run phase one at these sizes, without the memory; return what it warned of."""
    operands = {
        "grad": np.broadcast_to(np.float32(0), (n, 0)),
        "indices": np.broadcast_to(np.int32(0), (n,)),
        "out": np.empty((v, 0), np.float32),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        status = plan(**{**operands, "num_weights": v, "product": product, **changes})[0]
    assert status is OK or changes
    for warning in caught:
        assert warning.category is aclnn.AdvisoryWarning
        assert warning.filename == aclnn_calls.__file__  # where phase one is called
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("product", SUPPORTED)
@pytest.mark.parametrize("deterministic", [0, 1])
def test_advisories_at_each_limit_and_above(product: Product, deterministic: int) -> None:
    warned = product in (Product.ATLAS_A2, Product.ATLAS_A3)
    precision = ["not guarantee high precision"]
    if deterministic:
        precision.append("not guarantee high performance in deterministic mode")
    fast = ["not guarantee high performance"]
    assert aclnn.ctx_set_sys_param_opt(DETERMINISTIC, deterministic) is OK
    try:
        for n, v, endings in (
            (LIMIT_LOOKUPS, 4, []),
            (LIMIT_LOOKUPS, LIMIT, []),
            (LIMIT_LOOKUPS + 1, 4, fast),
            (LIMIT, LIMIT, fast),
            (LIMIT + 1, 4, precision + fast),
            (4, LIMIT, []),
            (4, LIMIT + 1, precision),
            (LIMIT + 1, LIMIT + 1, precision + fast),
        ):
            texts = advised(n, v, product)
            assert len(texts) == (len(endings) if warned else 0)
            for text, ending in zip(texts, endings, strict=False):
                assert text.endswith(ending)
                assert product.value in text
    finally:
        aclnn.ctx_set_sys_param_opt(DETERMINISTIC, 0)


def test_advisories_of_a_gradient_with_columns() -> None:
    n = LIMIT + 1
    grad, out = np.broadcast_to(np.float32(0), (2, n // 2, 64)), np.empty((4, 64), np.float32)
    assert len(advised(n, 4, grad=grad, out=out)) == 2


def test_sizes_are_advised_on_before_the_memory_of_out_is_refused() -> None:
    v = LIMIT + 1
    grad, out = np.zeros((4, 1), np.float32), np.broadcast_to(np.float32(0), (v, 1))
    assert len(advised(4, v, grad=grad, out=out)) == 1
    assert "out must be writable" in aclnn.get_recent_err_msg()


def test_a_filter_that_makes_errors_of_advisories_refuses() -> None:
    n = LIMIT + 1
    grad, indices = np.broadcast_to(np.float32(0), (n, 3)), np.broadcast_to(np.int32(0), (n,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refuse("not guarantee high precision", grad=grad, indices=indices)
        warnings.simplefilter("ignore", aclnn.AdvisoryWarning)
        assert plan(grad=grad, indices=indices)[0] is OK


# --- what belongs to a thread ---------------------------------------------------------------------


def test_the_option_belongs_to_the_thread() -> None:
    get = aclnn.ctx_get_sys_param_opt
    assert get(DETERMINISTIC) == (OK, 0)
    try:
        assert aclnn.ctx_set_sys_param_opt(DETERMINISTIC, 1) is OK
        assert get(DETERMINISTIC) == get(0) == (OK, 1)
        assert in_thread(lambda: get(DETERMINISTIC)) == (OK, 0)
        assert in_thread(lambda: len(advised(4, LIMIT + 1))) == 1
        assert len(advised(4, LIMIT + 1)) == 2
        for bad in (2, -1, 0.5, None, "1"):
            assert aclnn.ctx_set_sys_param_opt(DETERMINISTIC, bad) is INVALID
            assert "value" in aclnn.get_recent_err_msg()
        for bad in (1, -1, True, None, "DETERMINISTIC"):
            assert aclnn.ctx_set_sys_param_opt(bad, 0) is INVALID
            assert "opt" in aclnn.get_recent_err_msg()
            assert get(bad) == (INVALID, 0)
        assert get(DETERMINISTIC) == (OK, 1)
    finally:
        aclnn.ctx_set_sys_param_opt(DETERMINISTIC, 0)
    assert get(DETERMINISTIC) == (OK, 0)


def test_the_last_text_belongs_to_the_thread() -> None:
    assert in_thread(aclnn.get_recent_err_msg) == ""
    refuse("num_weights", num_weights=-5)
    text = aclnn.get_recent_err_msg()
    assert "-5" in text
    in_thread(lambda: refuse("product", product="none"))
    assert plan()[0] is OK
    assert aclnn.get_recent_err_msg() == text  # a success keeps the last failure's text
