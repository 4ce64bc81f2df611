"""The command line: ``numba-embed demo | simulate | bench | info | warmup``.

Each command is a module with ``add_parser(subparsers)``, which names the module's
``run(args) -> int``. Whatever a command alone needs is imported when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import threading
from _thread import interrupt_main
from collections.abc import Sequence
from typing import NoReturn

from numba_embed.__main__ import INTERRUPTED
from numba_embed._version import __version__
from numba_embed.cli_support import CliError
from numba_embed.errors import EmbedError

COMMANDS = ("demo", "cli_simulate", "cli_bench", "cli_info", "cli_warmup")
"""Modules, in the order of the help."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: the usage is a ``--help`` away."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="numba-embed",
        description="Embedding gradients on the CPU: parallel, exact, the same bits every time.",
    )
    parser.add_argument("--version", action="version", version=f"numba-embed {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    subparsers.required = True
    for name in COMMANDS:
        importlib.import_module(f"numba_embed.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments after the program's name; by default those of the process.

    Returns
    -------
    int
        0 when the command succeeded; 2 after one line on stderr for bad arguments, unusable files
        and missing extras; 130 after Ctrl-C.
    """
    command = "numba-embed"
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name, or a word of the text, may hold what the terminal's encoding cannot say.
        sys.stdout.reconfigure(errors="backslashreplace")
    usual_hook, sys.unraisablehook = sys.unraisablehook, _interrupt_again
    try:
        args = build_parser().parse_args(argv)
        command += f" {args.command}"
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(f"{command}: interrupted", file=sys.stderr, flush=True)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # whoever read it has left
        return 1
    except (CliError, EmbedError) as error:
        print(f"{command}: error: {error}", file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"{command}: error: {where}{error.strerror or error}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
    except MemoryError as error:
        print(f"{command}: error: not enough memory. {error}", file=sys.stderr)
    finally:
        sys.unraisablehook = usual_hook
    return 2


def _drop_output() -> None:
    """Let what is still buffered for standard output go nowhere: flushing it would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Repeat a Ctrl-C that was lost.

    While LLVM compiles, Python code runs only inside its callbacks, and an exception cannot leave
    those. The next try comes a moment later, when the main thread has left the callback.
    """
    if unraisable.exc_type is KeyboardInterrupt:
        threading.Timer(0.02, interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)
