"""Mistakes that the simulator detects while a kernel runs: one exception class per rule, one row per way to violate it.

A hazard follows from the accesses and the synchronisation of the kernel, not from values that one schedule happened to
corrupt. Masked-off elements never raise one.
"""

from __future__ import annotations

from weft.errors.base import Hazard, LaunchError, row


class OutOfBounds(Hazard):
    """An access outside the memory of its argument, of a tile, of a view or of a thread-local array."""


class Misaligned(Hazard):
    """An access whose address is not a multiple of its size."""


class UndefinedValue(Hazard):
    """An element without a defined value is used where its value matters."""


class DivisionByZero(Hazard):
    """An integer division or remainder by zero whose result is used."""


class BrokenPromise(Hazard):
    """A promise of the author (`assume`, `multiple_of`, `max_contiguous`, `max_constancy`, `uniform`) that does not hold."""


class WrappedOffset(Hazard):
    """A 32-bit expression that wrapped and then determined which memory is accessed."""


class AssertionFailed(Hazard):
    """A `device_assert` that does not hold."""


class EndlessLoop(Hazard):
    """A loop that does not terminate: its step is 0, or it has run for too many iterations."""


class NotSimulated(Hazard):
    """Inline PTX that the simulator does not model, or a function that needs a library which is not installed."""


class Deadlock(Hazard):
    """No program can make progress. `related` holds the line of each waiter, labelled with program, partition and event."""


class UninitializedRead(UndefinedValue):
    """Shared or tensor memory is read that was never written since it was allocated."""


class ThreadRace(Hazard):
    """Two threads of a block access the same shared memory, one of them writes, and nothing orders them."""


class MissingFence(Hazard):
    """An access and a later one by the copy engine (the async proxy) with no proxy fence between them."""


class ReadInFlight(Hazard):
    """Shared memory is read while a copy into it is in flight."""


class WriteInFlight(Hazard):
    """Shared memory is written while a copy into it is in flight."""


class StoreSourceReused(Hazard):
    """Shared memory is written while a TMA store may still read it."""


class OperandReused(Hazard):
    """Shared memory is written while a warpgroup MMA may still read it."""


class AccumulatorInFlight(Hazard):
    """An accumulator is used before a wait for its MMA, or by the value from before that wait."""


class StoreUnread(Hazard):
    """A program ends before its TMA store has read the source."""


class BarrierNotInitialised(Hazard):
    """An mbarrier is used that was never initialised."""


class BarrierInvalidated(Hazard):
    """An mbarrier is used after it was invalidated, or invalidated while a copy will signal it."""


class BarrierReinitialised(Hazard):
    """An mbarrier is initialised although it is in use."""


class TooManyArrivals(Hazard):
    """A phase of an mbarrier receives more arrivals than its count."""


class TransactionBytes(Hazard):
    """The bytes that a phase of an mbarrier expects differ from those that copies complete."""


class PhaseAliasing(Hazard):
    """A waiter may observe an mbarrier one phase too late, whose parity equals that of the phase before."""


class GlobalRace(Hazard):
    """Two programs, or two threads of one, access the same global memory, one of them writes, and nothing orders them."""


class RankRace(GlobalRace):
    """Two ranks access the same memory, one of them writes, and nothing orders them: a signal is missing or too early."""


class PutSource(Hazard):
    """A put by NVSHMEM may still read what is overwritten, or reads memory that NVSHMEM does not know."""


class RankScope(Hazard):
    """Two ranks synchronise through memory with a scope that does not reach the other rank."""


class SignalReused(Hazard):
    """A flag on which another rank waits for one value gets the next value before that rank is known to have seen it."""


class MulticastAddress(Hazard):
    """A multicast address that an ordinary access uses, or another address that a multimem access uses."""


class SignalLeft(Hazard):
    """A signal that no launch has waited for: the next wait on its flag would take it."""


class DependentLaunch(Hazard):
    """A launch with `launch_pdl=True` accesses what a launch before it may still be accessing, or never waits for it."""


class InactiveLane(Hazard):
    """A value is read from a lane of the warp that does not participate, or does not exist."""


