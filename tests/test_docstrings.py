"""Docstrings of public names: every parameter, what is returned, and what it costs or raises."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

MODULES = ["", "aclnn", "simulate", "simulation", "partition", "limits", "products", "order"]
WITH_TORCH = ["torch", "distributed"]


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Give the functions and methods behind the public names of a module."""
    found = importlib.import_module(f"numba_embed.{module}".rstrip("."))
    names = getattr(found, "__all__", None) or [
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == found.__name__
    ]
    for name in names:
        value = getattr(found, name)
        if inspect.isclass(value):
            yield name, value
            for key, member in vars(value).items():
                member = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if not key.startswith("_") and inspect.isfunction(member):
                    yield f"{name}.{key}", member
        elif inspect.isfunction(value):
            yield name, value


def sections(text: str) -> dict[str, str]:
    """Cut a docstring into its sections, by title."""
    parts = re.split(r"^(\w+)\n-{3,}$", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


@pytest.mark.parametrize("module", [*MODULES, *WITH_TORCH])
def test_docstrings_are_complete(module: str) -> None:
    if module in WITH_TORCH:
        pytest.importorskip("torch")
    missing = []
    for name, value in public(module):
        text = inspect.getdoc(value)
        if not text:
            missing.append(f"{name}: no docstring")
            continue
        if inspect.isclass(value):
            continue
        found = sections(text)
        parameters = [p for p in inspect.signature(value).parameters if p not in ("self", "cls")]
        listed = re.findall(r"^(\w[\w, ]*)(?: : .*)?$", found.get("Parameters", ""), re.MULTILINE)
        told = {one.strip() for line in listed for one in line.split(",")}
        missing += [f"{name}: {p}" for p in parameters if p not in told]
        returned = inspect.signature(value).return_annotation
        if parameters and returned not in (None, "None", "Iterator[None]", inspect.Signature.empty):
            said = found.get("Returns", "") + found.get("Yields", "") + found[""].partition(".")[0]
            if not re.search(r"\w", said) or not (
                {"Returns", "Yields"} & set(found) or re.match(r"Return|Lend|Take", found[""])
            ):
                missing.append(f"{name}: what it returns")
    assert not missing, "\n".join(missing)


def test_sections_are_told_apart() -> None:
    def function(a: int, *, b: int) -> int:
        """Return a sum.

        Parameters
        ----------
        a, b : int
            Two numbers.

        Returns
        -------
        int
        """
        return a + b

    found = sections(inspect.getdoc(function) or "")
    assert list(found) == ["", "Parameters", "Returns"]
    assert found["Parameters"].strip().startswith("a, b : int")
