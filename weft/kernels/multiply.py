"""`matmul`: the choice of a configuration, and the table of prepared products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from weft.bounded import keep
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels import heuristic
from weft.kernels.arrays import address, key_of
from weft.kernels.batches import Batch, batch_of, part_of
from weft.kernels.checks import (
    FP8,
    check_machine,
    check_not_empty,
    check_overlap,
    check_paths,
    check_shapes,
    check_target,
    type_of_output,
    types_of_output,
)  # fmt: skip
from weft.kernels.config import MatmulConfig, config_of, most_accumulators
from weft.kernels.epilogue import Ending, Given, check_config, ending_of, halves_of, suits
from weft.kernels.explanation import Explanation
from weft.kernels.machines import machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, fill_zero
from weft.kernels.model import Problem
from weft.kernels.operands import GRANULE, LINE, Matrix, form_of, matrix, read_slowly, why_undescribed
from weft.kernels.product import Product
from weft.runtime import driver
from weft.runtime.compiled import CompiledKernel
from weft.runtime.dtypes import ITEMSIZE

_EVERY = 1 << 20
"""More configurations than there are candidates."""
_BEGINS = LINE - 1
"""What the choice knows of an operand's address, as a mask."""
_known: dict[tuple[Any, ...], _Ready] = {}


@dataclass(frozen=True, slots=True)
class _Ready:
    """A prepared product for arrays of equal shapes, strides, types, devices and alignment. `product` is None when K, M or N is
    0. `spans` are the byte ranges of a, b and out relative to their addresses, and `ending` is the epilogue. With
    `apart` each index of the first batch axis is a call of its own."""

    product: Product | None
    shape: tuple[int, ...]
    dtype: str
    spans: tuple[tuple[int, int], ...]
    ending: Ending
    apart: bool = False

    def check_overlap(self, a: Any, b: Any, out: Any, given: Given | None) -> None:
        """Raises LaunchError (kernels-out-overlaps)."""
        at_a, several = address(a), b if given is not None and given.gated else (b,)
        if out is not None:
            at_out = address(out)
            for each in several:
                check_overlap(self.spans, at_a, address(each), at_out)
            if given is not None and self.ending.reads:
                self.ending.check_overlap(given.values, self.spans[-1], at_out)
        if given is not None and self.ending.plan.written:
            operands = [("a", at_a, self.spans[0]), *(("b", address(each), self.spans[1]) for each in several)]
            self.ending.check_written(given.values, operands)


