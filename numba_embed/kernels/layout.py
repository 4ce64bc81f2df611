"""Names of the entries of the two int64 vectors that every kernel takes.

``params`` is laid out once per plan: sizes, the rule of order, the cut into cores and buckets, and
the workspace (offsets in bytes from its aligned start). ``operands`` is made for one call: the
addresses and strides of the arrays. Two vectors instead of forty arguments: dispatching one costs
the same for any length, and read-only, misaligned or N-d arrays need no kernel of their own.
"""

from __future__ import annotations

# --- params ---------------------------------------------------------------------------------------

N = 0  # positions
V = 1  # rows of the table
D = 2  # columns
PADDING = 3  # the padding row, or -1
SCALE = 4  # 1: divide by the frequency
DROPPING = 5  # 1: indices out of range take no part; 0: they are errors
THREADS = 6  # pieces that a parallel phase is cut into

# The rule of order (numba_embed.order).
CUT = 7
BLOCKS = 8
BLOCK_LENGTH = 9

# Cores: all but the last own CORE_ROWS rows each; the last one owns [LAST_START, V).
CORE_ROWS = 10
LAST_START = 11

# Buckets of rows: OUTER_ROWS rows (one or more whole cores) make SLICES buckets of WIDTH rows each;
# the last core's rows make buckets of LAST_WIDTH rows, numbered from LAST_BASE on.
OUTER_ROWS = 12
SLICES = 13
WIDTH = 14
LAST_BASE = 15
LAST_WIDTH = 16
BUCKETS = 17
COUNTERS = 18  # entries of one thread's frequency buffer

# An entry of the order is row << POSITION_BITS | position.
POSITION_BITS = 19

# Offsets into the workspace, and lengths.
ENTRIES = 20  # uint64 (N,): ordered entries; before that the checked rows, of the row type
SCATTERED = 21  # uint64 (N,): entries by bucket; before that converted indices
HISTOGRAM = 22  # int64 (THREADS, BUCKETS)
BUCKET_START = 23  # int64 (BUCKETS + 1,)
BAD = 24  # int64 (THREADS,): each thread's first bad position
TICKETS = 25  # int64 (1,): the next piece of work
HOT = 26  # int64 (MAX_HOT, 3): row, first entry, end of entries
MAX_HOT = 27  # 0: cut rows are summed within the thread that owns them
HOT_SUMS = 28  # float64 (MAX_HOT, BLOCKS, D)
TABLES = 29  # float64 (BLOCKS, V, D): partial tables of the small-vocabulary regime
TABLE_COUNTS = 30  # int64 (BLOCKS, V): their frequencies
PRIVATE = 31  # one thread's buffers, see below
PRIVATE_STRIDE = 32
PIECES = 33  # row ranges that the sum over rows is cut into
COLUMN_SLICES = 34  # column ranges, so that threads share wide rows

PARAMS_LENGTH = 35

# --- operands -------------------------------------------------------------------------------------

WORKSPACE = 0  # addresses
INDICES = 1
GRAD = 2
OUT = 3
POSITION_MAP = 4  # int64 (N,): the gradient row of a position; 0: the position itself
POSITION_WEIGHTS = 5  # float64 (N,): a factor per position; 0: none
OUT_ROW = 6  # strides in bytes
OUT_COLUMN = 7
OUT_SWAP = 8  # 1: the other byte order
GRAD_COLUMN = 9
GRAD_SWAP = 10
ACCUMULATE = 11  # 1: add to what out holds
ZEROED = 12  # 1: out is known to be zero
STREAMING = 13  # 1: out is C-contiguous and larger than the caches
GRAD_DIMS = 14  # leading dimensions of grad after merging
GRAD_SHAPE = 15  # up to 8
GRAD_STRIDES = 23  # up to 8, in bytes

OPERANDS_LENGTH = 31

# --- one thread's buffers, in bytes behind PRIVATE + thread * PRIVATE_STRIDE ----------------------

TILE = 1024
"""Elements that are summed at a time in a private buffer."""

STAGE = 2 * TILE
"""Elements of the buffer in which streaming stores are gathered to whole lines."""

SUM = 0  # float64 (TILE,)
PART = SUM + 8 * TILE  # float64 (TILE,)
SOURCE = PART + 8 * TILE  # gradient elements (TILE,)
STAGED = SOURCE + 8 * TILE  # output elements (STAGE,)
FREQUENCY = STAGED + 8 * STAGE  # uint32 (COUNTERS,)
