"""Four-bit integers as floats: every byte, both orders of a word, every type, and the machine code of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, frozen, kept_poison, poison, random, same
from weft import language as gl

GRID = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
SINGLE = gl.BlockedLayout([1, 1], [4, 8], [2, 2], [1, 0])
INTERLEAVED = (0, 4, 1, 5, 2, 6, 3, 7)


@weft.jit
def unpacked(
    out, x, n, axis: gl.constexpr, interleaved: gl.constexpr, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr
):
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    at = i[:, None] * N + j[None, :]
    tile = gl.int4_to_fp(gl.load(x + at, mask=at < n, other=0), out.dtype.element_ty, axis, interleaved).ravel()
    place = gl.set_auto_layout(gl.arange(0, tile.shape[0]), tile.layout)
    gl.store(out + place, tile, mask=place < n)


def numbers(x: np.ndarray, axis: int, order: tuple[int, ...]) -> np.ndarray:
    """The integers of each element by division, `order[k]` being the place of number k."""
    whole = x.astype(np.int64) % (1 << 8 * x.dtype.itemsize)
    fields = [whole // 16**place % 16 for place in order]
    if x.dtype.kind == "i":
        fields = [np.where(field > 7, field - 16, field) for field in fields]
    shape = [size * len(order) if d == axis else size for d, size in enumerate(x.shape)]
    return np.stack(fields, axis + 1).reshape(shape)


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        (gl.float16, "sm_80"),
        (gl.bfloat16, "sm_80"),
        (gl.bfloat16, "sm_100a"),
        (gl.float32, "sm_90a"),
        (gl.float64, "sm_90a"),
    ],
)
@pytest.mark.parametrize(
    ("source", "interleaved"),
    [(np.int8, False), (np.uint8, False), (np.int32, False), (np.uint32, False), (np.int32, True), (np.uint32, True)],
)
def test_numbers(run, rng, device, source, interleaved, dtype, target):
    order = INTERLEAVED if interleaved else tuple(range(2 * np.dtype(source).itemsize))
    for axis, layout, n in ((0, GRID, 500), (1, SINGLE, 512)):
        x = np.array(random(rng, source, (16, 32)))
        x.reshape(-1)[:256] = np.arange(256).astype(source) * (
            1 if np.dtype(source).itemsize == 1 else source(0x1234567)
        )
        out = poison(512 * len(order), NUMPY[dtype])
        with weft.simulate(target=None if device.is_gpu else target):
            run(unpacked, 1, out, frozen(x), n, axis, interleaved, 16, 32, layout)
        kept = np.where(np.arange(512) < n, x.ravel(), 0).astype(source).reshape(x.shape)
        same(out[:n], numbers(kept, axis, order).reshape(-1)[:n].astype(NUMPY[dtype]))
        kept_poison(out, n)


@weft.jit
def scalar(out, x: gl.tensor, dtype: gl.constexpr, layout: gl.constexpr):
    """A word that all threads share."""
    tile = gl.int4_to_fp(gl.full([4, 8], gl.load(x), gl.int32, layout), dtype, 1).ravel()
    gl.store(out + gl.set_auto_layout(gl.arange(0, 256), tile.layout), tile)


def test_one_word_for_all(run):
    x, out = frozen(np.array([0x76543210 - 2**31], np.int32)), poison(256, np.float16)
    run(scalar, 1, out, x, gl.float16, GRID)
    same(out, np.tile([0, 1, 2, 3, 4, 5, 6, -1], 32).astype(np.float16))


@weft.jit
def words(out, x, interleaved: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, 512, layout)
    tile = gl.int4_to_fp(gl.load(x + at), out.dtype.element_ty, 0, interleaved)
    gl.store(out + gl.set_auto_layout(gl.arange(0, 4096), tile.layout), tile)


LINE = gl.BlockedLayout([4], [32], [4], [0])


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16], ids=str)
@pytest.mark.parametrize(("interleaved", "permutations"), [(False, 16), (True, 0)])
def test_machine_code(dtype, interleaved, permutations, target):
    """For the 32 numbers of a thread: 16 LOP3 and 16 packed instructions on floats, no conversion, at most one PRMT a pair."""
    out, x = np.zeros(4096, NUMPY[dtype]), np.zeros(512, np.int32)
    with weft.simulate(target=target):
        compiled = words[1](out, x, interleaved, LINE)
    # ptxas also moves constants by HFMA2, as a product of zeros.
    lines = [line for line in compiled.asm["sass"].splitlines() if "-RZ, RZ" not in line]
    found = re.findall(r"^\S+\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)", "\n".join(lines), re.MULTILINE)

    def count(*names: str) -> int:
        return sum(name.startswith(names) for name in found)

    assert count("I2F", "F2F", "F2FP", "HADD2.F32") == 0
    assert (count("LOP3"), count("HFMA2", "HADD2", "HMUL2")) == (16, 16), found
    assert count("PRMT") == permutations
