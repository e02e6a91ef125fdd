"""The collective kernels on the GPUs of this host, at most eight, each a process of `torchrun`. One GPU is a group of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.gpu
def test_ranks_on_gpus(torch: Any):
    ranks = 1 << (min(torch.cuda.device_count(), 8).bit_length() - 1)
    script = Path(__file__).with_name("on_gpus.py")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        str(script),
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert all(f"rank {rank} of {ranks} agrees" in found.stdout for rank in range(ranks))
