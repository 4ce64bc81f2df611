"""Row gradients: the looked-up rows alone, with the bits of the dense gradient."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import reference
from conftest import RunPython
from inputs import THREADS, around, hot_ids, misaligned, normal, refused, spaced, spread, thresholds
from reference import Array, assert_same_bits, dense_backward, ordered_sum

import numba_embed as ne
from numba_embed import embedding_row_gradient, execute_rows
from numba_embed.errors import EmbedIndexError
from numba_embed.order import sum_order


def touched(ids: Array, num_weights: int, padding: int | None = None) -> Array:
    """List the distinct rows in range but for the padding row, the obvious way."""
    found = {int(i) for i in ids.ravel().tolist() if 0 <= i < num_weights and i != padding}
    return np.array(sorted(found), np.int64)


def check(grad: Array, ids: Array, num_weights: int, **options: Any) -> ne.RowGradient:
    """Compare rows, and values with the rule of order and with the dense call, for all threads."""
    padding, scale = options.get("padding_idx"), options.get("scale_grad_by_freq", False)
    drop = options.get("on_invalid") == "drop"
    order = sum_order(ids.size, num_weights, grad.shape[-1])
    rows = touched(ids, num_weights, padding)
    want = ordered_sum(
        grad, ids, num_weights, cut=order.cut, block_length=order.block_length,
        padding_idx=padding, scale=scale, out_dtype=np.float64, drop=drop,
    )  # fmt: skip
    found = None
    for threads in THREADS:
        found = embedding_row_gradient(
            grad, ids, num_weights, out_dtype=np.float64, num_threads=threads, **options
        )
        assert_same_bits(found.rows, rows)
        assert_same_bits(found.values, want[rows])
        assert_same_bits(found.to_dense(num_threads=threads), want)
    assert found is not None
    return found


SHAPES = [
    (10_000, 50, 3),  # partial tables
    (10_000, 2000, 3),  # no tables, one digit
    (6000, 90_000, 5),
    (20_000, 90_000, 2),  # a hot row, cut
    (1400, 300, 2100),  # wide rows are shared by columns
    (3, 10, 1025),
    (1, 1, 1),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_bits_of_every_algorithm(shape: tuple[int, int, int]) -> None:
    size, num_weights, width = shape
    random = np.random.default_rng(shape)
    ids = hot_ids(random, size, num_weights)
    grad = spread(random, (size, width), "float64")
    check(grad, ids, num_weights)
    hot = num_weights // 3
    check(grad, ids, num_weights, padding_idx=hot, scale_grad_by_freq=True)
    ids[random.random(size) < 0.2] = -1
    ids[random.random(size) < 0.2] = num_weights
    check(grad, ids, num_weights, on_invalid="drop", scale_grad_by_freq=True, core_num=7)


REGION = thresholds(lambda n: sum_order(n, 700, 2).cut == 0, 1, 60_000)
CUTS = thresholds(lambda n: n >= sum_order(n, 60_000, 2).cut, 1, 100_000)


def test_around_the_small_vocabulary_region_and_the_cut() -> None:
    assert REGION
    assert CUTS
    for points, num_weights in ((REGION, 700), (CUTS, 60_000)):
        for size in around(points):
            random = np.random.default_rng(size)
            grad = spread(random, (size, 2), "float64")
            check(grad, hot_ids(random, size, num_weights), num_weights)
            check(grad, np.full(size, 11), num_weights)


@pytest.mark.parametrize(
    ("name", "num_weights"),
    [("float16", 20), ("float16", 3000), ("bfloat16", 3000), ("float32", 3000)],
)
def test_every_dtype_has_the_bits_of_the_dense_rows(name: str, num_weights: int) -> None:
    random = np.random.default_rng(num_weights)
    ids = hot_ids(random, 4500, num_weights)
    grad = normal(random, (4500, 9), name)
    dense = ne.embedding_dense_backward(grad, ids, num_weights, 3, True, num_threads=1)
    found = embedding_row_gradient(grad, ids, num_weights, 3, True, num_threads=1)
    assert found.dtype == grad.dtype
    assert_same_bits(found.rows, touched(ids, num_weights, 3))
    assert_same_bits(found.values, dense[found.rows])
    assert_same_bits(found.to_dense(), dense)


def test_rows_that_begin_in_any_piece_of_the_entries() -> None:
    """Fewer entries than pieces, as many and more; rows within a piece, over several, over all."""
    random = np.random.default_rng(8)
    for size in (*range(1, 36), 63, 64, 65):
        grad = random.integers(-9, 10, (size, 3)).astype(np.float64)
        for share in (1, 2, 3, 7, size):  # look-ups of a row
            ids = random.permutation(np.arange(size) // share) * 10**8
            rows, place = np.unique(ids, return_inverse=True)
            want = np.zeros((rows.size, 3))
            np.add.at(want, place, grad)
            for threads in THREADS:
                found = embedding_row_gradient(grad, ids, 10**10, num_threads=threads)
                assert_same_bits(found.rows, rows)
                assert_same_bits(found.values, want)


@pytest.mark.parametrize(
    ("name", "out"), [("float32", "float32"), ("float32", "float16"), ("float64", "bfloat16")]
)
def test_single_rows_are_rounded_once(name: str, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no sums, but -0.0 becomes +0.0, a NaN the canonical one, and ties go to even."""
    random = np.random.default_rng(9)
    values = [-0.0, 0.0, np.inf, -np.inf, np.nan, 1e300, 1e-300, 2049.0, 2051.0, 257.0, 1 / 3]
    values += [2.0**-24, 2.0**-25, 3 * 2.0**-25, -(2.0**-149), 65_519.9, 65_520.0]
    with np.errstate(over="ignore"):
        grad = np.array(values, reference.FLOATS[name])[random.integers(0, len(values), (300, 11))]
    grad[grad != grad] = np.copysign(np.nan, -1).astype(grad.dtype)  # not the canonical one
    ids = random.permutation(300)
    want = reference.dense_backward(grad, ids, 300, out_dtype=reference.FLOATS[out])
    for limit in (execute_rows.streamed_bytes(), 0):
        monkeypatch.setattr(execute_rows, "streamed_bytes", lambda limit=limit: limit)
        for threads in THREADS:
            for layout in (grad, np.asfortranarray(grad)):
                found = embedding_row_gradient(
                    layout, ids * 7, 2100, out_dtype=reference.FLOATS[out], num_threads=threads
                )
                assert_same_bits(found.rows, np.arange(300) * 7)
                assert_same_bits(found.values, want)


