"""The checks of every argument: the only place that raises for bad input.

Turns what callers pass into plain values and canonical arrays. Nothing here writes to an operand;
whether the *values* of the indices are in range is found in the counting pass (`bad_index`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.errors import EmbedError, EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.formats import ACCEPTED, Format, format_named, format_of
from numba_embed.overlap import overlaps_itself, share_memory
from numba_embed.runtime import pool_size
from numba_embed.scalars import check_integer, integer, shown

MAX_DIMS = 8
MAX_POSITIONS = 2**56
MAX_ELEMENTS = 2**59
"""Entries of indices, and of the result: their bytes, and those of a workspace, fit 63 bits."""
INDEX_DTYPES = "an integer of 8 to 64 bits, bool, float16, float32 or float64"

RAISE = "raise"
"""The usual ``on_invalid``. Calls of the short ways (`numba_embed.small`) pass this very object, as
all do whose source says "raise"; a string that is made while running takes the long way."""

Array = npt.NDArray[Any]


# --- scalars --------------------------------------------------------------------------------------


def flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool; only bools and the integers 0 and 1 are accepted."""
    if value is True or value is False:
        return bool(value)
    if isinstance(value, np.bool_) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise EmbedTypeError(f"{name} must be a bool, got {shown(value)} of type {_type_name(value)}")


def checked_num_weights(value: Any) -> int:
    """Return V, an integer in [0, 2**63 - 1]."""
    return check_integer("num_weights", value, 0, 2**63 - 1, "an integer >= 0")


def checked_padding_idx(value: Any, num_weights: int) -> int | None:
    """Return the padding row, or None: a value outside [0, V) names no row."""
    if value is None:
        return None
    row = integer("padding_idx", value, "None or an integer")
    return row if 0 <= row < num_weights else None


def checked_core_num(value: Any) -> int | None:
    """Return the number of cores, or None for the plan's choice."""
    if value is None:
        return None
    return check_integer("core_num", value, 1, expected="None or an integer >= 1")


def checked_num_threads(value: Any) -> int | None:
    """Return the number of threads, or None for what Numba would use."""
    if value is None:
        return None
    threads = integer("num_threads", value, "None or an integer >= 1")
    if not 1 <= threads <= pool_size():
        raise EmbedValueError(
            f"num_threads must be in [1, {pool_size()}] (the size of Numba's thread pool), "
            f"got {shown(threads)}"
        )
    return threads


def checked_dropping(value: Any) -> bool:
    """Return whether indices out of range are dropped."""
    if isinstance(value, str) and value in (RAISE, "drop"):
        return value == "drop"
    raise EmbedValueError(f'on_invalid must be "raise" or "drop", got {shown(value)}')


# --- dtypes and shapes ----------------------------------------------------------------------------


def checked_format(name: str, dtype: Any) -> Format:
    """Return the format of a dtype or of a dtype's name."""
    found = format_named(dtype) if isinstance(dtype, str) else None
    if found is None:
        found = format_of(_dtype(name, dtype, ACCEPTED))
    if found is None:
        raise EmbedTypeError(f"{name} must be {ACCEPTED}, got {dtype}")
    return found


def checked_index_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of the indices if it is one of the accepted ones."""
    found = _dtype("indices", dtype, INDEX_DTYPES)
    if found.kind in "iub" or (found.kind == "f" and found.itemsize <= 8):
        return found
    raise EmbedTypeError(f"indices must be {INDEX_DTYPES}, got {found}")


def _dtype(name: str, dtype: Any, expected: str) -> np.dtype[Any]:
    """Return ``np.dtype(dtype)``, but refuse None, which NumPy reads as float64."""
    if isinstance(dtype, np.dtype):
        return dtype
    try:
        if dtype is not None:
            found: np.dtype[Any] = np.dtype(dtype)
            return found
    except Exception as error:  # TypeError, ValueError, SyntaxError: NumPy parses many things
        raise EmbedTypeError(f"{name} must be {expected}, got {shown(dtype)}") from error
    raise EmbedTypeError(f"{name} must be {expected}, got None")


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of integers >= 0."""
    try:
        sizes = tuple(shape)
    except Exception as error:
        raise EmbedTypeError(
            f"{name} must be a sequence of integers >= 0, got {shown(shape)}"
        ) from error
    return tuple(check_integer(name, size, 0, 2**63 - 1, "integers >= 0") for size in sizes)


def checked_shapes(grad: tuple[int, ...], indices: tuple[int, ...]) -> tuple[int, int]:
    """Return (N, D) for the shapes of grad and indices."""
    if len(indices) > MAX_DIMS:
        raise EmbedValueError(
            f"indices must have at most {MAX_DIMS} dimensions, got {len(indices)}: shape {indices}"
        )
    least = 1 if not indices else 2
    if not least <= len(grad) <= MAX_DIMS:
        raise EmbedValueError(
            f"grad must have {least} to {MAX_DIMS} dimensions, got {len(grad)}: shape {grad} with "
            f"indices of shape {indices}"
        )
    rows, positions = math.prod(grad[:-1]), math.prod(indices)
    if rows != positions:
        raise EmbedValueError(
            f"grad and indices must agree: grad of shape {grad} has {rows} rows of {grad[-1]}, "
            f"indices of shape {indices} has {positions} entries"
        )
    return positions, grad[-1]


