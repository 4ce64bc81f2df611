"""Shared set-up: the hypothesis profile, a cache that cannot be stale, and fresh interpreters."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent

settings.register_profile(
    "numba_embed",
    derandomize=True,
    database=None,
    deadline=None,  # a first example compiles
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("numba_embed")


def _package() -> Path:
    spec = find_spec("numba_embed")
    assert spec is not None, "numba_embed is not importable"
    assert spec.origin is not None, "numba_embed is a folder without a module"
    return Path(spec.origin).resolve().parent


def _cache_dir() -> Path:
    """Name a cache directory after the sources that kernels are made of.

    Numba does not notice that a function in another file changed. With a directory per state of
    the sources the kernels under test are always those on disk, and unchanged ones are found
    compiled, in this process and in those that the tests start.
    """
    package = _package()
    digest = hashlib.sha256()
    for path in [package / "runtime.py", *sorted((package / "kernels").glob("*.py"))]:
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return TESTS.parent / ".pytest_cache" / "numba" / digest.hexdigest()[:16]


if "NUMBA_CACHE_DIR" not in os.environ:
    assert "numba" not in sys.modules, "numba has read its settings already"
    os.environ["NUMBA_CACHE_DIR"] = str(_cache_dir())

# Thresholds that follow the machine's caches lie where the tests look for them.
os.environ["NUMBA_EMBED_CACHE_SIZES"] = "32K,512K,32M"

# Workers share the cores, and so do the processes that tests start: who waits should sleep.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="session")
def package_dir() -> Path:
    """Give the directory of the package under test."""
    return _package()


RunPython = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run_python(package_dir: Path) -> RunPython:
    """Give a function that runs code in a fresh interpreter and returns what came of it.

    The package under test and the test helpers are importable there. A variable given as ``None``
    is taken out of the environment. The time limit is only there to turn a hang into a failure.
    """

    def run(
        code: str,
        *arguments: str,
        package: Path = package_dir,
        check: bool = True,
        **variables: str | None,
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": f"{package.parent}{os.pathsep}{TESTS}"}
        for name, value in variables.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=package.parent,  # the first place where such an interpreter looks for modules
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        if check:
            report = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == 0, report
        return done

    return run
