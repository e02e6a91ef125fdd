"""The types of IR values.

An element type is a `DType` or a `Pointer`. A value is a scalar, a tile distributed over a block's threads by a layout, a
per-thread register array, or a handle to memory. Whether a scalar is uniform (over the block or warp) or per thread is an
analysis, not part of its type: see `weft.analysis.scopes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from weft.layout import DistributedLayout, LinearLayout, SharedLayout
from weft.layout.base import check_reshaped
from weft.layout.linear import ends
from weft.layout.tensor_memory.layouts import TensorLayout

Kind = Literal["bool", "int", "uint", "float"]
Space = Literal["global", "shared"]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DType:
    """An element type: public name, code in IR text, kind, storage bits, and for floats the stored mantissa bits.

    Each exists once, as the constant of this module with its name, and so is compared by identity; copies of it are itself."""

    name: str
    code: str
    kind: Kind
    bits: int
    mantissa: int = 0

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.code

    def __reduce__(self) -> str:
        return self.name

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of one element; 1 for bool."""
        return self.bits

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory; a bool takes one."""
        return max(self.bits // 8, 1)

    @property
    def scalar(self) -> DType:
        """The type itself; a tile's `scalar` is its element type."""
        return self

    def is_floating(self) -> bool:
        """True for every float type."""
        return self.kind == "float"

    def is_int(self) -> bool:
        """True for signed and unsigned integers and bool."""
        return self.kind != "float"

    def is_int_signed(self) -> bool:
        """True for int8 to int64."""
        return self.kind == "int"

    def is_int_unsigned(self) -> bool:
        """True for uint8 to uint64."""
        return self.kind == "uint"

    def is_bool(self) -> bool:
        """True for int1."""
        return self.kind == "bool"

    def is_fp8(self) -> bool:
        """True for the two fp8 types."""
        return self.is_floating() and self.bits == 8

    def is_fp16(self) -> bool:
        """True for float16."""
        return self.code == "f16"

    def is_bf16(self) -> bool:
        """True for bfloat16."""
        return self.code == "bf16"

    def is_fp32(self) -> bool:
        """True for float32."""
        return self.code == "f32"

    def is_fp64(self) -> bool:
        """True for float64."""
        return self.code == "f64"

    def is_ptr(self) -> bool:
        """False; a pointer is a `Pointer`."""
        return False

    @property
    def min_value(self) -> int:
        """Smallest integer of the type (integers only)."""
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def max_value(self) -> int:
        """Largest integer of the type (integers only)."""
        return (1 << (self.bits - (self.kind == "int"))) - 1


int1 = DType("int1", "i1", "bool", 1)
int8 = DType("int8", "i8", "int", 8)
int16 = DType("int16", "i16", "int", 16)
int32 = DType("int32", "i32", "int", 32)
int64 = DType("int64", "i64", "int", 64)
uint8 = DType("uint8", "u8", "uint", 8)
uint16 = DType("uint16", "u16", "uint", 16)
uint32 = DType("uint32", "u32", "uint", 32)
uint64 = DType("uint64", "u64", "uint", 64)
float8e4nv = DType("float8e4nv", "f8e4m3", "float", 8, 3)
float8e5 = DType("float8e5", "f8e5m2", "float", 8, 2)
float16 = DType("float16", "f16", "float", 16, 10)
bfloat16 = DType("bfloat16", "bf16", "float", 16, 7)
float32 = DType("float32", "f32", "float", 32, 23)
float64 = DType("float64", "f64", "float", 64, 52)

DTYPES: tuple[DType, ...] = (
    int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float8e4nv, float8e5, float16, bfloat16, float32, float64,
)  # fmt: skip
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in DTYPES}
BY_CODE: dict[str, DType] = {dtype.code: dtype for dtype in DTYPES}


def wrap(value: int, dtype: DType) -> int:
    """An integer wrapped to the range of a type; for bool it is `!= 0`.

    >>> wrap(2**31, int32), wrap(-1, uint8), wrap(2, int1)
    (-2147483648, 255, True)
    """
    if dtype.is_bool():
        return value != 0
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_int_signed() and value >> (dtype.bits - 1) else value


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of an element in a memory space, 64 bits wide."""

    element_ty: DType
    space: Space = "global"

    def __str__(self) -> str:
        return f"ptr<{self.element_ty}>" if self.space == "global" else f"ptr<{self.element_ty}, {self.space}>"

    @property
    def name(self) -> str:
        """Public name, as in `pointer<float32>`."""
        return f"pointer<{self.element_ty.name}>"

    @property
    def bits(self) -> int:
        """Storage bits."""
        return 64

    @property
    def primitive_bitwidth(self) -> int:
        """Storage bits, under the name that dtypes have for them."""
        return 64

    @property
    def itemsize(self) -> int:
        """Storage bytes."""
        return 8

    @property
    def scalar(self) -> Pointer:
        """The type itself, as for tiles."""
        return self

    def is_ptr(self) -> bool:
        """True."""
        return True

    def is_floating(self) -> bool:
        """False."""
        return False

    def is_int(self) -> bool:
        """False: addresses take `addptr` and comparisons, not arithmetic."""
        return False

    def is_bool(self) -> bool:
        """False."""
        return False


Element = DType | Pointer


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One value. Whether it is uniform over a block or warp, or per thread, is determined by `analysis.scopes`."""

    element: Element

    def __str__(self) -> str:
        return str(self.element)


