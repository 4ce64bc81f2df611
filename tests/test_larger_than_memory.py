"""Operands larger than memory: rows block by block, with the bits of the run in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunPython
from inputs import THREADS, hot_ids, misaligned, normal, refused, spaced, spread
from reference import FLOATS, Array, assert_same_bits

import numba_embed as ne
from numba_embed import embedding_dense_backward as E
from numba_embed import larger, streamed

CHUNK = 1000


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the positions read in many pieces, which end within and at blocks of positions."""
    monkeypatch.setattr(streamed, "CHUNK", CHUNK)
    monkeypatch.setattr(streamed, "MAX_SPANS", 4)


def check(
    grad: Array, ids: Array, num_weights: int, blocks: tuple[int, ...], **options: Any
) -> None:
    """Compare streamed runs of several block sizes with the run in memory."""
    old = options.pop("old", None)

    def run(**more: Any) -> Any:
        out = np.full((num_weights, grad.shape[-1]), np.nan) if old is None else old.copy()
        E(grad, ids, num_weights, out=out, accumulate=old is not None, **options, **more)
        return out

    want = run()
    for block_rows in blocks:
        for threads in THREADS:
            assert_same_bits(run(block_rows=block_rows, num_threads=threads), want)


SHAPES = [
    (10_000, 50, 3),  # every row is cut
    (10_000, 50, 40),  # threads share the columns
    (20_000, 9000, 2),  # one row is cut
    (3000, 30, 2100),  # wide, beyond a tile, one row is cut
    (16 * CHUNK, 4000, 2),  # pieces end where blocks of positions end
    (7, 40, 3),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bits_of_the_run_in_memory(shape: tuple[int, int, int]) -> None:
    size, num_weights, width = shape
    random = np.random.default_rng(shape)
    ids = hot_ids(random, size, num_weights)
    ids[ids % 5 == 1] = 0  # rows, and with small blocks whole blocks, without look-ups
    grad = spread(random, (size, width), "float64")
    few = -(-num_weights // 6)
    blocks = (few, num_weights // 2, num_weights - 1, num_weights, num_weights + 1, 2**40)
    check(grad, ids, num_weights, blocks)
    check(grad, ids, num_weights, (few,), padding_idx=num_weights // 3, scale_grad_by_freq=True)
    ids[random.random(size) < 0.1] = -7
    ids[random.random(size) < 0.1] = num_weights
    old = spread(random, (num_weights, width), "float64")
    check(
        grad, ids, num_weights, (few, num_weights), old=old, on_invalid="drop",
        scale_grad_by_freq=True,
    )  # fmt: skip


def test_blocks_of_one_row_and_of_a_row_too_many() -> None:
    random = np.random.default_rng(0)
    ids = hot_ids(random, 5000, 37)
    check(spread(random, (5000, 2), "float64"), ids, 37, (1, 2, 5, 36, 37, 38))


@pytest.mark.parametrize("name", list(FLOATS))
def test_every_dtype(name: str) -> None:
    random = np.random.default_rng(1)
    ids = hot_ids(random, 5000, 3000)
    grad = normal(random, (5000, 5), name)
    want = E(grad, ids, 3000, 7, True, num_threads=1)
    assert_same_bits(E(grad, ids, 3000, 7, True, block_rows=700, num_threads=1), want)


def test_layouts_and_index_dtypes() -> None:
    random = np.random.default_rng(2)
    grad = spread(random, (10, 250, 6), "float64")
    ids = random.integers(0, 100, (50, 50))
    want = E(grad, ids, 120)
    flat = grad.reshape(-1, 6)
    grads = (grad[::-1][::-1], np.asfortranarray(flat), spaced(flat, -2, 3), misaligned(flat))
    for layout in (*grads, flat.astype(">f8")):
        assert_same_bits(E(layout, ids, 120, block_rows=50), want)
    for dtype in ("int8", "uint16", "int32", "uint64", "float16", "float32", ">i8"):
        assert_same_bits(E(grad, spaced(ids.astype(dtype), 2, -1), 120, block_rows=50), want)
    for out in (np.asfortranarray(want) * 0, spaced(want * 0, -2, 2), (want * 0).astype(">f8")):
        E(grad, ids, 120, out=out, block_rows=50)
        assert_same_bits(out.astype("=f8"), want)


def test_nothing_to_sum() -> None:
    assert E(np.ones((0, 3)), [], 0, block_rows=1).shape == (0, 3)
    assert E(np.ones((2, 0)), [1, 2], 3, block_rows=1).shape == (3, 0)
    assert_same_bits(E(np.ones((0, 3)), [], 4, block_rows=3), np.zeros((4, 3)))
    assert_same_bits(E(np.ones(3), np.int32(1), 2, block_rows=1)[1], np.ones(3))
    old = np.full((4, 3), -0.0)
    E(np.ones((2, 3)), [2, 2], 4, 2, out=old, accumulate=True, block_rows=3)
    assert np.signbit(old).all()


def test_every_index_is_checked_before_anything_is_written() -> None:
    random = np.random.default_rng(3)
    ids = random.integers(0, 90, (50, 100))
    out = np.ones((90, 2))
    grad = np.ones((50, 100, 2))
    ids[49, 99], ids[40, 7] = -1, 90
    with refused(ne.EmbedIndexError, "indices[40, 7]", 90, "position 4007", out=out):
        E(grad, ids, 90, out=out, block_rows=10)
    wrong = ids.astype(float)
    wrong[30, 1] = 0.5
    with refused(ne.EmbedValueError, "indices[30, 1]", 0.5, out=out):
        E(grad, wrong, 90, out=out, block_rows=10, on_invalid="drop")


def test_bad_arguments_change_nothing() -> None:
    out, grad, ids = np.ones((5, 2)), np.ones((3, 2)), np.arange(3)
    for options, error, parts in (
        ({"block_rows": 0}, ne.EmbedValueError, ("block_rows", 0)),
        ({"block_rows": -1}, ne.EmbedValueError, ("block_rows", -1)),
        ({"block_rows": 2.0}, ne.EmbedTypeError, ("block_rows", 2.0)),
        ({"block_rows": True}, ne.EmbedTypeError, ("block_rows", True)),
        ({"num_threads": 0}, ne.EmbedValueError, ("num_threads", 0)),
        ({"core_num": 0}, ne.EmbedValueError, ("core_num", 0)),
        ({"on_invalid": "no"}, ne.EmbedValueError, ("on_invalid",)),
        ({"padding_idx": 1.0}, ne.EmbedTypeError, ("padding_idx",)),
        ({"scale_grad_by_freq": 2}, ne.EmbedTypeError, ("scale_grad_by_freq",)),
        ({"accumulate": "yes"}, ne.EmbedTypeError, ("accumulate",)),
    ):
        with refused(error, *parts, out=out):
            E(grad, ids, 5, out=out, **{"block_rows": 1, **options})
    with refused(ne.EmbedValueError, "out", (5, 2)):
        E(grad, ids, 5, out=out[:4], block_rows=1)
    with refused(ne.EmbedValueError, "out", "grad"):
        E(out, np.arange(5), 5, out=out, block_rows=1)
    with refused(ne.EmbedTypeError, "out", "int64"):
        E(grad, ids, 5, out=out.astype(int), block_rows=1)
    with refused(ne.EmbedValueError, "out", "accumulate=True"):
        E(grad, ids, 5, accumulate=True, block_rows=1)


def mapped(path: Path, values: Array) -> Any:
    """Copy an array to a file that is mapped."""
    made: Any = np.lib.format.open_memmap(path, "w+", values.dtype, values.shape)
    made[...] = values
    return made


def test_mapped_operands_are_streamed_where_scratch_would_be_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(4)
    ids, grad = hot_ids(random, 5000, 300), spread(random, (5000, 8), "float64")
    want = E(grad, ids, 300)
    runs = []
    run = streamed.Streamed.run

    def spy(self: streamed.Streamed) -> None:
        runs.append(self.block_rows)
        run(self)

    monkeypatch.setattr(streamed.Streamed, "run", spy)
    monkeypatch.setattr(larger, "BLOCK_BYTES", 100 * (16 * 8 + 8))
    out = mapped(tmp_path / "out.npy", np.full((300, 8), 7.0))
    pairs = (
        (mapped(tmp_path / "grad.npy", grad), ids),
        (grad, mapped(tmp_path / "ids.npy", ids)),
    )
    scratch = 16 * ids.size + grad.nbytes // 64
    for limit, expected in ((scratch, []), (scratch - 1, [100])):
        monkeypatch.setattr(larger, "IN_MEMORY_BYTES", limit)
        for operands in pairs:
            assert_same_bits(E(*operands, 300), want)
            assert runs == expected
            runs.clear()
        assert E(grad, ids, 300, out=out) is out
        assert_same_bits(np.asarray(out), want)
        assert runs == expected
        runs.clear()
    E(np.asarray(pairs[0][0]), ids, 300)
    assert not runs  # memory by the caller's word


def test_the_default_block_takes_256_mebibytes() -> None:
    assert larger.default_block_rows(10**9, 64) == (256 << 20) // (16 * 64 + 8)
    assert larger.default_block_rows(100, 64) == 100
    assert larger.default_block_rows(10**9, 10**9) == 1
    assert larger.default_block_rows(0, 64) == 1


LIMITED = """
import resource, sys, threading, time
import numpy as np
import numba_embed as ne
from numba_embed.runtime import pool_size
folder, block_rows, allowed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) << 20
V, N, D = 6_000_000, 1_000_000, 64
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
def mapped(name, dtype, shape):
    with open(f"{folder}/{name}", "wb") as file:
        file.truncate(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.memmap(f"{folder}/{name}", dtype, "r+", shape=shape)
out, grad = mapped("out", "f4", (V, D)), mapped("grad", "f4", (N, D))
ids = mapped("ids", "i8", (N,))
touched = np.arange(0, N, 400)
ids[touched] = np.linspace(0, V - 1, touched.size).astype(int)
grad[touched] = 1
old = mapped("small", "f4", (10, D))
for threads in (1, pool_size()):
    small = grad[:20], ids[:20] % 10, 10
    ne.embedding_dense_backward(*small, out=old, block_rows=5, num_threads=threads, accumulate=True)
before = status("VmData"), status("RssAnon")
resource.setrlimit(resource.RLIMIT_DATA, (before[0] + allowed,) * 2)
peak, done = [0], threading.Event()
def watch():
    while not done.wait(0.01):
        peak[0] = max(peak[0], status("RssAnon"))
watcher = threading.Thread(target=watch)
watcher.start()
ne.embedding_dense_backward(grad, ids, V, out=out, accumulate=True, block_rows=block_rows)
done.set()
watcher.join()
assert 0 < peak[0] - before[1] < allowed, (peak, before)
rows = ids[touched]
assert (out[rows] == 1).all(), "wrong sums"
assert not out[rows[:-1] + 1].any(), "not zero"
print(peak[0] - before[1])
"""


def test_anonymous_memory_is_that_of_a_block(run_python: RunPython, tmp_path: Path) -> None:
    """Mapped files of 1.8 GB (sparse ones), in data limited to what a block takes and 40 MiB.

    All positions but a few name row 0, which is so much cut that it has a block's parts.
    """
    for block_rows in (60_000, 120_000):
        stated = block_rows * (16 * 64 + 8)
        allowed = (stated >> 20) + 40
        done = run_python(LIMITED, str(tmp_path), str(block_rows), str(allowed))
        assert int(done.stdout) < stated + (16 << 20)
