"""Shared memory of threads: where it lies, which barriers come, and what is said of the author's."""

from __future__ import annotations

import pytest

from tests.passes.threads import Threads, flag, lowered, pointers, tiled, transpose
from weft.errors import Loc
from weft.ir.core import Func, Op, ParamFacts, Value, walk
from weft.ir.types import DescriptorType, RegsType, SharedArrayType, float32, int32
from weft.layout import BlockedLayout, NVMMASharedLayout, SwizzledSharedLayout
from weft.ops import arith, control, memory, program, regs, shared, sync, thread, tile, tma
from weft.passes.sync.insert_sync import unneeded
from weft.passes.sync.report import sync_report
from weft.runtime.errors import OutOfResources

PLAIN = SwizzledSharedLayout(1, 1, 1, [0])
LINE = BlockedLayout([1], [32], [4], [0])


class Bridge(Threads):
    """Tiles and threads on the same buffers of 128 floats."""

    def __init__(self, **attrs) -> None:
        super().__init__(*pointers("p"), **attrs)
        self.layout = NVMMASharedLayout(0, 32, rank=1)
        self.desc = Value(DescriptorType(float32, (128,), self.layout), "desc")
        self.params = (*self.params, self.desc)
        self.attrs["params"] = (ParamFacts(16), ParamFacts())

    def alloc(self, name: str, layout=PLAIN) -> Value:
        self.tags += 1
        return self.emit(shared.alloc, element=float32, shape=(128,), layout=layout, tag=self.tags, name=name)

    def of(self, handle: Value, name: str = "") -> Value:
        return self.emit(thread.shared_of, handle, name=name)

    def fill(self, handle: Value) -> None:
        self.emit(shared.store, handle, self.emit(tile.splat, self.number(0.0, float32), shape=(128,), layout=LINE))

    def use(self, handle: Value) -> None:
        self.store_tile(self.emit(shared.load, handle, layout=LINE))

    def store_tile(self, x: Value) -> None:
        offsets = self.arange(128, LINE)
        self.emit(memory.store, self.address(self.params[0], offsets), x, None)

    def touch(self, memory: Value) -> None:
        """Each thread writes its neighbour's element."""
        at = self.emit(arith.xor, self.emit(program.thread_id), self.number(1))
        self.put(memory, at, self.number(1.0, float32))

    def look(self, memory: Value) -> None:
        at = self.emit(arith.xor, self.emit(program.thread_id), self.number(1))
        self.store(self.params[0], at, self.get(memory, at))


def order(func: Func) -> list[str]:
    """Accesses to shared memory, barriers and fences, in program order; braces around what is inside of another."""
    found: list[str] = []

    def visit(ops: tuple[Op, ...]) -> None:
        for op in ops:
            shares = any(effect.space == "shared" for effect in op.effects)
            if shares or op.kind in (sync.barrier, sync.fence_async):
                found.append(op.name.split(".")[1])
            for region in op.regions:
                before = len(found)
                visit(region.ops)
                if len(found) > before:
                    found[before:] = ["{", *found[before:], "}"]

    visit(func.body.ops)
    return found


# Allocation


def test_memory_of_threads_lies_beside_tiles():
    k = Bridge()
    a, room = k.alloc("a"), k.share(float32, 32, "room")
    k.fill(a)
    k.use(a)
    k.put(room, 0, k.number(0.0, float32))
    b = k.alloc("b")
    k.fill(b)
    k.use(b)
    func = tiled(k.done())
    offsets = {op.result.name: op.attrs["offset"] for op in walk(func.body) if "offset" in op.attrs}
    assert offsets == {"room": 0, "a": 128, "b": 128}, "tiles share bytes with each other"
    assert func.attrs.shared_bytes == 640 and func.attrs.kept_bytes == ((0, 128),)


def test_a_buffer_that_threads_see_keeps_its_bytes():
    k = Bridge()
    a = k.alloc("a")
    k.touch(k.of(a))
    b = k.alloc("b")
    k.fill(b)
    k.use(b)
    func = k.done()
    assert tiled(func).attrs.kept_bytes == ((0, 512),)
    assert tiled(func).attrs.shared_bytes == lowered(func).attrs.shared_bytes == 1024


def test_the_bill_names_it():
    k = Threads(*pointers("p"))
    k.at(7)
    room = k.share(float32, 64 * 1024, "room")
    k.put(room, 0, k.number(0.0, float32))
    with pytest.raises(OutOfResources) as error:
        tiled(k.done())
    assert error.value.code == "shared-memory" and "room takes 262144 bytes" in str(error.value)


def test_lowered_memory_is_where_the_tile_is():
    """`shared_of` of one of several tiles: a view of its bytes."""
    k = Bridge()
    k.tags += 1
    bufs = k.emit(shared.alloc, element=float32, shape=(3, 128), layout=PLAIN, tag=k.tags, name="bufs")
    k.touch(k.of(k.emit(shared.index, bufs, k.number(2))))
    func = lowered(k.done())
    (view,) = (op for op in walk(func.body) if op.kind is shared.view)
    assert view.result.type == SharedArrayType(float32, 128)
    (store,) = (op for op in walk(func.body) if op.kind is thread.store_shared)
    assert store.operand("memory") is view.result


