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


@pytest.mark.parametrize("paged", [False, True])
def test_mapped_decode_is_one_call(torch, monkeypatch, paged):
    """The mapped dimension and the batch are one batch; sequences in pages share a cache that is not mapped."""
    torch.manual_seed(0)
    q, lengths = torch.randn(3, 2, 4, 1, 64).half(), torch.tensor([[5, 32], [0, 9], [17, 3]], dtype=torch.int32)
    cache = torch.randn(2, 12, 2, 16, 64).half() if paged else torch.randn(2, 3, 2, 2, 32, 64).half()
    tables = torch.randperm(12).reshape(3, 2, 2).int() if paged else [None] * 3
    caches = [tuple(cache)] * 3 if paged else list(zip(*cache, strict=True))
    want = [
        weft.torch.decode_attention(*each[:1], *each[1], *each[2:])
        for each in zip(q, caches, lengths, tables, strict=True)
    ]
    batches = []
    plain = weft.kernels.decode_attention
    monkeypatch.setattr(
        weft.kernels,
        "decode_attention",
        lambda q, *args, **keywords: batches.append(len(q)) or plain(q, *args, **keywords),
    )
    in_dims = (0, None, None, 0, 0) if paged else (0, 0, 0, 0, None)
    found = torch.vmap(weft.torch.decode_attention, in_dims=in_dims)(q, *cache, lengths, tables if paged else None)
    torch.testing.assert_close(found, torch.stack(want))
    assert batches == [6]


def test_gradients_of_sinks(torch, heads):
    """With slopes, which have none; also for each sample of a `vmap`, and under autocast, which leaves both as they are."""
    slopes, sinks = torch.tensor([0.5, 0.1]), torch.tensor([0.3, -1.0], requires_grad=True)
    away = (torch.arange(9)[:, None] - torch.arange(9)[None, :]).abs()

    def exact(q, k, v, sinks):
        scores = q.float() @ k.float().mT / 8 - slopes[:, None, None] * away
        scores = torch.cat([scores, sinks[None, :, None, None].expand(len(q), -1, 9, 1)], -1)
        return scores.softmax(-1)[..., :-1] @ v.float()

    def ours(q, k, v, sinks):
        return weft.torch.attention(q, k, v, slopes, sinks)

    given = [*heads, sinks]
    with torch.autocast("cpu", torch.float16):
        mine = ours(*(x.float() for x in heads), sinks)
    found = torch.autograd.grad(mine.float().square().sum(), given)
    torch.testing.assert_close(found, torch.autograd.grad(exact(*given).square().sum(), given), atol=0.02, rtol=0.02)
    both = torch.stack([sinks, 2 * sinks]).detach()
    grad = torch.func.vmap(torch.func.grad(lambda x: ours(*heads, x).float().square().sum()))(both)
    wanted = torch.autograd.functional.jacobian(
        lambda x: torch.stack([exact(*heads, each).square().sum() for each in x]), both
    )
    torch.testing.assert_close(grad, torch.stack([wanted[0, 0], wanted[1, 1]]), atol=0.02, rtol=0.02)
