"""Mistakes that show when a kernel is written as CUDA text: what a target or PTX itself cannot do."""

from __future__ import annotations

from weft.errors.base import CompilationError, row

FLOAT8 = row(
    "cuda-float8",
    CompilationError,
    "{dtype} is computed with or converted here, which {target} has no instructions for",
    "compile for sm_90a or later, or keep such values in memory only and compute in float16",
)
FLOAT8_ROUNDING = row(
    "cuda-float8-rounding",
    CompilationError,
    "the conversion to {dtype} is to round towards zero, but GPUs only round it to nearest even",
    "leave out fp_downcast_rounding='rtz', or convert to float16",
)
CACHE_AND_EVICTION = row(
    "cuda-cache-and-eviction",
    CompilationError,
    "this access has the cache modifier {cache!r} and the eviction policy {eviction!r}, of which an instruction takes one",
    "keep one of the two",
)
ATOMIC_TYPE = row(
    "cuda-atomic-type",
    CompilationError,
    "an atomic {kind} on {dtype} has {bits} bits, but GPUs have none under 16",
    "use elements of 16, 32 or 64 bits",
)
ASM_CONSTRAINTS = row(
    "cuda-asm-constraints",
    CompilationError,
    "the constraints {constraints!r} name {got} registers, but {outputs} results and {inputs} operands in packs of {pack} "
    "take {need}",
    "write one constraint per 32-bit register (per element where elements are wider), results first",
)
ASM_CONSTRAINT = row(
    "cuda-asm-constraint",
    CompilationError,
    "the constraint {constraint!r} is none that inline PTX has",
    "use h, r, l, f or d (16, 32, 64 bits, float, double) or the number of a result, with = before those of results",
)
ASM_OPERAND = row(
    "cuda-asm-operand",
    CompilationError,
    "the inline PTX names ${number}, but it has {count} operands, results first",
    "number operands from $0 to ${last}; a dollar sign itself is $$",
)
