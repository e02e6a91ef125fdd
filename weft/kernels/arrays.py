"""Arrays as kernel operands: descriptors for those that TMA reads and writes, packed copies of those that it cannot read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from weft.bounded import keep
from weft.kernels.device import packing
from weft.kernels.memory import empty_like, used_on
from weft.kernels.operands import GRANULE, Matrix, contiguous_along
from weft.kernels.plan import Output, StagedOperand
from weft.locks import lazy
from weft.nvidia.hopper import TensorDescriptor
from weft.runtime.arguments import array
from weft.runtime.descriptor import TensorMap

_MAPS_KEPT = 256
_new = object.__new__
T = TypeVar("T")


class Described:
    """Cached descriptors of arrays that differ only in their address."""

    __slots__ = ("block", "layout", "maps", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], block: tuple[int, ...], layout: Any) -> None:
        self.shape, self.strides, self.block, self.layout = shape, strides, block, layout
        self.maps: dict[int, TensorMap] = {}

    def of(self, value: Any) -> TensorDescriptor:
        """The descriptor of an array."""
        # The same shortcut as in `TensorDescriptor.from_tensor`: shape and strides have been checked before.
        found = _new(TensorDescriptor)
        found.base, found.tensor_map = value, self.map_of(value)
        return found

    def map_of(self, value: Any) -> TensorMap:
        """The tensor map of an array, which does not keep it alive."""
        try:
            return self.maps[value.data_ptr()]
        except (AttributeError, KeyError):
            pointer = address(value)
        if pointer in self.maps:
            return self.maps[pointer]
        made = TensorDescriptor(value, self.shape, self.strides, self.block, self.layout).tensor_map
        return keep(self.maps, pointer, made, _MAPS_KEPT)


class Prepared(dict[Any, T]):
    """Prepared calls, by what they depend on."""

    __slots__ = ()

    def of(self, key: Any, make: Callable[[], T]) -> T:
        """The prepared call of a key, which `make` prepares. Without a key (None), or with one that is not hashable, it is not
        kept."""
        if key is None:
            return make()
        try:
            return self[key]
        except KeyError:
            pass
        except TypeError:
            return make()
        return keep(self, key, make())


def key_of(x: Any) -> tuple[Any, ...]:
    """What a prepared call depends on of a PyTorch tensor, but for its address."""
    return x.dtype, x.shape, x.stride(), x.data_ptr() & 15, x.get_device()


def address(value: Any) -> int:
    """The address of an array's first element."""
    try:
        return value.data_ptr()
    except AttributeError:
        found = array(value)
        assert found is not None
        return found.pointer


def source_of(operand: Matrix, side: StagedOperand) -> Described | None:
    """The descriptors of an operand; None if it is read through its pointer."""
    if side.path != "descriptor":
        return None
    lies = operand if side.along_k else operand.transposed
    return described_as(lies, side)


def described_as(lies: Matrix, side: StagedOperand | Output) -> Described:
    """The descriptors of a matrix, or of a batch, in blocks of an operand or of the output."""
    if not side.batched:
        return Described(lies.shape, lies.strides, *side.box)
    # TMA checks the stride of an axis of one element, too.
    step = lies.step if lies.batches > 1 else GRANULE // lies.itemsize
    return Described((lies.batches, *lies.shape), (step, *lies.strides), *side.box)


@dataclass(frozen=True)
class Packing:
    """A copy of an operand, as [rows, K], into memory that TMA can read: contiguous, with a pitch that is a multiple of 16
    bytes.

    `source` and `target` are both indexed [rows, K]; `transposed` is true when memory holds the target's transpose."""

    source: Matrix
    target: Matrix
    transposed: bool

    @staticmethod
    def of(operand: Matrix, transposable: tuple[int, ...]) -> Packing:
        """The copy of an operand. It is contiguous along K, or along rows if the operand is and tensor cores can read its
        elements transposed (sizes in `transposable`)."""
        transposed = contiguous_along(operand) == "rows" and operand.itemsize in transposable
        rows, columns = operand.shape[::-1] if transposed else operand.shape
        step = GRANULE // operand.itemsize
        across = -(-columns // step) * step
        step = rows * across if operand.batches > 1 else 0
        lies = Matrix(operand.dtype, (rows, columns), (across, 1), 0, operand.device, operand.batches, step)
        return Packing(operand, lies.transposed if transposed else lies, transposed)

    def empty(self, like: Any) -> Any:
        """Memory for the copy."""
        lies = self.target.transposed if self.transposed else self.target
        batch = (lies.batches,) if lies.batches > 1 else ()
        return empty_like(like, (*batch, lies.shape[0], lies.strides[0]), self.source.dtype)

    def run(self, operand: Any, target: Any, stream: Any) -> None:
        """Copy a batch of matrices."""
        steps = self.source.step, self.target.step
        kernel = packing.pack[self.tiles, self.source.batches]
        kernel(operand, target, *self.numbers, steps, num_warps=packing.WARPS, stream=stream)
        used_on(target, stream)

    @lazy
    def tiles(self) -> int:
        """Number of programs that copy a matrix."""
        rows, columns = self.source.shape
        return -(-rows // packing.TILE) * -(-columns // packing.TILE)

    @lazy
    def numbers(self) -> tuple[int | bool, ...]:
        """The kernel's arguments after the array and its copy."""
        source, target = (x.transposed if self.transposed else x for x in (self.source, self.target))
        turn = abs(source.strides[0]) < abs(source.strides[1])
        return *source.shape, *source.strides, target.strides[0], turn


def packed(packings: tuple[Packing | None, Packing | None], operands: tuple[Any, Any], stream: Any) -> tuple[Any, Any]:
    """The packed copies of both operands, made by one launch, or of a batch by one for each; operands without a packing are
    returned unchanged."""
    targets = tuple(x if p is None else p.empty(x) for p, x in zip(packings, operands, strict=True))
    if any(p is not None and p.source.batches > 1 for p in packings):
        for packing_of, operand, target in zip(packings, operands, targets, strict=True):
            if packing_of is not None:
                packing_of.run(operand, target, stream)
        return targets
    arguments: list[Any] = []
    tiles = 0
    for packing_of, operand, target in zip(packings, operands, targets, strict=True):
        if packing_of is not None:
            arguments += (operand, target, *packing_of.numbers)
            tiles += packing_of.tiles
    if tiles:
        kernel = packing.pack if None in packings else packing.pack_both
        kernel[tiles](*arguments, num_warps=packing.WARPS, stream=stream)
    for packing_of, target in zip(packings, targets, strict=True):
        if packing_of is not None:
            used_on(target, stream)
    return targets
