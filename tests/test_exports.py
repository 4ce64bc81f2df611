"""The names at the top level: all there, and the seldom used ones imported on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import numba_embed
from numba_embed.simulate import simulate_cores
from numba_embed.simulation import CoreSimulation


def test_every_name_is_there() -> None:
    for name in numba_embed.__all__:
        assert getattr(numba_embed, name) is not None
    assert set(numba_embed.__all__) <= set(dir(numba_embed))
    assert numba_embed.simulate_cores is simulate_cores
    assert numba_embed.CoreSimulation is CoreSimulation
    with pytest.raises(AttributeError, match="'numba_embed' has no attribute 'simulate_core'"):
        numba_embed.simulate_core  # noqa: B018


def test_what_is_not_needed_is_not_imported(run_python: Callable[..., Any]) -> None:
    run_python(
        "import sys, numba_embed\n"
        "def loaded():\n"
        "    names = (name for name in sys.modules if name.startswith('numba_embed.'))\n"
        "    return {name.partition('.')[2] for name in names}\n"
        "assert not {'numba', 'numpy'} & set(sys.modules)\n"
        "assert loaded() == {'_version', 'forked'}, loaded()\n"
        "assert {'simulate_cores', 'CoreSimulation'} <= set(dir(numba_embed))\n"
        "numba_embed.embedding_dense_backward([[1.0]], [0], 1)\n"
        "seldom = {'simulate', 'simulation', 'products', 'aclnn', 'larger', 'row_backward'}\n"
        "assert not loaded() & seldom, loaded()\n"
        "found = numba_embed.simulate_cores([0, 1, 1], 4, 2, 8)\n"
        "assert found.lookups_per_core.tolist() == [3, 0]\n"
    )