def matmul(
    a: Any, b: Any, out: Any = None, *, scale_a: Any = None, scale_b: Any = None, bias: Any = None, activation: Any = None,
    gated: bool = False, residual: Any = None, epilogue: Any = None, extras: Any = None, out_scale: Any = None,
    out_scales: Any = None, row_squares: Any = None, row_peaks: Any = None, out_dtype: Any = None,
    fast_accumulate: bool = True, variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """a [M, K] times b [K, N], on tensor cores; returns `out` [M, N]. Or a batch of products: a [.., M, K] times b [.., K, N],
    whose batch axes broadcast as in NumPy, to `out` [.., M, N].

    Operands are matrices of PyTorch, NumPy, CuPy or any other array type, with any strides, so that `a.T` and `b.T` cost
    nothing. Host arrays are simulated. Both operands are float16, bfloat16 or float32 (multiplied as tf32, with 10 bits of
    mantissa), or fp8 or 8-bit integers in any pairing. Accumulators are float32, or int32 for integers. `out` has the operands'
    type, bfloat16 for fp8 and int32 for integers, unless `out_dtype`, or `out` itself, sets another.

    Hopper's tensor core accumulates fp8 products with 13 bits of mantissa. With `fast_accumulate` the whole of K is accumulated
    there; without it only 128 elements at a time, which are then added in float32 registers. That takes longer, and tiles are
    smaller. Blackwell's tensor core accumulates in full float32, so the option makes no difference there.

    The epilogue is computed in float32 before the conversion to the output's type, in this order (without arguments nothing):

    1. x * scale_a * scale_b + bias. A scale is a number or a float32 array: `scale_a` [M], one for each row, `scale_b` [N] for
       columns. `bias` is an array [N], or any that broadcasts over [M, N].
    2. `activation`: "relu", "relu_squared", "gelu" (with erf), "gelu_tanh", "silu", "sigmoid", "tanh", or a `@weft.jit`
       function of x. With `gated`, b is a pair (gate, up) of matrices [K, N], or one [K, 2 N] with the gate's columns first,
       and x is activation(a @ gate) * (a @ up); `scale_b` and `bias` then have 2 N elements for each row.
    3. `residual` is added, an array that broadcasts over [M, N]. It may be `out` itself.
    4. `epilogue(x, rows, columns, extras)`, a `@weft.jit` function that works element by element. x is a piece of the output in
       float32; `rows` and `columns` are int32 tiles that broadcast over x, the places of its elements in the output; `extras`
       are what the caller passed as `extras`, a tuple or a dictionary (whose names are attributes) of numbers and of arrays
       that broadcast over [M, N], each as a scalar or a tile that broadcasts over x. Floats arrive as float32.
    5. Of each row and 128 columns of the output, `row_squares` gets the sum of squares and `row_peaks` the largest magnitude:
       float32 arrays [M, N / 128], rounded up. The next normalisation needs no other pass (`weft.kernels.rms_factors`).
    6. x / `out_scale`, a number or a float32 array of one element. For an output of fp8, `out_scales` is a float32 array [M,
       N / 128] which gets a scale for each row and 128 columns, such that the largest magnitude becomes the largest number of
       the type, and x is divided by it. In both cases stored elements times the scale are x.

    A batch is one launch if its axes merge into one: if one step in memory each, of a, b and the output, leads from each
    product to the next (0 where a matrix is repeated). Otherwise there is a launch for each index of the outer axes. A b that
    all share is multiplied by all rows of a at once if these continue from matrix to matrix. What an epilogue reads is the same
    for all products; it cannot write statistics or scales of rows.

    With split-K all of this comes once, after the sum of the parts, which are added in their order.

    The configuration is chosen by shapes and types. `variant` and `config` (a `MatmulConfig`, or its fields in a dictionary)
    override it. `stream` is as for launches.

    Raises LaunchError: kernels-array, kernels-shapes, kernels-batch, kernels-batch-written, kernels-dtypes, kernels-devices,
    kernels-out-shape, kernels-out-dtype, kernels-out-dtype-differs, kernels-out-needed, kernels-out-overlaps,
    kernels-out-repeats, kernels-scale, kernels-extra, kernels-extra-dtype, kernels-extras, kernels-activation,
    kernels-epilogue, kernels-gated, kernels-written, kernels-written-overlaps, kernels-out-scales, kernels-variant,
    kernels-variant-path, kernels-variant-target, kernels-config, kernels-config-kind, kernels-target. CompilationError:
    kernels-epilogue-result, and what else is wrong in the text of the functions.
    """
    plain = scale_a is scale_b is bias is activation is residual is epilogue is extras is None and not gated
    plain = plain and out_scale is out_scales is row_squares is row_peaks is None
    if plain and out is not None and _again(a, b, out, out_dtype, fast_accumulate, variant, config, stream):
        return out
    given = None if plain else Given(
        scale_a, scale_b, bias, activation, gated, residual, epilogue, extras, out_scale, out_scales, row_squares, row_peaks
    )  # fmt: skip
    b = halves_of(b) if gated else b
    ready = _ready(a, b, out, given, out_dtype, fast_accumulate, variant, config)
    if out is None:
        out = empty_like(a, ready.shape, ready.dtype)
    if ready.apart:
        options = {"fast_accumulate": fast_accumulate, "variant": variant, "config": config, "stream": stream}
        _multiply_apart(a, b, out, given, options)
    elif ready.product is not None:
        ready.product.run(a, b, out, () if given is None else given.values, stream)
    elif 0 not in ready.shape:
        _multiply_nothing(a, b, out, given, stream)
    return out


def product_of(a: Any, b: Any, out: Any, config: Any, unsuited: Callable[[MatmulConfig], str | None]) -> Product:
    """The plain product of non-empty arrays for ranks that launch it together: in the configuration that is given, or in the
    best one that is suited (`unsuited` says what of a configuration is not). Raises what `matmul` raises, and
    kernels-ranks-config for a given configuration that is not suited.

    All ranks have to choose the same. So the choice depends on shapes, strides and types alone: the arrays of each rank begin
    at another place of a cache line."""
    if config is None:
        known = _problem_without_places(a, b, out)
        config = heuristic.choose(known)
        if unsuited(config) is not None:
            config = next(each for each in heuristic.ranked(known, _EVERY) if unsuited(each) is None)
    product = _ready(a, b, out, None, None, True, None, config).product
    assert product is not None
    why = unsuited(product.config)
    if why is not None:
        raise fail(errors.RANKS_CONFIG, got=why)
    return product


def _problem_without_places(a: Any, b: Any, out: Any) -> Problem:
    """The problem of operands that begin at cache lines, if they begin at multiples of 16 bytes."""
    batch = batch_of(a, b, out).folded()
    left, right = (replace(side, pointer=side.pointer % GRANULE) for side in (batch.left, batch.right))
    return problem_of(left, right, checked(left, right, batch.out, None))


def _multiply_apart(a: Any, b: Any, out: Any, given: Given | None, options: dict[str, Any]) -> None:
    """The products of a batch whose axes do not merge: each index along the first one."""
    axes = len(out.shape) - 2
    ending = {} if given is None else given._asdict()
    for index in range(out.shape[0]):
        matmul(part_of(a, index, axes), part_of(b, index, axes), out[index], **ending, **options)


def _multiply_nothing(a: Any, b: Any, out: Any, given: Given | None, stream: Any) -> None:
    """The product where K is 0: the epilogue of zeros."""
    if given is None:
        fill_zero(out)
        return
    first = b[0] if given.gated else b
    left, right = matrix("a", a), matrix("b", first)
    zeros = (
        empty_like(a, (left.shape[0], GRANULE), left.dtype),
        empty_like(first, (right.shape[1], GRANULE), right.dtype),
    )
    for value in zeros:
        fill_zero(value)
    other = zeros[1].T
    matmul(zeros[0], (other, other) if given.gated else other, out, **given._asdict(), stream=stream)


def compile_matmul(
    a: Any, b: Any, out: Any = None, *, scale_a: Any = None, scale_b: Any = None, bias: Any = None, activation: Any = None,
    gated: bool = False, residual: Any = None, epilogue: Any = None, extras: Any = None, out_scale: Any = None,
    out_scales: Any = None, row_squares: Any = None, row_peaks: Any = None, out_dtype: Any = None,
    fast_accumulate: bool = True, variant: str | None = None, config: MatmulConfig | dict[str, Any] | None = None,
) -> CompiledKernel:  # fmt: skip
    """The kernel that `matmul` would launch, compiled: its text, registers and shared memory. Neither operand may be empty.

    Raises what `matmul` raises.
    """
    given = Given(
        scale_a, scale_b, bias, activation, gated, residual, epilogue, extras, out_scale, out_scales, row_squares, row_peaks
    )  # fmt: skip
    given = None if given.nothing else given
    b = halves_of(b) if gated else b
    ready = _ready(a, b, out, given, out_dtype, fast_accumulate, variant, config)
    if ready.product is None:
        raise fail(errors.EMPTY, shape=list(ready.shape))
    out = empty_like(a, ready.shape, ready.dtype) if out is None else out
    return ready.product.compiled(a, b, out, () if given is None else given.values)


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
    batch = batch_of(a, b, out).folded()
    dtype = checked(batch.left, batch.right, batch.out, out_dtype)
    check_not_empty(batch.left, batch.right)
    return problem_of(batch.left, batch.right, dtype, fast)


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
        m,
        n,
        k,
        left.dtype,
        *sizes,
        described,
        count,
        fast,
        slow_a,
        slow_b,
        unit,
        machine,
        *by_rows,
        device=left.device,
        batch=max(left.batches, right.batches),
    )


