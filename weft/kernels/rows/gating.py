"""`topk_gating`, the choice of experts, its gradient, and `argmax`."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device.gating import choose, choose_backward
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.kernels.rows.launch import groups_of
from weft.kernels.rows.operands import (
    INTEGERS,
    Lines,
    lines_of,
    output,
    parameter,
    pitches,
    same_rows,
    vector_of,
    width_of,
)
from weft.kernels.rows.plan import BACKWARD_REGISTERS, USUAL_WARPS, RowPlan, power_of_two
from weft.kernels.selection import topk
from weft.layout import WARP_SIZE

MOST_EXPERTS, MOST_CHOSEN = 1024, 32
EACH, LEAST_EACH = 32, 8
"""Scores of a thread, and where there are few."""
ENOUGH = 1 << 21
"""Scores from which on threads have many."""


@prepared()
def topk_gating(logits: Any, k: int, *, renormalise: bool = True, stream: Any = None) -> tuple[Any, Any]:
    """Weights and positions of the `k` largest logits of each row, the choice of experts of a mixture.

    logits [..., E] are float32, float16 or bfloat16, of at most 1,024 experts; k is 1 to 32. A weight is the softmax over all
    experts, in float32, and if `renormalise` it is divided by the sum of the k weights. Returns float32 weights and int32
    positions [..., k], the largest first; of equal logits those at lower positions come first. NaN counts as larger than any
    number, and makes all weights of its row NaN. Host arrays are simulated.

    Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides, kernels-rows-parameter,
    kernels-rows-columns, kernels-out-needed.
    """
    op = "topk_gating"
    source = lines_of(op, "logits", logits)
    _check(op, source, k)
    weights, indices = (empty_like(logits, (*source.shape[:-1], k), dtype) for dtype in ("float32", "int32"))
    if source.rows:
        plan = _plan(source, width_of(source.cols, source))
        given = (
            logits,
            weights,
            indices,
            source.rows,
            source.cols,
            *pitches(source),
            k,
            power_of_two(k),
            bool(renormalise),
            plan,
        )
        options: dict[str, Any] = {**plan.options, "maxnreg": BACKWARD_REGISTERS}
        launched(choose, groups_of(plan, source.rows), given, options, stream)
    return weights, indices


def topk_gating_backward(
    grad: Any, logits: Any, weights: Any, indices: Any, *, renormalise: bool = True, out: Any = None, stream: Any = None
) -> Any:
    """The gradient of logits for that of the weights of `topk_gating`, in the type of logits; `out` may be logits.

    Raises LaunchError: as `topk_gating`, kernels-rows-shape, kernels-rows-devices, kernels-out-overlaps.
    """
    op = "topk_gating_backward"
    source = lines_of(op, "logits", logits)
    chosen = lines_of(op, "weights", weights, ("float32",))
    k = chosen.cols
    _check(op, source, k)
    if chosen.shape[:-1] != source.shape[:-1]:
        want = [*source.shape[:-1], k]
        raise fail(
            errors.ROWS_SHAPE,
            op=op,
            name="weights",
            got=list(chosen.shape),
            want=want,
            x="logits",
            of=list(source.shape),
        )
    same_rows(op, "grad", grad, chosen)
    for name, value, dtypes in (("grad", grad, None), ("weights", weights, None), ("indices", indices, INTEGERS)):
        vector_of(op, name, value, source, source.rows * k, dtypes or ("float32", "float16", "bfloat16"))
    out, target = output(op, "out", out, logits, source, source.dtype, (source,))
    if source.rows:
        plan = _plan(source, width_of(source.cols, source, target))
        sizes = source.rows, source.cols, *pitches(source, target), k, bool(renormalise), plan
        options: dict[str, Any] = {**plan.options, "maxnreg": BACKWARD_REGISTERS}
        choose_backward[groups_of(plan, source.rows)](
            grad, logits, weights, indices, out, *sizes, **options, stream=stream
        )
    return out


def argmax(x: Any, *, stream: Any = None) -> Any:
    """int64 positions of the largest elements along the last axis of x [..., N], of equal ones the first; NaN is the largest.

    It is `topk` with k = 1, whose types and errors it has.
    """
    return topk(x, 1, stream=stream)[1][..., 0]


def _check(op: str, source: Lines, k: Any) -> None:
    if type(k) is not int or not 1 <= k <= min(MOST_CHOSEN, source.cols):
        rule = f"an int from 1 to the number of experts, {source.cols}, and at most {MOST_CHOSEN}"
        raise parameter(op, "k", k, rule)
    if source.cols > MOST_EXPERTS:
        raise parameter(
            op, "logits", list(source.shape), f"at most {MOST_EXPERTS} experts; topk selects from longer rows"
        )


def _plan(source: Lines, vec: int) -> RowPlan:
    """Rows in as few lanes as keep all threads of a GPU busy: what lanes do together costs shuffles."""
    part = max(power_of_two(source.cols), vec)
    each = EACH if source.rows * part > ENOUGH else LEAST_EACH
    lanes = min(max(part // each, 1), part // vec, WARP_SIZE)
    lines = WARP_SIZE // lanes * USUAL_WARPS
    return RowPlan(
        1,
        USUAL_WARPS,
        lines,
        part,
        1,
        vec,
        int(part == source.cols),
        source.rows % lines == 0,
        0,
        1,
        (WARP_SIZE // lanes, USUAL_WARPS),
    )
