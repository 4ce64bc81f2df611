"""Other threads and processes: matmuls in between, Python threads, forked workers, replicas."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
from torch_checks import torch

Run = Callable[..., Any]

STEP = """
import sys
import torch, numba
import numba_embed.torch as backend

IDS = torch.arange(40_000).mul_(7919).remainder(30_000)

def step(table, layer):
    # matmuls on torch's threads, then the sums on Numba's, and matmuls again
    table.zero_grad(), layer.zero_grad()
    hidden = layer(table(IDS))
    (hidden @ hidden.T[:, :64]).sum().backward()
    return table.weight.grad, layer.weight.grad

def models():
    torch.manual_seed(0)
    return torch.nn.Embedding(30_000, 32), torch.nn.Linear(32, 32)
"""


def test_matmuls_in_between(run_python: Run) -> None:
    """Two thread pools in one process, used in turn: nothing hangs, and no setting changes."""
    run_python(
        STEP + "pair = models()\n"
        "theirs = step(*pair)[0].clone()\n"
        "before = torch.get_num_threads(), numba.get_num_threads()\n"
        "with backend.enabled():\n"
        "    first = step(*pair)[0].clone()\n"
        "    for _ in range(50):\n"
        "        again = step(*pair)[0]\n"
        "    assert torch.equal(again, first)\n"
        "assert before == (torch.get_num_threads(), numba.get_num_threads())\n"
        "torch.testing.assert_close(first, theirs)\n"
    )


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_two_python_threads_train_at_once(run_python: Run, layer: str) -> None:
    run_python(
        STEP + "from concurrent.futures import ThreadPoolExecutor\n"
        "pairs = [models(), models()]\n"
        "def work(pair):\n"
        "    grads = [step(*pair)[0].clone() for _ in range(15)]\n"
        "    assert all(torch.equal(grad, grads[0]) for grad in grads)\n"
        "    return grads[0]\n"
        "with backend.enabled(reuse_outputs=1 << 28), ThreadPoolExecutor(2) as pool:\n"
        "    one, other = pool.map(work, pairs)\n"
        "assert torch.equal(one, other)\n",
        NUMBA_THREADING_LAYER=layer,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_workers_of_a_loader(run_python: Run) -> None:
    """Workers forked after the parallel kernels have run: there the serial ones do the work."""
    done = run_python(
        STEP + "pair = models()\n"
        "class Gradients(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n"
        "        return 4\n"
        "    def __getitem__(self, item):\n"
        "        assert torch.utils.data.get_worker_info() is not None\n"
        "        assert backend.is_enabled()\n"
        "        return step(*pair)[0].clone()\n"
        "with backend.enabled(reuse_outputs=1 << 28):\n"
        "    want = step(*pair)[0].clone()\n"
        "    loader = torch.utils.data.DataLoader(\n"
        "        Gradients(), num_workers=2, multiprocessing_context='fork')\n"
        "    try:\n"
        "        grads = [grad[0] for grad in loader]\n"
        "    except RuntimeError as error:\n"
        "        # Built for other devices too, torch computes no gradient in a forked child.\n"
        "        if 'autograd\\'s threading in combination with fork' not in str(error):\n"
        "            raise\n"
        "        print('no autograd after fork')\n"
        "        sys.exit()\n"
        "    assert len(grads) == 4\n"
        "    assert all(torch.equal(grad, want) for grad in grads)\n"
        "    assert torch.equal(step(*pair)[0], want)\n"
        "    backend.disable()\n"
    )
    if done.stdout:
        pytest.skip(f"this torch: {done.stdout.strip()}")


REPLICA = (
    STEP
    + """
import torch.distributed as dist

rank, port = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = models()
    def forward(self, ids):
        return self.layer(self.table(ids)).pow(2).sum()

def gradient(replicated):
    model = Model().double()
    if replicated:
        outer = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        outer(IDS[rank::2]).backward()
    else:
        ((model(IDS[::2]) + model(IDS[1::2])) / 2).backward()
    return model.table.weight.grad

calls = []
run = backend.backend.dense.dense_backward
def counted(*arguments, **options):
    calls.append(1)
    return run(*arguments, **options)
backend.backend.dense.dense_backward = counted

with backend.enabled(reuse_outputs=1 << 28):
    both = gradient(True)
    assert len(calls) == 1
torch.testing.assert_close(both, gradient(False), rtol=1e-12, atol=1e-14)
dist.barrier()
dist.destroy_process_group()
"""
)


def test_replicas_on_gloo(run_python: Run) -> None:
    """Two processes: the averaged gradient is that of one process with both halves."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    both = (
        "import subprocess, sys\n"
        "code, port = sys.argv[1:]\n"
        "ranks = [subprocess.Popen([sys.executable, '-c', code, str(rank), port])\n"
        "         for rank in range(2)]\n"
        "sys.exit(max(rank.wait() for rank in ranks))\n"
    )
    interface = {} if sys.platform != "linux" else {"GLOO_SOCKET_IFNAME": "lo"}
    run_python(both, REPLICA, port, **interface)
