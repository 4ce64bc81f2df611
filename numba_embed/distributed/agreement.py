"""What ranks tell each other before they exchange data, so that no rank waits for another in vain.

Before every exchange each rank sends a header: what it is about to do, whether its own arguments
are good, and how much it will send. Every rank reads every rank's header, so that either all of
them go on, or all of them raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from numba_embed.distributed.exchange import Exchange, Int64Array, RankError
from numba_embed.errors import EmbedError


class Operation(IntEnum):
    """What a rank is about to do."""

    CONSTRUCT = 1
    FORWARD = 2
    BACKWARD = 3
    GATHER = 4


class Call(NamedTuple):
    """A call, in numbers that must be the same on all ranks."""

    operation: int
    module: int
    step: int

    def __str__(self) -> str:
        known = {operation.value: operation.name.lower() for operation in Operation}
        name = known.get(self.operation, "an unknown call")
        return f"{name} (sharded module {self.module}, look-up {self.step})"


class Setting(NamedTuple):
    """A number that must be the same on all ranks, and how a message shows it."""

    name: str
    number: int
    show: Callable[[int], str] = str


@dataclass(frozen=True)
class Problem:
    """Why a rank cannot go on: its own error, and for a bad index what the others are told."""

    error: EmbedError
    position: int = -1
    value: int = 0


MAX_SETTINGS = 8
MAX_SIZES = 3

# The columns of a header, int64 each: a call, a status and its details, settings, sizes. The width
# is the same for all operations, so that ranks in different ones still understand each other.
_CALL = slice(0, 3)
_STATUS, _POSITION, _VALUE = 3, 4, 5
_SETTINGS = slice(6, 6 + MAX_SETTINGS)
_SIZES = slice(6 + MAX_SETTINGS, 6 + MAX_SETTINGS + MAX_SIZES)
_WIDTH = 6 + MAX_SETTINGS + MAX_SIZES

_GOOD, _BAD_ARGUMENT, _BAD_INDEX = range(3)


def exchange_headers(
    exchange: Exchange,
    call: Call,
    settings: Sequence[Setting],
    sizes: Int64Array | None = None,
    problem: Problem | None = None,
) -> Int64Array:
    """Tell every rank what this one does and will send; return what each will send here.

    Parameters
    ----------
    exchange : Exchange
        The group.
    call : Call
        What this rank is about to do.
    settings : sequence of Setting
        At most ``MAX_SETTINGS``, in the same order on all ranks.
    sizes : ndarray of int64, shape (exchange.size, K), optional
        What to tell each rank, K at most ``MAX_SIZES``.
    problem : Problem, optional
        Why this rank cannot take part.

    Returns
    -------
    ndarray of int64, shape (exchange.size, MAX_SIZES)

    Raises
    ------
    EmbedError
        On a rank with a problem: the problem's error.
    RankError
        On the other ranks, if one has a problem; on all, if they disagree.
    """
    header = np.zeros((exchange.size, _WIDTH), np.int64)
    header[:, _CALL] = call
    header[:, _SETTINGS][:, : len(settings)] = [setting.number for setting in settings]
    if sizes is not None:
        header[:, _SIZES][:, : sizes.shape[1]] = sizes
    if problem is not None:
        header[:, _STATUS] = _BAD_ARGUMENT if problem.position < 0 else _BAD_INDEX
        header[:, _POSITION] = problem.position
        header[:, _VALUE] = problem.value
    came = exchange.words(header)
    if problem is not None:
        raise problem.error
    _refuse_problems(came)
    _refuse_difference(came[:, _CALL], lambda line: str(Call(*line)), "call")
    for column, setting in enumerate(settings):
        _refuse_difference(
            came[:, _SETTINGS][:, column : column + 1],
            lambda line, show=setting.show: show(line[0]),  # type: ignore[misc]
            setting.name,
        )
    return came[:, _SIZES]


def _refuse_problems(came: Int64Array) -> None:
    failed = np.flatnonzero(came[:, _STATUS] != _GOOD)
    if not failed.size:
        return
    rank = int(failed[0])
    _, position, value = came[rank, [_STATUS, _POSITION, _VALUE]].tolist()
    if came[rank, _STATUS] == _BAD_INDEX:
        what = f"was given the index {value} (position {position} in C order), out of range"
    else:
        what = "was given an argument that is not accepted; its own error says which"
    raise RankError(f"rank {rank} {what}; all ranks give this call up")


def _refuse_difference(values: Int64Array, show: Callable[[list[int]], str], name: str) -> None:
    others = np.flatnonzero((values != values[0]).any(axis=1))
    if others.size:
        other = int(others[0])
        raise RankError(
            f"{name} must be the same on all ranks, got {show(values[0].tolist())} on rank 0 and "
            f"{show(values[other].tolist())} on rank {other}"
        )
