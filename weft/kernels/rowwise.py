"""`softmax` and `log_softmax` of rows, forward and backward: the choice of a cluster for a row length, and the launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device.softmax import softmax_backward_rows, softmax_rows
from weft.kernels.rows.calls import launched, prepared
from weft.kernels.rows.choice import chosen_powers, chosen_rows, stays
from weft.kernels.rows.launch import counter_of, drawing, groups_of, persistent
from weft.kernels.rows.operands import access_of, check_columns, lines_of, output, pitches, same_rows
from weft.kernels.rows.plan import (
    BACKWARD_REGISTERS,
    CLUSTERS,
    EACH,
    LONGEST_PART,
    MIDDLE_EACH,
    THIRD_EACH,
    THIRD_REGISTERS,
    RowConfig,
    plan_of,
    reached,
)
from weft.runtime.dtypes import ITEMSIZE


@dataclass(frozen=True, slots=True)
class SoftmaxConfig:
    """How `softmax` divides a row: among `num_ctas` blocks of a cluster, with `num_warps` warps each."""

    num_ctas: int
    num_warps: int


STREAMING_WARPS = 16
"""Warps of a multiprocessor that copy two arrays ahead. More of them are slower: of a copy's rate on an H200, 4,848 columns
0.98 with 16 and 0.91 with 24."""


@prepared("out")
def softmax(x: Any, out: Any = None, *, config: SoftmaxConfig | RowConfig | None = None, stream: Any = None) -> Any:
    """Softmax along the last axis of x [..., N]; returns `out`, of the same shape and type.

    Rows are of float32, float16 or bfloat16 with contiguous elements, and any one distance apart; exponentials and sums are
    float32. A row is read once and written once: the blocks of a cluster hold it in registers, and exchange their maxima and
    sums through distributed shared memory. `out` may be x itself. Host arrays are simulated.

    A row with NaN or +inf, or of -inf alone, gives NaN, as in PyTorch.

    Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides, kernels-rows-shape, kernels-rows-devices,
    kernels-softmax-columns, kernels-out-needed, kernels-out-overlaps. Clusters need Hopper or Blackwell (async-target): without
    one rows have up to 16,384 elements.
    """
    return _forward("softmax", x, out, config, stream)


@prepared("out")
def log_softmax(x: Any, out: Any = None, *, config: SoftmaxConfig | RowConfig | None = None, stream: Any = None) -> Any:
    """The logarithm of softmax along the last axis: x - max(x) - log(sum(exp(x - max(x)))). Otherwise as `softmax`."""
    return _forward("log_softmax", x, out, config, stream)


@prepared("out")
def softmax_backward(grad: Any, y: Any, out: Any = None, *, config: RowConfig | None = None, stream: Any = None) -> Any:
    """The gradient of x where y = softmax(x): y * (grad - sum(grad * y)) along the last axis, in the type of y.

    `out` may be grad or y. Rows have up to 262,144 elements. Raises LaunchError: as `softmax`, and kernels-rows-columns."""
    return _backward("softmax_backward", grad, y, out, config, stream)


@prepared("out")
def log_softmax_backward(
    grad: Any, y: Any, out: Any = None, *, config: RowConfig | None = None, stream: Any = None
) -> Any:
    """The gradient of x where y = log_softmax(x): grad - exp(y) * sum(grad). Otherwise as `softmax_backward`."""
    return _backward("log_softmax_backward", grad, y, out, config, stream)


def chosen_softmax(cols: int, dtype: str) -> SoftmaxConfig:
    """The configuration that `softmax` chooses for rows of `cols` elements. Raises LaunchError (kernels-softmax-columns)."""
    found = _chosen(cols, dtype)
    return SoftmaxConfig(found.num_ctas, found.num_warps)


def _chosen(cols: int, dtype: str) -> RowConfig:
    if cols > CLUSTERS[-1] * LONGEST_PART:
        raise fail(errors.SOFTMAX_COLUMNS, cols=cols, most=CLUSTERS[-1] * LONGEST_PART)
    return chosen_powers(cols, short=ITEMSIZE[dtype] == 2)


def _forward(op: str, x: Any, out: Any, config: SoftmaxConfig | RowConfig | None, stream: Any) -> Any:
    source = lines_of(op, "x", x)
    out, target = output(op, "out", out, x, source, source.dtype, (source,))
    if not (source.rows and source.cols):
        return out
    vec, align = access_of(config, source, target, part=LONGEST_PART)
    short = source.itemsize == 2
    given = config or _chosen(reached(source.cols, align), source.dtype)
    if isinstance(given, SoftmaxConfig):
        given = RowConfig(given.num_ctas, given.num_warps, MIDDLE_EACH if short else EACH)
    alone = given.num_ctas == 1
    ahead = given.copies(not alone or stays(source.cols, short=short, log=op == "log_softmax"), vec * source.itemsize)
    plan = plan_of(given, source.rows, source.cols, vec, ahead=ahead, numbers=2, align=align)
    plan = drawing(plan, source.rows, 2)
    # 40 elements fit into 80 registers: a multiprocessor has three blocks of 8 warps.
    most = THIRD_REGISTERS if EACH < plan.each <= THIRD_EACH else plan.registers
    options: dict[str, Any] = {**plan.options, "maxnreg": most}
    counter, sizes = counter_of(plan, x, stream), (source.rows, source.cols, *pitches(source, target))
    arguments = (x, out, counter, *sizes, op == "log_softmax", plan)
    programs = groups_of(plan, source.rows)
    if plan.ahead or given.programs:
        resident = persistent(
            softmax_rows, arguments, options, plan, given, source.rows, source.device, (source.dtype, op)
        )
        programs = max(resident, -(-programs // 2)) if alone and not (given.programs or plan.tickets) else resident
    launched(softmax_rows, programs, arguments, options, stream)
    return out


def _backward(op: str, grad: Any, y: Any, out: Any, config: RowConfig | None, stream: Any) -> Any:
    source = lines_of(op, "y", y)
    upper = same_rows(op, "grad", grad, source)
    out, target = output(op, "out", out, y, source, source.dtype, (source, upper))
    if not (source.rows and source.cols):
        return out
    vec, align = access_of(config, source, upper, target)
    config = config or chosen_rows(reached(source.cols, align))
    check_columns(op, source, config)
    ahead = config.copies(True, vec * min(upper.itemsize, source.itemsize))
    plan = plan_of(config, source.rows, source.cols, vec, ahead=ahead, align=align)
    options: dict[str, Any] = {**plan.options, "maxnreg": BACKWARD_REGISTERS}
    arguments = (
        grad,
        y,
        out,
        source.rows,
        source.cols,
        *pitches(upper, source, target),
        op == "log_softmax_backward",
        plan,
    )
    key = upper.dtype, source.dtype, op
    programs = persistent(
        softmax_backward_rows, arguments, options, plan, config, source.rows, source.device, key, STREAMING_WARPS
    )
    launched(softmax_backward_rows, programs, arguments, options, stream)
    return out
