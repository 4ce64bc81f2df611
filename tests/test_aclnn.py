"""Phase one of the two-phase call: a status for every row of the contract."""

from __future__ import annotations

import doctest
import itertools
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from aclnn_calls import INNER, INVALID, MISSING, OK, SUPPORTED, VALID, plan, refuse
from reference import FLOATS, Array, assert_same_bits

from numba_embed import aclnn
from numba_embed.aclnn import Product, Status

UNSUPPORTED = [Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE]
NINE = ["int8", "int16", "int32", "int64", "uint8", "bool", "float16", "float32", "float64"]
OTHER_INDICES = ["uint16", "uint32", "uint64", "complex64", "O", "i4,f4", "U3", "M8[s]"]


def test_published_names_and_values() -> None:
    assert {status.name: status.value for status in Status} == {
        "ACLNN_SUCCESS": 0,
        "ACLNN_ERR_PARAM_NULLPTR": 161001,
        "ACLNN_ERR_PARAM_INVALID": 161002,
        "ACLNN_ERR_RUNTIME_ERROR": 361001,
        "ACLNN_ERR_INNER": 561000,
    }
    assert set(aclnn.__all__) <= set(dir(aclnn))
    assert len(Product) == len(SUPPORTED) + len(UNSUPPORTED)


def test_the_example_of_the_docstring() -> None:
    result = doctest.testmod(aclnn)
    assert result.attempted >= 8
    assert result.failed == 0


@pytest.mark.parametrize("product", [*SUPPORTED, "atlas-a2"])
def test_the_published_example(product: Any) -> None:
    for out_dtype in ("float32", "float16"):
        out = np.full((4, 3), np.nan, out_dtype)
        status, size, executor = plan(out=out, product=product)
        assert status is OK
        assert np.isnan(out).all()  # phase one writes nothing
        workspace = np.full(size, 0xFF, np.uint8)
        assert aclnn.embedding_dense_backward(workspace, size, executor) is OK
        want = [[0, 0, 0], [1, 2, 3], [4, 5, 6], [0, 0, 0]]
        assert_same_bits(out, np.array(want, out_dtype))


@pytest.mark.parametrize("product", Product)
@pytest.mark.parametrize("name", ["grad", "indices", "out"])
def test_a_missing_tensor(product: Product, name: str) -> None:
    refuse(name, status=MISSING, product=product, **{name: None})


@pytest.mark.parametrize("product", Product)
def test_dtypes(product: Product) -> None:
    """All three lists at once, in both byte orders where there are two."""
    floats = [*FLOATS.values(), *map(np.dtype, ("int32", "bool", "complex64", "longdouble", "O"))]
    accepted = {np.dtype(np.float16), np.dtype(np.float32)}
    if product is not Product.ATLAS_TRAINING:
        accepted.add(np.dtype(ml_dtypes.bfloat16))
    for grad, out, index in itertools.product(floats, floats, [*NINE, *OTHER_INDICES]):
        wanted = product in SUPPORTED and {grad, out} <= accepted and index in NINE
        operands = {
            "grad": np.empty((2, 3), grad),
            "indices": np.empty(2, index),
            "out": np.empty((4, 3), out),
        }
        assert (plan(**operands, product=product)[0] is OK) == wanted, (grad, out, index)
        if not wanted:
            assert product.value in aclnn.get_recent_err_msg()
            assert aclnn.get_recent_err_msg().isprintable()
    refuse(product.value, indices=np.zeros(2, ml_dtypes.bfloat16), product=product)


def test_a_refused_dtype_is_named() -> None:
    refuse("grad", "float64", "float16, float32, bfloat16", grad=np.ones((2, 3)))
    refuse("indices", "uint32", "int8", indices=np.array([1, 2], np.uint32))
    refuse("out", "float64", "Atlas A2", out=np.ones((4, 3)))
    refuse("out", "bfloat16", out=VALID["out"].astype("bfloat16"), product="ATLAS_TRAINING")


