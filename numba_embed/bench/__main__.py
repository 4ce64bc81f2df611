"""``python -m numba_embed.bench``: the same as ``numba-embed bench``."""

import sys

from numba_embed.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
