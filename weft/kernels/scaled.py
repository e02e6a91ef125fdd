"""`matmul_scaled`: products of small floats that have a scale for each run of elements along K, on Blackwell's tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
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
    OF_SMALL,
    check_machine,
    check_overlap,
    check_shapes,
    scale_kind,
    type_of_output,
)  # fmt: skip
from weft.kernels.config import PIECE_BYTES, SHARED_BYTES, TENSOR_ROWS, MatmulConfig, config_of
from weft.kernels.device.scaled import matmul_with_scales
from weft.kernels.machines import Machine, machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, fill_zero
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
    bytes_of_scales,
    make_scaled_plan,
    tiles_of_sums,
)  # fmt: skip
from weft.locks import lazy
from weft.runtime.arguments import array, extents
from weft.runtime.compiled import CompiledKernel
from weft.runtime.dtypes import ITEMSIZE

WIDTHS = (256, 128)
"""Columns of a tile: those whose scales lie together."""
_MOST_STAGES = 8
_ALIGNED = 32
"""What matters of an address: what is left of it by so many bytes."""


@dataclass(frozen=True, kw_only=True)
class ScaledProduct(Product):
    """A product of operands with scales. Operands are matrices of bytes; with each comes the array of its scales."""

    format: str

    def _plan(self, a: Form, b: Form, out: OutputForm, scales: tuple[str, str], config: MatmulConfig) -> Plan:
        return make_scaled_plan(a, b, out, *scales, config, self.format, self.either_way)

    @property
    def either_way(self) -> tuple[int, ...]:
        """Bytes of elements that tensor cores read along either dimension: not those of which a byte has two."""
        return either_way_of(FORMATS[self.format], self.machine.either_way)

    @property
    def integers(self) -> bool:
        """Sums are floats, though bytes may hold the elements."""
        return False

    @property
    def kernel(self) -> JITFunction[..., Any]:
        """The kernel that multiplies."""
        return matmul_with_scales

    @lazy
    def scales(self) -> tuple[Described, Described]:
        """Descriptors of the operands' scales."""
        plan = self.plan
        assert isinstance(plan, ScaledPlan)
        first, second = (
            _described(x, FORMATS[self.format], side.block, side.layout)
            for x, side in ((self.a, plan.a_scales), (self.b, plan.b_scales))
        )
        return first, second

    def arguments(self, a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any) -> tuple[Any, ...]:
        """Arguments of the kernel, from arrays in its own order; `a` and `b` are elements and their scales."""
        (left, left_scales), (right, right_scales) = a, b
        of_a, of_b = self.scales
        first, second, *rest = super().arguments(left, right, out, scale_a, scale_b)
        return first, second, of_a.of(left_scales), of_b.of(right_scales), *rest


