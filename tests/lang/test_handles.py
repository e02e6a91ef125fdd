"""Handles in kernels: through calls, tuples, aggregates, branches and loops as scalars go, but never as numbers."""

from __future__ import annotations

from tests.lang.support import INT, POINTER, descriptor, jit, kernel_line, mistake, ops, pointed, read
from weft import language as gl
from weft.analysis.scopes import scopes
from weft.ir.types import DescriptorType, SharedType
from weft.language.aggregate import aggregate
from weft.language.descriptor import tensor_descriptor
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

TILE = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
NVMMA = gl.NVMMASharedLayout(128, 16, 2)
ROWS = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])


@aggregate
class Pipe:
    """A ring of buffers."""

    buffers: gl.shared_memory_descriptor
    bars: gl.shared_memory_descriptor
    stage: gl.tensor
    count: gl.constexpr

    @jit
    def next(self):
        return Pipe(self.buffers, self.bars, (self.stage + 1) % self.count, self.count)

    @jit
    def bar(self):
        return self.bars.index(self.stage)


@jit
def fill(buffer, value):
    buffer.store(value)
    return buffer, buffer.shape[0]


def test_through_calls_and_tuples():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        again, count = fill(smem, gl.zeros([64, 64], gl.float16, TILE))
        pair = (again, smem)
        x = pair[0].load(TILE)
        gl.static_assert(count == 64)
        pair[1].store(x)

    func = read(kernel)
    (alloc,) = ops(func, "shared.alloc")
    assert alloc.results[0].name == "smem"
    assert {op.operands[0] for op in ops(func, "shared.store", "shared.load")} == {alloc.results[0]}


def test_names_of_handles():
    @jit
    def kernel():
        bars = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
        first = bars.index(0)
        mbarrier.init(first, count=1)

    assert [op.results[0].name for op in ops(read(kernel), "shared.alloc", "shared.index")] == ["bars", "first"]


def test_through_loops():
    @jit
    def kernel(n):
        a = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        b = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        for _ in range(n):
            a, b = b, a
        a.store(gl.zeros([64, 64], gl.float16, TILE))

    func = read(kernel, n=INT)
    (loop,) = ops(func, "control.for")
    assert [type(value.type) for value in loop.results] == [SharedType] * 2
    assert ops(func, "shared.store")[0].operands[0] is loop.results[0]


def test_through_while_loops():
    @jit
    def kernel(n):
        a = gl.allocate_shared_memory(gl.float16, [2, 64, 64], NVMMA)
        current = a.index(0)
        i = 0
        while i < n:
            current = a.index(i % 2)
            i += 1
        current.store(gl.zeros([64, 64], gl.float16, TILE))

    (loop,) = ops(read(kernel, n=INT), "control.while")
    assert SharedType in {type(value.type) for value in loop.results}


def test_through_branches():
    @jit
    def kernel(n):
        a = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        b = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        if n > 0:
            c = a
        else:
            c = b
        d = a if n > 1 else b
        c.store(d.load(TILE))

    one, other = ops(read(kernel, n=INT), "control.if")
    assert [type(op.results[0].type) for op in (one, other)] == [SharedType] * 2
    assert one.results[0].name == "c"


def test_the_same_handle_needs_no_result():
    @jit
    def kernel(n):
        a = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        b = a
        if n > 0:
            b = a
            a.store(gl.zeros([64, 64], gl.float16, TILE))
        b._keep_alive()

    (branch,) = ops(read(kernel, n=INT), "control.if")
    assert branch.results == ()


def test_in_aggregates():
    @jit
    def kernel(n):
        buffers = gl.allocate_shared_memory(gl.float16, [3, 64, 64], NVMMA)
        pipe = Pipe(buffers, gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout()), 0, 3)
        for _ in range(n):
            mbarrier.wait(pipe.bar(), 0)
            pipe = pipe.next()
        pipe.buffers.index(pipe.stage).load(TILE)

    func = read(kernel, n=INT)
    (loop,) = ops(func, "control.for")
    assert [value.name for value in loop.results] == ["pipe_buffers", "pipe_bars", "pipe_stage"]


