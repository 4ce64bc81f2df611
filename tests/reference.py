"""The obvious loop with exact sums, and the comparisons that the tests make against it.

Nothing here imports the package. Sums are exact (``math.fsum``) and rounded once, straight to the
output's dtype. ``fsum`` gives the float64 nearest to the exact sum; rounding that again to a
narrower dtype would round twice where it lies on a tie of that dtype, so the sign of what ``fsum``
lost goes along with it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FLOATS: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
# Bits of the significand, and the exponent of the smallest normal number.
_FORMAT = {
    FLOATS["float16"]: (11, -14),
    FLOATS["bfloat16"]: (8, -126),
    FLOATS["float32"]: (24, -126),
    FLOATS["float64"]: (53, -1022),
}
_UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _to_odd(values: Array, lost: Array) -> Array:
    """Replace round-to-nearest by round-to-odd; ``lost`` is the sign of exact minus ``values``."""
    unsigned = _UINT[values.itemsize]
    even = (values.view(unsigned) & unsigned(1)) == 0  # NumPy 1 makes int64 of a plain 1
    towards = np.where(lost > 0, np.inf, -np.inf).astype(values.dtype)
    return np.where(even & (lost != 0), np.nextafter(values, towards), values)


def round_once(nearest: npt.ArrayLike, lost: npt.ArrayLike, dtype: npt.DTypeLike) -> Array:
    """Round a real number to ``dtype``, once, ties to even.

    The number is given as the float64 nearest to it and the sign (-1, 0, 1) of what that nearest
    value lost. Rounding to odd on the way down keeps a tie of ``dtype`` from being hit by chance:
    every intermediate format has at least two bits more than the next one. NaN comes out as the
    one canonical quiet NaN.
    """
    dtype = np.dtype(dtype)
    wide = np.array(nearest, dtype=np.float64)
    sign = np.broadcast_to(np.asarray(lost, dtype=np.int8), wide.shape)
    if dtype != np.float64:
        with np.errstate(all="ignore"):
            finite = np.isfinite(wide)
            wide = _to_odd(wide, np.where(finite, sign, 0))
            single = wide.astype(np.float32)
            if dtype != np.float32:
                difference = np.where(finite, wide - single, 0.0)
                single = _to_odd(single, np.sign(difference))
            rounded = single.astype(dtype)
    else:
        rounded = wide
    rounded = rounded.reshape(np.shape(nearest))
    rounded[np.isnan(wide).reshape(rounded.shape)] = np.array(np.nan, dtype=np.float32).astype(
        dtype
    )
    return rounded


def exact_sum(terms: list[float]) -> tuple[float, int]:
    """Give the float64 nearest to the exact sum, and the sign of what that rounding lost."""
    if not all(map(math.isfinite, terms)):
        return sum(term for term in terms if not math.isfinite(term)), 0
    nearest = math.fsum(terms)
    rest = math.fsum([*terms, -nearest])
    return nearest + 0.0, (rest > 0) - (rest < 0)


def _by_row(
    indices: Array, num_weights: int, padding_idx: int | None, drop: bool
) -> dict[int, list[int]]:
    positions: dict[int, list[int]] = defaultdict(list)
    for position, value in enumerate(indices.reshape(-1).tolist()):
        row = int(value)
        if not 0 <= row < num_weights:
            assert drop, f"the reference was given a bad index {value} at {position}"
            continue
        if row != padding_idx:
            positions[row].append(position)
    return positions


def _flat(grad: Array, size: int) -> Array:
    return grad.astype(np.float64).reshape(size, grad.shape[-1])


def dense_backward(
    grad: Array,
    indices: npt.ArrayLike,
    num_weights: int,
    padding_idx: int | None = None,
    scale: bool = False,
    *,
    out_dtype: npt.DTypeLike | None = None,
    old: Array | None = None,
    drop: bool = False,
) -> Array:
    """Compute the gradient row by row and column by column; ``old`` is what is added to."""
    ids = np.asarray(indices)
    flat = _flat(grad, ids.size)
    if old is None:
        out = np.zeros((num_weights, grad.shape[-1]), dtype=out_dtype or grad.dtype)
    else:
        out = np.array(old)
    for row, positions in _by_row(ids, num_weights, padding_idx, drop).items():
        for column in range(flat.shape[1]):
            terms = flat[positions, column].tolist()
            before = [] if old is None else [float(old[row, column])]
            if scale:  # the contract's division is one of float64, before the one rounding
                nearest, lost = exact_sum([exact_sum(terms)[0] / len(terms), *before])
            else:
                nearest, lost = exact_sum([*terms, *before])
            out[row, column] = round_once(nearest, lost, out.dtype)
    return out


def fast_dense_backward(
    grad: Array,
    indices: npt.ArrayLike,
    num_weights: int,
    padding_idx: int | None = None,
    scale: bool = False,
    *,
    out_dtype: npt.DTypeLike | None = None,
    old: Array | None = None,
    drop: bool = False,
) -> Array:
    """Do the same in long doubles, all rows at once: for inputs whose sums fit 64 bits."""
    ids = np.asarray(indices).reshape(-1).astype(np.int64)
    width = grad.shape[-1]
    dtype = np.dtype(out_dtype or (grad.dtype if old is None else old.dtype))
    out = np.zeros((num_weights, width), dtype=dtype) if old is None else np.array(old)
    inside = (ids >= 0) & (ids < num_weights)
    assert drop or inside.all(), "the reference was given a bad index"
    kept = np.flatnonzero(inside & (ids != (-1 if padding_idx is None else padding_idx)))
    if kept.size == 0 or width == 0:
        return out
    kept = kept[np.argsort(ids[kept], kind="stable")]
    rows, starts, counts = np.unique(ids[kept], return_index=True, return_counts=True)
    terms = grad.reshape(ids.size, width)[kept].astype(np.float64).astype(np.longdouble)
    with np.errstate(invalid="ignore"):
        total = np.add.reduceat(terms, starts, axis=0)
        if scale:
            quotient = total.astype(np.float64) / counts[:, None]
            total = quotient.astype(np.longdouble)
        if old is not None:
            total = total + old[rows].astype(np.float64)
        nearest = total.astype(np.float64) + 0.0
        lost = np.where(np.isfinite(nearest), np.sign(total - nearest), 0)
    out[rows] = round_once(nearest, lost, dtype)
    return out


def ordered_sum(
    grad: Array,
    indices: npt.ArrayLike,
    num_weights: int,
    *,
    cut: int,
    block_length: int,
    padding_idx: int | None = None,
    scale: bool = False,
    out_dtype: npt.DTypeLike | None = None,
    old: Array | None = None,
    drop: bool = False,
) -> Array:
    """Sum in the documented order, one float64 addition after the other.

    A row with fewer than ``cut`` contributions is one sum in stream order. Any other row is cut by
    stream position into blocks of ``block_length`` positions; each block is summed in stream order
    and the block sums are added from the first to the last. Every sum starts at +0.0.
    ``numpy.bincount`` adds weight after weight in the order given, which is what each sum needs.
    """
    ids = np.asarray(indices).reshape(-1).astype(np.int64)
    inside = (ids >= 0) & (ids < num_weights)
    assert drop or inside.all(), "the reference was given a bad index"
    kept = np.flatnonzero(inside & (ids != (-1 if padding_idx is None else padding_idx)))
    rows = ids[kept]
    counts = np.bincount(rows, minlength=num_weights)
    blocks = max(1, -(-ids.size // block_length))
    key = (kept // block_length) * num_weights + rows
    total = np.zeros((num_weights, grad.shape[-1]))
    with np.errstate(all="ignore"):
        for column, terms in enumerate(_flat(grad, ids.size)[kept].T):
            whole = np.bincount(rows, weights=terms, minlength=num_weights)
            pieces = np.bincount(key, weights=terms, minlength=blocks * num_weights)
            folded = np.zeros(num_weights)
            for piece in pieces.reshape(blocks, num_weights):
                folded = folded + piece
            total[:, column] = np.where(counts < cut, whole, folded)
        if scale:
            total /= np.maximum(counts, 1)[:, None]
        if old is None:
            return round_once(total, 0, out_dtype or grad.dtype)
        out = np.array(old)
        touched = counts > 0
        out[touched] = round_once(old[touched].astype(np.float64) + total[touched], 0, old.dtype)
    return out


def bits(values: Array) -> Array:
    """Give the values' bit patterns as unsigned integers."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return np.ascontiguousarray(native).view(_UINT[values.itemsize]).reshape(values.shape)


