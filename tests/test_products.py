"""Every product's dtypes, limit and advisories, as the documentation lists them."""

from __future__ import annotations

import pytest

from numba_embed.errors import EmbedTypeError, EmbedValueError
from numba_embed.products import (
    Product,
    advisories,
    dim_refusals,
    dtype_refusals,
    smallest_accepted_core_num,
)

FOUR = ["float16", "bfloat16", "float32", "float64"]
NINE = ["int8", "int16", "int32", "int64", "uint8", "bool", "float16", "float32", "float64"]
HALVES_AND_SINGLE = {"float16", "bfloat16", "float32"}
GRADS = {
    "ATLAS_TRAINING": {"float16", "float32"},
    "ATLAS_A2": HALVES_AND_SINGLE,
    "ATLAS_A3": HALVES_AND_SINGLE,
    "ASCEND_950": HALVES_AND_SINGLE,
    "ATLAS_200I_500_A2": set(),
    "ATLAS_INFERENCE": set(),
}
CORES = {"ATLAS_TRAINING": 32, "ATLAS_A2": 48, "ATLAS_A3": 48, "ASCEND_950": None}


def test_all_products_are_there() -> None:
    assert set(GRADS) == set(Product.__members__)


@pytest.mark.parametrize("name", GRADS)
def test_dtype_lists(name: str) -> None:
    product = Product[name]
    assert product.supported == bool(GRADS[name])
    for grad in FOUR:
        for index in [*NINE, "uint16", "uint32", "uint64"]:
            refused = dtype_refusals(product, grad, index)
            assert (not refused) == (grad in GRADS[name] and index in NINE)
            if product.supported:
                assert len(refused) == (grad not in GRADS[name]) + (index not in NINE)
            assert all(product.value in reason for reason in refused)
    assert product.default_core_num == CORES.get(name)


@pytest.mark.parametrize("name", GRADS)
def test_only_the_training_series_limits_columns(name: str) -> None:
    product = Product[name]
    limited = name == "ATLAS_TRAINING"
    for scale in (False, True):
        assert (product.buffer_bytes(scale) == 180192) == (limited and scale)
        assert dim_refusals(product, 30000, 32, 4899, "int32", scale) == ()
        refused = dim_refusals(product, 30000, 32, 4900, "int32", scale)
        assert len(refused) == (limited and scale)
        assert dim_refusals(product, 30000, 32, 8628, "int64", scale) == ()
        assert len(dim_refusals(product, 30000, 32, 8629, "int64", scale)) == (limited and scale)
    assert "at most 4899" in dim_refusals(Product.ATLAS_TRAINING, 30000, 32, 4900, "int32", True)[0]
    assert "accepts none" in dim_refusals(Product.ATLAS_TRAINING, 45048, 1, 0, "int32", True)[0]


def test_smallest_accepted_core_num() -> None:
    training = Product.ATLAS_TRAINING
    assert smallest_accepted_core_num(training, 30000, 4950, "float32", "int32", True) == 63
    assert smallest_accepted_core_num(training, 30000, 4950, "float32", "int32", False) == 1
    assert smallest_accepted_core_num(training, 30000, 5006, "float32", "int32", True) is None
    assert smallest_accepted_core_num(training, 30000, 4950, "bfloat16", "int32", True) is None
    a2 = Product.ATLAS_A2
    assert smallest_accepted_core_num(a2, 30000, 10**9, "bfloat16", "int32", True) == 1
    none = Product.ATLAS_INFERENCE
    assert smallest_accepted_core_num(none, 30000, 4950, "float32", "int32", False) is None


@pytest.mark.parametrize("name", GRADS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_advisories_at_and_above_each_limit(name: str, deterministic: bool) -> None:
    warned = name in ("ATLAS_A2", "ATLAS_A3")

    def about(lookups: int, rows: int) -> set[str]:
        found = advisories(Product[name], lookups, rows, deterministic=deterministic)
        assert all(Product[name].value in note.message for note in found)
        assert len({note.about for note in found}) == len(found)
        return {note.about for note in found}

    fast, precise = 2139095040, 2147483647
    both = {"precision", "deterministic performance"} if deterministic else {"precision"}
    assert about(0, 0) == about(fast, precise) == set()
    assert about(fast + 1, 10) == ({"performance"} if warned else set())
    assert about(precise, precise) == ({"performance"} if warned else set())
    assert about(10, precise + 1) == (both if warned else set())
    assert about(precise + 1, 10) == (both | {"performance"} if warned else set())
    assert about(precise + 1, precise + 1) == (both | {"performance"} if warned else set())


def test_parse() -> None:
    for product in Product:
        assert Product.parse(product) is product
        assert Product.parse(product.name) is product
        assert Product.parse(product.name.lower().replace("_", "-")) is product
    with pytest.raises(EmbedValueError, match=r"product must be one of ATLAS_TRAINING, .*'atlas'"):
        Product.parse("atlas")
    with pytest.raises(EmbedTypeError, match="product must be a Product or its name, got 2"):
        Product.parse(2)  # type: ignore[arg-type]