@pytest.mark.parametrize("product", SUPPORTED)
def test_byte_orders_and_layouts_are_no_matter(product: Product) -> None:
    wide = np.zeros((4, 6), ">f4")
    for change in (
        {"grad": VALID["grad"].astype(">f4")},
        {"indices": np.array([9, 1, 9, 2], ">i8")[1::2]},
        {"grad": np.asfortranarray(VALID["grad"])[::-1, ::-1]},
        {"grad": np.broadcast_to(np.float32(1), (2, 3))},
        {"out": wide[:, ::-2]},
    ):
        assert plan(product=product, **change)[0] is OK


@pytest.mark.parametrize("product", SUPPORTED)
def test_shapes(product: Product) -> None:
    def tried(grad: tuple[int, ...], indices: tuple[int, ...], out: tuple[int, ...]) -> Status:
        return plan(
            grad=np.empty(grad, np.float32),
            indices=np.empty(indices, np.int32),
            out=np.empty(out, np.float32),
            product=product,
        )[0]

    assert tried((2, 2, 7, 3), (4, 7), (4, 3)) is OK
    assert tried((1,) * 7 + (3,), (1,) * 8, (4, 3)) is OK
    assert tried((3,), (), (4, 3)) is OK
    assert tried((0, 3), (0,), (4, 3)) is OK
    assert tried((2, 0), (2,), (4, 0)) is OK
    assert tried((1,) * 8 + (3,), (1,) * 8, (4, 3)) is INVALID
    assert tried((1, 3), (1,) * 9, (4, 3)) is INVALID
    for grad, indices in (((3, 3), (2,)), ((2, 3), (2, 3)), ((2,), (2,)), ((), ()), ((0, 3), (1,))):
        assert tried(grad, indices, (4, 3)) is INVALID
        assert f"{grad}" in aclnn.get_recent_err_msg()
    for out in ((4, 2), (3, 3), (5, 3), (12,), (4, 3, 1), (3, 4), ()):
        assert tried((2, 3), (2,), out) is INVALID
        assert f"{out}" in aclnn.get_recent_err_msg()


@pytest.mark.parametrize("product", SUPPORTED)
def test_attributes(product: Product) -> None:
    for bad in (-1, 3, 2**63, 4.0, True, None, "4"):
        refuse("num_weights" if bad != 3 else "out", product=product, num_weights=bad)
    for bad in (0.0, True, "0"):
        refuse("padding_idx", product=product, padding_idx=bad)
    for bad in (2, 0.5, None, "no"):
        refuse("scale_grad_by_freq", product=product, scale_grad_by_freq=bad)
    for bad in (0, -1, 2**64, 1.5, True, "2"):
        refuse("core_num", product=product, core_num=bad)
    for good in (None, -1, 4, 2**70, np.int8(3)):
        assert plan(product=product, padding_idx=good)[0] is OK
    empty = {"grad": np.empty((0, 3), np.float32), "indices": np.empty(0, np.int8)}
    assert plan(product=product, num_weights=0, out=np.empty((0, 3), "f"), **empty)[0] is OK


def test_products_that_do_not_exist() -> None:
    refuse("product", "ATLAS_A4", product="ATLAS_A4")
    refuse("product", product=2)
    refuse("product", product=None)
    for product in UNSUPPORTED:
        refuse(product.value, "does not support", product=product)


def test_core_numbers() -> None:
    defaults = {Product.ATLAS_TRAINING: 32, Product.ATLAS_A2: 48, Product.ATLAS_A3: 48}
    for product, cores in defaults.items():
        executor = plan(product=product, core_num=None)[2]
        assert executor is not None
        assert executor.plan.core_num == cores
    refuse("core_num", "Ascend 950", product=Product.ASCEND_950, core_num=None)
    for product in SUPPORTED:
        executor = plan(product=product, core_num=2**40)[2]
        assert executor is not None
        assert executor.plan.core_num == 2**40