class MissingThreads(Hazard):
    """An operation that all threads of a block, or of a warp, execute together is reached by only some of them."""


class BadDescriptor(Hazard):
    """A descriptor that a kernel makes describes a tensor that TMA cannot access."""


class DescriptorReplaced(Hazard):
    """A descriptor made in a loop overwrites an earlier one that is still in use."""


OUT_OF_BOUNDS = row(
    "hazard-out-of-bounds",
    OutOfBounds,
    "program {program} {access} {name}[{index}], but {name} has {extent}{share}",
    "{mask}, or pass a larger array{instead}",
)
NO_BUFFER = row(
    "hazard-no-buffer",
    OutOfBounds,
    "program {program} {access} address {address:#x}, which lies in no argument's memory",
    "start from a pointer argument and add offsets in elements",
)
TENSOR_RANGE = row(
    "hazard-tensor-range",
    OutOfBounds,
    "program {program}: a TMA request {access} address {address:#x}, inside the tensor of its descriptor but outside {name}",
    "give the descriptor the shape and the strides of the array itself",
)
TENSOR_COORDINATE = row(
    "hazard-tensor-coordinate",
    Misaligned,
    "program {program}: a TMA request starts at column {column} of {name}, which is byte {byte} of a row, but TMA needs a "
    "multiple of {granule} bytes (the GPU stops with an illegal instruction)",
    "start blocks at columns that are multiples of {step}",
)
TENSOR_CHUNK = row(
    "hazard-tensor-chunk",
    OutOfBounds,
    "program {program}: a TMA request writes whole chunks of 16 bytes, and the last chunk of a row of {columns} elements "
    "extends past the memory of {name}",
    "pad the array to a multiple of 16 bytes, or store the last elements with gl.store and a mask",
)
GATHER_RANGE = row(
    "hazard-gather-range",
    OutOfBounds,
    "program {program} gathers index {index} along axis {axis} of length {length}, at {where}",
    "keep indices between 0 and {last}",
)
MISALIGNED = row(
    "hazard-misaligned",
    Misaligned,
    "program {program} {access} {bytes} bytes of {name} at byte {byte}, whose address lies {past} past a multiple of {bytes}"
    "{where}",
    "{instead}",
)
READ_ONLY = row(
    "hazard-read-only",
    LaunchError,
    "program {program} writes {name}, but that array is read-only",
    "pass a writable copy of it",
)
UNDEFINED = row(
    "hazard-undefined",
    UndefinedValue,
    "program {program}: an undefined element reaches {sink}{where}; {cause}",
    "give the load `other=`, or mask this use with the same mask",
)
UNDEFINED_SHARED = row(
    "hazard-undefined-shared",
    UninitializedRead,
    "program {program}: an undefined element reaches {sink}{where}; {cause}",
    "write the memory first, or wait for the copy that writes it",
)
ASSUME = row(
    "hazard-assume",
    BrokenPromise,
    "program {program}: assume() promises a condition that does not hold",
    "remove the promise, or correct what it depends on",
)
HINT = row(
    "hazard-hint",
    BrokenPromise,
    "program {program}: {promise} {amount} along axis {axis} is promised, but the element at {where} is {value}",
    "promise only what holds for every program, or drop the hint",
)
NOT_UNIFORM = row(
    "hazard-not-uniform",
    BrokenPromise,
    "program {program}: {what} must be equal in all threads of {scope}, but {first} has {first_value} "
    "and {second} has {second_value}",
    "compute it from values that are uniform there",
)
ASSERTION = row(
    "hazard-assertion",
    AssertionFailed,
    "program {program}: assertion failed{where}: {message}",
    "{instead}",
)
INLINE_ASM = row(
    "hazard-inline-asm",
    NotSimulated,
    "the simulator does not model {reason}, in the inline PTX {instruction!r}",
    "pass sim=, a function of NumPy arrays that computes the results, or write it with instructions that are modelled",
)
DEADLOCK = row(
    "hazard-deadlock",
    Deadlock,
    "no program can make progress: {waiting} wait for events that no thread will cause{pending}",
    "{fix}",
)

# Shared memory

