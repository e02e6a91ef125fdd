"""`attention_backward`: the gradients of attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.arrays import Described, Prepared, key_of
from weft.kernels.attend_backward_plan import SIZES, BackwardPlan, make_backward_plan
from weft.kernels.attend_options import LOG2_E, Options, check_options, check_vector, factors, sequences_of
from weft.kernels.attend_plan import last_columns
from weft.kernels.attend_spans import document_spans
from weft.kernels.device.attend_backward import ROWS, add_sink_parts, attend_backward, convert, prepare
from weft.kernels.heads import Heads, check_alike, check_described, heads
from weft.kernels.machines import machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, fill, used_on
from weft.nvidia.ragged_tma import ragged_form
from weft.runtime import driver

PAD = 128
"""Rows of the statistics are padded to a multiple of this: to whole blocks of queries."""


CACHE_BYTES = 24 << 20
"""Of L2, for the queries, their gradients and those of results that the programs at work read and write again and again."""
WAVE_BYTES = 128 << 20
"""The most of these for a band of one wave. They may be more than L2 holds, because all programs of such a band are at about
the same queries."""

IN_LINE = 4
"""Programs of a head at a time that add to its gradients of queries in one order: the fewest."""
IN_LINE_BYTES = 64 << 20
"""The most that these read and add to, of the query heads at work: they follow one another along the queries, so that L2 need
not hold all of it. At head size 256, 8 heads of 8,192 queries, which are twice as much, took 1.26 times as long on an H200."""


@dataclass(frozen=True, slots=True)
class Backward:
    """The prepared kernels: grids, descriptors by array, and numbers."""

    plan: BackwardPlan
    dtype: str
    programs: int
    lines: int
    padded: int
    q: Described
    k: Described
    v: Described
    grad: Described
    statistics: Described
    dk: Described
    dv: Described
    prepared: tuple[int, ...]
    numbers: tuple[Any, ...]
    converted: tuple[Any, ...]


_known: Prepared[Backward | None] = Prepared()


def attention_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, causal: bool = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, softcap: float | None = None, alibi: Any = None, sinks: Any = None,
    prefix: Any = None, documents: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, score_mod: Any = None,
    mask_mod: Any = None, score_args: tuple[Any, ...] = (), mask_args: tuple[Any, ...] = (), lse_grad: Any = None,
    deterministic: bool = False, stream: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of q, k and v, and with `sinks` also theirs, where `grad` is that of `out` from
    `out, lse = attention(q, k, v, ..., return_lse=True)`.

    Arrays and options are as `attention` takes them; `grad` is like `out`, and `lse` float32 [batch, heads, queries].
    `lse_grad`, like lse, is the gradient of lse if that was used. Sinks are part of lse: they are only given for their own
    gradients, float32 [heads], a fourth result.

    `score_mod` is differentiated with respect to scores. It may use arithmetic, `gl.where`, `gl.minimum`, `gl.maximum` and
    functions of one argument (`gl.exp`, `gl.tanh`, `gl.abs` and the like), without branches and loops on run-time values; at a
    kink the derivative is that of one side. There are no gradients of what it loads, nor of slopes.

    Gradients have the types of their arrays and are contiguous. Those of q are added up in float32 in memory, by all programs
    that have keys it sees, in any order: they may differ in their last bits from call to call. With `deterministic` these
    programs take turns, and gradients are the same in every call. Host arrays are simulated.

    Raises LaunchError: attention-array, attention-dtypes, attention-devices, attention-shapes, attention-heads,
    attention-backward-size, attention-strides, attention-scale, attention-window, attention-softcap, attention-prefix,
    attention-together, attention-sequences, attention-function, attention-block-mask, attention-out, attention-option,
    attention-target, kernels-out-needed. CompilationError: language-derivative, at the line of a `score_mod`.
    """
    options = Options(
        causal, scale, window, softcap, alibi, sinks, prefix, documents, cu_seqlens_q, cu_seqlens_k, score_mod, mask_mod,
        tuple(score_args), tuple(mask_args),
    )  # fmt: skip
    call = _ready((q, k, v, out, grad), lse, lse_grad, options, bool(deterministic))
    dtype = heads("q", q).dtype if call is None else call.dtype
    gradients = dq, dk, dv = tuple(empty_like(q, tuple(x.shape), dtype) for x in (q, k, v))
    if sinks is not None:
        gradients = (*gradients, empty_like(q, (q.shape[1],), "float32"))
    if call is None:
        for x in gradients:
            fill(x, 0)
        return gradients
    plan, padded, lines = call.plan, call.padded, call.lines
    scaled, delta = (empty_like(q, (lines, padded), "float32") for _ in range(2))
    total = empty_like(q, (lines * padded, plan.width), "float32")
    turns = empty_like(q, (lines * padded // ROWS + 1,), "int32") if deterministic else None
    blocks = padded // ROWS
    sink_parts = None if sinks is None else empty_like(q, (lines, blocks), "float32")
    prepare[blocks, lines](
        out, grad, lse, lse_grad, scaled, delta, total, turns, sinks, sink_parts, cu_seqlens_q, *call.prepared, plan.v_size,
        plan.width, plan.block_m, num_warps=4, stream=stream,
    )  # fmt: skip
    if sinks is not None:
        heads_of_q = q.shape[1]
        add_sink_parts[heads_of_q](sink_parts, gradients[3], lines // heads_of_q, blocks, num_warps=1, stream=stream)
    starts = (cu_seqlens_q, cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k)
    masked = options.mask_args if options.blocks is None else options.blocks.mask_args
    spans = None if documents is None else document_spans(documents, q, stream)
    attend_backward[call.programs](
        call.q.of(q), call.k.of(k), call.v.of(v), call.grad.of(grad), call.statistics.of(scaled), call.statistics.of(delta),
        total, call.dk.of(dk), call.dv.of(dv), turns, alibi, prefix, spans, *starts, options.score_args, masked,
        *call.numbers, plan, num_warps=4, stream=stream,
    )  # fmt: skip
    convert[blocks, lines](
        total, dq, cu_seqlens_q, *call.converted, plan.size, plan.width, plan.block_m, num_warps=4, stream=stream
    )
    for x in (scaled, delta, total, turns, spans, sink_parts):
        if x is not None:
            used_on(x, stream)
    return gradients


def _ready(arrays: tuple[Any, ...], lse: Any, lse_grad: Any, options: Options, ordered: bool) -> Backward | None:
    """The prepared call for these arrays, None where gradients are zero."""
    try:
        given = (*arrays, lse) if lse_grad is None else (*arrays, lse, lse_grad)
        target = None if arrays[0].is_cuda else driver.simulated_target().arch
        key = (*map(key_of, given), options.key(key_of), ordered, target)
    except (AttributeError, TypeError):
        key = None  # Not PyTorch tensors.
    return _known.of(key, lambda: _prepare(arrays, lse, lse_grad, options, ordered))


def _prepare(arrays: tuple[Any, ...], lse: Any, lse_grad: Any, options: Options, ordered: bool) -> Backward | None:
    q, k, v, out, grad = arrays
    query, key, value = heads("q", q), heads("k", k), heads("v", v)
    check_alike(query, key, value)
    (batch, count, queries, size), (_, kv_heads, keys, v_size) = query.shape, value.shape
    if (size, v_size) not in SIZES:
        raise fail(errors.BACKWARD_SIZE, size=size, v_size=v_size, known=", ".join(map(_sizes, SIZES)))
    shape = (batch, count, queries, v_size)
    result, gradient = (_like_out(name, x, query, shape) for name, x in (("out", out), ("grad", grad)))
    left, right = check_options(options, query, key)
    score, inner = factors(options, size)
    softmax, _ = factors(replace(options, softcap=None), size)
    for name, x in (("lse", lse), ("lse_grad", lse_grad)):
        if x is not None:
            check_vector(name, x, "float32", (batch, count, queries), query)
    if 0 in query.shape or 0 in key.shape:
        return None
    for x in (query, key, value, result, gradient):
        check_described(x)
    machine = target_of(query.device)
    if not machine.has_wgmma:
        raise fail(errors.TARGET, target=machine.name)
    plan = make_backward_plan(
        query.dtype, size, v_size, replace(options.parts(left, right), blocks=False, sinks=False), ordered
    )
    sequences = sequences_of(options) if plan.parts.sequences else 1
    padded, lines, columns = -(-queries // PAD) * PAD, batch * count, -(-keys // plan.block_n)
    if plan.parts.sequences:
        padded, columns = (queries // plan.block_m + sequences) * plan.block_m, keys // plan.block_n + sequences
    members = count // kv_heads
    bytes_of_head = queries * (query.itemsize * (size + v_size) + 4 * plan.width)
    band = max(1, CACHE_BYTES // (members * bytes_of_head))
    processors = multiprocessors_of(query.device, machine_of(machine))
    if ordered:
        # Few programs of a head at a time: each of them waits for the one before, and hands its delays on to those behind it.
        band = max(band, min(processors // IN_LINE, IN_LINE_BYTES // bytes_of_head))
    banded = columns
    if plan.parts.right:
        most = WAVE_BYTES // (members * bytes_of_head)
        band, banded = decreasing(columns, batch * kv_heads, band, most, processors, ordered)
    dq, dk, dv = (_contiguous(x) for x in (query, key, value))
    return Backward(
        plan, query.dtype, batch * kv_heads * columns, lines, padded,
        _described(query.shape, query.strides, plan.q_box, plan), _described(key.shape, key.strides, plan.k_box, plan),
        _described(value.shape, value.strides, plan.v_box, plan),
        _described(gradient.shape, gradient.strides, plan.g_box, plan),
        Described((lines, padded), (padded, 1), (1, plan.block_m), plan.vector_layout),
        _described(key.shape, dk, plan.k_box, plan), _described(value.shape, dv, plan.v_box, plan),
        (*result.strides[:3], *gradient.strides[:3], count, queries, padded, sequences),
        (
            score, inner, softmax / LOG2_E, members, kv_heads, batch * kv_heads, band, banded, queries, keys, padded, left or 0,
            right or 0, sequences,
        ),
        (*dq[:3], count, queries, padded, sequences, softmax / LOG2_E),
    )  # fmt: skip


def decreasing(
    columns: int, heads: int, band: int, most: int, processors: int, ordered: bool = False
) -> tuple[int, int]:
    """How many heads form a band, and how many columns of programs are computed band by band, where a program's work decreases
    along the columns. L2 has room for `band` heads, and for up to `most` if they are one wave.

    Equal bands of whole waves are best: the short programs of one run beside the long ones of the next, all are at about the
    same queries, and those of the last band end together. On an H200 they made 164 of 239 random calls 1.02 times as fast (from
    0.94 to 1.18). `ordered` programs wait for one another, which needs no such bands, only those of a wave or more."""
    if ordered:
        even = heads % band == 0 and 10 * band * columns >= 9 * processors
        return band, columns if even else columns - last_columns(columns, heads, processors)
    fits = [count for count in range(1, heads + 1) if heads % count == 0 and _whole(count * columns, processors)]
    small = [count for count in fits if count <= band]
    if small:
        return small[-1], columns
    # More heads than that are at as many places, for which L2 has no room: several waves gained nothing.
    if fits and fits[0] <= most and 2 * fits[0] * columns < 3 * processors:
        return fits[0], columns
    if (heads - 1) // band * band * columns < processors:
        # The longest programs of all bands begin at once.
        return band, columns
    return band, columns - last_columns(columns, heads, processors)


def _whole(programs: int, processors: int) -> bool:
    """Whether programs are a wave or several, up to a tenth of one less or a thirty-second more."""
    waves = max(1, round(programs / processors))
    return -processors / 10 <= programs - waves * processors <= processors / 32


def _sizes(sizes: tuple[int, int]) -> str:
    return str(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]} with {sizes[1]} for v"


def _like_out(name: str, value: Any, q: Heads, shape: tuple[int, int, int, int]) -> Heads:
    """An array like the result. Raises LaunchError: attention-array, attention-out, attention-devices."""
    found = heads(name, value)
    if found.device != q.device:
        raise fail(errors.DEVICES, first=q.place, name=name, other=found.place)
    if (found.dtype, found.shape) != (q.dtype, shape):
        raise fail(errors.OUT, got=f"{found.dtype} {list(found.shape)}", want=f"{q.dtype} {list(shape)}")
    return found


def _contiguous(x: Heads) -> tuple[int, int, int, int]:
    _, count, length, size = x.shape
    return count * length * size, length * size, size, 1


def _described(shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], plan: BackwardPlan) -> Described:
    if plan.parts.sequences:
        box = (1, *box)
        return Described(*ragged_form(shape[1:], strides[1:], 1), box, plan.layout(box))
    return Described(shape, strides, box, plan.layout(box))