def test_fields_are_of_their_kind():
    @jit
    def kernel():
        bars = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
        Pipe(3, bars, 0, 3)

    assert "buffers" in str(mistake(kernel, "language-field-type"))


def test_descriptors():
    @jit
    def kernel(desc):
        smem = gl.allocate_shared_memory(desc.dtype, [2] + desc.block_type.shape, desc.layout)  # noqa: RUF005
        bar = mbarrier.allocate_mbarrier()
        rows, cols = desc.shape
        for i in range(gl.cdiv(rows, desc.block_shape[0])):
            mbarrier.expect(bar, desc.block_type.nbytes)
            tma.async_copy_global_to_shared(desc, [i * 64, 0], bar, smem.index(i % 2), pred=cols > 0)
            mbarrier.wait(bar, i & 1)
        gl.static_assert(desc.type.block_type.element_ty == gl.float16)
        gl.static_assert(isinstance(desc, tensor_descriptor))

    func = read(kernel, desc=descriptor("desc"))
    assert [value.name for value in func.params][:2] == ["desc", "desc.shape_0"]
    (load,) = ops(func, "tma.load")
    assert load.operands[0] is func.params[0]


def test_descriptors_of_equal_blocks():
    @jit
    def kernel(a, b):
        gl.static_assert(a.block_type == b.block_type)
        gl.static_assert(a.layout == b.layout)

    read(kernel, a=descriptor("a"), b=descriptor("b"))
    assert mistake(kernel, "language-static-assert", a=descriptor("a"), b=descriptor("b", (32, 64)))


def test_descriptors_go_round_loops():
    @jit
    def kernel(a, b, n):
        source, other = a, b
        for _ in range(n):
            source, other = other, source
        tma.async_copy_shared_to_global(source, [0, 0], gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout))

    func = read(kernel, a=descriptor("a"), b=descriptor("b"), n=INT)
    (loop,) = ops(func, "control.for")
    assert [type(value.type) for value in loop.results].count(DescriptorType) == 2
    assert ops(func, "tma.store")[0].operands[0] in loop.results


# A pipelined kernel, as authors write it


@jit
def issue_loads(copy_index, a_desc, b_desc, a_smem, b_smem, bars, xoff, YBLOCK: gl.constexpr, buffers: gl.constexpr):
    yoff = copy_index * YBLOCK
    bar = bars.index(copy_index % buffers)
    mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(a_desc, [xoff, yoff], bar, a_smem.index(copy_index % buffers))
    tma.async_copy_global_to_shared(b_desc, [xoff, yoff], bar, b_smem.index(copy_index % buffers))
    return copy_index + 1


