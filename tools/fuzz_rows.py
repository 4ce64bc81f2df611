"""Fuzzed calls of the gradient of the looked-up rows alone, and of the sum of batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz_checks import Target, refusals, spoil_indices, sprinkle
from fuzz_inputs import FORMATS, Array, laid_out, operands
from hypothesis import strategies as st
from reference import assert_same_bits, fast_dense_backward, round_once

import numba_embed as ne


def native(dtype: Any) -> np.dtype[Any]:
    dtype = np.dtype(dtype)
    return dtype.newbyteorder("=") if dtype.kind == "f" else dtype


@st.composite
def row_gradients(draw: Any) -> None:
    """Sum the looked-up rows, at once or with a plan; make a table of them, and add them to one."""
    grad, ids, rows = draw(operands())
    ids, valid = spoil_indices(draw, ids, rows)
    arguments: dict[str, Any] = {
        "grad": grad,
        "indices": ids,
        "num_weights": rows,
        "padding_idx": draw(st.none() | st.integers(-3, rows + 3)),
        "scale_grad_by_freq": draw(st.booleans()),
        "out_dtype": draw(st.none() | st.sampled_from(FORMATS)),
        "on_invalid": "raise",
        "core_num": draw(st.sampled_from([None, 1, 64, 2**64 - 1])),
        "num_threads": draw(st.sampled_from([None, None, 1])),
    }
    intact = sprinkle(draw, arguments)
    planned = draw(st.booleans())
    with refusals("plan_row_gradient" if planned else "embedding_row_gradient"):
        found = planned_rows(arguments) if planned else ne.embedding_row_gradient(**arguments)
        if intact:
            check_rows(draw, found, arguments)
        return
    assert not (intact and valid), f"a legal call was refused: {arguments}"


def planned_rows(arguments: dict[str, Any]) -> ne.RowGradient:
    rest = {name: value for name, value in arguments.items() if name not in ("grad", "indices")}
    grad, ids = arguments["grad"], arguments["indices"]
    plan = ne.plan_row_gradient(
        getattr(grad, "shape", grad),
        getattr(grad, "dtype", grad),
        getattr(ids, "shape", ids),
        getattr(ids, "dtype", ids),
        **rest,
    )
    str(plan)
    return plan.execute(grad, ids, plan.make_workspace())


def check_rows(draw: Any, found: ne.RowGradient, arguments: dict[str, Any]) -> None:
    """Compare rows, values, the dense table, and a step of a table with the reference."""
    grad, ids = arguments["grad"], arguments["indices"]
    rows, padding = arguments["num_weights"], arguments["padding_idx"]
    flat = ids.reshape(-1).astype(np.int64)
    dtype = native(arguments["out_dtype"] or grad.dtype)
    with np.errstate(all="ignore"):
        want = fast_dense_backward(
            grad.reshape(flat.size, grad.shape[-1]),
            flat,
            rows,
            padding,
            arguments["scale_grad_by_freq"],
            out_dtype=dtype,
        )
    kept = np.unique(flat)
    kept = kept if padding is None else kept[kept != padding]
    assert found.rows.tolist() == kept.tolist()
    assert_same_bits(found.values, want[kept])
    assert_same_bits(found.to_dense(), want)

    table = Target(draw, want.shape, np.dtype(draw(st.sampled_from(FORMATS))))
    alpha = draw(st.sampled_from([1.0, -0.5, 0, 3]))
    step: dict[str, Any] = {"weight": table.view, "alpha": alpha, "num_threads": None}
    intact = sprinkle(draw, step)
    old = np.array(table.view)
    with refusals("add_to", table):
        got = found.add_to(**step)
        assert got is step["weight"]
        if intact:
            after = old.copy()
            with np.errstate(all="ignore"):
                total = old[kept].astype(np.float64) + alpha * want[kept].astype(np.float64)
            after[kept] = round_once(total, 0, old.dtype)
            assert_same_bits(np.ascontiguousarray(table.view), after)
            assert table.frame_unchanged()
        return
    assert not (intact and table.view.flags.writeable)


@st.composite
def row_objects(draw: Any) -> None:
    """Make a row gradient of given rows and values."""
    rows = draw(st.integers(0, 9))
    values = np.ones((rows, draw(st.integers(0, 5))), draw(st.sampled_from(FORMATS)))
    arguments: dict[str, Any] = {
        "rows": np.arange(rows),
        "values": laid_out(draw, values),
        "num_weights": 9,
    }
    intact = sprinkle(draw, arguments)
    with refusals("RowGradient"):
        made = ne.RowGradient(**arguments)
        repr(made)
        if intact:
            assert made.to_dense().sum() == values.size
        return
    assert not intact


@st.composite
def chunks(draw: Any) -> None:
    """Sum a stream of batches, some of which may be anything."""
    grad, ids, rows = draw(operands())
    size = ids.size
    grad, ids = grad.reshape(size, grad.shape[-1]), ids.reshape(size)
    ids, valid = spoil_indices(draw, ids, rows)
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=3)))
    bounds = list(zip([0, *cuts], [*cuts, size], strict=True))
    target = Target(draw, (rows, grad.shape[1]), np.dtype(draw(st.sampled_from(FORMATS))))
    arguments: dict[str, Any] = {
        "batches": [(grad[low:high], ids[low:high]) for low, high in bounds],
        "num_weights": rows,
        "padding_idx": draw(st.none() | st.integers(-3, rows + 3)),
        "scale_grad_by_freq": draw(st.booleans()),
        "out": draw(st.sampled_from([None, target.view])),
        "accumulator": draw(st.sampled_from([None, np.zeros((rows, grad.shape[1]))])),
        "on_invalid": draw(st.sampled_from(["raise", "raise", "drop"])),
        "core_num": draw(st.sampled_from([None, 1, 64])),
        "num_threads": draw(st.sampled_from([None, None, 1])),
        "progress": draw(st.sampled_from([None, lambda told: None])),
    }
    given = dict(arguments)
    intact = sprinkle(draw, arguments)
    with refusals("embedding_dense_backward_chunks", target):
        got = ne.embedding_dense_backward_chunks(**arguments)
        if intact:
            check_sum(got, grad, ids, given, target)
        return
    writeable = given["out"] is None or target.view.flags.writeable
    assert not (intact and valid and writeable), f"a legal call was refused: {arguments}"


def check_sum(got: Any, grad: Array, ids: Array, given: dict[str, Any], target: Target) -> None:
    """Compare with the reference on all batches together: the sums of eighths are exact."""
    rows = given["num_weights"]
    with np.errstate(invalid="ignore"):
        keep = (ids >= 0) & (ids < rows) & (ids == np.floor(ids))
    with np.errstate(all="ignore"):
        want = fast_dense_backward(
            grad[keep],
            ids[keep],
            rows,
            given["padding_idx"],
            given["scale_grad_by_freq"],
            out_dtype=native(grad.dtype) if given["out"] is None else target.view.dtype,
        )
    assert_same_bits(np.ascontiguousarray(got), want)
    assert target.frame_unchanged()
