"""Smoke test of an installed archive, with its runtime dependencies alone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

import numba_embed as ne


def main() -> None:
    """Check the values, the typing marker, the command, and what was not pulled in."""
    here = Path(ne.__file__).parent
    assert "site-packages" in here.parts, f"imported from {here}, not from an installed archive"
    assert (here / "py.typed").is_file()
    assert importlib.metadata.version("numba-embed") == ne.__version__
    for module in ("torch", "rich", "ml_dtypes", "pytest"):
        assert importlib.util.find_spec(module) is None, f"{module} is installed; it should not be"

    grad = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    out = ne.embedding_dense_backward(grad, [1, 2], 4, padding_idx=0)
    assert out.dtype == np.float32
    assert out.tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6], [0, 0, 0]]

    rng = np.random.default_rng(0)
    grad = rng.standard_normal((5000, 40))
    indices = rng.integers(0, 300, 5000)
    expected = np.zeros((300, 40))
    np.add.at(expected, indices, grad)
    one, two = (
        ne.embedding_dense_backward(grad, indices, 300, num_threads=threads)
        for threads in (1, None)
    )
    assert one.tobytes() == two.tobytes()
    np.testing.assert_allclose(one, expected, rtol=1e-12, atol=1e-12)

    rows = ne.embedding_row_gradient(grad, indices, 300)
    assert rows.to_dense().tobytes() == one.tobytes()

    for command in (
        [sys.executable, "-m", "numba_embed"],
        [str(Path(sysconfig.get_path("scripts")) / "numba-embed")],
    ):
        # From an empty folder: `-m` would find a source tree in the current one.
        with tempfile.TemporaryDirectory() as folder:
            check_command(command, folder)
    print(
        f"numba_embed {ne.__version__} works: Python {platform.python_version()}, "
        f"numba {importlib.metadata.version('numba')}, numpy {np.__version__}"
    )


def check_command(command: list[str], folder: str) -> None:
    """Check what the command prints, and how it says what is missing."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )

    assert run("--version").stdout == f"numba-embed {ne.__version__}\n"
    info = run("info")
    assert info.returncode == 0, info.stderr
    assert ne.__version__ in info.stdout
    for arguments, extra in ((["demo"], "cli"), (["bench"], "bench"), (["warmup"], "cli")):
        refused = run(*arguments)
        assert refused.returncode == 2, refused
        assert f"numba-embed[{extra}]" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
    assert not list(Path(folder).iterdir())


if __name__ == "__main__":
    main()