def matmul_scaled(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any = None, *, format: str, out_dtype: Any = None,  # noqa: A002
    factor: Any = None, variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """a [M, K] times b [K, N], each run of elements along K multiplied by its scale first; gives `out` [M, N].

    Formats of both operands, as `weft.nvidia.scaled.quantise` makes them of host arrays:

    - "mxfp8": float8_e4m3fn or float8_e5m2 in any pairing, and a power of two for 32 elements, uint8;
    - "mxfp4": e2m1, two to a byte along K, the first in the low half, uint8 [M, K / 2] and [K / 2, N]; scales as of mxfp8;
    - "nvfp4": e2m1 likewise, and a float8_e4m3fn for 16 elements.

    `scale_a` and `scale_b` are scales in the order of `weft.nvidia.scaled.scale_blocks`: [M / 128, K / run / 4, 32, 4, 4],
    rounded up, contiguous, for b the same of its columns. An array that quantise has made of y [N, K] is `b` as `.elements.T`.
    Memory is read by TMA as it lies: rows, or columns, must be contiguous along K (of mxfp8 along either dimension) and a
    multiple of 16 bytes apart. Sums are of float32; `out` holds bfloat16, float16 or float32. `factor` multiplies it, a number
    or a float32 array of one element.

    `variant`, `config` and `stream` are as in `matmul`, with tiles of 128 or 256 columns. Only Blackwell does this.

    Raises LaunchError: kernels-scaled-target, kernels-scaled-format, kernels-scaled-elements, kernels-scaled-path,
    kernels-scaled-scales, kernels-scaled-factor, and what `matmul` raises of shapes, outputs and configurations.
    """
    found = _prepare(a, b, scale_a, scale_b, out, format, out_dtype, factor, variant, config)
    if out is None:
        out = empty_like(a, found.shape, found.dtype)
    if found.product is not None:
        found.product.run((a, scale_a), (b, scale_b), out, factor, None, stream)
    elif 0 not in found.shape:
        fill_zero(out)
    return out


def compile_scaled(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any = None, *, format: str, out_dtype: Any = None,  # noqa: A002
    factor: Any = None, variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None,
) -> CompiledKernel:  # fmt: skip
    """The kernel that `matmul_scaled` would launch, compiled. Raises what that raises, and kernels-empty."""
    found = _prepare(a, b, scale_a, scale_b, out, format, out_dtype, factor, variant, config)
    if found.product is None:
        raise fail(errors.EMPTY, shape=list(found.shape))
    out = empty_like(a, found.shape, found.dtype) if out is None else out
    return found.product.compiled((a, scale_a), (b, scale_b), out, factor, None)


@dataclass(frozen=True, slots=True)
class _Found:
    """The product, or None where nothing is summed, and its output."""

    product: ScaledProduct | None
    shape: tuple[int, int]
    dtype: str


def _prepare(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any, format: str, out_dtype: Any, factor: Any, variant: str | None,  # noqa: A002
    config: Any,
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
    dtype, shape = type_of_output(left, right, out, out_dtype, OF_SMALL), (left.shape[0], right.shape[1])
    for name, given, side in (("scale_a", scale_a, left), ("scale_b", scale_b, right.turned)):
        _check_scales(name, given, side, format, row)
    kind = _kind_of_factor(factor, left)
    # An output that is made lies row by row at an address that everything divides.
    result = Matrix(dtype, shape, (shape[1], 1), 0, left.device) if out is None else matrix("out", out)
    if out is not None:
        spans = tuple(x.span() for x in (left, right, result))
        check_overlap(spans, left.pointer, right.pointer, result.pointer)
    machine = machine_of(target)
    asked = config_of(config, variant, machine.usual)
    if asked is not None:
        check_machine(asked, machine, left.device)
        asked = _filled(asked, row, ITEMSIZE[dtype])
    if left.empty or right.empty:
        return _Found(None, shape, dtype)
    _check_paths(left, right, either_way_of(row, machine.either_way))
    # What is ready for arrays does for others that are as well aligned.
    left, right, result = (replace(x, pointer=x.pointer % _ALIGNED) for x in (left, right, result))
    return _Found(_product(left, right, result, kind, asked, machine, format), shape, dtype)


@lru_cache(maxsize=1024)
def _product(
    left: Matrix, right: Matrix, out: Matrix, factor: str, asked: MatmulConfig | None, machine: Machine, format: str  # noqa: A002
) -> ScaledProduct:  # fmt: skip
    (m, k), n = left.shape, right.shape[1]
    count = multiprocessors_of(left.device, machine)
    problem = heuristic.Problem(m, n, k, left.dtype, 1, out.itemsize, True, count, machine=machine)
    config = asked or choose(problem, FORMATS[format])
    sides, factors = (left, right.turned), (factor, "")
    if config.swap:
        sides, factors, out = (right.turned, left), ("", factor), out.turned
    return ScaledProduct(sides, out, *factors, config, count, machine=machine, format=format)


def choose(problem: heuristic.Problem, row: ScaledFormat) -> MatmulConfig:
    """The configuration that the model of `weft.kernels.heuristic` finds fastest; of `problem` the lengths are in bytes."""
    rates = problem.machine.rates

    def cost(config: MatmulConfig) -> float:
        # Where sums of one tile only fit beside the scales, nothing is multiplied while they are stored.
        stored = config.block_m * config.block_n / rates.stored if tiles_of_sums(config.block_n) == 1 else 0
        return heuristic.cost(problem, config) + stored * -(-heuristic.tiles_of(problem, config) // problem.programs)

    least = replace(problem, m=max(problem.m, TENSOR_ROWS), n=max(problem.n, WIDTHS[-1]))
    wide = (config for config in heuristic.candidates(least) if config.block_n in WIDTHS)
    return min((_staged(config, row, problem.stored_by(config)) for config in wide), key=cost)


def either_way_of(row: ScaledFormat, either_way: tuple[int, ...]) -> tuple[int, ...]:
    """Bytes of elements that tensor cores read along either dimension: none where a byte has two elements."""
    return either_way if row.per_byte == 1 else ()


def _staged(config: MatmulConfig, row: ScaledFormat, out_itemsize: int) -> MatmulConfig:
    """As many stages as fit beside the scales, up to those that it has."""
    fitting = (
        n for n in range(config.stages, 2, -1) if _shared(replace(config, stages=n), row, out_itemsize) <= SHARED_BYTES
    )
    return replace(config, stages=next(fitting, 2))


def _shared(config: MatmulConfig, row: ScaledFormat, out_itemsize: int) -> int:
    return config.shared_bytes(1, out_itemsize) + config.stages * bytes_of_scales(config, row.words)


def _filled(config: MatmulConfig, row: ScaledFormat, out_itemsize: int) -> MatmulConfig:
    """The configuration with no size left open. Raises LaunchError: kernels-variant, kernels-config."""
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


def _check_paths(left: Matrix, right: Matrix, either_way: tuple[int, ...]) -> None:
    """Raises LaunchError (kernels-scaled-path)."""
    for name, side in (("a", left), ("b", right.turned)):
        reason = why_undescribed(side, either_way)
        if reason:
            raise fail(errors.SCALED_PATH, name=name, reason=reason)


def _check_scales(name: str, given: Any, side: Matrix, format: str, row: ScaledFormat) -> None:  # noqa: A002
    """Raises LaunchError (kernels-scaled-scales, kernels-devices) of the scales of an operand, seen as [rows, K]."""
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
    """Shape of the scales of an operand, seen as [rows, K]."""
    rows, k = side.shape
    return -(-rows // ROWS), -(-k * row.per_byte // (row.run * RUNS)), PIECE[0], ROWS // PIECE[0], RUNS


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of an array whose elements follow one another."""
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _kind_of_factor(factor: Any, left: Matrix) -> str:
    """As a kind of scale of `Plan`. Raises LaunchError (kernels-scaled-factor, kernels-devices)."""
    measured = extents(factor) if factor is not None and array(factor) is not None else None
    if measured is not None and any(size != 1 for size in measured[0]):
        raise fail(errors.SCALED_FACTOR, got=f"an array of shape {list(measured[0])}")
    return scale_kind("factor", factor, 1, "products", left)


def _described(x: Matrix, row: ScaledFormat, block: tuple[int, ...], layout: Any) -> Described:
    """Descriptors of the scales of an operand, seen as [rows, K]."""
    shape = (*_shape_of_scales(x, row)[:2], *PIECE)
    return Described(shape, _contiguous(shape), block, layout)
