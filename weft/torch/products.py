"""Matrix products as operators: `matmul`, into a given output `matmul_out`, and `matmul_scaled`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.errors import fail
from weft.errors import operators as errors
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
    a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, *,
    out_dtype: torch.dtype | None = None, fast_accumulate: bool = True, variant: str | None = None,
) -> Tensor:  # fmt: skip
    """`weft.kernels.matmul` as an operator; scales are tensors.

    Differentiable in `a` and `b` of float16, bfloat16 and float32: both gradients are products of the same kind. Under
    `torch.autocast` both operands become its type, as for `torch.matmul`.
    """
    return kernels.matmul(
        a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype, fast_accumulate=fast_accumulate, variant=variant
    )


@operator("weft::matmul_out", mutates_args=("out",))
def matmul_out(
    a: Tensor, b: Tensor, out: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, *,
    fast_accumulate: bool = True, variant: str | None = None,
) -> None:  # fmt: skip
    """`weft.kernels.matmul(a, b, out)` as an operator: writes to `out`, and has no gradient."""
    kernels.matmul(a, b, out, scale_a=scale_a, scale_b=scale_b, fast_accumulate=fast_accumulate, variant=variant)


@operator("weft::matmul_scaled")
def matmul_scaled(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, factor: Tensor | None = None, *, format: str,  # noqa: A002
    out_dtype: torch.dtype | None = None, variant: str | None = None,
) -> Tensor:  # fmt: skip
    """`weft.kernels.matmul_scaled` as an operator; it has no gradient."""
    return kernels.matmul_scaled(
        a, b, scale_a, scale_b, format=format, out_dtype=out_dtype, factor=factor, variant=variant
    )


@matmul.register_fake
def _(a: Tensor, b: Tensor, *_: Any, out_dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    left, right = shaped("a", a), shaped("b", b)
    check_shapes(left, right)
    default = types_of_output(left, right)[0]
    return _empty(a, b, default if out_dtype is None else dtype_name(out_dtype))


@matmul_out.register_fake
def _(a: Tensor, b: Tensor, *_: Any, **__: Any) -> None:
    check_shapes(shaped("a", a), shaped("b", b))


@matmul_scaled.register_fake
def _(a: Tensor, b: Tensor, *_: Any, out_dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    check_shapes(shaped("a", a), shaped("b", b))
    return _empty(a, b, FLOAT_OUTPUTS[0] if out_dtype is None else dtype_name(out_dtype))


def _empty(a: Tensor, b: Tensor, dtype: str) -> Tensor:
    import torch

    return a.new_empty((a.shape[0], b.shape[1]), dtype=getattr(torch, dtype))


def _keep(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: Any, output: Tensor) -> None:
    a, b, scale_a, scale_b = inputs
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale is not None and scale.requires_grad:
            fix = f"pass {name}.detach(), and multiply by {name} outside of the operator where its gradient is wanted"
            raise fail(errors.BACKWARD_ARGUMENT, name=matmul.name, what=name, fix=fix)
    if dtype_name(a.dtype) not in _DIFFERENTIABLE:
        fix = "pass detached operands, or operands of float16, bfloat16 or float32"
        raise fail(errors.BACKWARD_ARGUMENT, name=matmul.name, what=f"operands of {dtype_name(a.dtype)}", fix=fix)
    ctx.save_for_backward(a, b, scale_a, scale_b)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """dA = G B^T and dB = A^T G, where G is the gradient times both scales in the type of the operands."""
    a, b, scale_a, scale_b = ctx.saved_tensors
    if scale_a is not None:
        grad = grad * (scale_a.reshape(-1, 1) if scale_a.numel() > 1 else scale_a.reshape(()))
    if scale_b is not None:
        grad = grad * scale_b.reshape(-1)
    grad = grad.to(a.dtype).contiguous()  # The gradient of a sum has strides of 0.
    left = matmul(grad, b.t()) if ctx.needs_input_grad[0] else None
    right = matmul(a.t(), grad) if ctx.needs_input_grad[1] else None
    return left, right, None, None


@matmul.register_vmap
def _(
    info: Any, in_dims: tuple[Any, ...], a: Tensor, b: Tensor, scale_a: Tensor | None = None,
    scale_b: Tensor | None = None, **keywords: Any,
) -> tuple[Tensor, int]:  # fmt: skip
    """One product where only the rows of a, or only the columns of b, are many; else one for each pair."""
    import torch

    over_a, over_b, *over_scales = (*in_dims, None, None)[:4]
    unscaled = scale_a is None and scale_b is None
    if over_b is None and unscaled:
        rows = a.movedim(over_a, 0)
        flat = rows.reshape(-1, rows.shape[-1])
        return matmul(flat, b, **keywords).unflatten(0, rows.shape[:2]), 0
    if over_a is None and unscaled:
        columns = b.movedim(over_b, 1)
        flat = columns.reshape(columns.shape[0], -1)
        return matmul(a, flat, **keywords).unflatten(1, columns.shape[1:]), 1

    def each(value: Tensor | None, dim: int | None) -> Any:
        return [value] * info.batch_size if value is None or dim is None else value.unbind(dim)

    sides = (each(a, over_a), each(b, over_b), each(scale_a, over_scales[0]), each(scale_b, over_scales[1]))
    return torch.stack([matmul(*side, **keywords) for side in zip(*sides, strict=True)]), 0


matmul.register_autograd(_backward, setup_context=_keep)
for _device in ("cpu", "cuda"):
    matmul.register_autocast(_device, only=("a", "b"))
