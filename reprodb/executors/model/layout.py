"""What the engine and the code it compiles agree on: address windows, and offsets in bytes of its records."""

from __future__ import annotations

# Addresses that kernels see. They are the same on every machine and in every run. Each buffer begins at
# a multiple of 1 GiB and is followed by a gap, so that running off an end never meets the next one.
BUFFERS_AT = 0x10_0000_0000
VARIABLES_AT = 0x8_0000_0000
CONSTANTS_AT = 0xC_0000_0000
SPACING = 1 << 30
SHARED_WINDOW = 1 << 44  # generic addresses of shared memory; the low 32 bits are the shared address
LOCAL_WINDOW = 1 << 45

POISON = 0xA5
AHEAD = 8  # iterations that rows are fetched in advance
MOST_SHARED = 227 * 1024  # what one block can have on sm_90

# The launch record: one a stage.
L_PARAMS = 0  # address of the parameter block
L_REGIONS = 8  # address of the table of regions: start, end, host - start, writable (u64 each)
L_REGION_COUNT = 16
L_SITES = 24  # address of the table of sites
L_TIDS = 32  # address of thread indices: for each warp x, y and z of 32 lanes (u32)
L_SHARED = 40  # bytes of shared memory, static and dynamic (u64)
L_DYNAMIC = 48  # of which dynamic (u64)
L_NTID = 56  # x, y, z (u32)
L_NCTAID = 68  # x, y, z (u32)
L_WARPS = 80  # warps a block (u32)
L_LAST_LANES = 84  # lanes of the last warp (mask, u32)
L_QUANTUM = 88  # backward branches before a warp is suspended (u64)
L_STALLS = 96  # rounds without progress before a block gives way to others (u64)
L_STEPS = 104  # backward branches left before the stage is given up (i64)
L_ERROR = 112  # error code (u32), then
L_ERROR_SITE = 116  # the site (u32)
L_ERROR_LANE = 120  # the lane (u32)
L_ERROR_WARP = 124  # the warp in its block (u32)
L_ERROR_ADDRESS = 128  # the address (u64)
L_UNDEFINED = 136  # site + 1 of a shuffle that read a lane which did not take part (u32)
L_NANS = 140  # site + 1 of an f64 operation that met two different NaNs (u32)
L_SEED = 144  # what the order of warps starts from (u64)
L_WARP = 152  # address of the stage's function that runs a warp
L_WARP_BYTES = 160  # bytes of a warp's record (u64)
L_LOCAL_AT = 168  # where local memory begins in it (u64)
L_LOCAL_BYTES = 176  # local memory of one thread (u64)
L_PARAM_BYTES = 184  # bytes of the parameter block (u64)
L_LOG = 192  # address of the log's record, where a stage is recorded or replayed
L_BYTES = 256

REGION_BYTES = 32
SITE_BYTES = 64  # a site's record: the region that it met last (start, end, host - start), and to fetch ahead
SITE_LAST = 24  # the address that it met last
SITE_STRIDE = 32  # how far it goes from one row to the next, seen twice in a row
SITE_STEP = 40  # how far it went the last time that it was not its stride
SITE_EDGE = 48  # from this address on the row to fetch is one of the walk that comes next
SITE_JUMP = 56  # and lies so much further

# The record of a thread block that is resident.
B_SHARED = 0  # address of its shared memory
B_CTAID = 8  # x, y, z (u32)
B_STARTED = 20  # whether it has begun (u32)
B_RANDOM = 24  # state of its random numbers (u64)
B_LIVE = 32  # warps that have not returned (u32)
B_STALLED = 36  # rounds without progress (u32)
B_NUMBER = 40  # its number in the grid (u64)
B_AFTER = 48  # the number of the block that runs next, less its own (i64)
B_TURN = 56  # the place in B_ORDER of the warp whose turn it is (u32)
B_BARRIERS = 64  # 16 records of 32 bytes:
BARRIER_BYTES = 32
BAR_ARRIVED = 0  # warps that have arrived (u32)
BAR_EXPECTED = 4  # warps that it waits for, 0 for all that live (u32)
BAR_TRUE = 8  # bar.red: threads with a true predicate so far (u32)
BAR_THREADS = 12  # bar.red: threads so far (u32)
BAR_LAST_TRUE = 16  # the same at its last completion
BAR_LAST_THREADS = 20
B_ORDER = 576  # order in which warps take their turn (32 × u32)
B_STATUS = 704  # READY, PARKED or DONE of each warp (32 × u32)
B_WARPS = 832  # the warps' records