SHARED_RANGE = row(
    "hazard-shared-range",
    OutOfBounds,
    "program {program} {access} bytes {first} to {last} of {name}, which has {size} bytes",
    "keep indices below the leading dimensions of the allocation, and reinterpret no more than its own bytes",
)
SHARED_INDEX = row(
    "hazard-shared-index",
    OutOfBounds,
    "program {program} {access} {name} at index {index} along axis {axis} of length {length}, at {where}",
    "keep indices between 0 and {last}",
)
UNINITIALIZED = row(
    "hazard-uninitialized",
    UninitializedRead,
    "program {program} reads {name}, which was never written{where}",
    "write the memory first, or wait for the copy that writes it",
)
MISSING_FENCE = row(
    "hazard-missing-fence",
    MissingFence,
    "program {program}: {partition} {access} {name} through the async proxy after {other} {before} it, "
    "and no fence lies between",
    "call fence_async_shared() after the first line, before the gl.barrier() or mbarrier.arrive() that hands the memory on",
)
THREAD_RACE = row(
    "hazard-thread-race",
    ThreadRace,
    "program {program}: {partition} {access} {name}, which other threads of {other} {before}, and nothing orders the two",
    "{order}",
)
READ_IN_FLIGHT = row(
    "hazard-read-in-flight",
    ReadInFlight,
    "program {program}: {partition} {access} {name} while the copy into it that {other} started is in flight",
    "{wait} before this line",
)
WRITE_IN_FLIGHT = row(
    "hazard-write-in-flight",
    WriteInFlight,
    "program {program}: {partition} {access} {name} while the copy into it that {other} started is in flight",
    "{wait} before this line",
)
STORE_SOURCE_REUSED = row(
    "hazard-store-source-reused",
    StoreSourceReused,
    "program {program}: {partition} {access} {name} while the TMA store that {other} started may still read it",
    "call tma.store_wait(pendings=...) in {other} before this line, with fewer pendings than stores issued since that one",
)
OPERAND_REUSED = row(
    "hazard-operand-reused",
    OperandReused,
    "program {program}: {partition} {access} {name} while the MMA that {other} started may still read it",
    "call warpgroup_mma_wait(num_outstanding=...) in {other} before this line, with fewer outstanding than MMAs issued since "
    "that one; where another partition writes, let {other} arrive on an mbarrier after that wait",
)
ACCUMULATOR = row(
    "hazard-accumulator",
    AccumulatorInFlight,
    "program {program}: {partition} uses an accumulator whose MMA is in flight",
    "use the result of the wait: acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])",
)
ACCUMULATOR_OLD = row(
    "hazard-accumulator-old",
    AccumulatorInFlight,
    "program {program}: {partition} uses an accumulator that has changed in place since {by} claimed it",
    "use the result of {by}, best under the same name, as in acc = ...(acc)",
)
STORE_UNREAD = row(
    "hazard-store-unread",
    StoreUnread,
    "program {program} ends while a TMA store may still read {name}",
    "call tma.store_wait(pendings=0) before the kernel ends",
)

# Descriptors

BAD_DESCRIPTOR = row(
    "hazard-descriptor",
    BadDescriptor,
    "program {program} makes a descriptor of {name} whose {part} is {value}, but TMA takes {wanted}",
    "{fix}",
)
DESCRIPTOR_IN_USE = row(
    "hazard-descriptor-in-use",
    DescriptorReplaced,
    "program {program}: {partition} overwrites an earlier descriptor, through which a load is in flight",
    "wait for the load first, as in mbarrier.wait(bar, phase), or make the descriptors on two lines of the kernel",
)
DESCRIPTOR_REPLACED = row(
    "hazard-descriptor-replaced",
    DescriptorReplaced,
    "program {program}: {partition} uses a descriptor that a newer one from the same line has overwritten",
    "use only the latest descriptor that a line has made, or make the descriptors on two lines of the kernel",
)

# mbarriers

