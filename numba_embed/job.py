"""Runs of kernels that belong to no plan of a backward pass: they bring a record of their own."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from numba_embed.address import address_of
from numba_embed.formats import Format
from numba_embed.kernels import layout as at
from numba_embed.kernels.phases import Kernel, Program
from numba_embed.plan import ALIGNMENT

TICKETS, PRIVATE = 0, ALIGNMENT
"""Where in a job's memory the tickets lie, and the buffers of the threads."""


class Job:
    """The records and the memory that kernels run with, for as many launches as need be.

    Parameters
    ----------
    threads
        Pieces of work, and threads to use.
    more
        The kernels' own record, which is kept alive; it may change between launches.
    buffer
        Bytes of a thread's buffers, a multiple of ``ALIGNMENT``.

    Attributes
    ----------
    call
        The call record, as int64 words, for those kernels that read grad or write out.
    """

    def __init__(self, threads: int, more: npt.NDArray[Any], buffer: int) -> None:
        plan = np.zeros(1, at.PLAN)
        plan["threads"], plan["tickets"] = threads, TICKETS
        plan["private"], plan["private_stride"] = PRIVATE, buffer
        memory = np.empty(PRIVATE + threads * buffer + ALIGNMENT, np.uint8)
        record = np.zeros(1, at.CALL)
        record["plan"], record["more"] = address_of(plan), address_of(more)
        record["workspace"] = address_of(memory) + -address_of(memory) % ALIGNMENT
        self.call: npt.NDArray[np.int64] = record.view(np.int64)
        self._threads, self._kept = threads, (plan, more, memory)

    def run(self, kernel: Kernel, grad: Format | None = None, out: Format | None = None) -> None:
        """Launch a kernel, compiled for the formats that it reads and writes."""
        _program(kernel, grad, out).launch(self._threads, address_of(self.call))


@cache
def _program(kernel: Kernel, grad: Format | None, out: Format | None) -> Program:
    given = {"grad": grad, "out": out}
    return kernel.program({name: form.like for name, form in given.items() if form is not None})
