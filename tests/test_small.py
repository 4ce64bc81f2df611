"""Small calls that repeat take a short way (`numba_embed.small`): the same results and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from inputs import POOL, Array, around, note_tries, plan_for, refused, run_in_threads, spaced
from reference import FLOATS, assert_same_bits
from reference import fast_dense_backward as embedding_backward

import numba_embed as ne
from numba_embed import backward
from numba_embed import embedding_dense_backward as E
from numba_embed.plan import BackwardPlan
from numba_embed.small import SmallCall


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note for every try of the short way whether it led to a result."""
    return note_tries(monkeypatch, SmallCall, backward)


def problem(size: int, many: int, width: int, name: str = "float32") -> tuple[Array, Array]:
    """Draw whole numbers, whose sums are exact in any order, and their rows."""
    random = np.random.default_rng([size, many, width])
    grad = random.integers(-4, 5, (size, width)).astype(FLOATS[name])
    return grad, random.integers(0, many, size)


@pytest.mark.parametrize("name", FLOATS)
def test_the_second_call_and_all_later_ones_give_the_first_ones_bits(
    name: str, taken: list[bool]
) -> None:
    grad, ids = problem(40, 9, 5, name)
    want = embedding_backward(grad, ids, 9)
    results = [E(grad, ids, 9) for _ in range(4)]
    assert taken == [True] * 3
    for got in results:
        assert_same_bits(got, want)
    assert len({got.__array_interface__["data"][0] for got in results}) == 4, "fresh memory each"
    other = problem(40, 9, 5, name)[0][::-1].copy()
    assert_same_bits(E(other, ids[::-1].copy(), 9), embedding_backward(other, ids[::-1], 9))


def test_what_is_not_plain_goes_the_long_way(taken: list[bool]) -> None:
    grad, ids = problem(40, 9, 5)
    want = E(grad, ids, 9)
    read_only = grad.copy()
    read_only.flags.writeable = False
    for operands in (
        (spaced(grad, 2, 3), ids),
        (grad, spaced(ids, 2)),
        (read_only, ids),
        (np.asfortranarray(grad), ids),
    ):
        assert_same_bits(E(*operands, 9), want)
    assert taken == [False] * 4
    # Other dtypes, sizes, options and kinds never come near it.
    swapped = grad.astype(grad.dtype.newbyteorder())
    out = np.empty_like(want)
    assert_same_bits(E(swapped, ids, 9), E(swapped, ids, 9))
    assert_same_bits(E(grad, ids.tolist(), 9), want)
    assert_same_bits(E(grad, ids, 9, num_threads=1), want)
    assert_same_bits(E(grad, ids, 9, out=out, accumulate=False), want)
    assert_same_bits(E(grad, ids, np.int64(9)), want)
    assert not E(grad, ids, 9, int(ids[0]))[ids[0]].any()
    assert E(grad, ids, 10).shape == (10, 5)
    with pytest.raises(ne.EmbedTypeError, match="num_weights"):
        E(grad, ids, True)
    with pytest.raises(ne.EmbedValueError, match="accumulate"):
        E(grad, ids, 9, accumulate=True)
    assert taken == [False] * 4