BARRIER_FRESH = row(
    "hazard-barrier-not-initialised",
    BarrierNotInitialised,
    "program {program}: {partition} uses {name}, which was never initialised",
    "call mbarrier.init(bar, count=...) before; in kernels of single threads gl.mbarrier_init(bar, count) by one of them, and "
    "then gl.barrier()",
)
BARRIER_INVALIDATED = row(
    "hazard-barrier-invalidated",
    BarrierInvalidated,
    "program {program}: {partition} uses {name} after it was invalidated",
    "invalidate a barrier after its last use, or initialise it again",
)
BARRIER_BUSY = row(
    "hazard-barrier-invalidated-early",
    BarrierInvalidated,
    "program {program}: {name} is invalidated while a {what} will still signal it",
    "wait for the phase that the {what} completes before mbarrier.invalidate(bar)",
)
BARRIER_REINITIALISED = row(
    "hazard-barrier-reinitialised",
    BarrierReinitialised,
    "program {program}: {name} is initialised although it is in use",
    "initialise a barrier once, as one serves for any number of phases; or call mbarrier.invalidate(bar), or in one thread "
    "gl.mbarrier_inval(bar), before initialising it again",
)
BARRIER_BY_MANY = row(
    "hazard-barrier-by-many",
    BarrierReinitialised,
    "program {program}: {threads} threads {verb} {name} at once",
    "let one thread do it, as in if gl.thread_idx.x == 0:, with a gl.barrier() after it",
)
BARRIER_STATE = row(
    "hazard-barrier-state",
    BarrierNotInitialised,
    "program {program}: {thread} tests {name} for a state that no arrival on it returned",
    "keep what gl.mbarrier_arrive(bar) returns, and pass that: while not gl.mbarrier_test_wait(bar, state): pass",
)
EARLY_ARRIVAL = row(
    "hazard-barrier-early",
    TooManyArrivals,
    "program {program}: {thread} arrives at {name} although nothing tells it that phase {phase} is complete: the arrival may "
    "count for that phase",
    "wait for the phase before arriving for the next: while not gl.mbarrier_test_wait(bar, state): pass",
)
TOO_MANY_ARRIVALS = row(
    "hazard-too-many-arrivals",
    TooManyArrivals,
    "program {program}: {partition} arrives {times} at {name}, {over} more than phase {phase} takes: it has received {had} of "
    "its {expected} arrivals",
    "initialise it with the count of all arrivals of a phase, or wait for the phase before arriving for the next",
)
EXPECT = (
    "call mbarrier.expect(bar, bytes) with the bytes of all copies (block_type.nbytes, in clusters desc.nbytes_per_cta)"
)
TOO_MANY_BYTES = row(
    "hazard-transaction-bytes",
    TransactionBytes,
    "program {program}: copies complete {brought} bytes in phase {phase} of {name}, which expects {expected}",
    EXPECT,
)
MISSING_BYTES = row(
    "hazard-transaction-bytes-missing",
    TransactionBytes,
    "program {program}: phase {phase} of {name} expects {expected} bytes, but copies complete {brought} and none is pending",
    EXPECT,
)
PHASE_ALIASING = row(
    "hazard-phase-aliasing",
    PhaseAliasing,
    "program {program}: phase {done} of {name} may complete before all threads of {partition} have seen {phase}, which they "
    "wait for; the parity does not tell the two apart",
    "let all waiting threads see a phase before the next one completes: look for an arrival count that is too small, an extra "
    "arrival, or a missing gl.barrier() between the wait and the arrival that lets the next phase complete",
)

# Loops

LOOP_ENDLESS = row(
    "hazard-loop-endless",
    EndlessLoop,
    "program {program}: this loop has run for {iterations} iterations",
    "make its condition depend on something that changes; WEFT_MAX_ITERATIONS sets another bound",
)

# Integers

WRAPPED = row(
    "hazard-wrapped-offset",
    WrappedOffset,
    "program {program}: an offset used here wrapped around 32 bits{where}",
    "compute it in 64 bits: cast an operand with .to(gl.int64) before it is multiplied",
)
WRAPPED_MASK = row(
    "hazard-wrapped-mask",
    WrappedOffset,
    "program {program}: the mask of an access depends on an integer that wrapped around 32 bits{where}",
    "compute it in 64 bits: cast an operand with .to(gl.int64); where it is meant to wrap, as in a hash, compute in gl.uint32",
)
DIVISION = row(
    "hazard-division-by-zero",
    DivisionByZero,
    "program {program} divides by zero{where}",
    "keep the divisor away from zero, for example by `other=1` where the load is masked",
)
LOOP_STEP = row(
    "hazard-loop-step",
    EndlessLoop,
    "program {program}: a loop from {lower} to {upper} has step 0",
    "use a step that is not zero; on a GPU such a loop has no iterations",
)

