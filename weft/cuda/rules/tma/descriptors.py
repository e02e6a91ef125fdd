"""Tensor descriptors created in kernels, and prefetches of descriptors (PTX ISA, tensormap.replace, prefetch.tensormap).

The first warp of the partition builds a descriptor in shared memory, field by field, and copies it to the block's part of the
workspace in global memory, where TMA reads it. PTX numbers dimensions from the innermost.
"""

from __future__ import annotations

from weft.cuda.emitter import Emitter, Repeated, elects, emits
from weft.cuda.text.prelude import Piece
from weft.ir.core import Op, Value
from weft.ir.types import DType
from weft.layout import NVMMASharedLayout
from weft.layout.shared import tma as tma_layout
from weft.ops import tma
from weft.ops.check import pointer_of

ELEMENT_TYPES = {
    "i1": 0, "i8": 0, "u8": 0, "f8e4m3": 0, "f8e5m2": 0, "i16": 1, "u16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5,
    "f16": 6, "f32": 7, "f64": 9, "bf16": 10,
}  # fmt: skip
"""The field `.elemtype` (PTX ISA, tensormap.replace). Its codes differ from those of the driver's `CUtensorMapDataType`. The
signedness of 8- and 16-bit integers is irrelevant to TMA."""
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""The field `.swizzle_mode`, by swizzle size in bytes."""
FILLS = {"zero": 0, "nan": 1}
"""The field `.fill_mode`: the value of out-of-bounds elements."""
# Interleaved layouts are for 16- and 32-byte channel slices of convolutions (NC/8HWC8, NC/16HWC16), which weft does not use.
NO_INTERLEAVE = 0
LEGAL_STRIDE = 16
"""The stride, in bytes, of dimensions of size 1, whose own stride is irrelevant but may be one that TMA rejects."""

_AXES = "xyzwv"
_PREFETCH = Piece(
    'DEV void prefetch_map(const CUtensorMap* desc) { asm volatile("prefetch.tensormap [%0];" :: "l"(desc) : "memory"); }',
    ("CUtensorMap",),
)


def _replace(field: str, value: str, *, bits: int = 32, axis: int | None = None, register: str = "r") -> str:
    """A statement that sets a field; `register` is "n" for compile-time constants."""
    at = "" if axis is None else f"{axis}, "
    return (
        f'asm volatile("tensormap.replace.tile.{field}.shared::cta.b1024.b{bits} [%0], {at}%1;" '
        f':: "r"(room), "{register}"({value}) : "memory");'
    )


def _make_piece(name: str, rank: int) -> Piece:
    """`name<type, swizzle, fill, again>(to, room, base, boxes..., extents..., strides in bytes...)`, innermost first.

    The innermost dimension has no stride. The stride of a dimension of size 1 is replaced by a legal one, as on the host."""
    axes = _AXES[:rank]
    parameters = ", ".join([
        "const CUtensorMap* to", "u32 room", "const void* base", *(f"u32 box_{a}" for a in axes), *(f"u32 {a}" for a in axes),
        *(f"i64 step_{a}" for a in axes[1:]),
    ])  # fmt: skip
    fields = [
        _replace("global_address", "base", bits=64, register="l"),
        # The field holds the rank minus one (PTX ISA, tensormap.replace).
        _replace("rank", str(rank - 1), register="n"),
        *(_replace("box_dim", f"box_{a}", axis=d) for d, a in enumerate(axes)),
        *(_replace("global_dim", a, axis=d) for d, a in enumerate(axes)),
        *(
            _replace("global_stride", f"{a} == 1 ? {LEGAL_STRIDE}ll : step_{a}", bits=64, axis=d, register="l")
            for d, a in enumerate(axes[1:])
        ),
        *(_replace("element_stride", "1", axis=d) for d in range(rank)),
        _replace("elemtype", "TYPE", register="n"),
        _replace("interleave_layout", str(NO_INTERLEAVE), register="n"),
        _replace("swizzle_mode", "SWIZZLE", register="n"),
        _replace("fill_mode", "FILL", register="n"),
        # The map of the previous iteration is overwritten. The wait lasts until stores through it have read it (PTX ISA,
        # cp.async.bulk.wait_group: `.read` covers the tensor map); loads through it are the author's to wait for.
        'if (AGAIN) asm volatile("cp.async.bulk.commit_group;\\n cp.async.bulk.wait_group.read 0;" ::: "memory");',
    ]
    # The map is built in shared memory, of whose 128 bytes each lane clears 4, and copied by the whole warp: cp_fenceproxy is
    # `.sync.aligned`. TMA reads maps through the tensormap proxy, so the copy is a release and the fence the acquire of that
    # proxy (PTX ISA, tensormap.cp_fenceproxy, fence.proxy.tensormap).
    lines = [
        'asm volatile("st.shared.b32 [%0], %1;" :: "r"(room + 4 * (threadIdx.x & 31u)), "r"(0) : "memory");',
        "__syncwarp();",
        "if (elect_one()) {",
        *(f"  {field}" for field in fields),
        "}",
        "__syncwarp();",
        'asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"',
        '  " [%0], [%1], 128;" :: "l"(to), "r"(room) : "memory");',
        'asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(to) : "memory");',
        "__syncwarp(); }",
    ]
    head = f"template <int TYPE, int SWIZZLE, int FILL, bool AGAIN> DEV void {name}({parameters}) {{"
    return Piece("\n".join([head, *(f"  {line}" for line in lines)]), ("CUtensorMap", "elect_one"))


@elects(tma.prefetch)
def _prefetch(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    (desc,) = op.uses
    text = f"{e.pieces.define('prefetch_map', _PREFETCH)}({e.at(desc)});"
    return [(1, lambda index: text)]


@emits(tma.write_descriptor)
def _write_descriptor(e: Emitter, op: Op) -> None:
    room, base, *numbers = op.uses
    block, layout, rank = op.attrs["block_shape"], op.attrs["layout"], len(numbers) // 2
    assert isinstance(layout, NVMMASharedLayout)
    element: DType = pointer_of(base).element_ty
    name = f"make_map_{rank}d"
    e.pieces.define(name, _make_piece(name, rank))
    slot = op.attrs["slot"]
    e.define(op.result, "(const CUtensorMap*)" + (f"({e.workspace} + {slot})" if slot else e.workspace))
    box = tma_layout.box_of(block, layout, 8 * element.itemsize)
    arguments = [
        e.at(op.result), e.at(room), e.at(base), *map(str, reversed(box)),
        *(e.at(extent) for extent in reversed(numbers[:rank])),
        *(_bytes(e, stride, element.itemsize) for stride in reversed(numbers[rank:-1])),
    ]  # fmt: skip
    fields = [ELEMENT_TYPES[element.code], SWIZZLES[layout.swizzle_byte_width], FILLS[op.attrs["padding"]]]
    again = "true" if op.attrs["again"] else "false"
    call = f"{name}<{', '.join(map(str, fields))}, {again}>({', '.join(arguments)});"
    here = e.partition
    e.declare_pending()
    e.out.line(call if here.num_warps == 1 else f"if ({e.warp} == {here.first_warp}) {call}")


def _bytes(e: Emitter, stride: Value, itemsize: int) -> str:
    """A stride in bytes."""
    return e.at(stride) if itemsize == 1 else f"{e.at(stride)} * {itemsize}"
