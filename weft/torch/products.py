"""Matrix products as operators: `matmul`, into given outputs `matmul_out`, `matmul_scaled`, and `rms_factors`."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.errors import fail
from weft.errors import operators as errors
from weft.kernels.batches import broadcast
from weft.kernels.checks import FLOAT_OUTPUTS, check_shapes, types_of_output
from weft.runtime.dtypes import dtype_name
from weft.torch.operators import operator
from weft.torch.shapes import shaped

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_DIFFERENTIABLE = ("float16", "bfloat16", "float32")


@operator("weft::matmul")
def matmul(
    a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, bias: Tensor | None = None,
    residual: Tensor | None = None, out_scale: Tensor | None = None, *, activation: str | None = None, gated: bool = False,
    out_dtype: torch.dtype | None = None, fast_accumulate: bool = True, variant: str | None = None,
) -> Tensor:  # fmt: skip
    """`weft.kernels.matmul` as an operator: scales are tensors, and b of a gated product is one matrix [K, 2 N].

    `a` and `b` may be batches, whose axes broadcast. Differentiable in `a` and `b` of float16, bfloat16 and float32, in `bias`
    and in `residual`, without `out_scale`: gradients of operands are products of the same kind, and for the gradient of an
    activation what it got is computed again. Under `torch.autocast` both operands become its type, as for `torch.matmul`. A
    function of one's own (`epilogue`) needs an operator of one's own.
    """
    return kernels.matmul(
        a, b, scale_a=scale_a, scale_b=scale_b, bias=bias, residual=residual, out_scale=out_scale, activation=activation,
        gated=gated, out_dtype=out_dtype, fast_accumulate=fast_accumulate, variant=variant,
    )  # fmt: skip


@operator("weft::matmul_out", mutates_args=("out", "out_scales", "row_squares", "row_peaks"))
def matmul_out(
    a: Tensor, b: Tensor, out: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None,
    bias: Tensor | None = None, residual: Tensor | None = None, out_scale: Tensor | None = None,
    out_scales: Tensor | None = None, row_squares: Tensor | None = None, row_peaks: Tensor | None = None, *,
    activation: str | None = None, gated: bool = False, fast_accumulate: bool = True, variant: str | None = None,
) -> None:  # fmt: skip
    """`weft.kernels.matmul(a, b, out)` as an operator: writes to `out`, and to `out_scales`, `row_squares` and `row_peaks` if
    they are given. `residual` may be `out` itself. It has no gradient."""
    kernels.matmul(
        a, b, out, scale_a=scale_a, scale_b=scale_b, bias=bias, residual=residual, out_scale=out_scale,
        out_scales=out_scales, row_squares=row_squares, row_peaks=row_peaks, activation=activation, gated=gated,
        fast_accumulate=fast_accumulate, variant=variant,
    )  # fmt: skip


@operator("weft::rms_factors")
def rms_factors(squares: Tensor, columns: int, *, eps: float = 1e-6) -> Tensor:
    """`weft.kernels.rms_factors` as an operator; it has no gradient."""
    return kernels.rms_factors(squares, columns, eps=eps)


@rms_factors.register_fake
def _(squares: Tensor, columns: int, **_: Any) -> Tensor:
    return squares.new_empty(squares.shape[0])


@rms_factors.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], squares: Tensor, columns: int, **keywords: Any) -> tuple[Tensor, int]:
    rows = squares.movedim(in_dims[0], 0)
    return rms_factors(rows.flatten(0, 1), columns, **keywords).unflatten(0, rows.shape[:2]), 0


@operator("weft::matmul_scaled")
def matmul_scaled(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, factor: Tensor | None = None, bias: Tensor | None = None,
    residual: Tensor | None = None, *, format: str, activation: str | None = None,  # noqa: A002
    out_dtype: torch.dtype | None = None, variant: str | None = None,
) -> Tensor:  # fmt: skip
    """`weft.kernels.matmul_scaled` as an operator; it has no gradient."""
    return kernels.matmul_scaled(
        a, b, scale_a, scale_b, format=format, out_dtype=out_dtype, factor=factor, bias=bias, residual=residual,
        activation=activation, variant=variant,
    )  # fmt: skip


@matmul.register_fake
def _(
    a: Tensor, b: Tensor, *_: Any, gated: bool = False, out_dtype: torch.dtype | None = None, **__: Any
) -> Tensor:  # fmt: skip
    left, right = shaped("a", a, batched=True), shaped("b", b, batched=True)
    check_shapes(left, right)
    axes = broadcast(a.shape[:-2], b.shape[:-2])
    default = types_of_output(left, right)[0]
    columns = b.shape[-1] // 2 if gated else b.shape[-1]
    return _empty(a, columns, default if out_dtype is None else dtype_name(out_dtype), axes)


@matmul_out.register_fake
def _(a: Tensor, b: Tensor, *_: Any, **__: Any) -> None:
    check_shapes(shaped("a", a, batched=True), shaped("b", b, batched=True))
    broadcast(a.shape[:-2], b.shape[:-2])


@matmul_scaled.register_fake
def _(a: Tensor, b: Tensor, *_: Any, out_dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    check_shapes(shaped("a", a), shaped("b", b))
    return _empty(a, b.shape[1], FLOAT_OUTPUTS[0] if out_dtype is None else dtype_name(out_dtype))


def _empty(a: Tensor, columns: int, dtype: str, axes: tuple[int, ...] = ()) -> Tensor:
    import torch

    return a.new_empty((*axes, a.shape[-2], columns), dtype=getattr(torch, dtype))


def _keep(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    a, b, scale_a, scale_b, bias, residual, out_scale = inputs
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b), ("out_scale", out_scale)):
        if scale is not None and scale.requires_grad:
            fix = f"pass {name}.detach(), and multiply by {name} outside of the operator where its gradient is wanted"
            raise fail(errors.BACKWARD_ARGUMENT, name=matmul.name, what=name, fix=fix)
    if dtype_name(a.dtype) not in _DIFFERENTIABLE:
        fix = "pass detached operands, or operands of float16, bfloat16 or float32"
        raise fail(errors.BACKWARD_ARGUMENT, name=matmul.name, what=f"operands of {dtype_name(a.dtype)}", fix=fix)
    if out_scale is not None:
        fix = "divide the result by out_scale instead"
        raise fail(errors.BACKWARD_ARGUMENT, name=matmul.name, what="a product with out_scale", fix=fix)
    activated = bool(keyword_only_inputs["activation"] or keyword_only_inputs["gated"])
    ctx.save_for_backward(a, b, scale_a, scale_b, bias if activated else None)
    ctx.activation, ctx.gated = keyword_only_inputs["activation"], keyword_only_inputs["gated"]
    # PyTorch leaves out arguments that are equal to their defaults, also in `ctx.needs_input_grad`.
    ctx.added = [(x.shape, x.dtype) if x is not None and x.requires_grad else None for x in (bias, residual)]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """dA = G B^T and dB = A^T G, where G is the gradient times both scales in the type of the operands."""
    a, b, scale_a, scale_b, bias = ctx.saved_tensors
    of_bias, of_residual = ctx.added
    above = grad
    if ctx.activation or ctx.gated:
        grad = _before(ctx.activation, ctx.gated, grad, matmul(a, b, scale_a, scale_b, bias))
    added = [
        None if form is None else each.sum_to_size(form[0]).to(form[1])
        for form, each in ((of_bias, grad), (of_residual, above))
    ]
    if scale_a is not None:
        grad = grad * (scale_a.reshape(-1, 1) if scale_a.numel() > 1 else scale_a.reshape(()))
    if scale_b is not None:
        grad = grad * scale_b.reshape(-1)
    grad = grad.to(a.dtype).contiguous()  # The gradient of a sum has strides of 0.
    # An operand that a batch shares gets the sum of the gradients of all products.
    left = matmul(grad, b.mT).sum_to_size(a.shape) if ctx.needs_input_grad[0] else None
    right = matmul(a.mT, grad).sum_to_size(b.shape) if ctx.needs_input_grad[1] else None
    return left, right, None, None, *added, None


def _before(activation: str | None, gated: bool, grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of what an activation got, x, in float32."""
    import torch

    x, grad = x.float(), grad.float()
    if not gated:
        return _slopes(activation, x)[1] * grad
    gate, up = x.chunk(2, -1)
    value, slope = _slopes(activation, gate)
    return torch.cat([grad * up * slope, grad * value], -1)


