"""Run the cases: check every contender's result, then time them all in turn."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

import numpy as np

import numba_embed as ne
from numba_embed.bench import ours
from numba_embed.bench.cases import SEED, Case, Operands
from numba_embed.bench.machine import describe
from numba_embed.bench.peers import BASE, AbsentError, Peer, UnsupportedError
from numba_embed.bench.reference import Reference, WrongResultError
from numba_embed.bench.roofline import Bandwidth, Roofline, traffic
from numba_embed.bench.timing import Contender, in_steps, round_robin
from numba_embed.plan import ZEROED_BYTES

SCHEMA = 1
"""Version of the layout of the figures."""

BANDWIDTH_SAMPLES = 3
"""Of each bandwidth, before and again after a case's rounds."""

Figures = dict[str, Any]


def run(
    cases: Sequence[Case],
    peers: Sequence[Peer],
    *,
    rounds: int,
    command: str,
    roofline_bytes: int | None = None,
    touch_bytes: int = 0,
    progress: Callable[[Case], None] | None = None,
) -> Figures:
    """Check and time the cases.

    Parameters
    ----------
    cases, peers
        What to run, in order.
    rounds : int
        Samples of each contender.
    command : str
        What was typed; is recorded.
    roofline_bytes : int, optional
        Size of the buffer that measures bandwidth.
    touch_bytes : int, default 0
        Bytes of memory to touch before each round of a case with a large result: see
        `numba_embed.bench.timing.touch_memory`.
    progress
        Is called before each case.

    Returns
    -------
    dict
        All figures, ready for JSON; times in seconds, bandwidths in bytes per second.

    Raises
    ------
    WrongResultError
        A result of the library itself is wrong.
    """
    figures = describe()
    threads = int(figures["threads"])
    roofline = Roofline(roofline_bytes)
    modules: dict[str, Any] = {}
    for peer in peers:
        try:
            modules[peer.name] = peer.load(threads)
        except AbsentError as error:
            modules[peer.name] = error
    results = []
    for case in cases:
        if progress is not None:
            progress(case)
        results.append(run_case(case, peers, modules, roofline, threads, rounds, touch_bytes))
        gc.collect()
    add_comparisons(results)
    return {
        "schema": SCHEMA,
        "command": command,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        **figures,
        "rounds": rounds,
        "touch_bytes": touch_bytes,
        "seed": SEED,
        "peers": {peer.name: peer.title for peer in peers},
        "cases": results,
    }


def run_case(
    case: Case,
    peers: Sequence[Peer],
    modules: dict[str, Any],
    roofline: Roofline,
    threads: int,
    rounds: int,
    touch_bytes: int = 0,
) -> Figures:
    """Check and time one case; return its figures.

    ``modules`` holds what each peer's ``load`` returned or raised.
    """
    operands = case.make()
    reference = Reference(case, operands)
    states: dict[str, Contender | Figures] = {}
    for name in ours.TITLES:
        states[name] = _checked_own(name, case, operands, reference)
    for peer in peers:
        states[peer.name] = _checked_peer(peer, modules[peer.name], case, operands, reference)
    timed = [state for state in states.values() if isinstance(state, Contender)]
    for contender in timed:
        contender.calibrate()
    bandwidths: dict[int, list[Bandwidth]] = {count: [] for count in sorted({1, threads})}
    _sample_bandwidth(roofline, bandwidths)
    large = case.out_nbytes >= ZEROED_BYTES
    round_robin(timed, rounds, touch_bytes if large else 0)
    _sample_bandwidth(roofline, bandwidths)

    moved = traffic(case, operands, reference.rows.size, int(reference.counts.sum()))
    medians = {
        count: Bandwidth(*(float(value) for value in np.median(samples, axis=0)))
        for count, samples in bandwidths.items()
    }
    plan = ne.plan_dense_backward(
        operands.grad.shape,
        operands.grad.dtype,
        operands.indices.shape,
        operands.indices.dtype,
        case.V,
    )
    figures: Figures = {field.name: getattr(case, field.name) for field in fields(case)}
    figures |= {
        "distinct_rows": int(reference.rows.size),
        "algorithm": plan.algorithm,
        "plan_threads": plan.threads,
        "bytes": moved._asdict(),
        "bandwidth": {str(count): median._asdict() for count, median in medians.items()},
        "limit": moved.limit(medians[threads]),
        "one_thread_limit": moved.limit(medians[1]),
        "contenders": {name: _figures(state) for name, state in states.items()},
    }
    return figures | summary(figures, [peer.name for peer in peers])