# Global memory shared by programs, threads and copies

GLOBAL_RACE = row(
    "hazard-global-race",
    GlobalRace,
    "program {program} {access} {name}[{index}], which program {other} {before}, and nothing orders the two programs",
    "let each program write elements of its own, or order them: after the first, publish with an atomic or "
    'gl.store(sem="release"); before the second, wait for that value with an atomic or gl.load(sem="acquire"){unordered}',
)
RANK_READ = row(
    "hazard-rank-read",
    RankRace,
    "{who} reads {name}[{index}], which {whom} {before}, and no signal of that rank orders the two",
    "call gl.signal() for this rank after the write, and gl.wait_signal() before the read{unordered}",
)
RANK_WRITE = row(
    "hazard-rank-write",
    RankRace,
    "{who} {access} {name}[{index}], which {whom} {before}, and nothing says that the other rank is done with it",
    "let the other rank call gl.signal() after its last access, and call gl.wait_signal() before this one, also where the next "
    "launch writes what a peer reads in this one; weft.distributed.barrier() orders what host functions write{unordered}",
)
PUT_READS = row(
    "hazard-put-source",
    PutSource,
    "{who} {access} {name}[{index}], which {whom} may still read",
    "call gl.quiet() before the source of a put is overwritten, in the kernel that puts it",
)
PUT_LOCAL = row(
    "hazard-put-local",
    PutSource,
    "program {program} puts elements of {name}, which is no symmetric memory of this rank: a network cannot read it",
    "copy them to a symmetric tensor first, and put from x.local + offset of that",
)
RANK_SCOPE = row(
    "hazard-rank-scope",
    RankScope,
    '{who} {access} {name}[{index}] with scope "{scope}", and {whom} {before} it with scope "{other_scope}": only scope "sys" '
    "reaches other ranks",
    'write scope="sys" at both lines',
)
SIGNAL_REUSED = row(
    "hazard-signal-reused",
    SignalReused,
    "{who} {access} {name}[{index}], on which {whom} waits for the value before, and nothing says that it has seen that value: "
    "if it comes later, it waits forever",
    "let the waiting rank answer before the flag is used again, or use gl.signal() and gl.wait_signal(), which count",
)
MULTICAST_ADDRESS = row(
    "hazard-multicast-address",
    MulticastAddress,
    "program {program} {access} {name} by an ordinary access, whose result PTX does not define",
    "use gl.multimem_ld_reduce(), gl.multimem_st() or gl.multimem_red(), or the memory of one rank, x.local or x.peer(rank)",
)
MULTIMEM_ADDRESS = row(
    "hazard-multimem-address",
    MulticastAddress,
    "program {program} passes an address of {name} to a multimem access, which is no multicast address",
    "pass x.multicast + offsets, inside of the tensor",
)
SIGNAL_LEFT = row(
    "hazard-signal-left",
    SignalLeft,
    "{count} of rank {source} on flag {flag} of rank {rank} was never waited for: the next wait there would take it at once",
    "call gl.wait_signal() once for each gl.signal(), before the kernel ends",
)
RANKS_APART = row(
    "hazard-ranks-apart",
    Deadlock,
    "no rank can make progress: {ranks}",
    "call weft.distributed.barrier() on every rank equally often",
)
GLOBAL_THREADS = row(
    "hazard-global-thread-race",
    GlobalRace,
    "program {program} {access} {name}[{index}], which another of its threads {before}, and nothing orders the two threads",
    "call gl.barrier() between the two lines",
)
GLOBAL_BLOCKS = row(
    "hazard-global-block-race",
    GlobalRace,
    "program {program}: block {block} {access} {name}[{index}], which block {other} of its cluster {before}, and nothing "
    "orders the two",
    "call cluster.barrier() between the two lines, or let one block do both: give the tiles the same cga_layout",
)
GLOBAL_IN_FLIGHT = row(
    "hazard-global-in-flight",
    GlobalRace,
    "program {program} {access} {name}[{index}] while a copy from it that {partition} started may still read it",
    "{wait} before this line",
)
GLOBAL_STORED = row(
    "hazard-global-stored",
    GlobalRace,
    "program {program} {access} {name}[{index}], which a TMA store of {partition} {before}, and the write may not be complete: "
    "tma.store_wait() waits only until the store has read shared memory",
    "call tma.store_wait(pendings=0, read_only=False) after the store, then gl.barrier() for other threads of the block or a "
    "release for other programs",
)
GLOBAL_FENCE = row(
    "hazard-global-fence",
    MissingFence,
    "program {program} {access} {name}[{index}] by TMA, which {partition} {before} in this launch, and no proxy fence lies "
    "between",
    "call fence_async_global() after the first line (after the full wait, if that is a TMA store), before the gl.barrier() or "
    "release that hands the memory on, or before this line, after the acquire; gl.load() and async_copy need none",
)
DEPENDENT_LAUNCH = row(
    "hazard-dependent-launch",
    DependentLaunch,
    "program {program} {access} {name}[{index}] before gdc_wait, but {kernel}, which was launched before and may still be "
    "running, {before} it",
    "call gl.extra.cuda.gdc_wait() before this access; only what no launch of the chain writes may be read ahead of it",
)
DEPENDENT_NEVER_WAITS = row(
    "hazard-dependent-never-waits",
    DependentLaunch,
    "{name} was launched with launch_pdl=True and ended without a gdc_wait in any of its programs: it may end before the "
    "launches before it, and a launch after it that waits for it does not wait for them",
    "let at least one program reach gl.extra.cuda.gdc_wait() whatever the arguments are, or leave launch_pdl out",
)
GLOBAL_STORE = row(
    "hazard-global-store-race",
    GlobalRace,
    "program {program}: one store writes {name}[{index}] several times with different values",
    "store each element once: mask off the others, or combine them with an atomic",
)
SCATTER_COLUMN = row(
    "hazard-scatter-column",
    OutOfBounds,
    "program {program}: a scatter writes rows of {name} from column {column} on, but copies from shared memory have no "
    "negative columns (only rows out of bounds are skipped)",
    "start at column 0 or a later one, and leave the elements before column 0 out of the tile",
)

