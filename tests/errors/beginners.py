"""Mistakes of a first hour, each as a line of a kernel with the fix that its report gives, and the line that follows the fix.

A `Mistake` is a body in two versions. Both stand in the same kernel: `wrong` must be refused in the line named, with that
code and that advice; `right` is the advice followed to the letter, and must compile and run.
"""

from __future__ import annotations

import itertools
import linecache
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

import weft
from weft import language as gl

HOST = np.ones(128, np.float32)
LINE = gl.BlockedLayout([1], [32], [4], [0])
TILES = """\
@weft.jit
def kernel(src, dst, n):
    i = gl.arange(0, 128, LINE)
    t = gl.load(src + i)
{body}
    gl.store(dst + 256 + i, t)
"""
THREADS = """\
@weft.jit
def kernel(src, dst, n):
    i = gl.thread_idx.x
{body}
"""
_COUNT = itertools.count()


@dataclass(frozen=True)
class Mistake:
    """`advice` is part of the fix; `mark` is what the line at fault begins with (the first one of `wrong` when empty)."""

    wrong: str
    code: str
    advice: str
    right: str
    mark: str = ""

    @property
    def title(self) -> str:
        return self.wrong.replace("\n", "; ")


def kernel_of(template: str, body: str) -> Any:
    """A kernel with this body, in a file of its own."""
    text = template.format(body="\n".join(f"    {line}" for line in body.split("\n")))
    name = f"<mistake {next(_COUNT)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"weft": weft, "gl": gl, "np": np, "math": math, "LINE": LINE, "__name__": "mistakes"}
    space |= {"HOST": HOST, "KEPT": SimpleNamespace(weights=HOST)}
    exec(compile(text, name, "exec"), space)  # noqa: S102
    return space["kernel"]


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(1.0, 2.0, 128, dtype=np.float32), np.zeros(384, np.float32)


def launch_tiles(body: str) -> None:
    kernel_of(TILES, body)[1](*arrays(), 4)


def launch_threads(body: str) -> None:
    src, dst = arrays()
    kernel_of(THREADS, body)[1](weft.LayoutTensor(src), weft.LayoutTensor(dst), 4, block=64)


