"""Handles to tensor memory, and answers of cluster launch control, in kernels: wherever values go."""

from __future__ import annotations

from tests.lang.support import INT, POINTER, descriptor, jit, mistake, ops, read
from weft import language as gl
from weft.ir.types import ScalarType, TensorType
from weft.language.aggregate import aggregate
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
    get_tmem_32x32b_reg_layout,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tensor_memory_descriptor,
    tma,
)

ACC = TensorMemoryLayout([128, 64], col_stride=1)
WIDE = TensorMemoryLayout([128, 128], col_stride=1)
B200 = {"target": "sm_100a"}


@aggregate
class Product:
    """An MMA in flight, with the barrier that its commit signals."""

    acc: tensor_memory_descriptor
    bar: gl.shared_memory_descriptor
    count: gl.tensor
    layout: gl.constexpr

    @jit
    def start(self, a, b):
        tcgen05_mma(a, b, self.acc, use_acc=self.count > 0)
        tcgen05_commit(self.bar)
        return Product(self.acc, self.bar, self.count + 1, self.layout)

    @jit
    def wait(self):
        mbarrier.wait(self.bar, (self.count - 1) & 1)
        return self

    @jit
    def result(self):
        return self.acc.load(self.layout)


@jit
def fresh(accs, i):
    acc = accs.index(i)
    gl.static_assert(isinstance(acc, tensor_memory_descriptor))
    return acc, acc.shape[1]


def test_through_calls_and_tuples():
    @jit
    def kernel(i):
        accs = allocate_tensor_memory(gl.float32, [2, 128, 64], ACC)
        acc, columns = fresh(accs, i)
        pair = (acc, accs)
        gl.static_assert(columns == 64)
        gl.static_assert(pair[0].layout == ACC)
        gl.static_assert(pair[1].type.alloc_shape == (128, 64))
        pair[0].store(pair[1].index(0).load())

    func = read(kernel, i=INT, **B200)
    (alloc,) = ops(func, "tensor_memory.alloc")
    assert alloc.results[0].name == "accs"
    assert [op.results[0].name for op in ops(func, "tensor_memory.index")] == ["acc", ""]


def test_a_layout_in_the_kernel():
    @jit
    def kernel():
        layout: gl.constexpr = TensorMemoryLayout([128, 64], col_stride=1)
        registers: gl.constexpr = get_tmem_32x32b_reg_layout(128, 64, [128, 64], gl.num_warps())
        acc = allocate_tensor_memory(gl.float32, [128, 64], layout)
        gl.static_assert(acc.get_reg_layout() == registers)
        gl.static_assert(acc.type.get_reg_layout(num_warps=gl.num_warps()) == registers)
        acc.load(registers)

    assert ops(read(kernel, **B200), "tensor_memory.load")[0].result.type.layout == get_tmem_32x32b_reg_layout(
        128, 64, [128, 64], 4
    )


def test_through_loops():
    @jit
    def kernel(n):
        one = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        other = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        for _ in range(n):
            one, other = other, one
        one.load()
        i = 0
        while i < n:
            one = other
            i += 1
        one.load()

    func = read(kernel, n=INT, **B200)
    (loop,) = ops(func, "control.for")
    assert [type(value.type) for value in loop.results] == [TensorType] * 2
    assert [value.name for value in loop.results] == ["one", "other"]
    first, _ = ops(func, "tensor_memory.load")
    assert first.operands[0] is loop.results[0]


def test_through_branches():
    @jit
    def kernel(n):
        one = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        other = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        if n > 0:
            acc = one
        else:
            acc = other
        again = one if n > 1 else other
        one.store(acc.load() + again.load())

    branches = ops(read(kernel, n=INT, **B200), "control.if")
    assert [[type(value.type) for value in op.results] for op in branches] == [[TensorType], [TensorType]]


