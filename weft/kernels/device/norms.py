"""RMSNorm and LayerNorm of rows: forward with residual addition and 8-bit outputs, and backward.

Forward: rows are read once and held in registers; a program has few of them, or stays and draws them. Backward: programs are
persistent, and each adds up what its rows contribute to the gradients of weight and bias in registers; `add_programs` adds the
programs' sums in a fixed order, so gradients repeat to the bit.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rows import Rows, each
from weft.kernels.rows.plan import RowPlan


@jit
def moments(rows, x, ticket, turn, CENTRED: gl.constexpr):
    """Mean (0 if not CENTRED) and mean square distance from it, [lines] each, and what was exchanged of a ticket.

    Deviations are from the mean of what a warp holds, so that large means cost no accuracy; the warps' results are combined as
    by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979)."""
    if not CENTRED:
        found = rows.exchanged(turn, (rows.part_sums([tile * tile for tile in x]), *ticket))
        square = rows.total(found[0]) / rows.cols.to(gl.float32)
        return gl.zeros_like(square), square, found[1:2]
    cols = rows.cols.to(gl.float32)
    own = rows.part_sums(x)
    own = own / gl.maximum(rows.part_sizes(own), 1.0)
    away = rows.real_columns([rows.together(rows.parts(tile) - each(own)) for tile in x])
    found = rows.exchanged(turn, (own, rows.part_sums([tile * tile for tile in away]), *ticket))
    means, squares = found[0], found[1]
    sizes = rows.part_sizes(means)
    mean = rows.total(means * sizes) / cols
    off = means - rows.for_warps(mean, means)
    return mean, rows.total(squares + sizes * (off * off)) / cols, found[2:3]


@jit(do_not_specialize=["count", "cols", "x_stride", "residual_stride", "out_stride", "total_stride"])
def normalise(
    x: gl.tensor, residual: gl.tensor | None, weight: gl.tensor | None, bias: gl.tensor | None, out: gl.tensor,
    total: gl.tensor | None, scales: gl.tensor | None, means: gl.tensor | None, rstds: gl.tensor | None,
    counter: gl.tensor | None, count: int,
    cols: int, x_stride: int, residual_stride: int, out_stride: int, total_stride: int, eps: float,
    CENTRED: gl.constexpr, LARGEST: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """`out` = (h - mean) / sqrt(variance + eps) * weight + bias, with h = x + residual, stored in `total`.

    With `scales`, a row of `out` is divided by its scale, which makes its largest magnitude LARGEST. `means` and `rstds`
    receive what the backward pass needs."""
    rows = Rows.make(count, cols, plan, counter)
    xs = rows.stream(x, x_stride)
    streams = (xs, rows.stream(residual, residual_stride)) if residual is not None else (xs,)
    rows.begin(streams)
    rows.ready()
    turn, slot, row = 0, 0, rows.first()
    following = row + rows.step()
    while row < count:
        ticket = rows.draw()
        rows.arrived()
        here = rows.beginning(x, row, x_stride)
        h = [tile.to(gl.float32) for tile in here.take(xs, slot, row)]
        if residual is not None:
            r = here.take(streams[1], slot, row)
            h = [h[i] + r[i].to(gl.float32) for i in gl.static_range(plan.tiles)]
        slot = rows.refill(streams, slot, row, following)
        if total is not None:
            # What is normalised is what a reader of `total` sees.
            here.store(total, row, total_stride, h)
            h = [tile.to(total.dtype.element_ty).to(gl.float32) for tile in h]
        mean, square, tickets = moments(here, h, ticket, turn, CENTRED)
        turn += 1
        rstd = gl.rsqrt(square + eps)
        if means is not None:
            rows.store_numbers(means, row, mean)
        if rstds is not None:
            rows.store_numbers(rstds, row, rstd)
        if CENTRED:
            h = [tile - mean[:, None] for tile in h]
        y = [tile * rstd[:, None] for tile in h]
        # Loaded here, and not with x, weight and bias take no registers during the reduction, so that more rows are in flight.
        if weight is not None:
            y = [y[i] * here.load_shared(weight, i).to(gl.float32) for i in gl.static_range(plan.tiles)]
        if bias is not None:
            y = [y[i] + here.load_shared(bias, i).to(gl.float32) for i in gl.static_range(plan.tiles)]
        if scales is not None:
            magnitude = [gl.abs(tile) for tile in y]
            peak = rows.max(here.real_columns(magnitude) if CENTRED else magnitude, turn)
            turn += 1
            rows.store_numbers(scales, row, peak / LARGEST)
            factor = gl.where(peak > 0, LARGEST / peak, 0.0)
            y = [scaled(tile, factor, out.dtype.element_ty) for tile in y]
        here.store(out, row, out_stride, y)
        row, following = following, rows.after(following, tickets)


@jit
def scaled(y, factor, kind: gl.constexpr):
    """Rows times their factors, rounded to integers if that is what is stored."""
    y = y * factor[:, None]
    if kind.is_floating():
        return y
    # 1.5 * 2**23 leaves no bits below the integer: the sum is rounded to nearest even.
    return (y + 12582912.0) - 12582912.0


@jit(do_not_specialize=["count", "cols", "grad_stride", "x_stride", "added_stride", "out_stride"])
def normalise_backward(
    grad: gl.tensor, x: gl.tensor, added: gl.tensor | None, weight: gl.tensor | None, means: gl.tensor | None, rstds: gl.tensor,
    out: gl.tensor, weight_sums: gl.tensor | None, bias_sums: gl.tensor | None, count: int, cols: int, grad_stride: int,
    x_stride: int, added_stride: int, out_stride: int, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """`out` = the gradient of x, plus `added`; `weight_sums` and `bias_sums` [programs, cols] receive each program's sums over
    its rows."""
    CENTRED: gl.constexpr = means is not None
    rows = Rows.make(count, cols, plan)
    grads, xs = rows.stream(grad, grad_stride), rows.stream(x, x_stride)
    if weight is not None:
        # Copied with the first rows.
        weights = rows.vector(weight)
    rows.begin((grads, xs))
    if weight_sums is not None:
        weight_sum = [gl.zeros([plan.lines, plan.part], gl.float32, plan.layout) for _ in gl.static_range(plan.tiles)]
    if bias_sums is not None:
        bias_sum = [gl.zeros([plan.lines, plan.part], gl.float32, plan.layout) for _ in gl.static_range(plan.tiles)]
    rows.ready()
    turn, slot = 0, 0
    for row in range(rows.first(), count, rows.step()):
        rstd = rows.load_numbers(rstds, row)
        if CENTRED:
            mean = rows.load_numbers(means, row)
        rows.arrived()
        g = [tile.to(gl.float32) for tile in rows.take(grads, slot, row)]
        h = [tile.to(gl.float32) for tile in rows.take(xs, slot, row)]
        slot = rows.refill((grads, xs), slot, row)
        if CENTRED:
            h = [tile - mean[:, None] for tile in h]
        normal = [tile * rstd[:, None] for tile in h]
        if bias_sums is not None:
            bias_sum = [bias_sum[i] + g[i] for i in gl.static_range(plan.tiles)]
        if weight_sums is not None:
            # Where there is no element g is 0.
            weight_sum = [weight_sum[i] + g[i] * normal[i] for i in gl.static_range(plan.tiles)]
        if weight is not None:
            g = [g[i] * rows.element(weights, i).to(gl.float32) for i in gl.static_range(plan.tiles)]
        products = [g[i] * normal[i] for i in gl.static_range(plan.tiles)]
        if CENTRED:
            along, level = rows.sums(products, g, turn)
            level = (level / cols.to(gl.float32))[:, None]
        else:
            along = rows.sum(products, turn)
        along = (along / cols.to(gl.float32))[:, None]
        turn = turn + 1
        if CENTRED:
            y = [g[i] - level - normal[i] * along for i in gl.static_range(plan.tiles)]
        else:
            y = [g[i] - normal[i] * along for i in gl.static_range(plan.tiles)]
        y = [tile * rstd[:, None] for tile in y]
        if added is not None:
            more = rows.load(added, row, added_stride)
            y = [y[i] + more[i].to(gl.float32) for i in gl.static_range(plan.tiles)]
        rows.store(out, row, out_stride, y)
    if weight_sums is not None:
        rows.store_columns(weight_sums, weight_sum)
    if bias_sums is not None:
        rows.store_columns(bias_sums, bias_sum)