# Barriers


def test_threads_bring_their_own_accesses_in_order():
    k = Bridge()
    room = k.share(float32, 128, "room")
    k.touch(room)
    k.look(room)
    seen = k.of(k.alloc("a"))
    k.touch(seen)
    k.look(seen)
    func = k.done()
    assert order(tiled(func)) == order(lowered(func)) == ["store_shared", "load_shared"] * 2


def test_between_a_tile_and_threads():
    k = Bridge()
    a = k.alloc("a")
    seen = k.of(a)
    k.fill(a)
    k.look(seen)
    k.touch(seen)
    k.use(a)
    func = k.done()
    inner = ["barrier", "load_shared", "store_shared", "barrier"]
    assert order(tiled(func)) == ["store", *inner, "load"]
    assert order(lowered(func)) == ["store_regs", *inner, "load_regs"]
    (first, _) = (op.attrs["reason"] for op in walk(tiled(func).body) if op.kind is sync.barrier)
    assert first == "before thread.load_shared of a (written at line 1)"


def test_a_barrier_stands_before_a_branch_that_threads_take_apart():
    k = Bridge()
    a = k.alloc("a")
    seen = k.of(a)
    k.fill(a)
    with k.when(flag(k)), k.loop(4):
        k.look(seen)
        k.touch(seen)
    k.use(a)
    func = k.done()
    inner = ["barrier", "{", "{", "load_shared", "store_shared", "}", "}", "barrier"]
    assert order(tiled(func)) == ["store", *inner, "load"]
    assert order(lowered(func)) == ["store_regs", *inner, "load_regs"]


def test_a_branch_that_all_take_has_its_own():
    k = Bridge()
    a = k.alloc("a")
    seen = k.of(a)
    k.fill(a)
    with k.when(k.less(k.emit(program.program_id, axis=0), 3)):
        k.look(seen)
    assert order(tiled(k.done())) == ["store", "{", "barrier", "load_shared", "}"]


def test_a_loop_round():
    """What threads read at the end of a round is overwritten by the next one's tile."""
    k = Bridge()
    a = k.alloc("a")
    seen = k.of(a)
    with k.loop(8):
        k.fill(a)
        with k.when(flag(k)):
            k.look(seen)
    assert order(tiled(k.done())) == ["{", "barrier", "store", "barrier", "{", "load_shared", "}", "}"]


def test_before_the_copy_engine_reads():
    k = Bridge()
    a = k.alloc("a", k.layout)
    k.touch(k.of(a))
    k.emit(tma.store, k.desc, a, k.number(0))
    assert order(tiled(k.done())) == ["store_shared", "fence_async", "barrier", "store"]


def test_the_authors_barriers_have_a_use():
    func = tiled(transpose().done())
    assert unneeded(func) == []
    report = sync_report(lowered(transpose().done()), func)
    assert report == "<kernel>:7: barrier, as written"


def test_one_barrier_too_many():
    k = Threads(*pointers("p"))
    room = k.share(float32, 128, "room")
    k.put(room, 0, k.number(0.0, float32))
    k.at(5).barrier()
    k.at(6).barrier()
    k.store(k.params[0], 0, k.get(room, 0))
    (op,) = unneeded(tiled(k.done()))
    assert op.loc == Loc("<kernel>", 6)


# Tiles and registers


def test_a_tile_of_registers():
    """A fragment is the tile's registers, and comes back as a tile."""
    k = Bridge()
    x = k.load(k.params[0], 0, 1)
    held = k.emit(regs.splat, x, count=1)
    made = k.emit(thread.assemble, held, shape=(128,), layout=LINE)
    k.store_tile(k.add(made, made))
    part = k.emit(thread.fragment, k.emit(tile.arange, start=0, end=256, layout=BlockedLayout([2], [32], [4], [0])))
    own = k.own(int32, 2, "own")
    k.emit(thread.store_local, own, None, part, None, offsets=(0, 1))
    func = lowered(k.done())
    (kept,) = (op for op in walk(func.body) if op.kind is thread.store_local)
    assert kept.operand("value").type == RegsType(int32, 2)
    assert not [op for op in walk(func.body) if op.kind in (thread.fragment, thread.assemble)]


@pytest.mark.parametrize("debug", [False, True])
def test_bounds_are_checked_under_debug_only(debug):
    k = Threads(("n", int32), debug=debug)
    k.emit(thread.bounds, k.params[0], k.params[0], sizes=(-1,), view="t")
    kinds = [op.kind for op in walk(lowered(k.done()).body)]
    assert (thread.bounds in kinds) == debug


def test_partitions_share_memory_of_threads():
    """A worker sees the kernel's allocation, not one of its own."""
    k = Bridge()
    room = k.share(float32, 128, "room")
    k.touch(room)
    with k.region() as default:
        k.touch(room)
        k.emit(control.yield_)
    with k.region() as worker:
        k.look(room)
        k.emit(control.yield_)
    k.emit(control.warp_specialize, regions=(default.done, worker.done), num_warps=(4,), num_regs=())
    k.look(room)
    func = lowered(k.done())
    assert len([op for op in walk(func.body) if op.kind is shared.array]) == 1
    assert func.attrs.total_warps == 8
