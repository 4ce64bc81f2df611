"""Values that nobody should pass: each ends in an error of the family, and in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inputs import refused

import numba_embed as ne
from numba_embed import aclnn
from numba_embed.errors import EmbedError, EmbedTypeError, EmbedValueError

HUGE = 10**5000  # Python refuses to write such an integer in decimal
GRAD, IDS = np.ones((2, 1), np.float32), np.array([0, 1])


class Hostile:
    """Raises an error of its own from whatever it is asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def _raise(self, *arguments: Any, **options: Any) -> Any:
        raise self.error

    __array__ = __index__ = __repr__ = __eq__ = __bool__ = __len__ = __iter__ = _raise  # type: ignore[assignment]

    def __hash__(self) -> int:
        raise self.error


ERRORS = [KeyError("lost"), OSError("gone"), ZeroDivisionError(), AssertionError(), StopIteration()]


def attributes() -> list[str]:
    return [
        *("num_weights", "padding_idx", "scale_grad_by_freq", "accumulate"),
        *("on_invalid", "core_num", "num_threads"),
    ]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["grad", "indices", "out", *attributes()])
def test_an_argument_that_raises(name: str, error: Exception) -> None:
    out = np.full((3, 1), 7, np.float32)
    arguments: dict[str, Any] = {"grad": GRAD, "indices": IDS, "num_weights": 3, "out": out}
    arguments[name] = Hostile(error)
    with refused((EmbedTypeError, EmbedValueError), name, out=out):
        ne.embedding_dense_backward(**arguments)


@pytest.mark.parametrize("name", ["num_weights", "core_num", "num_threads"])
@pytest.mark.parametrize("value", [HUGE, -HUGE], ids=["huge", "minus-huge"])
def test_integers_too_long_to_write(name: str, value: int) -> None:
    with refused(EmbedValueError, name):
        ne.embedding_dense_backward(GRAD, IDS, **{"num_weights": 3, name: value})


def test_a_padding_row_too_long_to_write_is_no_row() -> None:
    assert ne.embedding_dense_backward(GRAD, IDS, 2, HUGE).tolist() == [[1], [1]]


def test_values_are_quoted_in_one_line() -> None:
    with pytest.raises(EmbedError) as caught:
        ne.embedding_dense_backward(GRAD, IDS, 3, on_invalid="x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("dtype", [None, "no such", {"a": 3}, "f4,i4", 3, Hostile(ERRORS[0])])
def test_dtypes_that_are_none(dtype: Any) -> None:
    with refused(EmbedTypeError, "grad"):
        ne.plan_dense_backward((2, 1), dtype, (2,), "int64", 3)
    with refused(EmbedTypeError, "indices"):
        ne.plan_dense_backward((2, 1), "float32", (2,), dtype, 3)


@pytest.mark.parametrize("shape", [3, None, (2.0, 1), (True, 1), ("2", 1), Hostile(ERRORS[0])])
def test_shapes_that_are_none(shape: Any) -> None:
    with refused(EmbedTypeError, "grad_shape"):
        ne.plan_dense_backward(shape, "float32", (2,), "int64", 3)
    with refused(EmbedTypeError, "indices_shape"):
        ne.plan_dense_backward((2, 1), "float32", shape, "int64", 3)


@pytest.mark.parametrize(
    "shape", [(-2, 1), (2**63, 1), (HUGE, 1)], ids=["negative", "long", "huge"]
)
def test_sizes_out_of_range(shape: Any) -> None:
    with refused(EmbedValueError, "grad_shape"):
        ne.plan_dense_backward(shape, "float32", (2,), "int64", 3)


@pytest.mark.parametrize("value", [np.array(["raise", "drop"]), 0, None, b"drop", ["raise"]])
def test_modes_that_are_no_strings(value: Any) -> None:
    with refused(EmbedValueError, "on_invalid"):
        ne.embedding_dense_backward(GRAD, IDS, 3, on_invalid=value)


def test_an_overlap_that_takes_too_long_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is about the operand that was asked about, not always about out."""

    def give_up(*arguments: Any, **options: Any) -> bool:
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", give_up)
    memory = np.zeros(12, np.float32)
    grad, out = memory[:8:2].reshape(2, 2), memory[4::2].reshape(2, 2)
    with refused(EmbedValueError, "out", "grad", "contrived"):
        ne.embedding_dense_backward(grad, IDS, 2, out=out)
    grad = np.zeros((2, 3), np.float32)[:, ::2]
    status, size, executor = aclnn.embedding_dense_backward_get_workspace_size(
        grad, IDS, 2, None, False, np.zeros((2, 2), np.float32)
    )
    assert status is aclnn.Status.ACLNN_SUCCESS
    whole = bytearray(size)
    monkeypatch.setattr(np, "may_share_memory", lambda *arrays: True)
    assert aclnn.embedding_dense_backward(whole, size, executor) is not status
    assert aclnn.get_recent_err_msg().startswith("workspace must not overlap grad")


def nothing(shape: tuple[int, ...], dtype: Any) -> Any:
    """Give an array of any shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


@pytest.mark.parametrize(
    ("positions", "rows", "columns"),
    [
        (2**56 + 1, 1, 0),
        (2**60, 3, 1),
        (0, 2**59 + 1, 1),
        (0, 2**62, 1),
        (0, 2**63 - 1, 4),
        (0, 4, 2**60),
    ],
)
def test_sizes_whose_bytes_do_not_fit(positions: int, rows: int, columns: int) -> None:
    with refused(EmbedValueError):
        ne.plan_dense_backward((positions, columns), "float32", (positions,), "int8", rows)
    grad, ids = nothing((positions, columns), np.float32), nothing((positions,), np.int8)
    with refused(EmbedValueError):
        ne.embedding_dense_backward(grad, ids, rows)


@pytest.mark.parametrize(
    ("positions", "rows", "columns"), [(0, 2**59, 1), (0, 2**63 - 1, 0), (2**56, 1, 0)]
)
def test_the_largest_sizes_can_be_planned(positions: int, rows: int, columns: int) -> None:
    plan = ne.plan_dense_backward((positions, columns), "float32", (positions,), "int8", rows)
    assert 0 < plan.workspace_nbytes < 2**63
    assert str(rows) in str(plan)


@pytest.mark.parametrize(
    "value", [HUGE, -1, 2**62 + 1, 2**200], ids=["huge", "-1", "2^62", "2^200"]
)
def test_sizes_of_memory_out_of_range(value: int) -> None:
    with refused(EmbedValueError, "buffer"):
        ne.Workspace(value)
    if value < 0 or value >= 2**64:
        with refused(EmbedValueError, "limit_bytes"):
            ne.OutputPool(value)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_functions_around_it_quote_safely(error: Exception) -> None:
    with refused((EmbedTypeError, EmbedValueError), "split"):
        ne.partition_rows(9, 2, Hostile(error))  # type: ignore[arg-type]
    with refused(EmbedTypeError, "indices_dtype"):
        ne.max_embedding_dim(9, 2, Hostile(error))  # type: ignore[arg-type]
    with refused(EmbedTypeError, "limit_bytes"):
        ne.OutputPool(Hostile(error))  # type: ignore[arg-type]
    with refused(EmbedTypeError, "product"):
        ne.simulate_cores([1], 9, 2, 4, product=Hostile(error))  # type: ignore[arg-type]