def assert_same_bits(got: Any, want: Array) -> None:
    """Fail unless ``got`` is an array of the dtype, shape and bytes of ``want``."""
    assert isinstance(got, np.ndarray), f"not an array: {type(got)}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    wrong = np.argwhere(bits(got) != bits(want))
    if len(wrong):
        first = tuple(wrong[0].tolist())
        raise AssertionError(
            f"{len(wrong)} of {want.size} entries differ, first at {first}: "
            f"{got[first]!r} ({bits(got)[first]:#x}), expected {want[first]!r} "
            f"({bits(want)[first]:#x})"
        )


def ulp(value: float, dtype: npt.DTypeLike) -> float:
    """Distance between ``value`` and the next number of ``dtype`` away from zero."""
    precision, smallest = _FORMAT[np.dtype(dtype)]
    exponent = math.frexp(value)[1] - 1 if value else smallest
    return math.ldexp(1.0, max(exponent, smallest) - (precision - 1))


def assert_close_to_exact(
    out: Array,
    grad: Array,
    indices: npt.ArrayLike,
    num_weights: int,
    padding_idx: int | None = None,
    scale: bool = False,
    *,
    columns: Iterable[int] | None = None,
) -> None:
    """Fail unless |out - exact| <= ulp(out) / 2 + n * 2^-53 * sum|g| in every entry.

    ``fsum`` over the row's terms and -out gives the difference itself, correctly rounded. With
    ``scale`` both sides are multiplied by the count. A float64 ``out`` gets no half ulp, since
    nothing is rounded after the sum.
    """
    ids = np.asarray(indices)
    flat = _flat(grad, ids.size)
    assert out.shape == (num_weights, flat.shape[1])
    by_row = _by_row(ids, num_weights, padding_idx, drop=False)
    untouched = np.ones(num_weights, dtype=bool)
    untouched[list(by_row)] = False
    assert not bits(out[untouched]).any(), (
        "a row that no index names, or the padding row, is not +0"
    )
    for row, positions in by_row.items():
        for column in range(flat.shape[1]) if columns is None else columns:
            terms = flat[positions, column].tolist()
            value = float(out[row, column])
            assert math.isfinite(value), (row, column, value)
            times = len(terms) if scale else 1
            difference = abs(math.fsum(terms + [-value] * times))
            half = 0.0 if out.dtype == np.float64 else ulp(value, out.dtype) / 2
            bound = times * half + len(terms) * 2.0**-53 * math.fsum(map(abs, terms))
            assert difference <= bound, (row, column, value, difference, bound)