TILE_MISTAKES = [
    Mistake(
        "x = gl.arange(0, 64, gl.SliceLayout(7, gl.AutoLayout()))", "layout-slice-dim", "between 0 and 1",
        "x = gl.arange(0, 64, gl.SliceLayout(1, gl.AutoLayout()))",
    ),
    Mistake(
        "x = gl.arange(0, 64, gl.SliceLayout(1, gl.SliceLayout(5, gl.AutoLayout())))", "layout-slice-dim", "between 0 and 2",
        "x = gl.arange(0, 64, gl.SliceLayout(1, gl.SliceLayout(2, gl.AutoLayout())))",
    ),
    Mistake("x = i < n & i >= 0", "lang-precedence", "write (i < n) & (i >= 0)", "x = (i < n) & (i >= 0)"),
    Mistake("x = t > 0 | t < -1", "lang-precedence", "write (t > 0) | (t < -1)", "x = (t > 0) | (t < -1)"),
    Mistake("t = HOST[i]", "thread-host-view", "as an argument of the kernel", "t = gl.load(src + i)"),
    # Numbers
    Mistake("gl.store(dst + n / 2, 1.0)", "language-pointer-offset", "//", "gl.store(dst + n // 2, 1.0)"),
    Mistake("gl.store(dst + i / 2, t)", "language-pointer-offset", "//", "gl.store(dst + i // 2, t, mask=i < 1)"),
    Mistake("gl.store(dst + (n / 2 + 1), 1.0)", "language-pointer-offset", "//", "gl.store(dst + (n // 2 + 1), 1.0)"),
    Mistake(
        "gl.store(dst + gl.max(t), 1.0)", "language-pointer-offset", ".to(gl.int32)",
        "gl.store(dst + gl.max(t).to(gl.int32), 1.0)",
    ),
    Mistake(
        "x = gl.arange(0, 128 / 2, LINE)", "language-constexpr-needed", "write 64, or //", "x = gl.arange(0, 128 // 2, LINE)",
    ),
    Mistake(
        "x = gl.zeros([256 / 2], gl.float32, LINE)", "language-constexpr-needed", "write 128",
        "x = gl.zeros([128], gl.float32, LINE)",
    ),
    Mistake("for j in range(n / 2):\n    t += 1", "lang-range", "//", "for j in range(n // 2):\n    t += 1"),
    Mistake("for j in range(4.0):\n    t += 1", "lang-range", "write 4", "for j in range(4):\n    t += 1"),
    Mistake(
        "for j in range(t):\n    t += 1", "lang-range", ".to(gl.int32)",
        "for j in range(gl.max(t).to(gl.int32)):\n    t += 1",
    ),
    Mistake("t = (2 ** gl.program_id(0)) * t", "language-power", "1 <<", "t = (1 << gl.program_id(0)) * t"),
    Mistake("x = 2 ** n", "language-power", "1 << n", "x = 1 << n"),
    Mistake("t = t // 2.0", "language-floor-division", "gl.floor(x / y)", "t = gl.floor(t / 2.0)"),
    Mistake("t = t @ t", "language-matmul", "gl.dot_fma", "pass"),
    Mistake("x = t & 1", "language-integer-needed", ".to(gl.int32)", "x = t.to(gl.int32) & 1"),
    Mistake('t = t + "1"', "language-operand", "pass a number", "t = t + 1"),
    Mistake("t = t + None", "language-operand", "pass a number", "t = t + 0"),
    Mistake("t = t + [1]", "language-operand", "pass a number", "t = t + 1"),
    Mistake("x = src * 2", "language-pointer-operand", "load through it first", "x = gl.load(src) * 2"),
    Mistake("x = src[i, 0]", "language-pointer-index", "write pointer[i]", "x = src[i]"),
    Mistake("x = src.shape[0]", "language-shape-index", "kernel[grid](x, x.shape[0])", "x = n"),
    Mistake("dst[0:128] = t", "language-pointer-index", "write pointer[i]", "dst[i] = t"),
    Mistake("t = gl.load(t)", "language-pointer-needed", "gl.load(ptr + offsets)", "t = gl.load(src + i)"),
    Mistake('x = t.to("float16")', "language-dtype", "gl.float16", "x = t.to(gl.float16)"),
    Mistake("x = t.to(np.float16)", "language-dtype", "gl.float16", "x = t.to(gl.float16)"),
    Mistake("x = t.to(int)", "language-dtype", "gl.int32", "x = t.to(gl.int32)"),
    Mistake(
        "x = gl.zeros([128], LINE)", "language-dtype", "gl.zeros(shape, gl.float32, layout)",
        "x = gl.zeros([128], gl.float32, LINE)",
    ),
    # Python's functions, NumPy's and PyTorch's
    Mistake("x = sum(t)", "lang-python-function", "gl.sum(t)", "x = gl.sum(t)"),
    Mistake("x = max(t)", "lang-python-function", "gl.max(t)", "x = gl.max(t)"),
    Mistake("x = min(t)", "lang-python-function", "gl.min(t)", "x = gl.min(t)"),
    Mistake("x = max(n)", "lang-python-function", "max(a, b)", "x = max(n, 0)"),
    Mistake("x = sum(n)", "lang-python-function", "a scalar needs no sum", "x = n"),
    Mistake("x = any(t)", "lang-python-function", "gl.sum(t != 0) > 0", "x = gl.sum(t != 0) > 0"),
    Mistake("x = all(t)", "lang-python-function", "gl.sum(t != 0) == t.numel", "x = gl.sum(t != 0) == t.numel"),
    Mistake("x = sorted(t)", "lang-python-function", "gl.sort(t)", "x = gl.sort(t)"),
    Mistake("x = reversed(t)", "lang-python-function", "gl.load(ptr + (size - 1 - i))", "x = gl.load(src + (128 - 1 - i))"),
    Mistake("x = list(map(abs, t))", "lang-python-function", "the whole tile", "x = abs(t)"),
    Mistake("for a, b in zip(t, t):\n    pass", "lang-python-function", "x * y", "x = t * t"),
    Mistake("for j, x in enumerate(t):\n    pass", "lang-python-function", "gl.arange", "x = gl.arange(0, 128, LINE) * t"),
    Mistake("x = pow(t, 2)", "lang-python-function", "t ** y", "x = t**2"),
    Mistake("x = round(t)", "lang-python-function", "gl.floor(t + 0.5)", "x = gl.floor(t + 0.5)"),
    Mistake("x = float(t)", "lang-python-function", "t.to(gl.float32)", "x = t.to(gl.float32)"),
    Mistake("x = int(t)", "lang-python-function", "t.to(gl.int32)", "x = t.to(gl.int32)"),
    Mistake("x = bool(t)", "lang-python-function", "t != 0", "x = t != 0"),
    Mistake("x, y = divmod(n, 3)", "lang-python-function", "n // y and n % y", "x, y = n // 3, n % 3"),
    Mistake("x = str(n)", "lang-python-function", "gl.device_print", 'gl.device_print("n", n)'),
    Mistake("x = np.sum(t)", "lang-host-function", "gl.sum", "x = gl.sum(t)"),
    Mistake("x = np.exp(t)", "lang-host-function", "gl.exp", "x = gl.exp(t)"),
    Mistake("x = np.clip(t, 0, 1)", "lang-host-function", "gl.clamp(x, 0.0, 1.0)", "x = gl.clamp(t, 0.0, 1.0)"),
    Mistake("x = np.linalg.norm(t)", "lang-host-function", "compute it on the host", "pass"),
    Mistake("x = math.exp(t)", "lang-math", "gl.exp(t)", "x = gl.exp(t)"),
    Mistake("x = math.pow(t, 2)", "lang-math", "t ** y", "x = t**2"),
    Mistake("x = math.fabs(t)", "lang-math", "gl.abs(t)", "x = gl.abs(t)"),
    Mistake("x = math.gamma(t)", "lang-math", "compute it on the host", "pass"),
    Mistake("x = t.mean()", "lang-attribute", "gl.sum(t) / t.numel", "x = gl.sum(t) / t.numel"),
    Mistake("x = t.exp()", "lang-attribute", "gl.exp(t)", "x = gl.exp(t)"),
    Mistake("x = t.float()", "lang-attribute", "t.to(gl.float32)", "x = t.to(gl.float32)"),
    Mistake("x = t.astype(np.float32)", "lang-attribute", "t.to(gl.float32)", "x = t.to(gl.float32)"),
    Mistake("x = t.clone()", "lang-attribute", "never change", "x = t"),
    Mistake("x = t.size", "lang-attribute", "t.numel", "x = t.numel"),
    Mistake("gl.syncthreads()", "lang-attribute", "gl.barrier()", "gl.barrier()"),
    Mistake("x = threadIdx.x", "lang-undefined-name", "gl.thread_idx", "x = gl.thread_idx"),
    Mistake("x = arange(0, 128, LINE)", "lang-undefined-name", "gl.arange", "x = gl.arange(0, 128, LINE)"),
    Mistake('setattr(t, "x", 1)', "lang-host-function", "a field of an aggregate", "pass"),
    Mistake("x = input()", "lang-host-function", "an argument of the kernel", "x = n"),
    # Tiles are no sequences
    Mistake("for x in t:\n    pass", "lang-unroll", "the whole tile", "x = t * 2"),
    Mistake("for x in n:\n    pass", "lang-unroll", "range(n)", "for x in range(n):\n    pass"),
    Mistake("for x in 4:\n    pass", "lang-unroll", "range(4)", "for x in range(4):\n    pass"),
    Mistake("for x in src:\n    pass", "lang-unroll", "gl.load(ptr + i)", "for j in range(n):\n    x = gl.load(src + j)"),
    Mistake("x = [v * 2 for v in t]", "lang-unroll", "the whole tile", "x = t * 2"),
    Mistake("x, y = t", "lang-not-a-sequence", "unpack a tuple", "x, y = t, t"),
    Mistake("x = t[0]", "tile-index", "gl.sum(gl.where(index == 0, t, 0))", "x = gl.sum(gl.where(i == 0, t, 0))"),
    Mistake("x = t[n]", "tile-index", "gl.sum(gl.where(index == n, t, 0))", "x = gl.sum(gl.where(i == n, t, 0))"),
    Mistake("x = t[0:4]", "layout-slice", "load the part", "x = gl.load(src + i, mask=i < 4, other=0.0)"),
    Mistake("x = t[n:64]", "tile-index", "known at compile time", "x = t[0:128]"),
    Mistake("x = t[i]", "tile-index", "gl.gather(t, index, axis)", "x = gl.gather(t, i, 0)"),
    Mistake("x = t[t > 1]", "tile-index", "gl.where(condition, t, other)", "x = gl.where(t > 1, t, 0)"),
    Mistake("t[0] = 1.0", "lang-immutable", "gl.where(condition, new, old)", "t = gl.where(i == 0, 1.0, t)"),
    Mistake("t.x = 1.0", "lang-immutable", "use a variable", "x = 1.0"),
    # Conditions
    Mistake("if t > 1:\n    t = t + 1", "lang-tile-condition", "gl.where(condition, a, b)", "t = gl.where(t > 1, t + 1, t)"),
    Mistake("x = 1.0 if t > 1 else 2.0", "lang-tile-condition", "gl.where", "x = gl.where(t > 1, 1.0, 2.0)"),
    Mistake("x = (t > 0) and (t < 3)", "lang-tile-logic", "(x > 0) & (x < n)", "x = (t > 0) & (t < 3)"),
    Mistake("x = (t > 0) or (t < 3)", "lang-tile-logic", "(x > 0) | (x < n)", "x = (t > 0) | (t < 3)"),
    Mistake("x = not t", "lang-tile-logic", "x == 0", "x = t == 0"),
    Mistake("x = not (t > 0)", "lang-tile-logic", "~x", "x = ~(t > 0)"),
    Mistake("x = 0 < t < 4", "lang-tile-logic", "(a < b) & (b < c)", "x = (0 < t) & (t < 4)"),
    Mistake("x = n in (1, 2)", "lang-not-constexpr", "(x == 1) | (x == 2)", "x = (n == 1) | (n == 2)"),
    Mistake("while True:\n    t = t + 1", "lang-endless-loop", "something that the body changes", "while n > 0:\n    n -= 1"),
    Mistake("gl.static_assert(n > 0)", "language-constexpr-needed", "gl.device_assert", "gl.device_assert(n > 0)"),
    Mistake("x: gl.constexpr = n", "lang-not-constexpr", "drop the annotation", "x = n"),
    # Loops
    Mistake(
        "x = 0\nfor j in range(n):\n    x += gl.sum(t)", "lang-carried", "x = 0.0",
        "x = 0.0\nfor j in range(n):\n    x += gl.sum(t)", mark="x +=",
    ),
    Mistake(
        "x = 0\nfor j in range(n):\n    x += n.to(gl.int64)\ngl.store(dst, x)", "lang-carried", "x = gl.cast(0, gl.int64)",
        "x = gl.cast(0, gl.int64)\nfor j in range(n):\n    x += n.to(gl.int64)\ngl.store(dst, x)", mark="x +=",
    ),
    Mistake(
        "x = n\nfor j in range(n):\n    x += n.to(gl.int64)\ngl.store(dst, x)", "lang-carried",
        "the int32 one with .to(gl.int64)",
        "x = n.to(gl.int64)\nfor j in range(n):\n    x += n.to(gl.int64)\ngl.store(dst, x)", mark="x +=",
    ),
    Mistake(
        "x = 0\nfor j in range(n):\n    x += t\ngl.store(dst + i, x)", "lang-carried",
        "gl.full([128], 0, gl.float32, gl.BlockedLayout([1], [32], [4], [0]))",
        "x = gl.full([128], 0, gl.float32, LINE)\nfor j in range(n):\n    x += t\ngl.store(dst + i, x)", mark="x +=",
    ),
    Mistake(
        "if n > 2:\n    x = t\nelse:\n    x = 0.0\ny = x", "lang-branches",
        "gl.full([128], 0.0, gl.float32, gl.BlockedLayout([1], [32], [4], [0]))",
        "if n > 2:\n    x = t\nelse:\n    x = gl.full([128], 0.0, gl.float32, LINE)\ny = x", mark="x = t",
    ),
    Mistake(
        "if n > 2:\n    x = t\ny = x", "lang-one-branch", "before the if", "x = t\nif n > 2:\n    x = t\ny = x", mark="y = x",
    ),
    Mistake(
        "for j in range(n):\n    x = j\ny = x", "lang-loop-local", "before the loop",
        "x = 0\nfor j in range(n):\n    x = j\ny = x", mark="y = x",
    ),
    # Python that kernels do without
    Mistake(
        "xs = [1]\nxs.append(2)\nx = xs[1]", "lang-immutable", "xs + [x]", "xs = [1]\nxs = xs + [2]\nx = xs[1]",
        mark="xs.append",
    ),
    Mistake("def f(x):\n    return x\ny = f(t)", "lang-unsupported", "outside of the kernel", "y = t"),
    Mistake("f = lambda x: x\ny = f(t)", "lang-unsupported", "outside of the kernel", "y = t"),
    Mistake("class C:\n    pass\nc = C()", "lang-unsupported", "outside of the kernel", "pass"),
    Mistake("import math as m\nx = m.pi", "lang-unsupported", "top of the file", "x = math.pi"),
    Mistake("from math import pi\nx = pi", "lang-unsupported", "top of the file", "x = math.pi"),
    Mistake("with n:\n    x = 1\ny = x", "lang-unsupported", "one after the other", "x = 1\ny = x"),
    Mistake("try:\n    x = 1\nexcept ValueError as e:\n    x = e\ny = x", "lang-unsupported", "check the condition", "x = 1"),
    Mistake(
        "match n:\n    case 1:\n        x = 1\n    case y:\n        x = y\nz = x", "lang-unsupported", "if, elif and else",
        "x = n",
    ),
    Mistake("x = {1: 2}\ny = x[1]", "lang-unsupported", "a tuple", "x = (1, 2)\ny = x[1]"),
    Mistake("x = {1, 2}", "lang-unsupported", "a tuple", "x = (1, 2)"),
    Mistake("x = {v: v for v in (1, 2)}", "lang-unsupported", "list comprehension", "x = [v for v in (1, 2)]"),
    Mistake("x = {v for v in (1, 2)}", "lang-unsupported", "list comprehension", "x = [v for v in (1, 2)]"),
    Mistake("global g\ng = 1", "lang-unsupported", "as a parameter", "g = 1"),
    Mistake("del t\nt = gl.load(src + i)", "lang-unsupported", "leave the name alone", "t = gl.load(src + i)"),
    Mistake("raise ValueError", "lang-unsupported", "gl.device_assert", "gl.device_assert(n > 0)"),
    Mistake(
        "if (y := n) > 2:\n    pass\nz = y", "lang-unsupported", "a statement of its own",
        "y = n\nif y > 2:\n    pass\nz = y",
    ),
    Mistake("yield n", "lang-unsupported", "store to memory", "gl.store(dst, n)"),
    Mistake(
        "for j in range(n):\n    pass\nelse:\n    t = t + 1", "lang-unsupported", "after the loop",
        "for j in range(n):\n    pass\nt = t + 1", mark="t =",
    ),
    Mistake('print(f"{n:3d}")', "lang-unsupported", "write {n} alone", 'print(f"{n}")'),
    Mistake('x = "n is %d" % n', "language-not-constexpr", "functions of the language", 'print("n is", n)'),
    Mistake("return t", "lang-kernel-return", "gl.store", "gl.store(dst + i, t)"),
    Mistake("x = gl.tensor(0)", "lang-not-callable", "gl.full", "x = gl.full([128], 0, gl.float32, LINE)"),
    Mistake('x = gl.cdiv("a", 2)', "lang-call-arguments", "(x, div)", "x = gl.cdiv(n, 2)"),
    Mistake("x = gl.float32(t, mask=t)", "lang-call-arguments", "it takes", "x = gl.float32(t)"),
    Mistake("x = t.shape(0)", "lang-not-callable", "call a function", "x = t.shape[0]"),
    Mistake("x = math.pi[0]", "lang-brackets", "take elements", "x = math.pi"),
    Mistake("x = gl.sum[0](t)", "lang-brackets", "gl.sum(...)", "x = gl.sum(t, 0)"),
]  # fmt: skip

