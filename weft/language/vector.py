"""`SIMD`: a thread-private vector, such as the result of a vectorized load. Operators are element-wise.

    v = t.load[4](i, j)
    t.store(i, j, v * 2 + gl.SIMD[gl.float32, 4](1, 2, 3, 4))
    total = v.reduce_add()

The functions of scalars also take vectors: `gl.exp(v)`, `gl.where(v > 0, v, 0)`, `gl.fma(v, w, 1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from weft.errors import fail
from weft.errors import language as language_errors
from weft.errors import thread as errors
from weft.ir.types import DType, RegsType, TileType
from weft.language import arith, logic
from weft.language.broadcast import VectorForm
from weft.language.creation import check_int
from weft.language.marks import BUILTIN, unwrap
from weft.language.promote import common_dtype, convert, place
from weft.language.runtime_value import describe, name_of, represents
from weft.language.tensor import apply, check_ready, tensor
from weft.ops import regs


class _OfTypeAndSize(type):
    """Implements `SIMD[dtype, size]`. It is a metaclass because type checkers read `__getitem__` of a class there."""

    def __getitem__(cls, key: Any) -> SIMDType:
        return SIMDType.of(key)


@represents(RegsType)
class SIMD(tensor, metaclass=_OfTypeAndSize):
    """A thread-private vector in registers, created by `SIMD[dtype, size](values)`.

    `v[k]` is an element, for a compile-time constant `k`; `v[a:b]` and `v.slice` are subvectors. A vector is immutable:
    operators, `join` and `shuffle` return new ones.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def describe(self) -> str:
        """What it is, for messages: `a vector of 4 float32`."""
        return f"a vector of {self.size} {self.element.name}"

    @property
    def size(self) -> int:
        """Number of elements."""
        type = self.handle.type
        assert isinstance(type, RegsType)
        return type.count

    @property
    def numel(self) -> int:
        """Number of elements, as `size`."""
        return self.size

    @property
    def tile(self) -> TileType:
        """Raises language-tile-needed: a vector is not a tile."""
        raise fail(language_errors.TILE_NEEDED, what="this", got=name_of(self), more="")

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> NoReturn:
        raise fail(language_errors.ITERATION, what=name_of(self))

    def __getitem__(self, key: object) -> tensor:
        """Element `key`, counted from the end if negative; for a slice the subvector.

        Raises thread-vector-index for a run-time index, thread-vector-range."""
        if isinstance(key, slice):
            return self._picked(list(range(self.size)[_bounds(cast("Any", key))]))
        if isinstance(key, tensor) or not hasattr(key, "__index__"):
            raise fail(errors.VECTOR_INDEX, index=describe(key), got=name_of(self))
        index = self._index(check_int("an index", key))
        return apply(regs.extract, self, index=index)

    def slice(self, start: int, size: int) -> tensor:
        """The subvector of `size` elements that begins at `start`. Raises thread-vector-range."""
        first, count = check_int("slice", start), check_int("slice", size)
        if count < 1:
            raise fail(errors.VECTOR_VALUES, got="a slice of no elements", size=1)
        self._index(first)
        self._index(first + count - 1)
        return self._picked(range(first, first + count))

    def join(self, other: Any) -> tensor:
        """This vector concatenated with another one or a number; both are promoted to their common type."""
        dtype = common_dtype("join", (self, other))
        return concat([place(self, dtype, None), place(other, dtype, None)])

    def shuffle(self, *indices: int) -> tensor:
        """The elements at these indices: `v.shuffle(3, 2, 1, 0)` reverses four elements. Indices may repeat."""
        return self._picked([self._index(check_int("shuffle", index)) for index in _spread(indices)])

    def select(self, true: Any, false: Any) -> tensor:
        """`gl.where(self, true, false)`, for a vector of conditions."""
        return logic.where(self, true, false)

    def reduce_add(self) -> tensor:
        """The sum of the elements, by a tree that adds adjacent elements first."""
        return self._reduced(arith.add)

    def reduce_mul(self) -> tensor:
        """The product of the elements, by a tree that multiplies adjacent elements first."""
        return self._reduced(arith.mul)

    def reduce_max(self) -> tensor:
        """The largest element; NaNs are ignored."""
        return self._reduced(arith.maximum)

    def reduce_min(self) -> tensor:
        """The smallest element; NaNs are ignored."""
        return self._reduced(arith.minimum)

    def _reduced(self, combine: Callable[[Any, Any], tensor]) -> tensor:
        parts = [self[index] for index in range(self.size)]
        while len(parts) > 1:
            paired = len(parts) // 2 * 2
            parts = [combine(parts[i], parts[i + 1]) for i in range(0, paired, 2)] + parts[paired:]
        return parts[0]

    def _picked(self, indices: Sequence[int]) -> tensor:
        if not indices:
            raise fail(errors.VECTOR_VALUES, got="a slice of no elements", size=1)
        if len(indices) == 1:
            return apply(regs.extract, self, index=indices[0])
        if tuple(indices) == tuple(range(self.size)):
            return self
        return apply(regs.gather, self, table=tuple(indices))

    def _index(self, index: int) -> int:
        if not -self.size <= index < self.size:
            raise fail(errors.VECTOR_RANGE, index=index, got=name_of(self), last=self.size - 1, size=self.size)
        return index % self.size


