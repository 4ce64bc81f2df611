"""What a figure depends on besides the code: machine, versions, threading layer, threads."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from numba_embed.cli_info import collect

PACKAGES = (
    "numba-embed",
    "numba",
    "llvmlite",
    "numpy",
    "torch",
    "scipy",
    "jax",
    "jaxlib",
    "tensorflow",
    "tensorflow-cpu",
)


def describe() -> dict[str, Any]:
    """Return the facts under ``machine``, ``versions``, ``threading_layer`` and ``threads``."""
    from numba_embed.runtime import available_threads

    facts = collect()
    versions = {"python": platform.python_version(), "numba-embed": str(facts["numba_embed"])}
    for package in PACKAGES[1:]:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "machine": {
            "cpu": _cpu_model() or str(facts["CPU"]),
            "compiled_for": facts["CPU"],
            "features": facts["CPU features"],
            "cores": os.cpu_count() or 1,
            "caches": _caches(),
            "platform": facts["platform"],
        },
        "versions": versions,
        "threading_layer": facts["threading layer"],
        "threads": available_threads(),
    }


def _cpu_model() -> str | None:
    """Return the name that the CPU gives itself, where Linux shows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _caches() -> dict[str, str]:
    """Return the sizes of the first core's caches by level, where Linux shows them."""
    caches: dict[str, str] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = (
                (folder / name).read_text(encoding="utf-8").strip()
                for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if kind != "Instruction":
            caches[f"L{level}"] = size
    return caches


def memory_bytes() -> int:
    """Return the bytes of memory of the machine, or 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
