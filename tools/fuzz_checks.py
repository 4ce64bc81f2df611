"""What every fuzzed call must keep to: how it may end, and what it must leave as it was."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from fuzz_inputs import Array, laid_out, wild
from hypothesis import strategies as st

import numba_embed as ne

outcomes: Counter[str] = Counter()


class Target:
    """An output inside a larger array, whose every byte is known."""

    def __init__(self, draw: Any, shape: tuple[int, int], dtype: Any) -> None:
        self.whole = np.full((shape[0] + 2, shape[1] + 2), 3, dtype)
        inner = slice(1, -1)
        view = self.whole[inner, inner]
        if draw(st.booleans()):
            self.whole = np.full((shape[1] + 2, shape[0] + 2), 3, dtype)
            view = self.whole[inner, inner].T
        if draw(st.booleans()) and draw(st.booleans()):
            view.flags.writeable = False
        self.view = view
        self.before = self.whole.tobytes()

    def unchanged(self) -> bool:
        """Whether no byte differs from the beginning."""
        return self.whole.tobytes() == self.before

    def frame_unchanged(self) -> bool:
        """Whether no byte around the output differs from the beginning."""
        copy = self.whole.copy()
        inner = copy[1:-1, 1:-1]
        inner[...] = 3
        return copy.tobytes() == self.before


@contextlib.contextmanager
def refusals(name: str, *targets: Target | None) -> Iterator[None]:
    """Let errors of the family pass, and count; a refused call must not have written anything."""
    try:
        yield
        outcomes[f"{name}: result"] += 1
    except (ne.EmbedError, MemoryError) as error:
        str(error)
        outcomes[f"{name}: {type(error).__name__}"] += 1
        assert all(target is None or target.unchanged() for target in targets)


def sprinkle(draw: Any, arguments: dict[str, Any]) -> bool:
    """Replace some arguments by anything; return whether all are as they were."""
    spoilt = draw(st.sets(st.sampled_from(sorted(arguments)), max_size=2) | st.just(set()))
    for name in spoilt:
        arguments[name] = draw(wild())
    return not spoilt


def spoil_indices(draw: Any, ids: Array, rows: int) -> tuple[Array, bool]:
    """Put an index out of range somewhere, or a float that is no integer; or do not."""
    if not ids.size or not draw(st.booleans()):
        return ids, True
    ids = np.array(ids)
    values: list[Any] = (
        [np.inf, np.nan, 0.5, -1] if ids.dtype.kind == "f" else [np.iinfo(ids.dtype).max]
    )
    if ids.dtype.kind == "i":
        values += [-1, np.iinfo(ids.dtype).min]
    value = draw(st.sampled_from(values))
    ids.flat[draw(st.integers(0, ids.size - 1))] = value
    return laid_out(draw, ids), 0 <= value < rows and value == np.floor(value)
