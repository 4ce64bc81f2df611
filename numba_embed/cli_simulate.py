"""``numba-embed simulate``: what a split of the rows among cores means for given look-ups."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from numba_embed.cli_report import print_simulation, print_sweep
from numba_embed.cli_support import (
    CliError,
    check_picture,
    check_target,
    file_name,
    import_extra,
    integer,
    whole_file,
    write_picture,
)
from numba_embed.formats import ACCEPTED
from numba_embed.partition import MAX_LISTED_CORES, SPLITS, Split
from numba_embed.products import Product
from numba_embed.scalars import MAX_ROWS
from numba_embed.simulate import compare_splits, sweep_cores
from numba_embed.simulation import CoreSimulation, CoreSweep
from numba_embed.zipf import zipf_indices

_MOST_SWEPT = 2**24
"""Most cores of all simulations of a sweep together: half a GiB."""


def add_parser(subparsers: Any) -> None:
    """Add the command to ``numba-embed``."""
    parser = subparsers.add_parser(
        "simulate",
        help="show which core would sum how much, and whether a product accepts the shape",
        description=(
            "Share the rows of a table among cores, count the look-ups of each, and show how "
            "balanced that is, how much more than one core could help, and whether an Ascend "
            "product accepts the shape. Look-ups come from a file or are drawn from Zipf's law."
        ),
    )
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--indices", type=file_name, metavar="FILE.npy", help="look-ups to simulate"
    )
    source.add_argument(
        "--zipf", type=float, metavar="X", help="draw row r in proportion to (r + 1) ** -X"
    )
    add(
        "--count",
        type=integer(0),
        default=10**6,
        metavar="N",
        help="look-ups to draw (default: %(default)s)",
    )
    add(
        "--seed",
        type=integer(0),
        default=0,
        metavar="N",
        help="seed of the draws (default: %(default)s)",
    )
    add(
        "--num-weights",
        type=integer(0, MAX_ROWS),
        required=True,
        metavar="V",
        help="rows of the table",
    )
    add("--embedding-dim", type=integer(0), required=True, metavar="D", help="columns of the table")
    add(
        "--cores",
        type=integer(1, MAX_LISTED_CORES),
        metavar="N",
        help="cores that share the rows (default: the product's)",
    )
    add(
        "--split",
        choices=(*SPLITS, "both"),
        default="counts_size",
        help="whose cores to list; the totals show both (default: %(default)s)",
    )
    add(
        "--sweep",
        type=core_counts,
        metavar="FROM:TO[:STEP]",
        help="bounds for many core counts, or for a list such as 8,16,48",
    )
    names = [name.lower().replace("_", "-") for name in Product.__members__]
    add(
        "--product",
        choices=names,
        type=lambda text: text.lower().replace("_", "-"),
        default=names[0],
        metavar="NAME",
        help=f"whose limits apply: {', '.join(names)} (default: %(default)s)",
    )
    add(
        "--grad-dtype",
        default="float32",
        metavar="DTYPE",
        help=f"{ACCEPTED} (default: %(default)s)",
    )
    add(
        "--indices-dtype",
        metavar="DTYPE",
        help="index dtype to assume (default: that of the look-ups)",
    )
    add("--padding-idx", type=int, metavar="ROW", help="row whose look-ups take no part")
    add(
        "--scale-grad-by-freq",
        action="store_true",
        help="divide by frequencies: needs their buffer, so the limit on columns applies",
    )
    add("--json", type=file_name, metavar="FILE", help="write all figures there")
    add("--plot", type=file_name, metavar="FILE.png", help="write a picture there (or .pdf, .svg)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return its exit code."""
    console = import_extra("rich.console", "cli").Console(highlight=False)
    if args.plot is not None:
        check_picture(args.plot)
    for path in (args.json, args.plot):
        if path is not None:
            check_target(path)
    product = Product.parse(args.product)
    cores = args.cores or product.default_core_num
    if cores is None:
        raise CliError(f"--cores must be given: {product.value} has no default")
    options: dict[str, Any] = {
        "grad_dtype": args.grad_dtype,
        "indices_dtype": args.indices_dtype,
        "padding_idx": args.padding_idx,
        "scale_grad_by_freq": args.scale_grad_by_freq,
        "product": product,
    }
    with console.status("counting look-ups"):
        indices = _look_ups(args)
        both = compare_splits(indices, args.num_weights, cores, args.embedding_dim, **options)
        sweep = None
        swept = args.sweep or (plotted_cores(cores) if args.plot else None)
        if swept:
            sweep = sweep_cores(indices, args.num_weights, swept, args.embedding_dim, **options)
    listed = SPLITS if args.split == "both" else (args.split,)
    print_simulation(console, both, listed)
    if sweep is not None and args.sweep:
        print_sweep(console, sweep)
    if args.json is not None:
        _write_json(args.json, both, sweep if args.sweep else None)
        console.print(f"figures written to {args.json}", soft_wrap=True)
    if args.plot is not None and sweep is not None:
        from numba_embed.plots import plot_simulation

        write_picture(args.plot, plot_simulation(both, sweep))
        console.print(f"picture written to {args.plot}", soft_wrap=True)
    return 0


def core_counts(text: str) -> list[int]:
    """Parse ``FROM:TO``, ``FROM:TO:STEP`` (both ends included) or ``A,B,C``; an argparse type."""
    several: Sequence[int]
    try:
        if ":" in text:
            first, last, *rest = (int(part) for part in text.split(":"))
            step = rest[0] if rest else 1
            if len(rest) > 1 or step < 1:
                raise ValueError
            # Cut where the sum is too large anyway.
            several = range(first, min(last, first + step * 8192) + 1, step)
        else:
            several = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected core counts as FROM:TO, FROM:TO:STEP or A,B,C, got {text!r}"
        ) from None
    if not several or min(several) < 1:
        raise argparse.ArgumentTypeError(f"expected core counts of 1 and above, got {text!r}")
    if sum(several) > _MOST_SWEPT:
        raise argparse.ArgumentTypeError(
            f"expected core counts that add up to at most {_MOST_SWEPT}, got {text!r}"
        )
    return list(several)


def plotted_cores(cores: int) -> list[int]:
    """Return the core counts of a picture's curve, when none are asked for."""
    most = max(64, cores)
    if most <= 256:
        return list(range(1, most + 1))
    spread = np.geomspace(1, most, 128).round().astype(int)
    return sorted({*spread.tolist(), cores})


def _look_ups(args: argparse.Namespace) -> NDArray[Any]:
    if args.zipf is not None:
        return zipf_indices(args.zipf, args.count, args.num_weights, args.seed)
    return read_array(args.indices)


def read_array(path: Path) -> NDArray[Any]:
    """Return the array of an .npy file, mapped into memory.

    Raises
    ------
    CliError
        The file cannot be read, or holds something else.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC_PREFIX))
        if start != MAGIC_PREFIX:
            # NumPy would take it for a pickle, or for an archive of several arrays.
            raise CliError(f"{path} is no .npy file")
        try:
            found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError:  # an array of size 0 cannot be mapped
            found = np.load(path, allow_pickle=False)
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise CliError(f"{path} is no .npy file of numbers: {reason}") from None
    return found


def _write_json(path: Path, both: Mapping[Split, CoreSimulation], sweep: CoreSweep | None) -> None:
    content: dict[str, Any] = {"splits": {split: found.to_dict() for split, found in both.items()}}
    if sweep is not None:
        content["sweep"] = sweep.to_dict()
    with whole_file(path) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")
