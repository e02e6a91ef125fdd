"""Launches of blocks of threads: how many there are, how that is said, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.fake_driver import FakeTensor
from tests.runtime.test_kernel import gl
from weft.errors import LaunchError
from weft.kernel import jit
from weft.runtime import fingerprint as fp
from weft.runtime.compiled import CompileRequest, Options
from weft.runtime.grid import block_of, split
from weft.runtime.rehearsal import rehearsal

X = FakeTensor(0x1000)


def make():
    @jit
    def scale(x):
        """Take an array."""

    return scale


def caught(launch, code):
    with pytest.raises(LaunchError) as error:
        launch()
    assert error.value.code == code
    return error.value


@pytest.mark.parametrize(
    ("block", "sizes", "warps"),
    [
        (1, (1, 1, 1), 1),
        (33, (33, 1, 1), 2),
        ((8, 8), (8, 8, 1), 2),
        ((5, 7, 3), (5, 7, 3), 4),
        (1024, (1024, 1, 1), 32),
    ],
)
def test_a_block_has_the_threads_that_were_asked_for(cuda, compiler, block, sizes, warps):
    for _ in range(2):
        compiled = make()[(4, 4)](X, block=block)
        launched = cuda.launches[-1]
        assert launched.grid == (4, 4, 1)
        assert launched.block == (sizes[0] * sizes[1] * sizes[2], 1, 1), "blocks are launched in one dimension"
        assert (compiled.block, compiled.num_warps, compiled.threads) == (sizes, warps, launched.block[0])


def test_without_a_block_there_are_warps(cuda, compiler):
    compiled = make()[1](X)
    assert (compiled.block, compiled.num_warps, compiled.threads) == (None, 4, 128)
    assert make()[1](X, num_warps=None).num_warps == 4


@pytest.mark.parametrize("grid", [(4, 4), [4, 4], lambda bound: (4, 4)], ids=["tuple", "list", "function"])
def test_a_block_in_brackets(cuda, compiler, grid):
    scale = make()
    for block in ((8, 8), (64,), (8, 8)):
        assert scale[grid, block](X).block == block_of("scale", block)
        assert (cuda.launches[-1].grid, cuda.launches[-1].block) == ((4, 4, 1), (64, 1, 1))
    assert len(compiler.requests) == 2
    assert scale[grid, 32](X) is scale[grid](X, block=32)


def test_brackets_are_a_grid_or_a_grid_and_a_block():
    assert split((4, 2)) == ((4, 2), None)
    assert split(7) == (7, None)
    assert split((4, 2, 1)) == ((4, 2, 1), None)
    assert split(((4,), 32)) == ((4,), 32)
    assert split((4, (8, 8))) == (4, (8, 8))
    assert split((len, 32)) == (len, 32)


def test_blocks_of_other_shapes_are_other_kernels(cuda, compiler):
    scale = make()
    blocks = [(8, 8), (64,), 64, (4, 16), None, (8, 8, 1), (8, 8)]
    kernels = [scale[1](X, block=block) for block in blocks]
    assert [r.options.block for r in compiler.requests] == [(8, 8, 1), (64, 1, 1), (4, 16, 1), None]
    assert kernels[0] is kernels[-1] is kernels[-2]
    assert kernels[1] is kernels[2]


def test_a_block_is_part_of_the_key_of_the_disk_cache():
    function = make()
    keys = {
        fp.key0(CompileRequest(function, {}, Options(num_warps=2, block=block), "sm_90a"))
        for block in (None, (64, 1, 1), (8, 8, 1))
    }
    assert len(keys) == 3


def test_the_warps_may_be_said_where_they_agree(cuda, compiler):
    assert make()[1](X, block=(8, 8), num_warps=2).num_warps == 2
    error = caught(lambda: make()[1](X, block=(8, 8), num_warps=4), "launch-block-warps")
    assert "64 threads fill 2 warps" in error.message


def test_clusters_of_threads(cuda, compiler):
    assert make()[1](X, block=8, num_ctas=1).num_ctas == 1
    assert make()[1](X, block=8, num_ctas=2).num_ctas == 2
    error = caught(lambda: make()[2**21](X, block=512, num_ctas=2), "launch-grid-threads")
    assert f"{2**31}" in error.message.replace(",", "")


def test_two_blocks(cuda, compiler):
    error = caught(lambda: make()[(4, 4), (8, 8)](X, block=64), "launch-block-twice")
    assert "(8, 8) in brackets, and block=64" in error.message


@pytest.mark.parametrize("block", [0, (8, 0), (-1, 8), (32, 33), (1, 1, 1, 1), (), 1.5, (8, "8"), [8, 8], "8"])
def test_what_is_no_block(cuda, compiler, block):
    for _ in range(2):
        error = caught(lambda: make()[1](X, block=block), "launch-option-value")
        assert "1024 threads" in error.message


def test_a_kernel_that_declares_its_block(cuda, compiler):
    @jit
    def scale(x, block: gl.constexpr = (16, 4), num_warps: gl.constexpr = None):
        """Take an array."""

    scale[1](X)
    scale[1](X, block=33)
    scale[1](X, (4, 4), 1)
    seen = [(r.options.block, r.arguments["block"].value, r.arguments["num_warps"].value) for r in compiler.requests]
    assert seen == [(b, b, n) for b, n in (((16, 4, 1), 2), ((33, 1, 1), 2), ((4, 4, 1), 1))]
    assert [launched.block[0] for launched in cuda.launches] == [64, 33, 16]


def test_a_parameter_that_would_be_taken_for_the_option(cuda, compiler):
    @jit
    def scale(x, block):
        """Take an array, and what its author thinks is a number."""

    caught(lambda: scale[1](X, 64), "launch-reserved-parameter")


def test_a_declared_number_of_warps_follows_the_block(cuda, compiler):
    @jit
    def scale(x, num_warps: gl.constexpr):
        """Take an array."""

    seen = []
    scale[lambda bound: seen.append(bound["num_warps"]) or 1](X)
    scale[1](X, block=96)
    assert seen == [4]
    assert [r.arguments["num_warps"].value for r in compiler.requests] == [4, 3]


def test_warmup_and_rehearsals_take_blocks(no_gpu, compiler):
    scale = make()
    assert scale.warmup("*fp32", block=(8, 4), target="sm_90a").block == (8, 4, 1)
    assert scale.warmup("*fp32").num_warps == 4
    seen = []
    with rehearsal(seen.append):
        scale[(4, 4), (8, 8)](np.zeros(8, np.float32))
        scale[4](np.zeros(8, np.float32), block=5)
    assert [kernel.block for kernel in seen] == [(8, 8, 1), (5, 1, 1)]


def test_simulated_launches_take_blocks(no_gpu, compiler):
    x = np.zeros(8, np.float32)
    assert make()[(2, 2), (3, 3)](x).block == (3, 3, 1)
    ((_, size, _),) = compiler.simulated
    assert size == (2, 2, 1)
