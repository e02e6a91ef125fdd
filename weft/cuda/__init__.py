"""Lowered IR to CUDA C++ text: header-free, readable, and decided elsewhere.

`emit` writes one kernel. Each family of operations has its rules in the file of its name; importing this package registers
them. Nothing here chooses a layout, a width or an instruction: an operation of the lowered stage has one spelling.
"""

from __future__ import annotations

from weft.cuda import arith, asm, control, debug, globals, memory, program, reduce, regs, scratch, tile
from weft.cuda.emitter import Emitter
from weft.cuda.names import BUILTINS, KEYWORDS
from weft.cuda.prelude import PIECE_NAMES
from weft.cuda.refs import Variable
from weft.cuda.rules import RULES
from weft.cuda.spelling import c_type, integer
from weft.cuda.tables import is_wide
from weft.errors import fail
from weft.errors.cuda import KERNEL_NAME
from weft.ir.core import Func
from weft.targets import Target


def emit(func: Func, target: Target) -> str:
    """The CUDA C++ text of a lowered function; its symbol is the function's own name, its parameters keep theirs.

    Raises CompilationError: cuda-kernel-name, and what a rule finds that the target or PTX cannot do (`weft.errors.cuda`).
    """
    if func.name in KEYWORDS | BUILTINS | PIECE_NAMES:
        raise fail(KERNEL_NAME, loc=func.loc, name=func.name)
    e = Emitter(func, target)
    for param in func.params:
        e.refs[param] = Variable(e.names.fresh(param.name), c_type(param.type.element))
    e.region(func.body)
    return "\n".join([e.pieces.text, "", *_head(e), *e.out.lines, "}", ""])


def _head(e: Emitter) -> list[str]:
    """Signature, shared memory and constant tables."""
    threads = e.func.attrs["num_warps"] * e.target.warp_size
    params = ", ".join(_param(e.refs[param]) for param in e.func.params)
    lines = [f'extern "C" __global__ void {_bounds(e.func, threads)}', f"{e.func.name}({params}) {{"]
    if e.func.attrs.get("shared_bytes", 0) or e.uses_shared:
        lines.append("  extern __shared__ __align__(1024) unsigned char smem[];")
    if e.uses_shared:
        lines.append("  const u32 scratch = (u32)__cvta_generic_to_shared(smem);")
    for table, name in e.tables.items():
        element = "i64" if is_wide(table) else "int"
        lines.append(f"  constexpr {element} {name}[{len(table)}] = {{{', '.join(map(integer, table))}}};")
    return lines


def _bounds(func: Func, threads: int) -> str:
    """What ptxas is told of the block's size and of the registers that it may use. NVRTC takes only one of the two forms."""
    if func.attrs.get("maxnreg"):
        return f"__maxnreg__({func.attrs['maxnreg']})"
    blocks = func.attrs.get("min_blocks")
    return f"__launch_bounds__({threads}, {blocks})" if blocks else f"__launch_bounds__({threads})"


def _param(ref: object) -> str:
    assert isinstance(ref, Variable)
    return f"{ref.type} {ref.name}" if ref.type.endswith("*") else f"const {ref.type} {ref.name}"


__all__ = [
    "RULES",
    "emit",
    "arith",
    "asm",
    "control",
    "debug",
    "globals",
    "memory",
    "program",
    "reduce",
    "regs",
    "scratch",
    "tile",
]
