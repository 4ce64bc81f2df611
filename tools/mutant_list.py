"""The breakages that `mutants.py` tries: one line each, and the tests that ought to notice."""

from __future__ import annotations

from dataclasses import dataclass

HARD = "tests/test_hard_inputs.py"
ERRORS = "tests/test_hard_errors.py"
ORDERS = "tests/test_orders.py"
PROPERTIES = "tests/test_properties.py"
OUTPUTS = "tests/test_outputs.py"
SMALL = "tests/test_small.py"

SCALING = f"{HARD}::test_row_10_scaling"
ONE_ROUNDING = f"{HARD}::test_row_29_one_rounding"
CUT = f"{ORDERS}::test_rows_just_below_at_and_above_the_cut"
REGION = f"{ORDERS}::test_both_sides_of_the_small_vocabulary_region"
THREADS = f"{ORDERS}::test_no_thread_or_core_count_changes_a_bit[float64]"
CORES = "tests/test_core_counts.py"
NEGATIVE_ZEROS = "tests/test_runs.py::test_sums_of_negative_zeros_are_positive"
RUNS = "tests/test_runs.py"
OTHER_CPU = "tests/test_cpu_features.py::test_other_cpu_features_give_the_same_bits[haswell]"
DIGITS = "tests/test_digits.py"


@dataclass(frozen=True)
class Mutant:
    """One line of the package, broken.

    Attributes
    ----------
    name, what
        What it is called, and what it breaks.
    file
        The file, below the package's folder.
    before, after
        A text that occurs once in the file, and what takes its place.
    tests
        The tests to run: those that are there to notice, not the whole suite.
    """

    name: str
    what: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


