"""Measure the rounding errors that docs/numerics.md shows, and write its table and picture.

``python tools/numerics_doc.py [--docs docs]`` needs torch and matplotlib. The table stands between
two comments of the page; the picture is ``images/stall.svg``.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

from numba_embed import embedding_dense_backward
from numba_embed.cli_support import whole_file

Array = npt.NDArray[Any]
Draw = Callable[[np.random.Generator, int], Array]

DTYPES: dict[str, tuple[npt.DTypeLike, int, int]] = {
    "float16": (np.float16, 11, -14),
    "bfloat16": (ml_dtypes.bfloat16, 8, -126),
    "float32": (np.float32, 24, -126),
    "float64": (np.float64, 53, -1022),
}
"""The dtype, the bits of its significand, and the exponent of its smallest normal number."""

VALUES: dict[str, Draw] = {
    "normal, mean 0": lambda random, size: random.standard_normal(size),
    "normal, mean 1": lambda random, size: random.standard_normal(size) + 1,
    "over 5 decades": lambda random, size: (
        random.standard_normal(size) * 10.0 ** random.uniform(-4, 1, size)
    ),
}
COUNTS = (1, 10, 100, 1000, 10_000)
COLUMNS = 64
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
_HEX = {"torch": "#D55E00", "numba-embed": "#0072B2"}


def theirs(grad: Array) -> Array:
    """Return torch's sum of all rows."""
    bits = grad.dtype == ml_dtypes.bfloat16
    tensor = torch.from_numpy(grad.view(np.int16) if bits else grad)
    tensor = tensor.view(torch.bfloat16) if bits else tensor
    ids = torch.zeros(len(grad), dtype=torch.int64)
    found = torch.ops.aten.embedding_dense_backward(tensor, ids, 1, -1, False)
    return found[0].double().numpy()


def ours(grad: Array) -> Array:
    """Return this library's sum of all rows."""
    ids = np.zeros(len(grad), np.int64)
    return embedding_dense_backward(grad, ids, 1, num_threads=1)[0].astype(np.float64)


def errors_in_ulp(got: Array, grad: Array, name: str) -> Array:
    """Return for each column how far the result is from the exact sum, in units of its last place.

    The unit is that of the exact sum: 2 ** (exponent - bits of the significand + 1).
    """
    _, bits, smallest = DTYPES[name]
    errors = []
    for column, value in zip(grad.T.astype(np.float64).tolist(), got.tolist(), strict=True):
        exact = math.fsum(column)  # rounded to float64: enough to tell the unit
        exponent = math.frexp(exact)[1] - 1 if exact else smallest
        unit = math.ldexp(1.0, max(exponent, smallest) - bits + 1)
        errors.append(abs(math.fsum([*column, -value])) / unit)
    return np.array(errors)


def digits(value: float) -> str:
    """Write a number of units with two decimals, or none where they would say nothing."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def table(counts: tuple[int, ...] = COUNTS) -> Iterator[str]:
    """Yield the lines of the table: the largest error of COLUMNS sums, for every combination."""
    yield "| dtype | values | " + " | ".join(f"n = {n:,}" for n in counts) + " |"
    yield "|---|---|" + "---:|" * len(counts)
    for name, (dtype, _, _) in DTYPES.items():
        for label, draw in VALUES.items():
            cells = []
            for n in counts:
                random = np.random.default_rng(n)
                grad = draw(random, n * COLUMNS).reshape(n, COLUMNS).astype(dtype)
                own, other = (errors_in_ulp(f(grad), grad, name).max() for f in (ours, theirs))
                cells.append(f"**{digits(own)}** / {digits(other)}")
            yield f"| {name} | {label} | " + " | ".join(cells) + " |"


def stall() -> Any:
    """Draw the sum of ones in one row over their number, in both narrow formats."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    counts = 2 ** np.arange(4, 15)
    for name, style in (("float16", "-"), ("bfloat16", "--")):
        for label, function in (("torch", theirs), ("numba-embed", ours)):
            sums = [function(np.ones((n, 1), DTYPES[name][0]))[0] for n in counts.tolist()]
            axes.plot(
                *(counts, sums, style),
                color=_HEX[label],
                linewidth=1.6 if label == "torch" or name == "bfloat16" else 4,
                alpha=1.0 if label == "torch" or name == "bfloat16" else 0.4,
                label=f"{label}, {name}",
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("look-ups of one row, each with a gradient of 1")
    axes.set_ylabel("its gradient")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def main(arguments: list[str] | None = None) -> None:
    """Write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--docs", type=Path, default=Path(__file__).resolve().parent.parent / "docs"
    )
    docs = parser.parse_args(arguments).docs
    page = docs / "numerics.md"
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        sys.exit(f"{page} has no place for the table: {BEGIN} ... {END}")
    lines = "\n".join(table())
    text = re.sub(f"{BEGIN}.*{END}", f"{BEGIN}\n{lines}\n{END}", text, flags=re.DOTALL)
    (docs / "images").mkdir(exist_ok=True)
    with whole_file(docs / "images" / "stall.svg") as file:
        stall().savefig(file, format="svg", metadata={"Date": None})
    with whole_file(page) as file:
        file.write(text.encode())


if __name__ == "__main__":
    main()
