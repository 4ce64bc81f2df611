"""Shapes, dtypes and attributes of the kind that the operator's own system tests use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import THREADS, normal
from reference import (
    FLOATS,
    Array,
    assert_close_to_exact,
    assert_same_bits,
    dense_backward,
    fast_dense_backward,
)

from numba_embed import embedding_dense_backward as E

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "cases" / "operator_cases.json").read_text()
)
SLOW_ELEMENTS = 50_000  # up to here the loop itself is quick enough


def draw(case: dict[str, Any], seed: int) -> tuple[Array, Array]:
    """Draw grad from a normal distribution, and indices uniformly."""
    random = np.random.default_rng(seed)
    grad = normal(random, tuple(case["grad_shape"]), case["grad_dtype"])
    ids = random.integers(0, case["num_weights"], case["indices_shape"], case["indices_dtype"])
    return grad, ids


def name_of(case: dict[str, Any]) -> str:
    """Name a case readably."""
    shape = "x".join(map(str, case["grad_shape"]))
    return f"{shape}-{case['grad_dtype']}-{case['num_weights']}"


def test_the_cases_are_all_there() -> None:
    assert len(CASES) == 38
    assert {case["grad_dtype"] for case in CASES} == {"float16", "bfloat16", "float32"}


@pytest.mark.parametrize("number", range(len(CASES)), ids=[name_of(case) for case in CASES])
def test_operator_case(number: int) -> None:
    case = CASES[number]
    grad, ids = draw(case, number)
    attributes = (case["num_weights"], case["padding_idx"], case["scale_grad_by_freq"])
    want = fast_dense_backward(grad, ids, *attributes)
    assert want.dtype == FLOATS[case["grad_dtype"]]
    for threads in THREADS:
        got = E(grad, ids, *attributes, num_threads=threads)
        assert_same_bits(got, want)
    if grad.size <= SLOW_ELEMENTS:
        assert_same_bits(got, dense_backward(grad, ids, *attributes))
        assert_close_to_exact(got, grad, ids, *attributes)
