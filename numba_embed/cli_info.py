"""``numba-embed info``: what a bug report needs to know about this machine and installation."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import warnings
from typing import Any

FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bf16",
    "avx512fp16",
    "neon",
    "fullfp16",
    "bf16",
    "sve",
)
"""CPU features that matter for adding rows and for converting float16, x86 first, then ARM."""


def add_parser(subparsers: Any) -> None:
    """Add the command to ``numba-embed``."""
    parser = subparsers.add_parser(
        "info",
        help="show versions, CPU, threading layer and kernel cache",
        description=(
            "Show versions, the CPU as the compiler sees it, the threading layer, the size of the "
            "thread pool, and the directory of compiled kernels. Compiles nothing."
        ),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return its exit code."""
    facts = collect()
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            print(f"{name:{width}}  {value}")
    return 0


def collect() -> dict[str, str | int]:
    """Return what `numba-embed info` shows, by label. Starts Numba's thread pool."""
    from numba_embed import runtime
    from numba_embed._version import __version__
    from numba_embed.machine import cache_sizes
    from numba_embed.warmup import cache_info

    cpu, features = _cpu()
    with warnings.catch_warnings():
        # A layer that does not load is reported below, in its own line.
        warnings.simplefilter("ignore")
        layer = runtime.threading_layer()
    directory, files = cache_info()
    return {
        "numba_embed": __version__,
        "numba": importlib.metadata.version("numba"),
        "llvmlite": importlib.metadata.version("llvmlite"),
        "numpy": importlib.metadata.version("numpy"),
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "CPU": cpu,
        "CPU features": ", ".join(features) or "none of interest",
        "CPU caches": ", ".join(f"{size >> 10} KiB" for size in cache_sizes()),
        "CPU count": os.cpu_count() or 1,
        "threading layer": layer or "none: every call runs on one thread",
        "thread pool": runtime.pool_size(),
        "cache directory": str(directory) if directory else "none: no directory is writable",
        "cache": f"warm, {files} files" if files else "cold",
    }


def _cpu() -> tuple[str, list[str]]:
    """Return the CPU that Numba compiles for, and which of FEATURES it may use there."""
    from numba_embed.kernels.bits import target_cpu, target_features

    enabled = target_features()
    return target_cpu(), [feature for feature in FEATURES if feature in enabled]
