"""``numba-embed warmup``: compile the kernels now, so that no later first call waits for it."""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

from numba_embed.cli_support import CliError, import_extra

FORMATS = ("float16", "bfloat16", "float32", "float64")
INDEX_DTYPES = ("int64", "int32")


def add_parser(subparsers: Any) -> None:
    """Add the command to ``numba-embed``."""
    parser = subparsers.add_parser(
        "warmup",
        help="compile kernels ahead, into the cache on disk",
        description=(
            "Compile the kernels for the given dtypes into the cache on disk, where later "
            "processes find them: with one thread and with several. What is there already is "
            "only loaded."
        ),
    )
    parser.add_argument(
        "--formats",
        nargs="+",
        choices=FORMATS,
        default=["float32"],
        metavar="DTYPE",
        help=f"of gradient and output: {', '.join(FORMATS)} (default: float32)",
    )
    parser.add_argument(
        "--indices",
        nargs="+",
        choices=INDEX_DTYPES,
        default=["int64"],
        metavar="DTYPE",
        help="of the indices: int32, or int64, which serves the other integers too (default)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return its exit code."""
    console = import_extra("rich.console", "cli").Console(highlight=False)
    progress = import_extra("rich.progress", "cli")
    from numba_embed.warmup import cache_info, warmup

    directory, _ = cache_info()
    if directory is None:
        raise CliError("no cache directory is writable: name one in NUMBA_CACHE_DIR")
    if "bfloat16" in args.formats:
        import_extra("ml_dtypes", "test")

    start = perf_counter()
    with progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        done: list[str] = []
        task = bar.add_task("")
        began = start

        def report(label: str) -> None:
            nonlocal began
            if done:
                console.print(f"{done[-1]}: {perf_counter() - began:.1f} s")
            done.append(label)
            began = perf_counter()
            bar.update(task, description=label)

        warmup(args.formats, args.indices, report)
        report("")
    _, files = cache_info()
    print(f"{perf_counter() - start:.1f} s; {files} compiled kernels in {directory}")
    return 0
