"""A block of a Llama, trained: RMSNorm, projections, RoPE, attention and SwiGLU, all by operators of `weft.torch`.

    x = x + attention(rope(q), rope(k), v) Wo      with q, k, v = rms_norm(x) Wqkv
    x = x + swiglu(rms_norm(x) Wgu) Wd

The same block in plain PyTorch starts with the same weights and sees the same data. After each step both losses are compared:
in bfloat16 they differ by rounding only, so they stay together while they fall. With `--sim` the tensors are on the host, and
the simulator runs every kernel, forward and backward, at toy size; so this is also how one finds a hazard of a whole model.

    python examples/llama_block.py [--sim] [--steps N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

import weft.torch as ops


@dataclass(frozen=True)
class Sizes:
    """Sizes of a block and of its data; a head has `head` elements, and `group` query heads share a head of keys."""

    batch: int
    length: int
    heads: int
    group: int
    head: int
    hidden: int

    @property
    def width(self) -> int:
        """Elements of a token."""
        return self.heads * self.head


REAL = Sizes(batch=2, length=2048, heads=32, group=4, head=128, hidden=14_336)
TOY = Sizes(batch=1, length=20, heads=2, group=2, head=64, hidden=64)
TOLERANCE = 0.02
"""The relative difference of two losses in bfloat16, whose roundings have 8 bits."""

Weights = dict[str, Tensor]


def make_weights(sizes: Sizes, device: str) -> Weights:
    """Weights of the projections [in, out] with unit variance of their results, and of the norms."""
    kv = sizes.width // sizes.group
    shapes = {
        "qkv": (sizes.width, sizes.width + 2 * kv), "out": (sizes.width, sizes.width),
        "gate_up": (sizes.width, 2 * sizes.hidden), "down": (sizes.hidden, sizes.width),
    }  # fmt: skip
    found = {name: torch.randn(shape, device=device) * shape[0] ** -0.5 for name, shape in shapes.items()}
    found |= {name: torch.ones(sizes.width, device=device) for name in ("norm_1", "norm_2")}
    return {name: weight.bfloat16().requires_grad_() for name, weight in found.items()}


def rotations(sizes: Sizes, device: str) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of positions, [length, head / 2]."""
    frequency = 10_000 ** (-torch.arange(0, sizes.head, 2, device=device) / sizes.head)
    angle = torch.arange(sizes.length, device=device)[:, None] * frequency
    return angle.cos(), angle.sin()


def heads_of(x: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v [batch, length, heads, head] of a projection for all three."""
    count = sizes.heads // sizes.group
    q, k, v = x.unflatten(-1, (-1, sizes.head)).split((sizes.heads, count, count), dim=2)
    return q, k, v


def with_weft(x: Tensor, w: Weights, cos: Tensor, sin: Tensor, sizes: Sizes) -> Tensor:
    """The block by weft's operators."""
    q, k, v = heads_of(ops.matmul(ops.rms_norm(x, w["norm_1"]), w["qkv"]), sizes)
    q, k = ops.rope(q, cos, sin), ops.rope(k, cos, sin)
    mixed = ops.attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True)
    x = x + ops.matmul(mixed.transpose(1, 2).flatten(2), w["out"])
    gate, up = ops.matmul(ops.rms_norm(x, w["norm_2"]), w["gate_up"]).chunk(2, dim=-1)
    return x + ops.matmul(ops.swiglu(gate, up), w["down"])


def with_pytorch(x: Tensor, w: Weights, cos: Tensor, sin: Tensor, sizes: Sizes) -> Tensor:
    """The same by PyTorch's own functions."""

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.float()).to(x.dtype)

    def rotated(x: Tensor) -> Tensor:
        a, b = x.float().chunk(2, dim=-1)
        c, s = cos[:, None, :], sin[:, None, :]
        return torch.cat((a * c - b * s, a * s + b * c), -1).to(x.dtype)

    q, k, v = heads_of(norm(x, w["norm_1"]) @ w["qkv"], sizes)
    q, k, v = (y.transpose(1, 2) for y in (rotated(q), rotated(k), v))
    k, v = (y.repeat_interleave(sizes.group, dim=1) for y in (k, v))
    mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + mixed.transpose(1, 2).flatten(2) @ w["out"]
    gate, up = (norm(x, w["norm_2"]) @ w["gate_up"]).chunk(2, dim=-1)
    return x + (silu(gate.float()) * up.float()).to(x.dtype) @ w["down"]


def train(block: Callable[..., Tensor], w: Weights, x: Tensor, target: Tensor, sizes: Sizes, steps: int) -> list[float]:
    """Losses of `steps` steps of gradient descent with momentum towards `target`."""
    cos, sin = rotations(sizes, str(x.device))
    optimizer = torch.optim.SGD(w.values(), lr=0.1, momentum=0.5)
    losses: list[float] = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (block(x, w, cos, sin, sizes).float() - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Train both blocks and compare their losses."""
    parser = argparse.ArgumentParser(description="train a block of a Llama with weft's operators and with PyTorch's")
    parser.add_argument("--sim", action="store_true", help="toy size, in the simulator")
    parser.add_argument("--steps", type=int, default=0, help="steps of training (20, or 2 with --sim)")
    options: Any = parser.parse_args(arguments)
    sizes, device = (TOY, "cpu") if options.sim else (REAL, "cuda")
    steps: int = options.steps or (2 if options.sim else 20)
    torch.manual_seed(0)
    first = make_weights(sizes, device)
    x, target = (torch.randn((sizes.batch, sizes.length, sizes.width), device=device) for _ in range(2))
    found: dict[str, list[float]] = {}
    for name, block in (("weft", with_weft), ("PyTorch", with_pytorch)):
        own = {key: weight.detach().clone().requires_grad_() for key, weight in first.items()}
        found[name] = train(block, own, x.bfloat16(), target, sizes, steps)
    for step, (mine, other) in enumerate(zip(*found.values(), strict=True)):
        print(f"step {step:3}: loss {mine:.5f} with weft, {other:.5f} with PyTorch")
        assert abs(mine - other) <= TOLERANCE * other, "losses differ by more than rounding"
    assert found["weft"][-1] < found["weft"][0], "the loss does not fall"
    print("every result checked")
    return found


if __name__ == "__main__":
    main()
