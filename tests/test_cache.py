"""Compiled kernels on disk: none to be had, many writers at once, and found again."""

from __future__ import annotations

import concurrent.futures
import shutil
import sys
from pathlib import Path

import pytest
from conftest import RunPython

# The call whose kernels compile soonest: a small table, on one thread.
FIRST_CALL = """
import numpy as np
import numba_embed as ne
ids = np.arange(9000) % 4
out = ne.embedding_dense_backward(np.ones((9000, 1), np.float32), ids, 5, 0, num_threads=1)
assert out[:, 0].tolist() == [0, 2250, 2250, 2250, 0]
"""
NOWHERE = {"HOME": "/dev/null/home", "XDG_CACHE_HOME": "/dev/null/cache"}


def copied(package_dir: Path, place: Path) -> Path:
    """Copy the package, without what was compiled."""
    ignore = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(package_dir, place / package_dir.name, ignore=ignore))


@pytest.mark.skipif(sys.platform == "win32", reason="/dev/null is no file there")
def test_row_28_no_cache_directory_at_all(
    package_dir: Path, tmp_path: Path, run_python: RunPython
) -> None:
    package = copied(package_dir, tmp_path)
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("a file where a directory should be")
    code = """
import warnings
warnings.simplefilter("always")
import numba_embed
print(numba_embed.__file__)
"""
    for cache in (None, "/dev/null/numba"):
        done = run_python(
            code + FIRST_CALL + FIRST_CALL, package=package, NUMBA_CACHE_DIR=cache, **NOWHERE
        )
        assert Path(done.stdout.strip()).resolve() == (package / "__init__.py").resolve()
        assert done.stderr.count("Warning: ") == 1, done.stderr
        assert "NUMBA_CACHE_DIR" in done.stderr
    assert not any(tmp_path.rglob("*.nbi"))


def test_row_28_eight_processes_make_their_first_call_at_once(
    tmp_path: Path, run_python: RunPython
) -> None:
    """They write one cache at the same time; a ninth finds in it what it needs."""
    # Columns of no width leave the counting kernel alone to be compiled, eight times over.
    code = """
import numpy as np
import numba_embed as ne
none = np.ones((3, 0), np.float32)
assert ne.embedding_dense_backward(none, [0, 1, 1], 5, num_threads=1).shape == (5, 0)
try:
    ne.embedding_dense_backward(none, [0, 1, 5], 5, num_threads=1)
except IndexError as error:
    assert "position 2" in str(error)
else:
    raise AssertionError("no error")
"""

    def one(_: int) -> int:
        return run_python(code, NUMBA_CACHE_DIR=str(tmp_path)).returncode

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [0] * 8
    assert any(tmp_path.rglob("*.nbi")), "nothing was cached"

    counting = """
from numba.core import event

def compilations(code):
    with event.install_recorder("numba:compile") as recorder:
        exec(code, {})
    return sum(what.is_start for _, what in recorder.buffer)

import sys
print(*map(compilations, sys.argv[1:]))
"""
    ninth = run_python(counting, code, FIRST_CALL, NUMBA_CACHE_DIR=str(tmp_path)).stdout.split()
    assert ninth[0] == "0"
    assert int(ninth[1]) > 0, "the recorder records nothing"
    tenth = run_python(counting, code, FIRST_CALL, NUMBA_CACHE_DIR=str(tmp_path)).stdout.split()
    assert tenth == ["0", "0"]


def test_without_a_compiler_one_line_says_so(run_python: RunPython) -> None:
    done = run_python(FIRST_CALL, check=False, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 1
    assert "NUMBA_DISABLE_JIT" in done.stderr.splitlines()[-1]
