"""From ordered entries over all V rows to entries over the rows that are looked up only.

`count_rows` counts the distinct rows; `number_rows` lists them and replaces each entry's row by its
place in the list. What follows sums a table of that many rows: `gather`, with every bit of its
order, since that depends on the entries' positions and on the plan's cut alone.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from numba_embed.kernels import memory
from numba_embed.runtime import Launcher, jit

HEAD_WORDS = 2
"""Words per thread: distinct rows before the thread's chunk, and whether the chunk begins one."""


@jit
def threads_of(call_address: int) -> int:
    """Return the number of pieces that a parallel phase is cut into."""
    return memory.plan_at(memory.call_at(call_address).plan).threads


@jit
def count_heads(thread: int, heads_address: int, call_address: int) -> None:
    """Count the entries of a chunk that are the first of their row. Writes the thread's words."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    order = memory.entries(call.workspace + plan.entries, call.taking_part)
    bits = np.uint64(plan.position_bits)
    first, end = memory.chunk(thread, plan.threads, call.taking_part)
    heads = memory.words(heads_address, HEAD_WORDS * plan.threads)
    begins = np.int64(0)
    if first < end and (first == 0 or order[first - 1] >> bits != order[first] >> bits):
        begins = np.int64(1)
    found = begins
    for place in range(first + 1, end):
        if order[place] >> bits != order[place - 1] >> bits:
            found += 1
    heads[HEAD_WORDS * thread] = found
    heads[HEAD_WORDS * thread + 1] = begins


@jit
def prefix_heads(heads_address: int, call_address: int) -> int:
    """Turn the chunks' counts into the number of rows before each chunk. Returns their sum."""
    threads = threads_of(call_address)
    heads = memory.words(heads_address, HEAD_WORDS * threads)
    running = np.int64(0)
    for thread in range(threads):
        found = heads[HEAD_WORDS * thread]
        heads[HEAD_WORDS * thread] = running
        running += found
    return running


@jit
def number_chunk(
    thread: int, heads_address: int, rows_address: int, num_rows: int, call_address: int
) -> None:
    """List the rows that begin in a chunk and renumber its entries. Writes nothing else."""
    call = memory.call_at(call_address)
    plan = memory.plan_at(call.plan)
    order = memory.entries(call.workspace + plan.entries, call.taking_part)
    rows = memory.words(rows_address, num_rows)
    bits = np.uint64(plan.position_bits)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    first, end = memory.chunk(thread, plan.threads, call.taking_part)
    if first >= end:
        return
    heads = memory.words(heads_address, HEAD_WORDS * plan.threads)
    number = heads[HEAD_WORDS * thread] - 1
    row = order[first] >> bits
    if heads[HEAD_WORDS * thread + 1] != 0:
        number += 1
        rows[number] = np.int64(row)
    for place in range(first, end):
        entry = order[place]
        if entry >> bits != row:
            row = entry >> bits
            number += 1
            rows[number] = np.int64(row)
        order[place] = (np.uint64(number) << bits) | (entry & mask)


@Launcher
def count_rows(heads_address: int, call_address: int) -> int:
    """Return how many distinct rows the ordered entries name.

    Fills ``heads``, HEAD_WORDS int64 for each of the plan's threads, for `number_rows`.
    """
    threads = threads_of(call_address)
    for thread in prange(threads):
        count_heads(np.int64(thread), heads_address, call_address)
    return prefix_heads(heads_address, call_address)


@Launcher
def number_rows(heads_address: int, rows_address: int, num_rows: int, call_address: int) -> None:
    """List the distinct rows, ascending, int64, and make each entry's row its place in the list."""
    threads = threads_of(call_address)
    for thread in prange(threads):
        number_chunk(np.int64(thread), heads_address, rows_address, num_rows, call_address)