@dataclass(frozen=True, slots=True)
class TileType:
    """A tile: element type, shape and the linear map from registers, lanes, warps and blocks to elements.

    `layout` is the author's spelling of the map. Tile types with equal maps are equal, whatever their spelling. `linear` is
    None while the layout is still to be inferred (`AutoLayout`, `CoalescedLayout`, their slices): such types compare equal, and
    `passes.resolve_layouts` determines their layouts from their uses.
    """

    element: Element
    shape: tuple[int, ...]
    linear: LinearLayout | None
    layout: DistributedLayout = field(compare=False)

    def __str__(self) -> str:
        return f"tile<{'x'.join(map(str, self.shape))}x{self.element}, {self.layout!r}>"

    @property
    def resolved(self) -> bool:
        """False while the layout is still to be inferred."""
        return self.linear is not None

    @property
    def registers(self) -> int:
        """Elements that each thread holds, including redundant copies. Needs a resolved layout."""
        if self.linear is None:
            raise ValueError(f"{self} has no layout yet")
        return ends.count(self.linear)


@cache
def tile_type(element: Element, shape: tuple[int, ...], layout: DistributedLayout) -> TileType:
    """The interned tile type of a layout. Raises LayoutError if the layout does not fit the shape."""
    check_reshaped(shape)
    return TileType(element, shape, layout.to_linear(shape) if layout.is_resolved else None, layout)


@dataclass(frozen=True, slots=True)
class RegsType:
    """An array of `count` elements in each thread's registers, indexed by constants only: lowered tiles, and vectors."""

    element: Element
    count: int

    def __str__(self) -> str:
        return f"regs<{self.count}x{self.element}>"


@dataclass(frozen=True, slots=True)
class SharedType:
    """A handle to shared memory: element, shape of the view, layout, and the allocated shape to which the layout applies."""

    element: DType
    shape: tuple[int, ...]
    layout: SharedLayout
    alloc_shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"shared<{'x'.join(map(str, self.shape))}x{self.element}, {self.layout!r}, {list(self.alloc_shape)}>"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A handle to tensor memory: element, shape of the view, layout, and the allocated tile shape to which the layout applies.

    Leading dimensions of `shape` beyond two index tiles in adjacent columns."""

    element: DType
    shape: tuple[int, ...]
    layout: TensorLayout
    alloc_shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"tmem<{'x'.join(map(str, self.shape))}x{self.element}, {self.layout!r}, {list(self.alloc_shape)}>"


@dataclass(frozen=True, slots=True)
class DescriptorType:
    """A TMA tensor descriptor: element, the block that one copy transfers, the block's layout in shared memory, and its
    mode."""

    element: DType
    block_shape: tuple[int, ...]
    layout: SharedLayout
    mode: Literal["tiled", "im2col"] = "tiled"

    def __str__(self) -> str:
        mode = "" if self.mode == "tiled" else f", {self.mode}"
        return f"desc<{'x'.join(map(str, self.block_shape))}x{self.element}, {self.layout!r}{mode}>"


@dataclass(frozen=True, slots=True)
class SharedArrayType:
    """`count` consecutive elements of shared memory: lowered shared buffers, scratch, and shared arrays of thread-level
    kernels."""

    element: DType
    count: int

    def __str__(self) -> str:
        return f"shared<{self.count}x{self.element}>"


@dataclass(frozen=True, slots=True)
class LocalType:
    """A thread-private array of `count` elements."""

    element: DType
    count: int

    def __str__(self) -> str:
        return f"local<{self.count}x{self.element}>"


Type = ScalarType | TileType | RegsType | SharedType | TensorType | DescriptorType | SharedArrayType | LocalType


def with_element(type: Type, element: Element) -> Type:
    """The same scalar, tile or register array with another element type."""
    if isinstance(type, ScalarType):
        return ScalarType(element)
    if isinstance(type, TileType):
        return TileType(element, type.shape, type.linear, type.layout)
    if isinstance(type, RegsType):
        return RegsType(element, type.count)
    raise TypeError(f"{type} has no element to replace")
