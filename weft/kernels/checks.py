"""Checks of operands, outputs, scales and configurations of `weft.kernels`."""

from __future__ import annotations

from typing import Any

from weft.errors import LaunchError, fail
from weft.errors import kernels as errors
from weft.kernels.config import DESCRIBED, VARIANTS, MatmulConfig
from weft.kernels.machines import Machine, target_of
from weft.kernels.operands import Matrix, matrix, why_undescribed
from weft.plain import as_number
from weft.runtime.arguments import array, extents
from weft.runtime.dtypes import ITEMSIZE, dtype_name

_BYTES = ("int8", "uint8")
_FLOATS = ("float16", "bfloat16", "float32")
FP8 = ("float8_e4m3fn", "float8_e5m2")
FLOAT_OUTPUTS = ("bfloat16", "float16", "float32")
"""Output types for 8-bit floats and scaled operands, the default first."""
PAIRS: dict[tuple[str, str], tuple[str, ...]] = {
    ("float16", "float16"): (*_FLOATS, *FP8),
    ("bfloat16", "bfloat16"): (*FLOAT_OUTPUTS, *FP8),
    ("float32", "float32"): ("float32", "float16", "bfloat16", *FP8),
    **{(one, other): (*FLOAT_OUTPUTS, *FP8) for one in FP8 for other in FP8},
    **{(one, other): ("int32", *_FLOATS, *FP8) for one in _BYTES for other in _BYTES},
}
"""Supported pairs of operand types, each with the allowed output types, the default first."""
_PATH_FIX = (
    "take the variant cooperative or ping_pong without a cluster, whose warps can copy blocks themselves, or leave the choice "
    "to matmul"
)
_PACK_FIX = "write pack=True, so that another kernel copies it to where it has one, or leave the choice to matmul"


def check_not_empty(left: Matrix, right: Matrix) -> None:
    """Raises LaunchError (kernels-empty)."""
    if left.empty or right.empty:
        raise fail(errors.EMPTY, shape=[left.shape[0], right.shape[1]])


def check_shapes(left: Matrix, right: Matrix) -> None:
    """Raises LaunchError (kernels-devices, kernels-shapes)."""
    if right.device != left.device:
        raise fail(errors.DEVICES, first=left.place, name="b", other=right.place)
    if left.shape[1] != right.shape[0]:
        raise fail(errors.SHAPES, a=list(left.shape), b=list(right.shape), columns=left.shape[1], rows=right.shape[0])


def types_of_output(left: Matrix, right: Matrix) -> tuple[str, ...]:
    """Allowed output types, the default first. Raises LaunchError (kernels-dtypes)."""
    allowed = PAIRS.get((left.dtype, right.dtype))
    if allowed is None:
        which, to = _converted(left.dtype, right.dtype)
        raise fail(errors.DTYPES, a=left.dtype, b=right.dtype, which=which, to=to, known=_pairs())
    return allowed


def _converted(a: str, b: str) -> tuple[str, str]:
    """Which operand to convert, and to what type: to the other's; if either would do to the narrower one, and to floats."""
    good = [dtype for dtype in (a, b) if (dtype, dtype) in PAIRS]
    if not good:
        return "both", "float32"
    to = min(good, key=lambda dtype: (ITEMSIZE[dtype], dtype in _BYTES))
    return ("b" if to == a else "a"), to


def type_of_output(left: Matrix, right: Matrix, out: Any, out_dtype: Any, allowed: tuple[str, ...]) -> str:
    """The output's type. Raises LaunchError: kernels-out-dtype, kernels-out-dtype-differs, kernels-out-shape,
    kernels-out-repeats, kernels-devices."""
    requested = None if out_dtype is None else _requested_type(left, right, out_dtype, allowed)
    if out is not None:
        found = out if isinstance(out, Matrix) else matrix("out", out)
        requested = _check_out(found, left, right, requested)
    if requested is not None and requested not in allowed:
        raise fail(errors.OUT_DTYPE, a=left.dtype, b=right.dtype, got=requested, allowed=", ".join(allowed))
    return requested or allowed[0]


def _requested_type(left: Matrix, right: Matrix, out_dtype: Any, allowed: tuple[str, ...]) -> str:
    """The canonical name of `out_dtype`. Raises LaunchError (kernels-out-dtype)."""
    try:
        return dtype_name(out_dtype)
    except LaunchError:
        got = repr(out_dtype)
        raise fail(errors.OUT_DTYPE, a=left.dtype, b=right.dtype, got=got, allowed=", ".join(allowed)) from None


