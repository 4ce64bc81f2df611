"""One column in a small vocabulary: indices are checked a window at a time (`kernels/tables.py`).

Block lengths lie around whole windows, and around windows after which as many positions follow as
are asked for; bad indices lie on both sides of each of these borders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from inputs import THREADS, around, hot_ids, misaligned, plan_for, refused, spaced, spread
from reference import Array, assert_same_bits, ordered_sum

from numba_embed import embedding_dense_backward as E
from numba_embed.kernels.tables import SOON_OF_ONE, WINDOW
from numba_embed.order import BLOCKS, SMALL_STREAM, sum_order

V = 40
SHORTEST = SMALL_STREAM // BLOCKS
BORDERS = [WINDOW, WINDOW + SOON_OF_ONE, 2 * WINDOW - SOON_OF_ONE, 2 * WINDOW]
LENGTHS = [SHORTEST + length for length in around(BORDERS)]


def problem(size: int) -> tuple[Array, Array]:
    random = np.random.default_rng(size)
    return spread(random, (size, 1), "float32"), hot_ids(random, size, V)


def check(grad: Array, ids: Array, **options: Any) -> None:
    """Compare every thread count with the documented order."""
    assert plan_for(grad, ids, V).algorithm == "tables"
    order = sum_order(ids.size, V, 1)
    want = ordered_sum(
        grad,
        ids,
        V,
        cut=order.cut,
        block_length=order.block_length,
        padding_idx=options.get("padding_idx"),
        drop=options.get("on_invalid") == "drop",
    )
    for threads in THREADS:
        assert_same_bits(E(grad, ids, V, num_threads=threads, **options), want)


@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_around_whole_windows(length: int) -> None:
    for size in (BLOCKS * length, BLOCKS * length - 1, BLOCKS * (length - 1) + 1):
        grad, ids = problem(size)
        assert sum_order(size, V, 1).block_length == length
        check(grad, ids)
        check(grad, ids, padding_idx=V // 3)  # the hot row
        check(grad, ids, padding_idx=int(ids[-1]))


@pytest.mark.parametrize(
    "rows",
    [misaligned, lambda grad: spaced(grad, -1, 1), lambda grad: spaced(grad, 40, 1)],
    ids=["misaligned", "backwards", "far apart"],
)
def test_rows_anywhere(rows: Callable[[Array], Array]) -> None:
    grad, ids = problem(BLOCKS * LENGTHS[0])
    check(rows(grad), ids)
    check(np.broadcast_to(grad[:1], grad.shape), ids)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("bad", [-1, V, -(2**62)])
def test_a_bad_index_anywhere_in_a_block(bad: int, dtype: str) -> None:
    """It is named with its position, wherever its window ends; dropped, it changes no other sum."""
    length = LENGTHS[-1]
    grad, good = problem(BLOCKS * length)
    places = around([0, *BORDERS, length - SOON_OF_ONE, length - 1], lowest=0)
    for place in [place + block * length for block in (0, BLOCKS - 1) for place in places]:
        if place >= good.size:
            continue
        ids = good.astype(dtype)
        ids[place] = bad
        ids[place + 20 :: 50] = V + 7  # the first is named
        for threads in THREADS:
            out = np.full((V, 1), 99, np.float32)
            with refused(IndexError, f"indices[{place}]", ids[place].item(), f"[0, {V})", out=out):
                E(grad, ids, V, out=out, num_threads=threads)
        check(grad, ids, on_invalid="drop")
        check(grad, ids, on_invalid="drop", padding_idx=V // 3)
