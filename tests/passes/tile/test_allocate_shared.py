from __future__ import annotations

from dataclasses import replace

import pytest

from tests.passes.shared import BYTES, SharedKernel
from tests.sim.build import GRID
from weft import targets
from weft.errors import Loc
from weft.ir.core import Func, Value, walk
from weft.ir.verify import verify
from weft.layout import NVMMASharedLayout
from weft.ops import shared
from weft.passes.tile.allocate_shared import allocate_shared
from weft.runtime.errors import OutOfResources

SM90 = targets.get("sm_90a")


def allocated(k: SharedKernel) -> Func:
    func = allocate_shared(k.finished(), SM90)
    verify(func)
    return func


def offsets(k: SharedKernel) -> dict[str, int]:
    return {op.result.name: op.attrs["offset"] for op in walk(allocated(k).body) if op.kind is shared.alloc}


def same(found: dict[str, int], a: str = "a", b: str = "b") -> bool:
    """Whether two buffers of one size share bytes."""
    return found[a] == found[b]


def test_what_is_never_alive_together_shares_bytes():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")
    for handle in (a, a, b, b):
        k.write(handle)
    assert offsets(k) == {"a": 0, "b": 0}


def test_what_is_alive_together_does_not():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")
    for handle in (a, b, a):
        k.write(handle)
    assert offsets(k) == {"a": 0, "b": BYTES}


def test_to_form_a_handle_is_no_use():
    k = SharedKernel()
    a, b = k.alloc("a", 2), k.alloc("b", 2)
    second = k.index(b, 1)
    k.write(k.index(a, 0))
    k.write(second)
    assert same(offsets(k))


def test_aligned_buffers_come_first():
    """A barrier of eight bytes before them would waste what is left of a swizzle's 1024."""
    k = SharedKernel()
    bar = k.bars("bar", 2)
    a = k.alloc("a")
    m = k.alloc("m", 8, layout=NVMMASharedLayout(128, 32), length=32)
    k.init(k.index(bar, 0))
    k.write(a)
    k.emit(shared.load, m, layout=GRID)
    k.read(a)
    func = allocated(k)
    assert offsets_of(func) == {"m": 0, "a": 1024, "bar": 1280}
    assert func.attrs.shared_bytes == 1296


def offsets_of(func: Func) -> dict[str, int]:
    return {op.result.name: op.attrs["offset"] for op in walk(func.body) if op.kind is shared.alloc}


def test_without_shared_memory_nothing_changes():
    func = SharedKernel().finished()
    assert allocate_shared(func, SM90) is func


# Loops


def test_a_loop_around_what_comes_from_before_it():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")

    def body(_: Value) -> None:
        k.write(a)
        k.read(a)
        k.write(b)
        k.read(b)

    k.loop(body)
    assert not same(offsets(k))


def test_what_a_loop_makes_lives_in_it():
    k = SharedKernel()

    def body(_: Value) -> None:
        for name in "ab":
            handle = k.alloc(name)
            k.write(handle)
            k.read(handle)

    k.loop(body)
    assert same(offsets(k))


def test_what_a_loop_makes_and_leaves_under_way_lives_through_the_loop():
    """In the next iteration the copy of `b` may still be read while `a` is written."""
    k = SharedKernel()

    def body(_: Value) -> None:
        a, b = k.alloc("a"), k.alloc("b")
        k.write(a)
        k.write(b)
        k.tma_store(b)

    k.loop(body)
    k.store_wait()
    assert not same(offsets(k))


# Asynchronous accesses


def test_a_tma_store_reads_until_its_wait():
    for waited in (False, True):
        k = SharedKernel()
        a, b = k.alloc("a"), k.alloc("b")
        k.tma_store(a)
        if waited:
            k.store_wait()
        k.write(b)
        k.store_wait()
        assert same(offsets(k)) == waited


def test_a_wait_that_leaves_stores_pending_is_not_enough():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")
    k.tma_store(a)
    k.store_wait(1)
    k.write(b)
    k.store_wait(1)
    assert not same(offsets(k))


def test_without_a_wait_a_store_reads_to_the_end():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")
    k.tma_store(a)
    k.write(b)
    assert not same(offsets(k))


def test_a_wait_after_the_branch_counts():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")
    k.branch(lambda: k.tma_store(a))
    k.store_wait()
    k.write(b)
    assert same(offsets(k))


def test_a_wait_in_a_branch_does_not_count():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")
    k.tma_store(a)
    k.branch(k.store_wait)
    k.write(b)
    k.store_wait()
    assert not same(offsets(k))


def test_a_copy_lives_until_its_wait():
    for waited in (False, True):
        k = SharedKernel()
        a, b = k.alloc("a"), k.alloc("b")
        k.copy(a)
        if waited:
            k.copy_wait()
        k.write(b)
        k.copy_wait()
        assert same(offsets(k)) == waited


def test_a_copy_that_a_barrier_tells_of_lives_to_the_end():
    k = SharedKernel()
    a, b, bar = k.alloc("a"), k.alloc("b"), k.bars("bar")
    k.init(bar)
    k.copy(a)
    k.copy_arrive(bar)
    k.copy_wait()
    k.wait(bar)
    k.write(b)
    assert not same(offsets(k))


