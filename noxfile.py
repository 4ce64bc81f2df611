"""The whole matrix: ``nox --list`` shows the sessions, ``nox`` runs the ordinary ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "docs", "tests", "install"]

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]

# The oldest numba and numpy that have a wheel for each Python, the package's own bounds at least.
LOWEST = {
    "3.10": ("0.60.*", "1.26.*"),
    "3.11": ("0.60.*", "1.26.*"),
    "3.12": ("0.60.*", "1.26.*"),
    "3.13": ("0.61.*", "2.1.*"),
}


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the suite with the newest dependencies."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS)
def lowest(session: nox.Session) -> None:
    """Run the suite with the oldest numba and numpy that the package admits."""
    session.install("-e", ".[test]", *_lowest(session))
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install(*_pinned("ruff"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    session.install("-e", ".[test]", *_pinned("mypy"))
    session.run("mypy")


@nox.session
def mutants(session: nox.Session) -> None:
    """Break a copy of the package on purpose, line by line: the suite must fail each time."""
    session.install("-e", ".[test]")
    session.run("python", "tools/mutants.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Call the public functions with anything, for ten minutes or as many seconds as are given."""
    session.install("-e", ".[test]")
    session.run("python", "tools/fuzz.py", *(session.posargs or ["600"]))


@nox.session(python=PYTHONS)
def archives(session: nox.Session) -> None:
    """Build the sdist, and the wheel from it."""
    folder = _archives(session)
    shutil.rmtree(folder, ignore_errors=True)
    session.install("build")
    session.run("python", "-m", "build", "--outdir", str(folder), silent=True)


@nox.session(python=PYTHONS, reuse_venv=False, requires=["archives-{python}"])
@nox.parametrize("versions", ["newest", "lowest"])
@nox.parametrize("archive", ["wheel", "sdist"])
def install(session: nox.Session, archive: str, versions: str) -> None:
    """Install an archive, alone in a fresh environment, and try it."""
    (path,) = _archives(session).glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[archive])
    session.install(str(path), *(_lowest(session) if versions == "lowest" else []))
    session.run("python", "-m", "pip", "list")
    session.run("python", "tools/smoke.py")


def _archives(session: nox.Session) -> Path:
    return session.cache_dir / f"archives-{session.python}"


def _lowest(session: nox.Session) -> list[str]:
    numba, numpy = LOWEST[str(session.python)]
    return [f"numba=={numba}", f"numpy=={numpy}"]


def _pinned(tool: str) -> list[str]:
    extras = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]
    return [requirement for requirement in extras["lint"] if requirement.startswith(tool)]
