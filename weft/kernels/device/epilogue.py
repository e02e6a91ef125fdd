"""The epilogue: pieces of the accumulator tile become pieces of the output, which are stored through rotating buffers.

A piece is a part of the tile that consists of a subset of every thread's registers, so that extracting it costs no
instructions. While TMA still stores one piece, the next one is written to another buffer, and what the one after it reads from
memory is on its way. What is computed, `finished`, is the same for all kernels, and for the reduction of split-K.
"""

from __future__ import annotations

from typing import Any

from weft import language as gl
from weft.errors import fail
from weft.errors import kernels as errors
from weft.errors.location import Loc
from weft.kernel import jit
from weft.kernels.device.rings import barriers_of
from weft.kernels.epilogue_plan import GROUP
from weft.language.marks import builtin
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

RESIDUAL: gl.constexpr = gl.constexpr(4)
"""The residual's place among the operands."""
LEAST_PEAK: gl.constexpr = gl.constexpr(1e-30)
"""The least maximum of magnitudes for a scale: its inverse is a float32 too."""


@jit
def fetch(
    given, row, column, half: gl.constexpr, M, N, layout: gl.constexpr, shape: gl.constexpr, form: gl.constexpr,
    turned: gl.constexpr = False,
):  # fmt: skip
    """An operand of the epilogue for a piece at a row and column of an [M, N] output: a scalar, or a tile that broadcasts over
    the piece; zero out of bounds. `half` 1 is for the second half of an operand of twice the columns of the caller's output,
    which are rows if this is its transpose (`turned`)."""
    if form is None or form.described:
        return None
    if not form.memory:
        return given
    pointer, row_stride, column_stride = given
    if not (form.rows or form.columns):
        return gl.load(pointer)
    pointer = gl.multiple_of(pointer, form.unit * (pointer.dtype.element_ty.primitive_bitwidth // 8))
    if form.contiguous == "columns":
        row_stride, column_stride, N = gl.multiple_of(row_stride, form.unit), 1, gl.multiple_of(N, form.unit)
    if form.contiguous == "rows":
        row_stride, column_stride, M = 1, gl.multiple_of(column_stride, form.unit), gl.multiple_of(M, form.unit)
    if half:
        pointer += gl.cast(M, gl.int64) * row_stride if turned else gl.cast(N, gl.int64) * column_stride
    if form.rows:
        i = gl.arange(0, shape[0], gl.SliceLayout(1, layout))
        pointer += gl.cast(row, gl.int64) * row_stride
    if form.columns:
        j = gl.arange(0, shape[1], gl.SliceLayout(0, layout))
        pointer += gl.cast(column, gl.int64) * column_stride
    if not form.columns:
        return gl.load(pointer + i * row_stride, mask=i < M - row, other=0)[:, None]
    if not form.rows:
        return gl.load(pointer + j * column_stride, mask=j < N - column, other=0)[None, :]
    mask = (i < M - row)[:, None] & (j < N - column)[None, :]
    return gl.load(pointer + i[:, None] * row_stride + j[None, :] * column_stride, mask=mask, other=0)


@jit
def fetch_all(given, row, column, M, N, layout: gl.constexpr, shape: gl.constexpr, form: gl.constexpr):
    """The operands of the epilogue for a piece, in the order of `form.operands`, and behind them the second half's."""
    found = ()
    for k in gl.static_range(len(form.operands)):
        found = (*found, fetch(given[k], row, column, 0, M, N, layout, shape, form.operands[k]))
    if form.gated:
        for k in gl.static_range(1, 4, 2):
            found = (*found, fetch(given[k], row, column, 1, M, N, layout, shape, form.operands[k], form.turned))
    return found


@jit
def widened(x):
    """A float as float32; integers as they are."""
    return x.to(gl.float32) if x.dtype.is_floating() and x.dtype.primitive_bitwidth < 32 else x


@jit
def linear(x, scale_a, scale_b, bias):
    """Sums, scaled and with the bias, in float32."""
    x = x.to(gl.float32)
    if scale_a is not None:
        x = x * scale_a
    if scale_b is not None:
        x = x * scale_b
    if bias is not None:
        x = x + bias.to(gl.float32)
    return x


@jit
def finished(x, other, operands, row, column, form: gl.constexpr):
    """What the output holds at a row and column for the sums x, before the conversion to its type; see `Epilogue`. `other` has
    the sums of b's second half."""
    if form.plain:
        return x
    scale_a, scale_b, out_scale, bias, residual = operands[:5]
    shape: gl.constexpr = x.shape
    x = linear(x, scale_a, scale_b, bias)
    if form.activation is not None:
        x = form.activation(x)
    if form.gated:
        x = x * linear(other, scale_a, operands[-2], operands[-1])
    if residual is not None:
        x = x + residual.to(gl.float32)
    if form.function is not None:
        i = (row + gl.arange(0, shape[0], gl.SliceLayout(1, x.layout)))[:, None]
        j = (column + gl.arange(0, shape[1], gl.SliceLayout(0, x.layout)))[None, :]
        extras = ()
        for k in gl.static_range(len(form.extras)):
            extras = (*extras, widened(operands[5 + k]))
        if form.form is not None:
            extras = form.form(*extras)
        found = form.function(x, j, i, extras) if form.turned else form.function(x, i, j, extras)
        x = result_of(form.function, found, x)
    if out_scale is not None:
        x = x.to(gl.float32) * (1.0 / out_scale)
    return x


@jit
def add_extras(x: gl.tensor, rows: gl.tensor, columns: gl.tensor, extras: tuple[Any, ...]) -> gl.tensor:
    """A function of an epilogue: x plus all that the caller passes as extras."""
    for k in gl.static_range(len(extras)):
        x += extras[k]
    return x


@gl.constexpr_function
def largest(dtype: Any) -> float:
    """The largest number of a type of fp8."""
    return 448.0 if dtype == gl.float8e4nv else 57344.0


@jit
def measured(
    x,
    before,
    given,
    row,
    column,
    M,
    N,
    begins: gl.constexpr,
    ends: gl.constexpr,
    form: gl.constexpr,
    dtype: gl.constexpr,
):
    """Of each row of a piece what the epilogue writes: joined to that of the pieces `before` in the same group of columns,
    unless the piece `begins` one, and written where it `ends`. Returns the piece, divided by its scales if it has some, and
    what to hand to the next piece."""
    if not form.written:
        return x, None
    x = x.to(gl.float32)
    i = row + gl.arange(0, x.shape[0], gl.SliceLayout(1, x.layout))
    j = column + gl.arange(0, x.shape[1], gl.SliceLayout(0, x.layout))
    seen = gl.where((j < N)[None, :], x, 0.0)
    found = ()
    for k in gl.static_range(len(form.written)):
        value = gl.sum(seen * seen, axis=1) if form.written[k] == "row_squares" else gl.max(gl.abs(seen), axis=1)
        if not begins:
            value = value + before[k] if form.written[k] == "row_squares" else gl.maximum(value, before[k])
        if form.written[k] == "out_scales":
            # Rows of zeros have a scale, too.
            value = gl.maximum(value, LEAST_PEAK) * (1.0 / largest(dtype))
            x = x * (1.0 / value)[:, None]
        if ends:
            pointer, row_stride, column_stride = given[len(form.operands) + k]
            place = gl.cast(i, gl.int64) * row_stride + gl.cast(column // GROUP, gl.int64) * column_stride
            gl.store(pointer + place, value, mask=i < M)
        found = (*found, value)
    return x, found


@builtin
def result_of(function: Any, found: Any, x: gl.tensor) -> gl.tensor:
    """What a function has found for a piece x. Raises CompilationError (kernels-epilogue-result), at its last line."""
    if isinstance(found, gl.tensor) and list(found.shape) == list(x.shape):
        return found
    got = f"a tile {list(found.shape)}" if isinstance(found, gl.tensor) and found.shape else f"a {type(found).__name__}"
    code = function.fn.__code__
    loc = Loc(code.co_filename, max(line for *_, line in code.co_lines() if line), function=function.__name__)
    raise fail(errors.EPILOGUE_RESULT, name=function.__name__, got=got, want=list(x.shape), loc=loc)


@jit
def buffers_of(plan: gl.constexpr):
    """One partition's shared-memory buffers for pieces that TMA stores; None if pieces are stored from registers."""
    if not plan.out.described:
        return None
    return gl.allocate_shared_memory(plan.out.dtype, [plan.buffers, *plan.out.block], plan.out.layout)


@gl.aggregate
class Sums:
    """An accumulator tile in registers."""

    acc: gl.tensor

    @jit
    def piece(self, i: gl.constexpr, down: gl.constexpr, right: gl.constexpr, form: gl.constexpr):
        """Piece `i`, which begins `down` rows and `right` columns behind the tile's first."""
        return self.acc[down : down + form.height, right : right + form.width]


@gl.aggregate
class Target:
    """The output as one partition stores it: through `buffers` to a descriptor, or from registers to a pointer with strides.
    It is [M, N], and `given` are the operands of the epilogue."""

    out: gl.tensor | tma.tensor_descriptor
    buffers: gl.shared_memory_descriptor | None
    given: tuple[Any, ...] | None
    row_stride: gl.tensor
    column_stride: gl.tensor
    M: gl.tensor
    N: gl.tensor
    batch: tuple[Any, ...] | None
    full: gl.shared_memory_descriptor | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(out, given, row_stride, column_stride, M, N, batch, plan: gl.constexpr):
        """The output with buffers of its own, and barriers that complete when these hold a piece of the residual."""
        full = barriers_of(plan.buffers, 1) if plan.epilogue.loaded else None
        return Target(out, buffers_of(plan), given, row_stride, column_stride, M, N, batch, full, plan)

    @jit
    def begin(self, row, column):
        """Issue the loads of the residual's first pieces, as many as there are buffers, for a tile that is then stored."""
        plan: gl.constexpr = self.plan
        if plan.epilogue.loaded:
            # The stores of the tile before have read the buffers.
            tma.store_wait(pendings=0)
            for i in gl.static_range(plan.buffers):
                self.load(i, row, column * plan.stored)

    @jit
    def load(self, i: gl.constexpr, row, column):
        """Issue the load of piece `i` of the residual, of a tile at a row and column of the output, into its buffer."""
        plan: gl.constexpr = self.plan
        form: gl.constexpr = plan.out
        across: gl.constexpr = plan.stored // form.width
        bar = self.full.index(i % plan.buffers)
        mbarrier.expect(bar, form.height * form.width * form.dtype.itemsize // plan.cluster)
        place = (row + i // across * form.height, column + i % across * form.width)
        if form.columns_first:
            place = place[::-1]
        tma.async_load(self.given[RESIDUAL], place, bar, self.buffers.index(i % plan.buffers))

    @jit
    def loaded(self, i: gl.constexpr, x, operands, rows: gl.constexpr, row, column, turn):
        """The operands of piece `i`, among them this piece of the residual, which is waited for, in the layout of x. The load
        of a later piece is issued into the buffer of the piece before."""
        plan: gl.constexpr = self.plan
        if not plan.epilogue.loaded:
            return operands
        pieces: gl.constexpr = rows // plan.out.height * (plan.stored // plan.out.width)
        number: gl.constexpr = i % plan.buffers
        # Each tile uses a buffer pieces / buffers times.
        phase = (turn * (pieces // plan.buffers) + i // plan.buffers) & 1
        mbarrier.wait(self.full.index(number), phase)
        buffer = self.buffers.index(number)
        residual = (buffer.permute([1, 0]) if plan.out.columns_first else buffer).load(x.layout)
        if i > 0 and i - 1 + plan.buffers < pieces:
            tma.store_wait(pendings=0)
            self.load(i - 1 + plan.buffers, row, column)
        return *operands[:RESIDUAL], residual, *operands[RESIDUAL + 1 :]

    @jit
    def store(self, tile, rows: gl.constexpr, row, column, part, turn):
        """Store a tile of `rows` rows, whose first is `row`, in the given column of tiles: of the output, or of the split's
        partial result in split-K. `turn` counts the tiles that have been stored before."""
        plan: gl.constexpr = self.plan
        form: gl.constexpr = plan.out
        across: gl.constexpr = plan.stored // form.width
        below = below_of(part, self.M, self.N, plan)
        first = column * plan.stored
        operands, before = None, None
        for i in gl.static_range(rows // form.height * across):
            down: gl.constexpr = i // across * form.height
            right: gl.constexpr = i % across * form.width
            x = lying(tile.piece(i, down, right, form), plan)
            other = lying(self.other(tile, i, rows, down, right), plan) if plan.epilogue.gated else None
            if i == 0:
                operands = self.fetch(x, row, first)
            ahead = None
            if i + 1 < rows // form.height * across:
                # On its way while this piece is computed and stored.
                ahead = self.fetch(x, row + (i + 1) // across * form.height, first + (i + 1) % across * form.width)
            operands = self.loaded(i, x, operands, rows, row, first, turn)
            if form.described and not plan.epilogue.loaded:
                # Wait until the TMA store that last used this buffer has read it.
                tma.store_wait(pendings=plan.buffers - 1)
            x = finished(x, other, operands, row + down, first + right, plan.epilogue)
            x, before = measured(
                x, before, self.given, row + down, first + right, self.M, self.N, right % GROUP == 0,
                (right + form.width) % GROUP == 0, plan.epilogue, form.dtype,
            )  # fmt: skip
            # A tile begins where the one before has ended, so that a buffer is always the least recently used one.
            pieces: gl.constexpr = rows // form.height * across
            number = i % plan.buffers if pieces % plan.buffers == 0 else (turn * pieces + i) % plan.buffers
            self.store_piece(number, x.to(form.dtype), row + down, first + right, below, part)
            operands = ahead

    @jit
    def other(self, tile, i: gl.constexpr, rows: gl.constexpr, down: gl.constexpr, right: gl.constexpr):
        """The second half's piece: it lies beside the first half's, or below it."""
        plan: gl.constexpr = self.plan
        if plan.stacked:
            return tile.piece(i, rows + down, right, plan.out)
        return tile.piece(i, down, plan.stored + right, plan.out)

    @jit
    def fetch(self, x, row, column):
        """What the epilogue reads for a piece of the shape of `x`."""
        epilogue: gl.constexpr = self.plan.epilogue
        if epilogue.plain:
            return None
        return fetch_all(self.given, row, column, self.M, self.N, x.layout, x.shape, epilogue)

    @jit
    def store_piece(self, number, x, row, column, below, part):
        """Store a piece of a tile at a row and column of the output, through the buffer of this number."""
        plan: gl.constexpr = self.plan
        out = self.out
        if plan.out.described:
            buffer = self.buffers.index(number)
            place = (below + column, row) if plan.out.columns_first else (below + row, column)
            if plan.out.columns_first:
                buffer.permute([1, 0]).store(x)
            else:
                buffer.store(x)
            fence_async_shared()
            if plan.out.batched:
                buffer, place = buffer.reinterpret(plan.out.dtype, *plan.out.box), (part, *place)
            tma.async_copy_shared_to_global(out, place, buffer)
        else:
            if plan.out.batched:
                out += gl.cast(part, gl.int64) * self.batch[3]
            store_registers(out, x, row, column, self.row_stride, self.column_stride, self.M, self.N, plan.out)

    @jit
    def wait(self):
        """Wait for all stores."""
        if self.plan.out.described:
            tma.store_wait(pendings=0)


@jit
def lying(x, plan: gl.constexpr):
    """A piece in the layout for its epilogue. One that is stored from registers has the layout of the store, so that each
    thread reads the operands of the elements that it writes, of which an operand may be the output itself."""
    if plan.out.described or plan.epilogue.plain:
        return x
    return gl.convert_layout(x, plan.out.registers)


@jit
def below_of(part, M, N, plan: gl.constexpr):
    """The row offset of a split's partial result: partial results are stacked vertically, padded to whole tiles."""
    if plan.splits == 1:
        return 0
    tiles = (
        gl.cdiv(N, plan.block_n) * plan.block_n if plan.out.columns_first else gl.cdiv(M, plan.block_m) * plan.block_m
    )
    return part * tiles


@jit
def store_registers(out, x, row, column, row_stride, column_stride, M, N, form: gl.constexpr):
    """Store the in-bounds part of a tile from registers."""
    layout: gl.constexpr = form.registers
    x = gl.convert_layout(x, layout)
    if form.unit > 1:
        # With these hints a thread's `unit` elements are one aligned vector store, wholly in or out of bounds.
        out = gl.multiple_of(out, form.unit * form.dtype.itemsize)
        if form.columns_first:
            row_stride, column_stride, M = 1, gl.multiple_of(column_stride, form.unit), gl.multiple_of(M, form.unit)
        else:
            row_stride, column_stride, N = gl.multiple_of(row_stride, form.unit), 1, gl.multiple_of(N, form.unit)
    i = gl.arange(0, x.shape[0], gl.SliceLayout(1, layout))
    j = gl.arange(0, x.shape[1], gl.SliceLayout(0, layout))
    start = out + gl.cast(row, gl.int64) * row_stride + gl.cast(column, gl.int64) * column_stride
    mask = (i < M - row)[:, None] & (j < N - column)[None, :]
    gl.store(start + i[:, None] * row_stride + j[None, :] * column_stride, x, mask=mask)
