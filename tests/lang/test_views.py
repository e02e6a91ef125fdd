"""Views in the text of kernels: items that are set, names that stay, leaves at the edges of loops and branches."""

from __future__ import annotations

from types import FunctionType

import pytest

import weft
from tests.lang.support import INT, POINTER, jit, mistake, ops, pointed
from weft import language as gl
from weft import targets
from weft.analysis.scopes import scopes
from weft.errors import UserError
from weft.ir.core import Func
from weft.ir.types import Pointer, ScalarType, float32, int32
from weft.ir.verify import verify
from weft.lang import ConstexprParam, RuntimeParam, ViewParam, build_kernel
from weft.layout.nested.layouts import Layout
from weft.passes.pipeline import tile_pipeline
from weft.views import ViewKey
from weft.views.modes import SCALAR

row_major = Layout.row_major


def view(*shape, names=(), masked=False):
    """An argument: a view of float32 in a row-major layout; `names` are those of its run-time numbers."""
    layout = shape[0] if isinstance(shape[0], Layout) else row_major(*shape)
    key = ViewKey(layout, SCALAR, masked, None)
    return ViewParam(RuntimeParam(Pointer(float32), 16), key, dict.fromkeys(names, INT))


def read(kernel: jit, block=(64, 1, 1), **params) -> Func:
    function: FunctionType = kernel.__weft_jit__
    warps = -(-block[0] * block[1] * block[2] // 32)
    func = build_kernel(function, params, num_warps=warps, target=targets.get("sm_90a"), block=block).func
    verify(func)
    return func


def wrong(kernel: jit, code: str, **params) -> UserError:
    with pytest.raises(UserError) as caught:
        read(kernel, **params)
    assert caught.value.code == code, str(caught.value)
    return caught.value


def test_an_item_is_read_and_written():
    @jit
    def kernel(t):
        t[gl.thread_idx.x, 3] = t[0, gl.thread_idx.x] * 2

    func = read(kernel, t=view(64, 64))
    assert len(ops(func, "memory.load_regs", "memory.store_regs")) == 2
    (load,) = ops(func, "memory.load_regs")
    assert load.attrs["offsets"] == ((0,),)


def test_an_item_is_updated():
    @jit
    def kernel(t):
        t[gl.thread_idx.x] += 1
        t[gl.thread_idx.x] *= 2

    assert [op.name for op in ops(read(kernel, t=view(64)), "memory.load_regs", "memory.store_regs")] == [
        "memory.load_regs", "memory.store_regs", "memory.load_regs", "memory.store_regs",
    ]  # fmt: skip


def test_setting_an_item_binds_no_name():
    @jit
    def kernel(t, n):
        for i in range(n):
            t[i] = 0.0
        if n > 3:
            t[0] = 1.0

    func = read(kernel, t=view(64), n=INT)
    (loop,) = ops(func, "control.for")
    (branch,) = ops(func, "control.if")
    assert len(loop.operands) == 3
    assert loop.results == branch.results == ()


def test_coordinates_are_computed_where_they_are_named():
    @jit
    def mine(t):
        return t[gl.thread_idx.x]

    @jit
    def kernel(t):
        where = gl.thread_idx
        t[where.x] = mine(t) + gl.block_dim.x

    func = read(kernel, t=view(64))
    assert len(ops(func, "program.thread")) == 2


def test_a_view_is_moved_in_a_loop():
    @jit
    def kernel(t, out, n):
        part = t.tile[4](0)
        total = 0.0
        for i in range(n):
            total += part[1]
            part = t.tile[4](i + 1)
        out[0] = total

    func = read(kernel, t=view(64), out=view(1), n=INT)
    (loop,) = ops(func, "control.for")
    carried = [value.name for value in loop.regions[0].args[1:]]
    assert "part_offset" in [name.rstrip("_0123456789") for name in carried]
    assert ScalarType(int32) in [value.type for value in loop.regions[0].args[1:]]


def test_an_iterator_goes_on():
    @jit
    def kernel(t, out, n):
        tiles = t.tiled_iterator[4](0)
        total = 0.0
        for _ in range(n):
            total += tiles[()][0] + tiles.next(2).get()[1]
            tiles += 1
        out[0] = total

    assert len(ops(read(kernel, t=view(64), out=view(1), n=INT), "memory.load_regs")) == 2


def test_layouts_agree_where_ways_meet():
    @jit
    def looped(t, n):
        part = t.tile[4](0)
        for i in range(n):
            part[0] = 1.0
            part = t.tile[8](i)

    @jit
    def branched(t, n):
        if n > 1:
            part = t.tile[4](0)
        else:
            part = t.tile[8](0)
        part[0] = 1.0

    @jit
    def partly(t, n):
        part = t.tile[4](0)
        for _ in range(n):
            part[0] = 1.0
            part = t.vectorize[4]()

    for kernel, code in ((looped, "lang-carried"), (branched, "lang-branches")):
        error = wrong(kernel, code, t=view(64), n=INT)
        assert "part.layout" in error.message
        assert "(4:1)" in error.message
        assert "(8:1)" in error.message
    wrong(partly, "lang-carried", t=view(64), n=INT)


def test_memory_is_named_and_stays_outside_of_loops():
    @jit
    def kernel(n):
        smem = gl.LayoutTensor.stack_allocation(
            gl.float32, gl.Layout.row_major(64), address_space=gl.AddressSpace.SHARED
        )
        mine = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(4))
        part = smem.tile[8](0)
        for i in range(n):
            part[0] = mine[1]
            part = smem.tile[8](i)

    func = read(kernel, n=INT)
    (shared,) = ops(func, "shared.array")
    (local,) = ops(func, "thread.alloc_local")
    assert (shared.result.name, local.result.name) == ("smem", "mine")
    (loop,) = ops(func, "control.for")
    assert shared.result not in loop.operands


