"""`tensor`: a run-time value of kernel code, scalar or tile, with its operators and methods.

It wraps one IR value. Every operator and method forwards to a function of the language.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from weft.errors import fail
from weft.errors import language as errors
from weft.errors.tensor_cores import MMA_IN_FLIGHT
from weft.ir.core import OpDef, Region
from weft.ir.types import DType, Element, Pointer, ScalarType, TileType
from weft.language.context import current
from weft.language.dtypes import distributed_type
from weft.language.runtime_value import RuntimeValue, article, name_of, represents, wrap
from weft.layout import DistributedLayout
from weft.loading import Later

# The methods' functions, found when one is called: their modules are written over this class, and import it.
advice, arith, casts, logic, math, pointers, reduction, scan, shape = (
    Later(f"weft.language.{name}")
    for name in ("advice", "arith", "casts", "logic", "math", "pointers", "reduction", "scan", "shape")
)

Number = int | float | bool
Operand: TypeAlias = "tensor | int | float | bool"


class _NoDimensions(list[int]):
    """The shape of a scalar. Its items are asked for where a pointer is taken for an array."""

    def __init__(self, owner: tensor) -> None:
        super().__init__()
        self._owner = owner

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return []
        pointer = isinstance(self._owner.element, Pointer)
        raise fail(
            errors.SHAPE_INDEX,
            key=key,
            got=name_of(self._owner),
            why=": an array is passed to a kernel as a pointer to its elements" if pointer else "",
            instead="pass the size as a further parameter, as in kernel[grid](x, x.shape[0]), or pass a view of the array, "
            "weft.LayoutTensor(x), whose size is x.dim(0)"
            if pointer
            else "a scalar is one value; take the shape of a tile",
        )


@represents(ScalarType, TileType)
class tensor(RuntimeValue):
    """A scalar or a tile at run time.

    `handle` is the IR value. `dtype` is the element type, which is a pointer type for addresses. A tile has a `shape`, a list
    of powers of two or multiples of 8, and a `layout`; a scalar has shape [] and no layout.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def describe(self) -> str:
        """What it is, for messages: `a float32 tile [128, 64]`, `an int32 scalar`."""
        element = self.element
        if not self.is_scalar:
            return f"{article(element.name)} tile {self.shape}"
        return article(element.name) + ("" if isinstance(element, Pointer) else " scalar")

    @property
    def dtype(self) -> Any:
        """Element type: a dtype, or a pointer type whose `element_ty` is one."""
        return self.handle.type.element

    @property
    def element(self) -> Element:
        """Element type, as `dtype`."""
        return self.handle.type.element

    @property
    def shape(self) -> list[int]:
        """Sizes, outermost first; [] for a scalar."""
        type = self.handle.type
        return list(type.shape) if isinstance(type, TileType) else _NoDimensions(self)

    @property
    def tile(self) -> TileType:
        """The IR type of a tile. Raises CompilationError (language-tile-needed) for a scalar."""
        type = self.handle.type
        if not isinstance(type, TileType):
            raise fail(errors.TILE_NEEDED, what="this", got=f"a scalar of {type.element}", more="")
        return type

    @property
    def layout(self) -> DistributedLayout:
        """The tile's register layout in the author's spelling. Raises language-tile-needed for a scalar."""
        return self.tile.layout

    @property
    def type(self) -> Any:
        """`distributed_type` of a tile, the dtype of a scalar; both have `.scalar`."""
        type = self.handle.type
        if isinstance(type, TileType):
            return distributed_type(type.element, type.shape, type.layout)
        return type.element

    @property
    def is_scalar(self) -> bool:
        """True for one value, False for a tile."""
        return isinstance(self.handle.type, ScalarType)

    @property
    def rank(self) -> int:
        """Number of dimensions; 0 for a scalar."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a scalar."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    # Conversions that Python requires of a value that exists on the GPU only

    def __bool__(self) -> bool:  # and not NoReturn: in kernels a scalar may be a condition
        raise fail(errors.TRUTH, what=name_of(self))

    def __index__(self) -> NoReturn:
        raise fail(errors.NOT_CONSTEXPR, what=name_of(self))

    def __int__(self) -> NoReturn:
        raise fail(errors.NOT_CONSTEXPR, what=name_of(self))

    def __float__(self) -> NoReturn:
        raise fail(errors.NOT_CONSTEXPR, what=name_of(self))

    def __iter__(self) -> NoReturn:
        raise fail(errors.ITERATION, what=name_of(self))

    def __len__(self) -> int:
        if self.is_scalar:
            raise fail(errors.TILE_NEEDED, what="len", got=f"a scalar of {self.element}", more="")
        return self.shape[0]

    # Operators

    def __add__(self, other: Operand) -> tensor:
        return arith.add(self, other)

    def __radd__(self, other: Operand) -> tensor:
        return arith.add(other, self)

    def __sub__(self, other: Operand) -> tensor:
        return arith.sub(self, other)

    def __rsub__(self, other: Operand) -> tensor:
        return arith.sub(other, self)

    def __mul__(self, other: Operand) -> tensor:
        return arith.mul(self, other)

    def __rmul__(self, other: Operand) -> tensor:
        return arith.mul(other, self)

    def __truediv__(self, other: Operand) -> tensor:
        return arith.truediv(self, other)

    def __rtruediv__(self, other: Operand) -> tensor:
        return arith.truediv(other, self)

    def __floordiv__(self, other: Operand) -> tensor:
        return arith.floordiv(self, other)

    def __rfloordiv__(self, other: Operand) -> tensor:
        return arith.floordiv(other, self)

    def __mod__(self, other: Operand) -> tensor:
        return arith.mod(self, other)

    def __rmod__(self, other: Operand) -> tensor:
        return arith.mod(other, self)

    def __pow__(self, other: Operand) -> tensor:
        return math.pow(self, other)

    def __rpow__(self, other: Operand) -> tensor:
        return math.pow(other, self)

    def __matmul__(self, other: Operand) -> NoReturn:
        raise fail(errors.MATMUL)

    def __and__(self, other: Operand) -> tensor:
        return logic.bit_and(self, other)

    def __rand__(self, other: Operand) -> tensor:
        return logic.bit_and(other, self)

    def __or__(self, other: Operand) -> tensor:
        return logic.bit_or(self, other)

    def __ror__(self, other: Operand) -> tensor:
        return logic.bit_or(other, self)

    def __xor__(self, other: Operand) -> tensor:
        return logic.bit_xor(self, other)

    def __rxor__(self, other: Operand) -> tensor:
        return logic.bit_xor(other, self)

    def __lshift__(self, other: Operand) -> tensor:
        return logic.shift_left(self, other)

    def __rlshift__(self, other: Operand) -> tensor:
        return logic.shift_left(other, self)

    def __rshift__(self, other: Operand) -> tensor:
        return logic.shift_right(self, other)

    def __rrshift__(self, other: Operand) -> tensor:
        return logic.shift_right(other, self)

    def __neg__(self) -> tensor:
        return arith.negative(self)

    def __pos__(self) -> tensor:
        return self

    def __abs__(self) -> tensor:
        return math.abs(self)

    def __invert__(self) -> tensor:
        return logic.bit_not(self)

    def __lt__(self, other: Operand) -> tensor:
        return logic.compare("lt", self, other)

    def __le__(self, other: Operand) -> tensor:
        return logic.compare("le", self, other)

    def __gt__(self, other: Operand) -> tensor:
        return logic.compare("gt", self, other)

    def __ge__(self, other: Operand) -> tensor:
        return logic.compare("ge", self, other)

    def __eq__(self, other: object) -> Any:
        return logic.compare("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return logic.compare("ne", self, other)

    def logical_and(self, other: Operand) -> tensor:
        """Element-wise logical AND; implements `and` between scalars."""
        return logic.logical_and(self, other)

    def logical_or(self, other: Operand) -> tensor:
        """Element-wise logical OR; implements `or` between scalars."""
        return logic.logical_or(self, other)

    # Shapes

    def __getitem__(self, key: object) -> tensor:
        """`x[:, None]`: a colon keeps a dimension, None adds one of length 1 (see `expand_dims` for the layout). `p[i]` of a
        pointer is the element at `p + i`, as `load` reads it."""
        return pointers.read(self, key) if pointers.is_pointer(self) else shape.index(self, key)

    def __setitem__(self, key: object, value: Operand) -> None:
        """`p[i] = v`: store to the address `p + i` of a pointer `p`. Tiles and scalars are immutable."""
        pointers.write(self, key, value)

    def unsafe_offset(self, offset: Operand) -> tensor:
        """`p + offset`, for a pointer: the address `offset` elements further."""
        return pointers.moved(self, offset)

    def write(self, value: Operand) -> None:
        """`p[0] = value`, for a pointer."""
        pointers.write(self, 0, value)

    @property
    def T(self) -> tensor:  # noqa: N802 as in NumPy
        """The transpose of a two-dimensional tile."""
        return shape.trans(self)

    def trans(self, *order: int | Sequence[int]) -> tensor:
        """The transpose, or `permute` with an order."""
        return shape.trans(self, *order)

    def permute(self, *order: int | Sequence[int]) -> tensor:
        """`permute` as a method."""
        return shape.permute(self, *order)

    def reshape(self, *sizes: int | Sequence[int]) -> tensor:
        """`reshape` as a method."""
        return shape.reshape(self, *sizes)

    def ravel(self) -> tensor:
        """`ravel` as a method."""
        return shape.ravel(self)

    def expand_dims(self, axis: int | Sequence[int]) -> tensor:
        """`expand_dims` as a method."""
        return shape.expand_dims(self, axis)

    def broadcast_to(self, *sizes: int | Sequence[int]) -> tensor:
        """`broadcast_to` as a method."""
        return shape.broadcast_to(self, *sizes)

    def split(self) -> tuple[tensor, tensor]:
        """`split` as a method."""
        return shape.split(self)

    def item(self) -> tensor:
        """The only element of a tile of size one, as a scalar."""
        return shape.item(self)

    # Values

    def to(self, dtype: Element, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
        """`cast` as a method."""
        return casts.cast(self, dtype, fp_downcast_rounding, bitcast)

    def cast(self, dtype: Element, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
        """`cast` as a method."""
        return casts.cast(self, dtype, fp_downcast_rounding, bitcast)

    def sum(self, axis: int | None = None, keep_dims: bool = False, dtype: DType | None = None) -> tensor:
        """`sum` as a method."""
        return reduction.sum(self, axis, keep_dims, dtype)

    def max(self, axis: int | None = None, return_indices: bool = False, return_indices_tie_break_left: bool = True,
            keep_dims: bool = False) -> Any:  # fmt: skip
        """`max` as a method."""
        return reduction.max(self, axis, return_indices, return_indices_tie_break_left, keep_dims)

    def min(self, axis: int | None = None, return_indices: bool = False, return_indices_tie_break_left: bool = True,
            keep_dims: bool = False) -> Any:  # fmt: skip
        """`min` as a method."""
        return reduction.min(self, axis, return_indices, return_indices_tie_break_left, keep_dims)

    def argmax(self, axis: int, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
        """`argmax` as a method."""
        return reduction.argmax(self, axis, tie_break_left, keep_dims)

    def argmin(self, axis: int, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
        """`argmin` as a method."""
        return reduction.argmin(self, axis, tie_break_left, keep_dims)

    def xor_sum(self, axis: int | None = None, keep_dims: bool = False) -> tensor:
        """`xor_sum` as a method."""
        return reduction.xor_sum(self, axis, keep_dims)

    def reduce_or(self, axis: int | None = None, keep_dims: bool = False) -> tensor:
        """`reduce_or` as a method."""
        return reduction.reduce_or(self, axis, keep_dims)

    def reduce(self, axis: int | None, combine_fn: Any, keep_dims: bool = False) -> tensor:
        """`reduce` as a method."""
        return reduction.reduce(self, axis, combine_fn, keep_dims)

    def associative_scan(self, axis: int, combine_fn: Any, reverse: bool = False) -> tensor:
        """`associative_scan` as a method."""
        return scan.associative_scan(self, axis, combine_fn, reverse)

    def cumsum(self, axis: int = 0, reverse: bool = False, dtype: DType | None = None) -> tensor:
        """`cumsum` as a method."""
        return scan.cumsum(self, axis, reverse, dtype)

    def cumprod(self, axis: int = 0, reverse: bool = False, dtype: DType | None = None) -> tensor:
        """`cumprod` as a method."""
        return scan.cumprod(self, axis, reverse, dtype)

    def gather(self, index: tensor, axis: int) -> tensor:
        """`gather` as a method."""
        return scan.gather(self, index, axis)


def apply(kind: OpDef, /, *operands: RuntimeValue | None, **attrs: Any) -> tensor:
    """Emit an operation with one result and wrap it."""
    (result,) = apply_many(kind, operands, **attrs)
    return result


def apply_many(
    kind: OpDef, operands: Iterable[RuntimeValue | None], regions: tuple[Region, ...] = (), /, **attrs: Any
) -> tuple[tensor, ...]:
    """Emit an operation with any number of results and wrap them. Raises mma-in-flight for an operand in flight."""
    operands = tuple(operands)
    check_ready(operands)
    handles = tuple([None if operand is None else operand.handle for operand in operands])
    return tuple(map(wrap, current().builder.create(kind, handles, {**kind.defaults, **attrs}, regions)))


def check_ready(operands: Iterable[RuntimeValue | None]) -> None:
    """Reject accumulators of MMAs in flight (mma-in-flight)."""
    for x in operands:
        if x is not None and x.in_flight:
            raise fail(MMA_IN_FLIGHT, got=name_of(x), name=x.handle.name or "acc")
