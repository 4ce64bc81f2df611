"""What the kernels need to know about the machine: the sizes of its caches."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import NamedTuple

from numba_embed.errors import EmbedValueError

VARIABLE = "NUMBA_EMBED_CACHE_SIZES"
"""Environment variable that replaces what the system says, as in ``32K,512K,32M``."""

_LEVELS = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LARGEST = 1 << 40


class CacheSizes(NamedTuple):
    """Bytes of the caches that one core uses: first level (data), second level, last level."""

    first: int
    second: int
    last: int

    @property
    def resident(self) -> int:
        """Bytes of a buffer that is to stay in the first-level cache beside what passes through."""
        return self.first // 2

    @property
    def outgrown(self) -> int:
        """Bytes from which on an output is written past the caches.

        Half of the last level, which others use as well; where that is shared by dozens of cores,
        no more than 64 MiB.
        """
        return max(self.second, min(self.last // 2, 64 << 20))


USUAL = CacheSizes(32 << 10, 1 << 20, 32 << 20)
"""Taken where the system does not say."""


@functools.cache
def cache_sizes() -> CacheSizes:
    """Return the caches' sizes, read once per process: from VARIABLE, else from the system.

    They choose among ways to the same bits, and nothing else.

    Raises
    ------
    EmbedValueError
        If the variable is set and is not three ascending sizes.
    """
    text = os.environ.get(VARIABLE)
    if text is not None:
        return _parsed(text)
    return _reported() or USUAL


def _parsed(text: str) -> CacheSizes:
    """Return the sizes that a text like ``32K,512K,32M`` names."""
    matches = [
        re.fullmatch(r"\s*(\d{1,13})([KMG]?)i?B?\s*", part, re.I) for part in text.split(",")
    ]
    sizes = [int(match[1]) * _UNITS[match[2].upper()] for match in matches if match]
    if len(sizes) != len(matches) or len(sizes) != 3 or not 0 < sizes[0] <= sizes[1] <= sizes[2]:
        raise EmbedValueError(
            f"{VARIABLE} must be the sizes of the first-level, second-level and last-level cache, "
            f"ascending, such as 32K,512K,32M; got {text!r}"
        )
    return CacheSizes(*(min(size, _LARGEST) for size in sizes))


def _reported() -> CacheSizes | None:
    """Return the sizes as the system tells them, or None where it does not."""
    found: dict[int, int] = {}
    for folder in _LEVELS.glob("index*"):
        try:
            kind, level, size = ((folder / name).read_text() for name in ("type", "level", "size"))
        except OSError:
            continue
        match = re.fullmatch(r"(\d{1,13})([KMG]?)\s*", size)
        if match and level.strip().isdigit() and kind.strip() in ("Data", "Unified"):
            found[int(level)] = int(match[1]) * _UNITS[match[2]]
    sizes = [found[level] for level in sorted(found)]
    if len(sizes) < 2 or sorted(sizes) != sizes or sizes[0] == 0:
        return None
    return CacheSizes(sizes[0], sizes[1], sizes[-1])
