"""`rms_norm` and `layer_norm`, forward and backward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from weft.kernels.device.norms import normalise, normalise_backward
from weft.kernels.machines import target_of
from weft.kernels.memory import fill_zero, used_on
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.kernels.rows.choice import chosen_moments, chosen_norm, chosen_sums
from weft.kernels.rows.launch import added, counter_of, drawing, groups_of, persistent
from weft.kernels.rows.operands import (
    FLOATS,
    LARGEST,
    Lines,
    access_of,
    check_columns,
    dtype_of,
    lines_of,
    output,
    parameter,
    pitches,
    same_rows,
    vector_of,
    width_of,
)
from weft.kernels.rows.plan import (
    ACCESS_BYTES,
    BACKWARD_REGISTERS,
    LARGE_WARPS,
    MIDDLE_REGISTERS,
    SUMS_REGISTERS,
    SUMS_WARPS,
    USUAL_PART,
    RowConfig,
    plan_of,
    reached,
)
from weft.plain import as_number

ANYWHERE_REGISTERS = 96
"""Registers of a thread for rows that begin anywhere, whose vectors, such as a weight, are read element by element. Two
vectors, or one array more with deviations from a mean, take those of a backward pass. So do blocks of 8 warps, of which a
multiprocessor has no more with fewer registers."""
ELEMENTWISE = 2048
"""Elements of vectors up to which that pays. Of a copy's rate on an H200, RMSNorm of 2,007 columns 0.79 instead of 0.60, of
5,003 0.49 instead of 0.53; with a residual, which is one array more that is read in vectors, 0.60 instead of 0.42."""


class Normalised(NamedTuple):
    """What `rms_norm` and `layer_norm` return besides their output: None where it was not asked for."""

    out: Any
    total: Any
    scales: Any
    mean: Any
    rstd: Any


@prepared("out", "total")
def rms_norm(
    x: Any, weight: Any = None, *, residual: Any = None, eps: float = 1e-6, out: Any = None, out_dtype: Any = None,
    total: Any = None, statistics: bool = False, config: RowConfig | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """h / sqrt(mean(h^2) + eps) * weight along the last axis, with h = x + residual.

    x [..., N] is float32, float16 or bfloat16, of any array type, its rows contiguous and any one distance apart; residual has
    its shape, weight has N elements, each in any of these types. All is computed in float32 and rounded once. Host arrays are
    simulated. Rows are read once and written once; rows of more than 16,384 elements lie in the blocks of a cluster, and may
    have up to 262,144.

    `out_dtype` is that of x by default, or another of these, or float8_e4m3fn, float8_e5m2 or int8: then each row is divided by
    its scale, which makes its largest magnitude the type's largest number. `out` and `total` may be x or residual themselves.

    Returns `out`; with a residual, an 8-bit type or `statistics=True` a `Normalised`: `out`, `total` (h, in the type of
    residual, and what is normalised is h rounded to it), `scales` (float32, one for each row), `mean` and `rstd` (float32, one
    for each row; for RMSNorm there is no mean).

    A row with NaN or infinity gives what the formula gives in float32: NaN. `rms_norm_backward` computes gradients, and
    `weft.torch` has the operator with autograd.

    Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides, kernels-rows-shape, kernels-rows-devices,
    kernels-rows-columns, kernels-rows-parameter, kernels-out-needed, kernels-out-overlaps.
    """
    return _forward("rms_norm", x, weight, None, residual, eps, out, out_dtype, total, statistics, config, stream)


@prepared("out", "total")
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, residual: Any = None, eps: float = 1e-5, out: Any = None,
    out_dtype: Any = None, total: Any = None, statistics: bool = False, config: RowConfig | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """(h - mean(h)) / sqrt(var(h) + eps) * weight + bias along the last axis, with h = x + residual and the biased variance.

    The variance is that of differences from the mean, so that a large mean costs no accuracy. Otherwise as `rms_norm`.
    """
    return _forward("layer_norm", x, weight, bias, residual, eps, out, out_dtype, total, statistics, config, stream)


@prepared("out")
def rms_norm_backward(
    grad: Any, x: Any, weight: Any, rstd: Any, *, added: Any = None, out: Any = None, config: RowConfig | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Gradients of `rms_norm`: of x (with a residual: of h, which is both x's and residual's), and of weight, None if that is.

    `grad` is the gradient of `out`, `x` what was normalised (`total`, with a residual), `rstd` of the forward pass. `added`,
    the gradient of `total`, is added to that of x. `out` may be grad, x or added. The gradient of the weight is summed in
    float32 in a fixed order: it repeats to the bit on one kind of GPU.

    Raises LaunchError: as `rms_norm`.
    """
    dx, dweight, _ = _backward("rms_norm_backward", grad, x, weight, None, rstd, False, added, out, config, stream)
    return dx, dweight