def _slopes(activation: str | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """An activation, and its derivative."""
    import torch

    gelu, ones = torch.ops.aten.gelu_backward, torch.ones_like(x)
    if activation is None:
        return x, ones
    if activation in ("gelu", "gelu_tanh"):
        approximate = "tanh" if activation == "gelu_tanh" else "none"
        return torch.nn.functional.gelu(x, approximate=approximate), gelu(ones, x, approximate=approximate)
    if activation == "relu":
        return x.relu(), (x > 0).to(x.dtype)
    if activation == "relu_squared":
        return x.relu().square(), 2 * x.relu()
    if activation == "tanh":
        return x.tanh(), 1 - x.tanh().square()
    s = x.sigmoid()
    return (s, s * (1 - s)) if activation == "sigmoid" else (x * s, s * (1 + x * (1 - s)))


@matmul.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *tensors: Any, **keywords: Any) -> tuple[Tensor, int]:
    """One product where only the rows of a, or only the columns of b, are many; one batch of matrices; else one a pair."""
    import torch

    (a, b, *others), (over_a, over_b) = tensors, in_dims[:2]
    plain = all(x is None for x in others) and not keywords.get("gated")
    matrices = a.dim() - (over_a is not None) == b.dim() - (over_b is not None) == 2
    if plain and matrices and over_a is not None and over_b is not None:
        return matmul(a.movedim(over_a, 0), b.movedim(over_b, 0), **keywords), 0
    plain = plain and matrices
    if over_b is None and plain:
        rows = a.movedim(over_a, 0)
        return matmul(rows.flatten(0, 1), b, **keywords).unflatten(0, rows.shape[:2]), 0
    if over_a is None and plain:
        columns = b.movedim(over_b, 1)
        return matmul(a, columns.flatten(1, 2), **keywords).unflatten(1, columns.shape[1:]), 1

    def each(value: Any, dim: int | None) -> Any:
        return [value] * info.batch_size if value is None or dim is None else value.unbind(dim)

    sides = [each(value, dim) for value, dim in zip_longest(tensors, in_dims)]
    return torch.stack([matmul(*side, **keywords) for side in zip(*sides, strict=True)]), 0


matmul.register_autograd(_backward, setup_context=_keep)
for _device in ("cpu", "cuda"):
    matmul.register_autocast(_device, only=("a", "b"))
