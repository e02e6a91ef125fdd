"""Kernels between several GPUs of one host, against NCCL and PyTorch's symmetric-memory operators in the same run.

    torchrun --nproc-per-node 2 benchmarks/distributed.py [--quick] [--out FOLDER] [--part NAME ...]
    python benchmarks/distributed.py --rehearse

Times are medians over rounds in which the variants take turns, each 5 ms of calls in a row between a barrier and a
synchronisation, of the slowest rank. "eager" is a call from Python, "replayed" a captured graph of several calls divided by
their number. weft's result is compared with a reference before anything is timed. Rank 0 prints and records the tables.
`--rehearse` runs all parts with two ranks on one GPU, small, without peers and records: it shows that they run, and its times
say nothing.
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

TITLE = "Kernels between several GPUs (us; medians of the slowest rank)"
NEEDS_GPU = True
IN_GRAPH = 20
"""Calls in a captured graph."""
SIZES = (8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20)
GOALS: dict[tuple[str, int], tuple[Goal, ...]] = {
    **{("eager", size): (Goal(8.0, ceiling=True),) for size in SIZES[:3]},
    **{("replayed", size): (Goal(0.7, "torch symm_mem", ceiling=True),) for size in SIZES[:3]},
    ("eager", 4 << 20): (Goal(20.0, ceiling=True),), ("eager", 64 << 20): (Goal(200.0, ceiling=True),),
}  # fmt: skip
GATHERED = {(8192, 8192, 8192): 800.0, (8192, 3584, 8192): 400.0}
"""M, N and K of all-gather and matmul, with the goal: every rank has M / ranks rows of A, and N / ranks columns of B."""
SUMMED = {(8192, 8192, 8192): 870.0}
"""M, N and K of matmul and reduce-scatter, with the goal: every rank has K / ranks columns of A and rows of B."""
EXPERTS = {(4096, 4096, 8, 1): 80.0, (4096, 4096, 8, 2): None, (128, 7168, 256, 8): 35.0}
"""Tokens of a rank, width, experts of all ranks, and experts of a token, with the goal of the dispatch."""
COPIED = 64 << 20

Call = Callable[[], Any]


class Group:
    """This process among the ranks: its GPU, and times that all ranks agree on."""

    peers = True
    """Whether NCCL and PyTorch's operators can be compared with."""
    graphs = True
    block = 5000.0
    """Microseconds of the calls that are timed together. Behind a barrier one rank's host begins up to 100 us after another's,
    and a queue of calls has to form: in 10 calls of 20 us that would be most of the time."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.name = dist.group.WORLD.group_name
        import torch.distributed._symmetric_memory as symm_mem

        self.lined = symm_mem.rendezvous(self.symmetric(1), self.name)

    def symmetric(self, *shape: int, dtype: Any = None) -> Any:
        """A symmetric tensor."""
        import torch.distributed._symmetric_memory as symm_mem

        made = symm_mem.empty(shape, dtype=dtype or self.torch.bfloat16, device="cuda")
        symm_mem.rendezvous(made, self.name)
        return made

    def barrier(self) -> None:
        """Wait for all ranks and their GPUs."""
        self.torch.cuda.synchronize()
        self.dist.barrier()
        self.torch.cuda.synchronize()

    def slowest(self, microseconds: float) -> float:
        """The largest of all ranks' times."""
        found = self.torch.tensor([microseconds], device="cuda", dtype=self.torch.float64)
        self.dist.all_reduce(found, self.dist.ReduceOp.MAX)
        return float(found.item())

    def line_up(self) -> None:
        """Let the streams of all ranks go on from here at the same time: hosts leave a barrier up to 100 us apart, which would
        count as time of the calls behind it."""
        self.lined.barrier()

    def once(self, call: Call, calls: int) -> float:
        """Microseconds of one call, of several in a row behind a barrier."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.barrier()
        self.line_up()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
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

    def measure(self, variants: dict[str, Call], rounds: int, share: int = 1) -> dict[str, float]:
        """The median time of each variant, in microseconds; `share` calls are one."""
        times: dict[str, list[float]] = {name: [] for name in variants}
        calls: dict[str, int] = {}
        for name, call in variants.items():
            self.once(call, 3)
            calls[name] = max(int(self.block / self.once(call, 3)), 3)
        for _ in range(rounds):
            for name, call in variants.items():
                times[name].append(self.once(call, calls[name]) / share)
        return {name: median(found) for name, found in times.items()}

    def timed(self, variants: dict[str, Call], rounds: int) -> dict[str, dict[str, float]]:
        """The times of each variant, eager and replayed."""
        found = {"eager": self.measure(variants, rounds)}
        if self.graphs:
            replayed = {name: self.graph(call) for name, call in variants.items()}
            found["replayed"] = self.measure(replayed, rounds, IN_GRAPH)
        return found

    def randn(self, *shape: int) -> Any:
        """Normal numbers of bfloat16, others on each rank."""
        return self.torch.randn(shape, device="cuda").bfloat16()

    def gathered(self, x: Any) -> list[Any]:
        """x of every rank."""
        found = self.torch.empty((self.size, *x.shape), dtype=x.dtype, device="cuda")
        self.dist.all_gather_into_tensor(found, x.contiguous())
        return list(found)


class OnOneGpu(Group):
    """A rank of two on one GPU, for rehearsals."""

    peers = False
    graphs = False
    block = 0.0

    def __init__(self, rank: int, shelf: dict[int, Any]) -> None:
        import torch

        self.torch, self.rank, self.size, self.name, self.shelf = torch, rank, 2, "", shelf

    def symmetric(self, *shape: int, dtype: Any = None) -> Any:
        """A symmetric tensor."""
        import weft

        return weft.distributed.empty(shape, dtype or self.torch.bfloat16)

    def barrier(self) -> None:
        """Wait for both ranks."""
        import weft

        weft.distributed.barrier()

    def line_up(self) -> None:
        """Ranks of one GPU are compared with nothing."""

    def slowest(self, microseconds: float) -> float:
        """The own time."""
        return microseconds

    def gathered(self, x: Any) -> list[Any]:
        """x of both ranks."""
        self.shelf[self.rank] = x
        self.barrier()
        found = [self.shelf[rank] for rank in range(self.size)]
        self.barrier()
        return found


def _rounds(quick: bool, many: int) -> int:
    return 3 if quick else many


def _check(group: Group, call: Call, wanted: Any, found: Any, atol: float) -> None:
    """Compare weft's result with a reference in float32."""
    group.barrier()
    call()
    group.torch.testing.assert_close(found().float(), wanted.float(), rtol=0.03, atol=atol)


