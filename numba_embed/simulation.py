"""The results of the simulator: plain values, and the figures that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numba_embed.errors import EmbedValueError
from numba_embed.limits import limit_bytes
from numba_embed.partition import SPLITS, CorePartition, IntArray, Split
from numba_embed.products import Product
from numba_embed.scalars import shown
from numba_embed.validation import checked_format


@dataclass(frozen=True, eq=False, slots=True)
class CoreSimulation:
    """What every core owns and does. All arrays have the shape ``(core_num,)``.

    Attributes
    ----------
    partition : CorePartition
        Who owns which rows.
    embedding_dim : int
        Columns of the table, D.
    grad_dtype, indices_dtype : str
        Names of the dtypes that were assumed.
    padding_idx : int or None
    scale_grad_by_freq : bool
    product : Product
        Whose limits apply.
    num_lookups : int
        Entries of indices, N.
    padding_lookups : int
        Those among them that name the padding row and so take no part in anything below.
    lookups_per_core : ndarray of int64
        Look-ups that a core sums. Read-only.
    distinct_rows_per_core : ndarray of int64
        Rows of a core that are looked up at least once. Read-only.
    hottest_rows : tuple of (int, int)
        Up to ten pairs of row and look-ups, the most looked-up row first.
    refusals : tuple of str
        Why the product does not accept this; empty when it does. Its limit is that of the
        documented split, whatever the partition here.
    smallest_core_num : int or None
        The smallest core count that the product accepts for this shape; None if it accepts none.
    advisories : tuple of str
        What the product's documentation does not guarantee at these sizes.
    """

    partition: CorePartition
    embedding_dim: int
    grad_dtype: str
    indices_dtype: str
    padding_idx: int | None
    scale_grad_by_freq: bool
    product: Product
    num_lookups: int
    padding_lookups: int
    lookups_per_core: NDArray[np.int64]
    distinct_rows_per_core: NDArray[np.int64]
    hottest_rows: tuple[tuple[int, int], ...]
    refusals: tuple[str, ...]
    smallest_core_num: int | None
    advisories: tuple[str, ...]

    @property
    def split(self) -> Split:
        """How the rows are shared."""
        return self.partition.split

    @property
    def core_num(self) -> int:
        """Cores that share the rows."""
        return self.partition.core_num

    @property
    def num_weights(self) -> int:
        """Rows of the table, V."""
        return self.partition.num_weights

    @property
    def rows_per_core(self) -> IntArray:
        """Rows that every core owns, as `CorePartition.rows_per_core`. O(core_num)."""
        return self.partition.rows_per_core

    @property
    def bytes_moved_per_core(self) -> NDArray[Any]:
        """Bytes that every core reads and writes. O(core_num).

        For a look-up its index and its gradient row, for an owned row the output row, of grad's
        dtype: every output row is written, looked up or not. Exact: Python integers where int64
        does not hold them.
        """
        row = self.embedding_dim * checked_format("grad_dtype", self.grad_dtype).itemsize
        index = np.dtype(self.indices_dtype).itemsize
        return _combine((self.lookups_per_core, row + index), (self.rows_per_core, row))

    @property
    def buffer_bytes_per_core(self) -> NDArray[Any]:
        """Bytes of its buffer that a core needs, as the published limit counts them. O(core_num).

        With int32 indices 4 for an owned row and 36 for a column, with int64 indices 8 and 20.
        """
        per_row, per_column = limit_bytes(self.indices_dtype)
        return _combine((self.rows_per_core, per_row), offset=self.embedding_dim * per_column)

    @property
    def buffer_limit(self) -> int | None:
        """Bytes that `buffer_bytes_per_core` must stay below; None where there is no limit."""
        return self.product.buffer_bytes(self.scale_grad_by_freq)

    @property
    def accepted(self) -> bool:
        """Whether the product accepts the dtypes and the shape with this core count."""
        return not self.refusals

    @property
    def imbalance(self) -> float:
        """Look-ups of the busiest core over the mean: 1 at best, `core_num` at worst.

        1 where there is nothing to do.
        """
        total = int(self.lookups_per_core.sum())
        busiest = int(self.lookups_per_core.max())
        return busiest * self.core_num / total if total else 1.0

    @property
    def speedup_bound(self) -> float:
        """All look-ups over those of the busiest core: no schedule of whole cores beats it."""
        busiest = int(self.lookups_per_core.max())
        return int(self.lookups_per_core.sum()) / busiest if busiest else float(self.core_num)

    @property
    def idle_share(self) -> float:
        """Share of the cores' time that passes in waiting for the busiest one, in [0, 1)."""
        return 1.0 - self.speedup_bound / self.core_num

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold. O(core_num)."""
        return {
            **self.summary(),
            "num_weights": self.num_weights,
            "embedding_dim": self.embedding_dim,
            "grad_dtype": self.grad_dtype,
            "indices_dtype": self.indices_dtype,
            "padding_idx": self.padding_idx,
            "scale_grad_by_freq": self.scale_grad_by_freq,
            "product": self.product.name,
            "num_lookups": self.num_lookups,
            "padding_lookups": self.padding_lookups,
            "buffer_limit": self.buffer_limit,
            "refusals": list(self.refusals),
            "smallest_core_num": self.smallest_core_num,
            "advisories": list(self.advisories),
            "hottest_rows": [list(pair) for pair in self.hottest_rows],
            "rows_per_core": self.rows_per_core.tolist(),
            "lookups_per_core": self.lookups_per_core.tolist(),
            "distinct_rows_per_core": self.distinct_rows_per_core.tolist(),
            "bytes_moved_per_core": self.bytes_moved_per_core.tolist(),
            "buffer_bytes_per_core": self.buffer_bytes_per_core.tolist(),
        }

    def summary(self) -> dict[str, Any]:
        """Return the figures over all cores, as plain values."""
        return {
            "split": self.split,
            "core_num": self.core_num,
            "imbalance": self.imbalance,
            "speedup_bound": self.speedup_bound,
            "idle_share": self.idle_share,
            "accepted": self.accepted,
        }

    def __str__(self) -> str:
        """Return the figures over all cores in a few lines."""
        if self.accepted:
            verdict = "accepted"
        else:
            verdict = "refused: " + "; ".join(self.refusals)
            if self.smallest_core_num is not None:
                verdict += f"; the smallest core count accepted is {self.smallest_core_num}"
        busiest = int(self.lookups_per_core.argmax())
        return "\n".join(
            (
                f"{self.num_weights} rows of {self.embedding_dim} columns",
                f"{self.core_num} cores, split {self.split}",
                f"{self.num_lookups} look-ups, {self.padding_lookups} of them padding",
                f"busiest core {busiest} with {self.lookups_per_core[busiest]} look-ups",
                f"imbalance {self.imbalance:.3f}, speed-up bound {self.speedup_bound:.3f}, "
                f"idle share {self.idle_share:.1%}",
                f"{self.product.value}: {verdict}",
            )
        )


@dataclass(frozen=True, eq=False, slots=True)
class CoreSweep:
    """Simulations of both splits over the same core counts.

    Attributes
    ----------
    simulations : dict
        For each split one `CoreSimulation` per core count, in the order asked for.
    """

    simulations: dict[Split, tuple[CoreSimulation, ...]]

    @property
    def core_nums(self) -> tuple[int, ...]:
        """The core counts."""
        return tuple(found.core_num for found in self.simulations["counts_size"])

    def speedup_bounds(self, split: Split) -> NDArray[np.float64]:
        """Return the speed-up bound for every core count: float64, shape (core counts,).

        Parameters
        ----------
        split : {"counts_size", "balanced"}
            Of which split.

        Raises
        ------
        EmbedValueError
            If there is no split of that name.
        """
        if split not in SPLITS:
            raise EmbedValueError(f"split must be one of {SPLITS}, got {shown(split)}")
        return np.array([found.speedup_bound for found in self.simulations[split]])

    def accepted(self) -> NDArray[np.bool_]:
        """Return whether the product accepts each core count: bool, shape (core counts,)."""
        return np.array([found.accepted for found in self.simulations["counts_size"]])

    def to_dict(self) -> dict[str, Any]:
        """Return the figures over all cores of every simulation, as plain values."""
        return {
            split: [found.summary() for found in several]
            for split, several in self.simulations.items()
        }


def _combine(*terms: tuple[IntArray, int], offset: int = 0) -> NDArray[Any]:
    """Return the weighted sum of arrays plus a constant, of Python integers if int64 overflows."""
    largest = offset + sum(int(array.max()) * weight for array, weight in terms)
    dtype = np.int64 if largest < 2**63 else object
    total = np.full(terms[0][0].shape, offset, dtype=dtype)
    for array, weight in terms:
        total += array.astype(dtype) * weight
    return total
