"""Gradients of attention: against float64, whose formula finite differences confirm."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.cuda.build import needs_nvrtc
from tests.kernels_lib.attended import causal_mask, expected, gradients, scores
from weft import language as gl
from weft.errors import CompilationError, LaunchError
from weft.kernels import attend_backward, attention, attention_backward
from weft.kernels.device import attend_backward as device_code
from weft.kernels.device.schedulers import in_two_parts

MATRIX = pytest.mark.matrix


@weft.jit
def strided(_batch, _head, query, key, step):
    """A mask function: queries and keys whose numbers do not add up to a multiple."""
    return (query + key) % step != 0


@weft.jit
def bent(score, _batch, head, query, key, slopes, cap):
    """A score function: other scores behind the diagonal, a soft cap, kinks, and a bias for each head."""
    s = gl.where(query >= key, score, score * 0.5) / 2
    s = gl.maximum(cap * gl.tanh(s / cap), -1.0) + gl.exp(-gl.abs(score)) - 0.1 * score**2
    return s - gl.load(slopes + head) * gl.abs((query - key).to(gl.float32))


SLOPES = np.array([0.3, 0.1], np.float32)


def bent_numbers(s):
    query, key = (np.arange(n) for n in s.shape[-2:])
    away, half = query[:, None] - key, np.where(query[:, None] >= key, s, s / 2) / 2
    bias = SLOPES[:, None, None].astype(np.float64) * abs(away)
    return np.maximum(1.5 * np.tanh(half / 1.5), -1) + np.exp(-abs(s)) - 0.1 * s**2 - bias


@weft.jit
def numbered(found, count, heads, columns, band, banded):
    for number in range(count):
        head, column = in_two_parts(number, heads, columns, band, banded)
        gl.store(found + 2 * number, head)
        gl.store(found + 2 * number + 1, column)


def test_the_reference_by_finite_differences():
    rng = np.random.default_rng(0)
    q, k, v, grad = (rng.normal(size=(1, heads, n, 4)) for heads, n in ((2, 3), (1, 5), (1, 5), (2, 3)))
    lse_grad, seen, scale, step = rng.normal(size=(1, 2, 3)), causal_mask(3, 5), 0.7, 1e-6
    bias, sinks = rng.normal(size=(2, 3, 5)), rng.normal(size=2)

    def loss():
        s = np.where(seen, bent_numbers(0.9 * np.tanh(scores(q, k, scale) / 0.9) + bias), -np.inf)
        # A sink is a key whose value is zero.
        s = np.concatenate([s, np.broadcast_to(sinks[:, None, None], (1, 2, 3, 1))], -1)
        out, lse = expected(s, np.pad(v, ((0, 0), (0, 0), (0, 1), (0, 0))))
        return (out * grad).sum() + (lse * lse_grad).sum()

    wanted = gradients(grad, q, k, v, seen, scale, lse_grad, 0.9, bias, sinks, bent_numbers)
    for x, want in zip((q, k, v, sinks), wanted, strict=True):
        for at in np.ndindex(x.shape):
            x[at] += step
            above = loss()
            x[at] -= 2 * step
            below = loss()
            x[at] += step
            assert abs((above - below) / (2 * step) - want[at]) < 1e-7


# Batch, heads, heads of keys, queries, keys, head sizes, type, options. Arrays stand for the numbers of which they are made.
CASES = {
    "whole blocks": (1, 1, 1, 64, 128, (128, 128), np.float16, {}),
    "one of each": (1, 1, 1, 1, 1, (64, 64), np.float16, {}),
    "causal, groups": (1, 4, 2, 70, 140, (64, 64), np.float16, {"causal": True}),
    "causal, groups, 128": (2, 4, 2, 150, 130, (128, 128), ml_dtypes.bfloat16, {"causal": True}),
    "more queries than keys": (1, 2, 1, 200, 60, (64, 64), np.float16, {"causal": True, "scale": 0.3}),
    "window": (1, 1, 1, 90, 300, (128, 128), np.float16, {"window": (20, 3)}),
    "left": (1, 2, 1, 300, 290, (64, 64), np.float16, {"window": (129, None)}),
    "long": (1, 2, 2, 1000, 129, (64, 64), ml_dtypes.bfloat16, {}),
    "long, 128": (1, 2, 1, 129, 1000, (128, 128), np.float16, {"causal": True}),
    "in order": (1, 2, 1, 129, 300, (128, 128), np.float16, {"deterministic": True}),
    "in order, causal": (1, 2, 1, 70, 300, (64, 64), np.float16, {"causal": True, "deterministic": True}),
    "in order, window": (2, 1, 1, 300, 290, (64, 64), np.float16, {"window": (60, 3), "deterministic": True}),
    "96": (1, 2, 1, 70, 140, (96, 96), np.float16, {"causal": True}),
    "192 with 128": (1, 2, 1, 70, 140, (192, 128), ml_dtypes.bfloat16, {}),
    "256": (1, 2, 1, 129, 140, (256, 256), ml_dtypes.bfloat16, {"causal": True}),
    "256, in order": (1, 2, 1, 129, 140, (256, 256), np.float16, {"window": (40, 9), "deterministic": True}),
    "prefix": (2, 2, 1, 70, 200, (64, 64), np.float16, {"causal": True, "prefix": (5, 150)}),
    "documents": (2, 2, 1, 140, 140, (128, 128), np.float16, {"causal": True, "documents": 4}),
    "documents, in order": (2, 2, 1, 200, 200, (64, 64), np.float16, {"documents": 4, "deterministic": True}),
    "soft cap, slopes": (1, 4, 2, 70, 140, (128, 128), np.float16, {"softcap": 2.0, "alibi": (0.5, 0.1, 0, 1)}),
    "soft cap, slopes, 256": (
        1,
        2,
        1,
        70,
        70,
        (256, 256),
        np.float16,
        {"softcap": 2.0, "alibi": (0.5, 0.1), "causal": True},
    ),
    "mask function": (1, 2, 1, 70, 140, (64, 64), np.float16, {"mask_mod": strided, "mask_args": (3,), "softcap": 9.0}),
    "sinks": (2, 2, 1, 70, 140, (64, 64), np.float16, {"causal": True, "sinks": (0.5, -1)}),
    "score function": (2, 2, 1, 70, 140, (64, 64), np.float16, {"score_mod": bent, "sinks": (0.5, -1), "causal": True}),
    "score function, 128": (1, 2, 2, 70, 140, (128, 128), np.float16, {"score_mod": bent, "softcap": 3.0}),
    "score function, 256": (
        1,
        2,
        1,
        70,
        70,
        (256, 256),
        ml_dtypes.bfloat16,
        {"score_mod": bent, "deterministic": True},
    ),
}
QUICK = ("in order, causal", "score function", "soft cap, slopes, 256")


def setting(rng, batch, heads, kv_heads, queries, keys, sizes, dtype, options):
    """Arrays, the options with theirs, which keys queries see, and the options of the reference."""
    size, v_size = sizes
    shapes = ((heads, queries, size), (kv_heads, keys, size), (kv_heads, keys, v_size), (heads, queries, v_size))
    arrays = [rng.normal(size=(batch, *shape)).astype(dtype) for shape in shapes]
    options, i, j = dict(options), np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None, :]
    left, right = (1 << 20 if side is None else side for side in options.get("window", (None, None)))
    seen = np.tile((j >= i - left) & (j <= i + (0 if options.get("causal") else right)), (batch, 1, 1, 1))
    reference = {"scale": options.get("scale", size**-0.5), "softcap": options.get("softcap", np.inf)}
    for name, dtype in {"prefix": np.int32, "alibi": np.float32, "sinks": np.float32}.items():
        if name in options:
            options[name] = np.array(options[name], dtype)
    if "prefix" in options:
        seen |= j < options["prefix"][:, None, None, None]
    if "documents" in options:
        options["documents"] = ids = np.sort(rng.integers(0, options["documents"], (batch, keys)), -1).astype(np.int32)
        seen &= ids[:, None, :, None] == ids[:, None, None, :]
    if "mask_mod" in options:
        seen &= (np.arange(queries)[:, None] + j) % options["mask_args"][0] != 0
    if "alibi" in options:
        reference["bias"] = -options["alibi"].astype(np.float64)[:, None, None] * np.abs(i - j)
    if "sinks" in options:
        reference["sinks"] = options["sinks"]
    if "score_mod" in options:
        options["score_args"], reference["function"] = (SLOPES, 1.5), bent_numbers
    return arrays, options, seen, reference


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else MATRIX) for name in CASES])
def test_gradients(device, rng, name):
    compare(device, rng, CASES[name], name in ("causal, groups", "long, 128", "256", "sinks"))


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(24))
def test_gradients_of_random_calls(device, seed):
    rng = np.random.default_rng(seed)
    kv_heads, members, causal = int(rng.integers(1, 3)), int(rng.integers(1, 4)), bool(rng.integers(2))
    queries, keys = (int(rng.integers(2, 300)) for _ in range(2))
    heads, size = kv_heads * members, [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)][rng.integers(5)]
    drawn = {
        "softcap": 3.0, "alibi": tuple(rng.uniform(0, 1, heads)), "sinks": tuple(rng.normal(size=heads)),
        "deterministic": True, "prefix" if causal else "window": (keys // 3,) if causal else (queries // 2, 40),
        "score_mod": bent,
    }  # fmt: skip
    options = {name: value for name, value in drawn.items() if rng.integers(2) and (name != "score_mod" or heads == 2)}
    dtype = [np.float16, ml_dtypes.bfloat16][rng.integers(2)]
    case = (1, heads, kv_heads, queries, keys, size, dtype, {"causal": causal, **options})
    compare(device, rng, case, bool(rng.integers(2)))


def compare(device, rng, case, of_logarithms):
    """Gradients against float64, where wanted with a gradient of the logarithms."""
    (q, k, v, grad), options, seen, reference = setting(rng, *case)
    order = {"deterministic": options.pop("deterministic", False)}
    options = {key: device.array(x) if isinstance(x, np.ndarray) else x for key, x in options.items()}
    if "score_args" in options:
        options["score_args"] = (device.array(SLOPES), 1.5)
    given = [device.array(x) for x in (q, k, v)]
    out, lse = attention(*given, return_lse=True, **options)
    lse_grad = rng.normal(size=lse.shape).astype(np.float32) if of_logarithms else None
    extra = {} if lse_grad is None else {"lse_grad": device.array(lse_grad)}
    found = attention_backward(device.array(grad), *given, out, lse, **options, **extra, **order)
    given_up = 0.0 if lse_grad is None else np.where(seen.any(-1) | ("sinks" in options), lse_grad, 0)
    wanted = gradients(grad, q, k, v, seen, lse_grad=given_up, **reference)
    step = 2**-10 if q.dtype == np.float16 else 2**-7
    if "sinks" in options:
        *found, of_sinks = found
        *wanted, want = wanted
        weights = np.exp(device.numpy(options["sinks"])[:, None] - device.numpy(lse).astype(np.float64))
        # Products of results, which are rounded, and their gradients are added up.
        products = weights[..., None] * device.numpy(out).astype(np.float64) * grad.astype(np.float64)
        assert (np.abs(device.numpy(of_sinks) - want) <= 2 * step * np.sqrt((products**2).sum((0, 2, 3))) + 1e-6).all()
    for mine, want, like in zip(found, wanted, (q, k, v), strict=True):
        got = device.numpy(mine)
        assert got.dtype == like.dtype and got.shape == like.shape
        # Weights and their gradients are rounded to 16 bits before they are added up, and so is delta's O.
        wide = got.astype(np.float64)
        if seen.size == 1:
            np.testing.assert_allclose(wide, want, atol=8 * step)
            continue
        assert np.sqrt(np.mean((wide - want) ** 2)) <= step * np.sqrt(np.mean(want**2))
        assert np.abs(wide - want).max() <= 2 * step * np.abs(want).max()


SEQUENCES = {
    "sequences": ((70, 0, 30, 5), (100, 7, 0, 150), 64, {"causal": True}),
    "sequences, in order": (
        (70, 1, 65),
        (130, 5, 131),
        128,
        {"deterministic": True, "prefix": (3, 9, 0), "causal": True},
    ),
    "sequences, 256": ((70, 65), (64, 130), 256, {"window": (40, 3)}),
}


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x == "sequences" else MATRIX) for x in SEQUENCES])
def test_gradients_of_sequences(device, rng, name):
    """Of each sequence those of attention by itself."""
    queries, keys, size, given = SEQUENCES[name]
    order = {"deterministic": given.get("deterministic", False)}
    options = {key: x for key, x in given.items() if key not in ("deterministic", "prefix")}
    shapes = ((2, sum(queries)), (1, sum(keys)), (1, sum(keys)), (2, sum(queries)))
    arrays = [rng.normal(size=(1, *shape, size)).astype(np.float16) for shape in shapes]
    q, k, v, grad = map(device.array, arrays)
    starts = [np.cumsum([0, *lengths]).astype(np.int32) for lengths in (queries, keys)]
    more = {"cu_seqlens_q": device.array(starts[0]), "cu_seqlens_k": device.array(starts[1])}
    if "prefix" in given:
        more["prefix"] = device.array(np.array(given["prefix"], np.int32))
    out, lse = attention(q, k, v, return_lse=True, **options, **more)
    found = [device.numpy(x) for x in attention_backward(grad, q, k, v, out, lse, **options, **order, **more)]
    left, right = options.get("window", (1 << 20, 0 if options.get("causal") else 1 << 20))
    for i, (count, length) in enumerate(zip(queries, keys, strict=True)):
        mine, its = (slice(each[i], each[i + 1]) for each in starts)
        at, j = np.arange(count)[:, None] + length - count, np.arange(length)[None, :]
        seen = ((j >= at - left) & (j <= at + right)) | (j < given.get("prefix", (0,) * len(keys))[i])
        parts = [x[:, :, part] for x, part in zip(arrays, (mine, its, its, mine), strict=True)]
        wanted = gradients(parts[3], *parts[:3], seen, size**-0.5) if length else (np.zeros(parts[0].shape),)
        for got, want, part in zip(found, wanted, (mine, its, its), strict=False):
            if want.size:
                np.testing.assert_allclose(got[:, :, part], want, atol=2e-3 * (1 + np.abs(want).max()))


def test_strides_and_groups_of_one_array(device, rng):
    """Parts of one array, and a gradient with heads of a position side by side."""
    packed = rng.normal(size=(1, 40, 3, 2, 64)).astype(np.float16)
    given = device.array(packed)
    q, k, v = (given[:, :, i].swapaxes(1, 2) for i in range(3))
    out, lse = attention(q, k, v, return_lse=True)
    found = attention_backward(out, q, k, v, out, lse)
    host = [packed[:, :, i].swapaxes(1, 2) for i in range(3)]
    wanted = gradients(np.array(device.numpy(out)), *host, np.ones((40, 40), bool), 1 / 8)
    for mine, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(device.numpy(mine).astype(np.float64), want, atol=6e-3 * np.abs(want).max())


@MATRIX
def test_turns_make_the_gradients_of_each_call_the_same(device, rng):
    """Of more programs than run at once on a GPU."""
    shape = (1, 1, 400, 64) if not device.is_gpu else (2, 16, 2048, 128)
    arrays = [rng.normal(size=shape).astype(np.float16) for _ in range(4)]
    grad, q, k, v = map(device.array, arrays)
    out, lse = attention(q, k, v, causal=True, return_lse=True)
    given = grad, q, k, v, out, lse
    found = []
    for number in range(4):
        # In the simulator another order of programs and partitions each time, and of few programs at once.
        with weft.simulate(seed=number, max_resident=(None, 1, 2, None)[number]):
            found.append([device.numpy(x) for x in attention_backward(*given, causal=True, deterministic=True)])
    first, *others = found
    assert all(np.array_equal(x, y) for other in others for x, y in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("columns", "heads", "band", "most", "want"),
    [
        (64, 8, 1, 4, (2, 64)),  # L2 has room for a band that fills the multiprocessors
        (64, 8, 1, 1, (1, 32)),  # it has not
        (16, 128, 24, 128, (16, 16)),  # two waves, which L2 has room for in any case
        (27, 20, 1, 9, (5, 27)),  # three programs more than multiprocessors
        (24, 24, 5, 29, (5, 13)),  # no divisor of the heads fills them
        (19, 96, 20, 107, (20, 14)),  # only those of several waves do, which L2 has no room for
        (94, 2, 1, 1, (1, 94)),  # all bands begin at once
    ],
)
def test_bands_of_programs_with_a_causal_mask(columns, heads, band, most, want):
    assert attend_backward.decreasing(columns, heads, band, most, 132) == want


@pytest.mark.parametrize("seed", range(8))
def test_programs_have_each_column_of_each_head_once(seed):
    rng = np.random.default_rng(seed)
    columns, heads, band, most = (int(2 ** rng.uniform(0, bits)) for bits in (6, 6, 5, 7))
    processors, ordered = int(rng.integers(1, 149)), bool(rng.integers(2))
    band, banded = attend_backward.decreasing(columns, heads, band, most, processors, ordered)
    found = np.empty((columns * heads, 2), np.int32)
    numbered[1,](found, columns * heads, heads, columns, band, banded)
    assert set(map(tuple, found)) == {(head, column) for head in range(heads) for column in range(columns)}


def test_bands_of_programs_that_take_turns():
    found = [attend_backward.decreasing(64, heads, 2, 4, 132, ordered=True) for heads in (8, 9)]
    assert found == [(2, 64), (2, 34)]


def test_without_keys_gradients_are_zero(device):
    q, k = device.zeros((1, 2, 5, 64), np.float16), device.zeros((1, 1, 0, 64), np.float16)
    out, lse = attention(q, k, k, return_lse=True)
    dq, dk, _ = attention_backward(device.array(np.ones((1, 2, 5, 64), np.float16)), q, k, k, out, lse)
    assert (device.numpy(dq) == 0).all() and dk.shape == (1, 1, 0, 64)


@weft.jit
def repeated(score, _batch, _head, query, _key):
    """A score function with a loop on a run-time value."""
    for _ in range(gl.program_id(0)):
        score = score * 2.0
    return score


@weft.jit
def in_bits(score, _batch, _head, query, _key):
    """A score function that has no derivative."""
    return gl.cast(gl.cast(score, gl.uint32, bitcast=True), gl.float32, bitcast=True) * 2.0


@pytest.mark.parametrize("function", [repeated, in_bits])
def test_a_score_function_without_a_derivative(function):
    q, lse = np.zeros((1, 1, 64, 64), np.float16), np.zeros((1, 1, 64), np.float32)
    with pytest.raises(CompilationError) as error:
        attention_backward(q, q, q, q, q, lse, score_mod=function)
    assert error.value.code == "language-derivative"
    assert error.value.loc.file.endswith("test_attention_backward.py")


def test_mistakes():
    q, wide = np.zeros((1, 2, 5, 64), np.float16), np.zeros((1, 2, 5, 320), np.float16)
    lse = np.zeros((1, 2, 5), np.float32)
    for code, call in {
        "attention-backward-size": lambda: attention_backward(wide, wide, wide, wide, wide, lse),
        "attention-out": lambda: attention_backward(q[:, :1], q, q, q, q, lse),
        "attention-option": lambda: attention_backward(q, q, q, q, q, lse[..., :1]),
        "attention-function": lambda: attention_backward(q, q, q, q, q, lse, score_mod=abs),
    }.items():
        with pytest.raises(LaunchError) as error:
            call()
        assert error.value.code == code


def compiled(monkeypatch, size, **options):
    """The kernels of a call."""
    kernels = {}

    class Compiled:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, _):
            return lambda *args, stream, **options: kernels.update(
                {self.name: getattr(device_code, self.name).warmup(*args, **options)}
            )

    for name in ("prepare", "attend_backward", "convert"):
        monkeypatch.setattr(attend_backward, name, Compiled(name))
    q, lse = np.zeros((1, 2, 512, size), np.float16), np.zeros((1, 2, 512), np.float32)
    attention_backward(q, q, q, q, q, lse, **options)
    return kernels


@needs_nvrtc
@MATRIX
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128])
def test_machine_code(monkeypatch, size, causal):
    """No MMA waits for the one before, and the products that follow from weights are issued while others run."""
    kernels = compiled(monkeypatch, size, causal=causal)
    for kernel in kernels.values():
        made = kernel.front.machine_code
        assert re.findall(r"C75\d\d", made.log) == []
        # Addresses, and numbers of the share: at head size 64 scores and their gradients take 128 registers.
        assert made.stack <= (32 if size == 64 else 0)
    sass = kernels["attend_backward"].asm["sass"]
    found = re.findall(r"HGMMA|WARPGROUP\.DEPBAR\.LE gsb0, 0x\d|MUFU\.EX2", sass)
    parts = [found[i] for i in range(len(found)) if not i or found[i] != found[i - 1] or found[i] == "MUFU.EX2"]
    wait = "WARPGROUP.DEPBAR.LE gsb0, 0x{}".format
    exponentials = 64 if size == 64 else 32
    # Of each consumer: the first scores, then the loop. dP is in flight while exponentials are computed, the next scores are
    # while the gradient of queries is added up; and last that of the last block.
    loop = [
        wait(0),
        "HGMMA",
        *["MUFU.EX2"] * exponentials,
        wait(0),
        "HGMMA",
        wait(1),
        "HGMMA",
        wait(2),
        "HGMMA",
        wait(1),
    ]
    assert parts == 2 * ["HGMMA", *loop, wait(0), "HGMMA", wait(0)]
    # Each consumer adds pieces of 64 x 64 by 128 threads in its loop and behind it.
    assert len(re.findall(r"REDG\.E\.ADD\.F32x4", sass)) == 2 * 2 * 8


@needs_nvrtc
@MATRIX
@pytest.mark.parametrize("deterministic", [False, True])
def test_machine_code_of_three_warpgroups(monkeypatch, deterministic):
    """No MMA waits for the one before; only addresses are spilled, and waiting for a turn waits for no memory."""
    kernel = compiled(monkeypatch, 256, causal=True, deterministic=deterministic)["attend_backward"]
    made, sass = kernel.front.machine_code, kernel.asm["sass"]
    assert re.findall(r"C75\d\d", made.log) == [] and made.stack <= 32
    # Pieces of 64 x 64 by 128 threads: four of a block of queries.
    assert len(re.findall(r"REDG\.E\.ADD\.F32x4", sass)) == 4 * 8
    # Those before the end of publishing: one for each of two slots.
    assert len(re.findall(r"MEMBAR\.ALL\.GPU", sass)) == 2 * deterministic
