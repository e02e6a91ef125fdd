"""What `test_ranks_gpu.py` runs in every process of `torchrun`: the collective kernels against sums in the order of the ranks,
eager and replayed from a captured graph.

    torchrun --nproc-per-node 2 tests/distributed/on_gpus.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch  # noqa: TID253 - a script for processes with PyTorch
import torch.distributed as dist  # noqa: TID253
import torch.distributed._symmetric_memory as symm_mem  # noqa: TID253

import weft
from weft.kernels import distributed


def symmetric(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return symm_mem.empty(shape, dtype=dtype, device="cuda")


def values(rank: int, shape: tuple[int, ...], launch: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + launch)
    return torch.randn(shape, generator=generator).bfloat16().cuda()


def total(ranks: int, shape: tuple[int, ...], launch: int = 0) -> torch.Tensor:
    """The sum in the order of the ranks, in float32, rounded once."""
    sums = values(0, shape, launch).float()
    for rank in range(1, ranks):
        sums = sums + values(rank, shape, launch).float()
    return sums.bfloat16()


def check_all_reduce(rank: int, ranks: int) -> None:
    cases = (
        ("one_shot", 1), ("one_shot", 5000), ("pushed", 2), ("pushed", 5000), ("pushed", 1 << 17), ("pushed", 1000),
        ("pushed", 1 << 18), ("pushed", 1_000_001), ("pushed", 3 << 24), ("two_shot", 5000), ("two_shot", 1 << 20),
        (None, 1 << 22),
    )  # fmt: skip
    for method, n in cases:
        x = symmetric(n)
        shared = weft.Symmetric(x)
        for launch in range(20):
            x.copy_(values(rank, (n,), launch))
            distributed.all_reduce(shared, method=method)  # pyright: ignore[reportArgumentType]
            torch.testing.assert_close(x, total(ranks, (n,), launch), rtol=0, atol=0)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        start = values(rank, (n,), 99)
        with torch.cuda.graph(graph, stream=stream):
            x.copy_(start)
            distributed.all_reduce(shared, method=method)  # pyright: ignore[reportArgumentType]
        for _ in range(20):
            graph.replay()
        torch.testing.assert_close(x, total(ranks, (n,), 99), rtol=0, atol=0)


def check_gather_and_scatter(rank: int, ranks: int) -> None:
    shape = (33, 1001)
    out = symmetric(ranks, *shape)
    shared = weft.Symmetric(out)
    for launch in range(20):
        out.fill_(float("nan"))
        torch.cuda.synchronize()
        dist.barrier()
        distributed.all_gather(values(rank, shape, launch), shared)
        for other in range(ranks):
            torch.testing.assert_close(out[other], values(other, shape, launch), rtol=0, atol=0)
        part = distributed.reduce_scatter(shared)
        wanted = (values(rank, shape, launch).float() * ranks).bfloat16()
        torch.testing.assert_close(part, wanted, rtol=0.01, atol=0.01)


def check_all_gather_matmul(rank: int, ranks: int) -> None:
    for m, n, k in ((128, 136, 72), (1024, 1024, 512)):
        a, b = symmetric(ranks, m, k), values(7, (k, n))
        shared = weft.Symmetric(a)
        kept = torch.empty(ranks * m, n, dtype=torch.bfloat16, device="cuda")
        for launch in range(5):
            a[rank].copy_(values(rank, (m, k), launch))
            # With an output of its own a call is prepared, and its third and later launches are repeated.
            out = distributed.all_gather_matmul(shared, b, kept if launch else None)
            whole = torch.cat([values(other, (m, k), launch) for other in range(ranks)])
            torch.testing.assert_close(out.float(), whole.float() @ b.float(), rtol=0.02, atol=0.1)


def check_matmul_sums(rank: int, ranks: int) -> None:
    m, n, k = 1024, 1032, 512
    work = weft.Symmetric(symmetric(distributed.work_elements(ranks * m, n, ranks)))
    every, part = weft.Symmetric(symmetric(ranks * m, n)), torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    a, b = values(rank, (ranks * m, k)), values(rank + 50, (k, n))
    for launch in range(5):
        a.copy_(values(rank, (ranks * m, k), launch))
        part.fill_(float("nan"))
        parts = [values(r, (ranks * m, k), launch).float() @ values(r + 50, (k, n)).float() for r in range(ranks)]
        wanted, most = sum(parts), 2**-7 * sum(each.abs() for each in parts) + 0.01
        distributed.matmul_reduce_scatter(a, b, work, part)
        whole = distributed.matmul_all_reduce(a, b, work, every)
        assert ((whole.float() - wanted).abs() <= most).all()
        assert ((part.float() - wanted[rank * m : rank * m + m]).abs() <= most[rank * m : rank * m + m]).all()


def routed(rank: int, launch: int, experts: int, slots: int) -> torch.Tensor:
    """The experts of each token of a rank. Ranks have different numbers of tokens, and in some launches none."""
    tokens = (0, 16, 37, 1000, 129)[(launch + 2 * rank) % 5]
    generator = torch.Generator().manual_seed(10_000 + 100 * rank + launch)
    return torch.rand(tokens, experts, generator=generator).topk(slots).indices.cuda()


def check_dispatch(rank: int, ranks: int) -> None:
    experts, slots, width = 4 * ranks, 3, 264
    each = experts // ranks
    rows, counts = symmetric(ranks * 1000 * slots, width), symmetric(ranks, experts, dtype=torch.int32)
    shared = weft.Symmetric(rows), weft.Symmetric(counts)
    for launch in range(10):
        ids = [routed(other, launch, experts, slots) for other in range(ranks)]
        given = [values(other, (len(each_ids), width), launch) for other, each_ids in enumerate(ids)]
        weights = torch.rand(ids[rank].shape, generator=torch.Generator().manual_seed(launch)).cuda()
        rows.fill_(float("nan"))
        torch.cuda.synchronize()
        dist.barrier()
        offsets, places = distributed.dispatch(given[rank], ids[rank], experts, *shared)
        wanted: list[torch.Tensor] = []
        for expert in range(rank * each, rank * each + each):
            wanted += [given[other][(ids[other] == expert).nonzero()[:, 0]] for other in range(ranks)]
        total = sum(map(len, wanted))
        assert int(offsets[-1]) == total
        torch.testing.assert_close(rows[:total], torch.cat(wanted), rtol=0, atol=0)
        assert rows[total:].isnan().all()
        out = distributed.combine(shared[0], ids[rank], places, weights, experts)
        sums = given[rank].float() * weights.sum(1, keepdim=True)
        torch.testing.assert_close(out.float(), sums, rtol=0.01, atol=0.02)


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    check_all_reduce(rank, ranks)
    check_gather_and_scatter(rank, ranks)
    check_dispatch(rank, ranks)
    if torch.cuda.get_device_capability()[0] == 9:
        check_all_gather_matmul(rank, ranks)
        check_matmul_sums(rank, ranks)
    torch.cuda.synchronize()
    dist.barrier()
    print(f"rank {rank} of {ranks} agrees")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
