"""`matmul`: checks, the choice of a configuration, and the table of products that are ready."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weft.errors import LaunchError, fail
from weft.errors import kernels as errors
from weft.kernels import heuristic
from weft.kernels.config import DESCRIBED, VARIANTS, MatmulConfig, config_of, most_sums
from weft.kernels.machines import Machine, machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, fill_zero
from weft.kernels.operands import Matrix, form_of, matrix, read_slowly, why_undescribed
from weft.kernels.product import Product
from weft.runtime import driver
from weft.runtime.arguments import array, extents
from weft.runtime.compiled import CompiledKernel
from weft.runtime.dtypes import ITEMSIZE, dtype_name
from weft.runtime.specialise import as_number

_READY = 1024
"""Above this many kinds of products the table starts anew."""
_FP8 = ("float8_e4m3fn", "float8_e5m2")
_BYTES = ("int8", "uint8")
_FLOATS = ("float16", "bfloat16", "float32")
PAIRS: dict[tuple[str, str], tuple[str, ...]] = {
    ("float16", "float16"): _FLOATS,
    ("bfloat16", "bfloat16"): ("bfloat16", "float16", "float32"),
    ("float32", "float32"): ("float32", "float16", "bfloat16"),
    **{(one, other): ("bfloat16", "float16", "float32") for one in _FP8 for other in _FP8},
    **{(one, other): ("int32", *_FLOATS) for one in _BYTES for other in _BYTES},
}
"""Element types that are multiplied, and those that the output may have, the default first."""
_PATH_FIX = (
    "take the variant cooperative or ping_pong without a cluster, whose warps can copy blocks themselves, or leave the choice "
    "to matmul"
)
_PACK_FIX = "write pack=True, so that another kernel copies it to where it has one, or leave the choice to matmul"

_known: dict[tuple[Any, ...], _Ready] = {}


@dataclass(frozen=True, slots=True)
class _Ready:
    """What `matmul` knows of arrays of one kind. `product` is None where nothing is summed.

    `spans` are the bytes before and behind the addresses of a, b and out."""

    product: Product | None
    shape: tuple[int, int]
    dtype: str
    spans: tuple[tuple[int, int], ...]


def matmul(
    a: Any, b: Any, out: Any = None, *, scale_a: Any = None, scale_b: Any = None, out_dtype: Any = None,
    fast_accumulate: bool = True, variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """a [M, K] times b [K, N], on tensor cores; gives `out` [M, N].

    Operands are matrices of PyTorch, NumPy, CuPy or any other array type, of any strides, so that `a.T` and `b.T` cost nothing.
    Arrays of the host go to the simulator. Both are float16, bfloat16 or float32 (multiplied as tf32: 10 bits of their
    mantissas count), or fp8 or 8-bit integers in any pairing. Sums are of float32, or of int32 for integers. `out` holds the
    operands' type, bfloat16 for fp8 and int32 for integers, unless `out_dtype`, or `out` itself, says otherwise.

    Hopper's tensor core adds products of fp8 with 13 bits of mantissa. With `fast_accumulate` whole sums are formed like that;
    without, those of 128 products, which are then added in float32. That takes longer, and tiles are smaller. Blackwell's keeps
    all bits of float32, so that it makes no difference there.

    `scale_a` multiplies the output by a number or, for each row, by an element of a float32 array [M]; `scale_b` likewise with
    [N] for columns. They are applied to the sums in float32.

    What computes it is chosen by shapes and types. `variant` and `config` (a `MatmulConfig`, or its fields in a dictionary)
    ask for something else. `stream` is as for launches.

    Raises LaunchError: kernels-array, kernels-shapes, kernels-dtypes, kernels-devices, kernels-out-shape, kernels-out-dtype,
    kernels-out-dtype-differs, kernels-out-needed, kernels-out-overlaps, kernels-out-repeats, kernels-scale, kernels-variant,
    kernels-variant-path, kernels-variant-target, kernels-config, kernels-config-kind, kernels-target.
    """
    ready = _ready(a, b, out, scale_a, scale_b, out_dtype, fast_accumulate, variant, config)
    if out is None:
        out = empty_like(a, ready.shape, ready.dtype)
    if ready.product is not None:
        ready.product.run(a, b, out, scale_a, scale_b, stream)
    elif 0 not in ready.shape:
        fill_zero(out)
    return out


def compile_matmul(
    a: Any, b: Any, out: Any = None, *, scale_a: Any = None, scale_b: Any = None, out_dtype: Any = None,
    fast_accumulate: bool = True, variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None,
) -> CompiledKernel:  # fmt: skip
    """The kernel that `matmul` would launch, compiled: its text, registers and shared memory. Neither operand may be empty.

    Raises what `matmul` raises.
    """
    ready = _ready(a, b, out, scale_a, scale_b, out_dtype, fast_accumulate, variant, config)
    if ready.product is None:
        raise fail(errors.EMPTY, shape=list(ready.shape))
    out = empty_like(a, ready.shape, ready.dtype) if out is None else out
    return ready.product.compiled(a, b, out, scale_a, scale_b)


def chosen_config(
    a: Any, b: Any, out: Any = None, *, out_dtype: Any = None, fast_accumulate: bool = True
) -> MatmulConfig:
    """The configuration that `matmul` chooses for these arrays. Raises what `matmul` raises."""
    return heuristic.choose(_problem(a, b, out, out_dtype, fast_accumulate))


def matmul_configs(
    a: Any, b: Any, out: Any = None, *, out_dtype: Any = None, fast_accumulate: bool = True
) -> Iterator[MatmulConfig]:
    """Configurations for these arrays, all of which work, for tuners and benchmarks. Raises what `matmul` raises."""
    return heuristic.candidates(_problem(a, b, out, out_dtype, fast_accumulate))


def _problem(a: Any, b: Any, out: Any, out_dtype: Any, fast: bool) -> heuristic.Problem:
    left, right = matrix("a", a), matrix("b", b)
    dtype = _check(left, right, out, out_dtype)
    _check_not_empty(left, right)
    return _problem_of(left, right, dtype, fast)


def _problem_of(left: Matrix, right: Matrix, dtype: str, fast: bool) -> heuristic.Problem:
    machine = machine_of(target_of(left.device))
    sides = left, right.turned
    described = not any(why_undescribed(side, machine.either_way) for side in sides)
    (m, k), n = left.shape, right.shape[1]
    count = multiprocessors_of(left.device, machine)
    # Only sums of fp8 lose anything in the tensor core, and only on Hopper.
    fast = fast or left.dtype not in _FP8 or not machine.promotes
    slow_a, slow_b = (described and read_slowly(side) for side in sides)
    unit = min(form_of(side, machine.either_way).unit for side in sides)
    sizes = (left.itemsize, ITEMSIZE[dtype])
    return heuristic.Problem(m, n, k, left.dtype, *sizes, described, count, fast, slow_a, slow_b, unit, machine)


def _ready(
    a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any, out_dtype: Any, fast: bool, variant: Any, config: Any
) -> _Ready:
    """What is known of arrays like these; what depends on addresses is checked at each call."""
    try:
        at_a, at_b = a.data_ptr(), b.data_ptr()
        key = (
            a.dtype, a.shape, a.stride(), at_a & 31, a.get_device(), b.dtype, b.shape, b.stride(), at_b & 31, b.get_device(),
            None if out is None else (out.dtype, out.shape, out.stride(), out.data_ptr() & 15, out.get_device()),
            None if scale_a is None else _scale_key(scale_a), None if scale_b is None else _scale_key(scale_b),
            out_dtype, fast, variant, config, None if a.is_cuda else driver.simulated_target().arch,
        )  # fmt: skip
        ready = _known.get(key)
    except (AttributeError, TypeError):
        # No tensors of PyTorch, or a configuration that is a dictionary.
        return _prepare(a, b, out, scale_a, scale_b, out_dtype, fast, variant, config)
    if ready is not None:
        if out is not None:
            _check_overlap(ready.spans, at_a, at_b, out.data_ptr())
        return ready
    ready = _prepare(a, b, out, scale_a, scale_b, out_dtype, fast, variant, config)
    if len(_known) >= _READY:
        _known.clear()
    _known[key] = ready
    return ready


def _scale_key(scale: Any) -> Any:
    if isinstance(scale, (int, float)):
        return ()
    return scale.dtype, scale.shape, scale.stride(), scale.get_device()


def _prepare(
    a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any, out_dtype: Any, fast: bool, variant: Any, config: Any
) -> _Ready:
    left, right = matrix("a", a), matrix("b", b)
    dtype = _check(left, right, out, out_dtype)
    (m, k), n = left.shape, right.shape[1]
    given = None if out is None else matrix("out", out)
    spans = tuple(x.span() for x in (left, right, given) if x is not None)
    kinds = (_scale("scale_a", scale_a, m, "rows", left), _scale("scale_b", scale_b, n, "columns", left))
    if given is not None:
        _check_overlap(spans, left.pointer, right.pointer, given.pointer)
    problem = _problem_of(left, right, dtype, fast)
    asked = config_of(config, variant, problem.machine.usual)
    if asked is not None:
        _check_machine(asked, problem.machine, left.device)
        asked = asked.filled(left.itemsize, problem.stored_by(asked), most_sums(problem.fast and problem.described))
        asked.check(left.itemsize, problem.stored_by(asked), problem.fast)
        _check_variant(asked, left, right, problem.machine)
    if 0 in (m, n, k):
        return _Ready(None, (m, n), dtype, spans)
    _check_target(left.device)
    # An output that `matmul` makes lies row by row at an address that everything divides.
    target = Matrix(dtype, (m, n), (n, 1), 0, left.device) if given is None else given
    if asked is None:
        asked = heuristic.choose(problem)
    sides, (scale_rows, scale_columns) = (left, right.turned), kinds
    if asked.swap:
        sides, (scale_columns, scale_rows), target = (right.turned, left), kinds, target.turned
    product = Product(sides, target, scale_rows, scale_columns, asked, problem.programs, problem.fast, problem.machine)
    return _Ready(product, (m, n), dtype, spans)


# Checks


def _check_not_empty(left: Matrix, right: Matrix) -> None:
    """Raises LaunchError (kernels-empty)."""
    if left.empty or right.empty:
        raise fail(errors.EMPTY, shape=[left.shape[0], right.shape[1]])


def _check(left: Matrix, right: Matrix, out: Any, out_dtype: Any) -> str:
    """The output's type; raises what is wrong with operands and output together."""
    if right.device != left.device:
        raise fail(errors.DEVICES, first=left.place, name="b", other=right.place)
    if left.shape[1] != right.shape[0]:
        raise fail(errors.SHAPES, a=list(left.shape), b=list(right.shape), columns=left.shape[1], rows=right.shape[0])
    allowed = PAIRS.get((left.dtype, right.dtype))
    if allowed is None:
        raise fail(errors.DTYPES, a=left.dtype, b=right.dtype, known=_pairs())
    asked = None if out_dtype is None else _asked(left, right, out_dtype, allowed)
    if out is not None:
        asked = _check_out(matrix("out", out), left, right, asked)
    if asked is not None and asked not in allowed:
        raise fail(errors.OUT_DTYPE, a=left.dtype, b=right.dtype, got=asked, allowed=", ".join(allowed))
    return asked or allowed[0]