# Thread-level kernels. `thread` is the index of a thread in its block, as in "thread (3, 0, 0)"; `view` is the expression of
# the author's view through which the access went, or empty.

VIEW_BOUNDS = row(
    "hazard-view-bounds",
    OutOfBounds,
    "program {program}: {thread} uses index {index} {where} {view}, whose size there is {size}",
    "keep indices from 0 to below the size: compare with t.dim() first, or make a tile at the edge of a view with masked=True",
)
LOCAL_INDEX = row(
    "hazard-local-index",
    OutOfBounds,
    "program {program}: {thread} {access} {name}[{index}], but its thread-local {name} has elements 0 to {last}",
    "keep indices between 0 and {last}",
)
SHARED_ELEMENT = row(
    "hazard-shared-element",
    OutOfBounds,
    "program {program}: {thread} {access} {name}[{index}]{view}, but {name} has elements 0 to {last}",
    "keep indices between 0 and {last}, or allocate more",
)
SHARED_MISALIGNED = row(
    "hazard-shared-misaligned",
    Misaligned,
    "program {program}: {thread} {access} {bytes} bytes of {name} at byte {byte}{view}, which is {past} past a "
    "multiple of {bytes}",
    "pad rows to whole vectors, start views at multiples of the vector's width, or access narrower vectors",
)
THREADS_RACE = row(
    "hazard-threads-race",
    ThreadRace,
    "program {program}: {thread} {access} {name}{view}, which {other} {before}, and nothing orders the two threads",
    "{order}",
)
SHARED_STORE = row(
    "hazard-shared-store-race",
    ThreadRace,
    "program {program}: {thread} and {other} write {name}{view} by one store with different values",
    "let one thread write each element, or combine the values with an atomic",
)
GLOBAL_PAIR = row(
    "hazard-global-threads-race",
    GlobalRace,
    "program {program}: {thread} {access} {name}[{index}]{view}, which {other} {before}, and nothing orders the two threads",
    "{order}",
)
ASSEMBLED = row(
    "hazard-assembled",
    BrokenPromise,
    "program {program}: {thread} and {other} both hold element {index} of a tile, but with values {value} and {other_value}",
    "give all threads that hold an element the same value, or use a layout that gives each element to one thread",
)
SHUFFLE_LANE = row(
    "hazard-shuffle-lane",
    InactiveLane,
    "program {program}: {thread} reads a value of lane {lane} of its warp, which {why}",
    "let all 32 threads of the warp participate: launch whole warps, and shuffle outside of divergent branches",
)
MISSING_THREADS = row(
    "hazard-missing-threads",
    MissingThreads,
    "program {program}: {what} needs all threads {whole}, but {here} reaches it and {away} does not",
    "let all threads reach this line, with an if around only what some of them leave out; where the kernel's source does so, "
    "the compiler has misplaced the operation: report it",
)