MUTANTS = [
    Mutant(
        "short-run-unscaled",
        "short runs are not divided by their frequency",
        "kernels/sums.py",
        "if plan.scale != 0:\n        return 1",
        "if plan.scale != 0 and plan.cut == 0:\n        return 1",
        (f"{RUNS}::test_outputs_and_options_that_need_more_than_a_rounded_sum",),
    ),
    Mutant(
        "row-parted",
        "a row of more look-ups than are looked at one by one loses the others",
        "kernels/sums.py",
        "if place == limit and place < end:",
        "if place == limit and place > end:",
        (THREADS,),
    ),
    Mutant(
        "single-row-negative-zero",
        "a row that is looked up once keeps its -0.0",
        "kernels/bits.py",
        "builder.select(zero, magnitude, bits))",
        "bits)",
        (f"{RUNS}::test_a_row_that_is_looked_up_once_keeps_its_bits[float16]",),
    ),
    Mutant(
        "single-row-infinity",
        "infinity in a row that is looked up once becomes NaN",
        "kernels/bits.py",
        'nan = builder.icmp_signed(">", magnitude, number(infinity))',
        'nan = builder.icmp_signed(">=", magnitude, number(infinity))',
        (f"{RUNS}::test_a_row_that_is_looked_up_once_keeps_its_bits[float32]",),
    ),
    Mutant(
        "two-for-one",
        "of two look-ups of a row the first one is copied",
        "kernels/sums.py",
        "if count == 1 and same_format",
        "if count <= 2 and same_format",
        (f"{RUNS}::test_every_length_and_width[float64-33]",),
    ),
    Mutant(
        "short-run-negative-zero",
        "sums of short runs start at -0.0",
        "kernels/runs.py",
        "constant(DOUBLE, 0.0, width), before)",
        "constant(DOUBLE, -0.0, width), before)",
        (NEGATIVE_ZEROS,),
    ),
    Mutant(
        "small-rows-of-another-call",
        "a bad index of a small row gradient is named only after rows of an earlier call were read",
        "small_rows.py",
        "if bad != NONE_BAD:",
        "if bad != NONE_BAD and bad > 7:",
        ("tests/test_small_rows.py::test_errors_stay",),
    ),
    Mutant(
        "position-dropped",
        "the last position of a stream that threads do not share evenly",
        "kernels/memory.py",
        "return first, first + share + (1 if piece < rest else 0)",
        "return first, first + share",
        (f"{HARD}::test_row_02_counts_are_exact_at_every_threshold",),
    ),
    Mutant(
        "rows-swapped",
        "rows 4 and 5, 6 and 7 and so on change places",
        "kernels/count.py",
        "row = as_row(indices[position], num_weights)",
        "row = as_row(indices[position], num_weights)\n"
        "        row = row ^ 1 if 3 < row < (num_weights & ~1) else row",
        (f"{HARD}::test_row_11_scaling_with_two_dimensions",),
    ),
    Mutant(
        "wrong-count",
        "a row is divided by one more than its look-ups",
        "kernels/gather.py",
        "divide_row(total, np.float64(end - first), columns)",
        "divide_row(total, np.float64(end - first + 1), columns)",
        (SCALING,),
    ),
    Mutant(
        "wrong-count-in-tables",
        "a row of a small table is divided by its look-ups of all blocks but the last",
        "kernels/tables.py",
        "for block in range(blocks):",
        "for block in range(blocks - 1):",
        (f"{ORDERS}::test_options_follow_the_order_too[50]",),
    ),
    Mutant(
        "padding-counted",
        "the padding row is a row like any other",
        "kernels/count.py",
        "elif row == padding:",
        "elif row == padding and row < 0:",
        (f"{HARD}::test_row_01_padding_row_is_zero", CORES),
    ),
    Mutant(
        "last-block-lost",
        "the last block of a long row, where threads share it",
        "kernels/hot.py",
        "for block in range(which * plan.blocks, (which + 1) * plan.blocks):",
        "for block in range(which * plan.blocks, (which + 1) * plan.blocks - 1):",
        (CUT,),
    ),
    Mutant(
        "last-table-lost",
        "the last partial table of a small vocabulary",
        "kernels/tables.py",
        "for block in range(plan.blocks):",
        "for block in range(plan.blocks - 1):",
        (f"{HARD}::test_row_03_a_million_ones",),
    ),
    Mutant(
        "rounded-before-division",
        "the sum is rounded to float32, then divided",
        "kernels/rows.py",
        "quotient = builder.fdiv(old, splat(builder, args[1], lanes))",
        "old = narrow(builder, types.float32, old, lanes)\n"
        "        old = widen(builder, types.float32, old, lanes)\n"
        "        quotient = builder.fdiv(old, splat(builder, args[1], lanes))",
        (f"{HARD}::test_row_21_scaling_divides_before_rounding",),
    ),
    Mutant(
        "double-rounding",
        "float64 to float16 and bfloat16 by way of float32",
        "kernels/bits.py",
        "odd = builder.and_(builder.or_(bits, carried), number(~lost))",
        "odd = bits",
        (ONE_ROUNDING,),
    ),
    Mutant(
        "subnormals-rounded-twice",
        "bfloat16 by way of a subnormal float32",
        "kernels/bits.py",
        "constant(FLOAT, 2.0**-126, lanes)",
        "constant(FLOAT, 0.0, lanes)",
        (f"{HARD}::test_subnormal_numbers_are_rounded_once",),
    ),
    Mutant(
        "float32-accumulator",
        "every partial sum of a long run in memory is rounded to float32",
        "kernels/runs.py",
        "                store(builder, value, total, part, DOUBLE, width)",
        "                value = builder.fptrunc(value, lanes_of(ir.FloatType(), width))\n"
        "                value = builder.fpext(value, lanes_of(DOUBLE, width))\n"
        "                store(builder, value, total, part, DOUBLE, width)",
        (OTHER_CPU,),
    ),
    Mutant(
        "float32-accumulator-in-registers",
        "every partial sum of a run in registers is rounded to float32",
        "kernels/runs.py",
        "added.append(builder.fadd(total, row))",
        "row = builder.fptrunc(builder.fadd(total, row), lanes_of(ir.FloatType(), width))\n"
        "                added.append(builder.fpext(row, lanes_of(DOUBLE, width)))",
        (f"{RUNS}::test_every_length_and_width[float64-33]",),
    ),
    Mutant(
        "tail-beyond-the-row",
        "the vectors at the end of a row begin where they would in a longer one",
        "kernels/runs.py",
        "parts[number] = _least(builder, parts[number], begin)",
        "parts[number] = _least(builder, parts[number], builder.add(begin, I64(1)))",
        (f"{RUNS}::test_every_length_and_width[float64-33]",),
    ),
    Mutant(
        "small-row-unmasked",
        "a row of less than a vector is written as a whole one",
        "kernels/runs.py",
        "there = first_lanes(builder, builder.select(small, rest, I64(LANES)), LANES)",
        "there = first_lanes(builder, I64(LANES), LANES)",
        (f"{RUNS}::test_every_length_and_width[float64-7]",),
    ),
    Mutant(
        "cut-by-threads",
        "long rows are cut into as many parts as there are threads",
        "plan.py",
        "record.cut, record.blocks, record.block_length = order",
        "record.cut, record.blocks, record.block_length = order.cut, threads, -(-n // threads)",
        (THREADS,),
    ),
    Mutant(
        "blocks-backwards",
        "the block sums of a long row are added from the last to the first",
        "kernels/hot.py",
        "for block in range(which * plan.blocks, (which + 1) * plan.blocks):",
        "for block in range((which + 1) * plan.blocks - 1, which * plan.blocks - 1, -1):",
        (CUT,),
    ),
    Mutant(
        "threads-backwards",
        "within a row, the later thread's positions come first",
        "kernels/sort.py",
        "count = histogram[place]\n            histogram[place] = running",
        "mirror = 2 * digit + end - digits - place\n"
        "            count = histogram[mirror]\n            histogram[mirror] = running",
        (THREADS, DIGITS),
    ),
    Mutant(
        "digit-lost",
        "the highest digit of a row is not ordered by",
        "kernels/sort.py",
        "if call.digit < memory.plan_at(call.plan).digits:",
        "if call.digit < memory.plan_at(call.plan).digits - 1:",
        (DIGITS,),
    ),
    Mutant(
        "phase-left-out",
        "with the digits that are not there the phase behind them is left out",
        "kernels/sort.py",
        "return 2 * (MOST_DIGITS - call.digit) * SKIP",
        "return 2 * (MOST_DIGITS - call.digit) * SKIP + 1",
        (DIGITS,),
    ),
    Mutant(
        "indices-overwritten",
        "threads write rows over converted indices that others have yet to read",
        "plan.py",
        'rows_in_entries = not self.order.by_position and record["digits"] % 2 == 0',
        'rows_in_entries = not self.order.by_position and record["digits"] % 2 == 1',
        (DIGITS,),
    ),
    Mutant(
        "row-bits-missing",
        "digits that hold no row above 2**16",
        "digits.py",
        "row_bits = max(1, (num_weights - 1).bit_length()) if num_weights else 1",
        "row_bits = min(16, max(1, (num_weights - 1).bit_length())) if num_weights else 1",
        (DIGITS,),
    ),
    Mutant(
        "cut-off-by-one",
        "a row with exactly as many look-ups as the cut is not cut",
        "plan.py",
        "record.cut, record.blocks, record.block_length = order",
        "record.cut, record.blocks, record.block_length = order\n    record.cut += order.cut > 0",
        (CUT,),
    ),
    Mutant(
        "position-dropped-in-tables",
        "the last position of an odd stream, in a small vocabulary",
        "kernels/tables.py",
        "first, end = min(block * length, size), min((block + 1) * length, size)",
        "first, end = min(block * length, size), min((block + 1) * length, size - (size & 1))",
        (REGION,),
    ),
    Mutant(
        "balanced-split",
        "the plan owns rows by the balanced split instead of the documented one",
        "plan.py",
        "return partition_rows(self.num_weights, self.core_num)",
        'return partition_rows(self.num_weights, self.core_num, "balanced")',
        (CORES,),
    ),
    Mutant(
        "other-split-counted",
        "the kernels count by another split than the documented one",
        "kernels/count.py",
        "core_rows = max(1, plan.core_rows)",
        "core_rows = max(1, -(-plan.num_weights // (lookups.size + first_core)))",
        (CORES,),
    ),
    Mutant(
        "bound-off-by-one",
        "the index num_weights is let through",
        "kernels/count.py",
        "if np.uint64(np.int64(index)) < np.uint64(num_weights):",
        "if np.uint64(np.int64(index)) <= np.uint64(num_weights):",
        (f"{ERRORS}::test_row_06_an_index_beyond_the_table",),
    ),
    Mutant(
        "last-bad-named",
        "of several bad indices the last one is named",
        "kernels/count.py",
        "bad[thread] < call.bad",
        "bad[thread] > call.bad",
        (f"{ERRORS}::test_row_06_the_first_bad_value_is_the_one_named",),
    ),
    Mutant(
        "fractions-dropped",
        "in drop mode an index that is no integer is skipped",
        "kernels/count.py",
        "if row == NOT_AN_INTEGER or not dropping:",
        "if not dropping:",
        (f"{ERRORS}::test_dropping_drops_no_float_that_is_no_integer",),
    ),
    Mutant(
        "negative-zero",
        "the first contribution of a row with gaps is taken as it is, not added to +0.0",
        "kernels/rows.py",
        "store(builder, builder.fadd(value, zero), args[0], column, DOUBLE, lanes)",
        "store(builder, value, args[0], column, DOUBLE, lanes)",
        (NEGATIVE_ZEROS,),
    ),
    Mutant(
        "long-run-negative-zero",
        "sums of long runs start at -0.0",
        "kernels/runs.py",
        "value = splat(builder, ir.Constant(DOUBLE, 0.0), width)",
        "value = splat(builder, ir.Constant(DOUBLE, -0.0), width)",
        (OTHER_CPU,),
    ),
    Mutant(
        "nan-as-it-comes",
        "a NaN keeps its sign and payload",
        "kernels/bits.py",
        'return builder.select(nan, constant(ELEMENT[element], float("nan"), lanes), value)',
        "return value",
        (f"{HARD}::test_row_22_nan_and_infinity[float32]",),
    ),
    Mutant(
        "idle-rows-cleared",
        "accumulating writes zero to rows that no index names",
        "kernels/gather.py",
        "zero_gaps = call.accumulate == 0 and call.zeroed == 0",
        "zero_gaps = call.zeroed == 0",
        (f"{PROPERTIES}::test_accumulating",),
    ),
    Mutant(
        "end-of-line-lost",
        "the last bytes of a piece of a large output stay in the buffer",
        "kernels/stage.py",
        "copy_bytes(place + staged - remaining, stage, remaining)",
        "copy_bytes(place + staged - remaining, stage, remaining & ~15)",
        (f"{OUTPUTS}::test_large_outputs_at_every_alignment",),
    ),
    Mutant(
        "overlap-unseen",
        "only an output that is the gradient itself is refused",
        "validation.py",
        "if share_memory(array, other):",
        "if array is other:",
        (f"{ERRORS}::test_row_23_outputs_that_overlap_an_input",),
    ),
    Mutant(
        "workspace-shared",
        "a second thread in a workspace waits instead of being refused",
        "workspace.py",
        'if self._holder.setdefault("run", run) is not run:',
        'if self._holder.setdefault("run", run) is None:',
        ("tests/test_plan.py::test_one_workspace_in_two_threads_is_an_error",),
    ),
    Mutant(
        "small-call-ignores-bad-indices",
        "a small call that repeats takes any index",
        "small.py",
        "if bad != NONE_BAD:",
        "if bad > 1 << 40:",
        (f"{SMALL}::test_errors_stay",),
    ),
    Mutant(
        "small-call-overlaps",
        "a small call may write to an output that begins behind its gradient",
        "small.py",
        "if start < end and first < start + other.nbytes:",
        "if start < end and first < start:",
        (f"{SMALL}::test_given_outputs",),
    ),
    Mutant(
        "padding-in-tables",
        "the padding row of a small vocabulary is a row like any other",
        "kernels/tables.py",
        "        elif row != padding:\n            total = table",
        "        else:\n            total = table",
        (f"{ORDERS}::test_options_follow_the_order_too[50]",),
    ),
    Mutant(
        "start-of-a-window-unchecked",
        "the first index of a window of positions of one column",
        "kernels/tables.py",
        "for position in range(start, checked):",
        "for position in range(start + 1, checked):",
        ("tests/test_one_column.py::test_a_bad_index_anywhere_in_a_block[40-int64]",),
    ),
    Mutant(
        "rounded-twice-to-16-bits",
        "float64 is cut, not rounded to odd, on its way to 16 bits",
        "kernels/bits.py",
        "builder.or_(bits, carried)",
        "bits",
        (f"{HARD}::test_row_29_one_rounding",),
    ),
]