def _asked(left: Matrix, right: Matrix, out_dtype: Any, allowed: tuple[str, ...]) -> str:
    """The name of the type that `out_dtype` is. Raises LaunchError (kernels-out-dtype)."""
    try:
        return dtype_name(out_dtype)
    except LaunchError:
        got = repr(out_dtype)
        raise fail(errors.OUT_DTYPE, a=left.dtype, b=right.dtype, got=got, allowed=", ".join(allowed)) from None


def _check_out(out: Matrix, left: Matrix, right: Matrix, asked: str | None) -> str:
    want = (left.shape[0], right.shape[1])
    if out.device != left.device:
        raise fail(errors.DEVICES, first=left.place, name="out", other=out.place)
    if out.shape != want:
        raise fail(errors.OUT_SHAPE, got=list(out.shape), a=list(left.shape), b=list(right.shape), want=list(want))
    if asked not in (None, out.dtype):
        raise fail(errors.OUT_DTYPES_DIFFER, got=out.dtype, want=asked)
    (rows, columns), (down, right_step) = out.shape, map(abs, out.strides)
    # Along one of the dimensions the other's elements all have to fit between two.
    apart = (columns == 1 or right_step > 0) and (rows == 1 or down > 0)
    inner = (columns - 1) * right_step < down or (rows - 1) * down < right_step
    if not (apart and (inner or 1 in out.shape)) and not out.empty:
        raise fail(errors.OUT_REPEATS, shape=list(out.shape), strides=list(out.strides))
    return out.dtype


