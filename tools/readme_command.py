"""Print the README's command of the given name, so that no script can drift from the README.

A command is the fenced block after a line ``<!-- command: NAME -->``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def readme_command(name: str) -> str:
    """Return the command; raise KeyError when the README has none of that name."""
    pattern = rf"<!-- command: {re.escape(name)} -->\s*```\w*\n(.*?)\n```"
    found = re.search(pattern, README.read_text(encoding="utf-8"), flags=re.DOTALL)
    if found is None:
        raise KeyError(name)
    return found[1]


if __name__ == "__main__":
    try:
        print(readme_command(sys.argv[1]))
    except (IndexError, KeyError):
        sys.exit(f"usage: {sys.argv[0]} NAME, where README.md holds <!-- command: NAME -->")
