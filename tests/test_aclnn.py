"""Phase one of the two-phase call: a status for every row of the contract, and the advisories."""

from __future__ import annotations

import doctest
import itertools
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference import FLOATS, Array, assert_same_bits

from numba_embed import aclnn
from numba_embed.aclnn import Product, Status, SysParamOpt

OK, MISSING, INVALID = (
    Status.ACLNN_SUCCESS,
    Status.ACLNN_ERR_PARAM_NULLPTR,
    Status.ACLNN_ERR_PARAM_INVALID,
)
SUPPORTED = [Product.ATLAS_TRAINING, Product.ATLAS_A2, Product.ATLAS_A3, Product.ASCEND_950]
UNSUPPORTED = [Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE]
NINE = ["int8", "int16", "int32", "int64", "uint8", "bool", "float16", "float32", "float64"]
OTHER_INDICES = ["uint16", "uint32", "uint64", "complex64", "O", "i4,f4", "U3", "M8[s]"]
DETERMINISTIC = SysParamOpt.DETERMINISTIC
LIMIT_LOOKUPS, LIMIT = 2139095040, 2147483647
VALID: dict[str, Any] = {
    "grad": np.float32([[1, 2, 3], [4, 5, 6]]),
    "indices": np.array([1, 2], np.int32),
    "num_weights": 4,
    "padding_idx": 0,
    "scale_grad_by_freq": False,
    "out": np.full((4, 3), np.nan, np.float32),
    "core_num": 40,
}


def plan(**changes: Any) -> tuple[Status, int, aclnn.OpExecutor | None]:
    """Phase one on a small valid call, but for the changes; a failure gives nothing but a text."""
    status, size, executor = aclnn.embedding_dense_backward_get_workspace_size(
        **{**VALID, "out": np.full((4, 3), np.nan, np.float32), **changes}
    )
    assert isinstance(status, Status)
    if status is OK:
        assert isinstance(executor, aclnn.OpExecutor)
        assert size == executor.plan.workspace_nbytes > 0
    else:
        assert (size, executor) == (0, None)
        assert aclnn.get_recent_err_msg()
    return status, size, executor


def refuse(*parts: object, status: Status = INVALID, **changes: Any) -> None:
    """Expect a refusal whose text names the parts."""
    assert plan(**changes)[0] is status
    for part in parts:
        assert str(part) in aclnn.get_recent_err_msg()


def in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a fresh thread and return what it returned."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


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


# --- advisories -----------------------------------------------------------------------------------


