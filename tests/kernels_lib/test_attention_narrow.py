"""Attention of float8 arrays: scales, masks and head sizes, against float64 and a reference that rounds weights to e4m3."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.cuda.build import needs_nvrtc
from tests.kernels_lib.attended import causal_mask, scores
from tests.kernels_lib.test_attention_code import main_loops
from weft import language as gl
from weft.errors import LaunchError
from weft.kernels import AttentionConfig, attention, block_mask, compile_attention
from weft.kernels.attend import chosen_attention
from weft.kernels.attend_plan import LONG, Parts, make_attention_plan

MATRIX = pytest.mark.matrix
NARROW, BFLOAT16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16


@weft.jit
def before(batch, head, query, key):
    return key <= query


def arrays(rng, queries=70, keys=300, size=128, v_size=None):
    shapes = ((4, queries, size), (2, keys, size), (2, keys, v_size or size))
    return [rng.normal(size=(2, *shape)).astype(np.float32).astype(NARROW) for shape in shapes]


def check(out, lse, s, v, v_scale=1.0):
    """`near`, and logarithms of exact sums."""
    near(out, s, v, v_scale)
    top = s.max(-1, keepdims=True)
    np.testing.assert_allclose(lse, (np.log(np.exp(s - top).sum(-1, keepdims=True)) + top)[..., 0], atol=2e-3)


def near(out, s, v, v_scale=1.0):
    """As near to float64 as weights that are rounded to e4m3, 2^8 times as large, allow."""
    wide = np.repeat(v.astype(np.float64), s.shape[1] // v.shape[1], 1) * v_scale
    top = s.max(-1, keepdims=True)
    weights = np.exp(s - top)
    total = weights.sum(-1, keepdims=True)
    exact = weights @ wide / total
    rounded = (weights * 256).astype(np.float32).astype(NARROW).astype(np.float64) / 256
    other = (rounded @ wide / total).astype(out.dtype)
    mine, other = (np.sqrt(np.mean((x.astype(np.float64) - exact) ** 2)) for x in (out, other))
    assert mine <= 1.1 * other


@pytest.mark.parametrize("causal", [pytest.param(False, marks=MATRIX), True])
@pytest.mark.parametrize(
    ("size", "v_size"),
    [
        (128, 128), pytest.param(64, 64, marks=MATRIX), pytest.param(96, 96, marks=MATRIX),
        pytest.param(192, 128, marks=MATRIX), pytest.param(256, 256, marks=MATRIX),
    ],
)  # fmt: skip
def test_without_scales(device, rng, size, v_size, causal):
    q, k, v = arrays(rng, 70, 300, size, v_size)
    out = device.full((2, 4, 70, v_size), np.nan, BFLOAT16)
    _, lse = attention(*map(device.array, (q, k, v)), out=out, causal=causal, return_lse=True)
    s = np.where(causal_mask(70, 300), scores(q, k), -np.inf) if causal else scores(q, k)
    check(device.numpy(out), device.numpy(lse), s, v)


@pytest.mark.parametrize("how", [{}, {"ahead": True}, {"late": True, "turns": True}, {"rescale_first": True}], ids=str)
@pytest.mark.parametrize("block_n", [192, *(pytest.param(n, marks=MATRIX) for n in (32, 64, 96, 128, 160, 224))])
@pytest.mark.parametrize("size", [128, *(pytest.param(n, marks=MATRIX) for n in (64, 96))])
def test_sums_by_the_second_product(device, rng, size, block_n, how):
    """Without `lse` the sums are those of rounded weights."""
    q, k, v = arrays(rng, 70, 420, size)
    config = AttentionConfig(block_n, **how)
    assert make_attention_plan(NARROW.__name__, size, size, config, Parts(right=True, out=gl.bfloat16), 64).ones
    out = device.full((2, 4, 70, size), np.nan, BFLOAT16)
    attention(*(device.array(x) for x in (q, k, v)), out=out, config=config, causal=True)
    s = np.where(causal_mask(70, 420), scores(q, k), -np.inf)
    near(device.numpy(out), s, v)


def test_weights_of_coarse_steps(device, rng):
    """All weights but one are 0.53, which e4m3 rounds by 4 %: without `lse` it is rounded in the sum, too."""
    q, k, v = (np.zeros((1, 1, n, 128), NARROW) for n in (3, 300, 300))
    # The last keys are visited first: the other weights are relative to the last one's.
    q[..., 0], k[:, :, -1, 0], v[:, :, :-1] = 1, 1, 1
    scale = float(np.log(1 / 0.53))
    outs = []
    for lse in (False, True):
        out = device.full((1, 1, 3, 128), np.nan, BFLOAT16)
        attention(*(device.array(x) for x in (q, k, v)), out=out, scale=scale, return_lse=lse)
        outs.append(device.numpy(out).astype(np.float64))
    rounded = float(np.float32(0.53 * 256).astype(NARROW)) / 256
    np.testing.assert_allclose(outs[0], 299 * rounded / (1 + 299 * rounded), rtol=4e-3)
    np.testing.assert_allclose(outs[1], 299 * rounded / (1 + 299 * 0.53), rtol=4e-3)
    assert abs(rounded / 0.53 - 1) > 0.02


def test_many_keys(device, rng):
    """Sums of 6,000 weights keep what an accumulator of 13 bits would lose."""
    q, k, v = arrays(rng, 5, 6000)
    out = device.full((2, 4, 5, 128), np.nan, BFLOAT16)
    attention(*(device.array(x) for x in (q, k, v)), out=out)
    near(device.numpy(out), scores(q, k), v)


@pytest.mark.parametrize("kind", [*(pytest.param(x, marks=MATRIX) for x in ("numbers", "tensors", "heads")), "blocks"])
def test_scales(device, rng, kind):
    q, k, v = arrays(rng, 140)
    shapes = {"numbers": [()] * 3, "tensors": [(1,)] * 3, "heads": [(2, 4), (2, 2), (2, 2)]}
    shapes["blocks"] = [(2, 4, 2), (2, 2, 3), (2, 2)]
    scales = [rng.uniform(0.2, 0.8, shape).astype(np.float32) for shape in shapes[kind]]
    given = [float(x) if kind == "numbers" else device.array(x) for x in scales]

    def spread(x, length, count):
        x = np.asarray(x, np.float64).reshape((1, 1, 1) if x.size == 1 else (*x.shape, 1)[:3])
        x = np.broadcast_to(x, (2, count, x.shape[2]))
        return np.repeat(x, 128 if x.shape[2] > 1 else length, 2)[:, :, :length]

    of_q, of_k, of_v = spread(scales[0], 140, 4), spread(scales[1], 300, 2), spread(scales[2], 300, 2)
    s = scores(q, k) * of_q[..., None] * np.repeat(of_k, 2, 1)[:, :, None, :]
    out = device.full((2, 4, 140, 128), np.nan, np.float16)
    _, lse = attention(
        *map(device.array, (q, k, v)), out=out, return_lse=True, q_scale=given[0], k_scale=given[1], v_scale=given[2]
    )
    check(device.numpy(out), device.numpy(lse), s, v, np.repeat(of_v[:, :, :1, None], 2, 1))


def test_masks_and_few_queries(device, rng):
    """Windows and block masks; rows of several heads, with a scale each; blocks of 64 keys; sinks."""
    q, k, v = arrays(rng, 150, 150)
    i, j = np.arange(150)[:, None], np.arange(150)[None, :]
    seen = {"window": (20, 3), "mask_mod": None}
    for name, mask in (("window", (j >= i - 20) & (j <= i + 3)), ("mask_mod", j <= i)):
        value = seen[name] or block_mask(before, device.array(q.view(np.uint8)), 150, 150)
        out = device.full(q.shape, np.nan, BFLOAT16)
        _, lse = attention(*map(device.array, (q, k, v)), out=out, return_lse=True, **{name: value})
        check(device.numpy(out), device.numpy(lse), np.where(mask, scores(q, k), -np.inf), v)
    q, factors = q[:, :, :3], np.array([[0.5, 1, 2, 0.7]] * 2, np.float32)
    out = device.full(q.shape, np.nan, BFLOAT16)
    sinks = np.array([-1, 0, 3, 1], np.float32)
    config = AttentionConfig(64, 1)
    _, lse = attention(
        *map(device.array, (q, k, v)), out=out, return_lse=True, q_scale=device.array(factors),
        sinks=device.array(sinks), config=config,
    )  # fmt: skip
    s = scores(q, k) * factors[:, :, None, None]
    s = np.concatenate([s, np.broadcast_to(sinks[:, None, None], (2, 4, 3, 1))], -1)
    check(device.numpy(out), device.numpy(lse), s, np.concatenate([v, np.zeros_like(v[:, :, :1])], 2))


Q, K, V = arrays(np.random.default_rng(0), 5, 9)
WRONG = [
    ("attention-scales", {"q_scale": 0}, "a positive number"),
    ("attention-scales", {"k_scale": np.ones((2, 4), np.float32)}, "[2, 2]"),
    ("attention-scales", {"v_scale": np.ones((2, 2, 1), np.float32)}, "[2, 2, 1]"),
    ("attention-scales", {"k_scale": np.ones((2, 2))}, "float64"),
    ("attention-scales", {"v_scale": "one"}, "'one'"),
    ("attention-together", {"softcap": 3.0}, "arrays of float8 and softcap"),
    ("attention-together", {"alibi": np.ones(4, np.float32)}, "alibi"),
    ("attention-config", {"config": AttentionConfig(48)}, "a multiple of 32"),
    ("attention-config", {"config": AttentionConfig(96), "k_scale": np.ones((2, 2, 1), np.float32)}, "32, 64 or 128"),
    ("attention-out", {"out": np.zeros(Q.shape, np.float32)}, "bfloat16"),
]


@pytest.mark.parametrize(("code", "options", "words"), WRONG)
def test_mistakes(code, options, words):
    with pytest.raises(LaunchError) as error:
        attention(Q, K, V, **options)
    assert error.value.code == code and words in str(error.value)


def test_scales_of_wide_arrays():
    q = np.zeros((1, 2, 5, 64), np.float16)
    with pytest.raises(LaunchError) as error:
        attention(q, q, q, q_scale=2.0)
    assert error.value.code == "attention-scales" and "float16" in str(error.value)


@needs_nvrtc
@pytest.mark.parametrize("causal", [False, True])
def test_no_spills_with_documents(causal):
    q, ids = np.zeros((1, 2, 512, 128), NARROW), np.zeros((1, 512), np.int32)
    made = compile_attention(q, q, q, documents=ids, causal=causal).front.machine_code
    assert (made.n_spills, made.stack) == (0, 0)


@needs_nvrtc
@pytest.mark.parametrize("size", [128, pytest.param(64, marks=MATRIX), pytest.param(256, marks=MATRIX)])
def test_machine_code(size):
    """Weights are rounded in pairs into the registers of the second product, without any instruction to move bytes."""
    q = np.zeros((1, 2, 512, size), NARROW)
    compiled = compile_attention(q, q, q)
    made = compiled.front.machine_code
    assert (made.n_spills, made.stack) == (0, 0)
    loops = main_loops(compiled.asm["sass"])
    assert len(loops) == (3 if size == 64 else 2)
    width = 192 if size == 128 else 128
    for loop in loops:
        text = " ".join(loop)
        assert text.count("F2FP") == width // 4 and text.count("MUFU.EX2") == width // 2 + 2
        assert not re.findall("PRMT", text)
        assert len(loop) <= {64: 410, 128: 600, 256: 560}[size]


def test_long_causal_calls_take_wider_blocks():
    masked = [chosen_attention(128, 128, Parts(right=True, out="bf16"), 1, queries)[0] for queries in (LONG - 1, LONG)]
    assert [config.block_n for config in masked] == [128, 224]
    for part in ({"left": True}, {"lse": True}, {"documents": True}, {"key_scales": True}, {"mask_mod": before}):
        config, _ = chosen_attention(128, 128, Parts(right=True, out="bf16", **part), 1, LONG)
        assert (config.block_n, config.stages) == (128, 3)