def all_reduce(group: Group, quick: bool) -> list[Line]:
    """All-reduce of bfloat16 by size, eager and replayed."""
    import weft
    from weft.kernels import distributed

    lines: list[Line] = []
    operators = group.torch.ops.symm_mem
    for nbytes in SIZES[:3] if quick else SIZES:
        x, theirs = (group.symmetric(nbytes // 2) for _ in range(2))
        plain, shared = group.torch.empty_like(x), weft.Symmetric(x)
        start = group.randn(nbytes // 2)
        variants: dict[str, Call] = {"weft": lambda shared=shared: distributed.all_reduce(shared)}
        if group.peers:
            variants["NCCL"] = lambda plain=plain: group.dist.all_reduce(plain)
            variants["torch symm_mem"] = lambda theirs=theirs: operators.two_shot_all_reduce_(theirs, "sum", group.name)
            if nbytes <= 1 << 20:
                variants["torch one-shot"] = lambda theirs=theirs: operators.one_shot_all_reduce(
                    theirs, "sum", group.name
                )
        x.copy_(start)
        wanted = sum(each.float() for each in group.gathered(start))
        _check(group, variants["weft"], wanted, lambda x=x: x, 0.05)
        # Sums of sums grow without bound; zeros stay zeros, and take as long.
        for value in (x, theirs, plain):
            value.zero_()
        for how, found in group.timed(variants, _rounds(quick, 30)).items():
            ours = found.pop("weft")
            lines.append(Line(f"all-reduce {nbytes >> 10} KiB, {how}", ours, "us", found, GOALS.get((how, nbytes), ())))
    return lines


def peer_copy(group: Group, quick: bool) -> list[Line]:
    """64 MiB from each rank to the next, in both directions at once."""
    import weft
    from weft.kernels import distributed

    nbytes = COPIED >> (6 if quick else 0)
    x, out = group.randn(nbytes // 2), group.symmetric(group.size, nbytes // 2)
    shared = weft.Symmetric(out)
    row = weft.Symmetric(out[group.rank])
    after = (group.rank + 1) % group.size
    variants: dict[str, Call] = {
        "weft": lambda: weft.distributed.copy(row, after, x), "all_gather": lambda: distributed.all_gather(x, shared)
    }  # fmt: skip
    _check(group, variants["all_gather"], group.gathered(x)[group.size - 1], lambda: out[group.size - 1], 0)
    if group.peers:
        import torch.distributed._symmetric_memory as symm_mem

        target = symm_mem.rendezvous(out, group.name).get_buffer(after, out.shape, out.dtype)[group.rank]
        variants["cudaMemcpyPeerAsync"] = lambda: target.copy_(x)
    found = group.measure(variants, _rounds(quick, 30))
    ours = found.pop("weft")
    goals = (Goal(1 / 0.98, "cudaMemcpyPeerAsync", ceiling=True),)
    what = f"copy {nbytes >> 20} MiB to the next rank"
    return [Line(what, ours, "us", found, goals if group.peers else ())]


def gather_and_multiply(group: Group, quick: bool) -> list[Line]:
    """All-gather of the rows of A, and A @ B."""
    import weft
    from weft.kernels import MatmulConfig, distributed, matmul

    lines: list[Line] = []
    for shape, goal in GATHERED.items():
        rows, columns, k = (size >> 3 for size in shape) if quick else shape
        m, n = rows // group.size, columns // group.size
        shard, b, a = group.randn(m, k), group.randn(k, n), group.symmetric(group.size, m, k)
        out = group.torch.empty(rows, n, device="cuda", dtype=shard.dtype)
        a[group.rank].copy_(shard)
        shared, whole = weft.Symmetric(a), group.torch.cat(group.gathered(shard))
        config = None if group.peers else MatmulConfig(programs=60)
        variants: dict[str, Call] = {
            "weft": lambda shared=shared, b=b, out=out, config=config: distributed.all_gather_matmul(
                shared, b, out, config=config
            )
        }
        _check(group, variants["weft"], whole.float() @ b.float(), lambda out=out: out, 1.5)
        if group.peers:
            space = group.torch.empty_like(whole)

            def serial(space: Any = space, shard: Any = shard, b: Any = b) -> None:
                group.dist.all_gather_into_tensor(space, shard)
                group.torch.matmul(space, b)

            variants["NCCL, then cuBLAS"] = serial
            variants["torch symm_mem"] = lambda shard=shard, b=b: group.torch.ops.symm_mem.fused_all_gather_matmul(
                shard, [b], gather_dim=0, group_name=group.name
            )
        variants["weft's matmul alone"] = lambda whole=whole, b=b: matmul(whole, b)
        found = group.measure(variants, _rounds(quick, 15))
        ours = found.pop("weft")
        lines.append(Line(f"all-gather + matmul {rows}x{columns}x{k}", ours, "us", found, (Goal(goal, ceiling=True),)))
    return lines


def multiply_and_add(group: Group, quick: bool) -> list[Line]:
    """A @ B with reduce-scatter, and with all-reduce."""
    import weft
    from weft.kernels import MatmulConfig, distributed, matmul

    lines: list[Line] = []
    for shape, goal in SUMMED.items():
        rows, n, whole_k = (size >> 3 for size in shape) if quick else shape
        k, m = whole_k // group.size, rows // group.size
        a, b = group.randn(rows, k), group.randn(k, n)
        config = None if group.peers else MatmulConfig(programs=60)
        elements = distributed.work_elements(rows, n, group.size)
        work, every = weft.Symmetric(group.symmetric(elements)), weft.Symmetric(group.symmetric(rows, n))
        out = group.torch.empty(m, n, device="cuda", dtype=a.dtype)
        total = sum(x.float() @ y.float() for x, y in zip(group.gathered(a), group.gathered(b), strict=True))

        def scattered(a: Any = a, b: Any = b, work: Any = work, out: Any = out, config: Any = config) -> Any:
            return distributed.matmul_reduce_scatter(a, b, work, out, config=config)

        def reduced(a: Any = a, b: Any = b, work: Any = work, every: Any = every, config: Any = config) -> Any:
            return distributed.matmul_all_reduce(a, b, work, every, config=config)

        _check(group, scattered, total[group.rank * m : group.rank * m + m], lambda out=out: out, 2.0)
        _check(group, reduced, total, lambda every=every: every.tensor, 2.0)
        alone: dict[str, Call] = {"weft's matmul alone": lambda a=a, b=b: matmul(a, b)}
        both = {"reduce-scatter": (scattered, goal, dict(alone)), "all-reduce": (reduced, None, dict(alone))}
        if group.peers:
            product, space = group.torch.empty(rows, n, device="cuda", dtype=a.dtype), group.torch.empty_like(out)

            def serial(a: Any = a, b: Any = b, product: Any = product, space: Any = space) -> None:
                group.torch.matmul(a, b, out=product)
                group.dist.reduce_scatter_tensor(space, product)

            def serial_reduced(a: Any = a, b: Any = b, product: Any = product) -> None:
                group.torch.matmul(a, b, out=product)
                group.dist.all_reduce(product)

            both["reduce-scatter"][2]["cuBLAS, then NCCL"] = serial
            both["reduce-scatter"][2]["torch symm_mem"] = lambda a=a, b=b: (
                group.torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", scatter_dim=0, group_name=group.name)
            )
            both["all-reduce"][2]["cuBLAS, then NCCL"] = serial_reduced
        for name, (call, limit, others) in both.items():
            found = group.measure({"weft": call, **others}, _rounds(quick, 15))
            ours = found.pop("weft")
            goals = () if limit is None else (Goal(limit, ceiling=True),)
            lines.append(Line(f"matmul + {name} {rows}x{n}x{whole_k}", ours, "us", found, goals))
    return lines


def dispatch(group: Group, quick: bool) -> list[Line]:
    """Tokens to their experts, and back."""
    import weft
    from weft.kernels import distributed

    lines: list[Line] = []
    for (tokens, width, experts, slots), goal in EXPERTS.items():
        count = tokens >> 4 if quick else tokens
        x = group.randn(count, width)
        scores = group.torch.rand(count, experts, device="cuda")
        ids = scores.topk(slots).indices.int()
        weights = group.torch.rand(count, slots, device="cuda")
        # Room for twice the average.
        capacity = min(2 * count * slots, group.size * count * slots)
        rows, counts = group.symmetric(capacity, width), group.symmetric(group.size, experts, dtype=group.torch.int32)
        sent, table = weft.Symmetric(rows), weft.Symmetric(counts)
        programs = 128 if group.peers else 30

        def forth(
            x: Any = x,
            ids: Any = ids,
            sent: Any = sent,
            table: Any = table,
            experts: int = experts,
            programs: int = programs,
        ) -> Any:
            return distributed.dispatch(x, ids, experts, sent, table, programs=programs)

        group.barrier()
        places = forth().places

        def returned(
            sent: Any = sent, ids: Any = ids, places: Any = places, weights: Any = weights, experts: int = experts,
            programs: int = programs,
        ) -> Any:  # fmt: skip
            return distributed.combine(sent, ids, places, weights, experts, programs=programs)

        wanted = x.float() * (weights * (places >= 0)).sum(-1, keepdim=True)
        group.barrier()
        group.torch.testing.assert_close(returned().float(), wanted, rtol=0.03, atol=0.05)
        what = f"{count} tokens of {width}, {experts} experts, top {slots}"
        goals = () if goal is None else (Goal(goal, ceiling=True),)
        for how, found in group.timed({"dispatch": forth, "combine": returned}, _rounds(quick, 20)).items():
            lines.append(Line(f"dispatch {what}, {how}", found["dispatch"], "us", {}, goals))
            lines.append(Line(f"combine {what}, {how}", found["combine"], "us", {}))
    return lines


PARTS = {
    "all_reduce": all_reduce, "peer_copy": peer_copy, "all_gather_matmul": gather_and_multiply,
    "matmul_sums": multiply_and_add, "dispatch": dispatch,
}  # fmt: skip


def rehearse(parts: Sequence[str]) -> None:
    """Run parts with two ranks on one GPU."""
    import weft
    from benchmarks import report

    for name in parts:
        shelf: dict[int, Any] = {}
        lines = weft.distributed.on_one_gpu(
            lambda rank, name=name, shelf=shelf: PARTS[name](OnOneGpu(rank, shelf), True)
        )[0]
        report.show(f"{TITLE}: rehearsal of {name} on one GPU", lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all parts on this rank; rank 0 prints and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--rehearse", action="store_true", help="two ranks on one GPU, to see that everything runs")
    parser.add_argument("--part", action="append", choices=sorted(PARTS), help="one part; all by default")
    parser.add_argument("--out", type=Path, help="the folder of the results")
    given = parser.parse_args(argv)
    parts = given.part or list(PARTS)
    if given.rehearse:
        rehearse(parts)
        return 0
    if "LOCAL_RANK" not in os.environ:
        parser.error("run it under torchrun: torchrun --nproc-per-node 2 benchmarks/distributed.py")
    from benchmarks import report

    group = Group()
    facts = report.about()
    folder = given.out or ROOT / "benchmarks" / "results" / report.folder_of(facts["device"])
    for label in parts:
        lines = PARTS[label](group, given.quick)
        if group.rank == 0:
            report.show(TITLE, lines)
            report.save(folder, f"distributed-{label}", TITLE, lines, facts)
    group.dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
