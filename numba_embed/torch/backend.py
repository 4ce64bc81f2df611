"""The switch: torch's kernel of ``aten::embedding_dense_backward`` on the CPU, or this library's.

The switch is process-wide. Its state is a stack: `enable` and `disable` set the top entry, each
`enabled` block pushes one of its own and takes exactly that one away again, wherever it stands by
then. So blocks of several threads may overlap, and torch's kernel returns with the last of them.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from numba_embed.pool import OutputPool
from numba_embed.pool import current as current_pool
from numba_embed.torch import dense
from numba_embed.validation import checked_dropping

OPERATOR = "embedding_dense_backward"

_OVERRIDDEN = rf"(?s).*previously registered kernel.*aten::{OPERATOR}\(.*dispatch key: CPU\b"


class _Settings:
    """What a call is to do; ``None`` in place of this means torch's own kernel."""

    def __init__(self, on_invalid: str, reuse_outputs: int | None) -> None:
        checked_dropping(on_invalid)
        self.on_invalid = on_invalid
        self.pool = None if reuse_outputs is None else OutputPool(reuse_outputs)

    def close(self) -> None:
        """Give the idle memory back."""
        if self.pool is not None:
            self.pool.close()


class _Layer:
    """An entry of the stack: its own identity, and settings that can be replaced."""

    def __init__(self, settings: _Settings | None = None) -> None:
        self.settings = settings


class _Switch:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.layers = [_Layer()]
        self.library: Any = None
        self.settings: _Settings | None = None

    def set_top(self, settings: _Settings | None) -> None:
        with self.lock:
            top = self.layers[-1]
            before, top.settings = top.settings, settings
            self._settle()
        if before is not None:
            before.close()

    def push(self, settings: _Settings) -> _Layer:
        layer = _Layer(settings)
        with self.lock:
            self.layers.append(layer)
            self._settle()
        return layer

    def remove(self, layer: _Layer) -> None:
        with self.lock:
            self.layers.remove(layer)
            self._settle()
        if layer.settings is not None:
            layer.settings.close()

    def _settle(self) -> None:
        """Make the dispatcher agree with the top of the stack."""
        self.settings = self.layers[-1].settings
        if self.settings is not None and self.library is None:
            self.library = _register()
        elif self.settings is None and self.library is not None:
            self.library._destroy()
            self.library = None

    def after_fork(self) -> None:
        self.lock = threading.RLock()  # a thread that is not here may have held the old one


def _register() -> Any:
    """Register this library's kernel, without torch's warning that there was one before.

    Torch warns once per process, of the first kernel that is replaced. Asked to warn every time, it
    does not use that one warning up: a later one, of another operator, is still shown.
    """
    make: Any = torch.library.Library
    library = make("aten", "IMPL")
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _OVERRIDDEN, UserWarning)
            library.impl(OPERATOR, _kernel, "CPU")
    finally:
        torch.set_warn_always(always)
    return library


def _kernel(
    grad_output: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Tensor:
    settings = _switch.settings
    # A call that was on its way while another thread switched off still ends here.
    on_invalid = "raise" if settings is None else settings.on_invalid
    return dense.dense_backward(
        grad_output,
        indices,
        num_weights,
        padding_idx,
        scale_grad_by_freq,
        on_invalid,
        output_pool(),
    )


def output_pool() -> OutputPool | None:
    """Return the pool that lends outputs here: the thread's own, or the switch's, or None."""
    pool = current_pool()
    if pool is None and _switch.settings is not None:
        return _switch.settings.pool
    return pool


_switch = _Switch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_switch.after_fork)


def enable(*, on_invalid: str = "raise", reuse_outputs: int | None = None) -> None:
    """Compute ``aten::embedding_dense_backward`` on CPU tensors with this library, from now on.

    Covers ``nn.Embedding``, ``F.embedding`` and whatever else ends in that operator, in the whole
    process, until `disable`. Enabling again only replaces the options.

    Parameters
    ----------
    on_invalid : {"raise", "drop"}, default "raise"
        Whether an index out of range raises an IndexError, or is dropped in silence as by torch.
    reuse_outputs : int, optional
        Most bytes of idle memory to keep for the next gradients: once a gradient is freed, as
        ``zero_grad()`` does, the next one is written to the same memory, which is warm. By default
        every gradient is in fresh memory.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        For any other option. Nothing is changed then.

    Notes
    -----
    Under ``torch.compile`` with inductor the operator is decomposed before it is called, so that
    the switch has no effect there; `embedding` stays whole.
    """
    _switch.set_top(_Settings(on_invalid, reuse_outputs))


def disable() -> None:
    """Restore torch's own kernel. Does nothing where it is in place."""
    _switch.set_top(None)


def is_enabled() -> bool:
    """Return whether this library's kernel is in place."""
    return _switch.settings is not None


@contextmanager
def enabled(*, on_invalid: str = "raise", reuse_outputs: int | None = None) -> Iterator[None]:
    """Enable for the length of a block, in the whole process; then restore what was before.

    Parameters
    ----------
    on_invalid : {"raise", "drop"}, default "raise"
        As of `enable`.
    reuse_outputs : int, optional
        As of `enable`.

    Raises
    ------
    EmbedTypeError, EmbedValueError
        For any other option.

    Notes
    -----
    Blocks nest, and blocks of several threads may overlap: the one that was entered last decides
    the options, and torch's kernel returns with the end of the last block.
    """
    layer = _switch.push(_Settings(on_invalid, reuse_outputs))
    try:
        yield
    finally:
        _switch.remove(layer)
