"""More breakages for `mutants.py`: row gradients, operands beyond memory, tables that are split."""

from __future__ import annotations

from mutant_list import Mutant

ROWS = "tests/test_row_gradient.py"
UPDATES = "tests/test_row_updates.py"
SPARSE = "tests/test_torch_sparse.py"
STREAMED = "tests/test_larger_than_memory.py"
CHUNKS = "tests/test_chunks.py"
WORLD = "tests/test_distributed.py::test_values_in_other_worlds[3]"

BEGIN = f"{ROWS}::test_rows_that_begin_in_any_piece_of_the_entries"
SINGLE = f"{ROWS}::test_single_rows_are_rounded_once"
IN_MEMORY = f"{STREAMED}::test_the_bits_of_the_run_in_memory"

MUTANTS = [
    Mutant(
        "rows-unsorted",
        "the rows of a row gradient descend, with their values",
        "execute_rows.py",
        "    return rows, values\n",
        "    return rows[::-1].copy(), values[::-1].copy()\n",
        (BEGIN, f"{SPARSE}::test_it_is_coalesced_and_has_the_bits_of_the_dense_one"),
    ),
    Mutant(
        "idle-rows-listed",
        "a row gradient of a small vocabulary lists rows that nobody looked up, padding included",
        "execute_rows.py",
        ".any(axis=0))",
        ".any(axis=0) | True)",
        (f"{ROWS}::test_bits_of_every_algorithm",),
    ),
    Mutant(
        "row-listed-twice",
        "a row that goes on in the next piece of the entries begins there again",
        "kernels/compact.py",
        "if 0 < place < end:",
        "if 0 < place < end - size:",
        (BEGIN,),
    ),
    Mutant(
        "last-look-up-of-two-lost",
        "a row's last entry is taken for a row of its own if it is the last of all",
        "kernels/compact.py",
        "last = row_end(call, plan, place, size)",
        "last = row_end(call, plan, place, max(place + 1, size - 1))",
        (BEGIN,),
    ),
    Mutant(
        "end-of-piece-lost",
        "the last bytes of a piece of streamed values stay in the buffer",
        "kernels/compact.py",
        "stage.finish(buffer, bound, staged)",
        "stage.finish(buffer, bound, staged & ~7)",
        (SINGLE,),
    ),
    Mutant(
        "row-step-ignores-alpha",
        "a step adds the gradient itself",
        "execute_rows.py",
        '("alpha", 0.0 if alpha is None else alpha),',
        '("alpha", 1.0),',
        (f"{UPDATES}::test_a_step_of_every_dtype",),
    ),
    Mutant(
        "row-step-rounds-twice",
        "the product of a step is rounded to the table's format before it is added",
        "kernels/update.py",
        "result = narrow(builder, like, builder.fadd(old, product), lanes)",
        "from numba_embed.kernels.bits import widen\n"
        "        product = widen(builder, like, narrow(builder, like, product, lanes), lanes)\n"
        "        result = narrow(builder, like, builder.fadd(old, product), lanes)",
        (f"{UPDATES}::test_a_step_of_every_dtype",),
    ),
    Mutant(
        "stream-cut-off-by-one",
        "while positions stream by, blocks of positions end one position later",
        "streamed.py",
        "limit = min(end, (first // length + 1) * length) if cut else end",
        "limit = min(end, ((first - 1) // length + 1) * length + 1) if cut else end",
        (IN_MEMORY,),
    ),
    Mutant(
        "stream-row-lost",
        "the last row of a block of rows gets no gradient",
        "kernels/stream.py",
        "if row >= 0 and row < num_rows:",
        "if row >= 0 and row < num_rows - 1:",
        (IN_MEMORY,),
    ),
    Mutant(
        "stream-parts-kept",
        "the parts of one block of positions are added again with the next",
        "kernels/stream.py",
        "memory.clear_bytes(part, row_bytes)",
        "memory.clear_bytes(part, 0)",
        (IN_MEMORY,),
    ),
    Mutant(
        "stream-unchecked",
        "of the pieces of a stream only the first is checked",
        "streamed.py",
        "        if bad != NONE_BAD:\n",
        "        if bad != NONE_BAD and position == 0:\n",
        (f"{STREAMED}::test_every_index_is_checked_before_anything_is_written",),
    ),
    Mutant(
        "chunks-count-one-batch",
        "frequencies are those of the last batch, not of the stream",
        "chunks.py",
        "        if counts is not None:\n",
        "        if counts is not None:\n            counts[:] = 0\n",
        (f"{CHUNKS}::test_bits_are_those_of_the_documented_order",),
    ),
    Mutant(
        "presum-lost",
        "of a row that a rank looks up more than once only the first gradient travels",
        "distributed/sums.py",
        "number = np.where(repeated, np.cumsum(repeated) - 1, -1)\n",
        "number = np.where(repeated, np.cumsum(repeated) - 1, -1)\n"
        "    later = np.ones(len(grad), bool)\n"
        "    later[batch.first] = False\n"
        "    grad = grad.masked_fill(torch.from_numpy(later)[:, None], 0)\n",
        (WORLD,),
    ),
    Mutant(
        "presum-rounded",
        "a rank's sums are rounded to the gradient's dtype before they travel",
        "distributed/sums.py",
        'return dense_backward(grad, slots, size, -1, False, "drop", out_dtype=torch.float64)',
        'return dense_backward(grad, slots, size, -1, False, "drop").double()',
        (WORLD,),
    ),
    Mutant(
        "counts-local",
        "an owner divides by the look-ups that it knows of itself, one for each part",
        "distributed/lookup.py",
        "counts[torch.from_numpy(kinds == REPEATED)] = received.counts",
        "counts[torch.from_numpy(kinds == REPEATED)] = 1",
        (WORLD,),
    ),
    Mutant(
        "average-forgotten",
        "average=True sums",
        "distributed/lookup.py",
        "exchange.size if sharding.average else 1,",
        "1,",
        (WORLD,),
    ),
    Mutant(
        "padding-row-sent",
        "the padding row of a split table gets its gradient",
        "distributed/distinct.py",
        "kinds[rows == padding_idx] = SILENT",
        "kinds[rows == padding_idx - len(row_starts)] = SILENT",
        (WORLD,),
    ),
    Mutant(
        "owner-off-by-one",
        "the first row of a rank is asked for at the rank before it",
        "distributed/distinct.py",
        "np.searchsorted(rows, row_starts)",
        'np.searchsorted(rows, row_starts, "right")',
        (WORLD,),
    ),
    Mutant(
        "own-rows-as-traffic",
        "what a rank keeps for itself counts as sent",
        "distributed/exchange.py",
        "self.sent += (len(outgoing) - int(to_each[self.rank])) * row_bytes",
        "self.sent += len(outgoing) * row_bytes",
        (WORLD,),
    ),
]
