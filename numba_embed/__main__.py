"""``python -m numba_embed`` is the command ``numba-embed``."""

from numba_embed.cli import entry

if __name__ == "__main__":
    entry()
