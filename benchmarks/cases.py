"""List the workloads: ``python benchmarks/cases.py``. They are defined in the package."""

from __future__ import annotations

from numba_embed.bench.cases import CASES, Case, Operands, select

__all__ = ["CASES", "Case", "Operands", "select"]

if __name__ == "__main__":
    for case in CASES:
        print(
            f"{case.name:20} V = {case.V:<8} D = {case.D:<5} N = {case.N:<8} {case.dtype}, "
            f"{case.index_dtype} indices, rows {case.rows}, grad {case.layout}"
        )
