"""Fair timing: contenders take turns, and the median of their samples counts."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import repeat
from time import perf_counter, sleep
from typing import Any

import numpy as np

SAMPLE_SECONDS = 1e-3
"""A sample of a shorter call is many calls in a row."""

SETTLE_SECONDS = 5e-3
"""Pause before a sample: the threads of the previous contender's pool spin for a while after their
work, and would take the cores from the next one."""

BUDGET_SECONDS = 8.0
MIN_SAMPLES = 3
"""A contender that has used up its budget sits out further rounds, after so many samples."""


@dataclass
class Contender:
    """Something to be timed.

    Attributes
    ----------
    call
        Does the work once. Its result is dropped after the clock has stopped, or within the timed
        part where a sample is several calls.
    steps
        How many steps the work consists of; times are per step.
    context
        Is entered around each sample, with one call before the clock starts.
    number
        Calls per sample.
    samples
        Seconds per step, in the order of the rounds.
    """

    call: Callable[[], Any]
    steps: int = 1
    context: Callable[[], AbstractContextManager[Any]] | None = None
    number: int = 1
    samples: list[float] = field(default_factory=list)
    spent: float = 0.0

    @property
    def median(self) -> float:
        """Median of the samples, in seconds."""
        return float(np.median(self.samples))

    def calibrate(self) -> None:
        """Choose ``number`` from the time of one call, which must not be the first."""
        seconds = self._time(1)
        if seconds < SAMPLE_SECONDS:  # again: a first short call tells little
            seconds = min(seconds, self._time(1), self._time(1))
        self.number = max(1, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-7)))

    def sample(self) -> None:
        """Take one sample."""
        seconds = self._time(self.number)
        self.spent += seconds
        self.samples.append(seconds / self.number / self.steps)

    def _time(self, number: int) -> float:
        with nullcontext() if self.context is None else self.context():
            call = self.call
            if self.context is not None:
                call()
            if number == 1:
                start = perf_counter()
                result = call()
                seconds = perf_counter() - start
                del result
                return seconds
            start = perf_counter()
            for _ in repeat(None, number):
                call()
            return perf_counter() - start


def in_steps(call: Callable[[], Any], steps: int) -> Callable[[], None]:
    """Return a loop that makes a result in each step and drops it before the next."""

    def loop() -> None:
        for _ in repeat(None, steps):
            call()

    return loop


def touch_memory(nbytes: int) -> None:
    """Have the system make so much memory, and give it back to the system.

    A virtual machine may return memory that is free to its host; who is next to touch it then
    waits for the host, many times as long as the system itself takes to make a page.
    """
    np.ones(nbytes, np.uint8)


def round_robin(contenders: Sequence[Contender], rounds: int, touch_bytes: int = 0) -> None:
    """Let the contenders take a sample each in turn, ``rounds`` times, another one first each time.

    Before each round ``touch_bytes`` of memory are made and given back: see `touch_memory`.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        for done in range(rounds):
            touch_memory(touch_bytes)
            first = done % len(contenders) if contenders else 0
            for contender in (*contenders[first:], *contenders[:first]):
                if done >= MIN_SAMPLES and contender.spent > BUDGET_SECONDS:
                    continue
                sleep(SETTLE_SECONDS)
                contender.sample()
    finally:
        if collecting:
            gc.enable()
