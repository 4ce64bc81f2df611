"""Smoke test of an installed wheel, with its runtime dependencies alone.

Run it outside the source tree, or Python may import the tree in place of the wheel.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

import numba_embed as ne


def main() -> None:
    """Check the values, the typing marker, the command, and what was not pulled in."""
    here = Path(ne.__file__).parent
    assert "site-packages" in here.parts, f"imported from {here}, not from an installed wheel"
    assert (here / "py.typed").is_file()
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

    command = [sys.executable, "-m", "numba_embed"]
    info = subprocess.run([*command, "info"], check=True, capture_output=True, text=True)
    assert ne.__version__ in info.stdout
    demo = subprocess.run([*command, "demo"], capture_output=True, text=True, check=False)
    assert demo.returncode == 2
    assert "numba-embed[cli]" in demo.stderr
    print(f"numba_embed {ne.__version__} from the wheel works")


if __name__ == "__main__":
    main()