def forget() -> None:
    """Drop prepared products and choices, after a choice has been measured."""
    _known.clear()
    heuristic.choose.cache_clear()


def _ready(
    a: Any, b: Any, out: Any, given: Given | None, out_dtype: Any, fast: bool, variant: Any, config: Any
) -> _Ready:  # fmt: skip
    """The prepared product for these arrays. Overlap depends on addresses and is checked at each call."""
    try:
        first, more = b, None
        if given is not None:
            more = given.key
            if given.gated:
                first, up = b
                more = (more, key_of(up), up.data_ptr() & _BEGINS)
        at_a, at_b = a.data_ptr(), first.data_ptr()
        key = (
            a.dtype, a.shape, a.stride(), at_a & _BEGINS, a.get_device(),
            first.dtype, first.shape, first.stride(), at_b & _BEGINS, first.get_device(),
            None if out is None else (out.dtype, out.shape, out.stride(), out.data_ptr() & 15, out.get_device()), more,
            out_dtype, fast, variant, config, None if a.is_cuda else driver.simulated_target().arch,
        )  # fmt: skip
        ready = _known.get(key)
    except (AttributeError, TypeError):
        # Not PyTorch tensors, or an unhashable configuration (a dictionary).
        return _prepare(a, b, out, given, out_dtype, fast, variant, config)
    if ready is not None:
        if out is not None and given is None:
            check_overlap(ready.spans, at_a, at_b, out.data_ptr())
        elif out is not None or ready.ending.plan.written:
            ready.check_overlap(a, b, out, given)
        return ready
    return keep(_known, key, _prepare(a, b, out, given, out_dtype, fast, variant, config))


