"""Emission of CUDA C++ from lowered IR, without includes.

`emit` writes one kernel. Each family of operations has its rules in the file of its name; importing this package registers
them. The back end chooses no layout, access width or instruction: each operation of the lowered stage has one spelling.
"""

from __future__ import annotations

from weft.cuda.emitter import RULES, Emitter
from weft.cuda.rules import (
    arith,
    asm,
    async_copy,
    clc,
    cluster,
    control,
    debug,
    elements,
    hints,
    libdevice,
    mbarrier,
    memory,
    mma,
    nvshmem,
    program,
    regs,
    shared,
    sync,
    tcgen05,
    tensor_memory,
    thread,
    tma,
    warp,
)
from weft.cuda.text.refs import Inline, Variable
from weft.cuda.text.spelling import c_type, integer, is_small_float
from weft.cuda.text.tables import is_wide
from weft.ir.core import Func, Value
from weft.ir.types import DescriptorType, Pointer
from weft.ops.program import threads_of
from weft.targets import Target


def emit(func: Func, target: Target) -> str:
    """The CUDA C++ text of a lowered function.

    The function and its parameters keep their names if these are legal in C++ (`weft.cuda.text.names.symbol`).

    Raises CompilationError for operations that the target or PTX does not support.
    """
    e = Emitter(func, target)
    params = [_param(e, param) for param in func.params]
    hidden, workspace = _workspace(e)
    e.region(func.body)
    for param in func.params:
        _declare_pointee(e, param)
    return "\n".join([e.pieces.text, "", *_head(e, ", ".join([*params, *hidden]), workspace), *e.out.lines, "}", ""])


def _head(e: Emitter, params: str, workspace: list[str]) -> list[str]:
    """Signature, memory and constant tables."""
    lines = [f'extern "C" __global__ void {_bounds(e.func)}', f"{e.symbol}({params}) {{"]
    if e.func.attrs.shared_bytes or e.uses_shared:
        lines.append("  extern __shared__ __align__(1024) unsigned char shared_memory[];")
    if e.uses_shared:
        lines.append("  const u32 scratch = (u32)__cvta_generic_to_shared(shared_memory);")
    lines += workspace
    lines += [f"  const u32 {name} = {address};" for name, address in e.buffers]
    if e.warp_name:
        # The shuffle from lane 0 makes the warp index uniform: from `threadIdx.x / 32` alone ptxas cannot prove that the
        # threads of a warp hold the same value.
        lines.append(f"  const u32 {e.warp_name} = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);")
    for table, name in e.tables.items():
        element = "i64" if is_wide(table) else "int"
        lines.append(f"  constexpr {element} {name}[{len(table)}] = {{{', '.join(map(integer, table))}}};")
    return lines


def _bounds(func: Func) -> str:
    """The launch bounds and the register limit. `__launch_bounds__` and `__maxnreg__` cannot be applied to the same kernel
    (CUDA C++ Programming Guide, Maximum Number of Registers per Thread)."""
    if func.attrs.maxnreg:
        return f"__maxnreg__({func.attrs.maxnreg})"
    blocks, threads = func.attrs.min_blocks, threads_of(func)
    return f"__launch_bounds__({threads}, {blocks})" if blocks else f"__launch_bounds__({threads})"


def _param(e: Emitter, param: Value) -> str:
    """The declaration of a parameter."""
    name = e.names.fresh(param.name)
    if isinstance(param.type, DescriptorType):
        # TMA reads the tensor map through its address, in parameter space (`__grid_constant__`). Without it, taking the address
        # makes a copy in local memory, which TMA cannot read.
        e.refs[param] = Inline(f"&{name}")
        return f"const __grid_constant__ {e.pieces.use('CUtensorMap')} {name}"
    type = c_type(param.type.element)
    e.refs[param] = Variable(name, type)
    return f"{type} {name}" if type.endswith("*") else f"const {type} {name}"


def _declare_pointee(e: Emitter, param: Value) -> None:
    """Declare the struct of a small float, also if the kernel never dereferences the parameter."""
    element = param.type.element
    if isinstance(element, Pointer) and is_small_float(element.element_ty):
        e.pieces.use(element.element_ty.code)


def _workspace(e: Emitter) -> tuple[list[str], list[str]]:
    """The hidden workspace parameter, and the line that computes the block's part of the workspace, if there is one."""
    if not e.func.attrs.workspace_bytes:
        return [], []
    name = e.names.fresh("workspace")
    e.workspace = e.names.fresh("block_workspace")
    number = "(((u64)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x)"
    return [f"u8* {name}"], [f"  u8* const {e.workspace} = {name} + {e.func.attrs.workspace_bytes} * {number};"]


__all__ = [
    "RULES",
    "emit",
    "arith",
    "asm",
    "async_copy",
    "clc",
    "cluster",
    "control",
    "debug",
    "elements",
    "hints",
    "libdevice",
    "mbarrier",
    "memory",
    "mma",
    "nvshmem",
    "program",
    "regs",
    "shared",
    "sync",
    "tcgen05",
    "tensor_memory",
    "thread",
    "tma",
    "warp",
]
