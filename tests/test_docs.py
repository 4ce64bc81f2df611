"""Every code block of the README and the documentation runs, and every docstring's example."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

RunPython = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(
    r"(?:<!-- (?P<mark>command|not executed): (?P<why>.*?) -->\s*)?"
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)

DRIVER = """
import json, subprocess, sys
namespace = {"__name__": "page"}
for language, where, code in json.loads(sys.argv[1]):
    if language == "python":
        exec(compile(code, where, "exec"), namespace)
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
"""
"""Runs the blocks of a page in order: Python in one namespace, the rest in a shell."""

# What a page's blocks leave behind, compared with what they should have computed.
AFTERWARDS = {
    "README.md": """
expected = np.zeros((50_000, 64), dtype=np.float32)
np.add.at(expected, indices, grad)
expected[0] = 0
np.testing.assert_allclose(table_grad, expected, rtol=1e-6, atol=1e-6)
""",
}


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return language, place and text of a page's blocks that are to be executed."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        if match["mark"] is None and match["language"] in ("python", "sh"):
            line = text.count("\n", 0, match.start("code"))
            # Empty lines in front, so that a traceback names the line of the page.
            code = "\n" * line + match["code"] if match["language"] == "python" else match["code"]
            found.append((match["language"], str(page.relative_to(ROOT)), code))
    return found


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the commands that the pages call."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in (("numba-embed", " -m numba_embed"), ("python", "")):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
        path.chmod(0o755)
    return folder


@pytest.mark.skipif(shutil.which("bash") is None, reason="the pages' commands need a shell")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda p: p.name)
def test_the_blocks_of_a_page_run(
    page: Path, run_python: RunPython, commands: Path, tmp_path: Path
) -> None:
    found = blocks(page)
    if any(re.search(r"^\s*import.*\btorch$", code, re.MULTILINE) for _, _, code in found):
        pytest.importorskip("torch")
    name = str(page.relative_to(ROOT))
    found.append(("python", f"after {name}", AFTERWARDS.get(name, "")))
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    # What torchrun tells a rank: pages on process groups run as a group of one.
    group = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    chdir = f"import os; os.chdir({str(tmp_path)!r})\n"
    run_python(chdir + DRIVER, json.dumps(found), PATH=path, **group)


def test_blocks_that_do_not_run_are_few() -> None:
    marked = [
        match["why"]
        for page in PAGES
        for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if match["mark"] == "not executed"
    ]
    assert all(len(reason) > 10 for reason in marked)
    assert len(marked) <= 6


def test_the_pages_that_run_are_found() -> None:
    names = {page.name for page in PAGES if blocks(page)}
    assert names >= {"README.md", "index.md", "semantics.md", "numerics.md", "threads.md"}


def documented_modules() -> list[str]:
    """Return the names of the modules whose docstrings hold examples."""
    package = ROOT / "numba_embed"
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(package.rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", documented_modules())
def test_the_examples_of_docstrings(name: str) -> None:
    if name.startswith("numba_embed.torch"):
        pytest.importorskip("torch")
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed


def test_the_start_page_has_the_commands_of_the_readme() -> None:
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for name in ("demo", "test"):
        command = subprocess.run(
            [sys.executable, str(ROOT / "tools" / "readme_command.py"), name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert f"```sh\n{command}```" in start


def test_every_public_name_is_in_the_reference() -> None:
    import numba_embed
    from numba_embed import aclnn

    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.md")]
    reference = "\n".join(pages)
    names = {*numba_embed.__all__, *aclnn.__all__} - {"__version__"}
    names |= {"enable", "disable", "enabled", "is_enabled", "embedding", "EmbeddingBag"}
    modules = "numba_embed.errors" in reference
    errors = {name for name in names if name.startswith("Embed") and name.endswith("Error")}
    assert modules
    missing = {n for n in names - errors if not re.search(rf"(?<!\w){n}(?!\w)", reference)}
    assert not missing


@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="needs the extra docs")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        # not --quiet: what is not said is not counted either, and --strict sees no warning
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "reference" / "operator.html").is_file()
