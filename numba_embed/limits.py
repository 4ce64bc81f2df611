"""The published limits: the largest share of the rows, and the columns that it leaves room for.

Everything here is exact integer arithmetic, for tables of up to 2**64 - 1 rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numba_embed.errors import EmbedTypeError
from numba_embed.scalars import check_integer, shown

UNIFIED_BUFFER_BYTES = 180192
"""Bytes of a core's unified buffer on the Atlas training series."""

LIMIT_BYTES: dict[str, tuple[int, int]] = {"int32": (4, 36), "int64": (8, 20)}
"""Per index dtype: buffer bytes for each owned row, and for each column of the gradient."""

_INDEX_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)


def counts_size(num_weights: int, core_num: int) -> int:
    """Return the largest share of the documented split: ``V // core_num + V % core_num``.

    It is the number of rows, and of entries of one core's frequency buffer. The formula is that of
    the published documentation of aclnnEmbeddingDenseBackward.

    Parameters
    ----------
    num_weights : int
        Rows of the table, V, in ``[0, 2**64 - 1]``.
    core_num : int
        Cores that share them, in ``[1, 2**64 - 1]``.

    Raises
    ------
    EmbedTypeError
        If an argument is not an integer (a bool is none).
    EmbedValueError
        If an argument lies outside its range.

    Notes
    -----
    O(1), in exact integers.

    Examples
    --------
    >>> counts_size(30000, 32)
    953
    """
    rows = check_integer("num_weights", num_weights, 0)
    return sum(divmod(rows, check_integer("core_num", core_num, 1)))


def max_embedding_dim(num_weights: int, core_num: int, indices_dtype: DTypeLike) -> int:
    """Return the largest embedding dimension that the Atlas training series accepts.

    The limit applies there when ``scale_grad_by_freq`` is true. As published with
    aclnnEmbeddingDenseBackward, 180192 bytes being a core's unified buffer:

        int32 indices:  D < (180192 - countsSize * 4) / 36
        int64 indices:  D < (180192 - countsSize * 8) / 20

    Both are strict, and evaluated exactly. Every other index dtype is cast to int32 before, so the
    int32 line holds for it.

    Parameters
    ----------
    num_weights, core_num : int
        As for `counts_size`.
    indices_dtype : dtype_like
        Any index dtype that the library accepts, in any byte order.

    Returns
    -------
    int
        The largest legal D; 0 when there is none.

    Raises
    ------
    EmbedTypeError
        If an argument is of the wrong kind, or `indices_dtype` is no index dtype.
    EmbedValueError
        If `num_weights` or `core_num` lies outside its range.

    Notes
    -----
    O(1), in exact integers.

    Examples
    --------
    >>> max_embedding_dim(30000, 32, "int32"), max_embedding_dim(30000, 32, "int64")
    (4899, 8628)
    """
    per_row, per_column = limit_bytes(indices_dtype)
    room = UNIFIED_BUFFER_BYTES - counts_size(num_weights, core_num) * per_row
    return (room - 1) // per_column if room > 0 else 0


def embedding_dim_fits(
    embedding_dim: int, num_weights: int, core_num: int, indices_dtype: DTypeLike
) -> bool:
    """Tell whether `embedding_dim` is below the limit that `max_embedding_dim` describes.

    Unlike a comparison with `max_embedding_dim`, it is right for a dimension of 0 as well, which is
    legal only while the right side of the limit is positive. O(1).

    Parameters
    ----------
    embedding_dim : int
        Columns of the table, D, in ``[0, 2**64 - 1]``.
    num_weights, core_num, indices_dtype : as there
        See `max_embedding_dim`.

    Returns
    -------
    bool

    Raises
    ------
    EmbedTypeError, EmbedValueError
        As `max_embedding_dim`.
    """
    per_row, per_column = limit_bytes(indices_dtype)
    columns = check_integer("embedding_dim", embedding_dim, 0)
    return counts_size(num_weights, core_num) * per_row + columns * per_column < (
        UNIFIED_BUFFER_BYTES
    )


def smallest_core_num(num_weights: int, embedding_dim: int, indices_dtype: DTypeLike) -> int | None:
    """Return the smallest `core_num` for which `embedding_dim_fits`, or None when there is none.

    The share ``V // c + V % c`` jumps up and down as c grows, so there is nothing to bisect. But
    while the quotient ``q = V // c`` stays the same it is ``V - q * (c - 1)``, which falls; and a
    share that fits, m at most, needs ``q <= m``, where the buffer keeps m below 45048. So for q
    from m down to 1, that is for c upwards, the first c of each run that fits is known at once.

    Parameters
    ----------
    num_weights, embedding_dim, indices_dtype : as there
        See `embedding_dim_fits`.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        As `embedding_dim_fits`.

    Notes
    -----
    At most 45047 steps for any V.
    """
    per_row, per_column = limit_bytes(indices_dtype)
    columns = check_integer("embedding_dim", embedding_dim, 0)
    rows = check_integer("num_weights", num_weights, 0)
    largest_share = (UNIFIED_BUFFER_BYTES - 1 - columns * per_column) // per_row
    if rows <= largest_share:
        return 1
    for quotient in range(largest_share, 0, -1):
        first, last = rows // (quotient + 1) + 1, rows // quotient
        fitting = max(first, -((largest_share - rows) // quotient) + 1)
        if fitting <= last:
            return fitting
    return None


def limit_bytes(indices_dtype: DTypeLike) -> tuple[int, int]:
    """Return the buffer bytes per owned row and per column, for indices of a dtype. O(1).

    Parameters
    ----------
    indices_dtype : dtype_like
        Any index dtype that the library accepts; all but int64 count as int32.

    Raises
    ------
    EmbedTypeError
        If `indices_dtype` is not an index dtype that the library accepts.
    """
    try:
        dtype = None if indices_dtype is None else np.dtype(indices_dtype)
    except Exception:  # NumPy parses many things, and raises as many errors
        dtype = None
    if dtype is None or dtype.name not in _INDEX_DTYPES:
        raise EmbedTypeError(
            f"indices_dtype must be one of {', '.join(_INDEX_DTYPES)}, got {shown(indices_dtype)}"
        )
    return LIMIT_BYTES["int64" if dtype.name == "int64" else "int32"]
