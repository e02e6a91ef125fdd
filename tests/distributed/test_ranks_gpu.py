"""The collective kernels, and puts by NVSHMEM, on the GPUs of this host, at most eight, each a process of `torchrun`. For the
collective kernels one GPU is a group of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.errors import DeviceError
from weft.runtime import nvshmem


def run(script: str, ranks: int, words: str) -> None:
    """Run a script of this folder on so many GPUs; each rank prints the words at its end."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        str(Path(__file__).with_name(script)),
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert all(f"rank {rank} of {ranks} {words}" in found.stdout for rank in range(ranks))


def gpus(torch: Any) -> int:
    """A power of two of this host's GPUs."""
    return 1 << (min(torch.cuda.device_count(), 8).bit_length() - 1)


@pytest.mark.gpu
def test_ranks_on_gpus(torch: Any):
    run("on_gpus.py", gpus(torch), "agrees")


@pytest.mark.gpu
def test_ranks_with_nvshmem(torch: Any):
    ranks = gpus(torch)
    if ranks < 2:
        pytest.skip("needs two GPUs")
    try:
        nvshmem.installed()
    except DeviceError as error:
        pytest.skip(error.message)
    if not torch.distributed._symmetric_memory.is_nvshmem_available():
        pytest.skip("this PyTorch was built without NVSHMEM")
    run("nvshmem_on_gpus.py", ranks, "agrees on NVSHMEM")