def test_the_limit_of_the_training_series() -> None:
    def tried(v: int, d: int, cores: int | None, dtype: str = "int32", **changes: Any) -> Status:
        grad, indices = np.zeros((1, d), np.float16), np.zeros(1, dtype)
        operands = {"grad": grad, "indices": indices, "out": np.empty((v, d), np.float16)}
        settings = {"product": Product.ATLAS_TRAINING, "scale_grad_by_freq": True, **changes}
        return plan(**operands, num_weights=v, core_num=cores, **settings)[0]

    # (180192 - countsSize * 4) / 36 and (180192 - countsSize * 8) / 20, with countsSize 1 or 32.
    for dtype, cores, largest in (
        ("int32", None, 5005),
        ("uint8", None, 5005),
        ("float64", None, 5005),
        ("int64", None, 9009),
        ("int32", 1, 5001),
        ("int64", 1, 8996),
    ):
        assert tried(32, largest, cores, dtype) is OK
        assert tried(32, largest + 1, cores, dtype) is INVALID
        assert f"at most {largest}" in aclnn.get_recent_err_msg()
        assert tried(32, largest + 1, cores, dtype, scale_grad_by_freq=False) is OK
        for product in SUPPORTED[1:]:
            assert tried(32, largest + 1, cores or 48, dtype, product=product) is OK
    # The bound is strict: 180192 - 12 * 4 is 36 * 5004. And more cores may be worse.
    assert [tried(12, d, 1) for d in (5003, 5004)] == [OK, INVALID]
    assert [tried(100, 5003, cores) for cores in (50, 64, 100)] == [OK, INVALID, OK]
    # 45048 * 4 is 180192: nothing is left.
    assert [tried(45047, 0, 1), tried(45048, 0, 1), tried(45048, 1, 2)] == [OK, INVALID, OK]


def test_outputs_whose_memory_is_not_free() -> None:
    refuse("out", "read-only", out=np.broadcast_to(np.float32(0), (4, 3)))
    row = np.zeros(3, np.float32)
    refuse("out", "itself", out=np.lib.stride_tricks.as_strided(row, (4, 3), (0, 4)))
    shared = np.zeros((6, 3), np.float32)
    refuse("out", "grad", grad=shared[:2], out=shared[1:5])
    numbers = np.zeros(12, np.int32)
    refuse("out", "indices", indices=numbers[:2], out=numbers.view(np.float32).reshape(4, 3))
    columns = np.zeros((4, 6), np.float32)
    assert plan(grad=columns[:2, ::2], out=columns[:, 1::2])[0] is OK
    refuse("out", out=[[0.0] * 3] * 4)


def test_what_is_no_array() -> None:
    refuse("grad", grad=object())
    refuse("grad", "masked", grad=np.ma.ones((2, 3), np.float32))
    refuse("indices", indices=[[0], [1, 2]])
    refuse("indices", "str", indices="12")
    assert plan(indices=[1, 2])[0] is OK


def test_phase_one_never_reads(run_python: Callable[..., Any]) -> None:
    """Memory that must not be read kills the process that reads it."""
    if sys.platform == "win32":
        pytest.skip("Windows has no mmap with protection")
    run_python(
        "import mmap, numpy as np\n"
        "from numba_embed import aclnn\n"
        "def closed(shape, dtype):\n"
        "    pages = mmap.mmap(-1, 1 << 20, prot=0)\n"
        "    return np.frombuffer(pages, dtype, np.prod(shape)).reshape(shape)\n"
        "grad, indices = closed((5, 7, 3), 'f4'), closed((35,), 'i8')\n"
        "for product in ('ATLAS_TRAINING', 'ATLAS_A2'):\n"
        "    status, _, _ = aclnn.embedding_dense_backward_get_workspace_size(\n"
        "        grad, indices, 9, 0, True, np.empty((9, 3), 'f4'), product=product)\n"
        "    assert status == 0, aclnn.get_recent_err_msg()\n"
    )


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), UnprintableError()])
def test_internal_failures(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(aclnn, "plan_dense_backward", fail)
    refuse(type(error).__name__, status=INNER)


def test_operands_that_fail_by_themselves() -> None:
    class Broken:
        def __array__(self, *arguments: Any, **options: Any) -> Array:
            raise KeyError("lost")

    refuse("grad", "KeyError", "lost", grad=Broken())
