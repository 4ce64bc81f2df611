"""The one family of errors that the library raises for bad input."""

from __future__ import annotations


class EmbedError(Exception):
    """Base of every error that this library raises on purpose."""


class EmbedValueError(EmbedError, ValueError):
    """An argument has a legal type but an illegal shape or value."""


class EmbedTypeError(EmbedError, TypeError):
    """An argument is of a kind or dtype that is not accepted."""


class EmbedIndexError(EmbedError, IndexError):
    """An entry of ``indices`` lies outside ``[0, num_weights)``."""