def summary(case: Figures, peers: Sequence[str]) -> Figures:
    """Return the figures that follow from a case's medians.

    ``ratio_*`` is the time of the best peer over ours, ``*fraction`` the memory limit over our time
    with ``out=``, ``thread_speedup`` the time of one thread over that of all. None where one of the
    two was not timed.
    """
    medians = {
        name: state["median"]
        for name, state in case["contenders"].items()
        if state["status"] == "ok"
    }
    present = [name for name in peers if name in medians]
    best = min(present, key=medians.__getitem__, default=None)

    def ratio(above: float | None, below: float | None) -> float | None:
        return None if above is None or below is None else above / below

    best_time = medians.get(best) if best is not None else None
    own = {name: medians.get(name) for name in ours.TITLES}
    return {
        "best_peer": best,
        "ratio_fresh": ratio(best_time, own["fresh"]),
        "ratio_out": ratio(best_time, own["out"]),
        "ratio_pooled": ratio(best_time, own["pooled"]),
        "fraction": ratio(case["limit"], own["out"]),
        "one_thread_fraction": ratio(case["one_thread_limit"], own["one_thread"]),
        "thread_speedup": ratio(own["one_thread"], own["out"]),
    }


def add_comparisons(results: Sequence[Figures]) -> None:
    """Add ``versus`` to each case whose neighbour was run, too.

    ``time`` is the ratio of the times with ``out=``, ``per_byte`` that of the times per byte moved.
    """
    by_name = {result["name"]: result for result in results}
    for result in results:
        other = by_name.get(result["neighbour"])
        if other is None:
            continue
        time, other_time = (float(one["contenders"]["out"]["median"]) for one in (result, other))
        moved, other_moved = (sum(one["bytes"].values()) for one in (result, other))
        result["versus"] = {
            "name": other["name"],
            "time": time / other_time,
            "per_byte": time / other_time * other_moved / moved,
        }


def _checked_own(
    name: str, case: Case, operands: Operands, reference: Reference
) -> Contender | Figures:
    try:
        own = ours.prepare(name, case, operands)
    except UnsupportedError as error:
        return {"status": "unsupported", "reason": str(error)}
    problem = reference.problem(own.checked(), exact=True, base=BASE if case.accumulate else 0.0)
    if problem is not None:
        raise WrongResultError(f"{case.name}, {ours.TITLES[name]}: {problem}")
    return own.contender


def _checked_peer(
    peer: Peer, module: Any, case: Case, operands: Operands, reference: Reference
) -> Contender | Figures:
    """Return a contender that is ready to be timed, or why there is none."""
    if isinstance(module, AbsentError):
        return {"status": "absent", "reason": str(module)}
    try:
        call = peer.prepare(module, case, operands)
        result = peer.to_numpy(call(), case)
    except UnsupportedError as error:
        return {"status": "unsupported", "reason": str(error)}
    except Exception as error:  # whatever a peer raises, it must not end the comparison
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}".splitlines()[0]}
    problem = reference.problem(result, exact=False, base=BASE if case.accumulate else 0.0)
    if problem is not None:
        return {"status": "wrong", "reason": problem}
    if case.steps:
        return Contender(in_steps(call, case.steps), steps=case.steps)
    return Contender(call)


def _sample_bandwidth(roofline: Roofline, samples: dict[int, list[Bandwidth]]) -> None:
    for _ in range(BANDWIDTH_SAMPLES):
        for threads, found in samples.items():
            found.append(roofline.measure(threads))


def _figures(state: Contender | Figures) -> Figures:
    if not isinstance(state, Contender):
        return state
    return {
        "status": "ok",
        "median": state.median,
        "number": state.number,
        "samples": state.samples,
    }
