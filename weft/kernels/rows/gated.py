"""`swiglu` and `geglu`, forward and backward."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.forms import of_jax
from weft.kernels.device.gated import gate_backward_rows, gate_rows
from weft.kernels.memory import joined_columns
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.kernels.rows.launch import groups_of
from weft.kernels.rows.operands import Lines, lines_of, output, parameter, pitches, same_rows, width_of
from weft.kernels.rows.plan import BACKWARD_REGISTERS, RowConfig, plan_of

EACH = 16
"""Elements of each array in a thread's registers: of two inputs they are the bytes in flight of one row elsewhere."""
CHUNK = 4 * 32 * EACH
"""Columns of a program."""
REGISTERS = 40
"""Registers of a thread: twelve programs on a multiprocessor, as only different programs load and compute at a time."""
APPROXIMATE = {"none": "gelu", "tanh": "gelu_tanh"}


@prepared("out")
def swiglu(gate: Any, up: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    """silu(gate) * up, element by element, with silu(x) = x / (1 + exp(-x)).

    Without `up`, the first half of each row of `gate` [..., 2 N] is the gate and the second half is up. Arrays are float32,
    float16 or bfloat16, of any array type, with contiguous rows at any one distance; it is computed in float32. Returns `out`,
    of the type of gate, which may be gate or up where these are two arrays. Host arrays are simulated.

    Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides, kernels-rows-shape, kernels-rows-devices,
    kernels-rows-parameter, kernels-out-needed, kernels-out-overlaps.
    """
    return _forward("swiglu", gate, up, "silu", out, stream)


@prepared("out")
def geglu(gate: Any, up: Any = None, *, approximate: str = "none", out: Any = None, stream: Any = None) -> Any:
    """gelu(gate) * up, element by element: exact, or with `approximate="tanh"` by the usual formula with tanh, as
    `torch.nn.functional.gelu`. Otherwise as `swiglu`."""
    return _forward("geglu", gate, up, _kind("geglu", approximate), out, stream)


def swiglu_backward(grad: Any, gate: Any, up: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    """Gradients of gate and up for that of the result of `swiglu`, in their types; without `up` one array [..., 2 N].

    `out`: one array for packed gradients, which may be `gate`, or a pair of arrays, which may be gate and up. Raises
    LaunchError: as `swiglu`.
    """
    return _backward("swiglu_backward", grad, gate, up, "silu", out, stream)


def geglu_backward(
    grad: Any, gate: Any, up: Any = None, *, approximate: str = "none", out: Any = None, stream: Any = None
) -> Any:
    """Gradients of gate and up for that of the result of `geglu`; otherwise as `swiglu_backward`."""
    return _backward("geglu_backward", grad, gate, up, _kind("geglu_backward", approximate), out, stream)


def _forward(op: str, gate: Any, up: Any, kind: str, out: Any, stream: Any) -> Any:
    gate, up, first, second = _both(op, gate, up)
    out, target = output(op, "out", out, gate, first, first.dtype, (first, second))
    if first.rows and first.cols:
        vec = width_of(first.cols, first, second, target)
        plan = plan_of(RowConfig(each=EACH), first.rows, first.cols, vec, most=CHUNK)
        grid = groups_of(plan, first.rows), -(-first.cols // plan.part)
        sizes = first.rows, first.cols, *pitches(first, second, target), kind, plan
        options: dict[str, Any] = {**plan.options, "maxnreg": REGISTERS}
        launched(gate_rows, grid, (gate, up, out, *sizes), options, stream)
    return out


def _backward(op: str, grad: Any, gate: Any, up: Any, kind: str, out: Any, stream: Any) -> Any:
    packed = up is None
    if packed and of_jax(gate):
        # Halves of a JAX array are copies: writing to them would leave the array as it is.
        if out is not None:
            raise parameter(op, "out", "an array of JAX", "gate and up as two arrays, or leave out away")
        gate, up, _, _ = _both(op, gate, None)
        return joined_columns(_backward(op, grad, gate, up, kind, None, stream))
    if packed and out is None:
        whole = lines_of(op, "gate", gate)
        out = empty_like(gate, whole.shape, whole.dtype)
    gate, up, first, second = _both(op, gate, up)
    upper = same_rows(op, "grad", grad, first)
    targets = _both(op, out, None)[:2] if packed else out or (None, None)
    gate_grad, of_gate = output(op, "out", targets[0], gate, first, first.dtype, (first, second, upper))
    up_grad, of_up = output(op, "out", targets[1], up, first, second.dtype, (first, second, upper, of_gate))
    if first.rows and first.cols:
        vec = width_of(first.cols, upper, first, second, of_gate, of_up)
        plan = plan_of(RowConfig(each=EACH), first.rows, first.cols, vec, most=CHUNK)
        grid = groups_of(plan, first.rows), -(-first.cols // plan.part)
        sizes = first.rows, first.cols, *pitches(upper, first, second, of_gate, of_up), kind, plan
        options: dict[str, Any] = {**plan.options, "maxnreg": BACKWARD_REGISTERS}
        launched(gate_backward_rows, grid, (grad, gate, up, gate_grad, up_grad, *sizes), options, stream)
    return out if packed else (gate_grad, up_grad)


def _both(op: str, gate: Any, up: Any) -> tuple[Any, Any, Lines, Lines]:
    """Gate and up as two arrays, which may be the halves of one."""
    if up is None:
        whole = lines_of(op, "gate", gate)
        if whole.cols % 2:
            raise fail(
                errors.ROWS_SHAPE, op=op, name="gate", got=list(whole.shape), want="an even number of columns", x="up",
                of="None",
            )  # fmt: skip
        half = whole.cols // 2
        gate, up = gate[..., :half], gate[..., half:]
    first = lines_of(op, "gate", gate)
    return gate, up, first, same_rows(op, "up", up, first)


def _kind(op: str, approximate: Any) -> str:
    if approximate not in APPROXIMATE:
        raise parameter(op, "approximate", approximate, "'none' or 'tanh'")
    return APPROXIMATE[approximate]
