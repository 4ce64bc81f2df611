"""What the fuzzer passes: odd arrays with legal content, and values that nobody should pass."""

from __future__ import annotations

import array
import fractions
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Array = npt.NDArray[Any]

FORMATS: list[npt.DTypeLike] = ["float16", ml_dtypes.bfloat16, "float32", "float64"]
INDICES = ["int64", "int64", "int32", "int8", "uint8", "uint16", "uint64", "float32", "float64"]


def laid_out(draw: Any, values: Array) -> Array:
    """Return the same values in another layout: strides, byte order, alignment, read-only."""
    if not values.ndim:
        return values
    kind = draw(st.sampled_from(["plain", "fortran", "reversed", "spaced", "swapped", "odd"]))
    if kind == "fortran":
        values = np.asfortranarray(values)
    elif kind == "reversed":
        turned = tuple(slice(None, None, -1) for _ in values.shape)
        values = np.ascontiguousarray(values[turned])[turned]
    elif kind == "spaced":
        wide = np.zeros([2 * size + 1 for size in values.shape], values.dtype)
        view = wide[tuple(slice(1, 2 * size, 2) for size in values.shape)]
        view[...] = values
        values = view
    elif kind == "swapped" and values.dtype.kind in "iuf":
        values = values.astype(values.dtype.newbyteorder())
    elif kind == "odd":
        memory = np.zeros(values.nbytes + 1, np.uint8)
        view = np.frombuffer(memory.data, values.dtype, values.size, offset=1)
        view = view.reshape(values.shape)
        view[...] = values
        values = view
    if draw(st.booleans()) and draw(st.booleans()):
        values = values.view()
        values.flags.writeable = False
    return values


@st.composite
def operands(draw: Any) -> tuple[Array, Array, int]:
    """Draw a gradient, indices that are all in range, and the number of rows."""
    rows = draw(st.integers(1, 120) | st.sampled_from([2048, 2049, 5000]))
    width = draw(st.integers(0, 9) | st.sampled_from([16, 33]))
    shape = draw(st.lists(st.integers(0, 5), max_size=3) | st.sampled_from([[400], [0], [1] * 7]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Eighths: every sum of them is exact in float64, so its order does not matter.
    grad = (random.integers(-128, 128, [*shape, width]) / 8).astype(draw(st.sampled_from(FORMATS)))
    if grad.size and draw(st.booleans()) and draw(st.booleans()):
        grad.flat[random.integers(grad.size)] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    dtype = np.dtype(draw(st.sampled_from(INDICES)))
    most = rows if dtype.itemsize > 1 else min(rows, 100)
    ids = random.integers(0, most, shape).astype(dtype)
    return laid_out(draw, grad), laid_out(draw, ids), rows


class Hostile:
    """Raises an error of its own from whatever it is asked."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def _raise(self, *arguments: Any, **options: Any) -> Any:
        raise self.error

    __array__ = __dlpack__ = __dlpack_device__ = __index__ = __int__ = __float__ = _raise
    __len__ = __iter__ = __getitem__ = __bool__ = __eq__ = __repr__ = __str__ = _raise  # type: ignore[assignment]

    def __hash__(self) -> int:
        raise self.error


class Returns:
    """Answers the protocols with a value that is none of an array."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        return self.value

    def __index__(self) -> Any:
        return self.value


class Capsule:
    """Offers DLPack alone, and what it says there."""

    def __init__(self, capsule: Any, device: Any) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, *arguments: Any, **options: Any) -> Any:
        if isinstance(self.capsule, np.ndarray):
            return self.capsule.__dlpack__()
        return self.capsule

    def __dlpack_device__(self) -> Any:
        return self.device


class Interface:
    """Has an array interface that is no dictionary, or lacks what it needs."""

    def __init__(self, interface: Any) -> None:
        self.__array_interface__ = interface


class Module:
    """Has a class whose module is no string."""

    __module__ = 5  # type: ignore[assignment]


class LyingDtype:
    """Claims a dtype and a shape, and has nothing."""

    dtype = np.dtype(np.float32)
    shape = (3, 2)
    ndim = 2


def _loop() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


ERRORS = [KeyError("x"), ValueError("x"), RuntimeError("x"), OSError("x"), AttributeError("x")]
ERRORS += [ZeroDivisionError(), StopIteration(), RecursionError(), UnicodeError(), AssertionError()]

WILD: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 2**200),
    *(10**5000, -(10**5000), 0.0, 2.5, float("nan"), float("inf"), 1j, fractions.Fraction(3)),
    *("", "raise", "drop", "float32", "f4,i4", ">f4", "float", "\0", "x" * 10_000, b"", b"abc"),
    *([], (), [1, 2], [[1.0], [2.0]], [[1], [1, 2]], [None], ["a"], [2**70], [1j], {}, {1: 2}),
    *(set(), range(3), object(), object, int, len, slice(3), Ellipsis, NotImplemented, {"a": [1]}),
    *(np.int8(3), np.uint64(2**63), np.bool_(True), np.float64(3), np.str_("raise"), np.void(b"a")),
    *(np.datetime64("2020"), np.timedelta64(3, "s"), np.dtype("f4"), np.dtype("i4,f4"), np.float32),
    *(bytearray(8), memoryview(b"12345678"), memoryview(bytearray(8))[::-1], array.array("d", [1])),
    *(np.zeros((2, 2), object), np.array(["a"]), np.zeros(3, "i4,f4"), np.zeros(3, "M8[s]")),
    *(np.zeros((2, 2), complex), np.zeros((2, 2), np.longdouble), np.zeros((1,) * 20), np.array(3)),
    *(np.ma.masked_array([1, 2]), np.matrix([[1.0]]), np.zeros((3, 2), "V2"), np.zeros((3, 0))),
    *(np.zeros(3, ml_dtypes.float8_e4m3fn), np.zeros(3, ml_dtypes.int4), np.zeros(3, bool)),
    np.zeros(3, ml_dtypes.bfloat16),
    np.lib.stride_tricks.as_strided(np.zeros(1), (10**9, 10**9), (0, 0)),
    np.lib.stride_tricks.as_strided(np.zeros(64), (3, 4, 5), (7, 11, 13)),
    *(Returns(3), Returns(None), Returns("x"), Returns(np.zeros((2, 2), object)), _loop()),
    *(Returns(np.zeros((2, 3), np.float32)), Module(), LyingDtype(), np.array(None)),
    *(Capsule(None, (1, 0)), Capsule(np.zeros((2, 3)), (1, 0)), Capsule(3, (2, 0))),
    *(Capsule(object(), None), Interface(3), Interface({}), Interface({"shape": (3,)})),
    Interface({"shape": (-3,), "typestr": "<f4", "version": 3}),
    *map(Hostile, ERRORS),
]


def wild() -> st.SearchStrategy[Any]:
    """Draw anything."""
    # By number: hypothesis hashes what it samples from, and some of these have a hash that raises.
    listed = st.integers(0, len(WILD) - 1).map(WILD.__getitem__)
    return listed | st.integers() | st.floats() | st.text(max_size=5)
