"""Warp specialisation and named barriers: what is built, what partitions see, and what they may not do."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.lang import support as reading
from tests.language.support import BLOCKED, jit, mistake
from weft import language as gl
from weft.analysis.scopes import scopes
from weft.ir.core import FuncAttrs, ParamFacts
from weft.ir.verify import verify
from weft.language.context import current
from weft.language.partitions import named_barrier
from weft.ops import control, shared


class Pair(NamedTuple):
    tile: Any
    number: int


@jit
def nothing(*args):
    return None


@jit
def load(ptr):
    return gl.load(ptr + gl.arange(0, 128, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])))


@jit
def store(ptr, value):
    gl.store(ptr + gl.arange(0, 128, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])), value)


def function(kernel, *params):
    """The kernel so far as a verified function."""
    kernel.builder.emit(control.return_)
    attrs = FuncAttrs(num_warps=4, target="sm_90a", params=(ParamFacts(),) * len(params), stage="tile")
    func = kernel.builder.func("kernel", tuple(p.handle for p in params), attrs)
    verify(func)
    return func


def test_a_region_for_each_function(kernel):
    source, target, n = kernel.pointer(name="source"), kernel.pointer(name="target"), kernel.scalar(gl.float32, "n")
    tile = gl.warp_specialize([(load, (source,)), (store, (target, n)), (nothing, ())], [2, 1], [40, 24])
    op = kernel.last("control.warp_specialize")
    assert op.attrs == {"num_warps": (2, 1), "num_regs": (40, 24)}
    default, worker, idle = op.regions
    assert (tile.shape, tile.layout) == ([128], BLOCKED)
    assert op.result is tile.handle
    assert [o.name for o in default.ops] == [
        "tile.arange", "tile.splat", "memory.addptr", "memory.load", "control.yield",
    ]  # fmt: skip
    assert worker.ops[0].result.type.layout == gl.BlockedLayout([1], [32], [2], [0])
    assert [o.name for o in idle.ops] == ["control.yield"]
    function(kernel, source, target, n)


def test_layouts_and_num_warps_are_those_of_the_partition(kernel):
    seen = []

    @jit
    def look():
        seen.append((gl.num_warps(), current().partition))
        with mistake("layout-num-warps"):
            gl.arange(0, 128, gl.BlockedLayout([1], [32], [16], [0]))

    gl.warp_specialize([(look, ()), (look, ()), (look, ())], [8, 1])
    assert seen == [(4, "look"), (8, "look"), (1, "look")]
    assert (gl.num_warps(), current().partition) == (4, "")


def test_what_the_default_partition_returns_keeps_its_structure(kernel):
    n = kernel.scalar(gl.int32, "n")

    @jit
    def both(x):
        return [Pair(x + x, 3), n]

    pair, same = gl.warp_specialize([(both, (kernel.tile(gl.int32, name="x"),)), (nothing, ())], [1])
    op = kernel.last("control.warp_specialize")
    assert isinstance(pair, Pair)
    assert pair.number == 3
    assert (pair.tile.handle, same.handle) == op.results
    assert same.handle.name == "n"
    assert gl.warp_specialize([(nothing, ()), (nothing, ())], [1]) is None


def test_without_registers_none_are_given(kernel):
    gl.warp_specialize([(nothing, ()), (nothing, ())], gl.constexpr([16]))
    assert kernel.last("control.warp_specialize").attrs == {"num_warps": (16,), "num_regs": ()}


def test_the_older_order_of_arguments(kernel):
    x = kernel.tile()
    seen = []

    @jit
    def worker(n, m):
        seen.append((n, m, gl.num_warps()))

    @jit
    def default(x):
        return x

    result = gl.warp_specialize((x,), default, (1, 2), [worker, worker], [4, 8], [24, 32])
    op = kernel.last("control.warp_specialize")
    assert op.attrs == {"num_warps": (4, 8), "num_regs": (24, 32)}
    assert seen == [(1, 2, 4), (1, 2, 8)]
    assert op.regions[0].terminator.operands == (x.handle,)
    assert result.handle is op.result
    gl.warp_specialize((x,), default, (1, 2), [worker], [2])
    assert kernel.last("control.warp_specialize").attrs == {"num_warps": (2,), "num_regs": ()}


def test_workers_take_handles(kernel):
    layout = gl.SwizzledSharedLayout(1, 1, 1, [0])
    handle = gl.allocate_shared_memory(gl.float32, [128], layout)

    @jit
    def read(memory):
        memory.load(gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))

    gl.warp_specialize([(nothing, ()), (read, (handle,))], [2])
    worker = kernel.last("control.warp_specialize").regions[1]
    assert worker.ops[0].kind is shared.load
    assert worker.ops[0].operands == (handle.handle,)


@pytest.mark.parametrize("arrive", [False, True])
def test_named_barriers(kernel, arrive):
    (named_barrier.arrive if arrive else named_barrier.sync)(gl.constexpr(3), num_warps=8)
    assert kernel.last("sync.named").attrs == {"number": 3, "warps": 8, "arrive": arrive}


def test_named_barriers_have_constant_numbers(kernel):
    n = kernel.scalar(gl.int32, "n")
    for number in (-1, 16, 1.0, n):
        with mistake("partitions-barrier-number"):
            named_barrier.sync(number, 4)
    for warps in (0, 33, n, True):
        with mistake("partitions-barrier-warps"):
            named_barrier.arrive(0, warps)


@pytest.mark.parametrize("given", [3, [], [(nothing,)], [(nothing, 3)], [nothing, ()]])
def test_functions_come_with_arguments(kernel, given):
    with mistake("partitions-entries") as found:
        gl.warp_specialize(given, [])
    assert "gl.warp_specialize([(default, (a,))" in found.text


@pytest.mark.parametrize("given", [((), nothing, ()), ((), nothing, (), 3, [1]), ([(nothing, ())], [], [], [])])
def test_arguments_in_neither_order(kernel, given):
    with mistake("partitions-entries") as found:
        gl.warp_specialize(*given)
    assert f"got {len(given)} arguments" in found.text


@pytest.mark.parametrize(("warps", "registers"), [([1], None), ([1, 1, 1], None), ([1, 1], [24])])
def test_numbers_for_each_worker(kernel, warps, registers):
    with mistake("partitions-counts") as found:
        gl.warp_specialize([(nothing, ()), (nothing, ()), (nothing, ())], warps, registers)
    assert "has 2 workers" in found.text
    assert ("worker_num_regs has 1" if registers else f"worker_num_warps has {len(warps)}") in found.text


@pytest.mark.parametrize("warps", [0, 3, 32, "4"])
def test_warps_are_a_power_of_two(kernel, warps):
    with mistake("partitions-warps") as found:
        gl.warp_specialize([(nothing, ()), (store, ())], [warps])
    assert f"worker store cannot have {warps!r} warps" in found.text


@pytest.mark.parametrize("registers", [16, 25, 264])
def test_registers_are_what_setmaxnreg_takes(kernel, registers):
    with mistake("partitions-registers") as found:
        gl.warp_specialize([(nothing, ()), (store, ())], [4], [registers])
    assert f"worker store cannot have {registers} registers per thread" in found.text


def test_workers_take_no_tiles(kernel):
    x = kernel.tile(name="x")
    with mistake("partitions-worker-takes") as found:
        gl.warp_specialize([(nothing, ()), (store, (kernel.pointer(), (1, [x])))], [4])
    assert "worker store is passed 'x' (a float32 tile [128])" in found.text
    assert not kernel.ops


def test_workers_return_nothing(kernel):
    with mistake("partitions-worker-returns") as found:
        gl.warp_specialize([(nothing, ()), (load, (kernel.pointer(),))], [4])
    assert "worker load returns a float32 tile [128]" in found.text
    assert (gl.num_warps(), current().partition, current().builder.in_region) == (4, "", False)


def test_partitions_are_not_nested(kernel):
    @jit
    def outer():
        gl.warp_specialize([(nothing, ()), (nothing, ())], [1])

    for entries in ([(outer, ()), (nothing, ())], [(nothing, ()), (outer, ())]):
        with mistake("partitions-nested") as found:
            gl.warp_specialize(entries, [1])
        assert "the partition outer" in found.text


def test_all_warps_must_come(kernel):
    with kernel.builder.region(), mistake("partitions-under-control") as found:
        gl.warp_specialize([(nothing, ()), (nothing, ())], [1])
    assert "an early return before the call" in found.text


def test_workers_use_what_all_threads_agree_on(kernel):
    lane, n = gl.lane_id(), kernel.scalar(gl.int32, "n")

    @jit
    def worker(x):
        gl.store(kernel.pointer(gl.int32, "out"), x)

    lane.handle.name = "lane"
    gl.warp_specialize([(nothing, ()), (worker, (lane,))], [1])
    kernel.builder.emit(control.return_)
    with mistake("partitions-worker-scope") as found:
        scopes(kernel.builder.func("kernel", (n.handle,), FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(),))))
    assert "uses 'lane', which may differ in each thread" in found.text


def test_partitions_agree_on_their_own(kernel):
    """What is of block scope in a partition is so for its threads; results are what the default partition yields."""
    n = kernel.scalar(gl.int32, "n")
    inner = []

    @jit
    def default(n):
        return n + 1, gl.warp_id()

    @jit
    def worker(n):
        inner.append((n + 1, gl.lane_id()))
        gl.barrier()

    more, warp = gl.warp_specialize([(default, (n,)), (worker, (n,))], [2])
    found = scopes(function(kernel, n))
    ((sum_, lane),) = inner
    assert [found[x.handle] for x in (more, warp, sum_, lane)] == ["block", "warp", "block", "thread"]


# As the reader meets it


@reading.jit
def idle(*args):
    return


@gl.aggregate
class Worker:
    count: gl.tensor

    @reading.jit
    def run(self, ptr):
        gl.store(ptr, self.count * 1.0)

    @reading.jit
    def number(self):
        return self.count


@reading.jit
def in_branch(ptr, n):
    if n > 0:
        gl.warp_specialize([(idle, ()), (idle, ())], [1])


@reading.jit
def after_return(ptr, n):
    if n > 0:
        return
    gl.warp_specialize([(idle, ()), (idle, ())], [1])


@reading.jit
def in_loop(ptr, n):
    for _ in range(n):
        gl.warp_specialize([(idle, ()), (idle, ())], [1])


@pytest.mark.parametrize("kernel", [in_branch, after_return, in_loop])
def test_under_control_flow(kernel):
    error = reading.mistake(kernel, "partitions-under-control", ptr=reading.POINTER, n=reading.INT)
    assert reading.pointed(error) == "gl.warp_specialize([(idle, ()), (idle, ())], [1])"


@reading.jit
def methods(ptr, n, wrong: gl.constexpr):
    worker = Worker(n)
    for _ in gl.static_range(2):
        gl.warp_specialize([(worker.number, ()), (worker.number if wrong else worker.run, (ptr,)[wrong:])], [1])


def test_methods_are_partitions():
    func = reading.read(methods, ptr=reading.POINTER, n=reading.INT, wrong=0)
    assert len(reading.ops(func, "control.warp_specialize")) == 2
    assert len(reading.ops(func, "memory.store")) == 2
    error = reading.mistake(methods, "partitions-worker-returns", ptr=reading.POINTER, n=reading.INT, wrong=1)
    assert "worker number returns 'n' (an int32 scalar)" in error.message
