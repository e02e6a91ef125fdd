"""NVLink multicast: one access that reaches a symmetric tensor on all ranks (PTX ISA, multimem)."""

from __future__ import annotations

from typing import Any, get_args

from weft.errors import distributed as errors
from weft.errors import fail
from weft.errors import language as language_errors
from weft.ir.types import DType
from weft.language.broadcast import VectorForm, fit
from weft.language.context import by_threads
from weft.language.marks import builtin
from weft.language.memory import check_pointer, pointer_form
from weft.language.nvidia.checks import demand
from weft.language.promote import place, place_mask
from weft.language.runtime_value import describe
from weft.language.tensor import apply, apply_many, tensor
from weft.ops import memory, regs
from weft.ops.memory import MULTIMEM, Combine


@builtin
def multimem_ld_reduce(pointer: tensor, mask: Any = None, other: Any = None, op: str = "add") -> tensor:
    """Load elements from all ranks of a symmetric tensor, and combine them on the way, in the switch.

    `pointer` is made from the multicast address, as in `x.multicast + offsets`; a scalar or a tile of addresses. `op`: add, for
    float16, bfloat16, float32, float64 and integers of 32 and 64 bits; min and max, for float16, bfloat16 and those integers;
    and, or, xor, for the integers. Sums of float16 and bfloat16 are computed in float32 and rounded once. In which order the
    ranks are added is not defined, and may differ between ranks: where all ranks need the same bits, let one rank combine and
    store for all. `mask` and `other` as for `gl.load`. Two neighbours of 16 bits are the least that is loaded: pointers have to
    be known to be multiples of 4 bytes, and masks to be equal for both.

    A weak access, ordered with those of other ranks by signals. PTX ISA, "multimem.ld_reduce", from sm_90 on. Raises
    CompilationError: async-target, multimem-type, multimem-pairs, and the errors of `load`.
    """
    element = _checked("multimem_ld_reduce", pointer, op)
    if other is not None and mask is None:
        raise fail(language_errors.OTHER_WITHOUT_MASK)
    form = pointer_form("multimem_ld_reduce", pointer, mask, other)
    kept = place_mask("multimem_ld_reduce", mask, form)
    rest = None if other is None or kept is None else place(other, element, form)
    if form is None and by_threads():
        default = None if rest is None else fit(rest, VectorForm(1))
        tables = {"offsets": ((0,),), "registers": ((0,),), "vec": 1, "count": 1}
        return apply(regs.extract, apply(memory.load_regs, pointer, kept, default, multimem=op, **tables), index=0)
    return apply(memory.load, fit(pointer, form), kept, rest, multimem=op)


@builtin
def multimem_st(pointer: tensor, value: Any, mask: Any = None) -> None:
    """Store `value` to a symmetric tensor on all ranks at once, where `mask` is true.

    `pointer` as for `multimem_ld_reduce`, of any type of 16, 32 or 64 bits; `value` and `mask` as for `gl.store`. A weak
    access, ordered with those of other ranks by signals. PTX ISA, "multimem.st", from sm_90 on. Raises CompilationError:
    async-target, multimem-type, multimem-pairs, and the errors of `store`.
    """
    element = _checked("multimem_st", pointer, None)
    form = pointer_form("multimem_st", pointer, mask, value)
    data, kept = place(value, element, form), place_mask("multimem_st", mask, form)
    if form is None and by_threads():
        operands = (pointer, fit(data, VectorForm(1)), kept)
        apply_many(memory.store_regs, operands, offsets=((0,),), registers=((0,),), vec=1, multimem=True)
    else:
        apply_many(memory.store, (fit(pointer, form), data, kept), multimem=True)


@builtin
def multimem_red(pointer: tensor, value: Any, mask: Any = None, op: str = "add") -> None:
    """Combine `value` into a symmetric tensor on all ranks at once, each element by an atomic operation on each rank.

    `pointer`, `op` and its types as for `multimem_ld_reduce`. Relaxed, at scope sys: signals order what comes before and after.
    PTX ISA, "multimem.red", from sm_90 on. Raises CompilationError: async-target, multimem-type, multimem-pairs, and the errors
    of `atomic_add`.
    """
    element = _checked("multimem_red", pointer, op)
    form = pointer_form("multimem_red", pointer, mask, value)
    data, kept = place(value, element, form), place_mask("multimem_red", mask, form)
    attrs = {"kind": op, "order": "relaxed", "scope": "sys", "multimem": True}
    if form is None and by_threads():
        operands = (pointer, fit(data, VectorForm(1)), kept)
        apply_many(memory.reduce_regs, operands, offsets=((0,),), registers=((0,),), vec=1, **attrs)
    else:
        apply(memory.atomic, fit(pointer, form), data, kept, **attrs)


def _checked(what: str, pointer: Any, op: Any) -> DType:
    """The element type. Raises language-pointer-needed, async-target, multimem-type."""
    check_pointer(what, pointer)
    demand(what, "multimem")
    element: DType = pointer.dtype.element_ty
    if op is None:
        if element.bits not in (16, 32, 64):
            raise fail(errors.MULTIMEM_TYPE, what=what, got=element.name, known="types of 16, 32 or 64 bits")
        return element
    if op not in get_args(Combine)[1:]:
        shown = describe(op) if isinstance(op, tensor) else f"op={op!r}"
        raise fail(errors.MULTIMEM_TYPE, what=what, got=shown, known=f"op {', '.join(MULTIMEM)}")
    if element.name not in MULTIMEM[op]:
        raise fail(errors.MULTIMEM_TYPE, what=what, got=element.name, known=f"for op={op!r} {', '.join(MULTIMEM[op])}")
    return element