def _check_out(out: Matrix, left: Matrix, right: Matrix, requested: str | None) -> str:
    want = (left.shape[0], right.shape[1])
    if out.device != left.device:
        raise fail(errors.DEVICES, first=left.place, name="out", other=out.place)
    if out.shape != want:
        raise fail(errors.OUT_SHAPE, got=list(out.shape), a=list(left.shape), b=list(right.shape), want=list(want))
    if requested not in (None, out.dtype):
        raise fail(errors.OUT_DTYPES_DIFFER, got=out.dtype, want=requested)
    (rows, columns), (down, right_step) = out.shape, map(abs, out.strides)
    # Elements are disjoint if one dimension's full extent fits within a single stride of the other.
    apart = (columns == 1 or right_step > 0) and (rows == 1 or down > 0)
    inner = (columns - 1) * right_step < down or (rows - 1) * down < right_step
    if not (apart and (inner or 1 in out.shape)) and not out.empty:
        raise fail(errors.OUT_REPEATS, shape=list(out.shape), strides=list(out.strides))
    return out.dtype


def check_overlap(spans: tuple[tuple[int, int], ...], at_a: int, at_b: int, at_out: int) -> None:
    """Refuse an output that overlaps an operand; `spans` are the byte ranges of a, b and the output relative to their
    addresses.

    Raises LaunchError (kernels-out-overlaps)."""
    (a_low, a_high), (b_low, b_high), (low, high) = spans[0], spans[1], spans[-1]
    if at_out + low < at_a + a_high and at_a + a_low < at_out + high:
        raise fail(errors.OUT_OVERLAPS, name="a")
    if at_out + low < at_b + b_high and at_b + b_low < at_out + high:
        raise fail(errors.OUT_OVERLAPS, name="b")


def scale_kind(name: str, scale: Any, extent: int, what: str, left: Matrix) -> str:
    """The kind of a scale (see `Plan`). Raises LaunchError (kernels-scale, kernels-devices)."""
    if scale is None:
        return ""
    found = array(scale)
    if found is None:
        if as_number(scale) is None:
            raise fail(errors.SCALE, name=name, got=f"a {type(scale).__name__}", want=extent, what=what)
        return "number"
    measured = extents(scale)
    assert measured is not None
    shape, strides = measured
    if found.device != left.device:
        raise fail(errors.DEVICES, first=left.place, name=name, other=Matrix("", (1, 1), (1, 1), 0, found.device).place)
    long = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    one, each = not long, long == [(extent, 1)]
    if found.dtype != "float32" or not (one or each):
        got = f"a {found.dtype} array of shape {list(shape)} and strides {list(strides)}"
        raise fail(errors.SCALE, name=name, got=got, want=extent, what=what)
    return "one" if one else "each"


def check_machine(config: MatmulConfig, machine: Machine, device: int) -> None:
    """Raises LaunchError (kernels-variant-target)."""
    if config.variant in VARIANTS and config.variant not in machine.variants:
        known, target = ", ".join(machine.variants), target_of(device).name
        raise fail(errors.VARIANT_TARGET, variant=config.variant, target=target, has=machine.instruction, known=known)


def check_paths(config: MatmulConfig, left: Matrix, right: Matrix, machine: Machine) -> None:
    """Raises LaunchError (kernels-variant-path)."""
    if (config.variant not in DESCRIBED and config.ctas == 1) or config.pack:
        return
    for name, operand in (("a", left), ("b", right.transposed)):
        reason = why_undescribed(operand, machine.transposable)
        if reason:
            fields = ", ".join(f"{x}={getattr(config, x)}" for x in ("cluster", "shares") if getattr(config, x) > 1)
            variant = f"{config.variant} with {fields}" if fields else config.variant
            fix = _PACK_FIX if config.in_tensor_memory else _PATH_FIX
            raise fail(errors.VARIANT_PATH, variant=variant, name=name, reason=reason, fix=fix)


def check_target(device: int) -> None:
    """Raises LaunchError (kernels-target)."""
    target = target_of(device)
    if not (target.has_wgmma or target.has_tcgen05):
        raise fail(errors.TARGET, target=target.name)


def _pairs() -> str:
    same = [a for a, b in PAIRS if a == b and ITEMSIZE[a] > 1]
    return f"{', '.join(same)} by themselves, and of fp8 and of 8-bit integers in any pairing"
