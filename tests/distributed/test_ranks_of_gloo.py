"""Agreement of ranks in two processes of PyTorch's gloo: equal and different values, and a rank that dies."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RANK = """
    import sys
    import torch.distributed as dist
    from weft.distributed.of_torch import compare

    rank, case, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    if case == "dead" and rank == 1:
        sys.exit(0)
    compare("all", rank, 2, "their symmetric tensor", "float32 (8,)", seconds=20)
    shape = 4 + rank if case == "shapes" else 4
    compare("all", rank, 2, "kernel add" if case == "kernels" else "their symmetric tensor",
            f"float32 ({shape},)" if case != "kernels" else f"code {rank}", seconds=5)
    print("agreed")
"""


def two_ranks(tmp_path: Path, case: str, seconds: str = "") -> list[tuple[int, str]]:
    """Exit status and output of both ranks."""
    script = tmp_path / "rank.py"
    text = textwrap.dedent(RANK)
    script.write_text(text.replace("seconds=20", "seconds=1") if case == "dead" else text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), case, str(tmp_path / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    found = [(rank.communicate(timeout=100)[0], rank.returncode) for rank in ranks]
    return [(status, output) for output, status in found]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("shapes", ["their symmetric tensor: rank 0 has float32 (4,); rank 1 has float32 (5,)",
                    "their symmetric tensor: rank 1 has float32 (5,); rank 0 has float32 (4,)"]),
        ("kernels", ["kernel add: rank 0 has code 0; rank 1 has code 1",
                     "rank 1 has code 1; rank 0 has code 0"]),
    ],
)  # fmt: skip
def test_two_ranks_that_differ(tmp_path: Path, case: str, words: list[str]):
    for (status, output), wanted in zip(two_ranks(tmp_path, case), words, strict=True):
        assert status == 1
        assert wanted in output
        assert "ranks-different" in output


@pytest.mark.torch
def test_two_ranks_that_agree(tmp_path: Path):
    assert [(status, "agreed" in output) for status, output in two_ranks(tmp_path, "same")] == [(0, True)] * 2


@pytest.mark.torch
def test_a_rank_that_has_died(tmp_path: Path):
    (status, output), _ = two_ranks(tmp_path, "dead")
    assert status == 1
    assert "ranks-silent" in output
    assert "rank 1 has said nothing of their symmetric tensor to rank 0 for 1 s" in output
