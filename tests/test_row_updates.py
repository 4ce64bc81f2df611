"""What row gradients are used for: steps of a table in place, dense copies, checks of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inputs import THREADS, misaligned, normal, refused, spaced, spread
from reference import FLOATS, Array, assert_same_bits, bits, round_once

import numba_embed as ne
from numba_embed import RowGradient


def draw(num_weights: int, width: int, value_name: str = "float32") -> RowGradient:
    random = np.random.default_rng([num_weights, width])
    rows = np.flatnonzero(random.random(num_weights) < 0.4)
    return RowGradient(rows, normal(random, (rows.size, width), value_name), num_weights)


def stepped(weight: Array, gradient: RowGradient, alpha: float) -> Array:
    """Add to the listed rows in float64 and round once."""
    want = weight.astype(weight.dtype.newbyteorder("=")) if weight.dtype.kind == "f" else +weight
    old = want[gradient.rows].astype(np.float64)
    total = old + alpha * gradient.values.astype(np.float64)
    want[gradient.rows] = round_once(total, 0, want.dtype)
    return want


@pytest.mark.parametrize(
    ("value_name", "weight_name"),
    [("float32", "float32"), ("float32", "float16"), ("float64", "bfloat16"),
     ("bfloat16", "float64")],
)  # fmt: skip
def test_a_step_of_every_dtype(value_name: str, weight_name: str) -> None:
    gradient = draw(300, 19, value_name)
    random = np.random.default_rng(1)
    for alpha in (-0.01, 3, np.float32(1e30)):
        weight = normal(random, (300, 19), weight_name)
        want = stepped(weight, gradient, float(alpha))
        assert gradient.add_to(weight, alpha) is weight
        assert_same_bits(weight, want)


@pytest.mark.parametrize("width", [1, 7, 8, 1023, 1024, 1025, 2049])
def test_widths_and_layouts(width: int) -> None:
    gradient = draw(20, width)
    table = spread(np.random.default_rng(2), (20, width), "float32")
    for make in (
        np.copy,
        lambda a: np.array(a, order="F"),
        misaligned,
        lambda a: spaced(a, 2, 3),
        lambda a: spaced(a, -1, -2),
        lambda a: a.astype(a.dtype.newbyteorder()),
    ):
        for threads in THREADS:
            weight = make(table)
            gradient.add_to(weight, -0.5, num_threads=threads)
            assert_same_bits(weight.astype("=f4"), stepped(table, gradient, -0.5))
            out = make(table)
            assert gradient.to_dense(out, num_threads=threads) is out
            want = np.zeros_like(table)
            want[gradient.rows] = gradient.values
            assert_same_bits(out.astype("=f4"), want)


def test_by_default_the_work_decides_the_threads() -> None:
    gradient = draw(40_000, 32)
    table = spread(np.random.default_rng(3), (40_000, 32), "float32")
    want = stepped(table, gradient, -0.25)
    gradient.add_to(table, -0.25)
    assert_same_bits(table, want)


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
def test_a_dense_copy_in_another_dtype_is_rounded(name: str) -> None:
    values = np.array([[1.0 + 2.0**-11 + 2.0**-40, np.nan, -0.0, 1e300]])
    gradient = RowGradient(np.array([3]), values, 5)
    out = np.full((5, 4), 7).astype(FLOATS[name])
    gradient.to_dense(out)
    assert_same_bits(out[3:4], round_once(values, 0, FLOATS[name]))
    assert not bits(np.delete(out, 3, axis=0)).any()


def test_a_torch_tensor_is_stepped_in_place() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    parameter = torch.nn.Parameter(torch.ones(6, 2))
    gradient = RowGradient(np.array([1, 4]), np.full((2, 2), 2.0, np.float32), 6)
    gradient.add_to(parameter.detach(), -0.25)
    assert parameter.tolist() == [[1, 1], [0.5, 0.5], [1, 1], [1, 1], [0.5, 0.5], [1, 1]]
    with refused(ne.EmbedTypeError, "weight.detach()"):
        gradient.add_to(parameter)


def test_bad_targets_are_left_alone() -> None:
    gradient = draw(20, 6)
    weight = np.ones((20, 6), np.float32)
    frozen = weight.copy()
    frozen.flags.writeable = False
    for bad, error, parts in (
        (weight[:19], ne.EmbedValueError, ("weight", (20, 6), (19, 6))),
        (weight.astype(int), ne.EmbedTypeError, ("weight", "int64")),
        (frozen, ne.EmbedValueError, ("weight", "read-only")),
        (np.lib.stride_tricks.as_strided(weight, (20, 6), (4, 4)), ne.EmbedValueError, ("itself",)),
        (weight.tolist(), ne.EmbedTypeError, ("weight", "list")),
    ):
        with refused(error, *parts, out=bad if isinstance(bad, np.ndarray) else None):
            gradient.add_to(bad)
    for alpha in ("1", None, True, 1j, [1.0]):
        with refused(ne.EmbedTypeError, "alpha", out=weight):
            gradient.add_to(weight, alpha)  # type: ignore[arg-type]
    with refused(ne.EmbedValueError, "num_threads", out=weight):
        gradient.add_to(weight, num_threads=0)
    with refused(ne.EmbedValueError, "out", out=weight):
        gradient.to_dense(weight[:, :5])
    everything = RowGradient(np.arange(5), np.ones((5, 4)), 5)
    with refused(ne.EmbedValueError, "values", out=everything.values):
        everything.add_to(everything.values)


def test_what_a_row_gradient_must_be() -> None:
    values = np.ones((2, 3))
    for rows, error in (
        ([1, 1], ne.EmbedValueError),
        ([2, 1], ne.EmbedValueError),
        ([-1, 1], ne.EmbedValueError),
        ([1, 5], ne.EmbedValueError),
        ([1], ne.EmbedValueError),
        ([[1, 2]], ne.EmbedValueError),
        ([0.0, 1.0], ne.EmbedTypeError),
        (np.array([0, 1], np.uint64), ne.EmbedTypeError),
    ):
        with refused(error, "rows"):
            RowGradient(np.asarray(rows), values, 5)
    with refused(ne.EmbedTypeError, "values"):
        RowGradient(np.array([0, 1]), values.astype(int), 5)
    with refused(ne.EmbedTypeError, "num_weights"):
        RowGradient(np.array([0, 1]), values, 5.0)  # type: ignore[arg-type]


def test_it_is_frozen_and_prints() -> None:
    rows = np.array([0, 4], np.int32)
    made = RowGradient(rows, np.asfortranarray(np.ones((2, 3), ">f4")), 10**10)
    assert repr(made) == "RowGradient(2 of 10000000000 rows, D = 3, float32)"
    assert made.shape == (10**10, 3)
    assert made.dtype == np.dtype("=f4")
    assert made.nbytes == 2 * 8 + 6 * 4
    assert made.values.flags.c_contiguous
    rows[0] = 3
    assert made.rows.tolist() == [0, 4]
    with pytest.raises(AttributeError):
        made.rows = rows  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        made.rows[0] = 1


@pytest.mark.parametrize(
    ("rows", "told"),
    [([-1, 2], "rows[0] = -1"), ([0, 9], "rows[1] = 9"), ([3, 3], "rows[1] = 3 after 3")],
)
def test_the_first_wrong_row_is_named(rows: list[int], told: str) -> None:
    many = np.concatenate([rows, np.arange(10, 5000)])
    with refused(ne.EmbedValueError, told):
        RowGradient(np.array(rows), np.ones((2, 1)), 5)
    with pytest.raises(ne.EmbedValueError, match=r"^[^\n]*$"):  # one line, however many rows
        RowGradient(many, np.ones((many.size, 1)), 5)


class Unquotable:
    """Raises what no protocol foresees."""

    def _raise(self) -> Any:
        raise KeyError("x")

    __index__ = __repr__ = _raise


@pytest.mark.parametrize("alpha", [Unquotable(), 10**400, None, "1", True])
def test_a_factor_that_is_no_number_is_refused(alpha: Any) -> None:
    weight = np.zeros((5, 1))
    with refused(ne.EmbedTypeError, "alpha must be a real number", out=weight):
        RowGradient(np.array([1]), np.ones((1, 1)), 5).add_to(weight, alpha)
