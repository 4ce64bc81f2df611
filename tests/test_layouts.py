"""Whatever the memory of the inputs looks like, the result has the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from inputs import INTEGERS, THREADS, hot_ids, misaligned, normal, spaced
from reference import FLOATS, Array, assert_same_bits, bits

from numba_embed import embedding_dense_backward as E

# Ways to lay the same (4, 5, 6, 3) gradient out in memory.
GRADS: dict[str, Callable[[Array], Array]] = {
    "fortran": np.asfortranarray,
    "columns apart": lambda g: spaced(g, 1, 1, 1, 2),
    "rows apart": lambda g: spaced(g, 1, 1, 2, 1),
    "unmergeable": lambda g: spaced(g, 3, 2, 1, 1),
    "all apart": lambda g: spaced(g, 2, 3, 2, 3),
    "backwards": lambda g: spaced(g, -1, -1, -1, -1),
    "some backwards": lambda g: spaced(g, 1, -2, 1, -1),
    "transposed": lambda g: np.ascontiguousarray(g.transpose(2, 0, 1, 3)).transpose(1, 2, 0, 3),
    "columns first": lambda g: np.ascontiguousarray(np.moveaxis(g, -1, 0)).transpose(1, 2, 3, 0),
    "swapped bytes": lambda g: g.astype(g.dtype.newbyteorder("S")),
    "swapped, apart": lambda g: spaced(g.astype(g.dtype.newbyteorder("S")), 1, 2, 1, 2),
    "misaligned": misaligned,
    "misaligned, apart": lambda g: misaligned(np.repeat(g, 2, axis=-1))[..., ::2],
}


@pytest.mark.parametrize("name", list(FLOATS))
@pytest.mark.parametrize("layout", list(GRADS))
def test_layouts_of_grad(layout: str, name: str) -> None:
    if "swapped" in layout and name == "bfloat16":
        pytest.skip("ml_dtypes has no bfloat16 of the other byte order")
    random = np.random.default_rng(1)
    grad = normal(random, (4, 5, 6, 3), name)
    ids = random.integers(0, 30, (4, 5, 6))
    want = E(grad, ids, 30)
    other = GRADS[layout](grad)
    assert np.array_equal(other, grad)
    kept = bits(other).copy()
    assert_same_bits(E(other, ids, 30), want)
    assert np.array_equal(bits(other), kept)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("num_weights", [40, 9000])
def test_layouts_of_large_gradients(num_weights: int, threads: int) -> None:
    """Long enough for every thread to work, in both algorithms; hot rows too."""
    random = np.random.default_rng(2)
    grad = normal(random, (20, 30, 20, 5), "float64")
    ids = hot_ids(random, 12_000, num_weights).reshape(30, 20, 20)
    want = E(grad, ids, num_weights, num_threads=threads)
    for layout in GRADS.values():
        assert_same_bits(E(layout(grad), ids, num_weights, num_threads=threads), want)


def test_zero_strides() -> None:
    random = np.random.default_rng(3)
    row = normal(random, (1, 1, 7), "float64")
    column = normal(random, (6, 5, 1), "float64")
    one = np.float64(0.1)
    ids = random.integers(0, 4, (6, 5))
    for grad in (row, column, one, column[:, :1], column[:1]):
        wide = np.broadcast_to(grad, (6, 5, 7))
        assert_same_bits(E(wide, ids, 4), E(wide.copy(), ids, 4))
    same = np.broadcast_to(np.int64(3), (6, 5))
    assert_same_bits(E(wide, same, 4), E(wide.copy(), same.copy(), 4))
    for name in ("int8", "float32", ">i8"):
        constant = np.broadcast_to(np.array(3, dtype=name), (6, 5))
        assert_same_bits(E(wide, constant, 4), E(wide.copy(), same.copy(), 4))


@pytest.mark.parametrize("name", [*INTEGERS, "bool", "float16", "float32", "float64"])
def test_layouts_of_indices(name: str) -> None:
    random = np.random.default_rng(4)
    plain = random.integers(0, 2 if name == "bool" else 100, (4, 5, 6))
    grad = normal(random, (4, 5, 6, 2), "float64")
    want = E(grad, plain, 100)
    ids = plain.astype(name)
    for layout in (
        ids,
        np.asfortranarray(ids),
        spaced(ids, 1, 1, 2),
        spaced(ids, 2, 1, 1),
        spaced(ids, -1, 2, -3),
        np.ascontiguousarray(ids.transpose(2, 0, 1)).transpose(1, 2, 0),
        ids.astype(ids.dtype.newbyteorder("S")),
        spaced(ids.astype(ids.dtype.newbyteorder("S")), 1, -1, 2),
        misaligned(ids),
    ):
        assert np.array_equal(layout, plain)
        assert_same_bits(E(grad, layout, 100), want)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("name", [*INTEGERS, "float16", "float32", "float64"])
def test_large_streams_of_every_index_dtype(name: str, threads: int) -> None:
    random = np.random.default_rng(5)
    for num_weights in (100, 60_000):
        top = {"int8": 128, "uint8": 256, "float16": 2049, "int16": 2**15}.get(name, num_weights)
        ids = hot_ids(random, 50_000, min(top, num_weights))
        grad = normal(random, (50_000, 2), "float64")
        want = E(grad, ids, num_weights, num_threads=1)
        assert_same_bits(E(grad, ids.astype(name), num_weights, num_threads=threads), want)
