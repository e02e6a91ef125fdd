"""Advice for messages: the language's equivalents of functions of Python, NumPy, PyTorch and CUDA.

Nothing is decided here: the reader consults these tables once it has found an error.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from typing import Any

from weft import language
from weft.lang.values import class_of
from weft.language.advice import shared_array
from weft.language.context import by_threads
from weft.language.runtime_value import RuntimeValue

EXPRESSIONS: dict[str, str] = {
    "absolute": "gl.abs(x)",
    "all": "gl.sum(x != 0) == x.numel",
    "amax": "gl.max(x)",
    "amin": "gl.min(x)",
    "any": "gl.sum(x != 0) > 0",
    "array": "gl.full(shape, value, dtype, layout), or gl.load",
    "astype": "x.to(gl.float32)",
    "bfloat16": "x.to(gl.bfloat16)",
    "bool": "x != 0",
    "clip": "gl.clamp(x, 0.0, 1.0)",
    "concat": "gl.cat(x, y)",
    "concatenate": "gl.cat(x, y)",
    "copysign": "gl.where(y < 0, -gl.abs(x), gl.abs(x))",
    "divmod": "x // y and x % y",
    "double": "x.to(gl.float64)",
    "empty": "gl.zeros(shape, dtype, layout)",
    "fabs": "gl.abs(x)",
    "float": "x.to(gl.float32)",
    "fmax": "gl.maximum(x, y)",
    "fmin": "gl.minimum(x, y)",
    "fmod": "x % y",
    "half": "x.to(gl.float16)",
    "hypot": "gl.sqrt(x * x + y * y)",
    "int": "x.to(gl.int32)",
    "isnan": "x != x",
    "log10": "gl.log2(x) * 0.30103",
    "long": "x.to(gl.int64)",
    "mean": "gl.sum(x) / x.numel",
    "ones": "gl.full(shape, 1.0, dtype, layout)",
    "pow": "x ** y",
    "power": "x ** y",
    "relu": "gl.maximum(x, 0.0)",
    "remainder": "x % y",
    "rint": "gl.floor(x + 0.5)",
    "round": "gl.floor(x + 0.5)",
    "sigmoid": "1.0 / (1.0 + gl.exp(-x))",
    "sign": "gl.where(x > 0, 1.0, gl.where(x < 0, -1.0, 0.0))",
    "size": "x.numel",
    "sort": "gl.sort(x)",
    "sorted": "gl.sort(x)",
    "softmax": "gl.exp(x - gl.max(x)) and its quotient by gl.sum of that",
    "square": "x ** 2",
    "stack": "gl.join(x, y)",
    "tan": "gl.sin(x) / gl.cos(x)",
    "transpose": "gl.trans(x)",
    "trunc": "x.to(gl.int32)",
    "view": "x.to(gl.int32, bitcast=True) for its bits, or gl.reshape for its shape",
}
"""Replacement expressions, for a tile `x`."""
CLAUSES: dict[str, str] = {
    "amd": "weft compiles for NVIDIA's GPUs, whose own functions are in gl.nvidia",
    "T": ".permute([1, 0]) is the transpose",
    "block_type": "the type of a tile is gl.distributed_type, and isinstance(x.type, gl.base_type) is true of all types",
    "argsort": "gl.sort(x) sorts values alone; sort their places on the host, before the launch",
    "append": "build a new list, as in xs + [x]",
    "clone": "values of a kernel never change, so that x itself serves as its copy",
    "contiguous": "values of a kernel never change, so that x itself serves as its copy",
    "copy": "values of a kernel never change, so that x itself serves as its copy",
    "cpu": "results reach the host through gl.store",
    "cuda": "write y = x: the values of a kernel are on its GPU",
    "delattr": "leave the field alone",
    "dot": "products are warpgroup_mma of weft.language.nvidia.hopper, mma_v2 of weft.language.nvidia.ampere, gl.dot_fma",
    "einsum": "products are warpgroup_mma of weft.language.nvidia.hopper, mma_v2 of weft.language.nvidia.ampere, gl.dot_fma",
    "enumerate": "positions in a tile are gl.arange(0, size, layout), which combine with it element by element",
    "filter": "keep elements with gl.where(condition, x, 0), or with a list comprehension over constants",
    "input": "pass the value as an argument of the kernel",
    "iter": "a for loop goes over range, gl.static_range, a tuple or a list",
    "map": "call the function on the whole tile, f(x), or use a list comprehension over constants",
    "matmul": "products are warpgroup_mma of weft.language.nvidia.hopper, mma_v2 of weft.language.nvidia.ampere, gl.dot_fma",
    "mm": "products are warpgroup_mma of weft.language.nvidia.hopper, mma_v2 of weft.language.nvidia.ampere, gl.dot_fma",
    "next": "a for loop goes over range, gl.static_range, a tuple or a list",
    "numpy": "results reach the host through gl.store",
    "open": "read the file on the host, and pass its values as arguments of the kernel",
    "reversed": "reverse where the tile is loaded, as in gl.load(ptr + (size - 1 - i))",
    "setattr": "assign to a field of an aggregate by its name, as in pair.value = x",
    "str": "print values with gl.device_print, or with print of an f-string",
    "tensor": "write gl.full(shape, value, dtype, layout), or gl.load",
    "zip": "tiles combine element by element without a loop, as in x * y",
    "to_numpy": "results reach the host through gl.store",
    "tolist": "results reach the host through gl.store",
}
"""Advice for names that no expression replaces."""
CUDA: dict[str, str] = {
    "__ldg": "write gl.load(ptr)",
    "__shfl_down_sync": "write gl.shuffle_down(x, offset)",
    "__syncthreads": "write gl.barrier()",
    "__syncwarp": "write gl.syncwarp()",
    "atomicAdd": "write gl.atomic_add(pointer, value)",
    "blockDim": "write gl.block_dim",
    "blockIdx": "write gl.block_idx, or gl.program_id(0)",
    "gridDim": "write gl.grid_dim, or gl.num_programs(0)",
    "synchronize": "write gl.barrier()",
    "syncthreads": "write gl.barrier()",
    "threadIdx": "write gl.thread_idx",
    "warpSize": "write gl.WARP_SIZE",
}
"""Replacements for names of CUDA."""
IN_MODULES: dict[str, dict[str, str]] = {
    "weft.language.warp": {
        "all": "write gl.warp.vote(x) == 0xFFFFFFFF",
        "any": "write gl.warp.vote(x) != 0",
        "ballot": "write gl.warp.vote(x)",
        "shuffle": "write gl.warp.shuffle_idx(x, lane)",
    },
    "weft.language.block": {
        "all": "write gl.block.min(gl.where(x, 1, 0)) == 1",
        "any": "write gl.block.max(gl.where(x, 1, 0)) == 1",
        "barrier": "write gl.barrier()",
        "sync": "write gl.barrier()",
    },
}
"""Replacements for names that modules of the language lack."""
SHARED = (
    "SharedMemory", "__shared__", "alloc_shared", "allocate_shared", "shared", "shared_array", "shared_memory", "smem",
    "stack_allocation",
)  # fmt: skip
"""Names of shared memory in other languages."""
NAMES = {
    "cuda": f"write functions of weft.language (gl): gl.thread_idx, gl.barrier(), and for shared memory {shared_array()}",
    "tl": "write gl, after from weft import language as gl",
}
"""Common names of other languages' packages."""
_OPERAND = re.compile(r"(?<![.\w])x(?!\w)")
HOST_ONLY = "use functions of weft.language (gl), or compute it on the host and pass the result as an argument"


