"""Cross-entropy of rows of logits with class indices: losses, and gradients in the same pass or later.

One exponential an element. Rows that are only read are streamed: each thread keeps a maximum and a sum of its own, so that a
chunk of a row costs no exchange. Where the gradient is wanted too, a row is held in registers, by a cluster if it is long, and
the gradient may take the place of the logits. Longer rows than a cluster holds are read twice.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rows import Rows, each
from weft.kernels.device.softmax import LEAST, LN2, LOG2E, combined, of_cluster, part_powers, share
from weft.kernels.rows.plan import RowPlan


@gl.aggregate
class Labels:
    """The classes of rows, [lines] each: the class, whether the row counts, whether there are the row and the class, and the
    class's logit, 0 where there is none. The logit stays as it was loaded until it is used, so that nothing waits for it
    before."""

    label: gl.tensor
    counts: gl.tensor
    there: gl.tensor
    loaded: gl.tensor

    @jit
    def logit(self, rows):
        """The logit; NaN for a class out of range."""
        inside = (self.label >= 0) & (self.label < rows.cols)
        return gl.where(inside | ~self.counts, self.loaded.to(gl.float32), float("nan"))


@jit
def labels_of(rows, label, logits, row, stride, ignored):
    """A class out of range is reported by the simulator and debug builds, and its loss is NaN."""
    label = label.to(gl.int64)
    counts = (label != ignored) & (row < rows.count)
    inside = (label >= 0) & (label < rows.cols)
    gl.device_assert(inside | ~counts, "cross_entropy: a class index is negative or not below the number of columns")
    line = gl.arange(0, rows.plan.lines, gl.SliceLayout(1, rows.plan.layout)).to(gl.int64)
    there = counts & inside & (row + line < rows.count)
    at = row + line
    logit = gl.load(logits + at * stride + gl.where(there, label, 0), mask=there, other=0.0)
    return Labels(label, counts, there, logit)


@jit
def loss_of(rows, found, logit, level, lse, smoothing, z, SMOOTH: gl.constexpr):
    """Losses [lines] of rows with these logits of their classes and logarithms of sums; `level` is the sum of their logits."""
    aim = logit
    if SMOOTH:
        aim = (1.0 - smoothing) * aim + smoothing * (level / rows.cols.to(gl.float32))
    return gl.where(found.counts, lse - aim + z * lse * lse, 0.0)


@jit
def gradient(rows, p, column, label, counts, lse, factor, smoothing, z):
    """The gradient of losses times `factor`, for the probabilities of some columns."""
    factor = gl.where(counts, factor, 0.0)
    y = p * (factor * (1.0 + 2.0 * z * lse))[:, None] - (factor * smoothing / rows.cols.to(gl.float32))[:, None]
    return gl.where(column == label.to(gl.int32)[:, None], y - (factor * (1.0 - smoothing))[:, None], y)


@jit
def store_gradient(rows, grad, row, stride, e, part, found, logit, lse, factor, smoothing, z, SMOOTH: gl.constexpr):
    """Store the gradient of rows that are held as a whole: powers `e`, which times `part` are probabilities. The class's own
    gradient is stored over what all columns have in common, which saves a comparison for each element."""
    factor = gl.where(found.counts, factor, 0.0)
    steep, level = factor * (1.0 + 2.0 * z * lse), factor * smoothing / rows.cols.to(gl.float32)
    part = each(part * rows.for_warps(steep, part))[:, :, :, :, None]
    y = [rows.together(tile * part) for tile in e]
    if SMOOTH:
        y = [tile - level[:, None] for tile in y]
    rows.store(grad, row, stride, y)
    gl.barrier()
    own = gl.exp2((logit - lse) * LOG2E) * steep - level - factor * (1.0 - smoothing)
    at = gl.arange(0, rows.plan.lines, gl.SliceLayout(1, rows.plan.layout)).to(gl.int64) + row
    gl.store(
        grad + at * stride + gl.where(found.there, found.label, 0), own.to(grad.dtype.element_ty), mask=found.there
    )


@jit
def finite(x):
    """What label smoothing counts: logits, and 0 for -inf."""
    x = x.to(gl.float32)
    return gl.where(x == float("-inf"), 0.0, x)


@jit
def chunk(rows, base, first, cols, TAIL: gl.constexpr, other: gl.constexpr):
    """The columns from `first` on of `cols` of a row."""
    at = first + rows.place_in
    if TAIL:
        return gl.load(base + at, mask=at < cols, other=other)
    return gl.load(base + at)


@jit
def own_sums(rows, x, peak, total, level, SMOOTH: gl.constexpr):
    """Continue each thread's maximum and sum of powers by a chunk of a row."""
    plan: gl.constexpr = rows.plan
    threads: gl.constexpr = 32 * plan.warps
    # "Within a thread" is a shape: the first and last axis lie in registers.
    x = gl.reshape(x, [plan.part // (threads * plan.vec), threads, plan.vec])
    # The powers of -inf are 0 also if there is nothing else.
    top = gl.maximum(peak, gl.max(gl.max(x, axis=2), axis=0))
    e = gl.exp2((x - top[None, :, None]) * LOG2E)
    total = total * gl.exp2((peak - top) * LOG2E) + gl.sum(gl.sum(e, axis=2), axis=0)
    if SMOOTH:
        level += gl.sum(gl.sum(finite(x), axis=2), axis=0)
    return top, total, level


@gl.constexpr_function
def threads_of(plan):
    """The layout of one number of each thread."""
    return gl.BlockedLayout([1], [32], [plan.warps], [0])


@jit
def streamed(rows, base, TAIL: gl.constexpr, SMOOTH: gl.constexpr):
    """Largest element, sum of powers and sum of a row that is read in chunks, from the first aligned address on. What is before
    it are the first elements of threads."""
    plan: gl.constexpr = rows.plan
    threads: gl.constexpr = 32 * plan.warps
    peak = gl.full([threads], LEAST, gl.float32, threads_of(plan))
    total = gl.zeros([threads], gl.float32, threads_of(plan))
    level = gl.zeros([threads], gl.float32, threads_of(plan))
    cols = rows.cols
    if plan.align:
        head = (plan.align - rows.skew) & (plan.align - 1)
        i = gl.arange(0, threads, threads_of(plan))
        x = gl.load(base + i, mask=i < head, other=float("-inf")).to(gl.float32)
        peak = gl.maximum(x, LEAST)
        total = gl.exp2((x - peak) * LOG2E)
        if SMOOTH:
            level = finite(x)
        base, cols = rows.aligned(base + head), cols - head
    whole = cols // plan.part * plan.part
    for first in range(0, whole, plan.part):
        x = chunk(rows, base, first, cols, False, 0.0).to(gl.float32)
        top, sums, levels = own_sums(rows, x, peak, total, level, SMOOTH)
        peak = gl.convert_layout(top, threads_of(plan), assert_trivial=True)
        total = gl.convert_layout(sums, threads_of(plan), assert_trivial=True)
        level = gl.convert_layout(levels, threads_of(plan), assert_trivial=True)
    if TAIL:
        x = chunk(rows, base, whole, cols, True, float("-inf")).to(gl.float32)
        top, sums, levels = own_sums(rows, x, peak, total, level, SMOOTH)
        peak = gl.convert_layout(top, threads_of(plan), assert_trivial=True)
        total = gl.convert_layout(sums, threads_of(plan), assert_trivial=True)
        level = gl.convert_layout(levels, threads_of(plan), assert_trivial=True)
    top = gl.max(peak, axis=0)
    whole_sum = gl.sum(total * gl.exp2((peak - top) * LOG2E), axis=0)
    if SMOOTH:
        whole_level = gl.sum(level, axis=0)
    else:
        whole_level = gl.to_tensor(0.0)
    return rows.lined(top), rows.lined(whole_sum), rows.lined(whole_level)


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "stride", "grad_stride"])
def cross_entropy_rows(
    logits: gl.tensor, labels: gl.tensor, losses: gl.tensor, sums: gl.tensor, grad: gl.tensor | None,
    factors: gl.tensor | float, count: int, cols: int, stride: int, grad_stride: int, smoothing: float, z: float, ignored: int,
    SMOOTH: gl.constexpr, SCALED: gl.constexpr, TAIL: gl.constexpr, FITS: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """Losses of rows, the logarithms of their sums of powers, and their gradients in `grad`, which may be `logits`.

    FITS: the program holds its rows as a whole; otherwise a row is read in chunks, the last one short if TAIL."""
    rows = Rows.make(count, cols, plan)
    turn = 0
    for row in range(rows.first(), count, rows.step()):
        found = labels_of(rows, rows.load_numbers(labels, row), logits, row, stride, ignored)
        logit = found.logit(rows)
        if grad is not None:
            factor = rows.number(factors, row, SCALED)
        here = rows.beginning(logits, row, stride)
        if FITS:
            x = here.load(logits, row, stride, float("-inf") if plan.align else 0.0)
            peak, e, unit, sums_of_parts = part_powers(rows, x)
            level = sums_of_parts
            if SMOOTH:
                level = rows.part_sums([finite(tile) for tile in x])
                peaks, totals, levels, _ = rows.exchanged(turn, (peak, sums_of_parts, level, level))
                level = rows.total(levels)
            else:
                peaks, totals = rows.exchanged(turn, (peak, sums_of_parts))
            top, total = combined(rows, peaks, totals)
            turn = turn + 1
        else:
            base = logits + row.to(gl.int64) * gl.multiple_of(stride, 1 if plan.align else plan.vec)
            top, total, level = streamed(here, base, TAIL, SMOOTH)
        lse = top + gl.log2(total) * LN2
        rows.store_numbers(losses, row, loss_of(rows, found, logit, level, lse, smoothing, z, SMOOTH))
        rows.store_numbers(sums, row, lse)
        if grad is not None:
            # All threads have the logit of the class before its place is written to.
            gl.barrier()
            if FITS:
                part = share(rows, peak, top, total) * unit
                store_gradient(here, grad, row, grad_stride, e, part, found, logit, lse, factor, smoothing, z, SMOOTH)
            else:
                target = grad + row.to(gl.int64) * gl.multiple_of(grad_stride, plan.vec)
                stream_gradients(rows, base, target, found, lse, factor, smoothing, z, TAIL)


@gl.aggregate
class Class:
    """The class of a cluster's row. `mine`: this thread holds its logit (the first thread of the row, if there is none), and
    does what one thread does for the row. The logit stays as it was loaded until it is used."""

    column: gl.tensor
    counts: gl.tensor
    inside: gl.tensor
    mine: gl.tensor
    loaded: gl.tensor


@jit
def store_one(at, value):
    """Store a number, by each thread that gets here."""
    gl.LayoutTensor(at, gl.Layout.row_major(1))[0] = value


@jit
def label_at(rows, labels, row):
    """The class of a row; 0 if there is no such row."""
    return gl.load(labels + row, mask=row < rows.count, other=0)


@jit
def class_of(rows, label, logits, row, stride, ignored):
    """A class out of range is reported by the simulator and debug builds, and its loss is NaN."""
    plan: gl.constexpr = rows.plan
    counts = (label != ignored) & (row < rows.count)
    inside = (label >= 0) & (label < rows.cols)
    gl.device_assert(inside | ~counts, "cross_entropy: a class index is negative or not below the number of columns")
    column = gl.where(inside, label, 0).to(gl.int32)
    threads: gl.constexpr = 32 * plan.warps
    place = column + rows.beginning(logits, row, stride).skew
    own = place - gl.block_rank_in_cluster() * rows.portion
    holder = (own & (threads * plan.vec - 1)) // plan.vec
    mine = (own >= 0) & (own < rows.portion) & (holder == gl.thread_idx.x)
    at = logits + row.to(gl.int64) * stride + column
    return Class(column, counts, inside, mine, gl.load(at, mask=mine & inside & counts, other=0.0))


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "stride", "grad_stride"])
def cross_entropy_clusters(
    logits: gl.tensor, labels: gl.tensor, losses: gl.tensor, sums: gl.tensor, grad: gl.tensor | None,
    factors: gl.tensor | float, count: int, cols: int, stride: int, grad_stride: int, smoothing: float, z: float, ignored: int,
    SMOOTH: gl.constexpr, SCALED: gl.constexpr, STEEP: gl.constexpr, counter: gl.tensor | None,
    plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """As `cross_entropy_rows`, for rows that a cluster holds; STEEP: `z` is not 0.

    What concerns the class is done by the one thread that holds its logit. It stores the class's own gradient after those of
    the columns that it has, so that no thread waits for another."""
    rows = Rows.make(count, cols, plan, counter)
    xs = rows.stream(logits, stride)
    rows.begin((xs,))
    rows.ready()
    turn, slot, row = 0, 0, rows.first()
    following = row + rows.step()
    found = class_of(rows, label_at(rows, labels, row), logits, row, stride, ignored)
    label = label_at(rows, labels, following)
    while row < count:
        ticket = rows.draw()
        rows.arrived()
        here = rows.beginning(logits, row, stride)
        x = here.take(xs, slot, row, float("-inf"))
        slot = rows.refill((xs,), slot, row, following)
        factor = gl.to_tensor(1.0)
        if grad is not None:
            factor = gl.load(factors + row) if SCALED else factors
            factor = gl.where(found.counts, factor, 0.0)
        peak, e, unit, sums_of_parts = part_powers(rows, x)
        if SMOOTH:
            level = rows.part_sums([finite(tile) for tile in x])
            exchanged = rows.exchanged(turn, (peak, sums_of_parts, level, *ticket))
            mean = gl.sum(gl.sum(exchanged[2], axis=0), axis=0) / cols.to(gl.float32)
        else:
            exchanged = rows.exchanged(turn, (peak, sums_of_parts, *ticket))
        top, total = of_cluster(exchanged[0], exchanged[1])
        behind = rows.after(following, exchanged[3:4] if SMOOTH else exchanged[2:3])
        turn = turn + 1
        steep = factor
        if STEEP:
            steep = factor * (1.0 + 2.0 * z * (top + gl.log2(total) * LN2))
        if grad is not None:
            part = gl.exp2((peak - top) * LOG2E) * unit * (steep / total)
            y = [rows.together(tile * each(part)[:, :, :, :, None]) for tile in e]
            if SMOOTH:
                level = factor * smoothing / cols.to(gl.float32)
                y = [tile - level for tile in y]
            here.store(grad, row, grad_stride, y)
        if found.mine:
            lse = top + gl.log2(total) * LN2
            logit = gl.where(found.inside | ~found.counts, found.loaded.to(gl.float32), float("nan"))
            aim = (1.0 - smoothing) * logit + smoothing * mean if SMOOTH else logit
            store_one(losses + row, gl.where(found.counts, lse - aim + z * lse * lse, 0.0))
            store_one(sums + row, lse)
            if grad is not None:
                own = gl.exp2((logit - lse) * LOG2E) * steep - factor * (1.0 - smoothing)
                own -= factor * smoothing / cols.to(gl.float32)
                if found.inside & found.counts:
                    store_one(grad + row.to(gl.int64) * grad_stride + found.column, own.to(grad.dtype.element_ty))
        # The next row's logit and the label of the row after it arrive while the next row is reduced. Loaded at the top of an
        # iteration, the logit made all warps wait for the label that names it.
        found = class_of(rows, label, logits, following, stride, ignored)
        label = label_at(rows, labels, behind)
        row, following = following, behind


@jit
def stream_gradients(rows, base, target, found, lse, factor, smoothing, z, TAIL: gl.constexpr):
    """The gradient of a row in chunks, from the logarithm of its sum of powers."""
    plan: gl.constexpr = rows.plan
    whole = rows.cols // plan.part * plan.part
    for first in range(0, whole, plan.part):
        x = chunk(rows, base, first, rows.cols, False, 0.0).to(gl.float32)
        p = gl.exp2((x - lse[:, None]) * LOG2E)
        y = gradient(rows, p, first + rows.column, found.label, found.counts, lse, factor, smoothing, z)
        gl.store(target + first + rows.column, y.to(target.dtype.element_ty))
    if TAIL:
        x = chunk(rows, base, whole, rows.cols, True, 0.0).to(gl.float32)
        p = gl.exp2((x - lse[:, None]) * LOG2E)
        y = gradient(rows, p, whole + rows.column, found.label, found.counts, lse, factor, smoothing, z)
        gl.store(target + whole + rows.column, y.to(target.dtype.element_ty), mask=whole + rows.column < rows.cols)


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "stride", "grad_stride"])
def cross_entropy_backward_rows(
    logits: gl.tensor, labels: gl.tensor, sums: gl.tensor, grad: gl.tensor, factors: gl.tensor | float, count: int, cols: int,
    stride: int, grad_stride: int, smoothing: float, z: float, ignored: int, SCALED: gl.constexpr,
    plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """Gradients of rows from the logarithms of their sums; program [i, j] has chunk j of row group i."""
    rows = Rows.make(count, cols, plan)
    row = rows.first()
    label = rows.load_numbers(labels, row).to(gl.int64)
    lse, factor = rows.load_numbers(sums, row), rows.number(factors, row, SCALED)
    first = gl.program_id(1) * plan.part
    rows = rows.beginning(logits, row, stride)
    at = first + rows.column
    inside = (at < rows.cols) & (rows.line < count - row)
    if plan.align:
        inside = inside & (at >= 0)
    x = gl.load(rows.place(logits + first, row, stride), mask=inside, other=0.0).to(gl.float32)
    p = gl.exp2((x - lse[:, None]) * LOG2E)
    y = gradient(rows, p, at, label, label != ignored, lse, factor, smoothing, z)
    gl.store(rows.place(grad + first, row, grad_stride), y.to(grad.dtype.element_ty), mask=inside)
