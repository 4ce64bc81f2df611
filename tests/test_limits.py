"""The published limit on the embedding dimension, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.limits import (
    counts_size,
    embedding_dim_fits,
    limit_bytes,
    max_embedding_dim,
    smallest_core_num,
)

MAX = 2**64 - 1
INT32_LINE = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"]
INT32_LINE += ["float16", "float32", "float64"]


def bound(num_weights: int, core_num: int, dtype: str) -> Fraction:
    """The right side of the published inequality."""
    share = num_weights // core_num + num_weights % core_num
    if dtype == "int64":
        return Fraction(180192 - share * 8, 20)
    return Fraction(180192 - share * 4, 36)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_grid_against_the_formula(dtype: str) -> None:
    for num_weights in [0, 1, 5, 100, 953, 22523, 22524, 30000, 45048, 50257, 10**6, 2**40]:
        for core_num in [1, 2, 3, 7, 31, 32, 48, 63, 64, 65, 67, 1000, 2**33, MAX]:
            right = bound(num_weights, core_num, dtype)
            largest = max_embedding_dim(num_weights, core_num, dtype)
            assert largest == 0 or largest < right
            assert largest + 1 >= right
            for dim in {0, 1, max(largest - 1, 0), largest, largest + 1}:
                assert embedding_dim_fits(dim, num_weights, core_num, dtype) == (dim < right)


def test_hand_worked() -> None:
    assert max_embedding_dim(30000, 32, "int32") == 4899
    assert max_embedding_dim(30000, 32, "int64") == 8628
    # The bound itself is an integer: 180192 - 4 * 9 is 36 * 5004 + 12, and 4 * 48 is 36 * 5 + 12.
    assert bound(48, 1, "int32") == 5000
    assert max_embedding_dim(48, 1, "int32") == 4999
    assert not embedding_dim_fits(5000, 48, 1, "int32")
    assert bound(24, 1, "int64") == 9000
    assert max_embedding_dim(24, 1, "int64") == 8999
    # No rows: the whole buffer is for columns.
    assert max_embedding_dim(0, 32, "int32") == 5005
    assert max_embedding_dim(0, 32, "int64") == 9009
    # Fewer rows than cores: the last core owns all.
    assert max_embedding_dim(953, 10**9, "int32") == 4899
    # Right side positive but below 1, zero, and negative.
    assert max_embedding_dim(45047, 1, "int32") == 0
    assert embedding_dim_fits(0, 45047, 1, "int32")
    assert max_embedding_dim(45048, 1, "int32") == 0
    assert not embedding_dim_fits(0, 45048, 1, "int32")
    assert max_embedding_dim(45049, 1, "int64") == 0
    assert max_embedding_dim(MAX, 1, "int64") == 0
    assert max_embedding_dim(MAX, MAX, "int64") == (180192 - 8 - 1) // 20
    assert max_embedding_dim(MAX, MAX - 1, "int32") == (180192 - 8 - 1) // 36


def test_legality_jumps() -> None:
    legal = [c for c in range(63, 68) if embedding_dim_fits(4950, 30000, c, "int32")]
    assert legal == [63, 65, 66]


@pytest.mark.parametrize("dtype", INT32_LINE)
def test_other_index_dtypes_follow_the_int32_line(dtype: str) -> None:
    assert max_embedding_dim(30000, 32, dtype) == 4899
    assert limit_bytes(np.dtype(dtype).newbyteorder()) == (4, 36)
    assert limit_bytes(np.dtype("int64").newbyteorder()) == (8, 20)


@pytest.mark.parametrize("dtype", ["complex64", object, "U3", "m8[s]", None, "no dtype", "i4,i4"])
def test_no_index_dtype(dtype: object) -> None:
    with pytest.raises(EmbedTypeError, match="indices_dtype must be one of"):
        max_embedding_dim(10, 4, dtype)  # type: ignore[arg-type]


def test_arguments_are_checked() -> None:
    for value in (True, 1.0, None):
        with pytest.raises(EmbedTypeError, match="num_weights"):
            max_embedding_dim(value, 4, "int32")  # type: ignore[arg-type]
        with pytest.raises(EmbedTypeError, match="core_num"):
            max_embedding_dim(4, value, "int32")  # type: ignore[arg-type]
        with pytest.raises(EmbedTypeError, match="embedding_dim"):
            embedding_dim_fits(value, 4, 4, "int32")  # type: ignore[arg-type]
        with pytest.raises(EmbedTypeError, match="embedding_dim"):
            smallest_core_num(4, value, "int32")  # type: ignore[arg-type]
    with pytest.raises(EmbedValueError, match="core_num"):
        max_embedding_dim(4, 0, "int32")
    with pytest.raises(EmbedValueError, match="num_weights"):
        smallest_core_num(-1, 4, "int32")
    with pytest.raises(EmbedValueError, match="embedding_dim"):
        embedding_dim_fits(-1, 4, 4, "int32")


def exhaustive(num_weights: int, dim: int, dtype: str) -> int | None:
    """The first legal core_num, one by one; from num_weights + 1 on the share stays the same."""
    right = (bound(num_weights, core, dtype) for core in range(1, num_weights + 2))
    return next((core for core, limit in enumerate(right, 1) if dim < limit), None)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_smallest_core_num_against_exhaustive_search(dtype: str) -> None:
    per_column = limit_bytes(dtype)[1]
    top = (180192 - 1) // per_column
    seen_jump = False
    for num_weights in [0, 1, 2, 3, 10, 97, 360, 1009, 3000, 30000]:
        # From a buffer that columns fill completely down to plenty of room.
        for dim in [top + 1, top, top - 1, top - 2, top - 7, top - 40, top - 300, 1, 0]:
            expected = exhaustive(num_weights, dim, dtype)
            assert smallest_core_num(num_weights, dim, dtype) == expected
            if expected is not None and expected < num_weights:
                seen_jump |= not embedding_dim_fits(dim, num_weights, expected + 1, dtype)
    assert seen_jump


@given(num_weights=st.integers(0, 5000), below=st.integers(-3, 200), wide=st.booleans())
def test_smallest_core_num_property(num_weights: int, below: int, wide: bool) -> None:
    dtype = "int64" if wide else "int32"
    dim = (180192 - 1) // limit_bytes(dtype)[1] - below
    assert smallest_core_num(num_weights, dim, dtype) == exhaustive(num_weights, dim, dtype)


@given(num_weights=st.integers(0, MAX) | st.integers(MAX - 99, MAX), dim=st.integers(0, 9100))
def test_smallest_core_num_of_huge_tables(num_weights: int, dim: int) -> None:
    found = smallest_core_num(num_weights, dim, "int64")
    if found is None:
        # One row a core is the least there can be.
        assert num_weights > 0
        assert 180192 - 8 <= 20 * dim
        return
    assert embedding_dim_fits(dim, num_weights, found, "int64")
    assert counts_size(num_weights, found) <= 22523
    for core_num in {found - 1, found - 2, found // 2, found * 9 // 10} - {0, -1}:
        assert not embedding_dim_fits(dim, num_weights, core_num, "int64") or core_num >= found
