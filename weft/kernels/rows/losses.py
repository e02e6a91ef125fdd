"""`cross_entropy` of logits with class indices, and its gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device.losses import cross_entropy_backward_rows, cross_entropy_clusters, cross_entropy_rows
from weft.kernels.machines import target_of
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.kernels.rows.choice import chosen_losses
from weft.kernels.rows.launch import counter_of, drawing, groups_of, persistent
from weft.kernels.rows.operands import (
    INTEGERS,
    Lines,
    access_of,
    lines_of,
    output,
    parameter,
    pitches,
    same_rows,
    vector_of,
    width_of,
)
from weft.kernels.rows.plan import (
    BACKWARD_REGISTERS,
    EACH,
    FORWARD_REGISTERS,
    SUMS_REGISTERS,
    SUMS_WARPS,
    USUAL_PART,
    RowConfig,
    RowPlan,
    plan_of,
    power_of_two,
    reached,
)
from weft.layout import WARP_SIZE
from weft.plain import as_number, whole

CHUNK = 4096
"""Columns of a row that a program of `cross_entropy_backward` has, 32 of each thread."""


@prepared("grad")
def cross_entropy(
    logits: Any, labels: Any, *, label_smoothing: float = 0.0, z_loss: float = 0.0, ignore_index: int = -100, grad: Any = None,
    grad_scale: Any = 1.0, config: RowConfig | None = None, stream: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Losses of rows of logits [..., V] with class indices `labels` [...], and the logarithms of the rows' sums of powers.

    The loss of a row is lse - (1 - label_smoothing) * logits[label] - label_smoothing * mean(logits) + z_loss * lse^2, with
    lse = log(sum(exp(logits))), and 0 where the label is `ignore_index`. Returns `losses` and `lse`, both float32 of the shape
    of labels. Logits are float32, float16 or bfloat16, labels int64 or int32; all is computed in float32, and each logit is
    read once, with one exponential.

    With `grad`, an array like logits or `logits` itself, the same pass stores the gradient of the sum of
    `grad_scale * losses`: a number, or a float32 array of one for each row (1 / number of labels for the mean). Rows of up to
    262,144 logits lie in the registers of a cluster meanwhile; longer ones are read twice.

    NaN or +inf among the logits makes the loss NaN, and so does a label out of range, which the simulator and debug builds
    report. -inf has the probability 0; with label smoothing it counts as 0 in the mean.

    Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides, kernels-rows-shape, kernels-rows-devices,
    kernels-rows-parameter, kernels-out-needed, kernels-out-overlaps.
    """
    op = "cross_entropy"
    source = lines_of(op, "logits", logits)
    _labels(op, labels, source)
    smooth, z, ignored = _numbers(op, label_smoothing, z_loss, ignore_index)
    losses, lse = (empty_like(logits, source.shape[:-1], "float32") for _ in range(2))
    target = None
    if grad is not None:
        grad, target = output(op, "grad", grad, logits, source, same_rows(op, "grad", grad, source).dtype, (source,))
    factors, scaled = _factors(op, "grad_scale", grad_scale, source)
    if not source.rows:
        return losses, lse
    if not source.cols:
        raise parameter(op, "logits", list(source.shape), "at least one class")
    config, plan, fits = _plan(config, source, target, smooth != 0)
    common = (
        logits, labels, losses, lse, grad, factors, source.rows, source.cols, *pitches(source, target), smooth, z, ignored,
        smooth != 0, scaled,
    )  # fmt: skip
    if plan.blocks > 1:
        kernel, given = cross_entropy_clusters, (*common, z != 0, counter_of(plan, logits, stream), plan)
    else:
        tail = not fits and (bool(plan.align) or source.cols % plan.part != 0)
        kernel, given = cross_entropy_rows, (*common, tail, fits, plan)
    # With gradients a block alone has more addresses to keep, and a cluster with smoothing more sums.
    most = FORWARD_REGISTERS if plan.each <= EACH else BACKWARD_REGISTERS
    if target is not None and plan.blocks == 1:
        most = BACKWARD_REGISTERS
    if target is not None and plan.blocks > 1 and smooth and plan.warps <= SUMS_WARPS:
        most = SUMS_REGISTERS
    options: dict[str, Any] = {**plan.options, "maxnreg": most}
    programs = groups_of(plan, source.rows)
    if plan.ahead or config.programs:
        key = source.dtype, None if target is None else target.dtype, smooth != 0, z != 0, scaled, fits
        programs = persistent(kernel, given, options, plan, config, source.rows, source.device, key)
    launched(kernel, programs, given, options, stream)
    return losses, lse


