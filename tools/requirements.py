"""Print the requirements of extras, one a line, for pip's ``-r``.

``pip install '.[lint]'`` would build the package first, and install what it needs itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(*extras: str) -> list[str]:
    """Return what the extras list; raise KeyError where there is none of that name."""
    listed = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    return [line for extra in extras for line in listed["optional-dependencies"][extra]]


if __name__ == "__main__":
    try:
        print(*requirements(*sys.argv[1:]), sep="\n")
    except KeyError as error:
        sys.exit(f"{sys.argv[0]}: pyproject.toml has no extra {error}")
