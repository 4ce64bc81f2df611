"""The Ascend products: what each accepts, and what its documentation warns about.

Source: the published documentation of aclnnEmbeddingDenseBackward (Ascend CANN).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.limits import (
    UNIFIED_BUFFER_BYTES,
    embedding_dim_fits,
    max_embedding_dim,
    smallest_core_num,
)
from numba_embed.scalars import shown

DOCUMENTED_INDEX_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "bool", "float16", "float32", "float64"),
)
"""The index dtypes of every supported product."""

MAX_PRECISE = 2147483647
"""Most look-ups, and most rows, for which the A2 and A3 products guarantee high precision."""

MAX_FAST_LOOKUPS = 2139095040
"""Most look-ups for which the A2 and A3 products guarantee high performance."""


class Product(enum.Enum):
    """An Ascend product; the value is the name that its documentation uses."""

    ATLAS_TRAINING = "Atlas training series"
    ATLAS_A2 = "Atlas A2 training / A2 inference"
    ATLAS_A3 = "Atlas A3 training / A3 inference"
    ASCEND_950 = "Ascend 950PR / 950DT"
    ATLAS_200I_500_A2 = "Atlas 200I/500 A2 inference"
    ATLAS_INFERENCE = "Atlas inference series"

    @classmethod
    def parse(cls, product: Product | str) -> Product:
        """Return the product of a name such as ``"ATLAS_A2"`` or ``"atlas-a2"``. O(1).

        Parameters
        ----------
        product : Product or str
            Letters of any case, words joined by ``_`` or ``-``.

        Raises
        ------
        EmbedTypeError
            If `product` is neither a Product nor a string.
        EmbedValueError
            If there is no product of that name.
        """
        if isinstance(product, cls):
            return product
        if not isinstance(product, str):
            raise EmbedTypeError(
                f"product must be a Product or its name, got {shown(product)} of type "
                f"{type(product).__name__}"
            )
        try:
            return cls[product.upper().replace("-", "_")]
        except KeyError:
            names = ", ".join(cls.__members__)
            raise EmbedValueError(f"product must be one of {names}, got {shown(product)}") from None

    @property
    def supported(self) -> bool:
        """Whether the product has the operator at all."""
        return self not in (Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE)

    @property
    def grad_dtypes(self) -> tuple[str, ...]:
        """Names of the dtypes that grad and out may have."""
        if not self.supported:
            return ()
        if self is Product.ATLAS_TRAINING:
            return ("float16", "float32")
        return ("float16", "float32", "bfloat16")

    @property
    def index_dtypes(self) -> tuple[str, ...]:
        """Names of the dtypes that indices may have."""
        return DOCUMENTED_INDEX_DTYPES if self.supported else ()

    @property
    def default_core_num(self) -> int | None:
        """Cores to assume where none are given; None where they must be given."""
        if self is Product.ATLAS_TRAINING:
            return 32
        return 48 if self in (Product.ATLAS_A2, Product.ATLAS_A3) else None

    def buffer_bytes(self, scale_grad_by_freq: bool) -> int | None:
        """Return the bytes of a core's buffer that limit the embedding dimension, if any do. O(1).

        Parameters
        ----------
        scale_grad_by_freq : bool
            Whether frequencies are counted, which is what the buffer is for.
        """
        limited = self is Product.ATLAS_TRAINING and scale_grad_by_freq
        return UNIFIED_BUFFER_BYTES if limited else None


@dataclass(frozen=True, slots=True)
class Advisory:
    """What a product's documentation no longer guarantees at a certain size."""

    about: Literal["precision", "performance", "deterministic performance"]
    message: str


