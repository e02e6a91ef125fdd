"""`attention_backward`: the gradients of attention."""

from __future__ import annotations

from typing import Any

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.arrays import Described
from weft.kernels.attend_backward_plan import BLOCK_M, BLOCK_N, BackwardPlan, make_backward_plan
from weft.kernels.attend_options import LOG2_E, Options, check_options, check_vector, factors
from weft.kernels.device.attend_backward import HALF, ROWS, attend_backward, convert, prepare
from weft.kernels.heads import Heads, check_alike, check_described, heads
from weft.kernels.machines import target_of
from weft.kernels.memory import empty_like, fill, used_on

PAD = 128
"""Rows of the statistics are padded to a multiple of this: to whole blocks of queries."""


def attention_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, causal: bool = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, lse_grad: Any = None, stream: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients of q, k and v, where `grad` is that of `out, lse = attention(q, k, v, ..., return_lse=True)`.

    Arrays are as `attention` takes them, with one head size, 64 or 128; `grad` is like `out`, and `lse` float32 [batch, heads,
    queries]. `lse_grad`, like lse, is the gradient of lse if that was used. Gradients have the types of their arrays and are
    contiguous. Those of q are added up in float32 in memory, by all programs that have keys it sees, in any order: they may
    differ in their last bits from call to call. Host arrays are simulated.

    Raises LaunchError: attention-array, attention-dtypes, attention-devices, attention-shapes, attention-heads,
    attention-backward-size, attention-strides, attention-scale, attention-window, attention-out, attention-option,
    attention-target, kernels-out-needed.
    """
    query, key, value = heads("q", q), heads("k", k), heads("v", v)
    check_alike(query, key, value)
    result, gradient = _like_out("out", out, query), _like_out("grad", grad, query)
    (batch, count, queries, size), (_, kv_heads, keys, v_size) = query.shape, value.shape
    if size != v_size or size not in BLOCK_M:
        raise fail(errors.BACKWARD_SIZE, size=size, v_size=v_size, known=" and ".join(map(str, BLOCK_M)))
    left, right = check_options(Options(causal, scale, window), query, key)
    scores, _ = factors(Options(scale=scale), size)
    for name, x in (("lse", lse), ("lse_grad", lse_grad)):
        if x is not None:
            check_vector(name, x, "float32", (batch, count, queries), query)
    dq, dk, dv = (empty_like(q, x.shape, x.dtype) for x in (query, key, value))
    if 0 in query.shape or 0 in key.shape:
        for x in (dq, dk, dv):
            fill(x, 0)
        return dq, dk, dv
    for x in (query, key, value, result, gradient):
        check_described(x)
    machine = target_of(query.device)
    if not machine.has_wgmma:
        raise fail(errors.TARGET, target=machine.name)
    plan = make_backward_plan(query.dtype, size, right is not None, left is not None)
    padded = -(-queries // PAD) * PAD
    scaled, delta = (empty_like(q, (batch * count, padded), "float32") for _ in range(2))
    total = empty_like(q, (batch * count * padded, size), "float32")
    prepare[padded // ROWS, batch * count](
        out, grad, lse, lse_grad, scaled, delta, total, *result.strides[:3], *gradient.strides[:3], count, queries, padded,
        size, num_warps=4, stream=stream,
    )  # fmt: skip
    rows = (1, 1, plan.block_m, size)
    statistics = Described((batch * count, padded), (padded, 1), (1, plan.block_m), plan.vector_layout)
    grid = (batch, kv_heads, -(-keys // BLOCK_N))
    attend_backward[grid](
        _described(query, rows, plan).of(q), _described(key, (1, 1, HALF, size), plan).of(k),
        _described(value, (1, 1, HALF, size), plan).of(v), _described(gradient, rows, plan).of(grad), statistics.of(scaled),
        statistics.of(delta), Described((batch * count * padded, size), (size, 1), (HALF, HALF), plan.piece_layout).of(total),
        *(_described(heads(name, x), (1, 1, HALF, size), plan).of(x) for name, x in (("dk", dk), ("dv", dv))),
        scores, scores / LOG2_E, count // kv_heads, queries, keys, padded, left or 0, right or 0, plan,
        num_warps=4, stream=stream,
    )  # fmt: skip
    strides = (count * queries * size, queries * size, size)
    convert[-(-queries // ROWS), batch * count](
        total, dq, *strides, count, queries, padded, scores / LOG2_E, size, num_warps=4, stream=stream
    )
    for x in (scaled, delta, total):
        used_on(x, stream)
    return dq, dk, dv


def _like_out(name: str, value: Any, q: Heads) -> Heads:
    """An array of the shape of q, as results are where all head sizes are equal. Raises LaunchError: attention-array,
    attention-out, attention-devices."""
    found = heads(name, value)
    if found.device != q.device:
        raise fail(errors.DEVICES, first=q.place, name=name, other=found.place)
    if (found.dtype, found.shape) != (q.dtype, q.shape):
        raise fail(errors.OUT, got=f"{found.dtype} {list(found.shape)}", want=f"{q.dtype} {list(q.shape)}")
    return found


def _described(x: Heads, block: tuple[int, ...], plan: BackwardPlan) -> Described:
    return Described(x.shape, x.strides, block, plan.layout(block))