def _again(a: Any, b: Any, out: Any, out_dtype: Any, fast: bool, variant: Any, config: Any, stream: Any) -> bool:
    """A plain product of PyTorch tensors like those of calls before, without a function for each of its steps, which would take
    a third of the host's time. False, and nothing done, if there was none."""
    try:
        at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), out.data_ptr()
        ready = _known[
            a.dtype, a.shape, a.stride(), at_a & _BEGINS, a.get_device(),
            b.dtype, b.shape, b.stride(), at_b & _BEGINS, b.get_device(),
            (out.dtype, out.shape, out.stride(), at_out & 15, out.get_device()), None,
            out_dtype, fast, variant, config, None,
        ]  # fmt: skip
    except (AttributeError, TypeError, KeyError):
        return False
    if ready.product is None:
        return False
    check_overlap(ready.spans, at_a, at_b, at_out)
    return ready.product.run_at(at_a, at_b, at_out, stream)


def _prepare(
    a: Any, b: Any, out: Any, given: Given | None, out_dtype: Any, fast: bool, variant: Any, config: Any
) -> _Ready:  # fmt: skip
    batch = _batch(a, b, out, given)
    left, right, target = batch.left, batch.right, batch.out
    dtype = checked(left, right, target, out_dtype)
    (m, k), n = left.shape, right.shape[1]
    # With an epilogue, what is left where K is 0 is computed matrix by matrix.
    apart = batch.apart or (given is not None and k == 0 and len(batch.shape) > 2)
    ending = ending_of(given, left, n, dtype, target if len(batch.shape) == 2 else None)
    ready = _Ready(None, batch.shape, dtype, batch.spans, ending, apart)
    ready.check_overlap(a, b, out, given)
    problem = problem_of(left, right, dtype, fast)
    # In the choice a gated product is one of twice the width.
    problem = replace(problem, n=max(ending.halves * n, ending.least_columns), finish=ending.plan.slots / ending.halves)
    requested = config_of(config, variant, problem.machine.usual)
    if requested is not None:
        check_machine(requested, problem.machine, left.device)
        b_rows = problem.seen_by(requested).b_rows
        requested = requested.filled(
            left.itemsize, problem.stored_by(requested), most_accumulators(problem.fast and problem.described), b_rows
        )
        requested.check(left.itemsize, problem.stored_by(requested), problem.fast, b_rows)
        check_paths(requested, left, right, problem.machine)
        check_config(requested, ending)
    if 0 in (*ready.shape, k) or apart:
        return ready
    check_target(left.device)
    # An output that `matmul` allocates is row-major; address 0 stands for one with any alignment.
    target = Matrix(dtype, (m, n), (n, 1), 0, left.device, problem.batch, m * n) if target is None else target
    if requested is None:
        requested = _chosen(problem, ending)
    sides = (left, right.transposed)
    if requested.swap:
        sides, ending, target = (right.transposed, left), ending.transposed, target.transposed
    product = Product(sides, target, ending, requested, problem.programs, problem.fast, problem.machine)
    return replace(ready, product=product)


def _batch(a: Any, b: Any, out: Any, given: Given | None) -> Batch:
    """The operands and the output; what each row reads in an epilogue depends on its product."""
    if given is None:
        return batch_of(a, b, out).folded()
    batch = batch_of(a, b, out, given.gated)
    for name in ("out_scales", "row_squares", "row_peaks"):
        if len(batch.shape) > 2 and getattr(given, name) is not None:
            raise fail(errors.BATCH_WRITTEN, name=name, axes=list(batch.shape[:-2]))
    return batch


def _chosen(problem: Problem, ending: Ending) -> MatmulConfig:
    """The best configuration that the epilogue allows."""
    found = heuristic.choose(problem)
    if suits(found, ending):
        return found
    return next(config for config in heuristic.ranked(problem, _EVERY) if suits(config, ending))
