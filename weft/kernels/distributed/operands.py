"""Operands of the kernels between ranks: arrays whose elements lie one after another, symmetric or not, and their checks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar

from weft import language as gl
from weft.bounded import keep
from weft.distributed import Symmetric
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernel import Repeated
from weft.kernels.device import ranks
from weft.kernels.machines import target_of
from weft.kernels.operands import LINE
from weft.kernels.rows.calls import MOST_OF_A_TENSOR
from weft.runtime.arguments import array, extents
from weft.runtime.dlpack import contiguous
from weft.runtime.dtypes import ITEMSIZE
from weft.views.symmetric import FLAGS

R = TypeVar("R")
SUMS = {
    "float16": gl.float32, "bfloat16": gl.float32, "float32": gl.float32, "float64": gl.float64, "int32": gl.int32,
    "int64": gl.int64,
}  # fmt: skip
"""The types that sums take, with the type they are computed in."""
HALVES = {"float16": gl.float16, "bfloat16": gl.bfloat16}
"""The types of matrices that are multiplied."""
WARPS = 8
ACCESS = 16
"""Bytes that a thread moves at a time."""
MOST_ACCESSES = 4
"""Accesses of a thread that are on their way together, of each of two ranks; fewer of more ranks, for registers."""
MOST_PROGRAMS = 64
"""Programs of a launch that only moves and adds. All of them fit on any GPU at once, as the waits for other ranks demand."""


class Flat(NamedTuple):
    """An operand as a line of elements."""

    dtype: str
    shape: tuple[int, ...]
    size: int

    @property
    def block(self) -> int:
        """Elements of a program's block: one access of each thread."""
        return WARPS * 32 * self.each

    @property
    def each(self) -> int:
        """Elements of one access."""
        return max(ACCESS // ITEMSIZE[self.dtype], 1)

    def wide(self, elements: int, ranks: int) -> int:
        """Elements of a block, for a tensor of `elements` and a number of ranks: several accesses per thread if that leaves
        work for all programs. 64 programs with 16 KiB each have 1 MiB in flight, which a link with a latency of 2 us needs."""
        accesses = max(min(MOST_ACCESSES, 2 * MOST_ACCESSES // ranks), 1)
        return self.block * (accesses if elements >= self.block * accesses * MOST_PROGRAMS else 1)

    @property
    def line(self) -> Any:
        """The layout of a block."""
        return gl.BlockedLayout([self.each], [32], [WARPS], [0])


BEGINS = LINE - 1
"""What the choice of a product's configuration knows of an address, as a mask."""


def call_key(what: str, *given: Any) -> tuple[Any, ...] | None:
    """What a call depends on but for the places of its arrays: shapes, strides, types and alignments of tensors, and everything
    else as it is. None where calls are not remembered: arguments are arrays, but not CUDA tensors of PyTorch."""
    key: list[Any] = [what]
    for each in given:
        if getattr(each, "is_cuda", False):
            key += each.shape, each.stride(), each.dtype, each.data_ptr() & BEGINS
        elif hasattr(each, "data_ptr") or not isinstance(each, Hashable):
            return None
        else:
            key.append(each)
    return tuple(key)


def remembered(x: object, key: tuple[Any, ...] | None) -> Any:
    """What `remember` has kept for an earlier call with a symmetric tensor."""
    return x.calls.get(key) if isinstance(x, Symmetric) and key is not None else None


def remember(x: Symmetric, key: tuple[Any, ...] | None, call: R) -> R:
    """Keep what has been found for a call. It may hold on to no arrays but symmetric ones."""
    return call if key is None else keep(x.calls, key, call, MOST_OF_A_TENSOR)


class Launch:
    """A launch with the same arguments each time. The third and later ones take little time of the host."""

    __slots__ = ("_arguments", "_options", "_programs", "_repeated")

    def __init__(self, kernel: Any, programs: int, arguments: tuple[Any, ...], **options: Any) -> None:
        self._repeated = Repeated(kernel, ())
        self._programs, self._arguments, self._options = programs, arguments, options

    def on(self, stream: Any) -> None:
        """Launch on a stream."""
        run = self._repeated.ready()
        if run is None:
            self._repeated.launch(self._programs, *self._arguments, **self._options, stream=stream)
        else:
            run(stream)


def meeting(x: Symmetric) -> Launch:
    """The launch on which all ranks meet: what a rank's stream was given before happens before what any rank's is given
    afterwards."""
    return Launch(ranks.meeting, 1, (x,), num_warps=1)


def symmetric(what: str, name: str, x: Any) -> Flat:
    """A symmetric operand. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, ranks-no-peer-access."""
    if not isinstance(x, Symmetric):
        raise fail(errors.RANKS_SYMMETRIC, what=what, name=name, got=f"a {type(x).__name__}")
    if x.group.peers(x.tensor, 0) is None:
        for rank in range(x.world_size):
            # Raises ranks-no-peer-access for a rank that no pointer reaches.
            x.group.part(x.tensor, rank)
    return flat(what, name, x.tensor)


def chained(x: Symmetric) -> bool:
    """Whether launches may begin while the launch before them ends: 8 KiB are added up in 2.6 us of a replayed graph between
    two H200 then, and in 2.9 otherwise."""
    found = array(x.tensor)
    assert found is not None
    return target_of(found.device).has_programmatic_launch and not x.group.crowded


def group_name(x: Symmetric) -> str:
    """The name of a symmetric tensor's group; "" where there is one only."""
    return getattr(x.group, "name", "")


def check_group(what: str, name: str, x: Symmetric, other: str, y: Symmetric) -> None:
    """Raises LaunchError (kernels-ranks-group)."""
    if group_name(x) != group_name(y):
        raise fail(errors.RANKS_GROUP, what=what, name=name, got=group_name(x), other=other, known=group_name(y))


def summed(what: str, name: str, x: Any) -> Flat:
    """A symmetric operand that is added up. Raises also kernels-ranks-dtype."""
    found = symmetric(what, name, x)
    check_dtype(what, found.dtype, SUMS)
    return found


def flat(what: str, name: str, x: Any) -> Flat:
    """An operand. Raises LaunchError (kernels-ranks-array)."""
    found, form = array(x), extents(x)
    if found is None or form is None:
        raise fail(errors.RANKS_ARRAY, what=what, name=name, got=f"a {type(x).__name__}")
    shape, strides = form
    if prod(shape) and any(
        size > 1 and one != other for size, one, other in zip(shape, strides, contiguous(shape), strict=True)
    ):
        raise fail(errors.RANKS_ARRAY, what=what, name=name, got=f"an array of shape {shape} and strides {strides}")
    return Flat(found.dtype, tuple(shape), prod(shape))


def check_dtype(what: str, dtype: str, known: dict[str, Any]) -> None:
    """Raises LaunchError (kernels-ranks-dtype)."""
    if dtype not in known:
        raise fail(errors.RANKS_DTYPE, what=what, got=dtype, known=", ".join(known))


def check_flags(what: str, programs: int, flags: int) -> None:
    """Raises LaunchError (kernels-ranks-flags)."""
    if flags > FLAGS:
        raise fail(errors.RANKS_FLAGS, what=what, programs=programs, flags=flags, most=FLAGS)


def check_shape(what: str, name: str, got: Flat, dtype: str, shape: tuple[int, ...]) -> None:
    """Raises LaunchError (kernels-ranks-shape)."""
    if (got.dtype, got.shape) != (dtype, shape):
        refuse_shape(what, name, got, dtype, shape)


def refuse_shape(what: str, name: str, got: Flat, dtype: str, shape: Sequence[int | str]) -> None:
    """Raises LaunchError (kernels-ranks-shape)."""
    wanted, given = f"{dtype} [{', '.join(map(str, shape))}]", f"{got.dtype} {list(got.shape)}"
    raise fail(errors.RANKS_SHAPE, what=what, name=name, got=given, wanted=wanted)
