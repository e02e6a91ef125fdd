"""Identity, hints, messages, inline PTX, and what works outside of kernels."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tests.language.support import MATRIX, jit, mistake
from weft import language as gl
from weft.errors import Loc
from weft.language.asm import _e2m1
from weft.language.context import active, current
from weft.language.debug import Text


def test_identity(kernel):
    assert gl.program_id(0).handle.type == kernel.scalar(gl.int32).handle.type
    gl.num_programs(axis=2)
    assert [(op.name, op.attrs) for op in kernel.ops] == [("program.id", {"axis": 0}), ("program.count", {"axis": 2})]
    assert (gl.num_warps(), gl.num_ctas()) == (4, 1)
    gl.lane_id()
    gl.warp_id()
    gl.thread_barrier()
    gl.schedule_barrier()
    assert kernel.names[2:] == ["program.lane", "program.warp", "sync.barrier", "sync.schedule_barrier"]
    with mistake("language-grid-axis"):
        gl.program_id(3)
    with mistake("language-constexpr-needed"):
        gl.program_id(gl.program_id(0))


def test_uniform(kernel):
    gl.uniform(gl.warp_id())
    kernel.last("hints.uniform")
    assert gl.uniform(3) == 3
    with mistake("language-scalar-needed"):
        gl.uniform(kernel.tile())


@pytest.mark.parametrize("name", ["program_id", "load", "zeros", "sum", "exp", "to_tensor", "barrier"])
def test_on_the_host(name):
    assert not active()
    with mistake("language-host-call") as found:
        getattr(gl, name)(0)
    assert name in found.text and "kernel[grid]" in found.text


def test_the_context_knows_the_line(kernel):
    kernel.builder.loc = Loc("kernel.py", 7)
    gl.program_id(0)
    assert kernel.ops[0].loc == current().loc == Loc("kernel.py", 7)


def test_every_public_function_is_documented():
    for name in gl.__all__:
        assert inspect.getdoc(getattr(gl, name)), name


def test_static_range():
    assert list(gl.static_range(3)) == [0, 1, 2]
    assert list(gl.static_range(gl.constexpr(1), 7, 2)) == [1, 3, 5]
    assert len(gl.static_range(4)) == 4


def test_static_messages(capsys):
    gl.static_print("BLOCK", gl.constexpr(128), end="!\n")
    assert capsys.readouterr().out == "BLOCK 128!\n"
    gl.static_assert(True)
    with mistake("language-static-assert") as found:
        gl.static_assert(gl.constexpr(False), "BLOCK is odd")
    assert "BLOCK is odd" in found.text


def test_static_assert_of_a_run_time_value(kernel):
    with mistake("language-constexpr-needed"):
        gl.static_assert(kernel.scalar(gl.int1))


def test_device_print(kernel):
    x, i = kernel.tile(gl.float32, (16, 32)), kernel.tile(gl.int32, (16, 1))
    gl.device_print("x", x, i, hex=True)
    op = kernel.last("debug.print")
    assert op.attrs == {"prefix": "x", "hex": True, "coordinates": 0}
    assert [v.type.shape for v in op.operands] == [(16, 32), (16, 32)]
    gl.device_print("here")
    assert kernel.last("debug.print").operands == ()
    with mistake("language-print-prefix"):
        gl.device_print(x)


def test_device_print_of_an_f_string(kernel):
    n, m = kernel.scalar(gl.int32, "n"), kernel.scalar(gl.int32, "m")
    gl.device_print(Text(("n=", n, " m=", m, "!")))
    assert [(op.attrs["prefix"], len(op.operands)) for op in kernel.ops] == [("n=", 1), (" m=", 1), ("!", 0)]


def test_device_assert(kernel):
    x = kernel.tile(gl.int32)
    gl.device_assert(x < 3, Text(("small ", x)), mask=kernel.scalar(gl.int1))
    op = kernel.last("debug.assert")
    assert op.attrs == {"message": "small {x}", "always": False}
    assert op.operands[1].type == op.operands[0].type
    gl.device_assert(kernel.scalar(gl.int32))
    assert kernel.last("debug.assert").operands[1] is None
    with mistake("language-assert-text"):
        gl.device_assert(x < 3, 5)
    with mistake("language-mask-type"):
        gl.device_assert(x < 3, mask=x)


def test_assume(kernel):
    gl.assume(kernel.scalar(gl.int32) > 0)
    kernel.last("hints.assume")
    gl.assume(True)
    kernel.last("hints.assume")
    with mistake("language-assume-false"):
        gl.assume(1 > 2)
    with mistake("language-scalar-needed"):
        gl.assume(kernel.tile(gl.int1))


def test_hints(kernel):
    x = kernel.tile(gl.int32, (16, 32))
    gl.multiple_of(x, [1, 16])
    assert kernel.last("hints.axes").attrs == {"divisible": (1, 16), "contiguous": (), "constant": ()}
    gl.max_contiguous(x, (1, 32))
    assert kernel.last("hints.axes").attrs["contiguous"] == (1, 32)
    gl.max_constancy(kernel.tile(gl.int32), 4)
    assert kernel.last("hints.axes").attrs["constant"] == (4,)
    assert gl.multiple_of(kernel.pointer(), 16).dtype == gl.pointer_type(gl.float32)
    assert gl.multiple_of(32, 16) == 32
    for value, entries in ((x, 16), (x, [0, 1]), (kernel.tile(gl.float32), 4)):
        with mistake("language-hint"):
            gl.multiple_of(value, entries)


def test_inline_asm(kernel):
    x, y = kernel.tile(gl.float32), kernel.tile(gl.int32)

    def simulated(a, b):
        return a

    z = gl.inline_asm_elementwise("add $0, $1, $2;", "=r,r,r", [x, y], gl.uint32, is_pure=True, pack=1, sim=simulated)
    op = kernel.last("asm.elementwise")
    assert z.dtype == gl.uint32 and op.attrs["sim"] is simulated and op.attrs["dtypes"] == (gl.uint32,)
    a, b = gl.inline_asm_elementwise("...", "=r, =r, r", [kernel.tile(gl.int8)], (gl.int8, gl.uint8), False, 4)
    kernel.last("asm.elementwise_volatile")
    assert (a.dtype, b.dtype) == (gl.int8, gl.uint8)
    with mistake("tile-asm-constraints") as found:
        gl.inline_asm_elementwise("...", "=r,r", [x, y], gl.int32, True, 1)
    assert "the values take 1 and 2" in found.text
    assert gl.inline_asm_elementwise("...", "=r", [], gl.int32, True, 1).is_scalar
    with mistake("tile-asm-operands"):
        gl.inline_asm_elementwise("...", "=r", [], gl.int32, True, 2)
    with mistake("tile-asm-operands"):
        gl.inline_asm_elementwise("...", "=r,r", [x], gl.int32, True, 0)
    with mistake("language-dtype"):
        gl.inline_asm_elementwise("...", "=r,r", [x], "int32", True, 1)


def test_inline_asm_of_threads(kernel):
    x, n = kernel.tile(gl.int8, (512,), layout=gl.BlockedLayout([4], [32], [4], [0])), kernel.scalar(gl.int64)
    y, z = gl.inline_asm("...", ("=r", "=r", "r", "l"), [x, n], (x.type, x.type), is_pure=True)
    assert (y.dtype, z.dtype, y.layout) == (gl.int8, gl.int8, x.layout)
    assert kernel.last("asm.block").attrs["constraints"] == "=r,=r,r,l"
    assert gl.inline_asm("...", "r", [x], ()) == ()
    kernel.last("asm.block_volatile")
    assert gl.inline_asm("...", "=r,r", [1], gl.uint32).is_scalar
    with mistake("tile-asm-constraints"):
        gl.inline_asm("...", "=r,r,r", [x], x.type)
    with mistake("tile-asm-result") as found:
        gl.inline_asm("...", "=r,r", [x], gl.int32)
    assert "a result of type i32" in found.text
    tiles = gl.allocate_shared_memory(gl.int8, [2, 64, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    one = tiles.index(0)
    gl.inline_asm("...", "r,r,r", [x, one, tiles.index(1)], ())
    assert kernel.last("asm.block_memory").attrs["places"] == (1, 2)
    for wrong in ([one.slice(0, 32)], [one] * 4):
        with mistake("tile-asm-buffers"):
            gl.inline_asm("...", ",".join("r" * len(wrong)), wrong, ())
    with mistake("tile-asm-buffers") as found:
        gl.inline_asm("...", "r", [one], (), is_pure=True)
    assert "is_pure=True" in found.text


def test_fp4(kernel):
    x = kernel.tile(gl.uint8, (16, 32), MATRIX)
    assert gl.fp4_to_fp(x, gl.bfloat16, 1).shape == [16, 64]
    wide = gl.fp4_to_fp(x, gl.float16, 0)
    assert wide.shape == [32, 32] and wide.dtype == gl.float16
    assert wide.handle.type.linear.in_size("register") == 8
    with mistake("tile-fp4"):
        gl.fp4_to_fp(x, gl.float8e5, 0)
    with mistake("tile-fp4"):
        gl.fp4_to_fp(kernel.tile(gl.int16), gl.float16, 0)


def test_int4(kernel):
    x = kernel.tile(gl.uint8, (16, 32), MATRIX)
    assert gl.int4_to_fp(x, gl.bfloat16, 1).shape == [16, 64]
    words = gl.int4_to_fp(kernel.tile(gl.int32, (16, 32), MATRIX), gl.float32, 0, interleaved=True)
    assert words.shape == [128, 32] and words.dtype == gl.float32
    for source, dtype in (
        (gl.uint8, gl.float8e5),
        (gl.uint8, gl.int16),
        (gl.int16, gl.float16),
        (gl.float32, gl.float16),
    ):
        with mistake("tile-int4"):
            gl.int4_to_fp(kernel.tile(source, (16, 32), MATRIX), dtype, 0)
    with mistake("tile-int4-order"):
        gl.int4_to_fp(x, gl.float16, 1, interleaved=True)


def test_fp4_values(kernel):
    """The operations between a nibble and its number, carried out by NumPy on all sixteen of them."""
    nibbles = np.arange(16, dtype=np.uint16)
    x = kernel.tile(gl.uint16, (16,))
    result = _e2m1(x)
    known = {x.handle: nibbles}
    functions = {
        "arith.and": np.bitwise_and,
        "arith.or": np.bitwise_or,
        "arith.shl": np.left_shift,
        "arith.mul": np.multiply,
    }
    for op in kernel.ops:
        operands = [known[value] for value in op.operands]
        if op.name == "arith.constant":
            known[op.result] = np.array(op.attrs["value"], op.result.type.element.name)
        elif op.name == "arith.bitcast":
            known[op.result] = operands[0].view(np.float16)
        else:
            known[op.result] = functions[op.name](*operands)
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    np.testing.assert_array_equal(known[result.handle], [*magnitudes, *(-m for m in magnitudes)])


def test_python_asks_for_a_value(kernel):
    x = kernel.scalar(gl.int32, "n")
    for ask, code in (
        (bool, "language-truth"),
        (int, "language-not-constexpr"),
        (float, "language-not-constexpr"),
        (range, "language-not-constexpr"),
        (list, "language-iteration"),
        (len, "language-tile-needed"),
    ):
        with mistake(code) as found:
            ask(x)
        assert "'n'" in found.text or ask is len
    assert jit(None).__weft_jit__ is None
