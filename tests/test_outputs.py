"""Outputs anywhere in memory: all of them is written, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from inputs import THREADS, hot_ids, misaligned, normal, refused, spaced
from reference import FLOATS, Array, assert_same_bits

from numba_embed import embedding_dense_backward as E

OUTS: dict[str, Callable[[Array], Array]] = {
    "fortran": np.asfortranarray,
    "columns apart": lambda o: spaced(o, 1, 3),
    "rows apart": lambda o: spaced(o, 2, 1),
    "backwards": lambda o: spaced(o, -1, -1),
    "rows backwards": lambda o: spaced(o, -2, 1),
    "swapped bytes": lambda o: o.astype(o.dtype.newbyteorder("S")),
    "swapped, apart": lambda o: spaced(o.astype(o.dtype.newbyteorder("S")), 1, 2),
    "misaligned": misaligned,
}


def around_it(out: Array) -> Array:
    """Give all the memory that a view lies in, as bytes, without what the view itself covers."""
    base = out
    while isinstance(base.base, np.ndarray):
        base = base.base
    covered = np.zeros(base.nbytes, dtype=bool)
    start = out.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    places = start + sum(
        np.arange(n).reshape([-1 if axis == k else 1 for axis in range(out.ndim)]) * s
        for k, (n, s) in enumerate(zip(out.shape, out.strides, strict=True))
    )
    for byte in range(out.itemsize):
        covered[places + byte] = True
    memory = np.frombuffer(base, dtype=np.uint8) if base.flags.c_contiguous else base.view(np.uint8)
    return memory.reshape(-1)[~covered].copy()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
@pytest.mark.parametrize("layout", list(OUTS))
def test_layouts_of_out(layout: str, name: str, threads: int) -> None:
    random = np.random.default_rng(6)
    for size, num_weights in ((60, 30), (20_000, 40), (20_000, 9000)):
        grad = normal(random, (size, 3), name)
        ids = hot_ids(random, size, num_weights)
        old = normal(random, (num_weights, 3), name)
        for accumulate in (False, True):
            want = old.copy()
            E(grad, ids, num_weights, 1, out=want, accumulate=accumulate, num_threads=1)
            out = OUTS[layout](old.copy())
            rest = around_it(out) if layout not in ("fortran",) else np.zeros(0)
            options: dict[str, Any] = {"accumulate": accumulate, "num_threads": threads}
            assert E(grad, ids, num_weights, 1, out=out, **options) is out
            assert_same_bits(out.astype(want.dtype), want)
            if rest.size:
                assert np.array_equal(around_it(out), rest), "bytes beside out were written"


def sparse_problem(name: str, width: int, nbytes: int) -> tuple[Array, Array, Array]:
    """Draw a gradient and indices that touch a few hundred rows of a table of ``nbytes``.

    Returns them and the right result, put together from a small call.
    """
    random = np.random.default_rng(width)
    num_weights = nbytes // (FLOATS[name].itemsize * width)
    rows = np.unique(random.integers(0, num_weights, 400))
    rows[[0, -1]] = 0, num_weights - 1
    grad = normal(random, (3000, width), name)
    inverse = np.concatenate([np.arange(len(rows)), random.integers(0, len(rows), 3000)])[:3000]
    want = np.zeros((num_weights, width), dtype=FLOATS[name])
    want[rows] = E(grad, inverse, len(rows), num_threads=1)
    return grad, rows[inverse], want


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    ("name", "width"),
    [("float32", 1), ("float32", 7), ("float32", 300), ("float32", 2100), ("float16", 7)],
)
def test_large_outputs_at_every_alignment(name: str, width: int, threads: int) -> None:
    """Beyond the caches, where rows may be written past them, every address works."""
    grad, ids, want = sparse_problem(name, width, 18 << 20)
    memory = np.empty(want.nbytes + 256, dtype=np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    for offset in (0, want.itemsize, 32, 63, 64 - want.itemsize):
        memory[:] = 0xA5
        place = memory[start + offset : start + offset + want.nbytes]
        out = place.view(want.dtype).reshape(want.shape)
        E(grad, ids, len(want), out=out, num_threads=threads)
        assert_same_bits(out, want)
        out[...] = 0
        E(grad, ids, len(want), out=out, accumulate=True, num_threads=threads)
        assert_same_bits(out, want)
        assert (memory[: start + offset] == 0xA5).all()
        assert (memory[start + offset + want.nbytes :] == 0xA5).all()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("width", [3, 2100])
def test_large_outputs_keep_what_accumulation_leaves(width: int, threads: int) -> None:
    grad, ids, want = sparse_problem("float32", width, 18 << 20)
    rest = np.ones(len(want), dtype=bool)
    rest[ids] = False
    out = np.full(want.shape, 3, dtype=np.float32)
    out[~rest] = 0
    E(grad, ids, len(want), out=out, accumulate=True, num_threads=threads)
    want[rest] = 3
    assert_same_bits(out, want)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("megabytes", [18, 34, 70])
def test_large_fresh_outputs(megabytes: int, threads: int) -> None:
    """A fresh result has zeros where nothing was added, wherever its memory came from."""
    grad, ids, want = sparse_problem("float32", 5, megabytes << 20)
    for _ in range(2):  # the second time the memory may be the first one's
        got = E(grad, ids, len(want), num_threads=threads)
        assert_same_bits(got, want)
        got[...] = 7
        del got


def test_interleaved_views_share_no_byte() -> None:
    random = np.random.default_rng(8)
    values = normal(random, (8, 12), "float32")
    ids = random.integers(0, 8, 8)
    pairs: list[tuple[Any, Any]] = [
        (np.s_[:, ::2], np.s_[:, 1::2]),
        (np.s_[:, :6], np.s_[:, 6:]),
        (np.s_[:, 2::3], np.s_[:, 1::3]),
        (np.s_[::, 11::-2], np.s_[:, ::2]),
    ]
    for grad_part, out_part in pairs:
        buffer = values.copy()
        grad, out = buffer[grad_part], buffer[out_part]
        want = E(grad.copy(), ids, 8)
        assert E(grad, ids, 8, out=out) is out
        assert_same_bits(out, want)
        assert_same_bits(buffer[grad_part], values[grad_part])
    rows = normal(random, (16, 3), "float32")
    want = E(rows[::2].copy(), ids, 8)
    assert_same_bits(E(rows[::2], ids, 8, out=rows[1::2]), want)


def test_views_that_share_a_few_bytes_are_refused() -> None:
    memory = np.zeros(200, dtype=np.uint8)
    ids = np.array([0, 1])
    grad = memory[:24].view(np.float32).reshape(2, 3)
    for start in (1, 20, 23):
        out = memory[start : start + 24].view(np.float32).reshape(2, 3)
        with refused(ValueError, "out", "grad", out=memory):
            E(grad, ids, 2, out=out)
    out = memory[24:48].view(np.float32).reshape(2, 3)
    assert_same_bits(E(grad, ids, 2, out=out), np.zeros((2, 3), np.float32))
    buffer = np.zeros((8, 12), dtype=np.float32)
    with refused(ValueError, "out", "grad", out=buffer):
        E(buffer[:, ::2], np.arange(8), 8, out=buffer[:, 5:11])
    empty = buffer[:, :0]
    assert E(empty, np.arange(8), 8, out=empty) is empty
