"""The workloads: seeded, named, and the same for the table, the test files and the documents."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from numba_embed.formats import format_named
from numba_embed.zipf import zipf_indices

Array = npt.NDArray[Any]

SEED = 20240607
ZIPF_EXPONENT = 1.1
LINE = 64


class Operands(NamedTuple):
    """What a call takes, apart from ``num_weights``.

    Attributes
    ----------
    grad
        Gradient, (N, D), with the case's dtype and layout.
    indices
        int64 or int32, (N,).
    kwargs
        The attributes that are not at their default: ``padding_idx``, ``scale_grad_by_freq``.
    make_out
        Makes an output array, (V, D), with the case's alignment; its pages are touched already.
    """

    grad: Array
    indices: Array
    kwargs: dict[str, Any]
    make_out: Callable[[], Array]


@dataclass(frozen=True)
class Case:
    """One workload.

    Attributes
    ----------
    name
        Short and unique.
    V, D, N
        Rows and columns of the table, and look-ups.
    rows
        How the looked-up rows are spread: "uniform"; "zipf" (p ~ 1 / rank ** 1.1, ranks permuted);
        "hot" (half of all look-ups in one row, the others uniform); "cycle" (0, 1, .., V - 1, 0, 1,
        ..); "one" (one row only); "padding" (the padding row only).
    dtype, index_dtype
        Of gradient and output, and of the indices.
    layout
        Of the gradient: "contiguous"; "strided" (every second column of a wider array);
        "broadcast" (one row, repeated with stride 0).
    out_offset
        Bytes by which ``out=`` misses a 64-byte boundary.
    scale
        ``scale_grad_by_freq``.
    accumulate
        Add to what ``out`` holds.
    steps
        Steps of a training loop per call: each takes a fresh gradient and drops it before the next.
        0 for a plain case.
    neighbour
        The case to which this one's time is compared.
    """

    name: str
    V: int
    D: int
    N: int
    rows: str = "uniform"
    dtype: str = "float32"
    index_dtype: str = "int64"
    layout: str = "contiguous"
    out_offset: int = 0
    scale: bool = False
    accumulate: bool = False
    steps: int = 0
    neighbour: str | None = field(default=None, compare=False)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of gradient and output.

        Raises
        ------
        ModuleNotFoundError
            If it is bfloat16 and `ml_dtypes` is not installed.
        """
        form = format_named(self.dtype)
        assert form is not None, self.dtype
        return form.dtype

    @property
    def padding_idx(self) -> int | None:
        """The padding row, or None."""
        return self.V // 3 if self.rows == "padding" else None

    @property
    def out_nbytes(self) -> int:
        """Bytes of the output."""
        return self.V * self.D * self.numpy_dtype.itemsize

    def make(self) -> Operands:
        """Make the operands: the same values in every process. O(N D) time and memory."""
        # The twins of a case (other dtype, layout, flags) look up the same rows.
        random = np.random.default_rng([SEED, zlib.crc32(f"{self.rows} {self.V}".encode())])
        indices = self._indices(random).astype(self.index_dtype)
        kwargs: dict[str, Any] = {}
        if self.padding_idx is not None:
            kwargs["padding_idx"] = self.padding_idx
        if self.scale:
            kwargs["scale_grad_by_freq"] = True
        return Operands(self._grad(random), indices, kwargs, self._make_out)

    def small(self) -> Case:
        """Return the same kind of case in a size that takes no time: for tests."""
        return replace(
            self,
            V=min(self.V, 40),
            D=min(self.D, 19) if self.D % 16 else min(self.D, 16),
            N=min(self.N, 500),
        )

    def _indices(self, random: np.random.Generator) -> Array:
        if self.rows == "uniform":
            return random.integers(0, self.V, self.N)
        if self.rows == "zipf":
            ranks = zipf_indices(ZIPF_EXPONENT, self.N, self.V, SEED)
            permuted: Array = random.permutation(self.V)[ranks]
            return permuted
        if self.rows == "hot":
            indices = random.integers(0, self.V, self.N)
            indices[random.random(self.N) < 0.5] = self.V // 3
            return indices
        if self.rows == "cycle":
            return np.arange(self.N) % self.V
        assert self.rows in ("one", "padding"), self.rows
        return np.full(self.N, self.V // 3)

    def _grad(self, random: np.random.Generator) -> Array:
        shape = {
            "contiguous": (self.N, self.D),
            "strided": (self.N, 2 * self.D),
            "broadcast": (1, self.D),
        }[self.layout]
        values = random.standard_normal(shape, dtype=np.float32)
        values = values.astype(self.numpy_dtype, copy=False)
        if self.layout == "strided":
            return values[:, ::2]
        if self.layout == "broadcast":
            return np.broadcast_to(values, (self.N, self.D))
        return values

    def _make_out(self) -> Array:
        nbytes = self.out_nbytes
        raw = np.empty(nbytes + 2 * LINE, np.uint8)
        raw.fill(0)
        start = -raw.ctypes.data % LINE + self.out_offset
        return raw[start : start + nbytes].view(self.numpy_dtype).reshape(self.V, self.D)


_LM = Case("lm", V=50257, D=768, N=8192, rows="zipf")
_REC = Case("rec", V=10**6, D=64, N=65536)
_W2V = Case("w2v", V=10**5, D=128, N=262144, rows="zipf")
_UNIFORM = Case("uniform", V=10**5, D=128, N=262144)

CASES: tuple[Case, ...] = (
    _LM,
    _REC,
    _W2V,
    Case("small vocabulary", V=1000, D=64, N=10**6),
    Case("one column", V=10**5, D=1, N=10**6),
    Case("hot row", V=10**5, D=128, N=262144, rows="hot", neighbour="uniform"),
    Case("tiny", V=100, D=16, N=32),
    Case("positions", V=512, D=768, N=65536, rows="cycle"),
    _UNIFORM,
    Case("one look-up", V=10, D=16, N=1),
    Case("one row", V=10**5, D=128, N=262144, rows="one"),
    Case("all padding", V=10**5, D=128, N=262144, rows="padding"),
    *(
        replace(case, name=f"{case.name} {dtype}", dtype=dtype, neighbour=case.name)
        for dtype in ("bfloat16", "float16")
        for case in (_LM, _REC, _W2V)
    ),
    replace(_W2V, name="int32 indices", index_dtype="int32", neighbour="w2v"),
    replace(_W2V, name="scaled by frequency", scale=True, neighbour="w2v"),
    replace(_W2V, name="strided grad", layout="strided", neighbour="w2v"),
    replace(_W2V, name="broadcast grad", layout="broadcast", neighbour="w2v"),
    replace(_W2V, name="unaligned out", out_offset=4, neighbour="w2v"),
    replace(_W2V, name="accumulate", accumulate=True, neighbour="w2v"),
    replace(_W2V, name="100 columns", D=100, neighbour="w2v"),
    Case("304 columns", V=50000, D=304, N=65536, rows="zipf"),
    Case("300 columns", V=50000, D=300, N=65536, rows="zipf", neighbour="304 columns"),
    Case("8960 columns", V=1000, D=8960, N=2048),
    Case("huge and sparse", V=5 * 10**6, D=64, N=4096),
    replace(_LM, name="training loop", steps=4, neighbour="lm"),
)
"""All workloads, in the order of the table."""


def select(pattern: str | None = None) -> tuple[Case, ...]:
    """Return the cases whose name contains one of the comma-separated parts of ``pattern``.

    A part that is a whole name selects that case alone. All cases without a pattern, and none where
    nothing matches. Case does not matter.
    """
    if pattern is None:
        return CASES
    names = {case.name for case in CASES}
    parts = [part.strip().lower() for part in pattern.split(",") if part.strip()]

    def wanted(case: Case) -> bool:
        return any(part == case.name or (part not in names and part in case.name) for part in parts)

    return tuple(case for case in CASES if wanted(case))