SHARED = "s = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout(64), address_space=gl.AddressSpace.SHARED)"
BUFFER = "s = gl.allocate_shared_memory(gl.float32, [64], gl.SwizzledSharedLayout(1, 1, 1, [0]))"
THREAD_MISTAKES = [
    # & and | bind tighter than comparisons
    Mistake("if i < n & i >= 0:\n    pass", "lang-precedence", "write (i < n) & (i >= 0)", "if (i < n) & (i >= 0):\n    pass"),
    Mistake(
        "x = i == 0 & n == 4 | i == 2", "lang-precedence", "write (i == 0) & (n == 4) | (i == 2)",
        "x = (i == 0) & (n == 4) | (i == 2)",
    ),
    Mistake("x = 0 < i & 3 < 4", "lang-precedence", "or put i & 3 in parentheses", "x = 0 < (i & 3) < 4"),
    Mistake("x = src[i] < 1.0 & i >= 0", "lang-precedence", "(src[i] < 1.0) & (i >= 0)", "x = (src[i] < 1.0) & (i >= 0)"),
    # Arrays of the host
    Mistake("dst[i] = HOST[i]", "thread-host-view", "as an argument of the kernel", "dst[i] = src[i]"),
    Mistake("x = HOST[0]", "thread-host-view", "as an argument of the kernel", "x = src[0]"),
    Mistake("HOST[0] = 1.0", "thread-host-view", "as an argument of the kernel", "dst[0] = 1.0"),
    Mistake("x = src[i] + HOST", "thread-host-view", "as an argument of the kernel", "x = src[i] + len(HOST)"),
    Mistake("for v in HOST:\n    dst[i] = v", "thread-host-view", "as an argument of the kernel", "x = HOST.shape[0]"),
    Mistake("gl.store(dst.ptr, HOST)", "thread-host-view", "as an argument of the kernel", "gl.store(dst.ptr, 1.0)"),
    Mistake("x = gl.load(HOST)", "thread-host-view", "as an argument of the kernel", "x = gl.load(src.ptr)"),
    Mistake("x = KEPT.weights[i]", "thread-host-view", "as an argument of the kernel", "x = src[i]"),
    # What is there, instead of where it is
    Mistake("gl.atomic_add(dst[i], 1.0)", "language-pointer-needed", "dst.tile[1](i)", "gl.atomic_add(dst.tile[1](i), 1.0)"),
    Mistake(
        "gl.atomic_max(dst[i // (n)], 1.0)", "language-pointer-needed", "dst.tile[1](i // n)",
        "gl.atomic_max(dst.tile[1](i // n), 1.0)",
    ),
    Mistake(
        "gl.atomic_cas(dst[i], 0.0, 1.0)", "language-pointer-needed", "dst.tile[1](i)",
        "gl.atomic_cas(dst.tile[1](i), 0.0, 1.0)",
    ),
    Mistake(
        f"{SHARED}\ns[i] = 0.0\ngl.atomic_add(s[i], 1.0)", "language-pointer-needed", "s.tile[1](i)",
        f"{SHARED}\ns[i] = 0.0\ngl.atomic_add(s.tile[1](i), 1.0)", mark="gl.atomic_add",
    ),
    Mistake(
        "v = gl.LayoutTensor(dst.ptr, gl.Layout((8, 8), (8, 1)))\ngl.atomic_add(v[i // 8, i % 8], 1.0)",
        "language-pointer-needed", "v.tile[1, 1](i // 8, i % 8)",
        "v = gl.LayoutTensor(dst.ptr, gl.Layout((8, 8), (8, 1)))\ngl.atomic_add(v.tile[1, 1](i // 8, i % 8), 1.0)",
        mark="gl.atomic_add",
    ),
    Mistake(
        "gl.atomic_add(dst, 1.0)", "thread-atomic-view", "gl.atomic_add(dst.tile[1](i), value)",
        "gl.atomic_add(dst.tile[1](i), 1.0)",
    ),
    Mistake("x = gl.load(src[i])", "language-pointer-needed", "write src[i] alone", "x = src[i]"),
    Mistake("gl.store(dst[i], 1.0)", "language-pointer-needed", "write dst[i] = value", "dst[i] = 1.0"),
    # Shared memory
    Mistake(
        "s = gl.allocate_shared_memory(gl.float32, [64])\ns[i] = 1.0", "lang-call-arguments",
        "gl.LayoutTensor.stack_allocation(dtype, gl.Layout(size), address_space=gl.AddressSpace.SHARED)",
        f"{SHARED}\ns[i] = 1.0",
    ),
    Mistake(
        "s = gl.allocate_shared_memory(gl.float32, [64], gl.Layout(64))\ns[i] = 1.0", "shared-not-a-layout",
        SHARED.removeprefix("s = "), f"{SHARED}\ns[i] = 1.0",
    ),
    Mistake(
        f"{BUFFER}\ns[i] = 1.0", "shared-in-threads", SHARED.removeprefix("s = "), f"{SHARED}\ns[i] = 1.0", mark="s[i]"
    ),
    Mistake(f"{BUFFER}\nx = s[i]", "shared-in-threads", SHARED.removeprefix("s = "), f"{SHARED}\nx = s[i]", mark="x ="),
    *(
        Mistake(wrong, code, "gl.LayoutTensor.stack_allocation(", f"{SHARED}\ns[i] = 1.0")
        for wrong, code in (
            ("s = gl.shared(gl.float32, 64)", "lang-attribute"), ("s = gl.shared.array(64)", "lang-attribute"),
            ("s = gl.SharedMemory(gl.float32, [64])", "lang-attribute"),
            ("s = gl.shared_memory(64, gl.float32)", "lang-not-callable"), ("s = __shared__", "lang-undefined-name"),
            ("s = cuda.shared.array(64, gl.float32)", "lang-undefined-name"), ("s = shared[64]", "lang-undefined-name"),
        )
    ),
    # Functions of tiles
    Mistake("x = gl.sum(src[i])", "language-tile-needed", "gl.warp_sum(x)", "x = gl.warp_sum(src[i])"),
    Mistake("x = gl.max(src[i])", "language-extreme", "gl.warp_max(x)", "x = gl.warp_max(src[i])"),
    Mistake("v = src[i]\nx = gl.min(v)", "language-extreme", "gl.warp_min(v)", "v = src[i]\nx = gl.warp_min(v)", mark="x ="),
    Mistake("x = gl.cumsum(src[i])", "language-tile-needed", "gl.warp_prefix_sum(x)", "x = gl.warp_prefix_sum(src[i])"),
    # Indices and control flow
    Mistake(
        "if i // 16 == 0:\n    dst[i] = gl.shuffle_down(src[i], 1)", "control-scope", "gl.warp_id()",
        "if gl.warp_id() == 0:\n    dst[i] = gl.shuffle_down(src[i], 1)", mark="dst[i]",
    ),
    Mistake(
        "if i < 3:\n    gl.barrier()", "control-scope", "the whole block shares", "if n < 3:\n    gl.barrier()",
        mark="gl.barrier",
    ),
    Mistake(
        "for j in range(i):\n    gl.barrier()", "control-scope", "same number of iterations",
        "for j in range(n):\n    gl.barrier()", mark="gl.barrier",
    ),
    Mistake("dst[i] = src.load[4](i + 1)[0]", "hazard-misaligned", "4 * i", "dst[i] = src.load[4](i % 8 * 4)[0]"),
    Mistake("dst.fill[1](0)", "lang-brackets", "dst.fill(...)", "dst.fill(0)"),
    Mistake("dst.store[0](0, src[0])", "view-load-width", "at least 1", "dst.store[1](0, src[0])"),
    Mistake("dst[i] = src.load", "thread-stored", "store one value", "dst[i] = src.load[1](i)"),
    Mistake("dst[i / 2] = 1.0", "thread-index", "//", "dst[i // 2 * 2 + i % 2] = 1.0"),
    Mistake("dst[0.5] = 1.0", "view-index-kind", "//", "dst[1 // 2] = 1.0"),
    Mistake("dst[gl.thread_idx] = 1.0", "view-index-kind", "gl.thread_idx.x", "dst[gl.thread_idx.x] = 1.0"),
    Mistake("dst[0:4] = 1.0", "view-index-kind", ".tile[...](...)", "dst.tile[4](0)[i % 4] = 1.0"),
    Mistake("x = len(src)", "lang-python-function", "t.dim(axis)", "x = src.dim(0)"),
    Mistake("dst[i] = max(src[i])", "lang-python-function", "max(a, b)", "dst[i] = max(src[i], 0)"),
    Mistake("x = gl.thread_idx.w", "lang-attribute", "x, y, z", "x = gl.thread_idx.z"),
    Mistake("dst[(i - 1) % 384] = 1.0", "hazard-view-bounds", "(x % n + n) % n", "dst[((i - 1) % 384 + 384) % 384] = 1.0"),
    Mistake(
        "gl.store(dst.ptr + (i - 1) % 128, 1.0)", "hazard-out-of-bounds",
        "-1 % 128 is -1, truncated towards zero as in C, and 127", "gl.store(dst.ptr + ((i - 1) % 128 + 128) % 128, 1.0)",
    ),
    Mistake(
        f"{SHARED}\nfor j in range(i // 32 + 1):\n    s[i] = 1.0\n    dst[i] = s[63 - i]", "hazard-threads-race",
        "where all threads of the block reach it",
        f"{SHARED}\nfor j in range(n):\n    s[i] = 1.0\n    gl.barrier()\n    dst[i] = s[63 - i]\n    gl.barrier()",
        mark="dst[i]",
    ),
    Mistake("dst[i - 1] = 1.0", "hazard-view-bounds", "keep indices", "if i > 0:\n    dst[i - 1] = 1.0"),
    Mistake("for x in src:\n    pass", "view-iteration", "view.dim(0)", "for j in range(src.dim(0)):\n    x = src[j]"),
    Mistake("if src:\n    pass", "lang-truth", "an element", "if src[0] > 0:\n    pass"),
    Mistake(
        "s = gl.stack_allocation[gl.float32](gl.row_major[64]())\ns[i] = src[i]\ngl.barrier()\ndst[i] = s[63 - i]",
        "hazard-undefined", "allocate it with address_space=gl.AddressSpace.SHARED",
        "s = gl.stack_allocation(gl.float32, address_space=gl.AddressSpace.SHARED)(gl.row_major[64]())\ns[i] = src[i]\n"
        "gl.barrier()\ndst[i] = s[63 - i]",
        mark="dst[i]",
    ),
    Mistake(
        "dst[0] += src[i]", "hazard-global-threads-race", "gl.atomic_add(t.tile[1](i), x)",
        "gl.atomic_add(dst.tile[1](0), src[i])",
    ),
    Mistake(
        "s = gl.stack_allocation[gl.int32, gl.AddressSpace.SHARED](gl.row_major[4]())\nif i < 4:\n    s[i] = 0\n"
        "gl.barrier()\ns[i % 4] += i",
        "hazard-threads-race", "gl.atomic_add(t.tile[1](i), x)",
        "s = gl.stack_allocation[gl.int32, gl.AddressSpace.SHARED](gl.row_major[4]())\nif i < 4:\n    s[i] = 0\n"
        "gl.barrier()\ngl.atomic_add(s.tile[1](i % 4), i)",
        mark="s[i % 4]",
    ),
    Mistake(
        "s = gl.stack_allocation[gl.float32, gl.AddressSpace.SHARED](gl.row_major[64]())\ns[i] = src[i]\ngl.barrier()\n"
        "for k in gl.static_range(2):\n    if i < 32 >> k:\n        s[i] += s[i + (32 >> k)]",
        "hazard-threads-race", "call gl.syncwarp() behind this line, before it runs again",
        "s = gl.stack_allocation[gl.float32, gl.AddressSpace.SHARED](gl.row_major[64]())\ns[i] = src[i]\ngl.barrier()\n"
        "for k in gl.static_range(2):\n    if i < 32 >> k:\n        s[i] += s[i + (32 >> k)]\n    gl.syncwarp()",
        mark="s[i] +=",
    ),
    Mistake(
        "gl.store(src.ptr + (i + 100), 1.0)", "hazard-out-of-bounds", "as in if i < 128:",
        "if i + 100 < 128:\n    gl.store(src.ptr + (i + 100), 1.0)",
    ),
]  # fmt: skip
