"""What the commands share: one-line errors, optional packages, argument types, whole files."""

from __future__ import annotations

import argparse
import importlib
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

PICTURES = (".png", ".pdf", ".svg")
"""Endings of the files that a picture can be written to."""


class CliError(Exception):
    """Ends a command with its text as the one line on stderr, and exit code 2."""


def import_extra(module: str, extra: str) -> Any:
    """Import a module that one of the package's extras brings.

    Raises
    ------
    CliError
        The module is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = (error.name or module).partition(".")[0]
        raise CliError(
            f"this command needs {name}, which is not installed: pip install 'numba-embed[{extra}]'"
        ) from None


def integer(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return an argparse type for integers from ``low`` to ``high``, both included."""
    span = f"of at least {low}" if high is None else f"from {low} to {high}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"expected an integer {span}, got {_shown(text)}")
        return value

    return parse


def _shown(text: str) -> str:
    from numba_embed.scalars import shown  # brings NumPy, which a command imports when it runs

    return shown(text)


def file_name(text: str) -> Path:
    """Parse the name of a file; an argparse type. An empty one would name the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file, got ''")
    return Path(text)


def positive(text: str) -> float:
    """Parse a finite number above zero; an argparse type."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {_shown(text)}")
    return value


def check_target(path: Path) -> None:
    """Refuse, before any work is done, a file that could not be written afterwards.

    Raises
    ------
    CliError
        The path is no regular file, or its folder is missing or refuses a new file.
    """
    folder = Path(os.path.realpath(path)).parent
    if path.exists() and not path.is_file():
        raise CliError(f"cannot write {path}: it exists and is no regular file")
    if not folder.is_dir():
        raise CliError(f"cannot write {path}: the folder {folder} does not exist")
    # Permissions do not tell: a file system may be read-only, or refuse for other reasons.
    with temporary_beside(path):
        pass


@contextmanager
def temporary_beside(path: Path) -> Iterator[tuple[BinaryIO, str]]:
    """Give a new file in the folder of ``path``, and its name; in the end it is gone or renamed.

    Raises
    ------
    CliError
        The folder refuses it.
    """
    # Named before it exists, and not by `tempfile`: an interrupt must not leave it without a name.
    name = os.path.join(
        os.path.dirname(os.path.realpath(path)), f".numba-embed-{os.urandom(8).hex()}.tmp"
    )
    try:
        try:
            file = open(name, "xb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise CliError(f"cannot write {path}: {error.strerror}") from None
        with file:
            yield file, name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open ``path`` for writing such that it ends up whole or untouched.

    The bytes go to a temporary file beside the target, which takes the target's name when the
    block ends, and is removed when the block raises (Ctrl-C included).

    Raises
    ------
    CliError
        The folder refuses the file, or the disk its bytes.
    """
    with temporary_beside(path) as (file, name):
        try:
            yield file
            file.close()
            os.replace(name, os.path.realpath(path))
        except OSError as error:
            raise CliError(f"cannot write {path}: {error.strerror or error}") from None


def check_picture(path: Path) -> None:
    """Refuse, before any work is done, a picture that could not be drawn or named.

    Raises
    ------
    CliError
        matplotlib is not installed, or the path ends in none of `PICTURES`.
    """
    import_extra("matplotlib", "plot")
    if path.suffix.lower() not in PICTURES:
        raise CliError(f"--plot must end in {', '.join(PICTURES)}, got {path}")


def write_picture(path: Path, figure: Any) -> None:
    """Write a matplotlib figure in the format that the path ends in."""
    with whole_file(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:])