def test_memory_that_changes_goes_round():
    @jit
    def kernel(n):
        now = gl.LayoutTensor.stack_allocation(
            gl.float32, gl.Layout.row_major(64), address_space=gl.AddressSpace.SHARED
        )
        then = gl.LayoutTensor.stack_allocation(
            gl.float32, gl.Layout.row_major(64), address_space=gl.AddressSpace.SHARED
        )
        for i in range(n):
            now[gl.thread_idx.x] = then[i]
            now, then = then, now

    func = read(kernel, n=INT)
    (loop,) = ops(func, "control.for")
    assert [op.result in loop.operands for op in ops(func, "shared.array")] == [True, True]


def test_vectors_go_round_loops_and_through_branches():
    @jit
    def kernel(t, n):
        v = t.load[4](0)
        for i in range(n):
            v = v + 1
            if i > 3:
                v = gl.maximum(v, i)
        t.store(0, v)

    func = read(kernel, t=view(64), n=INT)
    assert len(ops(func, "memory.load_regs", "memory.store_regs")) == 2


def test_sizes_of_vectors_agree():
    @jit
    def kernel(t, n):
        v = t.load[4](0)
        for _ in range(n):
            v = v[0:2]
        t.store(0, v)

    error = wrong(kernel, "lang-carried", t=view(64), n=INT)
    assert "a vector of 4 float32" in error.message
    assert "a vector of 2 float32" in error.message


def test_a_vector_is_no_condition():
    @jit
    def kernel(t):
        if t.load[4](0) > 1:
            t[0] = 1.0

    error = wrong(kernel, "lang-tile-condition", t=view(64))
    assert "a vector of 4 int1" in error.message


def test_vectors_do_not_change():
    @jit
    def kernel(t):
        v = t.load[4](0)
        v[0] = 1.0

    error = wrong(kernel, "lang-immutable", t=view(64))
    assert "gl.SIMD[gl.float32, 4]" in error.fix


def test_a_vector_is_no_index():
    @jit
    def kernel(t):
        t[t.load[4](0).to(gl.int32)] = 1.0

    assert wrong(kernel, "thread-index", t=view(64)).loc is not None


def test_a_vector_does_not_fit_one_element():
    @jit
    def kernel(t):
        t[0] = t.load[4](0)

    assert "4 float32" in wrong(kernel, "thread-stored", t=view(64)).message


@pytest.mark.parametrize("known", [True, False])
def test_a_mistake_with_an_index_is_told_with_its_line(known):
    @jit
    def kernel(t, known: gl.constexpr):
        if known:
            t[64] = 1.0
        else:
            t[0, 1] = 1.0

    with pytest.raises(UserError) as caught:
        build_kernel(
            kernel.__weft_jit__, {"t": view(64), "known": ConstexprParam(known)}, num_warps=4,
            target=targets.get("sm_90a"), block=(128, 1, 1),
        )  # fmt: skip
    assert caught.value.code == ("view-index" if known else "view-index-count")
    assert caught.value.loc is not None