def test_given_outputs(taken: list[bool]) -> None:
    grad, ids = problem(40, 9, 5)
    want = E(grad, ids, 9)
    plan = plan_for(grad, ids, 9)
    space = plan.make_workspace()
    out = np.empty_like(want)
    runs: list[Callable[..., Array]] = [
        lambda out: E(grad, ids, 9, out=out),
        lambda out: plan.execute(grad, ids, out),
        lambda out: plan.execute(grad, ids, out, workspace=space),
    ]
    for run in runs:
        for _ in range(3):
            out[...] = 7
            assert run(out) is out
            assert_same_bits(out, want)
    assert taken == [True] * 7, "all but the first of the function and of the plan"
    del taken[:]
    memory = np.zeros(1000, np.float32)
    memory[100:300] = grad.ravel()
    inside = memory[100:300].reshape(40, 5)
    for run in (
        lambda out: E(inside, ids, 9, out=out),
        lambda out: plan.execute(inside, ids, out, workspace=space),
    ):
        for start, clear in ((55, True), (56, False), (299, False), (300, True), (150, False)):
            memory[100:300] = grad.ravel()
            target = memory[start : start + 45].reshape(9, 5)
            if clear:
                assert_same_bits(run(target), want)
            else:
                with refused(ValueError, "out", "grad"):
                    run(target)
                assert_same_bits(inside, grad)
        with refused(ValueError, "out", "(9, 5)", "(9, 6)"):
            run(np.empty((9, 6), np.float32))
        other = np.empty((9, 10), np.float32)[:, ::2]
        assert_same_bits(run(other), want)
        other.flags.writeable = False
        with refused(ValueError, "out", "read-only"):
            run(other)
    double = np.empty((9, 5))
    assert_same_bits(E(grad, ids, 9, out=double), want.astype(np.float64))
    with refused(TypeError, "out", "float32", "float64"):
        plan.execute(grad, ids, double)
    with refused(ValueError, "workspace", plan.workspace_nbytes, 5):
        plan.execute(grad, ids, out, workspace=ne.Workspace(5))
    space.acquire(0, "somebody else")
    with pytest.raises(ne.WorkspaceBusyError):
        plan.execute(grad, ids, out, workspace=space)


def test_errors_stay(taken: list[bool]) -> None:
    grad, ids = problem(40, 9, 5)
    want = E(grad, ids, 9)
    for bad in (9, -1, 2**62, -(2**63)):
        wrong = ids.copy()
        wrong[[7, 30]] = bad
        with refused(IndexError, "indices", bad, 7, "[0, 9)"):
            E(grad, wrong, 9)
        assert_same_bits(E(grad, ids, 9), want)
    floats = ids.astype(np.float64)
    for _ in range(2):
        assert_same_bits(E(grad, floats, 9), want)
    floats[3] = 1.5
    with refused(ValueError, "indices", 1.5, 3):
        E(grad, floats, 9)


def test_a_pool_in_use_is_drawn_from(taken: list[bool]) -> None:
    grad, ids = problem(40, 9, 5)
    for _ in range(2):
        E(grad, ids, 9)
    del taken[:]
    with ne.output_pool(1 << 20):
        first = E(grad, ids, 9)
        assert_same_bits(first, E(grad, ids, 9))
    assert taken == []


def test_sizes_around_what_counts_as_small(taken: list[bool]) -> None:
    """The short way ends where scratch memory or a second thread begins; results go on."""

    def small(size: int) -> bool:
        plan: Any = ne.plan_dense_backward((size, 4), "float32", (size,), "int64", 50)
        return SmallCall.suits(plan, np.dtype("float32"), np.dtype("int64"))

    edge = next(size for size in range(1, 40_000) if not small(size))
    assert isinstance(ne.plan_dense_backward((1, 1), "f4", (1,), "i8", 1), BackwardPlan)
    for size in around([edge]):
        grad, ids = problem(size, 50, 4)
        want = embedding_backward(grad, ids, 50)
        for _ in range(2):
            assert_same_bits(E(grad, ids, 50), want)
    assert taken == [True]  # only the size below the edge


def test_several_threads_share_no_record(taken: list[bool]) -> None:
    grad, ids = problem(200, 30, 8)
    problems = [(grad, ids), (grad[::-1].copy(), ids.copy())]
    wants = [embedding_backward(grad, ids, 30) for grad, ids in problems]
    E(*problems[0], 30)
    failed: list[int] = []

    def work(which: int) -> None:
        for _ in range(300):
            if E(*problems[which], 30).tobytes() != wants[which].tobytes():
                failed.append(which)

    run_in_threads(work)
    assert not failed
    assert taken.count(True) == 1200


def test_a_mask_of_threads_is_not_remembered(taken: list[bool]) -> None:
    """A call beside a lowered mask runs on one thread; calls after it need not."""
    if POOL < 2:
        pytest.skip("Numba's thread pool has one thread only")
    grad, ids = problem(70, 9, 4000)
    mask = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        want = E(grad, ids, 9)
    finally:
        numba.set_num_threads(mask)
    assert backward._small_calls == {}
    assert_same_bits(E(grad, ids, 9), want)
    assert taken == []
