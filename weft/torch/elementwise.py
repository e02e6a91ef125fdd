"""Element by element: rotary embeddings and gated activations as operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import operator
from weft.torch.shapes import over_leading

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::rope")
def rope(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    interleaved: bool = False,
    inverse: bool = False,
) -> Tensor:
    """`weft.kernels.rope` as an operator. Differentiable in x."""
    return kernels.rope(x, cos, sin, positions=positions, interleaved=interleaved, inverse=inverse)


@rope.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _keep_rope(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *tables, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(*tables)


def _backward_rope(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    cos, sin, positions = ctx.saved_tensors
    return rope(grad.contiguous(), cos, sin, positions, ctx.interleaved, not ctx.inverse), None, None, None, None, None


rope.register_autograd(_backward_rope, setup_context=_keep_rope)
rope.register_vmap(over_leading(rope))


@operator("weft::swiglu")
def swiglu(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """`weft.kernels.swiglu` as an operator. Differentiable."""
    return kernels.swiglu(gate, up)


@operator("weft::swiglu_backward")
def swiglu_backward(grad: Tensor, gate: Tensor, up: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`weft.kernels.swiglu_backward` as an operator; without `up` the second result has no elements."""
    found = kernels.swiglu_backward(grad, gate, up)
    return (found, gate.new_empty(0)) if up is None else found


@operator("weft::geglu")
def geglu(gate: Tensor, up: Tensor | None = None, approximate: str = "none") -> Tensor:
    """`weft.kernels.geglu` as an operator. Differentiable."""
    return kernels.geglu(gate, up, approximate=approximate)


@operator("weft::geglu_backward")
def geglu_backward(
    grad: Tensor, gate: Tensor, up: Tensor | None = None, approximate: str = "none"
) -> tuple[Tensor, Tensor]:
    """`weft.kernels.geglu_backward` as an operator; without `up` the second result has no elements."""
    found = kernels.geglu_backward(grad, gate, up, approximate=approximate)
    return (found, gate.new_empty(0)) if up is None else found


@swiglu.register_fake
@geglu.register_fake
def _(gate: Tensor, up: Tensor | None = None, *_: Any) -> Tensor:
    return gate.new_empty((*gate.shape[:-1], gate.shape[-1] // 2) if up is None else gate.shape)


@swiglu_backward.register_fake
@geglu_backward.register_fake
def _(grad: Tensor, gate: Tensor, up: Tensor | None = None, *_: Any) -> tuple[Tensor, Tensor]:
    return gate.new_empty(gate.shape), gate.new_empty(0) if up is None else up.new_empty(up.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    gate, up, *ctx.numbers = inputs
    ctx.save_for_backward(gate, up)


def _backward(function: Any) -> Any:
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = ctx.saved_tensors
        of_gate, of_up = function(grad.contiguous(), gate, up, *ctx.numbers)
        return of_gate, None if up is None else of_up, *(None for _ in ctx.numbers)

    return backward


swiglu.register_autograd(_backward(swiglu_backward), setup_context=_keep)
geglu.register_autograd(_backward(geglu_backward), setup_context=_keep)
for _function in (swiglu, geglu):
    _function.register_vmap(over_leading(_function, 0, 1))
