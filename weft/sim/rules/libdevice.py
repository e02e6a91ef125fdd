"""Functions of CUDA's device library."""

from __future__ import annotations

from weft.errors.launch import NO_SCIPY
from weft.ir.core import Op
from weft.ops import libdevice
from weft.sim.machine.data import Data, undefined_in
from weft.sim.machine.tasks import Task
from weft.sim.machine.wraps import inexact
from weft.sim.numbers import library, special
from weft.sim.numbers.arithmetic import numpy_dtype
from weft.sim.rule import rule


@rule(libdevice.call)
def _call(task: Task, op: Op, *operands: Data) -> Data:
    name, element = op.attrs["fn"], op.result.type.element
    try:
        array = library.function(name, [data.array for data in operands], numpy_dtype(element))
    except special.NoSciPy:
        raise task.fail(NO_SCIPY, op, function=name) from None
    return Data(array, undefined_in(operands), inexact(operands))