# Blocks of a cluster


class ClusterBarrierMisuse(Hazard):
    """Arrivals and waits at a cluster barrier that do not alternate."""


class BlockExited(Hazard):
    """An access to the shared memory of a block that has ended."""


class BlocksDivided(Hazard):
    """What one block does for all of its cluster, where only some of the blocks come to it."""


CLUSTER_PAIR = row(
    "hazard-cluster-pair",
    ClusterBarrierMisuse,
    "program {program} {what} the barrier of its cluster twice",
    "call {wanted} in between: arrivals and waits alternate",
)
BLOCK_EXITED = row(
    "hazard-block-exited",
    BlockExited,
    "program {program}: block {block} uses shared memory of block {other}, which may have ended",
    "end the kernel with cluster.barrier(), so that no block leaves while others need it",
)

BLOCKS_DIVIDED = row(
    "hazard-blocks-divided",
    BlocksDivided,
    "program {program}: one block executes this {what} for all, but block {first} has come to it {once} times and block "
    "{other} {times} times, so that the condition around it differs between them",
    "decide by a value that all blocks share: one that they poll for themselves may change in between; what "
    "gl.atomic_add returns is the same in all",
)

PEER_RANK = row(
    "hazard-peer-rank",
    OutOfBounds,
    "program {program}: block {block} {access} {name} of block {rank}, but the blocks of its cluster are 0 to {last}",
    "pass a rank below gl.num_ctas(), such as (gl.block_rank_in_cluster() + 1) % gl.num_ctas()",
)

# Cluster launch control


class AnswerInFlight(Hazard):
    """Shared memory is read or written while the response to a launch control request is in flight to it."""


class LaunchControlMisuse(Hazard):
    """A launch control request (to claim another program) that is undefined, or whose response is never read."""


CLC_IN_FLIGHT = row(
    "clc-in-flight",
    AnswerInFlight,
    "program {program}: {partition} {access} {name} while the response that {other} requested is in flight",
    "call mbarrier.wait() with the mbarrier of the request, and the phase that the response completes, before this line",
)
CLC_AFTER_NONE = row(
    "clc-after-none",
    LaunchControlMisuse,
    "program {program}: {partition} requests another program after a response has said that none is left, which is undefined",
    "issue no further request once is_canceled() is false: end the loop there",
)
CLC_ALIGNMENT = row(
    "clc-alignment",
    LaunchControlMisuse,
    "program {program}: a response is written to byte {byte} of {name}, but responses are 16 bytes at multiples of 16",
    "allocate one with gl.allocate_shared_memory(gl.int64, [2], layout), or several with a leading dimension",
)
CLC_LOST = row(
    "clc-lost",
    LaunchControlMisuse,
    "program {program} has claimed program {taken}, which will not be launched, but {end} no thread has read the response",
    "wait for each request, and do the work of the program that clc.load_result(...) names",
)

# Tensor memory and the MMAs of tcgen05


class TensorInFlight(Hazard):
    """Tensor memory is read or written while an MMA or a copy into it is in flight."""