@pytest.mark.parametrize("shape", [(6000, 90_000, 5), (700, 90_000, 1030), (1400, 300, 2100)])
def test_bits_of_values_that_are_streamed(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that end within lines, of several tiles, and shared by columns, which are not."""
    monkeypatch.setattr(execute_rows, "streamed_bytes", lambda: 0)
    size, num_weights, width = shape
    random = np.random.default_rng(shape)
    ids = hot_ids(random, size, num_weights)
    check(spread(random, (size, width), "float64"), ids, num_weights, scale_grad_by_freq=True)


def test_around_the_size_from_which_on_values_are_streamed() -> None:
    random = np.random.default_rng(0)
    ids = random.permutation(np.arange(0, 10**6, 15))[:65_600]
    grad = normal(random, (65_600, 64), "float32")
    limit = execute_rows.streamed_bytes() // grad[0].nbytes
    for count in (limit - 1, limit, limit + 1, 65_600):
        found = embedding_row_gradient(grad[:count], ids[:count], 10**6)
        order = np.argsort(ids[:count])
        assert_same_bits(found.rows, ids[:count][order])
        assert_same_bits(found.values, grad[:count][order] + np.float32(0))


@pytest.mark.parametrize("num_weights", [4097, 2**32 - 1, 2**32, 10**10, 2**50 + 1, 2**54 - 1])
def test_rows_at_both_ends_of_large_tables(num_weights: int) -> None:
    """Neighbours at each end, where a digit overflows, and anywhere, against the obvious loop."""
    random = np.random.default_rng(num_weights % 2**32)
    edges = [(1 << bits) + d for bits in range(3, 54, 2) for d in (-1, 0, 1)]
    ends = [*range(3), *(num_weights - 1 - np.arange(3)), *(e for e in edges if e < num_weights)]
    rows = np.concatenate([ends, random.integers(0, num_weights, 80)]).astype(np.int64)
    ids = random.permutation(np.repeat(rows, random.integers(1, 5, rows.size)))
    grad = spread(random, (ids.size, 2), "float64")
    distinct, inverse = np.unique(ids, return_inverse=True)
    want = dense_backward(grad, inverse, distinct.size)
    for cores in (None, 1, 3, 2**40):
        for threads in THREADS:
            found = embedding_row_gradient(
                grad, ids, num_weights, core_num=cores, num_threads=threads
            )
            assert_same_bits(found.rows, distinct)
            np.testing.assert_allclose(found.values, want, rtol=1e-12)
            assert found.shape == (num_weights, 2)


def test_the_largest_table_there_can_be() -> None:
    last = 2**62 - 1
    for threads in THREADS:
        found = embedding_row_gradient(
            np.array([[1.0], [2.0], [4.0]]),
            np.array([last, 0, last], np.uint64),
            2**62,
            num_threads=threads,
        )
        assert found.rows.tolist() == [0, last]
        assert found.values.tolist() == [[2], [5]]
    with refused(ne.EmbedValueError, 2**62, 4, 65):
        embedding_row_gradient(np.ones((4, 1)), np.zeros(4, int), 2**62)
    with refused(ne.EmbedValueError, 2**62, 2**62 + 1):
        embedding_row_gradient(np.ones((1, 1)), [0], 2**62 + 1)
    assert embedding_row_gradient(np.ones((0, 1)), [], 2**63 - 1).rows.size == 0


def test_megabytes_for_ten_thousand_million_rows(run_python: RunPython) -> None:
    """V = 10^10 and N = 10^5, with the process's data limited to what it has and 48 MiB more."""
    code = """
import resource
import numpy as np
import numba_embed as ne
from numba_embed.runtime import pool_size
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
random = np.random.default_rng(0)
ids = random.permutation(np.unique(random.integers(0, 10**10, 110_000))[:100_000])
grad = random.standard_normal((100_000, 16))
for threads in (1, pool_size()):
    ne.embedding_row_gradient(grad[:10], ids[:10], 10**10, num_threads=threads)
before = status("VmData")
resource.setrlimit(resource.RLIMIT_DATA, (before + (48 << 20),) * 2)
found = ne.embedding_row_gradient(grad, ids, 10**10)
again = ne.embedding_row_gradient(grad, ids, 10**10, num_threads=1)
order = np.argsort(ids)
assert np.array_equal(found.rows, ids[order]) and np.array_equal(again.rows, found.rows)
assert np.array_equal(found.values, grad[order]) and np.array_equal(again.values, found.values)
"""
    run_python(code)


def test_layouts_and_index_dtypes() -> None:
    random = np.random.default_rng(5)
    grad = spread(random, (6, 50, 7), "float64")
    ids = random.integers(0, 100, (20, 15))
    want = embedding_row_gradient(grad, ids, 10_000)
    flat, by_row = grad.reshape(-1, 7), ids.ravel()
    assert_same_bits(want.rows, touched(ids, 10_000))
    swapped = flat.astype(flat.dtype.newbyteorder())
    for layout in (flat, np.asfortranarray(flat), spaced(flat, -2, 3), swapped, misaligned(flat)):
        for dtype in ("int8", "uint16", "int32", "uint64", "float32", ">i8"):
            found = embedding_row_gradient(layout, by_row.astype(dtype), 10_000)
            assert_same_bits(found.rows, want.rows)
            assert_same_bits(found.values, want.values)


def test_nothing_to_sum() -> None:
    for shape, ids, num_weights in (((0, 3), [], 0), ((0, 3), [], 10**10), ((2, 3), [4, 4], 9)):
        grad = np.ones(shape, np.float32)
        found = embedding_row_gradient(grad, np.array(ids, int), num_weights, 4)
        assert found.rows.shape == (0,)
        assert found.rows.dtype == np.int64
        assert found.values.shape == (0, 3)
        assert found.values.dtype == np.float32
    found = embedding_row_gradient(np.ones((3, 0)), [7, 2, 7], 10**10)
    assert found.rows.tolist() == [2, 7]
    assert found.values.shape == (2, 0)
    single = embedding_row_gradient(np.ones(3), np.int64(5), 10)
    assert_same_bits(single.to_dense()[5], np.ones(3))


def test_a_plan_runs_many_times_in_one_workspace() -> None:
    random = np.random.default_rng(1)
    plan = ne.plan_row_gradient((500, 4), np.float64, (500,), np.int64, 10**10, 3)
    assert re.match(r"embedding_row_gradient plan: N = 500, V = 10000000000, D = 4\n", str(plan))
    assert plan == ne.plan_row_gradient((500, 4), np.float64, (500,), np.int64, 10**10, 3)
    workspace = plan.make_workspace()
    for _ in range(3):
        ids, grad = random.integers(0, 300, 500), spread(random, (500, 4), "float64")
        want = ne.embedding_dense_backward(grad, ids, 60_000, 3)
        for found in (plan.execute(grad, ids, workspace), plan.execute(grad, ids)):
            assert_same_bits(found.rows, touched(ids, 300, 3))
            assert_same_bits(found.values, want[found.rows])
    with refused(ne.EmbedValueError, 500, "(4, 4)"):
        plan.execute(grad[:4], ids[:4])
    with refused(ne.EmbedTypeError, "float32"):
        plan.execute(grad.astype(np.float32), ids)
    with refused(ne.EmbedTypeError, "workspace"):
        plan.execute(grad, ids, bytearray(8))
    workspace.acquire(1, object())
    with pytest.raises(ne.WorkspaceBusyError):
        plan.execute(grad, ids, workspace)


def test_memory_from_the_pool() -> None:
    grad, ids = np.ones((20_000, 4), np.float32), np.arange(20_000)
    with ne.output_pool(1 << 24) as pool:
        first = embedding_row_gradient(grad, ids, 10**10).values.ctypes.data
        assert pool.idle_nbytes >= 320_000
        assert embedding_row_gradient(grad, ids, 10**10).values.ctypes.data == first


def test_bad_arguments() -> None:
    grad = np.ones((3, 2), np.float32)
    with refused(ne.EmbedIndexError, "indices[1]", 10**10):
        embedding_row_gradient(grad, [0, 10**10, -1], 10**10)
    with refused(ne.EmbedValueError, 2.5, "indices[2]"):
        embedding_row_gradient(grad, [0.0, 1.0, 2.5], 10)
    with refused(ne.EmbedTypeError, "num_weights", "1.0"):
        embedding_row_gradient(grad, [0, 1, 2], 1.0)  # type: ignore[arg-type]
    with refused(ne.EmbedTypeError, "num_weights"):
        embedding_row_gradient(grad, [0, 1, 2], [10])  # type: ignore[arg-type]
    with refused(ne.EmbedTypeError, "int32"):
        embedding_row_gradient(grad, [0, 1, 2], 10, out_dtype=np.int32)
    with refused(ne.EmbedValueError, "on_invalid"):
        embedding_row_gradient(grad, [0, 1, 2], 10, on_invalid="skip")


@pytest.mark.parametrize("last", [2**53, 2**54 + 4, 2**60 + 256, 2**62 - 512])
def test_float_indices_of_tables_whose_size_is_no_float(last: int) -> None:
    grad = np.ones((1, 2))
    for num_weights in (last + 1, last + 3):
        found = embedding_row_gradient(grad, np.array([float(last)]), num_weights)
        assert found.rows.tolist() == [last]
    for num_weights in (last - 1, last):
        with refused(EmbedIndexError, num_weights):
            embedding_row_gradient(grad, np.array([float(last)]), num_weights)
