"""The operations of the IR: strict primitives, one family a file. Importing this package fills `weft.ir.define.OPS`."""

from weft.ops import arith, asm, control, debug, globals, memory, program, reduce, regs, scratch, tile

__all__ = ["arith", "asm", "control", "debug", "globals", "memory", "program", "reduce", "regs", "scratch", "tile"]
