"""The benchmark of rows, at small sizes on CPU tensors: every variant is checked, as on a GPU, by a clock that stands still."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import rows


class Still:
    """A clock that runs a call once and says a millisecond."""

    def milliseconds(self, run):
        run()
        return 1.0


JOBS = {
    "norms": lambda: rows.norm_jobs([(3, 264)], "float32", "cpu"),
    "softmax": lambda: rows.softmax_jobs([(4, 256)], "float32", "cpu"),
    "cross_entropy": lambda: rows.cross_entropy_jobs([(4, 1000)], "float32", "cpu"),
    "elementwise": lambda: rows.elementwise_jobs(3, "float32", "cpu"),
    "experts": lambda: rows.expert_jobs(50, "cpu"),
    "models": lambda: rows.model_jobs([(3, 136)], [(2, 600)], "float32", "cpu"),
    "random": lambda: rows.random_jobs([(5, 129)], "float32", "cpu"),
}


@pytest.mark.parametrize("part", JOBS)
def test_every_variant_is_right(torch, part):
    torch.manual_seed(0)
    for job in JOBS[part]():
        found = rows.figures(replace(job, compiled=False), Still(), 1)
        assert [line.what for line in found if line.ours is None or set(line.peers) != {"torch", "copy"}] == []


def test_parts():
    assert set(rows.PARTS) == set(JOBS)
