"""Tensor descriptors created in kernels, and prefetches of descriptors (PTX ISA, tensormap.replace, prefetch.tensormap).

The first warp of the partition builds a descriptor in shared memory, field by field, and copies it to the block's part of the
workspace in global memory, where TMA reads it. PTX numbers dimensions from the innermost.
"""

from __future__ import annotations

from weft.cuda.emitter import Emitter, Repeated, elects, emits
from weft.cuda.text.prelude import Piece
from weft.ir.core import Op, Value
from weft.ir.types import DescriptorType, DType
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


def _stride(axis: int) -> str:
    """A statement that sets the stride of a dimension, which is not the innermost."""
    letter = _AXES[axis]
    stride = f"{letter} == 1 ? {LEGAL_STRIDE}ll : step_{letter}"
    return _replace("global_stride", stride, bits=64, axis=axis - 1, register="l")


# The map of the previous iteration is overwritten. The wait lasts until stores through it have read it (PTX ISA,
# cp.async.bulk.wait_group: `.read` covers the tensor map); loads through it are the author's to wait for.
_WAIT = 'if (AGAIN) asm volatile("cp.async.bulk.commit_group;\\n cp.async.bulk.wait_group.read 0;" ::: "memory");'


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
        *(_stride(axis) for axis in range(1, rank)),
        *(_replace("element_stride", "1", axis=d) for d in range(rank)),
        _replace("elemtype", "TYPE", register="n"),
        _replace("interleave_layout", str(NO_INTERLEAVE), register="n"),
        _replace("swizzle_mode", "SWIZZLE", register="n"),
        _replace("fill_mode", "FILL", register="n"),
        _WAIT,
    ]
    # The map is built in shared memory, of whose 128 bytes each lane clears 4.
    clear = 'asm volatile("st.shared.b32 [%0], %1;" :: "r"(room + 4 * (threadIdx.x & 31u)), "r"(0) : "memory");'
    head = f"template <int TYPE, int SWIZZLE, int FILL, bool AGAIN> DEV void {name}({parameters}) {{"
    return Piece("\n".join([head, *_published(clear, fields)]), ("CUtensorMap", "elect_one"))


def _published(begin: str, fields: list[str]) -> list[str]:
    """The lines of a function that begins a map in shared memory, sets fields of it, and copies it to where TMA reads it."""
    # The whole warp copies the map: cp_fenceproxy is `.sync.aligned`. TMA reads maps through the tensormap proxy, so the copy
    # is a release and the fence the acquire of that proxy (PTX ISA, tensormap.cp_fenceproxy, fence.proxy.tensormap).
    lines = [
        begin,
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
    return [f"  {line}" for line in lines]


def _update_piece(name: str, address: bool, axes: tuple[int, ...]) -> Piece:
    """`name<again>(to, room, from, base, extents..., strides in bytes...)` for the dimensions `axes`, from the innermost."""
    letters = [_AXES[axis] for axis in axes]
    parameters = ", ".join([
        "const CUtensorMap* to", "u32 room", "const CUtensorMap* from", *["const void* base"] * address,
        *(f"u32 {a}" for a in letters), *(f"i64 step_{a}" for a in letters if a != _AXES[0]),
    ])  # fmt: skip
    fields = [_replace("global_address", "base", bits=64, register="l")] if address else []
    fields += [_replace("global_dim", a, axis=axis) for axis, a in zip(axes, letters, strict=True)]
    fields += [_stride(axis) for axis in axes if axis]
    # The map to copy may be a kernel's parameter, or in the workspace, where this warp has copied it. The read is not volatile:
    # NVRTC 13.0 adds to a volatile read of a parameter one of its address in parameter space, as if that were generic, which
    # is illegal (seen on an H200).
    copy = (
        'asm volatile("st.shared.b32 [%0], %1;" :: "r"(room + 4 * (threadIdx.x & 31u)), '
        '"r"(((const u32*)from)[threadIdx.x & 31u]) : "memory");'
    )
    head = f"template <bool AGAIN> DEV void {name}({parameters}) {{"
    return Piece("\n".join([head, *_published(copy, [*fields, _WAIT])]), ("CUtensorMap", "elect_one"))


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
    _place(e, op)
    box = tma_layout.box_of(block, layout, 8 * element.itemsize)
    arguments = [
        e.at(op.result), e.at(room), e.at(base), *map(str, reversed(box)),
        *(e.at(extent) for extent in reversed(numbers[:rank])),
        *(_bytes(e, stride, element.itemsize) for stride in reversed(numbers[rank:-1])),
    ]  # fmt: skip
    fields = [ELEMENT_TYPES[element.code], SWIZZLES[layout.swizzle_byte_width], FILLS[op.attrs["padding"]]]
    _by_first_warp(e, f"{name}<{', '.join(map(str, fields))}, {_again(op)}>({', '.join(arguments)});")


@emits(tma.rewrite_descriptor)
def _rewrite_descriptor(e: Emitter, op: Op) -> None:
    room, desc, ptr, *numbers = op.operands
    assert room is not None and desc is not None and isinstance(desc.type, DescriptorType)
    rank, changed = len(desc.type.block_shape), op.attrs["changed"]
    extents, strides = numbers[: len(changed)], numbers[len(changed) :]
    axes = tuple([rank - 1 - dim for dim in reversed(changed)])
    name = f"update_map_{'base' * (ptr is not None)}{''.join(_AXES[axis] for axis in axes)}"
    e.pieces.define(name, _update_piece(name, ptr is not None, axes))
    _place(e, op)
    size = desc.type.element.itemsize
    steps = [stride for stride, axis in zip(reversed(strides), axes, strict=True) if axis]
    arguments = [
        e.at(op.result), e.at(room), e.at(desc), *([] if ptr is None else [e.at(ptr)]),
        *(e.at(extent) for extent in reversed(extents) if extent is not None),
        *(_bytes(e, stride, size) for stride in steps if stride is not None),
    ]  # fmt: skip
    _by_first_warp(e, f"{name}<{_again(op)}>({', '.join(arguments)});")


def _place(e: Emitter, op: Op) -> None:
    """The descriptor's address: its slot in the block's workspace."""
    slot = op.attrs["slot"]
    e.define(op.result, "(const CUtensorMap*)" + (f"({e.workspace} + {slot})" if slot else e.workspace))


def _again(op: Op) -> str:
    return "true" if op.attrs["again"] else "false"


def _by_first_warp(e: Emitter, call: str) -> None:
    """A statement of the partition's first warp."""
    here = e.partition
    e.declare_pending()
    e.out.line(call if here.num_warps == 1 else f"if ({e.warp} == {here.first_warp}) {call}")


def _bytes(e: Emitter, stride: Value, itemsize: int) -> str:
    """A stride in bytes."""
    return e.at(stride) if itemsize == 1 else f"{e.at(stride)} * {itemsize}"
