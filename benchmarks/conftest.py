"""Set-up of the pytest-benchmark files: ``pytest benchmarks``, narrowed with ``-k``."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest

from numba_embed.bench.cases import CASES, Case, Operands
from numba_embed.bench.reference import Reference


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--small", action="store_true", help="run every case in a size that takes no time"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("benchmark") and find_spec("pytest_benchmark") is None:
        raise pytest.UsageError(
            "the benchmarks need pytest-benchmark: pip install 'numba-embed[bench]'"
        )


class Prepared(NamedTuple):
    case: Case
    operands: Operands
    reference: Reference


@lru_cache(maxsize=1)
def _prepare(case: Case) -> Prepared:
    operands = case.make()
    return Prepared(case, operands, Reference(case, operands))


@pytest.fixture(params=CASES, ids=lambda case: case.name.replace(" ", "-"), scope="module")
def prepared(request: pytest.FixtureRequest) -> Prepared:
    """Give a case with its operands and what is expected of them."""
    case: Case = request.param
    if case.dtype == "bfloat16" and find_spec("ml_dtypes") is None:
        pytest.skip("bfloat16 arrays need ml_dtypes")
    return _prepare(case.small() if request.config.getoption("--small") else case)


@pytest.fixture
def timer(benchmark: Any, prepared: Prepared) -> Any:
    """Give pytest-benchmark's timer, its results grouped by case."""
    benchmark.group = prepared.case.name
    benchmark.extra_info.update(
        V=prepared.case.V, D=prepared.case.D, N=prepared.case.N, dtype=prepared.case.dtype
    )
    return benchmark
