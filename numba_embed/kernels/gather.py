"""Sums row by row over ordered entries: the algorithm for all but small vocabularies.

Threads take row ranges (and, of wide rows, column ranges) by ticket; each writes its own part of
the output. `sums` has the order of addition, `hot` the rows that all threads share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numba_embed.kernels import elements, memory, stage
from numba_embed.kernels import layout as at
from numba_embed.kernels.count import COUNT
from numba_embed.kernels.hot import add_hot_blocks, find_hot, hot_number, sum_hot_blocks
from numba_embed.kernels.memory import fence, lower_bound, take_ticket
from numba_embed.kernels.phases import Kernel, Phase
from numba_embed.kernels.rows import divide_row, narrow_row
from numba_embed.kernels.sums import longest_stored, row_end, store_run, sum_blocks, sum_entries
from numba_embed.runtime import jit, jit_inline


@jit
def cost_before(row: int, first: int, call: Any, plan: Any) -> int:
    """Return what the rows before ``row`` cost, whose entries end at ``first``; it grows with both.

    Their entries and, where untouched rows are written, the rows themselves. In memory fresh from
    the system: the pages that they begin, and the share of the entries that makes an equal piece;
    see `numba_embed.sizing.fresh_pieces`.
    """
    if call.zeroed != 0:
        start = call.out // at.HUGE_PAGE
        pages = (call.out + plan.num_weights * call.out_row - 1) // at.HUGE_PAGE - start + 1
        begun = (call.out + row * call.out_row) // at.HUGE_PAGE - start
        return begun + first * (call.pieces - pages) // max(1, call.taking_part)
    return first + row if call.accumulate == 0 else first


@jit
def cut_rows(piece: int, call: Any, plan: Any) -> tuple[int, int]:
    """Return the first row of a piece, and its first entry: found by bisection of the cost."""
    size, order_address = call.taking_part, call.workspace + plan.entries
    num_weights, bits = plan.num_weights, np.uint64(plan.position_bits)
    if piece == 0:
        return np.int64(0), np.int64(0)
    if piece == call.pieces:
        return num_weights, size
    # Fresh memory is cut where the cost reaches whole numbers: there pages begin.
    target = piece
    if call.zeroed == 0:
        target = piece * cost_before(num_weights, size, call, plan) // call.pieces
    low, high = np.int64(0), num_weights
    while low < high:
        middle = (low + high) >> 1
        first = lower_bound(order_address, np.int64(0), size, np.uint64(middle) << bits)
        if cost_before(middle, first, call, plan) < target:
            low = middle + 1
        else:
            high = middle
    if low == num_weights:
        return low, size
    return low, lower_bound(order_address, np.int64(0), size, np.uint64(low) << bits)


@jit
def sum_row(
    grad_like: Any, out_like: Any, call: Any, plan: Any, row: int, first: int, end: int,
    column: int, columns: int, base: int,
) -> None:  # fmt: skip
    """Leave a row's sum, scaled and with the old output added, in the buffer at ``base``.

    Its entries are ``[first, end)``; hot rows may have been summed by block.
    """
    total, buffer = base + at.SUM, base + at.SOURCE
    if end - first < plan.cut:
        sum_entries(grad_like, call, plan, first, end, column, columns, total, buffer)
    elif call.found > 0:
        which = hot_number(call, plan, row)
        add_hot_blocks(which, call, plan, column, columns, total)
    else:
        sum_blocks(grad_like, call, plan, first, end, column, columns, total, buffer)
    if plan.scale != 0:
        divide_row(total, np.float64(end - first), columns)
    if call.accumulate != 0:
        elements.add_old(out_like, call, row, column, columns, total, buffer)


@jit_inline
def store_row(
    grad_like: Any, out_like: Any, call: Any, plan: Any, row: int, number: int, first: int,
    end: int, left: int, right: int, direct: bool, streaming: bool, base: int, place: int,
    staged: int,
) -> tuple[int, int]:  # fmt: skip
    """Sum the entries ``[first, end)`` of a row of the table and store them as one of the output.

    Of its columns ``[left, right)``. ``direct``: by `store_run` alone. ``streaming``: by way of the
    buffer of `stage`, whose state is ``place`` and ``staged``. Returns that state.
    """
    buffer = base + at.STAGED
    for column in range(left, right, at.TILE):
        width = min(at.TILE, right - column)
        target = buffer + staged
        if not streaming:
            target = elements.out_address(call, number, column)
        if direct:
            store_run(grad_like, out_like, call, plan, first, end, column, width, target)
        else:
            sum_row(grad_like, out_like, call, plan, row, first, end, column, width, base)
            total, source = base + at.SUM, base + at.SOURCE
            if streaming:
                narrow_row(out_like, target, total, width)
            else:
                elements.store(out_like, call, number, column, width, total, source)
        if streaming:
            staged += width * memory.itemsize(out_like)
            if staged > stage.FULL:
                remaining = stage.flush(buffer, place, staged)
                place += staged - remaining
                staged = remaining
    return place, staged


@jit_inline
def sum_piece(
    grad_like: Any, out_like: Any, call: Any, plan: Any, rows: Any, span: Any, columns: Any,
    base: int,
) -> None:  # fmt: skip
    """Sum and store the columns ``columns`` of the rows ``rows``, whose entries are ``span``.

    Rows without entries become zero, but where out is zero already or accumulated into. A large
    C-contiguous output is written by streaming stores (`stage`); ``whole`` rows follow each other
    in memory, so that the buffer need not be emptied between them.
    """
    order = memory.entries(call.workspace + plan.entries)
    bits = np.uint64(plan.position_bits)
    zero_gaps = call.accumulate == 0 and call.zeroed == 0
    streaming = call.streaming != 0
    (row, end_row), (first, end), (left, right) = rows, span, columns
    whole = right - left == plan.columns
    contiguous = elements.contiguous_rows(out_like, call)
    buffer = base + at.STAGED
    most = longest_stored(call, plan) if contiguous else 0
    place, staged = elements.out_address(call, row, left), np.int64(0)
    while row < end_row:
        touched = np.int64(order[first] >> bits) if first < end else end_row
        if touched > row:
            if streaming and whole and zero_gaps:
                size = (touched - row) * call.out_row
                place, staged = stage.stage_zeros(buffer, place, staged, size)
            elif zero_gaps:
                elements.store_zeros(out_like, call, row, touched, left, right - left)
            if streaming and not (whole and zero_gaps):
                stage.finish(buffer, place, staged)
                place, staged = elements.out_address(call, touched, left), np.int64(0)
            row = touched
            continue
        last = row_end(call, plan, first, end)
        direct = last - first <= most
        place, staged = store_row(
            grad_like, out_like, call, plan, row, row, first, last, left, right, direct, streaming,
            base, place, staged,
        )  # fmt: skip
        first = last
        row += 1
        if streaming and not whole:
            stage.finish(buffer, place, staged)
            place, staged = elements.out_address(call, row, left), np.int64(0)
    stage.finish(buffer, place, staged)


@jit_inline
def sum_pieces(thread: int, call_address: int, grad_like: Any, out_like: Any) -> None:
    """Sum and store pieces of the table, taking each by ticket."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    slices = plan.column_slices
    base = call.workspace + plan.private + thread * plan.private_stride
    item = take_ticket(call.workspace + plan.tickets)
    while item < call.pieces * slices:
        piece, part = item // slices, item % slices
        if call.zeroed != 0:  # threads in different pages, not in columns of the same one
            piece, part = item % call.pieces, item // call.pieces
        row, first = cut_rows(piece, call, plan)
        end_row, end = cut_rows(piece + 1, call, plan)
        columns = memory.chunk(part, slices, plan.columns)
        rows, span = (row, end_row), (first, end)
        sum_piece(grad_like, out_like, call, plan, rows, span, columns, base)
        item = take_ticket(call.workspace + plan.tickets)
    fence()


_HOT = Phase(sum_hot_blocks, ("grad",), before=find_hot)
_PIECES = Phase(sum_pieces, ("grad", "out"))

gather = Kernel(*COUNT, _PIECES)
"""Order the positions, sum the gradient row by row over them, and write out."""

gather_hot = Kernel(*COUNT, _HOT, _PIECES)
"""The same for several threads, which share the blocks of hot rows. Plans with ``max_hot`` > 0."""
