"""The file of figures: JSON, written whole or not at all, to which other measurements are added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numba_embed.cli_support import CliError, whole_file


def read(path: Path) -> dict[str, Any]:
    """Return the figures of a file.

    Raises
    ------
    CliError
        It is missing or holds no JSON object.
    """
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CliError(f"{path} holds no figures: {error}") from None
    if not isinstance(figures, dict):
        raise CliError(f"{path} holds no figures: expected a JSON object")
    return figures


def write(path: Path, figures: Mapping[str, Any]) -> None:
    """Write the figures; an interrupted write leaves the old file."""
    with whole_file(path) as file:
        file.write(json.dumps(figures, indent=1).encode() + b"\n")


def add(path: Path, key: str, value: Any) -> None:
    """Put ``value`` under ``key`` into the file, which need not exist."""
    figures = read(path) if path.exists() else {}
    write(path, {**figures, key: value})
