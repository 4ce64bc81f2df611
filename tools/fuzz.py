"""Call the public functions with anything, for a while: ``python tools/fuzz.py SECONDS [SEED]``.

Invariant: a call returns the result of tests/reference.py, or raises an error of the package's
family with every byte of ``out`` and around it as before. A MemoryError is the one exception, for
sizes beyond the machine's. Anything else ends the run with the smallest example that hypothesis
finds; a crash or a hang of the process ends it with the stack and the seed of the round.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fuzz_checks import Target, outcomes, refusals, spoil_indices, sprinkle
from fuzz_inputs import FORMATS, operands
from fuzz_rows import chunks, row_gradients, row_objects
from reference import assert_same_bits, fast_dense_backward

import numba_embed as ne
from numba_embed import aclnn

ADDRESS_SPACE = 16 << 30
"""Bytes that the process may address: absurd sizes then end in a MemoryError, not in swapping."""

HANG_SECONDS = 1800
ROUND = 200


def check_result(got: Any, arguments: dict[str, Any], target: Target | None, old: Any) -> None:
    """Compare a returned result with the reference."""
    grad, ids = np.asarray(arguments["grad"]), np.asarray(arguments["indices"])
    if isinstance(arguments["grad"], (list, tuple)) and grad.dtype.kind == "i":
        grad = grad.astype(np.float64)
    rows, padding = int(arguments["num_weights"]), arguments["padding_idx"]
    dtype = grad.dtype.newbyteorder("=") if grad.dtype.kind == "f" else grad.dtype
    if target is not None:
        dtype = target.view.dtype
    keep = np.ones(ids.size, bool)
    if arguments["on_invalid"] == "drop":
        flat = ids.reshape(-1)
        with np.errstate(invalid="ignore"):
            keep = (flat >= 0) & (flat < rows) & (flat == np.floor(flat))
    with np.errstate(all="ignore"):
        want = fast_dense_backward(
            grad.reshape(ids.size, grad.shape[-1])[keep],
            ids.reshape(-1)[keep],
            rows,
            None if padding is None else int(padding),
            bool(arguments["scale_grad_by_freq"]),
            out_dtype=dtype,
            old=old if arguments["accumulate"] else None,
        )
    assert_same_bits(np.ascontiguousarray(got), want)
    assert target is None or (got is target.view and target.frame_unchanged())


@st.composite
def functional(draw: Any) -> None:
    """Call the operator, at once or with a plan."""
    grad, ids, rows = draw(operands())
    ids, valid = spoil_indices(draw, ids, rows)
    target = None
    if draw(st.booleans()):
        out_format = grad.dtype.newbyteorder("=") if grad.dtype.kind == "f" else grad.dtype
        if draw(st.booleans()) and draw(st.booleans()):
            out_format = np.dtype(draw(st.sampled_from(FORMATS[2:])))
        target = Target(draw, (rows, grad.shape[-1]), out_format)
        valid = valid and target.view.flags.writeable
    arguments: dict[str, Any] = {
        "grad": grad,
        "indices": ids,
        "num_weights": rows,
        "padding_idx": draw(st.none() | st.integers(-3, rows + 3)),
        "scale_grad_by_freq": draw(st.booleans()),
        "out": None if target is None else target.view,
        "accumulate": target is not None and draw(st.booleans()),
        "on_invalid": draw(st.sampled_from(["raise", "drop"])),
        "core_num": draw(st.sampled_from([None, 1, 3, 64, 2**40, 2**64 - 1])),
        "num_threads": draw(st.sampled_from([None, None, 1])),
        "block_rows": draw(st.sampled_from([None, None, 1, 7, 10**6])),
    }
    intact = sprinkle(draw, arguments)
    old = None if target is None else np.array(target.view)
    call = draw(st.sampled_from([functional_call, planned_call]))
    with refusals(call.__name__, target):
        got = call(arguments)
        own = target if target is not None and arguments["out"] is target.view else None
        if own is None and arguments["out"] is not None:
            return  # a wild output: that the call ended well is all there is to say
        check_result(got, arguments, own, old)
        return
    assert not (intact and valid), f"a legal call was refused: {arguments}"


def functional_call(arguments: dict[str, Any]) -> Any:
    return ne.embedding_dense_backward(**arguments)


def planned_call(arguments: dict[str, Any]) -> Any:
    rest = {name: value for name, value in arguments.items() if name not in RUN}
    grad, ids, out = (arguments[name] for name in ("grad", "indices", "out"))
    plan = ne.plan_dense_backward(
        getattr(grad, "shape", grad),
        getattr(grad, "dtype", grad),
        getattr(ids, "shape", ids),
        getattr(ids, "dtype", ids),
        out_dtype=getattr(out, "dtype", out),
        **rest,
    )
    str(plan)
    report = ne.RunReport()
    workspace = plan.make_workspace()
    got = plan.execute(grad, ids, out, arguments["accumulate"], workspace, report)
    assert 0 <= report.lookups <= plan.num_positions
    return got


RUN = {"grad", "indices", "out", "accumulate", "block_rows"}


@st.composite
def two_phases(draw: Any) -> None:
    """Make the two-phase call, which returns a status whatever it is given."""
    grad, ids, rows = draw(operands())
    arguments: dict[str, Any] = {
        "grad": grad,
        "indices": ids,
        "num_weights": rows,
        "padding_idx": draw(st.integers(-3, rows + 3)),
        "scale_grad_by_freq": draw(st.booleans()),
        "out": np.zeros((rows, grad.shape[-1]), np.float32),
        "product": draw(st.sampled_from(["ATLAS_A2", "ASCEND_950", "ATLAS_TRAINING"])),
        "core_num": draw(st.sampled_from([None, 1, 48])),
    }
    sprinkle(draw, arguments)
    status, size, executor = aclnn.embedding_dense_backward_get_workspace_size(**arguments)
    second: dict[str, Any] = {
        "workspace": bytearray(size),
        "workspace_size": size,
        "executor": executor,
        "stream": None,
    }
    sprinkle(draw, second)
    after = aclnn.embedding_dense_backward(**second)
    assert isinstance(status, aclnn.Status)
    assert isinstance(after, aclnn.Status)
    assert aclnn.Status.ACLNN_ERR_INNER not in (status, after), aclnn.get_recent_err_msg()
    outcomes[f"aclnn: {after.name}"] += 1


SMALL: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("counts_size", ne.counts_size, {"num_weights": 100, "core_num": 3}),
    ("partition_rows", ne.partition_rows, {"num_weights": 9, "core_num": 2, "split": "balanced"}),
    (
        "max_embedding_dim",
        ne.max_embedding_dim,
        {"num_weights": 9, "core_num": 2, "indices_dtype": "int64"},
    ),
    ("Workspace", ne.Workspace, {"buffer": 100}),
    ("OutputPool", ne.OutputPool, {"limit_bytes": 100}),
    (
        "simulate_cores",
        ne.simulate_cores,
        {
            "indices": np.array([1, 2, 2]),
            "num_weights": 10,
            "core_num": 2,
            "embedding_dim": 4,
            "split": "counts_size",
            "grad_dtype": "float32",
            "indices_dtype": None,
            "padding_idx": None,
            "scale_grad_by_freq": True,
            "product": "ATLAS_A2",
        },
    ),
]


@st.composite
def small_functions(draw: Any) -> None:
    """Call the functions around the operator."""
    name, function, arguments = draw(st.sampled_from(SMALL))
    arguments = dict(arguments)
    intact = sprinkle(draw, arguments)
    with refusals(name):
        function(**arguments)
        return
    assert not intact


def one_round(number: int) -> None:
    rows = row_gradients() | chunks() | row_objects()

    @seed(number)
    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(functional() | functional() | rows | two_phases() | small_functions())
    def run(_: None) -> None:
        pass

    run()


def main() -> None:
    """Fuzz for the seconds that are asked for, and print what came of it."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    faulthandler.enable()
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    warnings.simplefilter("ignore")
    start = monotonic()
    while monotonic() - start < seconds:
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        print(f"seed {number}: {sum(outcomes.values())} calls", flush=True)
        one_round(number)
        number += 1
    faulthandler.cancel_dump_traceback_later()
    for name, count in sorted(outcomes.items()):
        print(f"{count:9}  {name}")
    print(f"{sum(outcomes.values())} calls in {monotonic() - start:.0f} s, invariant held")


if __name__ == "__main__":
    main()