def dtype_refusals(product: Product, grad_dtype: str, indices_dtype: str) -> tuple[str, ...]:
    """Return why a product refuses dtypes: one sentence each, none if it does not. O(1).

    An unsupported product refuses all.

    Parameters
    ----------
    product : Product
        Whose lists apply.
    grad_dtype, indices_dtype : str
        Names of dtypes.
    """
    if not product.supported:
        return (f"{product.value} does not support the operator",)
    found = []
    for name, dtype, accepted in (
        ("grad", grad_dtype, product.grad_dtypes),
        ("indices", indices_dtype, product.index_dtypes),
    ):
        if dtype not in accepted:
            found.append(f"{name} has dtype {dtype}, {product.value} accepts {', '.join(accepted)}")
    return tuple(found)


def dim_refusals(
    product: Product,
    num_weights: int,
    core_num: int,
    embedding_dim: int,
    indices_dtype: str,
    scale_grad_by_freq: bool,
) -> tuple[str, ...]:
    """Return why a product refuses an embedding dimension: one sentence, or none. O(1).

    Parameters
    ----------
    product : Product
        Whose limit applies, if it has one.
    num_weights, core_num, embedding_dim, indices_dtype : as there
        See `numba_embed.limits.embedding_dim_fits`.
    scale_grad_by_freq : bool
        Whether frequencies are needed, which is when there is a limit.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        As there.
    """
    if product.buffer_bytes(scale_grad_by_freq) is None:
        return ()
    if embedding_dim_fits(embedding_dim, num_weights, core_num, indices_dtype):
        return ()
    largest = max_embedding_dim(num_weights, core_num, indices_dtype)
    return (
        f"embedding_dim is {embedding_dim}, {product.value} accepts "
        f"{f'at most {largest}' if largest else 'none'} for num_weights {num_weights} and "
        f"{indices_dtype} indices on {core_num} cores with scale_grad_by_freq",
    )


def smallest_accepted_core_num(
    product: Product,
    num_weights: int,
    embedding_dim: int,
    grad_dtype: str,
    indices_dtype: str,
    scale_grad_by_freq: bool,
) -> int | None:
    """Return the smallest core_num with which a product accepts a shape; None if it never does.

    Parameters
    ----------
    product, num_weights, embedding_dim, indices_dtype, scale_grad_by_freq : as there
        See `dim_refusals`.
    grad_dtype : str
        Name of the gradient's dtype.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        As `dim_refusals`.

    Notes
    -----
    At most 45047 steps, see `numba_embed.limits.smallest_core_num`.
    """
    if dtype_refusals(product, grad_dtype, indices_dtype):
        return None
    if product.buffer_bytes(scale_grad_by_freq) is None:
        return 1
    return smallest_core_num(num_weights, embedding_dim, indices_dtype)


def advisories(
    product: Product, num_lookups: int, num_weights: int, *, deterministic: bool = False
) -> tuple[Advisory, ...]:
    """Return what the product's documentation warns about at these sizes.

    Parameters
    ----------
    product : Product
    num_lookups : int
        Entries of indices, N.
    num_weights : int
        Rows of the table, V.
    deterministic : bool
        Whether the device's deterministic mode is on, which has a warning of its own.
    """
    if product not in (Product.ATLAS_A2, Product.ATLAS_A3):
        return ()
    found = []
    sizes = (("indices entries", num_lookups), ("num_weights", num_weights))
    over = [f"{size} {name}" for name, size in sizes if size > MAX_PRECISE]
    if over:
        what = f"{' and '.join(over)}, more than {MAX_PRECISE}"
        found.append(
            Advisory("precision", f"{what}: {product.value} does not guarantee high precision")
        )
        if deterministic:
            found.append(
                Advisory(
                    "deterministic performance",
                    f"{what}: {product.value} does not guarantee high performance in "
                    "deterministic mode",
                )
            )
    if num_lookups > MAX_FAST_LOOKUPS:
        found.append(
            Advisory(
                "performance",
                f"{num_lookups} indices entries, more than {MAX_FAST_LOOKUPS}: {product.value} "
                "does not guarantee high performance",
            )
        )
    return tuple(found)
