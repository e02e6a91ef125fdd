"""Inline PTX, for each element or for each thread, and the conversion of fp4 and of four-bit integers to floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType, Element, Pointer, float16, uint16, uint32
from weft.language import shape
from weft.language.arith import mul
from weft.language.broadcast import common_form, fit
from weft.language.casts import check_dtype
from weft.language.creation import check_int
from weft.language.dtypes import distributed_type
from weft.language.kinds import tuple_type
from weft.language.layouts import check_tile
from weft.language.logic import bit_and, bit_or, shift_left, shift_right
from weft.language.marks import builtin
from weft.language.promote import convert, to_tensor
from weft.language.runtime_value import describe
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.tensor import apply, apply_many, tensor
from weft.layout.linear.ends import count
from weft.ops import arith
from weft.ops import asm as ops


@builtin
def inline_asm_elementwise(
    asm: str, constraints: str, args: Sequence[Any], dtype: DType | Sequence[DType], is_pure: bool, pack: int,
    sim: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    """Inline PTX, executed for each element of the broadcast operands, `pack` elements of a thread at a time.

    If a thread's elements do not fill its last pack, copies of the last one do.

    `constraints` are those of GCC's extended asm, outputs first (`=r,=r,r`); elements narrower than 32 bits are packed into
    32-bit registers. `dtype` is the element type of the result, or a tuple for several results. Unless `is_pure` is set, the
    assembly is never eliminated, merged or moved. The simulator calls `sim` instead, on NumPy arrays.

    Without operands the results are scalars: what the text computes must be the same in all threads of the block, as
    `mov.u32 $0, %nctaid.x;` is. In a kernel launched with `block=` each thread has its own. What the blocks of a cluster read
    differently, as by `mov.u32 $0, %cluster_ctarank;`, is as the result of `gl.block_rank_in_cluster()`.

    Raises tile-asm-constraints, tile-asm-operands, language-dtype.
    """
    many = isinstance(dtype, (tuple, list))
    dtypes: tuple[Any, ...] = tuple(dtype) if many else (dtype,)
    for entry in dtypes:
        check_dtype(entry)
    packed = check_int("inline_asm_elementwise", pack)
    values = [to_tensor(x) for x in args]
    if packed < 1 or (not values and packed != 1):
        raise fail(errors.TILE_ASM_OPERANDS, operands=len(values), pack=packed)
    _check_constraints(constraints, dtypes, values, packed)
    kind = ops.inline_asm if is_pure else ops.inline_asm_volatile
    attrs = {"asm": asm, "constraints": constraints, "dtypes": dtypes, "pack": packed, "sim": sim}
    form = common_form("inline_asm_elementwise", values) if values else None
    results = apply_many(kind, [fit(x, form) for x in values], **attrs)
    return results if many else results[0]


@builtin
def inline_asm(
    asm: str, constraints: str | Sequence[str], args: Sequence[Any], result_types: Any, is_pure: bool = False,
    sim: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    """Inline PTX, executed once by each thread, on all registers that it holds of its operands.

    `args` are tiles, of any shapes and layouts, scalars, and up to three buffers, single tiles in shared memory.
    `result_types` is the type of the result, as `x.type` or `gl.distributed_type(dtype, shape, layout)`, or a tuple of types
    or the type of a tuple, which may be empty. `$0, $1, ...` are the registers of the results in order, then those of the
    operands; an element that a layout repeats in a thread has one register, and elements narrower than 32 bits are packed
    into 32-bit registers. The register of a buffer is its address in shared memory. `constraints` has one entry for each
    register. Unless `is_pure` is
    set, the assembly is never eliminated, merged or moved.

    Any thread may read and write any element of a buffer, in the order of memory: the compiler puts barriers before and behind
    the text, and the text needs its own for what its threads hand to each other.

    The simulator calls `sim` instead, on an array of shape (threads, registers) for each tile, a number, or one number a
    thread, for each scalar, and the elements of a buffer in the order of memory, which it may change in place; it returns
    arrays as of tiles. With scalars alone it is `inline_asm_elementwise` on these, and the result types are element types.

    Raises tile-asm-constraints, tile-asm-result, tile-asm-buffers.
    """
    many = isinstance(result_types, (tuple, list, tuple_type))
    types = tuple(cast("Sequence[Any]", result_types)) if many else (result_types,)
    text = constraints if isinstance(constraints, str) else ",".join(constraints)
    buffers = {i: x for i, x in enumerate(args) if isinstance(x, shared_memory_descriptor)}
    check_buffers(list(buffers.values()), is_pure)
    values = [to_tensor(x) for i, x in enumerate(args) if i not in buffers]
    elements = [type.element_ty if isinstance(type, distributed_type) else type for type in types]
    dtypes: tuple[Any, ...] = tuple(elements)
    for dtype in dtypes:
        check_dtype(dtype)
    tiles = [x for x in values if not x.is_scalar]
    for tile in tiles:
        check_tile("inline_asm", tile)
    if not tiles and not buffers and not any(isinstance(type, distributed_type) for type in types):
        found = inline_asm_elementwise(asm, text, values, dtypes, is_pure, 1, sim)
        return found if many else found[0]
    if wrong := next((t for t in types if not isinstance(t, distributed_type) or not t.layout.is_resolved), None):
        raise fail(errors.TILE_ASM_RESULT, got=wrong)
    counts = [count(type.layout.to_linear(type.shape)) for type in types]
    if all(x.is_scalar or x.layout.is_resolved for x in tiles):
        addresses = [(uint32, 1)] * len(buffers)
        sides = [*zip(dtypes, counts, strict=True)], [(x.element, _held(x)) for x in values] + addresses
        _check_registers(text, *(sum(_registers(_bits(e), n) for e, n in side) for side in sides))
    shapes, layouts = tuple([type.shape for type in types]), tuple([type.layout for type in types])
    attrs: dict[str, Any] = {"asm": asm, "constraints": text, "dtypes": dtypes, "shapes": shapes, "layouts": layouts}
    if buffers:
        three = [*buffers.values(), None, None][:3]
        results = apply_many(ops.block_memory, [*three, *values], **attrs, sim=sim, places=tuple(buffers))
    else:
        results = apply_many(ops.block if is_pure else ops.block_volatile, values, **attrs, sim=sim)
    return results if many else results[0]


def check_buffers(buffers: Sequence[shared_memory_descriptor], is_pure: bool) -> None:
    """Raises tile-asm-buffers unless inline PTX can take the buffers."""
    reason = "is_pure=True, but reads and writes them" if buffers and is_pure else ""
    reason = f"{len(buffers)} of them" if len(buffers) > 3 else reason
    for buffer in buffers:
        t = buffer.memory
        if t.shape != t.alloc_shape:
            reason = f"{buffer.describe()}, which is not the whole of a tile {list(t.alloc_shape)}"
    if reason:
        raise fail(errors.TILE_ASM_BUFFERS, reason=reason)


def _held(x: tensor) -> int:
    """The registers that a thread holds of a tile or scalar, one for each element."""
    return 1 if x.is_scalar else count(x.layout.to_linear(tuple(x.shape)))


@builtin
def int4_to_fp(src: tensor, elem_type: DType, axis: int, interleaved: bool = False) -> tensor:
    """Unpack each byte into two four-bit integers as floats, or each 32-bit word into eight, adjacent along `axis`, which
    lengthens it by that factor; the lowest bits come first. Every value is exact.

    `src` holds int8 or int32 (integers from -8 to 7, in two's complement) or uint8 or uint32 (from 0 to 15), and `elem_type` is
    a float of 16 bits or more. Two numbers take a PRMT, a LOP3 and an HFMA2, and no conversion instruction. In an `interleaved`
    word the even numbers fill the lower half and the odd ones the upper half (number 2i is at bits 4i, 2i + 1 at bits 4i + 16),
    the order of AWQ's and Marlin's weights, which saves the PRMT. Raises tile-int4, tile-int4-order.
    """
    check_tile("int4_to_fp", src)
    check_dtype(elem_type)
    known = src.element.is_int() and src.element.bits in (8, 32) and elem_type.is_floating() and elem_type.bits >= 16
    if not known:
        raise fail(errors.TILE_INT4, src=describe(src), dtype=elem_type.name)
    if interleaved and src.element.bits == 8:
        raise fail(errors.TILE_INT4_ORDER, src=describe(src))
    half = elem_type if elem_type.bits == 16 else float16
    found = apply_many(arith.unpack_int4, [src], dtype=half, interleaved=bool(interleaved))
    if interleaved:
        found = [found[k] for pair in zip(range(4), range(4, 8), strict=True) for k in pair]
    return convert(_along(found, shape.check_axis(axis, src.rank)), elem_type)


def _along(parts: Sequence[tensor], axis: int) -> tensor:
    """Tiles of one form interleaved along an axis: part k has the places k, k + n, k + 2n, ... of n parts."""
    rank, more = parts[0].rank, len(parts).bit_length() - 1
    order = [*range(axis + 1), *range(rank, rank + more), *range(axis + 1, rank)]
    sizes = [size * len(parts) if d == axis else size for d, size in enumerate(parts[0].shape)]
    return shape.reshape(shape.permute(_joined(parts), order), sizes)


def _joined(parts: Sequence[tensor]) -> tensor:
    return parts[0] if len(parts) == 1 else shape.join(_joined(parts[::2]), _joined(parts[1::2]))


@builtin
def fp4_to_fp(src: tensor, elem_type: DType, axis: int) -> tensor:
    """Unpack each byte into two e2m1 numbers, adjacent along `axis`, whose length doubles; the low half is first.

    `src` holds int8 or uint8, and `elem_type` is a float of 16 bits or more; every value is exact. Raises tile-fp4.
    """
    check_tile("fp4_to_fp", src)
    check_dtype(elem_type)
    if src.element.bits != 8 or not src.element.is_int() or not (elem_type.is_floating() and elem_type.bits >= 16):
        raise fail(errors.TILE_FP4, src=describe(src), dtype=elem_type.name)
    raw = convert(src, uint16)
    numbers = [convert(_e2m1(nibble), elem_type) for nibble in (raw, shift_right(raw, 4))]
    return _along(numbers, shape.check_axis(axis, src.rank))


def _e2m1(nibble: tensor) -> tensor:
    """The float16 value of the e2m1 number in the low four bits.

    The fields are moved into a float16, which is then scaled by the difference of the exponent biases (15 and 1)."""
    magnitude = shift_left(bit_and(nibble, 7), 9)
    sign = shift_left(bit_and(nibble, 8), 12)
    return mul(apply(arith.bitcast, bit_or(magnitude, sign), element=float16), 2.0**14)


def _check_constraints(constraints: str, dtypes: tuple[DType, ...], values: list[tensor], pack: int) -> None:
    want_in = sum(_registers(_bits(x.element), pack) for x in values)
    _check_registers(constraints, sum(_registers(d.bits, pack) for d in dtypes), want_in)


def _bits(element: Element) -> int:
    return 64 if isinstance(element, Pointer) else element.bits


def _check_registers(constraints: str, want_out: int, want_in: int) -> None:
    """Raises tile-asm-constraints unless there are constraints for these numbers of results and operands."""
    given = [c.strip() for c in constraints.split(",")]
    outputs = sum(c.startswith("=") for c in given)
    inputs = sum(not c.startswith(("=", "~")) for c in given if c)
    if (outputs, inputs) != (want_out, want_in):
        raise fail(
            errors.TILE_ASM_CONSTRAINTS,
            given=repr(constraints),
            outputs=outputs,
            inputs=inputs,
            want_out=want_out,
            want_in=want_in,
        )


def _registers(bits: int, pack: int) -> int:
    return pack if bits >= 32 else -(-pack * max(bits, 8) // 32)
