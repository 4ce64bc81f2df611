"""A language model trained with the backend on and off: one course of losses, bits that repeat."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from torch_checks import Calls, backend, torch

pytest_plugins = ["torch_fixtures"]
pytestmark = pytest.mark.usefixtures("switched_off")

VOCABULARY, WIDTH, BATCH, LENGTH, STEPS = 30_000, 32, 8, 64, 4


def text() -> Any:
    """Draw token numbers with the frequencies of words."""
    random = np.random.default_rng(0)
    draw = np.minimum(random.zipf(1.2, STEPS * BATCH * (LENGTH + 1)), VOCABULARY) - 1
    return torch.from_numpy(draw).view(STEPS, BATCH, LENGTH + 1)


def train(dtype: Any = torch.float32) -> tuple[list[float], Any]:
    """Train from one seed; return the losses and the trained table."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(VOCABULARY, WIDTH, padding_idx=0, dtype=dtype)
    layer = torch.nn.GRU(WIDTH, WIDTH, batch_first=True, dtype=dtype)
    head = torch.nn.Linear(WIDTH, 500, dtype=dtype)
    parameters = [*table.parameters(), *layer.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    losses = []
    for tokens in text():
        optimizer.zero_grad(set_to_none=True)
        logits = head(layer(table(tokens[:, :-1]))[0])
        target = tokens[:, 1:].clamp(max=499)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, table.weight.detach()


def test_losses_agree_and_runs_repeat_to_the_bit(calls: Calls) -> None:
    """With one thread for torch's own layers, and one or all for the sums: one result."""
    before, mask = torch.get_num_threads(), numba.get_num_threads()
    try:
        torch.set_num_threads(1)
        off, _ = train()
        assert not calls
        runs = []
        for options in ({}, {}, {"reuse_outputs": 1 << 28}):
            with backend.enabled(**options):
                runs.append(train())
        torch.set_num_threads(mask)
        for threads in (1, mask, mask):
            numba.set_num_threads(threads)
            with backend.enabled():
                runs.append(train())
    finally:
        torch.set_num_threads(before)
        numba.set_num_threads(mask)
    assert len(calls) == 6 * STEPS
    assert off[-1] < off[0]
    np.testing.assert_allclose(runs[0][0], off, rtol=1e-5)
    for alike in (runs[:3], runs[3:]):
        for losses, table in alike:
            assert losses == alike[0][0]
            assert torch.equal(table, alike[0][1])