def test_a_tma_load_lives_while_its_barrier_is_waited_for():
    for after in (False, True):
        k = SharedKernel()
        a, b, bars = k.alloc("a"), k.alloc("b"), k.bars("bars", 2)
        first, second = k.index(bars, 0), k.index(bars, 1)
        k.init(first)
        k.init(second)
        k.tma_load(a, first)
        k.wait(first)
        k.write(b)
        k.wait(first if after else second)
        assert same(offsets(k)) != after


def test_a_tma_load_that_nobody_waits_for_lives_to_the_end():
    k = SharedKernel()
    a, b, bar = k.alloc("a"), k.alloc("b"), k.bars("bar")
    k.init(bar)
    k.tma_load(a, bar)
    k.write(b)
    assert not same(offsets(k))


def test_what_the_author_keeps_alive():
    for keep in ("no", "keep_alive", "deps"):
        k = SharedKernel()
        a, b, bar = k.alloc("a"), k.alloc("b"), k.bars("bar")
        k.init(bar)
        k.write(a)
        k.write(b)
        if keep == "keep_alive":
            k.emit(shared.keep_alive, a)
        elif keep == "deps":
            k.wait(bar, a)
        func = allocated(k)
        assert same(offsets_of(func)) == (keep == "no")
        assert func.attrs.kept_bytes == (() if keep == "no" else ((0, BYTES),))


# Barriers


def shares_with_bar(k: SharedKernel) -> bool:
    """Whether eight bytes that are used last share those of the barrier `bar`."""
    last = k.bars("last")
    k.init(last)
    found = offsets(k)
    return found["bar"] == found["last"]


def test_a_barrier_lives_to_the_end():
    k = SharedKernel()
    bar = k.bars("bar")
    k.init(bar)
    k.wait(bar)
    assert not shares_with_bar(k)


def test_a_barrier_that_is_invalidated_ends_there():
    k = SharedKernel()
    bar = k.bars("bar", 2)
    for number in (0, 1):
        k.init(k.index(bar, number))
    for number in (0, 1):
        k.invalidate(k.index(bar, number))
    assert shares_with_bar(k)


def test_all_barriers_have_to_be_invalidated():
    k = SharedKernel()
    bar = k.bars("bar", 2)
    for number in (0, 1):
        k.init(k.index(bar, number))
    k.invalidate(k.index(bar, 0))
    k.invalidate(k.index(bar, 0))
    assert not shares_with_bar(k)


def test_a_barrier_is_invalidated_on_every_path():
    for both in (False, True):
        k = SharedKernel()
        bar = k.bars("bar")
        k.init(bar)
        k.branch(
            lambda k=k, bar=bar: k.invalidate(bar), (lambda k=k, bar=bar: k.invalidate(bar)) if both else lambda: None
        )
        assert shares_with_bar(k) == both


def test_a_loop_may_not_run_so_it_invalidates_nothing():
    k = SharedKernel()
    bar = k.bars("bar")
    k.init(bar)
    k.loop(lambda _: k.invalidate(bar))
    assert not shares_with_bar(k)


def test_a_barrier_of_a_loop_ends_in_it():
    k = SharedKernel()

    def body(_: Value) -> None:
        bar = k.bars("bar")
        k.init(bar)
        k.invalidate(bar)

    k.loop(body)
    assert shares_with_bar(k)


# Partitions


def test_what_partitions_use_lives_through_all_of_them():
    k = SharedKernel()
    a, b, c = k.alloc("a"), k.alloc("b"), k.alloc("c")
    k.partitions(lambda: k.write(a), lambda: k.write(b))
    k.write(c)
    found = offsets(k)
    assert not same(found)
    assert same(found, "a", "c")


def test_what_partitions_make_never_shares_bytes():
    k = SharedKernel()

    def body(*names: str) -> None:
        for name in names:
            k.write(k.alloc(name))

    k.partitions(lambda: body("a"), lambda: body("b", "c"))
    found = offsets(k)
    assert not same(found, "a", "b")
    assert not same(found, "a", "c")
    assert same(found, "b", "c")


# The bill


def test_the_bill():
    k = SharedKernel()
    a, b = k.alloc("a_smem", 100), k.alloc("b_smem", 200)
    k.write(k.index(a, 0))
    k.write(k.index(b, 0))
    k.read(k.index(a, 0))
    with pytest.raises(OutOfResources) as error:
        allocate_shared(k.finished(), replace(SM90, shared_bytes=50000))
    assert error.value.code == "shared-memory"
    assert error.value.message == (
        "the kernel needs 76800 bytes of shared memory, but the target has 50000 per block: "
        "b_smem takes 51200 bytes at k.py:2, in use at line 8; "
        "a_smem takes 25600 bytes at k.py:1, in use from line 5 to 11"
    )
    assert error.value.loc is not None
    assert error.value.loc.line == 2


def test_locations_are_kept():
    k = SharedKernel()
    k.write(k.alloc("a"))
    func = allocated(k)
    assert [op.loc for op in walk(func.body) if op.kind is shared.alloc] == [Loc("k.py", 1)]
