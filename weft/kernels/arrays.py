"""Arrays on their way to kernels: descriptors of those that TMA reads and writes, copies of those that it cannot read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.kernels.device import packing
from weft.kernels.memory import empty_like, used_on
from weft.kernels.operands import GRANULE, Matrix, contiguous_along
from weft.kernels.plan import Side
from weft.locks import lazy
from weft.nvidia.hopper import TensorDescriptor
from weft.runtime.arguments import array
from weft.runtime.descriptor import TensorMap

_MAPS_KEPT = 256
_new = object.__new__


class Described:
    """Descriptors of arrays that differ in nothing but their address."""

    __slots__ = ("_known", "block", "layout", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], block: tuple[int, ...], layout: Any) -> None:
        self.shape, self.strides, self.block, self.layout = shape, strides, block, layout
        self._known: dict[int, TensorMap] = {}

    def of(self, value: Any) -> TensorDescriptor:
        """The descriptor of an array."""
        pointer = address(value)
        try:
            tensor_map = self._known[pointer]
        except KeyError:
            return self._made(value, pointer)
        # As `TensorDescriptor.from_tensor` does it for what it has seen before.
        found = _new(TensorDescriptor)
        found.base, found.tensor_map = value, tensor_map
        return found

    def _made(self, value: Any, pointer: int) -> TensorDescriptor:
        made = TensorDescriptor(value, self.shape, self.strides, self.block, self.layout)
        if len(self._known) >= _MAPS_KEPT:
            self._known.clear()
        self._known[pointer] = made.tensor_map
        return made


def address(value: Any) -> int:
    """Where an array begins."""
    try:
        return value.data_ptr()
    except AttributeError:
        found = array(value)
        assert found is not None
        return found.pointer


def source_of(operand: Matrix, side: Side) -> Described | None:
    """The descriptors of an operand; None where it is read through its address."""
    if side.path != "descriptor":
        return None
    lies = operand if side.along_k else operand.turned
    return Described(lies.shape, lies.strides, side.block, side.layout)


@dataclass(frozen=True)
class Packing:
    """The copy of an operand, seen as [rows, K], to rows (or columns) that are whole multiples of 16 bytes.

    `source` and `target` are both as the operand is seen; `turned` says that memory holds the target's transpose."""

    source: Matrix
    target: Matrix
    turned: bool

    @staticmethod
    def of(operand: Matrix, either_way: tuple[int, ...]) -> Packing:
        """The copy of an operand: contiguous along K, or along rows where it is and tensor cores can read that, as they can
        elements of `either_way` bytes."""
        turned = contiguous_along(operand) == "rows" and operand.itemsize in either_way
        rows, columns = operand.shape[::-1] if turned else operand.shape
        step = GRANULE // operand.itemsize
        across = -(-columns // step) * step
        lies = Matrix(operand.dtype, (rows, columns), (across, 1), 0, operand.device)
        return Packing(operand, lies.turned if turned else lies, turned)

    def empty(self, like: Any) -> Any:
        """Memory for the copy."""
        lies = self.target.turned if self.turned else self.target
        return empty_like(like, (lies.shape[0], lies.strides[0]), self.source.dtype)

    @lazy
    def tiles(self) -> int:
        """Programs that copy."""
        rows, columns = self.source.shape
        return -(-rows // packing.TILE) * -(-columns // packing.TILE)

    @lazy
    def numbers(self) -> tuple[int | bool, ...]:
        """What the kernel takes behind the array and its copy."""
        source, target = (x.turned if self.turned else x for x in (self.source, self.target))
        turn = abs(source.strides[0]) < abs(source.strides[1])
        return *source.shape, *source.strides, target.strides[0], turn


def packed(packings: tuple[Packing | None, Packing | None], operands: tuple[Any, Any], stream: Any) -> tuple[Any, Any]:
    """The copies of operands, by one launch; those without a packing as they are."""
    targets = tuple(x if p is None else p.empty(x) for p, x in zip(packings, operands, strict=True))
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
