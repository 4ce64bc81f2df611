"""The two records that every kernel reads, and the layout of a thread's buffers.

A kernel takes the *address* of a call record, made for one call, which holds that of a plan record,
filled once per plan, instead of forty arguments: dispatching an integer is cheap, and read-only,
misaligned or N-dimensional arrays need no kernel of their own.
"""

from __future__ import annotations

import numpy as np


def _record(*names: str) -> list[tuple[str, type[np.int64]]]:
    return [(name, np.int64) for name in names]


PLAN = np.dtype(
    _record(
        "num_positions",  # N
        "num_weights",  # V
        "columns",  # D
        "padding",  # the padding row, or -1
        "scale",  # 1: divide by the frequency
        "dropping",  # 1: indices out of range take no part; 0: they are errors
        "threads",  # pieces that a parallel phase is cut into
        # The rule of order (numba_embed.order).
        "cut",
        "blocks",
        "block_length",
        "core_rows",  # rows of every core but the last, which owns the remainder as well
        # How the positions are put in order: rows are numbers of `digits` digits.
        "digit_bits",
        "digits",
        "position_bits",  # an entry of the order is row << position_bits | position
        "ask_step",  # entries between two requests for one row; long runs have steps of their own
        "column_slices",  # column ranges, so that threads share wide rows
        "max_hot",  # 0: cut rows are summed within the thread that owns them
        # Offsets into the workspace, in bytes from its aligned start.
        # Two places of N words, in turn for converted indices, checked rows and entries digit by
        # digit, such that the ordered entries come to lie in the first.
        "entries",
        "scattered",
        "histogram",  # int64 (threads, 2**digit_bits)
        "bad",  # int64 (threads,): each thread's first bad position
        "tickets",  # int64 (1,): the next piece of work
        "hot",  # int64 (max_hot, 3): row, first entry, end of entries; in place of `scattered`
        "hot_sums",  # float64 (max_hot, blocks, D)
        "tables",  # float64 (blocks, V, D): partial tables of the small-vocabulary regime
        "table_counts",  # int64 (blocks, V): their frequencies
        "private",  # one thread's buffers, see below
        "private_stride",
    )
)

LINE = 64
"""Bytes of a cache line, the unit of prefetching and of streaming stores."""

HUGE_PAGE = 1 << 21
"""Bytes of a huge page, which the system makes at once: the unit in which threads share memory that
comes fresh from it."""

MOST_DIGITS = 6
"""Most digits of a row's number: kernels have steps for so many."""

CALL = np.dtype(
    [
        *_record(
            # How far behind the start of an array object a launch finds the array's data pointer:
            # reading it in Python takes longer than a small kernel. 0: a launch is given the data's
            # address instead.
            "object_offset",
            # Addresses.
            "indices",
            "grad",
            "out",
            "plan",
            "workspace",
            "position_map",  # int64 (N,): the gradient row of a position; 0: the position itself
            "position_weights",  # float64 (N,): a factor per position; 0: none
            "more",  # the record of a kernel that needs one of its own
            # Strides in bytes, and 1 where elements have the other byte order.
            "out_row",
            "out_column",
            "out_swap",
            "grad_column",
            "grad_swap",
            "accumulate",  # 1: add to what out holds
            "zeroed",  # 1: out is known to be zero
            "plain",  # 1: gradient rows are contiguous, at one stride, and have no weights or map
            "streaming",  # 1: out is C-contiguous and larger than the caches
            "pieces",  # ranges of rows, or of entries, that the sums are cut into
            "counting",  # 1: partial tables count frequencies as well
            "bad",  # the first bad position in stream order, or -1, known after the check
            "digit",  # by which the positions are being put in order
            "taking_part",  # entries of the order, known after the counting
            "found",  # hot rows that have been found
            "grad_dims",  # leading dimensions of grad after merging, at most 7
        ),
        ("grad_shape", np.int64, (7,)),
        ("grad_strides", np.int64, (7,)),
    ]
)


def call_word(name: str) -> int:
    """Return the place of a field in the call record, seen as a vector of int64."""
    assert CALL.fields is not None
    return CALL.fields[name][1] // 8


# One thread's buffers, in bytes behind `private + thread * private_stride`.

TILE = 1024
"""Elements that are summed at a time in a private buffer."""

STAGE = 2 * TILE
"""Elements of the buffer in which streaming stores are gathered to whole lines."""

SUM = 0  # float64 (TILE,)
PART = SUM + 8 * TILE  # float64 (TILE,)
SOURCE = PART + 8 * TILE  # gradient elements (TILE,)
STAGED = SOURCE + 8 * TILE  # output elements (STAGE,)
PRIVATE = STAGED + 8 * STAGE  # bytes of them all

ASK_BYTES, MAX_ASK_STEP = 4096, 16
"""Bytes of gradient rows between two requests for one row, and most rows between them."""


def ask_step(row_bytes: int) -> int:
    """Return how many rows of so many bytes, >= 1, lie between two requests for one row."""
    return max(1, min(MAX_ASK_STEP, ASK_BYTES // row_bytes))
