"""Checks of single integers, for every module that takes one, and how a value is quoted."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from numba_embed.errors import EmbedTypeError, EmbedValueError

MAX_ROWS = 2**64 - 1
"""Largest ``num_weights`` and ``core_num`` that are accepted: row numbers fit 64 bits."""

LONGEST = 120
"""Characters of a quoted value: an error stays one line, whatever was passed."""


def shown(value: Any) -> str:
    """Return how an error quotes a value. Never raises, whatever ``repr`` does."""
    try:
        text = repr(value)
    except Exception:  # a foreign repr may; Python's own refuses integers of thousands of digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def integer(name: str, value: Any, expected: str = "an integer") -> int:
    """Return ``value`` as a Python integer of any size.

    Raises
    ------
    EmbedTypeError
        If ``value`` is a bool, a float or anything else that is not an integer.
    """
    if type(value) is int:
        return value
    cause = None
    if not isinstance(value, (bool, np.bool_)):
        try:
            return int(operator.index(value))
        except Exception as error:  # a foreign __index__ may raise anything
            cause = None if type(error) is TypeError else error
    raise EmbedTypeError(
        f"{name} must be {expected}, got {shown(value)} of type {type(value).__name__}"
    ) from cause


def check_integer(
    name: str, value: Any, low: int, high: int = MAX_ROWS, expected: str = "an integer"
) -> int:
    """Return ``value`` as a Python integer in ``[low, high]``.

    Raises
    ------
    EmbedTypeError
        If ``value`` is not an integer, as `integer` says.
    EmbedValueError
        If ``value`` lies outside the range.
    """
    number = integer(name, value, expected)
    if not low <= number <= high:
        raise EmbedValueError(f"{name} must lie in [{low}, {high}], got {shown(number)}")
    return number