def test_a_pipeline():
    @jit
    def kernel(a_desc, b_desc, c_desc, cols, buffers: gl.constexpr):
        a_smem = gl.allocate_shared_memory(a_desc.dtype, [buffers, 64, 64], a_desc.layout)
        b_smem = gl.allocate_shared_memory(b_desc.dtype, [buffers, 64, 64], b_desc.layout)
        c_smem = gl.allocate_shared_memory(c_desc.dtype, [64, 64], c_desc.layout)
        bars = gl.allocate_shared_memory(gl.int64, [buffers, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(buffers):
            mbarrier.init(bars.index(i), count=1)
        xoff = gl.program_id(0) * 64
        copy_index = 0
        read_index = 0
        for _ in gl.static_range(buffers - 1):
            copy_index = issue_loads(copy_index, a_desc, b_desc, a_smem, b_smem, bars, xoff, 64, buffers)
        for _ in range(gl.cdiv(cols, 64) - (buffers - 1)):
            copy_index = issue_loads(copy_index, a_desc, b_desc, a_smem, b_smem, bars, xoff, 64, buffers)
            mbarrier.wait(bars.index(read_index % buffers), read_index // buffers & 1)
            value = a_smem.index(read_index % buffers).load(TILE) + b_smem.index(read_index % buffers).load(TILE)
            tma.store_wait(pendings=0)
            c_smem.store(value)
            fence_async_shared()
            tma.async_copy_shared_to_global(c_desc, [xoff, read_index * 64], c_smem)
            read_index += 1  # noqa: SIM113
        tma.store_wait(pendings=0)

    descriptors = {name: descriptor(name) for name in ("a_desc", "b_desc", "c_desc")}
    func = read(kernel, **descriptors, cols=INT, buffers=3)
    scopes(func)
    assert len(ops(func, "tma.load")) == 6
    assert len(ops(func, "mbarrier.init")) == 3
    (loop,) = ops(func, "control.for")
    assert [value.name for value in loop.results] == ["copy_index", "read_index"]


# No numbers


def test_no_condition():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        if smem:
            smem._keep_alive()

    error = mistake(kernel, "shared-handle-operand")
    assert "if needs numbers, but 'smem' (a float16 buffer [64, 64]) is a handle" in str(error)
    assert error.loc.line == kernel_line(kernel) + 3


def test_no_operand():
    @jit
    def kernel(n):
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        n + smem

    assert pointed(mistake(kernel, "shared-handle-operand", n=INT)) == "n + smem"

    @jit
    def negated():
        -gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)

    mistake(negated, "shared-handle-operand")


def test_no_comparison_but_with_none():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        gl.static_assert(smem != None)  # noqa: E711
        gl.static_assert(smem is not None)
        smem == 3  # noqa: B015

    assert pointed(mistake(kernel, "shared-handle-operand")) == "smem == 3"


def test_no_brackets():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float16, [2, 64, 64], NVMMA)
        smem[0].load(TILE)

    assert ".index(i)" in str(mistake(kernel, "shared-handle-brackets"))

    @jit
    def assigned():
        smem = gl.allocate_shared_memory(gl.float16, [2, 64, 64], NVMMA)
        smem[0] = 3

    assert "bufs.index(i).store(value)" in str(mistake(assigned, "lang-immutable"))


def test_no_sequence():
    @jit
    def kernel():
        for x in gl.allocate_shared_memory(gl.float16, [2, 64, 64], NVMMA):
            x._keep_alive()

    assert "a float16 buffer [2, 64, 64]" in str(mistake(kernel, "lang-unroll"))


def test_no_printing():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        print("smem", smem)

    assert "smem.load(layout)" in str(mistake(kernel, "shared-handle-operand"))

    @jit
    def formatted():
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        print(f"smem is {smem}")

    mistake(formatted, "shared-handle-operand")


def test_no_attributes_of_tiles():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        smem.sum(0)

    assert "'smem' (a float16 buffer [64, 64]) has no attribute 'sum'" in str(mistake(kernel, "lang-attribute"))


def test_no_stored_value():
    @jit
    def kernel(ptr):
        gl.store(ptr, gl.allocate_shared_memory(gl.float32, [64, 64], ROWS))

    mistake(kernel, "shared-handle-operand", ptr=POINTER)


# Types that differ


def test_branches_with_different_memory():
    @jit
    def kernel(n):
        if n > 0:
            smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        else:
            smem = gl.allocate_shared_memory(gl.float16, [64, 64], ROWS)
        smem._keep_alive()

    text = str(mistake(kernel, "lang-branches", n=INT))
    assert f"a float16 buffer [64, 64] in {NVMMA!r}" in text
    assert f"a float16 buffer [64, 64] in {ROWS!r}" in text


def test_a_loop_that_changes_the_view():
    @jit
    def kernel(n):
        smem = gl.allocate_shared_memory(gl.float16, [2, 64, 64], NVMMA)
        for _ in range(n):
            smem = smem.index(0)
        smem._keep_alive()

    assert "smem is a float16 buffer [2, 64, 64] before the loop" in str(mistake(kernel, "lang-carried", n=INT))


def test_a_part_is_no_whole():
    @jit
    def kernel(n):
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        whole = gl.allocate_shared_memory(gl.float16, [32, 64], NVMMA)
        part = smem.slice(0, 32) if n > 0 else whole
        part._keep_alive()

    text = str(mistake(kernel, "lang-branches", n=INT))
    assert "of [64, 64]" in text and "of [32, 64]" in text
