"""Break a copy of the package on purpose, one line at a time: the suite must fail every time.

    python tools/mutants.py              all of them
    python tools/mutants.py NAME ...     some
    python tools/mutants.py --list       their names

A mutant that the suite lets pass is a hole in the suite: exit code 1. So is an unbroken copy that
fails. A pattern that does not occur exactly once, or a mutant that does not even compile, is a
mistake in `mutant_list.py` or `mutant_list_larger.py`: exit code 2.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import mutant_list
import mutant_list_larger
from mutant_list import Mutant

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "numba_embed"
MUTANTS = [*mutant_list.MUTANTS, *mutant_list_larger.MUTANTS]
HANGS_AFTER = 900
"""Seconds after which a run counts as hanging, and so as noticed."""

NOT_COMPILED = re.compile(
    r"(TypingError|LoweringError|UnsupportedError|LLVM IR parsing error|SyntaxError|NameError"
    r"|ImportError|ModuleNotFoundError)\b"
)


class MistakeError(Exception):
    """The list of mutants does not fit the sources."""


def make_copy(place: Path) -> None:
    """Copy what the suite needs, without anything compiled."""
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in (PACKAGE, "tests"):
        shutil.copytree(ROOT / folder, place / folder, ignore=ignore)
    shutil.copy2(ROOT / "pyproject.toml", place)


def environment(place: Path) -> dict[str, str]:
    """Make the copy the package that is imported; its tests choose their own kernel cache."""
    variables = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    variables.pop("NUMBA_CACHE_DIR", None)
    return variables


def check_import(place: Path) -> None:
    """Make sure that the copy, and no installed package, is what the tests meet."""
    code = f"import {PACKAGE}; print({PACKAGE}.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not Path(found).resolve().is_relative_to(place.resolve()):
        raise MistakeError(f"the tests would import {found}, not the copy in {place}")


def run_tests(place: Path, tests: Sequence[str]) -> tuple[int | None, str]:
    """Run tests on the copy until the first failure; the code is None where they hang."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=environment(place),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=HANGS_AFTER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, "no end"
    return done.returncode, done.stdout


def mutated(mutant: Mutant, text: str) -> str:
    """Return the file's text with the one line broken."""
    times = text.count(mutant.before)
    if times != 1:
        raise MistakeError(
            f"{mutant.name}: the pattern occurs {times} times in {mutant.file}, not once:\n"
            f"{mutant.before}"
        )
    if mutant.before == mutant.after:
        raise MistakeError(f"{mutant.name}: the replacement changes nothing")
    return text.replace(mutant.before, mutant.after)


def verdict(mutant: Mutant, code: int | None, output: str) -> str | None:
    """Say how the suite noticed, or return None if it did not.

    Raises
    ------
    MistakeError
        If the run says nothing about the mutant.
    """
    if code == 0:
        return None
    if code is None:
        return "hangs"
    if NOT_COMPILED.search(output):
        raise MistakeError(f"{mutant.name} does not compile:\n{output[-3000:]}")
    if code == 1:
        failed = re.search(r"^(?:FAILED|ERROR) \S*?([^/\s]+::\S+)", output, re.MULTILINE)
        if not failed:
            raise MistakeError(f"{mutant.name}: no test failed:\n{output[-3000:]}")
        return failed[1]
    if code < 0 or code > 128:
        return f"crashes (exit code {code})"
    raise MistakeError(f"{mutant.name}: pytest could not run ({code}):\n{output[-3000:]}")


def try_mutant(mutant: Mutant, place: Path) -> str | None:
    """Break the copy, run the mutant's tests, and mend the copy.

    Nothing but the one file changes, so that kernels which it does not touch stay compiled.
    """
    file = place / PACKAGE / mutant.file
    times, original = file.stat(), file.read_text(encoding="utf-8")
    file.write_text(mutated(mutant, original), encoding="utf-8")
    try:
        return verdict(mutant, *run_tests(place, mutant.tests))
    finally:
        file.write_text(original, encoding="utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def chosen(names: Sequence[str]) -> list[Mutant]:
    """Return the mutants of these names, all without any."""
    known = {mutant.name: mutant for mutant in MUTANTS}
    if len(known) != len(MUTANTS):
        raise MistakeError("two mutants have one name")
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise MistakeError(f"no such mutant: {', '.join(unknown)}")
    return [known[name] for name in names] if names else list(MUTANTS)


def run(mutants: Sequence[Mutant], place: Path) -> list[str]:
    """Run the unbroken copy and then every mutant; return the names of the survivors."""
    make_copy(place)
    check_import(place)
    for mutant in mutants:  # all patterns first: a stale one is known at once
        mutated(mutant, (place / PACKAGE / mutant.file).read_text(encoding="utf-8"))
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    began = time.monotonic()
    code, output = run_tests(place, tests)
    if code != 0:
        print(output[-5000:])
        return ["the unbroken copy fails"]
    print(f"{'(unbroken)':32} passes   {time.monotonic() - began:5.0f} s", flush=True)
    survivors = []
    for mutant in mutants:
        began = time.monotonic()
        noticed = try_mutant(mutant, place)
        if noticed is None:
            survivors.append(mutant.name)
        state = "SURVIVES" if noticed is None else "killed  "
        print(
            f"{mutant.name:32} {state} {time.monotonic() - began:5.0f} s  {noticed or mutant.what}",
            flush=True,
        )
    return survivors


def main() -> int:
    """Run the mutants named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run (default: all)")
    parser.add_argument("--list", action="store_true", help="name the mutants and what they break")
    options = parser.parse_args()
    try:
        mutants = chosen(options.names)
        if options.list:
            for mutant in mutants:
                print(f"{mutant.name:32} {mutant.what}")
            return 0
        with tempfile.TemporaryDirectory(prefix="mutants-") as place:
            survivors = run(mutants, Path(place).resolve())
    except MistakeError as mistake:
        print(f"mistake: {mistake}", file=sys.stderr)
        return 2
    if survivors:
        print(f"{len(survivors)} unnoticed: {', '.join(survivors)}")
        return 1
    print(f"all {len(mutants)} noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
