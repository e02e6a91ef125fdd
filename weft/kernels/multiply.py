"""`matmul`: the choice of a configuration, and the table of prepared products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels import heuristic
from weft.kernels.checks import (
    FP8,
    check_machine,
    check_not_empty,
    check_overlap,
    check_paths,
    check_shapes,
    check_target,
    scale_kind,
    type_of_output,
    types_of_output,
)  # fmt: skip
from weft.kernels.config import MatmulConfig, config_of, most_accumulators
from weft.kernels.explanation import Explanation
from weft.kernels.machines import machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, fill_zero
from weft.kernels.model import Problem
from weft.kernels.operands import Matrix, form_of, matrix, read_slowly, why_undescribed
from weft.kernels.product import Product
from weft.runtime import driver
from weft.runtime.compiled import CompiledKernel
from weft.runtime.dtypes import ITEMSIZE

_READY = 1024
"""The table of prepared products is cleared at this size."""
_known: dict[tuple[Any, ...], _Ready] = {}


@dataclass(frozen=True, slots=True)
class _Ready:
    """A prepared product for arrays of equal shapes, strides, types, devices and alignment. `product` is None when K, M or N is
    0. `spans` are the byte ranges of a, b and out relative to their addresses."""

    product: Product | None
    shape: tuple[int, int]
    dtype: str
    spans: tuple[tuple[int, int], ...]


def matmul(
    a: Any, b: Any, out: Any = None, *, scale_a: Any = None, scale_b: Any = None, out_dtype: Any = None,
    fast_accumulate: bool = True, variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """a [M, K] times b [K, N], on tensor cores; returns `out` [M, N].

    Operands are matrices of PyTorch, NumPy, CuPy or any other array type, with any strides, so that `a.T` and `b.T` cost
    nothing. Host arrays are simulated. Both operands are float16, bfloat16 or float32 (multiplied as tf32, with 10 bits of
    mantissa), or fp8 or 8-bit integers in any pairing. Accumulators are float32, or int32 for integers. `out` has the operands'
    type, bfloat16 for fp8 and int32 for integers, unless `out_dtype`, or `out` itself, sets another.

    Hopper's tensor core accumulates fp8 products with 13 bits of mantissa. With `fast_accumulate` the whole of K is accumulated
    there; without it only 128 elements at a time, which are then added in float32 registers. That takes longer, and tiles are
    smaller. Blackwell's tensor core accumulates in full float32, so the option makes no difference there.

    `scale_a` multiplies the output by a number or, for each row, by an element of a float32 array [M]; `scale_b` likewise with
    [N] for columns. Scales are applied to the accumulators in float32.

    The configuration is chosen by shapes and types. `variant` and `config` (a `MatmulConfig`, or its fields in a dictionary)
    override it. `stream` is as for launches.

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


@overload
def chosen_config(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    out_dtype: Any = None,
    fast_accumulate: bool = True,
    explain: Literal[False] = False,
) -> MatmulConfig: ...
@overload
def chosen_config(
    a: Any, b: Any, out: Any = None, *, out_dtype: Any = None, fast_accumulate: bool = True, explain: Literal[True]
) -> Explanation: ...
def chosen_config(
    a: Any, b: Any, out: Any = None, *, out_dtype: Any = None, fast_accumulate: bool = True, explain: bool = False
) -> MatmulConfig | Explanation:
    """The configuration that `matmul` chooses for these arrays; with `explain` an `Explanation`: the choice and the runner-up
    with the modelled parts of their time. Raises what `matmul` raises."""
    known = problem(a, b, out, out_dtype, fast_accumulate)
    return heuristic.explain(known) if explain else heuristic.choose(known)


def matmul_configs(
    a: Any, b: Any, out: Any = None, *, out_dtype: Any = None, fast_accumulate: bool = True
) -> Iterator[MatmulConfig]:
    """Valid configurations for these arrays, for tuners and benchmarks. Raises what `matmul` raises."""
    return heuristic.candidates(problem(a, b, out, out_dtype, fast_accumulate))


