"""What a new process does with weft: imports, a kernel, its simulation and its machine code.

[interrupter.py](interrupter.py) executes it, and interrupts it at a random place.
"""

from __future__ import annotations

import numpy as np

import weft
from weft import language as gl
from weft.runtime import nvrtc


@weft.jit
def smooth(x, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    here = gl.load(x + at, mask=at < n, other=0.0)
    total = gl.sum(here, axis=0)
    gl.store(out + at, here * 0.5 + total, mask=at < n)


def launch() -> str:
    """Simulate the kernel, check its numbers, and give its text: PTX where there is NVRTC, else CUDA."""
    x = np.arange(256, dtype=np.float32)
    out = np.zeros_like(x)
    with weft.simulate(seed=1, target="sm_80"):
        compiled = smooth[(2,)](x, out, 256, BLOCK=128)
    expected = x * 0.5 + np.repeat(x.reshape(2, 128).sum(axis=1), 128)
    assert np.array_equal(out, expected)
    return compiled.asm["ptx" if nvrtc.available() else "cuda"]
