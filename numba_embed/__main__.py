"""``python -m numba_embed`` is the command ``numba-embed``."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

INTERRUPTED = 130
"""What a shell reports for a process ended by Ctrl-C: 128 + SIGINT."""


def entry() -> "NoReturn":
    """Run the process's command and end the process."""
    try:
        # Not above: an interrupt while modules are imported must find somebody who answers it.
        import signal

        from numba_embed.cli import main
    except KeyboardInterrupt:
        print("numba-embed: interrupted", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)
    sys.unraisablehook = _without_interrupts
    try:
        code = main()
    except KeyboardInterrupt:  # a second one, while main answered the first
        code = INTERRUPTED
    # Whatever else the interpreter does in the end, Ctrl-C ends it at once and without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if code == INTERRUPTED:
        # The compiler's orderly end takes a second, and nothing is left for it to save.
        os._exit(code)
    sys.exit(code)


def _without_interrupts(unraisable: "Any") -> None:
    """Report what was raised where nobody can catch it, but for a Ctrl-C: that is answered."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    entry()
