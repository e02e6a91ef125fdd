"""A wait that never ends, in a debug build on a GPU: the kernel stops and says which barrier it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.project import tree

SCRIPT = """
import torch
import weft
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier

@weft.jit
def stuck(x):
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=1)
    mbarrier.wait(bars.index(1), 0)
    gl.store(x, 1)

stuck[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"), debug=True)
try:
    torch.cuda.synchronize()
except RuntimeError:
    print("the kernel was stopped")
"""


@pytest.mark.gpu
def test_a_wait_without_end(tmp_path):
    """In a process of its own: a kernel that traps takes its context with it."""
    path = tmp_path / "stuck.py"
    path.write_text(SCRIPT, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(tree.ROOT)}
    ran = subprocess.run(
        [sys.executable, str(path)], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    line = next(n for n, text in enumerate(SCRIPT.splitlines(), 1) if "mbarrier.wait" in text)
    assert f"stuck.py:{line}: mbarrier.wait has waited for 2 s on bars[1], the phase of parity 0" in ran.stdout, (
        ran.stderr
    )
    assert "the kernel was stopped" in ran.stdout
