"""A stream of batches, summed into one gradient with one rounding at the end."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from numba_embed import validation as check
from numba_embed.backward import embedding_dense_backward
from numba_embed.errors import EmbedError, EmbedTypeError, EmbedValueError
from numba_embed.runtime import threads_for
from numba_embed.scalars import shown
from numba_embed.sizing import THREAD_BYTES
from numba_embed.streamed import RowStream, write_sums

Array = npt.NDArray[Any]


class ChunkProgress(NamedTuple):
    """What a progress callback is told after every batch.

    Attributes
    ----------
    batches, positions
        Batches and look-ups that have been added.
    total
        The number of batches where the iterable knows it, else None.
    """

    batches: int
    positions: int
    total: int | None


def embedding_dense_backward_chunks(
    batches: Iterable[tuple[Any, Any]],
    num_weights: int,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    *,
    out: Any = None,
    accumulator: Any = None,
    on_invalid: str = "raise",
    core_num: int | None = None,
    num_threads: int | None = None,
    progress: Callable[[ChunkProgress], object] | None = None,
) -> Any:
    """Sum a stream of batches into the gradient of one table, rounding once, at the end.

    Parameters
    ----------
    batches : iterable of (grad, indices)
        Each as in `embedding_dense_backward`, with the same D. One is needed at a time.
    num_weights, padding_idx, scale_grad_by_freq, on_invalid, core_num, num_threads : as there
        See `embedding_dense_backward`; frequencies are those of the whole stream.
    out : array, shape (V, D), optional
        Where to write the result, at the end. By default a fresh array of the first grad's dtype.
    accumulator : float64 array, shape (V, D), C-contiguous, optional
        Memory for the sums, such as a `numpy.memmap`; it must hold zeros, and holds the unscaled
        sums afterwards. By default it is allocated: 8 V D bytes.
    progress : callable, optional
        Is called with a `ChunkProgress` after every batch.

    Returns
    -------
    array, shape (V, D)
        ``out`` itself where given.

    Raises
    ------
    EmbedTypeError, EmbedValueError, EmbedIndexError
        As `embedding_dense_backward`; the message of a batch's error begins with its number, from 0
        on. ``out`` keeps every bit then, and the accumulator holds the batches before it.

    Notes
    -----
    Each batch is summed in the order of a call of its own, and the sums of the batches are added in
    float64, one after the other: the bits depend on where the stream is cut, and on nothing else
    that one call's do not depend on. They are those of one call on the concatenation wherever the
    float64 sums are exact. O(N D) time and 8 V bytes more with ``scale_grad_by_freq``; the scratch
    memory of one batch.

    Examples
    --------
    >>> import numpy as np
    >>> batches = [(np.float32([[1e8], [1]]), [0, 2]), (np.float32([[-1e8], [1]]), [0, 0])]
    >>> embedding_dense_backward_chunks(batches, 3).ravel()
    array([1., 0., 1.], dtype=float32)
    """
    rows = check.checked_num_weights(num_weights)
    padding = check.checked_padding_idx(padding_idx, rows)
    scale = check.flag("scale_grad_by_freq", scale_grad_by_freq)
    dropping = check.checked_dropping(on_invalid)
    check.checked_core_num(core_num)
    threads = check.checked_num_threads(num_threads)
    if progress is not None and not callable(progress):
        raise EmbedTypeError(f"progress must be callable or None, got {shown(progress)}")
    stream, total = _iterated(batches)
    sums = None if accumulator is None else _checked_accumulator(accumulator, rows)
    target = None if out is None else _checked_target(out, rows, sums)

    counts = np.zeros(rows, np.int64) if scale else None
    dtype: np.dtype[Any] | None = None if target is None else target.dtype
    done = positions = 0
    for batch in stream:
        try:
            grad, indices = _pair(batch)
            check.checked_format("grad", grad.dtype)
            width = grad.shape[-1] if grad.ndim else 0
            if sums is None:
                sums = np.zeros((rows, width if target is None else target.shape[1]))
            if width != sums.shape[1]:
                raise EmbedValueError(
                    f"grad must have D = {sums.shape[1]} columns, got shape {grad.shape}"
                )
            embedding_dense_backward(
                grad,
                indices,
                rows,
                padding,
                out=sums,
                accumulate=True,
                on_invalid=on_invalid,
                core_num=core_num,
                num_threads=num_threads,
            )
        except EmbedError as error:
            raise type(error)(f"batch {done}: {error}") from error
        if counts is not None:
            RowStream(indices, rows, padding, dropping).count(counts, 0, rows)
        dtype = grad.dtype.newbyteorder("=") if dtype is None else dtype
        done, positions = done + 1, positions + indices.size
        if progress is not None:
            progress(ChunkProgress(done, positions, total))

    if dtype is None:
        raise EmbedValueError("batches must not be empty, or out must be given")
    if target is None:
        assert sums is not None
        target = np.empty(sums.shape, dtype)
    if sums is None:
        target[...] = 0
    elif target.size:
        form = check.checked_format("out", target.dtype)
        if threads is None:
            threads = threads_for(sums.nbytes + target.nbytes, THREAD_BYTES)
        write_sums(sums, counts, target, form, threads)
    return target if out is None else out


def _iterated(batches: Any) -> tuple[Iterator[Any], int | None]:
    """Return an iterator over the batches, and their number where the iterable knows it."""
    try:
        stream = iter(batches)
    except Exception as error:  # a foreign __iter__ may raise anything
        raise EmbedTypeError(
            f"batches must be an iterable of pairs (grad, indices), got {shown(batches)}"
        ) from error
    try:
        total = operator.length_hint(batches, -1)
    except Exception:  # so may a foreign __len__, and nothing depends on it
        total = -1
    return stream, total if total >= 0 else None


def _pair(batch: Any) -> tuple[Array, Array]:
    """Return a batch's operands as arrays; a mapped one stays one."""
    try:
        grad, indices = batch
    except Exception as error:  # a foreign __iter__ may raise anything
        raise EmbedTypeError(
            f"batches must give pairs (grad, indices), got {type(batch).__name__}"
        ) from error
    pair = (("grad", grad), ("indices", indices))
    grad, indices = (
        array if isinstance(array, np.memmap) else check.as_array(name, array)
        for name, array in pair
    )
    return grad, indices


def _checked_accumulator(accumulator: Any, rows: int) -> npt.NDArray[np.float64]:
    """Return the memory for the sums, or raise."""
    array = check.as_array("accumulator", accumulator)
    width = array.shape[1] if array.ndim == 2 else 0
    array = check.checked_target("accumulator", accumulator, (rows, width), ())
    if array.dtype != np.float64 or not (array.flags.c_contiguous and array.flags.aligned):
        raise EmbedTypeError(
            f"accumulator must be C-contiguous float64, got {array.dtype} with strides "
            f"{array.strides}"
        )
    return array


def _checked_target(out: Any, rows: int, sums: Array | None) -> Array:
    """Return ``out`` as an array, or raise without having written to it."""
    array = check.as_array("out", out)
    width = array.shape[1] if array.ndim == 2 else 0
    operands = () if sums is None else (("accumulator", sums),)
    width = width if sums is None else sums.shape[1]
    array = check.checked_target("out", out, (rows, width), operands)
    check.checked_format("out", array.dtype)
    return array
