"""A training step of ``nn.Embedding``: what the memory of a gradient costs those that read it.

A fresh gradient is paid for twice: in the backward pass, which makes it, and where it is read and
written after that, page by page, if its pages were not made before. So the whole step counts:
backward, ``clip_grad_norm_``, SGD. Contenders take turns; a sample is the second of two steps.
Their gradients are compared with float64 sums before anything is timed.
``python benchmarks/training_step.py`` takes two minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

from numba_embed.bench.cases import CASES, Case
from numba_embed.bench.reference import Reference
from numba_embed.bench.timing import SETTLE_SECONDS
from numba_embed.cli_support import CliError, import_extra, integer
from numba_embed.runtime import available_threads

NAMES = ("lm", "lm bfloat16", "rec", "w2v")
IDLE_BYTES = 1 << 30


def contenders() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Return what to time: names, and the block in which a step runs."""
    from numba_embed.torch import enabled

    return {
        "torch": nullcontext,
        "fresh": enabled,
        "reused": lambda: enabled(reuse_outputs=IDLE_BYTES),
    }


def measure(case: Case, rounds: int) -> dict[str, dict[str, float]]:
    """Return each contender's median seconds: of the backward pass, of the rest, of both."""
    torch: Any = import_extra("torch", "torch")
    torch.set_num_threads(available_threads())
    operands = case.make()
    indices = torch.from_numpy(operands.indices)
    dtype = getattr(torch, case.dtype)
    gradient = torch.from_numpy(operands.grad.view(np.uint8)).view(dtype)
    table = torch.nn.Embedding(case.V, case.D, dtype=dtype)
    optimizer = torch.optim.SGD(table.parameters(), lr=1e-3)

    def step() -> tuple[float, float]:
        optimizer.zero_grad()
        found = table(indices)
        start = perf_counter()
        found.backward(gradient)
        middle = perf_counter()
        torch.nn.utils.clip_grad_norm_(table.parameters(), 1.0)
        optimizer.step()
        return middle - start, perf_counter() - middle

    reference = Reference(case, operands)
    for name, block in contenders().items():
        with block():
            optimizer.zero_grad()
            table(indices).backward(gradient)
        bits = table.weight.grad.view(torch.uint8).numpy().view(case.numpy_dtype)
        wrong = reference.problem(bits, exact=name != "torch")
        del bits  # which would keep a gradient alive
        if wrong is not None:
            raise CliError(f"{name} on {case.name}: {wrong}")
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders()}
    for _ in range(rounds):
        for name, block in contenders().items():
            with block():
                step()
                sleep(SETTLE_SECONDS)
                samples[name].append(step())
                optimizer.zero_grad()
    return {
        name: {
            "backward": median(first for first, _ in taken),
            "rest": median(second for _, second in taken),
            "step": median(map(sum, taken)),
        }
        for name, taken in samples.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=integer(1), default=11, metavar="N")
    parser.add_argument("--only", metavar="NAME", help="cases whose name contains this")
    args = parser.parse_args(argv)
    wanted = args.only or ""
    chosen = [case for case in CASES if case.name in NAMES and wanted in case.name]
    try:
        if not chosen:
            raise CliError(f"no case is called like {wanted!r}; they are {', '.join(NAMES)}")
        table = import_extra("rich.table", "cli").Table(
            title="Step of nn.Embedding (backward; clipping and SGD), median milliseconds"
        )
        table.add_column("case")
        for name in contenders():
            table.add_column(name, justify="right")
        table.add_column("torch / fresh", justify="right")
        for case in chosen:
            found = measure(case, args.repeat)
            cells = (
                "{step:.1f} ({backward:.1f}; {rest:.1f})".format(
                    **{part: seconds * 1e3 for part, seconds in times.items()}
                )
                for times in found.values()
            )
            gain = found["torch"]["step"] / found["fresh"]["step"]
            table.add_row(case.name, *cells, f"{gain:.2f}x")
        import_extra("rich.console", "cli").Console(width=120).print(table)
    except (CliError, ModuleNotFoundError) as error:
        print(f"training_step.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
