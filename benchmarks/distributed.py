"""Collective kernels on several GPUs of one host, against NCCL and PyTorch's symmetric-memory operators in the same run.

    torchrun --nproc-per-node 2 benchmarks/distributed.py [--quick] [--out FOLDER]

Times are medians over rounds in which the variants take turns, each between a barrier and a synchronisation, of the slowest
rank. "eager" is a call from Python, "replayed" a captured graph of several calls divided by their number. weft's result is
compared with NCCL's before anything is timed. Rank 0 prints and records the tables.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.report import Goal, Line  # noqa: E402 - as a script, this file finds the package only now

TITLE = "All-reduce and all-gather with a matmul on several GPUs (us; medians of the slowest rank)"
NEEDS_GPU = True
IN_GRAPH = 20
"""Calls in a captured graph."""
SIZES = (8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20)
GOALS: dict[tuple[str, int], tuple[Goal, ...]] = {
    **{("eager", size): (Goal(8.0, ceiling=True),) for size in SIZES[:3]},
    **{("replayed", size): (Goal(0.7, "torch symm_mem", ceiling=True),) for size in SIZES[:3]},
    ("eager", 4 << 20): (Goal(20.0, ceiling=True),), ("eager", 64 << 20): (Goal(200.0, ceiling=True),),
}  # fmt: skip
PRODUCTS = {(8192, 8192, 8192): 800.0, (8192, 3584, 8192): 400.0}
"""M, N and K of all-gather and matmul, with the goal."""

Call = Callable[[], Any]


class Group:
    """This process among the ranks: its GPU, and times that all ranks agree on."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def slowest(self, microseconds: float) -> float:
        """The largest of all ranks' times."""
        found = self.torch.tensor([microseconds], device="cuda", dtype=self.torch.float64)
        self.dist.all_reduce(found, self.dist.ReduceOp.MAX)
        return float(found.item())

    def once(self, call: Call, calls: int) -> float:
        """Microseconds of one call, of several in a row behind a barrier."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.dist.barrier()
        self.torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        self.torch.cuda.synchronize()
        return self.slowest(begin.elapsed_time(end) * 1000 / calls)

    def graph(self, call: Call) -> Call:
        """The replay of IN_GRAPH calls."""
        stream = self.torch.cuda.Stream()
        with self.torch.cuda.stream(stream):
            call()
        stream.synchronize()
        made = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(made, stream=stream):
            for _ in range(IN_GRAPH):
                call()
        return made.replay

    def measure(self, variants: dict[str, Call], rounds: int, calls: int, share: int = 1) -> dict[str, float]:
        """The median time of each variant, in microseconds; `share` calls are one."""
        times: dict[str, list[float]] = {name: [] for name in variants}
        for number in range(rounds + 1):
            for name, call in variants.items():
                found = self.once(call, calls) / share
                if number:
                    times[name].append(found)
        return {name: median(found) for name, found in times.items()}


def _symmetric(group: Group, *shape: int) -> Any:
    import torch.distributed._symmetric_memory as symm_mem

    made = symm_mem.empty(shape, dtype=group.torch.bfloat16, device="cuda")
    symm_mem.rendezvous(made, group.dist.group.WORLD.group_name)
    return made


def all_reduce(group: Group, quick: bool) -> list[Line]:
    """All-reduce of bfloat16 by size, eager and replayed."""
    import weft
    from weft.kernels import distributed

    lines: list[Line] = []
    name = group.dist.group.WORLD.group_name
    operators = group.torch.ops.symm_mem
    for nbytes in SIZES[:3] if quick else SIZES:
        x, theirs = (_symmetric(group, nbytes // 2) for _ in range(2))
        plain, shared = group.torch.empty_like(x), weft.Symmetric(x)
        start = group.torch.randn(nbytes // 2, device="cuda").bfloat16()
        variants: dict[str, Call] = {
            "weft": lambda shared=shared: distributed.all_reduce(shared),
            "NCCL": lambda plain=plain: group.dist.all_reduce(plain),
            "torch symm_mem": lambda theirs=theirs: operators.two_shot_all_reduce_(theirs, "sum", name),
            "torch one-shot": lambda theirs=theirs: operators.one_shot_all_reduce(theirs, "sum", name),
        }
        if nbytes > 1 << 20:
            del variants["torch one-shot"]
        for value in (x, theirs, plain):
            value.copy_(start)
        group.dist.barrier()
        variants["weft"]()
        variants["NCCL"]()
        group.torch.testing.assert_close(x, plain, rtol=0.02, atol=0.02)
        rounds = 5 if quick else 30
        # Sums of sums grow without bound; zeros stay zeros, and take as long.
        for value in (x, theirs, plain):
            value.zero_()
        eager = group.measure(variants, rounds, 10)
        replayed = group.measure({key: group.graph(call) for key, call in variants.items()}, rounds, 3, IN_GRAPH)
        for how, found in (("eager", eager), ("replayed", replayed)):
            ours = found.pop("weft")
            lines.append(Line(f"all-reduce {nbytes >> 10} KiB, {how}", ours, "us", found, GOALS.get((how, nbytes), ())))
    return lines


def gather_and_multiply(group: Group, quick: bool) -> list[Line]:
    """All-gather of the rows of A, and A @ B."""
    import weft
    from weft.kernels import distributed, matmul

    lines: list[Line] = []
    name = group.dist.group.WORLD.group_name
    for (rows, n, k), goal in PRODUCTS.items():
        m = rows // group.size
        a, shard = _symmetric(group, group.size, m, k), _symmetric(group, m, k)
        shard.copy_(group.torch.randn(m, k, device="cuda").bfloat16())
        b = group.torch.randn(k, n, device="cuda").bfloat16()
        out, whole = (group.torch.empty(rows, n, device="cuda", dtype=shard.dtype) for _ in range(2))
        gathered = group.torch.empty(rows, k, device="cuda", dtype=shard.dtype)
        a[group.rank].copy_(shard)
        shared = weft.Symmetric(a)

        def serial(gathered: Any = gathered, shard: Any = shard, whole: Any = whole, b: Any = b) -> None:
            group.dist.all_gather_into_tensor(gathered, shard)
            group.torch.matmul(gathered, b, out=whole)

        variants: dict[str, Call] = {
            "weft": lambda shared=shared, b=b, out=out: distributed.all_gather_matmul(shared, b, out),
            "NCCL, then cuBLAS": serial,
            "torch symm_mem": lambda shard=shard, b=b: group.torch.ops.symm_mem.fused_all_gather_matmul(
                shard, [b], gather_dim=0, group_name=name
            ),
            "weft's matmul alone": lambda gathered=gathered, b=b: matmul(gathered, b),
        }
        group.torch.cuda.synchronize()
        group.dist.barrier()
        variants["weft"]()
        serial()
        group.torch.testing.assert_close(out, whole, rtol=0.02, atol=0.5)
        found = group.measure(variants, 3 if quick else 15, 5)
        ours = found.pop("weft")
        lines.append(Line(f"all-gather + matmul {rows}x{n}x{k}", ours, "us", found, (Goal(goal, ceiling=True),)))
    return lines


PARTS = {"all_reduce": all_reduce, "all_gather_matmul": gather_and_multiply}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all parts on this rank; rank 0 prints and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds")
    parser.add_argument("--out", type=Path, help="the folder of the results")
    given = parser.parse_args(argv)
    if "LOCAL_RANK" not in os.environ:
        parser.error("run it under torchrun: torchrun --nproc-per-node 2 benchmarks/distributed.py")
    from benchmarks import report

    group = Group()
    facts = report.about()
    folder = given.out or ROOT / "benchmarks" / "results" / report.folder_of(facts["device"])
    for label, part in PARTS.items():
        lines = part(group, given.quick)
        if group.rank == 0:
            report.show(TITLE, lines)
            report.save(folder, f"distributed-{label}", TITLE, lines, facts)
    group.dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
