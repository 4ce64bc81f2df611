"""Tables that are split among processes: real process groups, on loopback, started by torchrun."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_checks import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

TESTS = Path(__file__).resolve().parent
JOBS = TESTS / "distributed_jobs.py"
FAULTS = TESTS / "distributed_faults.py"
EXAMPLE = TESTS.parent / "examples" / "torch_sharded_language_model.py"

# Read, not imported: in this process nothing is to be registered for a group.
CHECKS = [
    node.name
    for file in (JOBS, FAULTS)
    for node in ast.parse(file.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef)
    and any(isinstance(mark, ast.Name) and mark.id == "check" for mark in node.decorator_list)
]


VALUES = [
    "integers_give_the_bits_of_one_process",
    "other_gradients_agree_to_one_ulp",
    "sums_are_wide",
    "traffic_is_by_distinct_rows",
]


def torchrun(package: Path, processes: int, *command: str) -> str:
    """Run a script in so many processes, and give what they printed."""
    environment = {**os.environ, "PYTHONPATH": f"{package.parent}{os.pathsep}{TESTS}"}
    environment["OMP_NUM_THREADS"] = "1"
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    launch = f"-m torch.distributed.run --standalone --nproc-per-node {processes}".split()
    done = subprocess.run(
        [sys.executable, *launch, *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,  # turns a hang into a failure; cold kernels are compiled meanwhile
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module", params=[2, 4])
def results(
    request: pytest.FixtureRequest, package_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, str]]:
    """Run all checks in 2 or 4 processes; give what came of each check, by rank."""
    folder = tmp_path_factory.mktemp("ranks")
    torchrun(package_dir, request.param, str(JOBS), str(folder))
    return [
        json.loads((folder / f"{rank}.json").read_text(encoding="utf-8"))
        for rank in range(request.param)
    ]


@pytest.mark.parametrize("name", CHECKS)
def test_ranks(results: list[dict[str, str]], name: str) -> None:
    for rank, result in enumerate(results):
        assert name in result, f"rank {rank} did not come to it"
        assert not result[name], f"rank {rank}:\n{result[name]}"


@pytest.mark.parametrize("world", [1, 3])
def test_values_in_other_worlds(package_dir: Path, tmp_path: Path, world: int) -> None:
    """Checks of values that the two worlds above run among others."""
    torchrun(package_dir, world, str(JOBS), str(tmp_path), *VALUES)
    for rank in range(world):
        result = json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8"))
        assert result == dict.fromkeys(VALUES, ""), f"rank {rank}"


PARTING = """
import gc, glob, os
import torch, torch.distributed as dist
from numba_embed.distributed import ShardedEmbedding

def threads():
    names = (open(task).read() for task in glob.glob("/proc/self/task/*/comm"))
    return sum("gloo" in name for name in names)

def step():
    table = ShardedEmbedding(10, 2)
    body = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    body(table(torch.tensor([1, 3]))).sum().backward()
    dist.all_reduce(torch.ones(3))

os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
assert threads() > 0
step()
gc.collect()
dist.destroy_process_group()
assert threads() == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads' names are read from /proc")
def test_no_thread_outlives_the_group(run_python: Callable[..., Any]) -> None:
    """One that does may abort the process while its interpreter ends."""
    run_python(PARTING)


def test_there_are_checks() -> None:
    assert {"a_dead_rank", "a_hung_rank", "traffic_is_by_distinct_rows"} <= set(CHECKS)
    assert CHECKS[-1] == "a_dead_rank"


def test_shards_are_checked() -> None:
    from numba_embed.distributed import reshard

    parts = [torch.arange(6).reshape(3, 2), torch.empty(0, 2, dtype=torch.int64)]
    parts.append(torch.arange(6, 10).reshape(2, 2))
    whole = torch.arange(10).reshape(5, 2)
    for start in range(6):
        for stop in range(start, 6):
            assert torch.equal(reshard(parts, range(start, stop)), whole[start:stop])
    for shards, rows, said in (
        ([], range(0), "at least one tensor"),
        ([parts[0], [1]], range(1), "at least one tensor"),
        ([parts[0], parts[0].float()], range(1), "in shard 1, torch.float32"),
        ([parts[0], parts[0].flatten()], range(1), r"in shard 1, \(6,\)"),
        (parts, range(3, 6), "within the 5 rows"),
        (parts, range(0, 4, 2), "within the 5 rows"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            reshard(shards, rows)


def test_without_a_group_or_torch(run_python: Callable[..., Any]) -> None:
    said = "call torch.distributed.init_process_group"
    run_python(
        "import numba_embed.distributed as d\n"
        "try:\n    d.ShardedEmbedding(2, 2)\n"
        f"except d.RankError as error:\n    assert {said!r} in str(error)\n"
        "else:\n    raise SystemExit('no error')\n"
    )
    done = run_python(
        "import sys\nsys.modules['torch'] = None\nimport numba_embed.distributed\n", check=False
    )
    assert done.returncode == 1
    assert "numba_embed.distributed needs PyTorch" in done.stderr
    assert "pip install 'numba-embed[torch]'" in done.stderr


def test_the_sharded_language_model(package_dir: Path, tmp_path: Path) -> None:
    sizes = "--vocabulary 300 --width 8 --batch 3 --length 16 --steps 40 --report 20".split()
    text = tmp_path / "text.txt"
    words = np.random.default_rng(0).zipf(1.3, 4000)
    text.write_text(" ".join(f"word{word % 400}" for word in words), encoding="utf-8")
    printed = torchrun(package_dir, 2, str(EXAMPLE), "--text", str(text), *sizes)
    lines = re.findall(r"replicated: loss (\S+) +sharded: loss (\S+)", printed)
    assert len(lines) == 2
    for replicated, sharded in lines:
        assert float(sharded) == pytest.approx(float(replicated), rel=1e-5)
    assert float(lines[1][1]) < float(lines[0][1])
    sent = re.search(r"table: (\d+) bytes a step, all-reduce of the dense gradient: (\d+)", printed)
    assert sent, printed
    assert 0 < int(sent[1])
    assert int(sent[2]) == 300 * 8 * 4  # 2 (W - 1) / W of the table's bytes, with two ranks
    assert re.search(r"losses: within \d\.\de[-+]\d\d of each other", printed)