def _check_overlap(spans: tuple[tuple[int, int], ...], at_a: int, at_b: int, at_out: int) -> None:
    (a_low, a_high), (b_low, b_high), (low, high) = spans
    if at_out + low < at_a + a_high and at_a + a_low < at_out + high:
        raise fail(errors.OUT_OVERLAPS, name="a")
    if at_out + low < at_b + b_high and at_b + b_low < at_out + high:
        raise fail(errors.OUT_OVERLAPS, name="b")


def _scale(name: str, scale: Any, extent: int, what: str, left: Matrix) -> str:
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


def _check_machine(config: MatmulConfig, machine: Machine, device: int) -> None:
    """Raises LaunchError (kernels-variant-target)."""
    if config.variant in VARIANTS and config.variant not in machine.variants:
        known, target = ", ".join(machine.variants), target_of(device).name
        raise fail(errors.VARIANT_TARGET, variant=config.variant, target=target, has=machine.instruction, known=known)


def _check_variant(config: MatmulConfig, left: Matrix, right: Matrix, machine: Machine) -> None:
    """Raises LaunchError (kernels-variant-path)."""
    if (config.variant not in DESCRIBED and config.cluster == 1) or config.pack:
        return
    for name, operand in (("a", left), ("b", right.turned)):
        reason = why_undescribed(operand, machine.either_way)
        if reason:
            variant = f"{config.variant} with cluster={config.cluster}" if config.cluster > 1 else config.variant
            fix = _PACK_FIX if config.in_tensor_memory else _PATH_FIX
            raise fail(errors.VARIANT_PATH, variant=variant, name=name, reason=reason, fix=fix)


def _check_target(device: int) -> None:
    target = target_of(device)
    if not (target.has_wgmma or target.has_tcgen05):
        raise fail(errors.TARGET, target=target.name)


def _pairs() -> str:
    same = [a for a, b in PAIRS if a == b and ITEMSIZE[a] > 1]
    return f"{', '.join(same)} by themselves, and of fp8 and of 8-bit integers in any pairing"
