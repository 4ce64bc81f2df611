"""What is timed computes the same thing: the library's own contenders, and every peer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from numba_embed.bench import ours
from numba_embed.bench.cases import CASES, Case
from numba_embed.bench.peers import BASE, PEERS, AbsentError, Peer, UnsupportedError
from numba_embed.bench.reference import Reference


class TestPeers:
    @pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
    def test_peers_compute_the_same(self, peer: Peer) -> None:
        try:
            module = peer.load(1)
        except AbsentError as error:
            pytest.skip(str(error))
        checked = 0
        for case in (case.small() for case in CASES):
            operands = case.make()
            try:
                call = peer.prepare(module, case, operands)
            except UnsupportedError:
                special = case.scale or case.accumulate or case.padding_idx is not None
                assert special or (peer.name == "scipy" and "16" in case.dtype), case.name
                continue
            reference = Reference(case, operands)
            base = BASE if case.accumulate else 0.0
            result = np.array(peer.to_numpy(call(), case))
            assert reference.problem(result, exact=False, base=base) is None, case.name
            again = reference.problem(peer.to_numpy(call(), case), exact=False, base=base)
            assert (again is None) != case.accumulate, case.name
            checked += 1
        assert checked > 20

    def test_torch_supports_everything(self) -> None:
        torch = next(peer for peer in PEERS if peer.name == "torch")
        module = pytest.importorskip("torch")
        for case in CASES:
            small = case.small()
            assert callable(torch.prepare(module, small, small.make()))

    def test_a_peer_that_does_not_load_is_absent(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        (tmp_path / "half_a_peer.py").write_text("raise OSError('no such library')")
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(AbsentError, match="OSError: no such library"):
            replace(PEERS[0], module="half_a_peer").load(1)


class TestOurs:
    @pytest.mark.parametrize("name", ["fresh", "out", "one_thread"])
    @pytest.mark.parametrize("case", [case.small() for case in CASES], ids=lambda case: case.name)
    def test_every_contender_is_right_on_every_case(self, case: Case, name: str) -> None:
        operands = case.make()
        if case.accumulate and name == "fresh":
            with pytest.raises(UnsupportedError):
                ours.prepare(name, case, operands)
            return
        own = ours.prepare(name, case, operands)
        base = BASE if case.accumulate else 0.0
        assert Reference(case, operands).problem(own.checked(), exact=True, base=base) is None
        assert own.contender.steps == max(1, case.steps)
