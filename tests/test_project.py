"""The files around the code agree: one version, commands that exist, a workflow that can run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import numba_embed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]


def text(name: str) -> str:
    """Read a file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    """Read pyproject.toml."""
    return tomllib.loads(text("pyproject.toml"))


def sessions() -> set[str]:
    """Return the names of the nox file's sessions, without starting nox."""
    heads = re.finditer(r"^@nox\.session.*\n(?:@.*\n)*def (\w+)", text("noxfile.py"), re.MULTILINE)
    return {head[1] for head in heads}


class TestVersion:
    def test_the_version_stands_in_one_place(self) -> None:
        assert project()["project"]["dynamic"] == ["version"]
        assert f"\nversion: {numba_embed.__version__}\n" in text("CITATION.cff")

    def test_the_citation_is_well_formed(self) -> None:
        citation = yaml.safe_load(text("CITATION.cff"))
        assert {"cff-version", "message", "title", "authors", "version"} <= set(citation)

    def test_the_changelog_begins_with_this_version(self) -> None:
        first = re.search(r"^## (.*)$", text("CHANGELOG.md"), re.MULTILINE)
        assert first is not None
        assert first[1].startswith(f"{numba_embed.__version__} ")


class TestReadme:
    def test_the_readme_has_its_two_commands(self) -> None:
        for name, ending in (("demo", "&& numba-embed demo"), ("test", "&& pytest")):
            command = subprocess.run(
                [sys.executable, str(ROOT / "tools" / "readme_command.py"), name],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            assert "pip install" in command
            assert command.endswith(ending)

    def test_the_requirements_of_extras_are_those_of_the_project(self) -> None:
        extras = project()["project"]["optional-dependencies"]
        tool = [sys.executable, str(ROOT / "tools" / "requirements.py")]
        done = subprocess.run([*tool, "lint", "docs"], check=True, capture_output=True, text=True)
        assert done.stdout.splitlines() == [*extras["lint"], *extras["docs"]]
        wrong = subprocess.run([*tool, "lynt"], capture_output=True, text=True, check=False)
        assert wrong.returncode == 1
        assert wrong.stderr.strip().endswith("pyproject.toml has no extra 'lynt'")

    @pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/design.md"])
    def test_linked_files_exist(self, name: str) -> None:
        folder = (ROOT / name).parent
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text(name)):
            assert (folder / target).exists(), target

    def test_the_design_page_names_every_module(self) -> None:
        page = text("docs/design.md")
        package = ROOT / "numba_embed"
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package)
            if path.name.startswith("_") and path.name != "_version.py":
                continue
            told = path.name in page or (f"{name.parts[0]}/" in page and len(name.parts) > 1)
            assert told, f"docs/design.md does not mention {name}"

    def test_the_design_page_names_no_module_that_is_gone(self) -> None:
        modules = {path.name for path in ROOT.rglob("*.py")}
        for name in set(re.findall(r"\b(\w+\.py)\b", text("docs/design.md"))):
            assert name in modules, name


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    """Give the jobs of the workflow."""
    workflow = yaml.safe_load(text(".github/workflows/ci.yml"))
    assert workflow[True], "`on:` reads as the YAML word for true"
    found: dict[str, Any] = workflow["jobs"]
    return found


class TestWorkflow:
    def test_every_command_exists(self, jobs: dict[str, Any]) -> None:
        """A step installs what it runs, or runs a file of the project or a session of nox."""
        for name, job in jobs.items():
            commands = [step["run"] for step in job["steps"] if "run" in step]
            assert commands, name
            assert job["timeout-minutes"] > 0
            for command in commands:
                first, *rest = command.split()
                if first == "bash":
                    assert (ROOT / rest[0]).is_file(), command
                elif first == "nox":
                    assert "python -m pip install nox" in commands
                    session = rest[rest.index("-s") + 1].strip('"').partition("-")[0]
                    if not session.startswith("${{"):
                        assert session in sessions(), command
                else:
                    assert command == "python -m pip install nox", command

    def test_the_matrix_is_that_of_the_nox_file(self, jobs: dict[str, Any]) -> None:
        matrix = jobs["matrix"]["strategy"]["matrix"]
        assert matrix["python"] == PYTHONS
        assert set(matrix["session"]) <= sessions()
        assert {entry["session"] for entry in matrix["include"]} <= sessions()
        named = re.search(r"^PYTHONS = (.*)$", text("noxfile.py"), re.MULTILINE)
        assert named is not None
        assert re.findall(r"[\d.]+", named[1]) == PYTHONS

    def test_the_classifiers_are_those_pythons(self) -> None:
        found = [c.rpartition(" ")[2] for c in project()["project"]["classifiers"]]
        assert [version for version in found if re.fullmatch(r"3\.\d+", version)] == PYTHONS
