"""What attention should give: in float64, and as an implementation in float32 gives it."""

from __future__ import annotations

import numpy as np


def scores(q, k, scale=None):
    """Scaled scores [batch, heads, queries, keys] in float64."""
    q, k = q.astype(np.float64), np.repeat(k.astype(np.float64), q.shape[1] // k.shape[1], 1)
    return q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)


def causal_mask(queries, keys):
    """Aligned at the bottom right."""
    return np.arange(keys)[None, :] <= np.arange(queries)[:, None] + keys - queries


def expected(s, v):
    """Results, and logarithms of sums, of scores in float64 (-inf where a query does not see a key)."""
    v = np.repeat(v.astype(np.float64), s.shape[1] // v.shape[1], 1)
    top = s.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0, top)
    weights = np.exp(s - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return weights @ v / np.where(total == 0, 1, total), (np.log(total) + top)[..., 0]


def rounded(s, v):
    """The same with scores, exponentials and sums in float32, and weights and results of v's type."""
    wide = np.repeat(v.astype(np.float32), s.shape[1] // v.shape[1], 1)
    s = s.astype(np.float32)
    top = s.max(-1, keepdims=True, initial=np.float32(-np.inf))
    weights = np.exp(s - np.where(np.isneginf(top), np.float32(0), top))
    total = weights.sum(-1, keepdims=True)
    out = weights.astype(v.dtype).astype(np.float32) @ wide / np.where(total == 0, np.float32(1), total)
    return out.astype(v.dtype)


def check(out, lse, s, v):
    """`out` is as near to float64 as an implementation in float32, and `lse` to 7 digits."""
    want, logarithms = expected(s, v)
    assert out.shape == want.shape and out.dtype == v.dtype
    nothing = np.isneginf(logarithms)
    assert (out[nothing] == 0).all() and np.isneginf(lse[nothing]).all()
    np.testing.assert_allclose(lse[~nothing], logarithms[~nothing], rtol=3e-6, atol=3e-6)
    if out.size:
        mine, other = (np.abs(x.astype(np.float64) - want) for x in (out, rounded(s, v)))
        assert np.sqrt(np.mean(mine**2)) <= 1.1 * np.sqrt(np.mean(other**2)) + 1e-7
        assert mine.max() <= 2 * other.max() + 1e-7


def gradients(grad, q, k, v, seen, scale, lse_grad=0.0, softcap=np.inf, bias=0.0, sinks=None, function=None):
    """The gradients of q, k and v in float64, where `grad` is that of the results and `lse_grad` that of the logarithms. `bias`
    is added to scores, behind the soft cap, and `function` applied to the sums. `sinks` are scores of a key without a value for
    each head; with them also their gradients."""
    grad, q, k, v = (x.astype(np.float64) for x in (grad, q, k, v))
    members = q.shape[1] // k.shape[1]
    raw = scores(q, k, scale)
    tangents = np.zeros_like(raw) if softcap == np.inf else np.tanh(raw / softcap)
    s, slopes, step = (raw if softcap == np.inf else softcap * tangents) + bias, 1 - tangents**2, 1e-5
    if function is not None:
        slopes = slopes * (function(s + step) - function(s - step)) / (2 * step)
        s = function(s)
    s = np.where(seen, s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0, top)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True) + (0 if sinks is None else np.exp(sinks[:, None, None] - top))
    p = p / np.where(total == 0, 1, total)
    wide_k, wide_v = (np.repeat(x, members, 1) for x in (k, v))
    delta = ((p @ wide_v) * grad).sum(-1, keepdims=True) - np.asarray(lse_grad)[..., None]
    ds = p * (grad @ wide_v.swapaxes(-1, -2) - delta) * slopes

    def of_group(x):
        return x.reshape(x.shape[0], k.shape[1], members, *x.shape[2:]).sum(2)

    dq, dk = ds @ wide_k * scale, of_group(ds.swapaxes(-1, -2) @ q) * scale
    found = dq, dk, of_group(p.swapaxes(-1, -2) @ grad)
    return found if sinks is None else (*found, -((1 - p.sum(-1, keepdims=True)) * delta).sum((0, 2, 3)))
