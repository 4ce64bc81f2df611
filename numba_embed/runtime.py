"""How kernels are compiled and launched: jit options, cache fallback, thread pool safety.

Nothing here compiles a kernel or starts a thread pool at import.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numba.extending

from numba_embed import forked
from numba_embed.loading import callback, dispatcher

JIT_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""Every kernel releases the GIL, and divides as IEEE says. No fastmath: it would reorder sums."""

jit: Any = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **JIT_OPTIONS)
"""Decorator of device functions, the callees of kernels. Their code is cached with the kernel's."""


jit_inline: Any = numba.njit(inline="always", **JIT_OPTIONS)
"""The same for small callees and those with one caller: a compilation each costs 0.2 s and more."""

intrinsic: Any = numba.extending.intrinsic
"""Decorator of what is written for LLVM directly."""


class CacheWarning(UserWarning):
    """No cache directory is writable: kernels are compiled anew in every process."""


@functools.cache
def source_digest() -> str:
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


def _renamed(function: Callable[..., Any], suffix: str) -> Callable[..., Any]:
    """Return a clone of a function whose name says the build and the kernels' sources.

    Neither a callee's source nor ``parallel`` is part of Numba's cache key, the name is.
    """
    name = f"{function.__name__}_{suffix}_{source_digest()}"
    assert isinstance(function, types.FunctionType)
    clone = types.FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    clone.__qualname__ = name
    clone.__module__ = function.__module__
    clone.__doc__ = function.__doc__
    return clone


def _with_cache(compile_: Callable[[bool], Any]) -> Any:
    """Return ``compile_(cache)``, with a cache where any directory is writable."""
    if numba.config.DISABLE_JIT:
        raise RuntimeError(
            "numba_embed's kernels are machine code only, and NUMBA_DISABLE_JIT is set: unset it"
        )
    try:
        return compile_(True)
    except RuntimeError:  # no locator found a writable directory
        _warn_uncached()
        return compile_(False)


def _compile(function: Callable[..., Any], suffix: str, **options: Any) -> Any:
    """Return a dispatcher of a function, cached on disk where possible."""
    clone = _renamed(function, suffix)
    return _with_cache(lambda cache: dispatcher(clone, cache, **JIT_OPTIONS, **options))


def compile_callback(function: Callable[..., Any], signature: Any) -> Any:
    """Return the C function of a Python function, with an ``address``, cached where possible."""
    clone = _renamed(function, "c")
    options = {"error_model": JIT_OPTIONS["error_model"]}
    return _with_cache(lambda cache: callback(clone, signature, cache, **options))


class cached:
    """Decorator of a serial kernel that is compiled, and cached on disk, at its first call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    @functools.cached_property
    def _compiled(self) -> Any:
        return _compile(self._function, "serial")

    def __call__(self, *args: Any) -> Any:
        """Run the compiled kernel."""
        return self._compiled(*args)


class Launcher:
    """Decorator of a function with a parallel loop: compiled parallel, and as a serial twin.

    The source is the same; in the twin ``prange`` is a plain ``range``. Compiled when first needed.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self._function = function

    @functools.cached_property
    def serial(self) -> Any:
        """The serial twin: safe from any thread, after fork, under any threading layer."""
        return _compile(self._function, "serial")

    @functools.cached_property
    def entry(self) -> Any:
        """The serial twin for arguments that are all int.

        Numba's dispatcher, which looks at the types of its arguments first, takes as long again.
        """
        arguments = len(inspect.signature(self._function).parameters)
        return self.serial.compile((numba.types.int64,) * arguments)

    @functools.cached_property
    def parallel(self) -> Any:
        """The parallel one; to be called through `launch` only."""
        return _compile(self._function, "parallel", parallel=True)


class _Pool:
    """What this process may do with Numba's thread pool."""

    def __init__(self) -> None:
        self.layer: str | None = None
        self.workqueue = threading.Lock()

    def after_fork(self) -> None:
        """In a child: whoever held the lock is not here."""
        self.workqueue = threading.Lock()


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.after_fork)


def pool_size() -> int:
    """Return the size of Numba's thread pool, without launching it."""
    return int(numba.config.NUMBA_NUM_THREADS)


def threading_layer() -> str | None:
    """Return the name of the threading layer in use, launching the pool if need be.

    Returns None in a forked child whose parent had launched the pool, and where no layer loads:
    there every call runs the serial twins.
    """
    if forked.dead_pool:
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


def threads_for(nbytes: int, thread_bytes: int) -> int:
    """Return how many threads to use where each is worth ``thread_bytes`` bytes to be moved."""
    threads = max(1, nbytes // thread_bytes)
    return threads if threads == 1 else min(threads, available_threads())


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


def launch(kernel: Launcher, threads: int, *args: Any) -> Any:
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
