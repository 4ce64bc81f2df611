"""How kernels are compiled and launched: jit options, cache fallback, thread pool safety.

Nothing here compiles a kernel or starts a thread pool at import.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba

JIT_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""Every kernel releases the GIL, and divides as IEEE says. No fastmath: it would reorder sums."""

jit: Any = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **JIT_OPTIONS)
"""Decorator of device functions, the callees of kernels. Their code is cached with the kernel's."""


jit_inline: Any = numba.njit(inline="always", **JIT_OPTIONS)
"""The same for small callees and those with one caller: a compilation each costs 0.2 s and more."""


class CacheWarning(UserWarning):
    """No cache directory is writable: kernels are compiled anew in every process."""


@functools.cache
def _source_digest() -> str:
    """Return a short digest of the kernels' sources.

    Numba's cache does not see a change in another file's callee, so the digest is part of a
    kernel's name: changed sources never meet an old cache entry.
    """
    digest = hashlib.sha256()
    folder = Path(__file__).parent / "kernels"
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def _warn_uncached() -> None:
    warnings.warn(
        "numba_embed: no cache directory is writable, kernels are compiled in every process "
        "(set NUMBA_CACHE_DIR to a writable directory)",
        CacheWarning,
        stacklevel=5,
    )


def _compile(function: Callable[..., Any], suffix: str, **options: Any) -> Any:
    """Return a dispatcher of a renamed clone of ``function``, cached on disk where possible.

    ``parallel`` is not part of Numba's cache key, the qualified name is: hence the suffix.
    """
    name = f"{function.__name__}_{suffix}_{_source_digest()}"
    assert isinstance(function, types.FunctionType)
    clone = types.FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    clone.__qualname__ = name
    clone.__module__ = function.__module__
    clone.__doc__ = function.__doc__
    try:
        return numba.njit(cache=True, **JIT_OPTIONS, **options)(clone)
    except RuntimeError:  # no locator found a writable directory
        _warn_uncached()
        return numba.njit(**JIT_OPTIONS, **options)(clone)


class Kernel:
    """One kernel in two compilations: parallel, and its serial twin for one thread.

    The source is the same; in the twin ``prange`` is a plain ``range``. Both give the same bits for
    the same ``threads`` argument, which cuts the work, and by the rule of order for any other.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self._function = function

    @functools.cached_property
    def serial(self) -> Any:
        """The serial twin: safe from any thread, after fork, under any threading layer."""
        return _compile(self._function, "serial")

    @functools.cached_property
    def parallel(self) -> Any:
        """The parallel kernel; to be called through `launch` only."""
        return _compile(self._function, "parallel", parallel=True)


_KERNELS: list[Kernel] = []


def kernel(function: Callable[..., Any]) -> Kernel:
    """Declare a kernel. Compilation waits for the first call."""
    _KERNELS.append(Kernel(function))
    return _KERNELS[-1]


def cache_info() -> tuple[Path | None, int]:
    """Return the directory of compiled kernels, and how many files of this version it holds.

    The directory is None where none is writable. Nothing is compiled.
    """
    folder = _KERNELS[0].serial.stats.cache_path if _KERNELS else None
    if folder is None:
        return None, 0
    files = Path(folder).glob(f"*_{_source_digest()}-*.nbc")
    return Path(folder), sum(1 for _ in files)


class _Pool:
    """What this process may do with Numba's thread pool."""

    def __init__(self) -> None:
        self.forked = False
        self.layer: str | None = None
        self.workqueue = threading.Lock()

    def after_fork(self) -> None:
        """In a child: a pool launched by the parent is dead here: entering it kills or hangs."""
        self.forked = self.forked or _launched()
        self.workqueue = threading.Lock()


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.after_fork)


def _launched() -> bool:
    try:
        numba.threading_layer()
    except ValueError:
        return False
    return True


def pool_size() -> int:
    """Return the size of Numba's thread pool, without launching it."""
    return int(numba.config.NUMBA_NUM_THREADS)


def threading_layer() -> str | None:
    """Return the name of the threading layer in use, launching the pool if need be.

    Returns None in a forked child whose parent had launched the pool, and where no layer loads:
    there every call runs the serial twins.
    """
    if _pool.forked:
        return None
    if _pool.layer is None:
        try:
            numba.get_num_threads()  # launches the pool
            _pool.layer = numba.threading_layer()
        except ValueError as error:
            _warn_no_layer(str(error).splitlines()[0])
            return None
    return _pool.layer


@functools.cache
def _warn_no_layer(reason: str) -> None:
    warnings.warn(
        f"numba_embed: no threading layer loads ({reason}); calls run on one thread",
        RuntimeWarning,
        stacklevel=4,
    )


def available_threads() -> int:
    """Return how many threads Numba would use for a call from here (launches the pool)."""
    return 1 if threading_layer() is None else int(numba.get_num_threads())


@contextmanager
def _thread_mask(threads: int) -> Iterator[None]:
    """Raise this thread's mask to ``threads`` where it is lower, and restore it afterwards."""
    mask = numba.get_num_threads()
    if threads <= mask:
        yield
        return
    numba.set_num_threads(threads)
    try:
        yield
    finally:
        numba.set_num_threads(mask)


def launch(kernel: Kernel, threads: int, *args: Any) -> Any:
    """Run ``kernel`` with ``threads`` pieces of work, in parallel where that is safe.

    The serial twin runs instead for one thread, after a fork, and on the workqueue layer while
    another Python thread is inside it (a second one entering aborts the process).
    """
    if threads == 1:
        return kernel.serial(*args)
    layer = threading_layer()
    if layer is None:
        return kernel.serial(*args)
    if layer != "workqueue":
        with _thread_mask(threads):
            return kernel.parallel(*args)
    if not _pool.workqueue.acquire(blocking=False):
        return kernel.serial(*args)
    try:
        with _thread_mask(threads):
            return kernel.parallel(*args)
    finally:
        _pool.workqueue.release()
