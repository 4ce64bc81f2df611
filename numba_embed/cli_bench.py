"""``numba-embed bench``: time the library beside everything else that computes this gradient."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from numba_embed.cli_support import (
    CliError,
    check_picture,
    check_target,
    file_name,
    import_extra,
    integer,
    write_picture,
)

PEER_NAMES = ("torch", "index_add", "scipy", "add_at", "jax", "tensorflow")
STANDARD_OUTPUT = Path("-")


def add_parser(subparsers: Any) -> None:
    """Add the command to ``numba-embed``."""
    parser = subparsers.add_parser(
        "bench",
        help="time the library beside its peers and the memory limit",
        description=(
            "Time the library on a set of workloads, in turn with the peers that are installed, in "
            "one process and with the same number of threads. Every result is checked before any "
            "is timed. The memory limit of a workload is (gradient + index bytes) / read bandwidth "
            "+ output bytes / store bandwidth, both measured in the same run."
        ),
    )
    parser.add_argument(
        "--filter",
        metavar="NAMES",
        help="run the cases with these names, or whose names contain them: lm,rec,hot",
    )
    parser.add_argument(
        "--peers",
        type=peer_names,
        default=list(PEER_NAMES),
        metavar="NAMES",
        help=f"compare with these: {','.join(PEER_NAMES)} (default: all of them), or none",
    )
    parser.add_argument(
        "--repeat",
        type=integer(1),
        default=11,
        metavar="N",
        help="samples of each contender, of which the median counts (default: %(default)s)",
    )
    parser.add_argument(
        "--touch",
        type=integer(0),
        default=0,
        metavar="GIB",
        help="before each round of a case with a large result, touch and free so much memory: "
        "otherwise, on a virtual machine that returns free memory to its host, the time of a fresh "
        "result includes waiting for that memory to come back (default: 0)",
    )
    parser.add_argument(
        "--json",
        type=file_name,
        nargs="?",
        const=STANDARD_OUTPUT,
        metavar="FILE",
        help="write all figures and samples there; to standard output, in place of the table, "
        "when no file is named",
    )
    parser.add_argument(
        "--plot", type=file_name, metavar="FILE.png", help="draw the ratios there (or .pdf, .svg)"
    )
    parser.set_defaults(run=run)


def peer_names(text: str) -> list[str]:
    """Parse a comma-separated list of peers, or ``none``; an argparse type."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if names == ["none"]:
        return []
    unknown = [name for name in names if name not in PEER_NAMES]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"expected none or some of {','.join(PEER_NAMES)}, got {text!r}"
        )
    return [name for name in PEER_NAMES if name in names]


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return its exit code."""
    consoles = import_extra("rich.console", "bench")
    progress = import_extra("rich.progress", "bench")
    if args.plot is not None:
        check_picture(args.plot)
    for path in (args.json, args.plot):
        if path is not None and path != STANDARD_OUTPUT:
            check_target(path)

    from numba_embed.bench.cases import CASES, select

    cases = select(args.filter)
    if not cases:
        names = ", ".join(case.name for case in CASES)
        raise CliError(f"no case matches {args.filter!r}; the cases are: {names}")
    if any(case.dtype == "bfloat16" for case in cases):
        import_extra("ml_dtypes", "bench")

    from numba_embed.bench import compare, machine
    from numba_embed.bench.files import write
    from numba_embed.bench.peers import PEERS
    from numba_embed.bench.reference import WrongResultError
    from numba_embed.bench.report import print_table

    touch_bytes, memory = args.touch << 30, machine.memory_bytes()
    if touch_bytes > memory // 2:
        raise CliError(
            f"--touch must be at most half of the memory, {memory >> 31} GiB, got {args.touch}"
        )
    errors = consoles.Console(stderr=True, highlight=False)
    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
        refresh_per_second=1,  # drawing takes time from what is measured
    ) as bar:
        task = bar.add_task("starting", total=len(cases))
        begun = 0

        def report(case: Any) -> None:
            nonlocal begun
            bar.update(task, description=case.name, completed=begun)
            begun += 1

        try:
            figures = compare.run(
                cases,
                [peer for peer in PEERS if peer.name in args.peers],
                rounds=args.repeat,
                touch_bytes=touch_bytes,
                command=command_line(args),
                progress=report,
            )
        except WrongResultError as error:
            print(f"numba-embed bench: wrong result: {error}", file=sys.stderr)
            return 1

    if args.json == STANDARD_OUTPUT:
        print(json.dumps(figures, indent=1))
    else:
        # A pipe has no width: give the table the one that it needs.
        console = consoles.Console(highlight=False)
        if not console.is_terminal:
            console = consoles.Console(highlight=False, width=240)
        print_table(console, figures)
        if args.json is not None:
            write(args.json, figures)
            console.print(f"figures written to {args.json}", soft_wrap=True)
    if args.plot is not None:
        from numba_embed.bench.plots import plot_ratios

        write_picture(args.plot, plot_ratios(figures))
        errors.print(f"picture written to {args.plot}", soft_wrap=True)
    return 0


def command_line(args: argparse.Namespace) -> str:
    """Return the command that makes these figures again; where they are written does not matter."""
    words = ["numba-embed", "bench"]
    if args.filter is not None:
        words += ["--filter", args.filter]
    if args.peers != list(PEER_NAMES):
        words += ["--peers", ",".join(args.peers) or "none"]
    words += ["--repeat", str(args.repeat)]
    if args.touch:
        words += ["--touch", str(args.touch)]
    return shlex.join([*words, "--json", "results.json"])