READY, PARKED, DONE = 0, 1, 2

# The record of a warp.
W_PC = 0  # block number of each lane (32 × u16), with the flags below
W_FUEL = 64  # backward branches left in this turn (i64)
W_BARRIER = 72  # number of the barrier that it waits at (u32)
W_COUNT = 76  # warps that the barrier expects, 0 for all (u32)
W_KIND = 80  # SYNC, ARRIVE or REDUCE (u32)
W_TRUE = 84  # bar.red: its threads with a true predicate (u32)
W_THREADS = 88  # bar.red: its threads (u32)
W_INDEX = 92  # its number in the block (u32)
W_TIDS = 96  # address of its thread indices
W_WHOLE = 104  # the block that all 32 lanes run next, or NOT_WHOLE where W_PC tells them apart (u32)
W_REGISTERS = 128

NOT_WHOLE = 0xFFFFFFFF

SYNC, ARRIVE, REDUCE = 0, 1, 2

# The record of a log: what a stage writes to global memory, kept while it runs and played again.
G_AT = 0  # where the next entry goes, and the end of that room
G_END = 8
G_TURN = 16  # where the next turn goes, and the end of that room
G_TURNS_END = 24
G_FLAGS = 32  # what was found, below (u64)
G_WARP = 40  # address of the stage's function that runs a warp
G_HEADS = 48  # address of the first turn of each warp of the grid (u64 each)
G_NEXT = 56  # the same, while recording: where its next turn is linked; while replaying: its next turn
G_BLOCKS = 64  # address of the blocks' records
G_TOUCHED = 72  # address of what was done with each region (u64 each): TOUCH_READ, TOUCH_WRITTEN
G_QUIET = 80  # addresses between these are of inputs: reading them is not noted
G_QUIET_END = 88
G_SHADOW = 96  # address of who touched shared memory last: for each word a writer and a reader (u64 each)
G_WORDS = 104  # words of shared memory
G_BLOCK = 112  # the block that runs, -1 at first (u64)
G_SERIAL = 120  # how many blocks have begun (u64)
G_LAST = 128  # phase and warp of the block's last entry (u64)
G_SOLID = 136  # whether the block's entries have one order, whatever the order of its warps (u64)
G_PHASES = 192  # barriers of the whole block that each warp has passed (32 × u32)
G_BYTES = 320

GB_FROM, GB_TO, GB_SOLID, GB_BYTES = 0, 8, 16, 24  # a block's entries in the log, and G_SOLID as it ended

TOUCH_READ, TOUCH_WRITTEN = 1, 2

# A turn of a warp: from when the scheduler calls it until it waits, returns or has to give way.
T_NEXT = 0  # address of the warp's next turn
T_FROM = 8  # its entries
T_TO = 16
T_BARRIER = 24  # as W_BARRIER and W_COUNT
T_KIND = 32  # as W_KIND
T_RC = 36  # how it ended
T_BYTES = 40

# An entry: one instruction that writes, as one warp executed it. Multiples of 64 bytes.
N_CALL = 0  # address of the function that does it
N_FINDER = 8  # of a store: the state space's `find`; of an atomic null
N_SITE = 16  # (u32)
N_MASK = 20  # (u32)
N_COUNT = 24  # of a store: elements of each lane (u32)
N_COMMON = 28  # whether all lanes have one address (u32)
N_BYTES = 32  # of the whole entry (u64)
N_ADDRESS = 40  # the common address (u64)
N_REST = 64  # 32 × i64 of addresses where they differ, then the operands

LOG_FULL, LOG_CLASH, LOG_BARRIER = 1, 2, 4  # bits of G_FLAGS

# Flags in a lane's block number. The smallest number runs next, so a flag puts a lane behind the others.
PC_BLOCK = 0x1FFF
PC_TRIED = 0x2000  # waiting for lanes of its warp, and looked at since something changed
PC_WAITING = 0x4000  # waiting for lanes of its warp
PC_PARKED = 0x8000  # at a barrier of the thread block
PC_DONE = 0xFFFF

# What running a warp, or a block, ends with.
RC_DONE, RC_BARRIER, RC_QUANTUM, RC_ERROR = 0, 1, 2, 3

# Error codes.
E_ACCESS = 1  # outside every buffer, misaligned, or into what is read-only
E_TRAP = 2
E_DIVISION = 3
E_WARP_DEADLOCK = 4
E_BLOCK_DEADLOCK = 5
E_BRANCH_TABLE = 6
E_BARRIER = 7
E_STEPS = 8


def align_up(value: int, align: int) -> int:
    return -(-value // align) * align
