"""mbarriers at which each thread arrives by itself, by the names that Mojo gives them.

    bar = gl.stack_allocation[gl.uint64, gl.AddressSpace.SHARED](gl.row_major[1]())
    if gl.thread_idx.x == 0:
        gl.mbarrier_init(bar.ptr, gl.block_dim.x)
    gl.barrier()
    ...
    state = gl.mbarrier_arrive(bar.ptr)
    while not gl.mbarrier_test_wait(bar.ptr, state):
        pass

A barrier is a 64-bit integer in shared memory: a view of one, its `ptr`, or what `mbarrier.allocate_mbarrier` returns. (The
functions of `mbarrier` are executed by a whole block together.) In a cluster threads also arrive on the barriers of other
blocks, `gl.mbarrier_arrive(bar.peer(rank))`, after a `gl.cluster_sync()` behind their initialization.
"""

from __future__ import annotations

from typing import Any

from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.ir.types import int64
from weft.language.context import current
from weft.language.marks import builtin, must_use_result
from weft.language.nvidia.ampere.mbarrier import check_count, phase_scalar
from weft.language.nvidia.checks import check_barrier, demand
from weft.language.nvidia.hopper.mbarrier import check_bytes
from weft.language.places import index32
from weft.language.promote import convert
from weft.language.runtime_value import name_of, wrap
from weft.language.scalars import is_integer_scalar
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.storages import PeerStorage, SharedStorage, array_pointer
from weft.language.tensor import apply, apply_many, tensor
from weft.ops import mbarrier as ops
from weft.ops import thread
from weft.views import LayoutTensor


@builtin
def mbarrier_init(shared_mem: Any, num_threads: int) -> None:
    """Initialize a barrier: each phase takes `num_threads` arrivals. One thread does so, and a `gl.barrier()` follows.

    PTX mbarrier.init. Raises async-barrier-word, async-barrier-threads, async-barrier-count, async-target."""
    count = check_count("mbarrier_init", num_threads)
    apply_many(ops.init_at, _word("mbarrier_init", shared_mem), count=count)


@builtin
def mbarrier_inval(shared_mem: Any) -> None:
    """Invalidate a barrier, by one thread, so that its memory can be reused or the barrier initialized again."""
    apply_many(ops.invalidate_at, _word("mbarrier_inval", shared_mem))


@builtin
def mbarrier_arrive(shared_mem: Any) -> tensor | None:
    """One arrival of each thread that executes it. It releases the thread's memory accesses to those who wait for the phase.

    Returns the state, an opaque int64 that tells `mbarrier_test_wait` the phase (PTX mbarrier.arrive). On the barrier of
    another block of the cluster, `bar.peer(rank)`, it returns None: only threads of that block can wait there."""
    return _arrive("mbarrier_arrive", shared_mem, -1)


@builtin
def mbarrier_arrive_expect_tx_shared(addr: Any, tx_count: int) -> tensor | None:
    """As `mbarrier_arrive`, and `tx_count` bytes are added to those that the phase waits for (PTX mbarrier.arrive.expect_tx).

    Asynchronous copies complete bytes: TMA loads that signal the barrier. Raises async-expect-bytes, async-target."""
    demand("mbarrier_arrive_expect_tx_shared", "mbarriers that count bytes")
    number = check_bytes("mbarrier_arrive_expect_tx_shared", tx_count)
    return _arrive("mbarrier_arrive_expect_tx_shared", addr, number)


def _arrive(what: str, x: Any, size: int) -> tensor | None:
    """An arrival in the thread's own block, or in another one of the cluster."""
    if not isinstance(x, (LayoutTensor, array_pointer)) or not isinstance(x.storage, PeerStorage):
        return apply(ops.arrive_at, *_word(what, x), bytes=size)
    demand(what, "clusters")
    there = x.storage
    word = _word(what, array_pointer(SharedStorage(there.memory), x.offset))
    apply_many(ops.arrive_in, (*word, there.rank), bytes=size)
    return None


@must_use_result
@builtin
def mbarrier_test_wait(shared_mem: Any, state: Any) -> tensor:
    """Whether the phase is complete for which `mbarrier_arrive` returned `state`: an int1 of each thread, at once.

    A thread that gets true sees the accesses that the arrivals of the phase have released; one that gets false has to ask
    again. A state serves until the phase after its own is complete (PTX mbarrier.test_wait). Raises async-barrier-state."""
    if not isinstance(state, tensor) or not is_integer_scalar(state) or state.dtype != int64:
        raise fail(errors.BARRIER_STATE, got=name_of(state))
    return apply(ops.probe, *_word("mbarrier_test_wait", shared_mem), convert(state, int64), parity=False)


@must_use_result
@builtin
def mbarrier_test_wait_parity(shared_mem: Any, phase: Any) -> tensor:
    """Whether the phase of parity `phase`, 0 or 1, is complete: for threads that wait without arriving.

    Parity 1 of a newly initialized barrier is complete (PTX mbarrier.test_wait.parity). Raises async-phase."""
    return apply(ops.probe, *_word("mbarrier_test_wait_parity", shared_mem), phase_scalar(phase), parity=True)


def _word(what: str, x: Any) -> tuple[Any, tensor]:
    """The array that holds a barrier, and its index there. Raises async-barrier-word, async-barrier-threads, async-target, and
    what `check_barrier` raises."""
    demand(what, "mbarriers")
    if current().block is None:
        raise fail(errors.BARRIER_THREADS, what=what)
    if isinstance(x, shared_memory_descriptor):
        bar = check_barrier(what, x)
        return wrap(current().builder.emit(thread.shared_of, bar.handle)), index32(0)
    storage = x.storage if isinstance(x, (LayoutTensor, array_pointer)) else None
    if not isinstance(storage, SharedStorage) or storage.dtype.bits != 64 or not storage.dtype.is_int():
        raise fail(errors.BARRIER_WORD, what=what, got=_described(x))
    return storage.memory, index32(x.offset)


def _described(x: Any) -> str:
    if not isinstance(x, LayoutTensor):
        return name_of(x)
    return f"{x.history} of {getattr(x.dtype, 'name', x.dtype)} in {x.address_space}"
