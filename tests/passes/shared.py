"""Kernels on shared memory for the tests of passes: each operation stands on a line of its own, counted from 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.build import LINE, Kernel
from weft import targets
from weft.errors import Loc
from weft.ir.core import Func, Op, OpDef, ParamFacts, Region, Value, walk
from weft.ir.types import DescriptorType, Pointer, ScalarType, float32, int1, int32, int64
from weft.ir.verify import verify
from weft.layout import BlockedLayout, MBarrierLayout, NVMMASharedLayout, SwizzledSharedLayout
from weft.ops import arith, async_copy, control, mbarrier, memory, mma, shared, sync, tcgen05, tile, tma
from weft.passes.sync.insert_sync import insert_sync
from weft.passes.tile.allocate_shared import allocate_shared

SM90 = targets.get("sm_90a")
TILE = NVMMASharedLayout(0, 32, rank=1)
BAR = MBarrierLayout()
LENGTH = 64
SIDE = 8
BYTES = LENGTH * 4
Body = Callable[[], Any]


class SharedKernel(Kernel):
    """Buffers of 64 floats (256 bytes, aligned to 128), barriers, and the operations on them by short names."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(("n", int32), ("p", Pointer(float32)), **attrs)
        self.desc = Value(DescriptorType(float32, (LENGTH,), TILE), "desc")
        self.params = (*self.params, self.desc)
        self.attrs["params"] = (ParamFacts(), ParamFacts(), ParamFacts())
        self.tags = 0
        self.line = 0
        self.zero = self.number(0)
        self.data = self.emit(arith.constant, value=0.0, type=ScalarType(float32))
        self.data = self.splat(self.data, self.arange(LENGTH, LINE))
        self.line = 0

    def emit(self, kind: OpDef, /, *operands: Any, **attrs: Any) -> Any:
        self.line += 1
        self.loc = Loc("k.py", self.line)
        return super().emit(kind, *operands, **attrs)

    @property
    def n(self) -> Value:
        return self.params[0]

    # Memory

    def alloc(self, name: str, *stages: int, layout: Any = TILE, element: Any = float32, length: int = LENGTH) -> Value:
        self.tags += 1
        shape = (*stages, length)
        return self.emit(shared.alloc, element=element, shape=shape, layout=layout, tag=self.tags, name=name)

    def bars(self, name: str, *stages: int, layout: Any = BAR) -> Value:
        return self.alloc(name, *stages, layout=layout, element=int64, length=1)

    def index(self, handle: Value, number: int | Value) -> Value:
        value = number if isinstance(number, Value) else self.number(number)
        return self.emit(shared.index, handle, value)

    def write(self, handle: Value) -> None:
        self.emit(shared.store, handle, self.data)

    def read(self, handle: Value) -> None:
        self.emit(shared.load, handle, layout=LINE)

    def store_global(self) -> None:
        self.emit(memory.store, self.params[1], self.data_scalar(), None)

    def data_scalar(self) -> Value:
        return self.emit(arith.constant, value=0.0, type=ScalarType(float32))

    # Synchronisation

    def barrier(self) -> None:
        self.emit(sync.barrier)

    def fence(self) -> None:
        self.emit(sync.fence_async)

    def init(self, bar: Value) -> None:
        self.emit(mbarrier.init, bar, count=1)

    def invalidate(self, bar: Value) -> None:
        self.emit(mbarrier.invalidate, bar)

    def expect(self, bar: Value) -> None:
        self.emit(mbarrier.expect, bar, None, bytes=BYTES)

    def arrive(self, bar: Value) -> None:
        self.emit(mbarrier.arrive, bar, None)

    def wait(self, bar: Value, *deps: Value) -> None:
        self.emit(mbarrier.wait, bar, self.zero, None, *deps)

    # Copies

    def tma_load(self, handle: Value, bar: Value) -> None:
        self.emit(tma.load, self.desc, bar, handle, None, self.zero)

    def tma_store(self, handle: Value) -> None:
        self.emit(tma.store, self.desc, handle, self.zero)

    def store_wait(self, pendings: int = 0) -> None:
        self.emit(tma.store_wait, pendings=pendings)

    def copy(self, handle: Value) -> None:
        pointers = self.address(self.params[1], self.arange(LENGTH))
        self.emit(async_copy.global_to_shared, handle, pointers, None)

    def copy_wait(self, pendings: int = 0) -> None:
        self.emit(async_copy.commit)
        self.emit(async_copy.wait, pendings=pendings)

    def copy_arrive(self, bar: Value) -> None:
        self.emit(async_copy.mbarrier_arrive, bar)

    # Products

    def product(self, a: Value, b: Value, max_imprecise: int = 0) -> None:
        """Start to multiply two buffers as matrices of 8x8."""
        flat = SwizzledSharedLayout(1, 1, 1, [1, 0])
        shape = (SIDE, SIDE)
        operands = [self.emit(shared.reinterpret, x, element=float32, shape=shape, layout=flat) for x in (a, b)]
        self.emit(mma.warpgroup, *operands, self.accumulator(), None, max_imprecise=max_imprecise)

    def accumulator(self) -> Value:
        layout = BlockedLayout([1, 1], [4, 8], [self.attrs["num_warps"], 1], [1, 0])
        return self.emit(tile.splat, self.data_scalar(), shape=(SIDE, SIDE), layout=layout)

    def product_wait(self, pendings: int = 0) -> None:
        self.emit(mma.warpgroup_wait, self.accumulator(), pendings=pendings)

    # Control flow

    def inside(self, body: Body, types: tuple[Any, ...] = ()) -> Region:
        with self.region(types) as opened:
            body()
            self.emit(control.yield_)
        return opened.done

    def loop(self, body: Callable[[Value], Any]) -> None:
        with self.region([ScalarType(int32)], ["i"]) as opened:
            body(opened.args[0])
            self.emit(control.yield_)
        one = self.number(1)
        self.emit(control.for_, self.zero, self.n, one, descending=False, regions=(opened.done,))

    def branch(self, then: Body, orelse: Body = lambda: None) -> None:
        condition = self.emit(arith.constant, value=True, type=ScalarType(int1))
        self.emit(control.if_, condition, regions=(self.inside(then), self.inside(orelse)))

    def either(self, a: Value, b: Value) -> Value:
        """One of two handles."""
        regions: list[Region] = []
        for handle in (a, b):
            with self.region() as opened:
                self.emit(control.yield_, handle)
            regions.append(opened.done)
        condition = self.emit(arith.constant, value=True, type=ScalarType(int1))
        return self.emit(control.if_, condition, regions=tuple(regions))

    def partitions(self, *bodies: Body, warps: tuple[int, ...] = ()) -> None:
        regions = tuple(self.inside(body) for body in bodies)
        self.emit(control.warp_specialize, regions=regions, num_warps=warps or (4,) * (len(bodies) - 1), num_regs=())

    def finished(self) -> Func:
        func = self.done()
        verify(func)
        return func


