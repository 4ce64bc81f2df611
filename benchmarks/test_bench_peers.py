"""Every other implementation on the same cases."""

from __future__ import annotations

from typing import Any

import pytest

from numba_embed.bench.peers import BASE, PEERS, AbsentError, Peer, UnsupportedError
from numba_embed.bench.timing import in_steps
from numba_embed.runtime import available_threads


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peer(timer: Any, prepared: Any, peer: Peer) -> None:
    case = prepared.case
    try:
        call = peer.prepare(peer.load(available_threads()), case, prepared.operands)
    except (AbsentError, UnsupportedError) as error:
        pytest.skip(str(error))
    base = BASE if case.accumulate else 0.0
    result = peer.to_numpy(call(), case)
    assert prepared.reference.problem(result, exact=False, base=base) is None
    timer(in_steps(call, case.steps) if case.steps else call)
