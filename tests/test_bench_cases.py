"""The benchmark's workloads, the check of their results, and the limit that memory sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from numba_embed.bench.cases import CASES, Case, Operands, select
from numba_embed.bench.reference import Reference
from numba_embed.bench.roofline import Bandwidth, Roofline, Traffic, traffic

BY_NAME = {case.name: case for case in CASES}
SMALL = [case.small() for case in CASES]


def ids(case: Case) -> str:
    return case.name


def expected(case: Case, operands: Operands, base: float = 0.0) -> Any:
    """Add row after row, in float64; round once."""
    out = np.full((case.V, case.D), base)
    grad = operands.grad.astype(np.float64)
    counts = np.zeros(case.V)
    for row, term in zip(operands.indices.tolist(), grad, strict=True):
        if row != case.padding_idx:
            out[row] += term
            counts[row] += 1
    if case.scale:
        out /= np.maximum(counts, 1)[:, None]
    return out.astype(case.numpy_dtype)


class TestCases:
    def test_the_measured_workloads_have_their_sizes(self) -> None:
        sizes = {
            "lm": (50257, 768, 8192),
            "rec": (10**6, 64, 65536),
            "w2v": (10**5, 128, 262144),
            "small vocabulary": (1000, 64, 10**6),
            "one column": (10**5, 1, 10**6),
            "hot row": (10**5, 128, 262144),
            "tiny": (100, 16, 32),
            "positions": (512, 768, 65536),
            "huge and sparse": (5 * 10**6, 64, 4096),
        }
        for name, size in sizes.items():
            case = BY_NAME[name]
            assert (case.V, case.D, case.N) == size

    def test_every_kind_of_case_is_there(self) -> None:
        assert len(BY_NAME) == len(CASES)
        for base in ("lm", "rec", "w2v"):
            for dtype in ("bfloat16", "float16"):
                twin = BY_NAME[f"{base} {dtype}"]
                assert twin == replace(BY_NAME[base], name=twin.name, dtype=dtype)
        assert any(case.index_dtype == "int32" for case in CASES)
        assert any(case.scale for case in CASES)
        assert any(case.accumulate for case in CASES)
        assert any(case.steps for case in CASES)
        assert any(case.out_offset % 64 for case in CASES)
        assert {case.layout for case in CASES} == {"contiguous", "strided", "broadcast"}
        assert {100, 300, 8960} <= {case.D for case in CASES}
        assert {"padding", "one", "hot", "zipf"} <= {case.rows for case in CASES}

    def test_every_neighbour_is_a_case(self) -> None:
        for case in CASES:
            assert case.neighbour is None or case.neighbour in BY_NAME

    @pytest.mark.parametrize("case", SMALL, ids=ids)
    def test_operands_are_what_the_case_says(self, case: Case) -> None:
        grad, indices, kwargs, make_out = case.make()
        assert grad.shape == (case.N, case.D)
        assert grad.dtype == case.numpy_dtype
        assert indices.shape == (case.N,)
        assert indices.dtype == case.index_dtype
        assert 0 <= indices.min() <= indices.max() < case.V
        assert kwargs.get("padding_idx") == case.padding_idx
        assert kwargs.get("scale_grad_by_freq", False) == case.scale
        assert grad.flags.c_contiguous == (case.layout == "contiguous")
        out = make_out()
        assert out.shape == (case.V, case.D)
        assert out.dtype == grad.dtype
        assert out.ctypes.data % 64 == case.out_offset
        assert not out.any()

    @pytest.mark.parametrize("case", SMALL, ids=ids)
    def test_the_values_are_the_same_every_time(self, case: Case) -> None:
        once, again = case.make(), case.make()
        assert once.grad.tobytes() == again.grad.tobytes()
        assert once.indices.tobytes() == again.indices.tobytes()

    def test_twins_look_up_the_same_rows(self) -> None:
        first = BY_NAME["w2v"].small().make()
        for name in ("w2v float16", "int32 indices", "strided grad", "accumulate"):
            assert np.array_equal(BY_NAME[name].small().make().indices, first.indices)

    def test_rows_are_spread_as_they_are_called(self) -> None:
        kinds = {
            kind: Case(kind, V=50, D=1, N=20000, rows=kind).make().indices
            for kind in ("uniform", "zipf", "hot", "cycle", "one", "padding")
        }
        counts = {kind: np.bincount(found, minlength=50) for kind, found in kinds.items()}
        assert counts["uniform"].min() > 300
        assert abs(counts["hot"].max() - 10200) < 300
        zipf = np.sort(counts["zipf"])[::-1]
        assert zipf[0] / zipf[9] == pytest.approx(10**1.1, rel=0.2)
        assert np.argmax(counts["zipf"]) != 0, "ranks are permuted"
        assert counts["cycle"].tolist() == [400] * 50
        assert counts["one"][16] == counts["padding"][16] == 20000

    def test_a_strided_gradient_keeps_its_stride_when_small(self) -> None:
        assert BY_NAME["strided grad"].small().make().grad.strides[1] == 8
        assert BY_NAME["broadcast grad"].small().make().grad.strides[0] == 0
        assert BY_NAME["100 columns"].small().D % 16 != 0

    def test_cases_are_selected_by_name_or_part_of_it(self) -> None:
        assert select() == CASES
        assert [case.name for case in select("lm")] == ["lm"]
        assert {case.name for case in select("FLOAT16")} == {
            f"{base} {dtype}" for base in ("lm", "rec", "w2v") for dtype in ("float16", "bfloat16")
        }
        assert [case.name for case in select("tiny, rec ")] == ["rec", "tiny"]
        assert select("nothing like it") == ()
        assert select(",") == ()


class TestReference:
    @pytest.mark.parametrize("case", SMALL, ids=ids)
    def test_right_results_pass(self, case: Case) -> None:
        operands = case.make()
        reference = Reference(case, operands)
        for base in (0.0, 1.0):
            out = expected(case, operands, base if case.accumulate else 0.0)
            found = reference.problem(out, exact=True, base=base if case.accumulate else 0.0)
            assert found is None

    @pytest.mark.parametrize("exact", [True, False])
    @pytest.mark.parametrize("name", ["w2v", "hot row", "scaled by frequency", "w2v float16"])
    def test_a_lost_contribution_is_found(self, name: str, exact: bool) -> None:
        case = BY_NAME[name].small()
        operands = case.make()
        lost = operands.grad.copy()
        lost[case.N // 2] = 0
        out = expected(case, operands._replace(grad=lost))
        assert "expected" in (Reference(case, operands).problem(out, exact=exact) or "")

    def test_a_sum_that_was_rounded_twice_is_not_exact(self) -> None:
        case = replace(BY_NAME["w2v"].small(), V=3)
        operands = case.make()
        out = expected(case, operands)
        rough = np.zeros_like(out)
        np.add.at(rough, operands.indices, operands.grad)
        reference = Reference(case, operands)
        assert reference.problem(rough, exact=False) is None
        assert reference.problem(rough, exact=True) is not None

    @pytest.mark.parametrize("exact", [True, False])
    def test_other_faults_are_found(self, exact: bool) -> None:
        case = Case("few", V=9, D=3, N=4, rows="one")
        operands = case.make()
        reference = Reference(case, operands)
        right = expected(case, operands)
        assert reference.problem(right, exact=exact) is None

        def fault(row: int, value: float) -> Any:
            wrong = right.copy()
            wrong[row, 1] = value
            return reference.problem(wrong, exact=exact)

        assert "nan" in fault(3, np.nan)
        assert "row 5 should hold 0.0" in fault(5, 1e-30)
        assert "row 5 should hold 0.0" in fault(5, np.nan)
        assert "shape" in (reference.problem(right[:8], exact=exact) or "")
        assert "dtype" in (reference.problem(right.astype(np.float64), exact=exact) or "")

    def test_a_written_padding_row_is_found(self) -> None:
        case = BY_NAME["all padding"].small()
        operands = case.make()
        out = np.zeros((case.V, case.D), np.float32)
        assert Reference(case, operands).problem(out, exact=True) is None
        np.add.at(out, operands.indices, operands.grad)
        found = Reference(case, operands).problem(out, exact=True)
        assert found == f"row {case.padding_idx} should hold 0.0: nothing was added"


class TestRoofline:
    def test_the_limit_is_bytes_over_bandwidth(self) -> None:
        assert Traffic(600, 50).limit(Bandwidth(read=300.0, store=100.0)) == 2.5

    @pytest.mark.parametrize(
        ("changes", "read", "written"),
        [
            ({}, 5 * 12 * 4 + 5 * 8, 7 * 12 * 4),
            ({"index_dtype": "int32"}, 5 * 12 * 4 + 5 * 4, 7 * 12 * 4),
            ({"dtype": "float16"}, 5 * 12 * 2 + 5 * 8, 7 * 12 * 2),
            ({"layout": "broadcast"}, 12 * 4 + 5 * 8, 7 * 12 * 4),
            # Every second column: all bytes from the first to the last one.
            ({"layout": "strided"}, 5 * 23 * 4 + 5 * 8, 7 * 12 * 4),
            # The gradient of the padding row is nobody's to read.
            ({"rows": "padding"}, 5 * 8, 7 * 12 * 4),
            # Only the row that is added to is read and written.
            ({"rows": "one", "accumulate": True}, 5 * 12 * 4 + 5 * 8 + 12 * 4, 12 * 4),
        ],
    )
    def test_bytes_to_move(self, changes: dict[str, Any], read: int, written: int) -> None:
        case = Case("some", V=7, D=12, N=5, **changes)
        operands = case.make()
        reference = Reference(case, operands)
        moved = traffic(case, operands, reference.rows.size, int(reference.counts.sum()))
        assert moved == (read, written)

    def test_bandwidth_is_measured_over_the_whole_buffer(self) -> None:
        roofline = Roofline(1 << 16)
        for threads in (1, 2):
            roofline._words[:] = 7
            found = roofline.measure(threads)  # raises unless it reads what it has written
            assert min(found) > 0
            assert (roofline._words == 1).all()

    def test_a_store_that_does_not_arrive_is_noticed(self) -> None:
        roofline = Roofline(1 << 12)
        roofline._pattern[:] = 2
        with pytest.raises(AssertionError, match="512 words"):
            roofline.measure(1)