def test_in_aggregates():
    @jit
    def kernel(out, n):
        acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        smem = gl.NVMMASharedLayout.get_default_for([128, 64], gl.float16)
        a = gl.allocate_shared_memory(gl.float16, [128, 64], smem)
        b = gl.allocate_shared_memory(gl.float16, [64, 64], smem)
        product = Product(acc, bar, 0, get_tmem_32x32b_reg_layout(128, 64, [128, 64], 4))
        for _ in range(n):
            product = product.start(a, b)
            product = product.wait()
        gl.store(out, gl.sum(gl.sum(product.result(), 1), 0))

    func = read(kernel, out=POINTER, n=INT, **B200)
    (loop,) = ops(func, "control.for")
    # The handle goes round as what it is: the loop does not change it, and the count changes.
    assert [value.name for value in loop.results] == ["product_acc", "product_bar", "product_count"]
    (product,) = ops(func, "tcgen05.mma")
    assert product.operands[2].type == TensorType(gl.float32, (128, 64), ACC, (128, 64))


def test_fields_are_of_their_kind():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float32, [128, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
        Product(smem, smem, 0, None)

    assert "acc" in str(mistake(kernel, "language-field-type", **B200))


@jit
def load(desc, smem, ready):
    mbarrier.expect(ready, desc.block_type.nbytes)
    tma.async_load(desc, [0, 0], ready, smem)


@jit
def multiply(smem, ready, accs, done):
    mbarrier.wait(ready, 0)
    tcgen05_mma(smem, smem.permute([1, 0]), accs.index(0), use_acc=False, mbarriers=[done])


@jit
def finish(accs, done):
    mbarrier.wait(done, 0)
    return accs.index(0).load()


def test_as_arguments_of_partitions():
    @jit
    def kernel(desc):
        smem = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
        accs = allocate_tensor_memory(gl.float32, [2, 128, 128], WIDE)
        ready, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
        x = gl.warp_specialize(
            [(finish, (accs, done)), (multiply, (smem, ready, accs, done)), (load, (desc, smem, ready))], [1, 1]
        )
        x + 1

    func = read(kernel, desc=descriptor("desc", (128, 64)), **B200)
    (specialize,) = ops(func, "control.warp_specialize")
    assert specialize.result.type.shape == (128, 128)
    assert ops(func, "tcgen05.mma")[0].operands[1].type.shape == (64, 128)


def test_types_that_differ():
    @jit
    def kernel(n):
        acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        wide = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 32]))
        if n > 0:
            acc = wide
        acc.load()

    text = str(mistake(kernel, "lang-branches", n=INT, **B200))
    assert f"a float32 tensor memory buffer [128, 64] in {ACC!r}" in text
    assert "in TensorMemoryLayout([128, 32])" in text

    @jit
    def part(n):
        whole = allocate_tensor_memory(gl.float32, [128, 128], WIDE)
        for _ in range(n):
            whole = whole.slice(0, 64)
        whole.load()

    assert "whole is a float32 tensor memory buffer [128, 128] before the loop" in str(
        mistake(part, "lang-carried", n=INT, **B200)
    )


def test_handles_are_no_numbers():
    @jit
    def kernel(n):
        acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        acc + n

    mistake(kernel, "shared-handle-operand", n=INT, **B200)

    @jit
    def attribute():
        acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        acc.loads()

    assert "did you mean 'load'" in str(mistake(attribute, "lang-attribute", **B200))


def test_answers_go_round_loops():
    @jit
    def kernel(out):
        result = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        phase, going, program = 0, True, gl.program_id(0)
        while going:
            mbarrier.expect(bar, 16)
            clc.try_cancel(result, bar)
            gl.store(out + program, 1.0)
            mbarrier.wait(bar, phase)
            answer = clc.load_result(result)
            gl.static_assert(isinstance(answer, clc.clc_result))
            going = answer.is_canceled()
            program = answer.program_id(0)
            phase ^= 1

    func = read(kernel, out=POINTER, **B200)
    assert len(ops(func, "clc.try_cancel", "clc.load", "clc.is_canceled", "clc.program_id")) == 4

    @jit
    def carried(n):
        result = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        answer = clc.load_result(result)
        for _ in range(n):
            answer = clc.load_result(result)
        later = answer if n > 3 else clc.load_result(result)
        later.program_id(dim=1)

    func = read(carried, n=INT, **B200)
    (loop,) = ops(func, "control.for")
    assert [value.type for value in loop.results] == [ScalarType(gl.int64)] * 2
    assert [value.name for value in loop.results] == ["answer_low", "answer_high"]
