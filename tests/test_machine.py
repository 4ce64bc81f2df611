"""Cache sizes: read from the system or the environment, and no bit of a result depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import RunPython
from inputs import refused

from numba_embed import machine
from numba_embed.digits import most_bits
from numba_embed.machine import USUAL, CacheSizes, cache_sizes
from numba_embed.sizing import default_core_num


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    cache_sizes.cache_clear()
    yield
    cache_sizes.cache_clear()


def lay_out(folder: Path, *caches: tuple[str, str, str]) -> None:
    """Write what Linux says of a core's caches: type, level and size of each."""
    for index, values in enumerate(caches):
        (folder / f"index{index}").mkdir()
        for name, value in zip(("type", "level", "size"), values, strict=True):
            (folder / f"index{index}" / name).write_text(f"{value}\n")


DATA, CODE = ("Data", "1", "48K"), ("Instruction", "1", "64K")
SECOND, THIRD = ("Unified", "2", "2048K"), ("Unified", "3", "266240K")


@pytest.mark.parametrize(
    ("caches", "want"),
    [
        ([DATA, CODE, SECOND, THIRD], CacheSizes(48 << 10, 2 << 20, 260 << 20)),
        ([DATA, CODE, SECOND], CacheSizes(48 << 10, 2 << 20, 2 << 20)),
        ([], USUAL),
        ([DATA], USUAL),
        ([DATA, ("Unified", "2", "0K")], USUAL),
        ([DATA, ("Unified", "2", "?")], USUAL),
    ],
)
def test_the_system_is_asked(
    caches: list[tuple[str, str, str]],
    want: CacheSizes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lay_out(tmp_path, *caches)
    monkeypatch.setattr(machine, "_LEVELS", tmp_path)
    monkeypatch.delenv(machine.VARIABLE)
    assert cache_sizes() == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("32K,512K,32M", CacheSizes(32 << 10, 512 << 10, 32 << 20)),
        (" 32KB, 1m ,1m", CacheSizes(32 << 10, 1 << 20, 1 << 20)),
        ("1,2,3", CacheSizes(1, 2, 3)),
    ],
)
def test_the_environment_overrides(
    text: str, want: CacheSizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(machine.VARIABLE, text)
    assert cache_sizes() == want


@pytest.mark.parametrize("text", ["", "32K", "32K,1M", "1M,32K,32M", "0,1,2", "a,b,c", "1K,2K,-3K"])
def test_what_cannot_be_read_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.VARIABLE, text)
    with refused(ValueError, machine.VARIABLE, "32K,512K,32M"):
        cache_sizes()


def test_thresholds_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.VARIABLE, "32K,512K,32M")
    assert (default_core_num(8192), most_bits(), cache_sizes().outgrown) == (2, 11, 16 << 20)
    assert default_core_num(8193) == 3
    cache_sizes.cache_clear()
    monkeypatch.setenv(machine.VARIABLE, "48K,2M,260M")
    assert (default_core_num(8192), most_bits(), cache_sizes().outgrown) == (2, 11, 64 << 20)
    cache_sizes.cache_clear()
    monkeypatch.setenv(machine.VARIABLE, "1,2,3")
    assert (default_core_num(512), most_bits(), cache_sizes().outgrown) == (2, 8, 2)
    assert default_core_num(513) == 3


AROUND_THRESHOLDS = """
import numpy as np
from inputs import around, normal, thresholds
from reference import assert_same_bits
import numba_embed as ne
from numba_embed.digits import cut_digits
from numba_embed.machine import cache_sizes

def small(grad, ids, many):
    # A sum of a few whole numbers is exact in any order.
    want = np.zeros((many, grad.shape[1]), np.float64)
    np.add.at(want, ids, grad)
    return want.astype(np.float32)

random = np.random.default_rng(1)
streamed = [cache_sizes().outgrown // 16]  # rows of four float32
assert streamed == [8192]
digits = thresholds(lambda many: cut_digits(6000, many, 2), 1, 20_000)
assert {257, 1025, 16385} <= set(digits), digits  # eight bits; two digits; one bit more for each
seen = set()
for many in around(streamed + digits, 1):
    ids = random.integers(0, many, 6000)
    ids[::3] = many - 1
    grad = random.integers(-9, 10, (6000, 4)).astype(np.float32)
    for threads in (1, 2):
        out = np.full((many, 4), np.nan, np.float32)
        plan = ne.plan_dense_backward(
            grad.shape, grad.dtype, ids.shape, ids.dtype, many, num_threads=threads
        )
        seen.add(plan.streaming)
        plan.execute(grad, ids, out=out)
        assert_same_bits(out, small(grad, ids, many))
assert seen == {False, True}
"""


def test_sizes_around_small_thresholds(run_python: RunPython) -> None:
    """With caches of a few KiB all thresholds lie at small sizes: below, at and above each."""
    run_python(AROUND_THRESHOLDS, NUMBA_NUM_THREADS="2", NUMBA_EMBED_CACHE_SIZES="2K,64K,256K")