@prepared("out")
def layer_norm_backward(
    grad: Any, x: Any, weight: Any, mean: Any, rstd: Any, *, bias: bool = True, added: Any = None, out: Any = None,
    config: RowConfig | None = None, stream: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients of `layer_norm`: of x, of weight (None if that is), and of the bias, in the type of weight or, without one, of
    x (None unless `bias`). Otherwise as `rms_norm_backward`.
    """
    return _backward("layer_norm_backward", grad, x, weight, mean, rstd, bias, added, out, config, stream)


def _forward(
    op: str, x: Any, weight: Any, bias: Any, residual: Any, eps: float, out: Any, out_dtype: Any, total: Any, statistics: bool,
    config: RowConfig | None, stream: Any,
) -> Any:  # fmt: skip
    source = lines_of(op, "x", x)
    dtype = dtype_of(op, out_dtype, source.dtype, (*FLOATS, *LARGEST))
    second = None if residual is None else same_rows(op, "residual", residual, source)
    vectors = [_vector(op, name, value, source) for name, value in (("weight", weight), ("bias", bias))]
    if as_number(eps) is None or not eps >= 0:
        raise parameter(op, "eps", eps, "a number that is not negative")
    if total is not None and second is None:
        raise parameter(op, "total", "an array", "left out without a residual")
    out, target = output(op, "out", out, x, source, dtype, (source, second))
    summed = None
    if second is not None:
        total, summed = output(op, "total", total, residual, source, second.dtype, (source, second, target))
    scales, means, rstds = (
        empty_like(x, source.shape[:-1], "float32") if wanted else None
        for wanted in (dtype in LARGEST, statistics and op == "layer_norm", statistics)
    )
    if source.rows and source.cols:
        count, centred = sum(each is not None for each in vectors), op == "layer_norm"
        vec, align = access_of(config, source, second, target, summed)
        pays = count * source.cols <= ELEMENTWISE or (second is not None and count < 2)
        if not (align and pays) or (centred and source.cols > USUAL_PART):
            vec, align = width_of(source.cols, source, second, target, summed, *vectors), 0
        short = source.itemsize == 2 and vec == ACCESS_BYTES // 2 and not align
        few = centred and second is None and short
        if config is None:
            cols = reached(source.cols, align)
            config = chosen_moments(cols, few=few, short=short) if centred else chosen_norm(cols, short=short)
        check_columns(op, source, config)
        # Two blocks that wait for two arrays have enough bytes on their way. Rows that begin anywhere leave room for one.
        large = config.num_warps >= (LARGE_WARPS // 2 if few else LARGE_WARPS) and (second is None or align != 0)
        stays = config.num_ctas > 1 or large
        ahead = config.copies(stays, vec * min(source.itemsize, second.itemsize if second else 4))
        numbers = 2 if centred else 1
        plan = plan_of(config, source.rows, source.cols, vec, ahead=ahead, numbers=numbers, align=align)
        plan = drawing(plan, source.rows, numbers)
        counter = counter_of(plan, x, stream)
        given = (
            x, residual, weight, bias, out, total, scales, means, rstds, counter, source.rows, source.cols, *pitches(source,
            second, target, summed), float(eps), centred, LARGEST.get(dtype, 0.0), plan,
        )  # fmt: skip
        most = plan.registers
        if few and plan.across == 1:
            # No barrier keeps loads of weight and bias behind the sums.
            most = max(most, MIDDLE_REGISTERS)
        if align:
            crowded = count > 1 or (centred and second is not None) or plan.warps >= LARGE_WARPS // 2
            most = BACKWARD_REGISTERS if crowded else ANYWHERE_REGISTERS
        options: dict[str, Any] = {**plan.options, "maxnreg": most}
        key = _key(source, second, target, summed, *vectors, scales, means, rstds)
        programs = groups_of(plan, source.rows)
        if ahead or config.programs:
            programs = persistent(normalise, given, options, plan, config, source.rows, source.device, key)
        launched(normalise, programs, given, options, stream)
    if second is None and scales is None and not statistics:
        return out
    return Normalised(out, total if second is not None else None, scales, means, rstds)


def _backward(
    op: str, grad: Any, x: Any, weight: Any, mean: Any, rstd: Any, bias: bool, added_to: Any, out: Any,
    config: RowConfig | None, stream: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    source = lines_of(op, "x", x)
    upper = same_rows(op, "grad", grad, source)
    third = None if added_to is None else same_rows(op, "added", added_to, source)
    vector = _vector(op, "weight", weight, source)
    for name, value in (("mean", mean), ("rstd", rstd)):
        if value is not None or name == "rstd":
            vector_of(op, name, value, source, source.rows, ("float32",))
    out, target = output(op, "out", out, x, source, source.dtype, (source, upper, third))
    dweight = None if vector is None else empty_like(weight, vector.shape, vector.dtype)
    dbias = empty_like(x, (source.cols,), source.dtype if vector is None else vector.dtype) if bias else None
    if not (source.rows and source.cols):
        for value in (dweight, dbias):
            if value is not None:
                fill_zero(value)
        return out, dweight, dbias
    both = dweight is not None and dbias is not None
    config = config or chosen_sums(source.cols, both=both, clusters=target_of(source.device).has_cluster)
    check_columns(op, source, config)
    vec = width_of(source.cols, upper, source, third, target, vector)
    small = min(each.itemsize for each in (source, upper, vector) if each is not None)
    plan = plan_of(config, source.rows, source.cols, vec, numbers=1 if mean is None else 2)
    plan = replace(plan, ahead=config.copies(plan.blocks > 1 or plan.lines == 1, vec * small))
    most = SUMS_REGISTERS if both and plan.warps <= SUMS_WARPS else BACKWARD_REGISTERS
    options: dict[str, Any] = {**plan.options, "maxnreg": most}
    sums = tuple(None if value is None else empty_like(x, (1, source.cols), "float32") for value in (dweight, dbias))
    sizes = (source.rows, source.cols, *pitches(upper, source, third, target), plan)
    key = _key(upper, source, third, target, vector, mean, *sums)
    programs = persistent(
        normalise_backward, (grad, x, added_to, weight, mean, rstd, out, *sums, *sizes), options, plan, config, source.rows,
        source.device, key,
    )  # fmt: skip
    sums = tuple(None if value is None else empty_like(x, (programs, source.cols), "float32") for value in sums)
    arguments = grad, x, added_to, weight, mean, rstd, out, *sums, *sizes
    launched(normalise_backward, programs, arguments, options, stream)
    for partial, value in zip(sums, (dweight, dbias), strict=True):
        if value is not None:
            added(partial, value, programs, source.cols, stream)
            used_on(partial, stream)
    return out, dweight, dbias


def _vector(op: str, name: str, value: Any, x: Lines) -> Lines | None:
    return None if value is None else vector_of(op, name, value, x, x.cols)


def _key(*given: Any) -> tuple[Any, ...]:
    """What a kernel is compiled for besides its plan: types of arrays, and which there are."""
    return tuple(each.dtype if isinstance(each, Lines) else each is not None for each in given)