def shown(func: Func) -> str:
    """Memory operations and what orders them, by short names; `!` before what was inserted, brackets around regions."""
    return " ".join(_region(func.body))


def _region(region: Region) -> list[str]:
    return [word for op in region.ops for word in _words(op)]


def _words(op: Op) -> list[str]:
    if op.regions:
        inner = [f"[ {' '.join(_region(region))} ]".replace("[  ]", "[ ]") for region in op.regions]
        return [op.name.partition(".")[2], *inner]
    names = {sync.barrier: "barrier", sync.fence_async: "fence"}
    if op.kind in names:
        return [("!" if op.attrs["reason"] else "") + names[op.kind]]
    if op.kind is tcgen05.fence:
        return [("!" if op.attrs["reason"] else "") + ("before" if op.attrs["before"] else "after")]
    if not op.effects:
        return []
    return [op.name.partition(".")[2] if op.name.startswith(("shared", "mbarrier")) else op.name]


def inserted(func: Func) -> list[str]:
    """What was inserted: `barrier before ...`."""
    found = [op for op in walk(func.body) if op.kind in (sync.barrier, sync.fence_async) and op.attrs["reason"]]
    return [f"{op.name.partition('.')[2]} {op.attrs['reason']}" for op in found]


class Rules(SharedKernel):
    """Buffers `a` and `b` and barriers `bar` and `other`, all alive throughout, and steps by short names."""

    def __init__(self, sync: str = "auto", num_warps: int = 4) -> None:
        super().__init__(sync=sync, num_warps=num_warps)
        self.a, self.b = self.alloc("a", 2), self.alloc("b")
        self.bar, self.other = self.bars("bar"), self.bars("other")
        self.steps = {
            "W": lambda: self.write(self.index(self.a, 0)),
            "R": lambda: self.read(self.index(self.a, 0)),
            "W1": lambda: self.write(self.index(self.a, 1)),
            "Wi": lambda: self.write(self.index(self.a, self.n)),
            "Wb": lambda: self.write(self.b),
            "Rb": lambda: self.read(self.b),
            "|": self.barrier,
            "f": self.fence,
            "load": lambda: self.tma_load(self.index(self.a, 0), self.bar),
            "store": lambda: self.tma_store(self.index(self.a, 0)),
            "store1": lambda: self.tma_store(self.index(self.a, 1)),
            "swait": self.store_wait,
            "swait1": lambda: self.store_wait(1),
            "copy": lambda: self.copy(self.index(self.a, 0)),
            "cwait": self.copy_wait,
            "cwait1": lambda: self.copy_wait(1),
            "carrive": lambda: self.copy_arrive(self.bar),
            "init": lambda: self.init(self.bar),
            "inval": lambda: self.invalidate(self.bar),
            "expect": lambda: self.expect(self.bar),
            "arrive": lambda: self.arrive(self.bar),
            "wait": lambda: self.wait(self.bar),
            "wait2": lambda: self.wait(self.other),
            "S": self.store_global,
        }  # fmt: skip

    def do(self, steps: str) -> None:
        for step in steps.split():
            self.steps[step]()

    def doing(self, steps: str) -> Callable[[], None]:
        return lambda: self.do(steps)

    def allocated(self) -> Func:
        # Each buffer keeps bytes of its own, however the steps use it.
        for handle in (self.a, self.b, self.bar, self.other):
            self.emit(shared.keep_alive, handle)
        return allocate_shared(self.finished(), SM90)

    def result(self) -> Func:
        func = insert_sync(self.allocated())
        verify(func)
        return func

    def shown(self) -> str:
        return self.named(self.result())

    def named(self, func: Func) -> str:
        text = shown(func).replace(" keep_alive", "")
        names = {
            "store": "W", "load": "R", "tma.store": "store", "tma.load": "load", "tma.store_wait": "swait",
            "async_copy.global_to_shared": "copy", "async_copy.wait": "cwait", "async_copy.mbarrier_arrive": "carrive",
            "barrier": "|", "!barrier": "!|", "fence": "f", "!fence": "!f", "invalidate": "inval", "memory.store": "S",
        }  # fmt: skip
        return " ".join(names.get(w, w) for w in text.split() if w != "async_copy.commit")
