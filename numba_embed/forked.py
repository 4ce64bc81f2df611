"""Whether this process was forked after its parent had started Numba's thread pool.

Imported with the package, which does not load Numba: the pool may be started by others, and a child
that enters a pool of its parent hangs or is ended.
"""

from __future__ import annotations

import os
import sys

dead_pool = False
"""In such a child the pool is there, and its threads are not."""


def pool_launched() -> bool:
    """Return whether this process has launched Numba's thread pool, without loading Numba."""
    numba = sys.modules.get("numba")
    try:
        return numba is not None and bool(numba.threading_layer())
    except (ValueError, AttributeError):  # not launched; or still being imported
        return False


def _after_fork() -> None:
    global dead_pool
    dead_pool = dead_pool or pool_launched()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
