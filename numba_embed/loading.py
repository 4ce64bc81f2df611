"""Loading compiled code from Numba's cache, without what only a compilation needs.

Before Numba looks into its cache it makes ready to compile: it imports its versions of most of
Python and NumPy, and SciPy where that is installed, which takes longer than all else in the first
call of a process whose cache is warm. Code that comes from the cache needs the symbols that it
links to, and no more; a compilation makes ready by itself, and so does whatever else uses Numba.

The parts of Numba that this replaces are not public. So it is done for the versions that it was
tried with, and where those parts are found as they were; elsewhere Numba loads in its own way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from inspect import signature as parameters_of
from typing import Any

import numba

TRIED = ((0, 60), (0, 68))
"""The oldest and the newest Numba whose cached code was loaded this way, on Linux. Test before
raising it: a symbol that Numba defines while it makes ready would be missing, and LLVM ends the
process."""


def dispatcher(function: Callable[..., Any], cached: bool, **options: Any) -> Any:
    """Return ``numba.njit(cache=cached, **options)(function)``, which loads quickly.

    Raises
    ------
    RuntimeError
        If ``cached`` and no cache directory is writable.
    """
    cache = cached and _quick_cache()
    if not cache:
        return numba.njit(cache=cached, **options)(function)
    made = numba.njit(**options)(function)
    made._cache = cache(function)
    return made


def callback(function: Callable[..., Any], signature: Any, cached: bool, **options: Any) -> Any:
    """Return ``numba.cfunc(signature, cache=cached, **options)(function)``, loaded quickly.

    Raises
    ------
    RuntimeError
        If ``cached`` and no cache directory is writable.
    """
    cache = cached and _quick_cache()
    if not cache:
        return numba.cfunc(signature, cache=cached, **options)(function)
    from numba.core.ccallback import CFunc
    from numba.core.sigutils import normalize_signature

    made: Any = CFunc(function, normalize_signature(signature), locals={}, options=options)
    made._cache = cache(function)
    made.compile()
    return made


@functools.cache
def _quick_cache() -> Any:
    """Return the class of caches that load quickly, or None where this Numba is another."""
    if sys.platform != "linux" or not TRIED[0] <= tuple(numba.version_info.short) <= TRIED[1]:
        return None
    try:
        from numba.core.caching import FunctionCache
        from numba.core.runtime import rtsys

        found = {
            name: tuple(parameters_of(getattr(FunctionCache, name)).parameters)
            for name in ("load_overload", "_load_overload", "_guard_against_spurious_io_errors")
        }
        found["initialize"] = tuple(parameters_of(rtsys.initialize).parameters)
    except (ImportError, AttributeError):
        return None
    if found != _AS_TRIED:
        return None

    class QuickCache(FunctionCache):  # type: ignore[misc]  # Numba is untyped
        """A cache of compiled functions that makes ready nothing but the symbols."""

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """Return what is cached for a signature, or None. The compiler's lock is held."""
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)

    return QuickCache


_AS_TRIED = {
    "load_overload": ("self", "sig", "target_context"),
    "_load_overload": ("self", "sig", "target_context"),
    "_guard_against_spurious_io_errors": ("self",),
    "initialize": ("ctx",),
}
"""The parts of Numba that `_quick_cache` replaces and uses, and their parameters."""
