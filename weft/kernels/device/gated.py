"""Gated activations, element by element: SwiGLU and GeGLU, forward and backward."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.activations import LARGEST, gelu, gelu_brief, normal_tail
from weft.kernels.device.rows import Rows
from weft.kernels.rows.plan import RowPlan

LOG2E: gl.constexpr = gl.constexpr(1.4426950408889634)
ROOT_HALF: gl.constexpr = gl.constexpr(0.7071067811865476)
ROOT_2_PI: gl.constexpr = gl.constexpr(0.7978845608028654)
"""sqrt(2 / pi)"""
CUBIC: gl.constexpr = gl.constexpr(0.044715)


@jit
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + gl.exp2(-x * LOG2E))


@jit
def activated(x, KIND: gl.constexpr, BRIEF: gl.constexpr):
    """silu(x), gelu(x), or gelu by its formula with tanh. BRIEF: for a result of 16 bits."""
    if KIND == "silu":
        return x * sigmoid(x)
    if KIND == "gelu":
        return gelu_brief(x) if BRIEF else gelu(x)
    # (1 + tanh(u)) / 2 is sigmoid(2 u).
    return x * sigmoid(2.0 * ROOT_2_PI * (x + CUBIC * x * x * x))


@jit
def slope(x, KIND: gl.constexpr, BRIEF: gl.constexpr):
    """The function of `activated`, and its derivative."""
    if KIND == "silu":
        s = sigmoid(x)
        return x * s, s * (1.0 + x * (1.0 - s))
    if KIND == "gelu" and BRIEF:
        tail, power = normal_tail(gl.minimum(gl.abs(x), LARGEST))
        below = gl.where(x > 0, 1.0 - tail, tail)
        return x * below, below + x * ((0.5 * ROOT_2_PI) * power)
    if KIND == "gelu":
        below = 0.5 + 0.5 * gl.erf(x * ROOT_HALF)
        # The density of the normal distribution is sqrt(2 / pi) / 2 * e^(-x^2 / 2).
        density = (0.5 * ROOT_2_PI) * gl.exp2((-0.5 * LOG2E) * x * x)
        return x * below, below + x * density
    s = sigmoid(2.0 * ROOT_2_PI * (x + CUBIC * x * x * x))
    return x * s, s + x * s * (1.0 - s) * (2.0 * ROOT_2_PI) * (1.0 + 3.0 * CUBIC * x * x)


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "gate_stride", "up_stride", "out_stride"])
def gate_rows(
    gate: gl.tensor, up: gl.tensor, out: gl.tensor, count: int, cols: int, gate_stride: int, up_stride: int, out_stride: int,
    KIND: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """`out` = activated(gate) * up. Program [i, j] has chunk j of row group i."""
    rows = Rows.make(count, cols, plan)
    row, first = rows.first(), gl.program_id(1) * plan.part
    inside = (first + rows.column < rows.cols) & (rows.line < count - row)
    g = gl.load(rows.place(gate + first, row, gate_stride), mask=inside, other=0.0)
    u = gl.load(rows.place(up + first, row, up_stride), mask=inside, other=0.0)
    y = activated(g.to(gl.float32), KIND, out.dtype.element_ty.primitive_bitwidth == 16) * u.to(gl.float32)
    gl.store(rows.place(out + first, row, out_stride), y.to(out.dtype.element_ty), mask=inside)


@jit(fast_math=["exp2"], do_not_specialize=[
    "count", "cols", "grad_stride", "gate_stride", "up_stride", "gate_grad_stride", "up_grad_stride"
])  # fmt: skip
def gate_backward_rows(
    grad: gl.tensor, gate: gl.tensor, up: gl.tensor, gate_grad: gl.tensor, up_grad: gl.tensor, count: int, cols: int,
    grad_stride: int, gate_stride: int, up_stride: int, gate_grad_stride: int, up_grad_stride: int, KIND: gl.constexpr,
    plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """Gradients of gate and up; they may lie over these."""
    rows = Rows.make(count, cols, plan)
    row, first = rows.first(), gl.program_id(1) * plan.part
    inside = (first + rows.column < rows.cols) & (rows.line < count - row)
    d = gl.load(rows.place(grad + first, row, grad_stride), mask=inside, other=0.0)
    g = gl.load(rows.place(gate + first, row, gate_stride), mask=inside, other=0.0)
    u = gl.load(rows.place(up + first, row, up_stride), mask=inside, other=0.0)
    d = d.to(gl.float32)
    value, derivative = slope(g.to(gl.float32), KIND, gate_grad.dtype.element_ty.primitive_bitwidth == 16)
    gl.store(
        rows.place(gate_grad + first, row, gate_grad_stride),
        (d * u.to(gl.float32) * derivative).to(gate_grad.dtype.element_ty), mask=inside,
    )  # fmt: skip
    gl.store(rows.place(up_grad + first, row, up_grad_stride), (d * value).to(up_grad.dtype.element_ty), mask=inside)
