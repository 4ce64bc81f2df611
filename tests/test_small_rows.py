"""Small row gradients that repeat take a short way (`numba_embed.small_rows`): the same results."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from inputs import POOL, THREADS, Array, around, normal, note_tries, refused, run_in_threads, spaced
from reference import FLOATS, assert_same_bits

import numba_embed as ne
from numba_embed import RowGradient, row_backward, small_rows
from numba_embed import embedding_row_gradient as R
from numba_embed.small_rows import SmallRows


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note for every try of the short way whether it led to a result."""
    return note_tries(monkeypatch, SmallRows, row_backward)


def problem(size: int, many: int, width: int, name: str = "float32") -> tuple[Array, Array]:
    """Draw a gradient, and rows of which one is frequent."""
    random = np.random.default_rng([size, many, width])
    ids = random.integers(0, many, size)
    ids[: size // 3] = many // 2
    return normal(random, (size, width), name), random.permutation(ids)


def assert_same(found: RowGradient, want: RowGradient) -> None:
    assert_same_bits(found.rows, want.rows)
    assert_same_bits(found.values, want.values)
    assert found.num_weights == want.num_weights
    assert not found.rows.flags.writeable
    assert found.values.flags.owndata
    assert found.values.flags.writeable


def long_way(grad: Array, ids: Array, many: int) -> RowGradient:
    """Return what a call says that names its threads, and so is not one of the usual ones."""
    return R(grad, ids, many, num_threads=1)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("size", "many", "width"),
    [(1, 1, 1), (40, 9, 5), (300, 10**10, 3), (2000, 900, 64), (400, 60, 1025)],
)
def test_the_second_call_and_all_later_ones_give_the_first_ones_bits(
    name: str, size: int, many: int, width: int, taken: list[bool]
) -> None:
    grad, ids = problem(size, many, width, name)
    want = long_way(grad, ids, many)
    for _ in range(4):
        assert_same(R(grad, ids, many), want)
    assert taken == [True] * 3
    other = grad[::-1].copy()
    assert_same(R(other, ids[::-1].copy(), many), long_way(other, ids[::-1], many))


def test_what_is_not_plain_goes_the_long_way(taken: list[bool]) -> None:
    grad, ids = problem(40, 9, 5)
    want = R(grad, ids, 9)
    read_only = grad.copy()
    read_only.flags.writeable = False
    for operands in ((spaced(grad, 2, 3), ids), (grad, spaced(ids, 2)), (read_only, ids)):
        assert_same(R(*operands, 9), want)
    assert taken == [False] * 3
    # Other dtypes, sizes, options and kinds never come near it.
    swapped = grad.astype(grad.dtype.newbyteorder())
    for _ in range(2):
        assert_same(R(swapped, ids, 9), want)
        assert_same(R(grad, ids.tolist(), 9), want)
        assert_same(R(grad, ids, np.int64(9)), want)
        assert int(ids[0]) not in R(grad, ids, 9, int(ids[0])).rows
        assert R(grad, ids, 9, out_dtype="float64").dtype == np.float64
        with ne.output_pool(1 << 20):
            assert_same_bits(R(grad, ids, 9).values, want.values)
        with pytest.raises(ne.EmbedTypeError, match="num_weights"):
            R(grad, ids, True)
    assert R(grad, ids, 10).shape == (10, 5)
    assert taken == [False] * 3


def test_errors_stay(taken: list[bool]) -> None:
    grad, ids = problem(40, 9, 5)
    want = R(grad, ids, 9)
    for bad in (9, -1, 2**62, -(2**63)):
        wrong = ids.copy()
        wrong[[7, 30]] = bad
        with refused(IndexError, "indices", bad, 7, "[0, 9)"):
            R(grad, wrong, 9)
        assert_same(R(grad, ids, 9), want)
    floats = ids.astype(np.float64)
    for _ in range(2):
        assert_same(R(grad, floats, 9), want)
    floats[3] = 1.5
    with refused(ValueError, "indices", 1.5, 3):
        R(grad, floats, 9)
    assert taken.count(True) == 5


def test_values_around_what_counts_as_small(
    taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the size that is written past the caches, where one thread does it all."""
    monkeypatch.setattr(small_rows, "streamed_bytes", lambda: 4 * 100 * 5)
    for size in around([100]):
        grad, ids = problem(size, 900, 5)
        want = long_way(grad, ids, 900)
        for _ in range(2):
            assert_same(R(grad, ids, 900), want)
    assert taken == [True]  # only the size below

    plan = ne.plan_row_gradient((20, 5), "float32", (20,), "int64", 900, num_threads=max(THREADS))
    suits = SmallRows.suits(plan, np.dtype("float32"), np.dtype("int64"))
    assert suits == (plan.threads == 1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding_idx": 4, "scale_grad_by_freq": True},
        {"on_invalid": "drop", "out_dtype": "float64"},
        {"num_threads": 1, "core_num": 3},
    ],
)
def test_plans_take_it_too_whatever_their_options(
    options: dict[str, Any], taken: list[bool]
) -> None:
    grad, ids = problem(300, 9, 5)
    if "on_invalid" in options:
        ids[::7] = -1
    plan = ne.plan_row_gradient(grad.shape, grad.dtype, ids.shape, ids.dtype, 9, **options)
    want = plan.execute(grad, ids, plan.make_workspace())
    assert taken == []
    for _ in range(3):
        assert_same(plan.execute(grad, ids), want)
    assert taken == [True] * 2
    assert_same(plan.execute(spaced(grad, 2, 3), ids), want)
    assert taken.pop() is False
    ids[5] = 9
    if "on_invalid" not in options:
        for _ in range(2):
            with refused(IndexError, "indices", 9, 5):
                plan.execute(grad, ids)
    with refused(ValueError, "grad", "D = 5", (300, 6)):
        plan.execute(np.ones((300, 6), np.float32), ids)


def test_several_threads_share_no_record(taken: list[bool]) -> None:
    grad, ids = problem(200, 30, 8)
    problems = [(grad, ids), (grad[::-1].copy(), ids.copy())]
    wants = [long_way(grad, ids, 30) for grad, ids in problems]
    R(*problems[0], 30)
    failed: list[int] = []

    def work(which: int) -> None:
        for _ in range(300):
            if R(*problems[which], 30).values.tobytes() != wants[which].values.tobytes():
                failed.append(which)

    run_in_threads(work)
    assert not failed
    assert taken.count(True) == 1200


def test_a_mask_of_threads_is_not_remembered(taken: list[bool]) -> None:
    """A call beside a lowered mask runs on one thread; calls after it need not."""
    if POOL < 2:
        pytest.skip("Numba's thread pool has one thread only")
    grad, ids = problem(9000, 10**6, 128)
    mask = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        want = R(grad, ids, 10**6)
    finally:
        numba.set_num_threads(mask)
    assert row_backward._small_calls == {}
    assert_same(R(grad, ids, 10**6), want)
    assert taken == []


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_to_sum(shape: tuple[int, int], taken: list[bool]) -> None:
    grad, ids = np.ones(shape, np.float32), np.zeros(shape[0], np.int64)
    want = long_way(grad, ids, 4)
    for _ in range(3):
        assert_same(R(grad, ids, 4), want)
    assert taken == [True] * 2