HOST = weft.LayoutTensor.stack_allocation("float32", row_major(4))


def test_a_view_of_the_host_is_no_part_of_a_kernel():
    @jit
    def kernel(t):
        t[0] = HOST[0]

    error = wrong(kernel, "thread-host-view", t=view(64))
    assert "HOST" in error.message
    assert "argument" in error.fix


def test_block_indices_need_a_block():
    @jit
    def kernel(p):
        gl.store(p + gl.thread_idx.y, 1.0)

    error = mistake(kernel, "thread-block", p=POINTER)
    assert pointed(error) == "gl.thread_idx.y"


def test_atomic_operations_are_at_one_element():
    @jit
    def many(t):
        gl.atomic_add(t, 1.0)

    @jit
    def local(t):
        gl.atomic_add(gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(1)), 1.0)

    @jit
    def halves(t):
        smem = gl.LayoutTensor.stack_allocation(
            gl.float16, gl.Layout.row_major(1), address_space=gl.AddressSpace.SHARED
        )
        gl.atomic_add(smem, 1.0)

    @jit
    def swapped(t):
        smem = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(1), address_space=gl.AddressSpace.SHARED)
        gl.atomic_cas(smem, 0, 1)

    error = wrong(many, "thread-atomic-view", t=view(64))
    assert "t, a view of 64 elements" in error.message
    wrong(local, "thread-atomic-view", t=view(64))
    wrong(halves, "thread-atomic-shared", t=view(64))
    wrong(swapped, "thread-address", t=view(64))


def test_an_atomic_operation_on_a_masked_part_is_masked():
    @jit
    def kernel(t):
        gl.atomic_add(t.tile[1](gl.thread_idx.x), 1.0)

    func = read(kernel, t=view(Layout(gl.UNKNOWN, 1), names=["t.dim_0"], masked=True))
    (op,) = ops(func, "memory.atomic_regs")
    assert op.operands[2] is not None


def test_a_barrier_after_threads_have_left():
    @jit
    def kernel(t):
        if gl.global_idx.x >= 40:
            return
        t[gl.global_idx.x] = 1.0
        gl.barrier()

    with pytest.raises(UserError) as caught:
        scopes(read(kernel, t=view(64)))
    assert caught.value.code == "control-scope"
    assert "barrier" in caught.value.message
    assert "global_idx.x >= 40" in str(caught.value)


def size(func: Func) -> dict[str, int]:
    """How often each operation stands in the kernel that passes leave, bounds of views aside."""
    names = [op.name for op in ops(tile_pipeline(func, targets.get("sm_90a")), *_EVERYTHING)]
    return {name: names.count(name) for name in names}


_EVERYTHING = (
    "program.id", "program.thread", "arith.constant", "arith.add", "arith.mul", "arith.rem", "arith.div", "arith.cmp",
    "arith.and", "memory.addptr", "memory.load_regs", "memory.store_regs", "regs.extract", "regs.splat", "arith.cast",
)  # fmt: skip


def test_a_view_costs_no_more_than_indexing_by_hand():
    @jit
    def viewed(t):
        if gl.global_idx.x < t.dim(0) and gl.global_idx.y < t.dim(1):
            t[gl.global_idx.x, gl.global_idx.y] += 1

    @jit
    def by_hand(p, rows, columns, stride):
        x = gl.program_id(0) * 8 + gl.thread_idx.x
        y = gl.program_id(1) * 8 + gl.thread_idx.y
        if x < rows and y < columns:
            place = p + (x * stride + y)
            gl.store(place, gl.load(place) + 1)

    layout = Layout((gl.UNKNOWN, gl.UNKNOWN), (gl.UNKNOWN, 1))
    t = view(layout, names=["t.rows", "t.columns", "t.stride"])
    mine = size(read(viewed, block=(8, 8, 1), t=t))
    assert mine["memory.load_regs"] == mine["memory.store_regs"] == 1
    assert mine == size(read(by_hand, block=(8, 8, 1), p=POINTER, rows=INT, columns=INT, stride=INT))


def test_fields_of_views_are_not_set():
    @jit
    def kernel(t):
        t.masked = True

    assert "'masked'" in wrong(kernel, "view-immutable", t=view(64)).message