@prepared("out")
def cross_entropy_backward(
    grad: Any, logits: Any, labels: Any, lse: Any, *, label_smoothing: float = 0.0, z_loss: float = 0.0,
    ignore_index: int = -100, out: Any = None, stream: Any = None,
) -> Any:  # fmt: skip
    """The gradient of logits for gradients of the losses of `cross_entropy`: a number, or a float32 array of one for each row.

    `lse` is its second result. Returns `out`, like logits, which it may be. Rows may have any length. Raises LaunchError: as
    `cross_entropy`.
    """
    op = "cross_entropy_backward"
    source = lines_of(op, "logits", logits)
    _labels(op, labels, source)
    vector_of(op, "lse", lse, source, source.rows, ("float32",))
    smooth, z, ignored = _numbers(op, label_smoothing, z_loss, ignore_index)
    factors, scaled = _factors(op, "grad", grad, source)
    out, target = output(op, "out", out, logits, source, source.dtype, (source,))
    if source.rows and source.cols:
        vec, align = access_of(None, source, target, part=None)
        plan = plan_of(RowConfig(), source.rows, source.cols, vec, most=CHUNK, align=align)
        given = (
            logits,
            labels,
            lse,
            out,
            factors,
            source.rows,
            source.cols,
            *pitches(source, target),
            smooth,
            z,
            ignored,
        )
        grid = groups_of(plan, source.rows), -(-reached(source.cols, align) // plan.part)
        options: dict[str, Any] = {**plan.options, "maxnreg": FORWARD_REGISTERS}
        launched(cross_entropy_backward_rows, grid, (*given, scaled, plan), options, stream)
    return out


def _plan(
    config: RowConfig | None, source: Lines, target: Lines | None, smooth: bool
) -> tuple[RowConfig, RowPlan, bool]:
    """The configuration and the plan of `cross_entropy`, and whether a program holds its rows as a whole."""
    # Rows with gradients that no cluster holds are read twice, from where they begin.
    vec, align = access_of(config, source, target, part=None if target is None else USUAL_PART)
    cols = reached(source.cols, align)
    if config is None and target is not None:
        config = chosen_losses(cols, smooth=smooth, clusters=target_of(source.device).has_cluster)
    # What is only read is streamed by small blocks, many on a multiprocessor.
    config = config or RowConfig()
    held = WARP_SIZE * config.num_warps * config.num_ctas * max(config.each, vec)
    if cols > held:
        if align and target is not None:
            vec, align = width_of(source.cols, source, target), 0
        config = replace(config, num_ctas=1)
        chunk = power_of_two(WARP_SIZE * config.num_warps * max(min(config.each, EACH), vec))
        return config, plan_of(config, source.rows, source.cols, vec, most=chunk, align=align), False
    plan = plan_of(config, source.rows, source.cols, vec, numbers=4 if smooth else 2, align=align)
    if plan.blocks > 1:
        plan = drawing(replace(plan, ahead=config.copies(1, vec * source.itemsize)), source.rows, 3 if smooth else 2)
    return config, plan, True


def _labels(op: str, labels: Any, x: Lines) -> None:
    found = vector_of(op, "labels", labels, x, x.rows, INTEGERS)
    if found.shape != x.shape[:-1]:
        want = list(x.shape[:-1])
        raise fail(
            errors.ROWS_SHAPE, op=op, name="labels", got=list(found.shape), want=want, x=x.name, of=list(x.shape)
        )


def _numbers(op: str, smoothing: Any, z: Any, ignored: Any) -> tuple[float, float, int]:
    if as_number(smoothing) is None or not 0 <= smoothing <= 1:
        raise parameter(op, "label_smoothing", smoothing, "a number from 0 to 1")
    if as_number(z) is None or not z >= 0:
        raise parameter(op, "z_loss", z, "a number that is not negative")
    if whole(ignored) is None:
        raise parameter(op, "ignore_index", ignored, "an int")
    return float(smoothing), float(z), int(ignored)


def _factors(op: str, name: str, value: Any, x: Lines) -> tuple[Any, bool]:
    """A number, or an array of one for each row."""
    if as_number(value) is not None:
        return float(value), False
    vector_of(op, name, value, x, x.rows, ("float32",))
    return value, True
