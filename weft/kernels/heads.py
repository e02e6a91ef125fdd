"""Arrays of attention, [batch, heads, length, head size]: reading them, and what they have to agree in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.machines import place_of
from weft.kernels.memory import empty_like
from weft.kernels.operands import GRANULE, MOST_STRIDE_BYTES
from weft.runtime.arguments import array, extents
from weft.runtime.dtypes import ITEMSIZE

DTYPES = ("float16", "bfloat16")
NARROW = "float8_e4m3fn"
DIMENSIONS = ("batch", "heads", "length", "head size")


@dataclass(frozen=True, slots=True)
class Heads:
    """An array [batch, heads, length, head size]: name, canonical dtype, shape, strides in elements, address, device."""

    name: str
    dtype: str
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    pointer: int
    device: int

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return ITEMSIZE[self.dtype]

    @property
    def place(self) -> str:
        """The device, for messages."""
        return place_of(self.device)

    def span(self) -> tuple[int, int]:
        """The first byte, and the byte behind the last one, relative to the address."""
        steps = [(extent - 1) * stride * self.itemsize for extent, stride in zip(self.shape, self.strides, strict=True)]
        low, high = (sum(pick(step, 0) for step in steps) for pick in (min, max))
        return (low, low) if 0 in self.shape else (low, high + self.itemsize)


def heads(name: str, value: Any) -> Heads:
    """An array of four dimensions. Raises LaunchError (attention-array)."""
    found = array(value)
    measured = None if found is None else extents(value)
    if found is None or measured is None:
        raise fail(errors.ARRAY, name=name, got=f"a {type(value).__name__}")
    shape, strides = measured
    if len(shape) != 4 or not all(isinstance(stride, int) for stride in strides):
        raise fail(errors.ARRAY, name=name, got=f"an array of shape {list(shape)} and strides {list(strides)}")
    a, b, c, d = (int(extent) for extent in shape)
    e, f, g, h = (int(stride) for stride in strides)
    return Heads(name, found.dtype, (a, b, c, d), (e, f, g, h), found.pointer, found.device)


def check_alike(q: Heads, k: Heads, v: Heads, paged: bool = False, known: tuple[str, ...] = DTYPES) -> None:
    """The first dimension of `paged` keys is not a batch. `known` are the types that there are.

    Raises LaunchError: attention-devices, attention-dtypes, attention-shapes, attention-heads."""
    for other in (k, v):
        if other.device != q.device:
            raise fail(errors.DEVICES, first=q.place, name=other.name, other=other.place)
    if q.dtype not in known or not q.dtype == k.dtype == v.dtype:
        raise fail(errors.DTYPES, q=q.dtype, k=k.dtype, v=v.dtype, known=" or ".join(known))
    pairs = ((q, k, 0), (q, k, 3), (k, v, 0), (k, v, 1), (k, v, 2))
    for first, second, dim in pairs[1:] if paged else pairs:
        if first.shape[dim] != second.shape[dim]:
            raise fail(
                errors.SHAPES, first=first.name, second=second.name, one=list(first.shape), other=list(second.shape),
                what=DIMENSIONS[dim], a=first.shape[dim], b=second.shape[dim],
            )  # fmt: skip
    if q.shape[1] % max(k.shape[1], 1) or (q.shape[1] and not k.shape[1]):
        raise fail(errors.HEADS, q=q.shape[1], k=k.shape[1])


def check_described(x: Heads) -> None:
    """TMA reads and writes the array. Raises LaunchError (attention-strides)."""
    reason = why_undescribed(x)
    if reason:
        a, b, c, d = x.shape
        raise fail(errors.STRIDES, name=x.name, reason=reason, size=_size(2 * a * b * c * d * x.itemsize))


def why_undescribed(x: Heads) -> str:
    """Why TMA cannot read an array; empty if it can."""
    if x.strides[3] != 1:
        return f"elements of a head are {x.strides[3]} apart instead of side by side"
    if x.pointer % GRANULE:
        return f"it starts {x.pointer % GRANULE} bytes after a multiple of {GRANULE} bytes"
    for extent, stride, dim in zip(x.shape[:3], x.strides[:3], DIMENSIONS[:3], strict=True):
        nbytes = stride * x.itemsize
        if extent > 1 and (nbytes % GRANULE or not 0 < nbytes < MOST_STRIDE_BYTES):
            return f"its stride along the dimension {dim} is {nbytes} bytes, no positive multiple of {GRANULE}"
    return ""


def check_out(out: Heads, shape: tuple[int, int, int, int], first: Heads) -> None:
    """Raises LaunchError: attention-devices, attention-out."""
    if out.device != first.device:
        raise fail(errors.DEVICES, first=first.place, name=out.name, other=out.place)
    if (out.dtype, out.shape) != (first.dtype, shape):
        raise fail(errors.OUT, got=f"{out.dtype} {list(out.shape)}", want=f"{first.dtype} {list(shape)}")


def check_overlap(spans: tuple[tuple[int, int], ...], addresses: tuple[int, ...]) -> None:
    """Refuse an output that overlaps q, k or v; `spans` are the byte ranges of these and of the output relative to `addresses`.

    Raises LaunchError (attention-out-overlaps)."""
    *given, (low, high) = [(low + at, high + at) for (low, high), at in zip(spans, addresses, strict=True)]
    for name, (start, end) in zip("qkv", given, strict=True):
        if low < end and start < high:
            raise fail(errors.OUT_OVERLAPS, name=name)


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB" if nbytes >= 1 << 20 else f"{nbytes / 1024:.1f} KiB"


def result_heads(query: Heads, v_size: int, out: Any) -> tuple[Heads, bool]:
    """The checked output of attention, of the type of `query`; and whether one that attention makes has the heads of a position
    side by side, as q has, rather than the positions of a head. Without `out`: the one that it makes."""
    batch, count, queries, _ = query.shape
    shape = (batch, count, queries, v_size)
    by_length = query.strides[2] > query.strides[1] and count > 1
    if out is not None:
        target = heads("out", out)
        check_out(target, shape, query)
        return target, by_length
    strides = (count * queries * v_size, *((v_size, count * v_size) if by_length else (queries * v_size, v_size)), 1)
    return Heads("out", query.dtype, shape, strides, 0, query.device), by_length


def empty_heads(q: Any, shape: tuple[int, ...], dtype: str, by_length: bool) -> Any:
    """A new output of attention in the memory order that `result_heads` found."""
    batch, count, queries, size = shape
    if by_length:
        return empty_like(q, (batch, queries, count, size), dtype).swapaxes(1, 2)
    return empty_like(q, shape, dtype)
