"""Arrays of float8 as `attention` takes them: their scales, and values turned for the tensor cores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.attend_options import Options
from weft.kernels.attend_plan import AttentionPlan
from weft.kernels.device.attend_narrow import TURNED, turn_values
from weft.kernels.heads import NARROW, Heads
from weft.kernels.machines import place_of
from weft.kernels.memory import empty_like, fill
from weft.plain import as_number
from weft.runtime.arguments import array, extents

SCALES = ("q_scale", "k_scale", "v_scale")


@dataclass(frozen=True, slots=True)
class Turned:
    """How values are turned: the shape [batch, heads, rows, keys rounded up], where rows behind the head size are ones, their
    head size and number of keys, and their strides."""

    shape: tuple[int, int, int, int]
    size: int
    keys: int
    strides: tuple[int, int, int]

    @staticmethod
    def of(v: Heads, rows: int) -> Turned:
        """For values [batch, heads, keys, head size]."""
        batch, count, keys, size = v.shape
        return Turned((batch, count, rows, -(-keys // TURNED) * TURNED), size, keys, v.strides[:3])

    def described(self, v: Heads) -> Heads:
        """Turned values, as TMA reads them."""
        _, count, rows, length = self.shape
        return Heads(v.name, v.dtype, self.shape, (count * rows * length, rows * length, length, 1), 0, v.device)

    def empty(self, v: Any) -> Any:
        """Memory for turned values."""
        return empty_like(v, self.shape, NARROW)

    def turn(self, v: Any, turned: Any, stream: Any) -> None:
        """Launch the kernel that turns them."""
        batch, count, rows, length = self.shape
        grid = (length // TURNED, batch * count)
        turn_values[grid](
            v, turned, self.keys, count, length, *self.strides, self.size, rows - self.size, num_warps=4, stream=stream
        )


def check_narrow(options: Options, q: Heads, k: Heads) -> None:
    """What arrays of float8 cannot be together with. Raises LaunchError: attention-together, attention-scales."""
    if q.dtype != NARROW:
        for name in SCALES:
            if getattr(options, name) is not None:
                raise fail(
                    errors.SCALE_ARRAY, name=name, got=f"given for arrays of {q.dtype}", want="float8 arrays with it"
                )
        return
    for name in ("cu_seqlens_q", "softcap", "alibi", "score_mod"):
        if getattr(options, name) is not None:
            raise fail(errors.TOGETHER, one="arrays of float8", other=name)
    for name, of in zip(SCALES, (q, k, k), strict=True):
        _steps(name, getattr(options, name), of)


def narrow_factor(options: Options) -> float:
    """The product of the scales of q and k that are numbers."""
    return math.prod(float(value) for value in (options.q_scale, options.k_scale) if as_number(value) is not None)


def scale_arguments(options: Options, plan: AttentionPlan, q: Any, k: Any) -> tuple[Any, ...]:
    """The kernel's arguments: for q, k and v a pointer, and steps from a batch, head and block to the next."""
    if not plan.float8:
        return ()
    found: list[Any] = []
    for name in SCALES:
        value = getattr(options, name)
        if as_number(value) is not None or value is None:
            number = float(value) if name == "v_scale" and value is not None else 1.0
            value, steps = _constant(q, number), (0, 0, 0)
        else:
            shape = tuple(value.shape)
            steps = (0, 0, 0) if len(shape) < 2 else (math.prod(shape[1:]), math.prod(shape[2:]), len(shape) - 2)
        found.append((value, *steps))
    return tuple(found)


_constants: dict[tuple[Any, float], Any] = {}


def _constant(like: Any, number: float) -> Any:
    """A float32 array of one element. Those of a GPU are kept."""
    device = like.get_device() if hasattr(like, "get_device") else None
    found = _constants.get((device, number)) if device is not None else None
    if found is None:
        found = empty_like(like, (1,), "float32")
        fill(found, number)
        if device is not None:
            _constants[device, number] = found
    return found


def _steps(name: str, value: Any, of: Heads) -> None:
    if value is None:
        return
    number = as_number(value)
    shapes: list[tuple[int, ...]] = [(), (1,), of.shape[:2]]
    if name != "v_scale":
        shapes.append((*of.shape[:2], -(-of.shape[2] // TURNED)))
    want = f"a positive number, or a contiguous float32 array of shape {' or '.join(str(list(x)) for x in shapes)}"
    if number is not None:
        if isinstance(number, complex) or not 0 < number < math.inf:
            raise fail(errors.SCALE_ARRAY, name=name, got=repr(value), want=want)
        return
    found, measured = array(value), extents(value)
    if found is None or measured is None:
        raise fail(errors.SCALE_ARRAY, name=name, got=repr(value), want=want)
    shape, strides = tuple(measured[0]), tuple(measured[1])
    plain = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    if (
        found.dtype != "float32"
        or shape not in shapes
        or any(a != b for a, b, size in zip(strides, plain, shape, strict=True) if size > 1)
    ):
        got = f"{found.dtype} {list(shape)}, strides {list(strides)}"
        raise fail(errors.SCALE_ARRAY, name=name, got=got, want=want)
    if found.device != of.device:
        raise fail(errors.DEVICES, first=of.place, name=name, other=place_of(found.device))