def instead(name: str, x: object = None) -> str:
    """What to write instead of a function or method that the language lacks; empty when nothing is known.

    `x` is the value that it was called on, if known: the advice then uses the value's name.
    """
    known = CLAUSES.get(name) or CUDA.get(name)
    if known:
        return known
    if name in SHARED:
        return f"write {shared_memory()}"
    called = x.handle.name if isinstance(x, RuntimeValue) else ""
    if name in EXPRESSIONS:
        return "write " + _OPERAND.sub(called or "x", EXPRESSIONS[name])
    return f"write gl.{name}({called or '...'})" if name in language.__all__ else ""


def instead_in(module: str, name: str) -> str:
    """What to write instead of a function that a module of the language lacks; empty when nothing is known."""
    return IN_MODULES.get(module, {}).get(name, "")


def shared_memory() -> str:
    """The call that allocates shared memory: an indexed array in thread-level kernels; elsewhere that, or a buffer of tiles."""
    tiles = "" if by_threads() else "gl.allocate_shared_memory(dtype, shape, layout) for tiles, or for single threads "
    return tiles + shared_array()


def in_threads(name: str) -> str:
    """A clause with the thread-level equivalent of a function of tiles; empty when there is none."""
    return f"; single threads write {shared_array()}" if name == "allocate_shared_memory" and by_threads() else ""


def instead_of_name(name: str) -> str:
    """What to write instead of an undefined name; empty when nothing is known, as for most names."""
    if name in SHARED:
        return f"write {shared_memory()}"
    if name in CUDA or name in NAMES:
        return CUDA.get(name) or NAMES[name]
    return f"define it before this line, or write gl.{name}" if name in language.__all__ else ""


def library_of(function: Any) -> str:
    """The library that a function belongs to, `Python` for builtins; empty for functions of the author."""
    module = getattr(function, "__module__", None) or class_of(function).__module__
    root = module.partition(".")[0]
    if root in ("builtins", "io"):
        return "Python"
    file = getattr(sys.modules.get(root), "__file__", None)
    if file is None:
        return root if root in sys.stdlib_module_names else ""
    return root if any(place in file for place in _INSTALLED) else ""


_INSTALLED = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"))