@dataclass(frozen=True, slots=True)
class SIMDType:
    """`SIMD[dtype, size]`. It is called with one value for all elements, one value for each, or a vector to convert."""

    dtype: DType
    size: int

    @classmethod
    def of(cls, key: Any) -> SIMDType:
        """The type `SIMD[key]`. Raises thread-vector-type."""
        parts = unwrap(key)
        match parts:
            case (DType() as dtype, int() as size) if size > 0 and not isinstance(size, bool):
                return cls(dtype, size)
            case tuple():
                shown = ", ".join(_spelled(part) for part in cast("tuple[Any, ...]", parts))
                raise fail(errors.VECTOR_TYPE, got=shown)
            case _:
                raise fail(errors.VECTOR_TYPE, got=_spelled(parts))

    def __repr__(self) -> str:
        return f"SIMD[{self.dtype.name}, {self.size}]"

    def __call__(self, *values: Any) -> tensor:
        """Create a vector. Raises thread-vector-values unless there is one value or one for each element."""
        given = [unwrap(value) for value in _spread(values)]
        if len(given) == 1 and isinstance(given[0], SIMD):
            if given[0].size != self.size:
                raise fail(errors.VECTOR_VALUES, got=name_of(given[0]), size=self.size)
            return convert(given[0], self.dtype)
        if len(given) not in (1, self.size):
            raise fail(errors.VECTOR_VALUES, got=f"{len(given)} values", size=self.size)
        for value in given:
            if isinstance(value, tensor) and not value.is_scalar:
                raise fail(errors.VECTOR_VALUES, got=name_of(value), size=self.size)
        return vector(given, self.dtype, self.size)


setattr(SIMDType, BUILTIN, True)


def vector(values: Sequence[Any], dtype: DType, size: int) -> tensor:
    """A vector of one number or scalar for all elements, or one for each; a scalar if the size is 1."""
    if len(values) == 1:
        return place(values[0], dtype, VectorForm(size) if size > 1 else None)
    return concat([place(value, dtype, None) for value in values])


def concat(parts: Sequence[tensor]) -> tensor:
    """The concatenation of scalars and vectors of one type; a single scalar remains a scalar."""
    check_ready(parts)
    if len(parts) == 1:
        return parts[0]
    return apply(regs.concat, *parts)


def check_vector(what: str, x: Any) -> tensor:
    """Checks for a thread-private value, a scalar or a vector, and returns it. Raises thread-value-needed."""
    if isinstance(x, tensor) and not isinstance(x.handle.type, TileType):
        return x
    raise fail(errors.PER_THREAD, what=what, got=name_of(x))


def _bounds(key: Any) -> slice[Any, Any, Any]:
    bounds: list[Any] = [key.start, key.stop, key.step]
    return slice(*(None if bound is None else check_int("a slice", bound) for bound in bounds))


def _spread(values: Sequence[Any]) -> list[Any]:
    """The arguments; a single tuple or list is unpacked."""
    only = values[0] if len(values) == 1 else None
    return list(cast("Sequence[Any]", only if isinstance(only, (tuple, list)) else values))


def _spelled(part: Any) -> str:
    return name_of(part) if isinstance(part, tensor) else str(part)
