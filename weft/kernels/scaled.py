"""`matmul_scaled`: block-scaled matmul (mxfp8, mxfp4, nvfp4) on Blackwell's tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernel import JITFunction
from weft.kernels import heuristic
from weft.kernels.arrays import Described
from weft.kernels.checks import (
    FLOAT_OUTPUTS,
    FP8,
    check_machine,
    check_overlap,
    check_shapes,
    scale_kind,
    type_of_output,
)  # fmt: skip
from weft.kernels.config import PIECE_BYTES, SHARED_BYTES, TENSOR_ROWS, MatmulConfig, config_of
from weft.kernels.device.scaled import matmul_with_scales
from weft.kernels.epilogue import NOTHING, Ending, Given, check_config, ending_of, scaled_by, suits
from weft.kernels.epilogue_plan import Epilogue
from weft.kernels.machines import Machine, machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, fill_zero
from weft.kernels.model import Problem, cost, tiles_of
from weft.kernels.multiply import matmul
from weft.kernels.operands import GRANULE, Matrix, matrix, why_undescribed
from weft.kernels.plan import Form, OutputForm, Plan
from weft.kernels.product import Product
from weft.kernels.scaled_plan import (
    FORMATS,
    PIECE,
    ROWS,
    RUNS,
    ScaledFormat,
    ScaledPlan,
    accumulator_tiles,
    bytes_of_scales,
    make_scaled_plan,
)  # fmt: skip
from weft.locks import lazy
from weft.runtime.arguments import array, extents
from weft.runtime.compiled import CompiledKernel
from weft.runtime.dtypes import ITEMSIZE

WIDTHS = (256, 128)
"""Tile widths: multiples of the 128 rows whose scales are stored together."""
_MOST_STAGES = 8
_ALIGNED = 32
"""Addresses are reduced modulo this many bytes in the key of prepared products; only alignment matters."""


@dataclass(frozen=True, kw_only=True)
class ScaledProduct(Product):
    """A matmul of operands with block scales. Operands are matrices of bytes, each with an array of scales."""

    format: str

    def _plan(self, a: Form, b: Form, out: OutputForm, epilogue: Epilogue, config: MatmulConfig) -> Plan:
        return make_scaled_plan(a, b, out, epilogue, config, self.format, self.transposable)

    @property
    def transposable(self) -> tuple[int, ...]:
        """Element sizes that tensor cores read in either major-ness; fp4, with two elements per byte, must be K-major."""
        return transposable_of(FORMATS[self.format], self.machine.transposable)

    @property
    def integers(self) -> bool:
        """False: accumulators are float32, although uint8 arrays may hold the elements."""
        return False

    @lazy
    def kernel(self) -> JITFunction[..., Any]:
        """The matmul kernel."""
        return matmul_with_scales

    def _launched(self, a: Any, b: Any, out: Any, values: tuple[Any, ...], stream: Any) -> CompiledKernel:
        """Launch the matmul kernel, which has more arguments than a, b and output."""
        launch: Callable[..., CompiledKernel] = self.kernel[self.grid]
        return launch(*self.arguments(a, b, out, self.ended(values)), **self.options, stream=stream)

    @lazy
    def scales(self) -> tuple[Described, Described]:
        """Descriptors of both operands' scales."""
        plan = self.plan
        assert isinstance(plan, ScaledPlan)
        first, second = (
            _described(x, FORMATS[self.format], side.block, side.layout)
            for x, side in ((self.a, plan.a_scales), (self.b, plan.b_scales))
        )
        return first, second

    def arguments(self, a: Any, b: Any, out: Any, given: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """The kernel's arguments from arrays in the kernel's order; `a` and `b` are pairs of elements and scales."""
        (left, left_scales), (right, right_scales) = a, b
        of_a, of_b = self.scales
        first, second, *rest = super().arguments(left, right, out, given)
        return first, second, of_a.of(left_scales), of_b.of(right_scales), *rest


def matmul_scaled(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any = None, *, format: str, out_dtype: Any = None,  # noqa: A002
    factor: Any = None, bias: Any = None, activation: Any = None, residual: Any = None, epilogue: Any = None,
    extras: Any = None, out_scale: Any = None, out_scales: Any = None, row_squares: Any = None, row_peaks: Any = None,
    variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """a [M, K] times b [K, N], with each run of elements along K multiplied by its scale; returns `out` [M, N].

    Formats of both operands, as `weft.nvidia.scaled.quantise` makes them from host arrays:

    - "mxfp8": float8_e4m3fn or float8_e5m2 in any pairing, with a power-of-two scale (uint8 exponent) per 32 elements;
    - "mxfp4": e2m1, two per byte along K with the first in the low half, uint8 [M, K / 2] and [K / 2, N]; scales as in mxfp8;
    - "nvfp4": e2m1 likewise, with a float8_e4m3fn scale per 16 elements.

    `scale_a` and `scale_b` are scales in the order of `weft.nvidia.scaled.scale_blocks`: [M / 128, K / run / 4, 32, 4, 4],
    rounded up, contiguous; for b the same with N instead of M. For y [N, K] quantised by `quantise`, pass its `.elements.T` as
    `b`. TMA reads operands in place: they must be contiguous along K (mxfp8 along either dimension) with a pitch that is a
    multiple of 16 bytes. Accumulators are float32; `out` is bfloat16, float16, float32 or fp8.

    `factor`, a number or a float32 array of one element, multiplies the sums. The other steps of the epilogue, `bias`,
    `activation`, `residual`, `epilogue` with `extras`, statistics and scales of rows, and `out_scale`, are those of `matmul`.

    `variant`, `config` and `stream` are as in `matmul`, with tiles of 128 or 256 columns. Requires Blackwell.

    Raises LaunchError: kernels-scaled-target, kernels-scaled-format, kernels-scaled-elements, kernels-scaled-path,
    kernels-scaled-scales, kernels-scaled-factor, and what `matmul` raises of shapes, outputs, epilogues and configurations.
    """
    given = Given(
        factor, None, bias, activation, False, residual, epilogue, extras, out_scale, out_scales, row_squares, row_peaks
    )
    found = _prepare(a, b, scale_a, scale_b, out, format, out_dtype, given, variant, config)
    if out is None:
        out = empty_like(a, found.shape, found.dtype)
    if found.product is not None:
        found.product.run((a, scale_a), (b, scale_b), out, given.values, stream)
    elif 0 not in found.shape:
        _multiply_nothing(a, out, given, stream)
    return out


def _multiply_nothing(a: Any, out: Any, given: Given, stream: Any) -> None:
    """The product where K is 0: the epilogue of zeros."""
    (rows, columns), step = out.shape, GRANULE // ITEMSIZE["bfloat16"]
    zeros = empty_like(a, (rows, step), "bfloat16"), empty_like(a, (columns, step), "bfloat16")
    for value in zeros:
        fill_zero(value)
    matmul(zeros[0], zeros[1].T, out, **given._asdict(), stream=stream)


def compile_scaled(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any = None, *, format: str, out_dtype: Any = None,  # noqa: A002
    factor: Any = None, bias: Any = None, activation: Any = None, residual: Any = None, epilogue: Any = None,
    extras: Any = None, out_scale: Any = None, out_scales: Any = None, row_squares: Any = None, row_peaks: Any = None,
    variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None,
) -> CompiledKernel:  # fmt: skip
    """The kernel that `matmul_scaled` would launch, compiled. Raises what that raises, and kernels-empty."""
    given = Given(
        factor, None, bias, activation, False, residual, epilogue, extras, out_scale, out_scales, row_squares, row_peaks
    )
    found = _prepare(a, b, scale_a, scale_b, out, format, out_dtype, given, variant, config)
    if found.product is None:
        raise fail(errors.EMPTY, shape=list(found.shape))
    out = empty_like(a, found.shape, found.dtype) if out is None else out
    return found.product.compiled((a, scale_a), (b, scale_b), out, given.values)


@dataclass(frozen=True, slots=True)
class _Found:
    """The prepared product (None if K, M or N is 0) with its output's shape and type."""

    product: ScaledProduct | None
    shape: tuple[int, int]
    dtype: str


def _prepare(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any, format: str, out_dtype: Any, given: Given,  # noqa: A002
    variant: str | None, config: Any,
) -> _Found:  # fmt: skip
    left, right = matrix("a", a), matrix("b", b)
    target = target_of(left.device)
    if not target.has_tcgen05:
        raise fail(errors.SCALED_TARGET, target=target.name)
    row = FORMATS.get(format)
    if row is None:
        raise fail(errors.SCALED_FORMAT, format=format, known=", ".join(map(repr, FORMATS)))
    check_shapes(left, right)
    _check_elements(left, right, format, row)
    dtype, shape = type_of_output(left, right, out, out_dtype, (*FLOAT_OUTPUTS, *FP8)), (left.shape[0], right.shape[1])
    for name, scale, side in (("scale_a", scale_a, left), ("scale_b", scale_b, right.transposed)):
        _check_scales(name, scale, side, format, row)
    # An output that is allocated here is row-major; address 0 stands for one with any alignment.
    result = Matrix(dtype, shape, (shape[1], 1), 0, left.device) if out is None else matrix("out", out)
    if out is not None:
        spans = tuple(x.span() for x in (left, right, result))
        check_overlap(spans, left.pointer, right.pointer, result.pointer)
    ending = _ending_of(given, left, right, dtype, None if out is None else result)
    machine = machine_of(target)
    requested = config_of(config, variant, machine.usual)
    if requested is not None:
        check_machine(requested, machine, left.device)
        requested = _filled(requested, row, ITEMSIZE[dtype])
        check_config(requested, ending)
    if left.empty or right.empty:
        return _Found(None, shape, dtype)
    _check_paths(left, right, transposable_of(row, machine.transposable))
    # Prepared products are shared by arrays of equal alignment.
    left, right, result = (replace(x, pointer=x.pointer % _ALIGNED) for x in (left, right, result))
    return _Found(_product(left, right, result, ending, requested, machine, format), shape, dtype)


@lru_cache(maxsize=1024)
def _product(
    left: Matrix, right: Matrix, out: Matrix, ending: Ending, requested: MatmulConfig | None, machine: Machine, format: str  # noqa: A002
) -> ScaledProduct:  # fmt: skip
    (m, k), n = left.shape, right.shape[1]
    count = multiprocessors_of(left.device, machine)
    finish = ending.plan.slots
    problem = Problem(m, n, k, left.dtype, 1, out.itemsize, True, count, machine=machine, finish=finish)
    config = requested or choose(problem, FORMATS[format], ending)
    sides = (left, right.transposed)
    if config.swap:
        sides, ending, out = (right.transposed, left), ending.transposed, out.transposed
    return ScaledProduct(sides, out, ending, config, count, machine=machine, format=format)


def choose(problem: Problem, row: ScaledFormat, ending: Ending = NOTHING) -> MatmulConfig:
    """The fastest configuration by `weft.kernels.model` that takes the epilogue; sizes along K in `problem` are in bytes."""
    rates = problem.machine.rates

    def whole(config: MatmulConfig) -> float:
        # If only one accumulator tile fits next to the scales, the epilogue does not overlap the next mainloop.
        stored = config.block_m * config.block_n / rates.stored if accumulator_tiles(config.block_n) == 1 else 0
        return cost(problem, config) + stored * -(-tiles_of(problem, config) // problem.programs)

    least = replace(problem, m=max(problem.m, TENSOR_ROWS), n=max(problem.n, WIDTHS[-1]))
    wide = (config for config in heuristic.candidates(least) if config.block_n in WIDTHS and suits(config, ending))
    return min((_staged(config, row, problem.stored_by(config)) for config in wide), key=whole)


def transposable_of(row: ScaledFormat, transposable: tuple[int, ...]) -> tuple[int, ...]:
    """Element sizes that tensor cores read in either major-ness; none for formats with two elements per byte."""
    return transposable if row.per_byte == 1 else ()


def _staged(config: MatmulConfig, row: ScaledFormat, out_itemsize: int) -> MatmulConfig:
    """The configuration with as many of its stages as fit next to the scales."""
    fitting = (
        n for n in range(config.stages, 2, -1) if _shared(replace(config, stages=n), row, out_itemsize) <= SHARED_BYTES
    )
    return replace(config, stages=next(fitting, 2))


def _shared(config: MatmulConfig, row: ScaledFormat, out_itemsize: int) -> int:
    return config.shared_bytes(1, out_itemsize) + config.stages * bytes_of_scales(config, row.words)


def _filled(config: MatmulConfig, row: ScaledFormat, out_itemsize: int) -> MatmulConfig:
    """The configuration with all sizes filled in and checked. Raises LaunchError: kernels-variant, kernels-config."""
    stored = 4 if config.splits > 1 else out_itemsize
    stages = config.stages
    config = replace(config, stages=stages or _MOST_STAGES).filled(1, stored)
    config = config if stages else _staged(config, row, stored)
    config.check(1, stored)
    used = _shared(config, row, stored)
    for field, good, rule in (
        ("block_n", config.block_n in WIDTHS, "128 or 256, of which scales lie together"),
        ("block_k", config.block_k == PIECE_BYTES, f"{PIECE_BYTES}, in bytes, where there are scales"),
        ("pack", not config.pack, "False where there are scales"),
        (
            "stages",
            used <= SHARED_BYTES,
            f"so few that a program's {used} bytes of shared memory fit in {SHARED_BYTES}",
        ),
    ):
        if not good:
            raise fail(errors.CONFIG, field=field, value=getattr(config, field), rule=rule, variant=config.variant)
    return config


# Checks


def _check_elements(left: Matrix, right: Matrix, format: str, row: ScaledFormat) -> None:  # noqa: A002
    """Raises LaunchError (kernels-scaled-elements)."""
    for name, x in (("a", left), ("b", right)):
        if x.dtype not in row.elements:
            held = " or ".join(row.elements)
            raise fail(errors.SCALED_ELEMENTS, name=name, got=x.dtype, format=format, want=held)


def _check_paths(left: Matrix, right: Matrix, transposable: tuple[int, ...]) -> None:
    """Raises LaunchError (kernels-scaled-path)."""
    for name, side in (("a", left), ("b", right.transposed)):
        reason = why_undescribed(side, transposable)
        if reason:
            raise fail(errors.SCALED_PATH, name=name, reason=reason)


def _check_scales(name: str, given: Any, side: Matrix, format: str, row: ScaledFormat) -> None:  # noqa: A002
    """Check the scales of an operand [rows, K]. Raises LaunchError (kernels-scaled-scales, kernels-devices)."""
    want = _shape_of_scales(side, row)
    found, measured = array(given), extents(given)
    got = f"a {type(given).__name__}"
    if found is not None and measured is not None:
        shape, strides = measured
        if found.device != side.device:
            raise fail(errors.DEVICES, first=side.place, name=name, other=replace(side, device=found.device).place)
        over = found.pointer % GRANULE
        lies = zip(shape, strides, _contiguous(shape), strict=True)
        whole = not over and all(size == 1 or stride == step for size, stride, step in lies)
        if (found.dtype, tuple(shape)) == (row.scales, want) and (whole or 0 in want):
            return
        place = f", {over} bytes behind a multiple of {GRANULE}" if over else ""
        got = f"a {found.dtype} array of shape {list(shape)} and strides {list(strides)}{place}"
    rows, runs = side.shape[0], -(-side.shape[1] * row.per_byte // row.run)
    raise fail(
        errors.SCALED_SCALES, name=name, got=got, format=format, dtype=row.scales, want=list(want), rows=rows, runs=runs
    )


def _shape_of_scales(side: Matrix, row: ScaledFormat) -> tuple[int, ...]:
    """Shape of the scales of an operand [rows, K]."""
    rows, k = side.shape
    return -(-rows // ROWS), -(-k * row.per_byte // (row.run * RUNS)), PIECE[0], ROWS // PIECE[0], RUNS


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array."""
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _kind_of_factor(factor: Any, left: Matrix) -> str:
    """The kind of the factor, as a kind of scale in `Plan`. Raises LaunchError (kernels-scaled-factor, kernels-devices)."""
    measured = extents(factor) if factor is not None and array(factor) is not None else None
    if measured is not None and any(size != 1 for size in measured[0]):
        raise fail(errors.SCALED_FACTOR, got=f"an array of shape {list(measured[0])}")
    return scale_kind("factor", factor, 1, "products", left)


def _ending_of(given: Given, left: Matrix, right: Matrix, dtype: str, out: Matrix | None) -> Ending:
    """The epilogue. Raises LaunchError: kernels-scaled-factor, kernels-out-overlaps, kernels-written-overlaps, and what
    `ending_of` raises."""
    kind = _kind_of_factor(given.scale_a, left)
    ending = scaled_by(ending_of(given._replace(scale_a=None), left, right.shape[1], dtype, out), kind)
    values = given.values
    if out is not None:
        ending.check_overlap(values, out.span(), out.pointer)
    if ending.plan.written:
        ending.check_written(values, [(name, x.pointer, x.span()) for name, x in (("a", left), ("b", right))])
    return ending


def _described(x: Matrix, row: ScaledFormat, block: tuple[int, ...], layout: Any) -> Described:
    """Descriptors of the scales of an operand [rows, K]."""
    shape = (*_shape_of_scales(x, row)[:2], *PIECE)
    return Described(shape, _contiguous(shape), block, layout)
