"""Reject operations that would move data between the blocks of a cluster.

    %y = tile.convert %x        rows over the blocks --> columns over the blocks        error (cluster-exchange)

The pass runs after layout resolution, so that neither back end has to handle such operations.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.analysis.blocks import BY_RANK
from weft.errors import LayoutError, UserError, fail
from weft.errors import cluster as errors
from weft.ir.core import Func, Op, OpDef, Value, walk
from weft.ir.types import SharedType, TensorType
from weft.layout import LinearLayout
from weft.layout.shared.load_store import plan_access
from weft.ops import async_copy, cluster, control, tcgen05, tensor_memory
from weft.ops.check import linear_of
from weft.passes.tile.meet_partitions import nested_barriers

_MEET = "store the tile to global memory, call cluster.barrier(), and load it in the other layout"


def check_blocks(func: Func) -> None:
    """Check a function. Raises LayoutError (cluster-exchange), CompilationError (cluster-atomic-result, cluster-nested)."""
    blocks = func.attrs.num_ctas
    if blocks == 1:
        return
    for op in walk(func.body):
        check = _CHECKS.get(op.kind)
        if check is not None:
            try:
                check(op)
            except UserError as error:
                raise error.at(op.loc) from None
    if any(op.kind is control.warp_specialize for op in func.body.ops):
        _check_nested(func)


def _check_nested(func: Func) -> None:
    """In a warp-specialised kernel arrivals and waits must be in the outermost region, where worker warps execute them too.
    `meet_partitions` replaces pairs of them elsewhere."""
    fine = {*func.body.ops, *(op for pair in nested_barriers(func) for op in pair)}
    for op in walk(func.body):
        if op.kind in (cluster.arrive, cluster.wait) and op not in fine:
            raise fail(errors.NESTED, loc=op.loc, what=op.name)


def _exchange(what: str, first: str, second: str, fix: str) -> UserError:
    return fail(errors.EXCHANGE, what=what, first=first, second=second, fix=fix)


def _blocks(linear: LinearLayout) -> list[list[int]]:
    return [list(basis) for basis in linear.bases("block")]


def _access(op: Op) -> None:
    """A tile and the shared memory that it is loaded from or stored to must be split among blocks in the same way."""
    handle = op.operands[0]
    other = op.result if op.kind is cluster.load else op.operands[-1 if op.kind is cluster.store else 1]
    if op.kind is cluster.async_store:
        other = op.operand("value")
    assert handle is not None and isinstance(handle.type, SharedType)
    t, linear = handle.type, linear_of(other)
    start = (0,) * t.layout.rank
    try:
        plan_access(linear, t.layout, t.alloc_shape, t.shape, start, t.element.bits, True)
    except LayoutError as error:
        if error.code != "convert-blocks":
            raise
        raise _split_apart(op, _blocks(linear), _blocks(t.layout.to_linear(t.alloc_shape))) from None


def _tensor_access(op: Op) -> None:
    """A tile and the tensor memory that it is loaded from or stored to must be split among blocks in the same way."""
    handle = op.operands[0]
    other = op.result if op.kind is tensor_memory.load else op.operands[1]
    held, memory = _blocks(linear_of(other)), _tensor_blocks(handle)
    if _padded(held, memory) != _padded(memory, held):
        fix = "give the tile's layout the cga_layout of the tensor memory's, as get_tmem_reg_layout does"
        first, second = f"those of the tile lie at {held}", f"those of the tensor memory at {memory}"
        raise _exchange(op.name, first, second, fix)


def _tensor_copy(op: Op) -> None:
    """Shared memory and the tensor memory that it is copied to must be split among blocks in the same way."""
    src, dst = op.operands
    assert src is not None and isinstance(src.type, SharedType)
    source, memory = _blocks(src.type.layout.to_linear(src.type.alloc_shape)), _tensor_blocks(dst)
    if _padded(source, memory) != _padded(memory, source):
        fix = "give both layouts the same cga_layout"
        first, second = f"those of the shared memory lie at {source}", f"those of the tensor memory at {memory}"
        raise _exchange(op.name, first, second, fix)


def _tensor_blocks(handle: Value | None) -> list[list[int]]:
    assert handle is not None and isinstance(handle.type, TensorType)
    return _blocks(handle.type.layout.to_linear(handle.type.alloc_shape))


def _padded(blocks: list[list[int]], others: list[list[int]]) -> list[list[int]]:
    """Block bases extended by zeros: blocks that a layout does not distinguish hold the same elements."""
    return blocks + [[0] * len(basis) for basis in others[len(blocks) :]]


def _split_apart(op: Op, tile_blocks: list[list[int]], memory_blocks: list[list[int]]) -> UserError:
    fix = "give both layouts the same cga_layout"
    if op.kind is async_copy.global_to_shared:
        fix += ", or load the tile and store it: cp.async writes its own block's memory only"
    first, second = f"those of the tile lie at {tile_blocks}", f"those of the shared memory at {memory_blocks}"
    return _exchange(op.name, first, second, fix)


_CHECKS: dict[OpDef, Callable[[Op], None]] = {
    async_copy.global_to_shared: _access,
    **dict.fromkeys(BY_RANK, _access),
    tensor_memory.load: _tensor_access,
    tensor_memory.store: _tensor_access,
    tcgen05.copy: _tensor_copy,
}
