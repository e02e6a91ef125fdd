"""Lowered IR to CUDA C++ text: header-free, readable, and decided elsewhere.

`emit` writes one kernel. Each family of operations has its rules in the file of its name; importing this package registers
them. Nothing here chooses a layout, a width or an instruction: an operation of the lowered stage has one spelling.
"""

from __future__ import annotations

from weft.cuda import (
    arith,
    asm,
    async_copy,
    control,
    debug,
    globals,
    mbarrier,
    memory,
    program,
    reduce,
    regs,
    scratch,
    tile,
    tma,
)
from weft.cuda.emitter import Emitter
from weft.cuda.names import BUILTINS, KEYWORDS
from weft.cuda.prelude import PIECE_NAMES
from weft.cuda.refs import Inline, Variable
from weft.cuda.rules import RULES
from weft.cuda.spelling import c_type, integer
from weft.cuda.tables import is_wide
from weft.errors import fail
from weft.errors.cuda import KERNEL_NAME
from weft.ir.core import Func, Value
from weft.ir.types import DescriptorType
from weft.targets import Target


def emit(func: Func, target: Target) -> str:
    """The CUDA C++ text of a lowered function; its symbol is the function's own name, its parameters keep theirs.

    Raises CompilationError: cuda-kernel-name, and what a rule finds that the target or PTX cannot do (`weft.errors.cuda`).
    """
    if func.name in KEYWORDS | BUILTINS | PIECE_NAMES:
        raise fail(KERNEL_NAME, loc=func.loc, name=func.name)
    e = Emitter(func, target)
    params = ", ".join(_param(e, param) for param in func.params)
    e.region(func.body)
    return "\n".join([e.pieces.text, "", *_head(e, params), *e.out.lines, "}", ""])


def _head(e: Emitter, params: str) -> list[str]:
    """Signature, shared memory and constant tables."""
    warps = e.func.attrs.get("total_warps", e.func.attrs["num_warps"])
    lines = [f'extern "C" __global__ void {_bounds(e.func, warps * e.target.warp_size)}', f"{e.func.name}({params}) {{"]
    if e.func.attrs.get("shared_bytes", 0) or e.uses_shared:
        lines.append("  extern __shared__ __align__(1024) unsigned char shared_memory[];")
    if e.uses_shared:
        lines.append("  const u32 scratch = (u32)__cvta_generic_to_shared(shared_memory);")
    lines += [f"  const u32 {name} = {address};" for name, address in e.buffers]
    if e.warp_name:
        # By way of a shuffle, so that ptxas sees that a warp's threads agree.
        lines.append(f"  const u32 {e.warp_name} = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);")
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


def _param(e: Emitter, param: Value) -> str:
    """A parameter's declaration; the kernel's text names it from here on."""
    name = e.names.fresh(param.name)
    if isinstance(param.type, DescriptorType):
        # TMA reads the map where it lies: in the kernel's parameters, of which no thread may have a copy.
        e.refs[param] = Inline(f"&{name}")
        return f"const __grid_constant__ {e.pieces.use('CUtensorMap')} {name}"
    type = c_type(param.type.element)
    e.refs[param] = Variable(name, type)
    return f"{type} {name}" if type.endswith("*") else f"const {type} {name}"


__all__ = [
    "RULES",
    "emit",
    "arith",
    "asm",
    "async_copy",
    "control",
    "debug",
    "globals",
    "mbarrier",
    "memory",
    "program",
    "reduce",
    "regs",
    "scratch",
    "tile",
    "tma",
]