def refuse_absurd(positions: int, num_weights: int, columns: int) -> None:
    """Refuse sizes whose bytes do not fit 64 bits; those that no machine has end elsewhere."""
    if positions > MAX_POSITIONS:
        raise EmbedValueError(f"indices must have at most {MAX_POSITIONS} entries, got {positions}")
    if num_weights * columns > MAX_ELEMENTS:
        raise EmbedValueError(
            f"num_weights times D must be at most {MAX_ELEMENTS}, got {num_weights} times {columns}"
        )


# --- arrays ---------------------------------------------------------------------------------------


def as_array(name: str, value: Any) -> Array:
    """Return ``value`` as an array that shares its memory wherever it has any.

    Accepted: arrays, whatever offers DLPack, ``__array__`` or the buffer protocol, and nested
    lists. Plain Python integers in lists are numbers, not an integer dtype: as a gradient they
    become float64.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise EmbedTypeError(f"{name} must not be a masked array: its mask would be ignored")
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    try:
        _refuse_tensor(name, value)
        if isinstance(value, (list, tuple)):
            array = np.asarray(value)
            return array.astype(np.float64) if name == "grad" and array.dtype.kind == "i" else array
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (EmbedError, MemoryError):
        raise
    except (ValueError, OverflowError) as error:
        raise EmbedValueError(f"{name} cannot be read as an array: {shown(error)}") from error
    except Exception as error:  # a foreign __array__ or __dlpack__ may raise anything
        raise EmbedTypeError(
            f"{name} must be an array or offer DLPack, __array__ or the buffer protocol, got "
            f"{_type_name(value)}: {shown(error)}"
        ) from error


def _refuse_tensor(name: str, value: Any) -> None:
    """Refuse the torch tensors that have no NumPy view, and say what to pass instead."""
    if not type(value).__module__.startswith("torch"):
        return
    if getattr(value, "requires_grad", False):
        raise EmbedTypeError(
            f"{name} is a torch tensor that requires grad; pass {name}.detach() instead"
        )
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        raise EmbedTypeError(
            f"{name} is a bfloat16 torch tensor, which has no NumPy view; pass "
            f"{name}.view(torch.int16).numpy().view(ml_dtypes.bfloat16) instead"
        )
    device = getattr(getattr(value, "device", None), "type", "cpu")
    if device != "cpu":
        raise EmbedTypeError(f"{name} is a torch tensor on {device}; pass {name}.cpu() instead")


def checked_out(out: Any, shape: tuple[int, int], grad: Array, indices: Array) -> Array:
    """Return ``out`` as an array, or raise without having written to it."""
    return checked_target("out", out, shape, (("grad", grad), ("indices", indices)))


def checked_target(
    name: str, target: Any, shape: tuple[int, int], operands: tuple[tuple[str, Array], ...]
) -> Array:
    """Return what is to be written to as an array of this shape, apart from the named operands."""
    if isinstance(target, (list, tuple)):
        raise EmbedTypeError(
            f"{name} must be an array that can be written to, got {_type_name(target)}"
        )
    array = as_array(name, target)
    if array.shape != shape:
        raise EmbedValueError(
            f"{name} must have shape (num_weights, D) = {shape}, got {array.shape}"
        )
    if not array.flags.writeable:
        raise EmbedValueError(f"{name} must be writable, got a read-only array")
    if overlaps_itself(array):
        raise EmbedValueError(
            f"{name} must not overlap itself, got strides {array.strides} for shape {array.shape}"
        )
    for other_name, other in operands:
        refuse_overlap(name, array, other_name, other)
    return array


def refuse_overlap(name: str, array: Array, other_name: str, other: Array) -> None:
    """Refuse two arrays that share a byte, or of which nobody can tell in reasonable time."""
    try:
        if share_memory(array, other):
            raise EmbedValueError(
                f"{name} must not overlap {other_name}, got arrays that share memory"
            )
    except np.exceptions.TooHardError as error:
        raise EmbedValueError(
            f"{name} must not overlap {other_name}, got strides {array.strides} and "
            f"{other.strides}, too contrived to tell"
        ) from error


# --- values ---------------------------------------------------------------------------------------


def bad_index(indices: Array, position: int, num_weights: int) -> Exception:
    """Return the error for the first bad entry of the indices, at a position in C order."""
    place = np.unravel_index(position, indices.shape)
    value = indices[place]
    where = f"indices[{', '.join(str(int(i)) for i in place)}]" if indices.ndim else "indices"
    valid = f"an integer in [0, {num_weights})" if num_weights else "no index (num_weights is 0)"
    came = f"{where} = {value} (position {position} in C order)"
    if indices.dtype.kind == "f" and not (np.isinf(value) or value == np.floor(value)):
        return EmbedValueError(f"{came} is not an integer; expected {valid}")
    return EmbedIndexError(f"{came} is out of range; expected {valid}")


def _type_name(value: Any) -> str:
    return type(value).__name__