def problem(a: Any, b: Any, out: Any = None, out_dtype: Any = None, fast: bool = True) -> Problem:
    """What the choice of a configuration for these arrays depends on. Raises what `matmul` raises."""
    left, right = matrix("a", a), matrix("b", b)
    dtype = checked(left, right, out, out_dtype)
    check_not_empty(left, right)
    return problem_of(left, right, dtype, fast)


def checked(left: Matrix, right: Matrix, out: Any, out_dtype: Any) -> str:
    """The output's type. Raises the errors of operands and output that do not match."""
    check_shapes(left, right)
    return type_of_output(left, right, out, out_dtype, types_of_output(left, right))


def problem_of(left: Matrix, right: Matrix, dtype: str, fast: bool = True) -> Problem:
    """The same for matrices that match, with an output of type `dtype`."""
    machine = machine_of(target_of(left.device))
    sides = left, right.transposed
    described = not any(why_undescribed(side, machine.transposable) for side in sides)
    (m, k), n = left.shape, right.shape[1]
    count = multiprocessors_of(left.device, machine)
    # Only fp8 accumulators lose bits in the tensor core, and only on Hopper.
    fast = fast or left.dtype not in FP8 or not machine.promotes
    slow_a, slow_b = (described and read_slowly(side) for side in sides)
    forms = [form_of(side, machine.transposable) for side in sides]
    unit = min(form.unit for form in forms)
    by_rows = [form.contiguous == "rows" and left.itemsize in machine.transposable for form in forms]
    sizes = (left.itemsize, ITEMSIZE[dtype])
    return Problem(
        m, n, k, left.dtype, *sizes, described, count, fast, slow_a, slow_b, unit, machine, *by_rows, device=left.device
    )


def forget() -> None:
    """Drop prepared products and choices, after a choice has been measured."""
    _known.clear()
    heuristic.choose.cache_clear()


def _ready(
    a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any, out_dtype: Any, fast: bool, variant: Any, config: Any
) -> _Ready:
    """The prepared product for these arrays. Overlap depends on addresses and is checked at each call."""
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
        # Not PyTorch tensors, or an unhashable configuration (a dictionary).
        return _prepare(a, b, out, scale_a, scale_b, out_dtype, fast, variant, config)
    if ready is not None:
        if out is not None:
            check_overlap(ready.spans, at_a, at_b, out.data_ptr())
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
    dtype = checked(left, right, out, out_dtype)
    (m, k), n = left.shape, right.shape[1]
    given = None if out is None else matrix("out", out)
    spans = tuple(x.span() for x in (left, right, given) if x is not None)
    kinds = (scale_kind("scale_a", scale_a, m, "rows", left), scale_kind("scale_b", scale_b, n, "columns", left))
    if given is not None:
        check_overlap(spans, left.pointer, right.pointer, given.pointer)
    problem = problem_of(left, right, dtype, fast)
    requested = config_of(config, variant, problem.machine.usual)
    if requested is not None:
        check_machine(requested, problem.machine, left.device)
        requested = requested.filled(
            left.itemsize, problem.stored_by(requested), most_accumulators(problem.fast and problem.described)
        )
        requested.check(left.itemsize, problem.stored_by(requested), problem.fast)
        check_paths(requested, left, right, problem.machine)
    if 0 in (m, n, k):
        return _Ready(None, (m, n), dtype, spans)
    check_target(left.device)
    # An output that `matmul` allocates is row-major; address 0 stands for one with any alignment.
    target = Matrix(dtype, (m, n), (n, 1), 0, left.device) if given is None else given
    if requested is None:
        requested = heuristic.choose(problem)
    sides, (scale_rows, scale_columns) = (left, right.transposed), kinds
    if requested.swap:
        sides, (scale_columns, scale_rows), target = (right.transposed, left), kinds, target.transposed
    product = Product(
        sides, target, scale_rows, scale_columns, requested, problem.programs, problem.fast, problem.machine
    )
    return _Ready(product, (m, n), dtype, spans)
