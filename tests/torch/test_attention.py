"""Attention as an operator: which of its results have a gradient, and where it comes from."""

from __future__ import annotations

import pytest

import weft.torch


@pytest.fixture
def heads(torch):
    torch.manual_seed(0)
    return [x.requires_grad_() for x in torch.randn(3, 1, 2, 9, 64).half()]


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)], ids=["out", "lse", "both"])
def test_gradients_of_out_and_lse(torch, heads, used):
    def exact(q, k, v):
        scores = q.float() @ k.float().mT / 8
        return scores.softmax(-1) @ v.float(), scores.logsumexp(-1)

    found = []
    for function in (weft.torch.attention_lse, exact):
        results = function(*heads)
        loss = sum(
            (results[i] * torch.linspace(-1, 1, results[i].numel()).reshape(results[i].shape)).sum() for i in used
        )
        found.append(torch.autograd.grad(loss, heads, materialize_grads=True))
    torch.testing.assert_close(*found, atol=0.01, rtol=0.01)


def test_a_gradient_takes_the_sums_from_the_forward_call(torch, heads):
    """One forward call: where a gradient is wanted, it is the one that returns lse."""
    out = weft.torch.attention(*heads)
    nodes = out.grad_fn, *(node for node, _ in out.grad_fn.next_functions)
    assert any("attention_lse" in node.name() for node in nodes)
    assert out.equal(weft.torch.attention(*(x.detach() for x in heads)))


def test_gradients_of_windows_and_soft_caps_in_order(torch, heads):
    """Deterministic algorithms are asked for where gradients are computed."""

    def exact(q, k, v):
        scores = 2 * torch.tanh(q.float() @ k.float().mT / 16)
        near = (torch.arange(9)[:, None] - torch.arange(9)[None, :]).abs() <= 2
        return scores.masked_fill(~near, -torch.inf).softmax(-1) @ v.float()

    mine, other = weft.torch.attention(*heads, softcap=2.0, left=2, right=2), exact(*heads)
    torch.testing.assert_close(mine.float(), other, atol=0.01, rtol=0.01)
    torch.use_deterministic_algorithms(True)
    try:
        found = torch.autograd.grad(mine.float().square().sum(), heads)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(found, torch.autograd.grad(other.square().sum(), heads), atol=0.02, rtol=0.02)