class TensorOperandReused(Hazard):
    """Shared or tensor memory is written while an MMA or a copy of tcgen05 may still read it."""


class TensorRace(Hazard):
    """Two accesses to the same tensor memory, one of them a write, and nothing orders them."""


class TensorOrder(Hazard):
    """An operation of tcgen05 accesses tensor memory of an earlier one that is in flight, and nothing orders the two."""


class MissingTensorFence(Hazard):
    """Accesses to tensor memory by different threads are ordered by a barrier, but without the fences of tcgen05."""


class TensorMemoryLanes(Hazard):
    """A warp accesses lanes of tensor memory that only other warps can access."""


class TensorMemoryInUse(Hazard):
    """Tensor memory is deallocated, or the kernel ends, while an MMA or a copy into it is in flight."""


class TensorMemoryKept(Hazard):
    """A kernel ends without deallocating its tensor memory."""


COMMIT = "call tcgen05_commit(bar) after the first line, in {other}, and mbarrier.wait(bar, phase) before the second"

TENSOR_IN_FLIGHT = row(
    "hazard-tensor-in-flight",
    TensorInFlight,
    "program {program}: {partition} {access} {name} while the tcgen05 operation that {other} started may still write it",
    COMMIT,
)
TENSOR_OPERAND = row(
    "hazard-tensor-operand-reused",
    TensorOperandReused,
    "program {program}: {partition} {access} {name} while the tcgen05 operation that {other} started may still read it",
    COMMIT,
)
TENSOR_RACE = row(
    "hazard-tensor-race",
    TensorRace,
    "program {program}: {partition} {access} {name}, which {other} {before}, and nothing orders the two",
    "{order}",
)
TENSOR_ORDER = row(
    "hazard-tensor-order",
    TensorOrder,
    "program {program}: {partition} {access} {name}, which {other} {before} by an operation that may be in flight: {why}",
    COMMIT,
)
TENSOR_FENCE_BEFORE = row(
    "hazard-tensor-fence-before",
    MissingTensorFence,
    "program {program}: {partition} {access} {name} after {other} {before} it, and no tcgen05 fence lies between the first "
    "line and the barrier that orders the two",
    "call tcgen05_fence(before=True) after the first line, before the gl.barrier() or mbarrier.arrive() that follows it",
)
TENSOR_FENCE_AFTER = row(
    "hazard-tensor-fence-after",
    MissingTensorFence,
    "program {program}: {partition} {access} {name} after {other} {before} it, and no tcgen05 fence lies between the "
    "barrier that orders the two and the second line",
    "call tcgen05_fence(before=False) before the second line, after the gl.barrier() or mbarrier.wait() that precedes it",
)
TENSOR_MEMORY_RANGE = row(
    "hazard-tensor-memory-range",
    OutOfBounds,
    "program {program} {access} lanes {lanes} and columns {columns} of tensor memory, but {name} has {owned}",
    "keep indices below the leading dimensions of the allocation, and reinterpret no more than its own columns",
)
TENSOR_UNINITIALIZED = row(
    "hazard-tensor-uninitialized",
    UninitializedRead,
    "program {program} {access} {name}, which was never written{where}",
    "write it first: store to it, or wait for an MMA that overwrites it (use_acc=False)",
)
TENSOR_LANES = row(
    "hazard-tensor-memory-lanes",
    TensorMemoryLanes,
    "program {program}: warp {warp} accesses lane {lane} of tensor memory, but it can access lanes {first} to {last} only",
    "use the layout that get_tmem_reg_layout() gives, and partitions that begin at a multiple of four warps",
)
TENSOR_AT_EXIT = row(
    "hazard-tensor-at-exit",
    TensorMemoryInUse,
    "program {program} ends while the tcgen05 operation that {other} started may still write {name}",
    "call tcgen05_commit(bar) after it, and mbarrier.wait(bar, phase) before the kernel ends",
)
TENSOR_KEPT = row(
    "hazard-tensor-kept",
    TensorMemoryKept,
    "program {program} ends without deallocating {columns} columns of tensor memory",
    "return from the kernel where all of its threads do, so that the columns are deallocated",
)
