"""Assign columns to each allocation of tensor memory.

    %a = tensor_memory.alloc {shape=(128, 64), ...}    -->    %a = tensor_memory.alloc {shape=(128, 64), column=0, ...}

Allocations never share columns, and live as long as the kernel, also those in a partition: the block allocates all columns at
once. Those with the widest tiles are placed first, so each tile
starts at a multiple of its number of columns and there are no gaps.
"""

from __future__ import annotations

from weft.analysis.tensor_handles import columns_of, tensor_type, tile_columns
from weft.errors import fail
from weft.errors.compiler import TMEM_COLUMNS
from weft.errors.memory import TMEM_TWO_CTAS_MIXED
from weft.ir.core import Func, Op, walk
from weft.ir.rebuild import with_op_attrs
from weft.layout.tensor_memory.layouts import TensorMemoryLayout
from weft.ops import tensor_memory
from weft.targets import Target

LEAST_COLUMNS = 32
"""The least number of columns of a `tcgen05.alloc`; the number is always a power of two (PTX ISA, tcgen05.alloc)."""
ALIGNMENT = 4
"""The least alignment of an allocation in columns: scale factors are read in groups of four columns."""


def allocate_tensor_memory(func: Func, target: Target) -> Func:
    """Set the column of every `tensor_memory.alloc`, the function's "tensor_columns", and "two_ctas" if it uses
    `.cta_group::2`.

    Raises OutOfResources (tensor-memory), with the list of allocations, if they do not fit, and LayoutError
    (tmem-two-ctas-mixed).
    """
    allocs = [op for op in walk(func.body) if op.kind is tensor_memory.alloc]
    if not allocs:
        return func
    two_ctas = _two_ctas(func)
    columns: dict[Op, int] = {}
    total = 0
    for op in sorted(allocs, key=lambda op: -_alignment(op)):
        columns[op] = total = -(-total // _alignment(op)) * _alignment(op)
        total += columns_of(op.result)
    if total > target.tensor_memory_columns:
        largest = max(allocs, key=lambda op: columns_of(op.result))
        raise fail(TMEM_COLUMNS, loc=largest.loc, total=total, limit=target.tensor_memory_columns, bill=_bill(allocs))
    placed = {op: {**op.attrs, "column": column} for op, column in columns.items()}
    reserved = max(1 << (total - 1).bit_length(), LEAST_COLUMNS)
    return with_op_attrs(func, placed, tensor_columns=reserved, two_ctas=two_ctas)


def _alignment(alloc: Op) -> int:
    return max(tile_columns(tensor_type(alloc.result)), ALIGNMENT)


def _bill(allocs: list[Op]) -> str:
    """Message text that lists each allocation's columns and line, largest first."""
    return "; ".join(map(_item, sorted(allocs, key=lambda op: -columns_of(op.result))))


def _item(alloc: Op) -> str:
    t = tensor_type(alloc.result)
    place = "" if alloc.loc is None else f" at {alloc.loc}"
    what = f"{list(t.shape)} of {t.element.name} in {t.layout!r}"
    return f"{alloc.result.name or 'a buffer'} takes {columns_of(alloc.result)} columns{place}, {what}"


def _two_ctas(func: Func) -> bool:
    """Whether the layouts are for MMAs of two blocks (`.cta_group::2`); all of them must agree."""
    first: TensorMemoryLayout | None = None
    for op in walk(func.body):
        if op.kind not in (tensor_memory.alloc, tensor_memory.reinterpret):
            continue
        layout = tensor_type(op.result).layout
        if not isinstance(layout, TensorMemoryLayout):
            continue
        first = first or layout
        if layout.two_ctas != first.two_ctas:
            words = {False: "one block", True: "two blocks that multiply together"}
            raise fail(
                TMEM_TWO_CTAS_MIXED, loc=op.loc, layout=layout, blocks=words[layout.two_ctas], before=words[first.two_ctas],
                two_ctas=first.two_ctas,
            )  # fmt: skip
    return first is not None and first.two_ctas
