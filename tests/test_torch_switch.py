"""Switching torch's kernel and ours: nesting, threads, silence, and what a bad option leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch_checks import Calls, backend, torch

from numba_embed import EmbedIndexError, EmbedTypeError, EmbedValueError
from numba_embed.torch import backend as switch

pytest_plugins = ["torch_fixtures"]
pytestmark = pytest.mark.usefixtures("switched_off")

BACKWARD = torch.ops.aten.embedding_dense_backward
SIZE = 1 << 20


def train_once() -> Any:
    table = torch.nn.Embedding(5, 3)
    table(torch.tensor([1, 2, 2])).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad[:, 0].tolist() == [0, 1, 2, 0, 0]
    return table.weight.grad


def test_on_and_off(calls: Calls) -> None:
    train_once()
    assert not calls
    assert not backend.is_enabled()
    backend.enable()
    assert backend.is_enabled()
    train_once()
    assert len(calls) == 1
    backend.enable()
    train_once()
    assert len(calls) == 2
    backend.disable()
    assert not backend.is_enabled()
    train_once()
    assert len(calls) == 2
    backend.disable()
    train_once()
    assert len(calls) == 2
    backend.enable()
    train_once()
    assert len(calls) == 3


def test_blocks_nest_and_restore(calls: Calls) -> None:
    with backend.enabled():
        train_once()
        with backend.enabled(on_invalid="drop"):
            bad = BACKWARD(torch.ones(2, 3), torch.tensor([1, 7]), 5, -1, False)
            assert bad[:, 0].tolist() == [0, 1, 0, 0, 0]
        assert backend.is_enabled()
        with pytest.raises(EmbedIndexError):
            BACKWARD(torch.ones(2, 3), torch.tensor([1, 7]), 5, -1, False)
        assert len(calls) == 3
    assert not backend.is_enabled()
    backend.enable(on_invalid="drop")
    with backend.enabled(), pytest.raises(IndexError):
        BACKWARD(torch.ones(1, 3), torch.tensor([7]), 5, -1, False)
    assert backend.is_enabled()
    assert BACKWARD(torch.ones(1, 3), torch.tensor([7]), 5, -1, False).count_nonzero() == 0
    with pytest.raises(KeyError), backend.enabled():
        raise KeyError
    assert backend.is_enabled()


def test_switching_within_a_block(calls: Calls) -> None:
    with backend.enabled():
        backend.disable()
        train_once()
        assert not calls
        backend.enable(on_invalid="drop")
        train_once()
        assert len(calls) == 1
    assert not backend.is_enabled()
    backend.enable()
    with backend.enabled():
        backend.disable()
        assert not backend.is_enabled()
    assert backend.is_enabled()


def test_blocks_may_overlap_in_any_order(calls: Calls) -> None:
    first, second = backend.enabled(), backend.enabled(on_invalid="drop")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert backend.is_enabled()
    assert BACKWARD(torch.ones(1, 3), torch.tensor([7]), 5, -1, False).count_nonzero() == 0
    assert len(calls) == 1
    second.__exit__(None, None, None)
    assert not backend.is_enabled()
    train_once()
    assert len(calls) == 1


def test_blocks_of_several_threads(calls: Calls) -> None:
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(25):
            with backend.enabled():
                train_once()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    assert len(calls) == 100
    assert not backend.is_enabled()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"on_invalid": "skip"}, EmbedValueError, 'on_invalid must be "raise" or "drop"'),
        ({"on_invalid": None}, EmbedValueError, "on_invalid"),
        ({"reuse_outputs": -1}, EmbedValueError, "limit_bytes must lie in"),
        ({"reuse_outputs": True}, EmbedTypeError, "limit_bytes"),
        ({"reuse_outputs": 1.5}, EmbedTypeError, "limit_bytes"),
    ],
)
def test_a_bad_option_changes_nothing(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    for before in (False, True):
        if before:
            backend.enable(on_invalid="drop")
        with pytest.raises(error, match=text):
            backend.enable(**options)
        with pytest.raises(error, match=text), backend.enabled(**options):
            pass
        assert backend.is_enabled() == before
    assert BACKWARD(torch.ones(1, 3), torch.tensor([7]), 5, -1, False).count_nonzero() == 0


def test_an_invalid_index() -> None:
    """torch drops it in silence; ours raises, and names it, unless told otherwise."""
    grad, ids = torch.ones(2, 2, 3), torch.tensor([[0, 5], [1, -1]])
    want = [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    assert BACKWARD(grad, ids, 3, -1, False).tolist() == want
    named = r"= 5 \(position 1 in C order\).*\[0, 3\)"
    with backend.enabled(), pytest.raises(EmbedIndexError, match=named):
        BACKWARD(grad, ids, 3, -1, False)
    with backend.enabled(on_invalid="drop"):
        assert BACKWARD(grad, ids, 3, -1, False).tolist() == want


def test_an_error_crosses_autograd() -> None:
    """The engine runs the kernel; what it raises arrives as it is."""

    class Shift(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Any) -> Any:
            return weight.sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return BACKWARD(torch.ones(1, 3), torch.tensor([9]), 5, -1, False)

    weight = torch.zeros(5, 3, requires_grad=True)
    with backend.enabled(), pytest.raises(EmbedIndexError, match="9"):
        Shift.apply(weight).backward()
    assert weight.grad is None


def test_options_that_come_and_go_with_their_memory(calls: Calls) -> None:
    backend.enable(reuse_outputs=100 * SIZE)
    table = torch.nn.Embedding(5000, 64)
    ids = torch.arange(100)
    places = []
    for _ in range(3):
        table.zero_grad()
        table(ids).sum().backward()
        assert table.weight.grad is not None
        places.append(table.weight.grad.data_ptr())
    assert len(set(places)) == 1, "the freed gradient's memory is used again"
    pool = switch.output_pool()
    assert pool is not None
    held, table.weight.grad = table.weight.grad, None
    table(ids).sum().backward()
    assert table.weight.grad.data_ptr() != held.data_ptr()
    backend.enable()
    assert switch.output_pool() is None
    assert pool.idle_nbytes == 0
    del held
    assert pool.idle_nbytes == 0, "the pool is closed: its memory goes back to the system"
    assert table.weight.grad[:100].eq(1).all()
    assert len(calls) == 4


def test_silence_about_this_kernel_and_no_other(run_python: Callable[..., Any]) -> None:
    done = run_python(
        "import warnings\n"
        "warnings.simplefilter('error')\n"
        "import torch, numba_embed.torch as backend\n"
        "for _ in range(2):\n"
        "    backend.enable()\n"
        "    backend.disable()\n"
        "backend.enable()\n"
        "assert not torch.is_warn_always_enabled()\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    library = torch.library.Library('aten', 'IMPL')\n"
        "    library.impl('_embedding_bag_dense_backward', lambda *a: None, 'CPU')\n"
        "texts = [str(warning.message) for warning in caught]\n"
        "assert len(texts) == 1 and '_embedding_bag_dense_backward' in texts[0], texts\n"
        "warnings.warn('of another kind', UserWarning, stacklevel=1)\n",
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.strip().endswith("UserWarning: of another kind")
    assert "Overriding" not in done.stderr


def test_without_torch(run_python: Callable[..., Any]) -> None:
    done = run_python(
        "import sys\n"
        "import numba_embed\n"
        "assert 'torch' not in sys.modules\n"
        "sys.modules['torch'] = None\n"
        "import numba_embed.torch\n",
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        "ModuleNotFoundError: numba_embed.torch needs PyTorch, which is not installed "
        "(pip install 'numba-embed[torch]')"
    )