def advised(n: int, v: int, product: Product = Product.ATLAS_A2, **changes: Any) -> list[str]:
    """Run phase one at these sizes, without the memory; return what it warned of."""
    operands = {
        "grad": np.broadcast_to(np.float32(0), (n, 0)),
        "indices": np.broadcast_to(np.int32(0), (n,)),
        "out": np.empty((v, 0), np.float32),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        status = plan(**{**operands, "num_weights": v, "product": product, **changes})[0]
    assert status is OK or changes
    for warning in caught:
        assert warning.category is aclnn.AdvisoryWarning
        assert warning.filename == __file__  # it points at the caller
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("product", SUPPORTED)
@pytest.mark.parametrize("deterministic", [0, 1])
def test_advisories_at_each_limit_and_above(product: Product, deterministic: int) -> None:
    warned = product in (Product.ATLAS_A2, Product.ATLAS_A3)
    precision = ["not guarantee high precision"]
    if deterministic:
        precision.append("not guarantee high performance in deterministic mode")
    fast = ["not guarantee high performance"]
    assert aclnn.ctx_set_sys_param_opt(DETERMINISTIC, deterministic) is OK
    try:
        for n, v, endings in (
            (LIMIT_LOOKUPS, 4, []),
            (LIMIT_LOOKUPS, LIMIT, []),
            (LIMIT_LOOKUPS + 1, 4, fast),
            (LIMIT, LIMIT, fast),
            (LIMIT + 1, 4, precision + fast),
            (4, LIMIT, []),
            (4, LIMIT + 1, precision),
            (LIMIT + 1, LIMIT + 1, precision + fast),
        ):
            texts = advised(n, v, product)
            assert len(texts) == (len(endings) if warned else 0)
            for text, ending in zip(texts, endings, strict=False):
                assert text.endswith(ending)
                assert product.value in text
    finally:
        aclnn.ctx_set_sys_param_opt(DETERMINISTIC, 0)


def test_advisories_of_a_gradient_with_columns() -> None:
    n = LIMIT + 1
    grad, out = np.broadcast_to(np.float32(0), (2, n // 2, 64)), np.empty((4, 64), np.float32)
    assert len(advised(n, 4, grad=grad, out=out)) == 2


def test_sizes_are_advised_on_before_the_memory_of_out_is_refused() -> None:
    v = LIMIT + 1
    grad, out = np.zeros((4, 1), np.float32), np.broadcast_to(np.float32(0), (v, 1))
    assert len(advised(4, v, grad=grad, out=out)) == 1
    assert "out must be writable" in aclnn.get_recent_err_msg()


def test_a_filter_that_makes_errors_of_advisories_refuses() -> None:
    n = LIMIT + 1
    grad, indices = np.broadcast_to(np.float32(0), (n, 3)), np.broadcast_to(np.int32(0), (n,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refuse("not guarantee high precision", grad=grad, indices=indices)
        warnings.simplefilter("ignore", aclnn.AdvisoryWarning)
        assert plan(grad=grad, indices=indices)[0] is OK


# --- what belongs to a thread ---------------------------------------------------------------------


def test_the_option_belongs_to_the_thread() -> None:
    get = aclnn.ctx_get_sys_param_opt
    assert get(DETERMINISTIC) == (OK, 0)
    try:
        assert aclnn.ctx_set_sys_param_opt(DETERMINISTIC, 1) is OK
        assert get(DETERMINISTIC) == get(0) == (OK, 1)
        assert in_thread(lambda: get(DETERMINISTIC)) == (OK, 0)
        assert in_thread(lambda: len(advised(4, LIMIT + 1))) == 1
        assert len(advised(4, LIMIT + 1)) == 2
        for bad in (2, -1, 0.5, None, "1"):
            assert aclnn.ctx_set_sys_param_opt(DETERMINISTIC, bad) is INVALID
            assert "value" in aclnn.get_recent_err_msg()
        for bad in (1, -1, True, None, "DETERMINISTIC"):
            assert aclnn.ctx_set_sys_param_opt(bad, 0) is INVALID
            assert "opt" in aclnn.get_recent_err_msg()
            assert get(bad) == (INVALID, 0)
        assert get(DETERMINISTIC) == (OK, 1)
    finally:
        aclnn.ctx_set_sys_param_opt(DETERMINISTIC, 0)
    assert get(DETERMINISTIC) == (OK, 0)


def test_the_last_text_belongs_to_the_thread() -> None:
    assert in_thread(aclnn.get_recent_err_msg) == ""
    refuse("num_weights", num_weights=-5)
    text = aclnn.get_recent_err_msg()
    assert "-5" in text
    in_thread(lambda: refuse("product", product="none"))
    assert plan()[0] is OK
    assert aclnn.get_recent_err_msg() == text  # a success keeps the last failure's text


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), UnprintableError()])
def test_internal_failures(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(aclnn, "plan_dense_backward", fail)
    refuse(type(error).__name__, status=Status.ACLNN_ERR_INNER)


def test_operands_that_fail_by_themselves() -> None:
    class Broken:
        def __array__(self, *arguments: Any, **options: Any) -> Array:
            raise KeyError("lost")

    refuse("KeyError", "lost", status=Status.ACLNN_ERR_INNER, grad=Broken())
