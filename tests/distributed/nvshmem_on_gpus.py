"""What `test_ranks_gpu.py` runs in every process of `torchrun` on two or more GPUs with NVSHMEM: puts and signals, eager and
replayed from a captured graph, and the collective kernels on memory of NVSHMEM. Each step is printed before it runs.

    torchrun --nproc-per-node 2 tests/distributed/nvshmem_on_gpus.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch  # noqa: TID253 - a script for processes with PyTorch
import torch.distributed as dist  # noqa: TID253
import torch.distributed._symmetric_memory as symm_mem  # noqa: TID253

import weft
from weft import language as gl
from weft.kernels import distributed
from weft.runtime import nvshmem

LINE = gl.BlockedLayout([4], [32], [4], [0])
RANKS = gl.BlockedLayout([1], [32], [4], [0])
FLAGS = 1024
"""The first of the flags that say that a target may be overwritten."""


@weft.jit
def put_on(x: gl.symmetric, y: gl.symmetric, n: int, size: int, begin: int, FLAGS: gl.constexpr):
    """Put `n` elements of `x`, from `begin` on, to the next rank's `y`: `size` of them by each program."""
    after, before = (x.rank + 1) % x.world_size, (x.rank + x.world_size - 1) % x.world_size
    number = gl.program_id(0)
    first = number * size
    gl.signal(y, before, FLAGS + number)  # my y may be overwritten
    gl.wait_signal(y, after, FLAGS + number)
    gl.put(y, after, x.local + begin + first, gl.minimum(size, n - first), begin + first)
    gl.signal(y, after, number)
    gl.wait_signal(y, before, number)
    gl.quiet(x)


@weft.jit
def rounds(x: gl.symmetric, y: gl.symmetric, steps: int, layout: gl.constexpr):
    """Overwrite the source of each put behind a quiet: step i puts i + rank to part i of the next rank's `y`."""
    after, before = (x.rank + 1) % x.world_size, (x.rank + x.world_size - 1) % x.world_size
    at = gl.arange(0, 512, layout)
    for step in range(steps):
        gl.store(x.local + at, gl.to_tensor(step + x.rank).to(gl.float32) + gl.zeros([512], gl.float32, layout))
        gl.put(y, after, x.local, 512, step * 512)
        gl.quiet(x)
    gl.signal(y, after)
    gl.wait_signal(y, before)


@weft.jit
def to_all(x: gl.symmetric, y: gl.symmetric, layout: gl.constexpr):
    """Every rank puts 512 elements to each rank, itself too, and signals all of them at once."""
    every = gl.arange(0, x.world_size, layout)
    gl.signal(y, every, 1)
    gl.wait_signal(y, every, 1)
    for rank in gl.static_range(x.world_size):
        gl.put(y, rank, x.local + rank * 512, 512, x.rank * 512)
    gl.signal(y, every)
    gl.wait_signal(y, every)
    gl.quiet(x)


def say(text: str) -> None:
    print(f"[rank {os.environ.get('RANK', '?')}] {text}", flush=True)


def meet() -> None:
    torch.cuda.synchronize()
    dist.barrier()


def symmetric(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return symm_mem.empty(shape, dtype=dtype, device="cuda")


def values(rank: int, n: int, launch: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + launch)
    if dtype == torch.uint8:
        return torch.randint(0, 255, (n,), generator=generator, dtype=dtype).cuda()
    return torch.randn(n, generator=generator).to(dtype).cuda()


def check_puts(rank: int, ranks: int) -> None:
    before = (rank - 1) % ranks
    for dtype, n, block, begin in (
        (torch.float32, 512, 512, 0), (torch.float32, 1, 1, 0), (torch.float32, 5000, 1024, 0),
        (torch.float32, 5001, 512, 3), (torch.bfloat16, 1 << 20, 1 << 14, 0), (torch.uint8, 1003, 97, 5),
    ):  # fmt: skip
        say(f"puts of {n} {dtype} from {begin} on, in blocks of {block}")
        x, y = symmetric(n + begin, dtype=dtype), symmetric(n + begin, dtype=dtype)
        shared = weft.Symmetric(x), weft.Symmetric(y)
        for launch in range(10):
            x.copy_(values(rank, n + begin, launch, dtype))
            y.fill_(255 if dtype == torch.uint8 else float("nan"))
            put_on[-(-n // block)](*shared, n, block, begin, FLAGS)
            wanted = values(before, n + begin, launch, dtype)
            torch.testing.assert_close(y[begin:], wanted[begin:], rtol=0, atol=0)
            assert (y[:begin] == 255).all() if dtype == torch.uint8 else y[:begin].isnan().all()


def check_graph(rank: int, ranks: int) -> None:
    say("puts replayed from a graph")
    n = 1 << 16
    x, y, start = symmetric(n), symmetric(n), torch.empty(n, device="cuda")
    shared = weft.Symmetric(x), weft.Symmetric(y)
    put_on[16](*shared, n, n // 16, 0, FLAGS)
    meet()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        x.copy_(start)
        y.fill_(float("nan"))
        put_on[16](*shared, n, n // 16, 0, FLAGS)
    for launch in range(20):
        start.copy_(values(rank, n, launch, torch.float32))
        graph.replay()
        torch.testing.assert_close(y, values((rank - 1) % ranks, n, launch, torch.float32), rtol=0, atol=0)


def check_quiet(rank: int, ranks: int) -> None:
    say("sources that are overwritten behind a quiet")
    x, y = symmetric(512), symmetric(64, 512)
    shared = weft.Symmetric(x), weft.Symmetric(y)
    for _ in range(5):
        y.fill_(float("nan"))
        meet()
        rounds[1](*shared, 64, LINE)
        wanted = torch.arange(64, device="cuda")[:, None] + (rank - 1) % ranks
        torch.testing.assert_close(y, wanted.float().expand(64, 512).contiguous(), rtol=0, atol=0)
        meet()


def check_all(rank: int, ranks: int) -> None:
    say("puts from all ranks to all")
    x, y = symmetric(ranks * 512), symmetric(ranks, 512)
    shared = weft.Symmetric(x), weft.Symmetric(y)
    for launch in range(10):
        x.copy_(values(rank, ranks * 512, launch, torch.float32))
        y.fill_(float("nan"))
        to_all[1](*shared, RANKS)
        each = [values(r, ranks * 512, launch, torch.float32).view(ranks, 512)[rank] for r in range(ranks)]
        torch.testing.assert_close(y, torch.stack(each), rtol=0, atol=0)


def check_collectives(rank: int, ranks: int) -> None:
    for method, n in (("one_shot", 5000), ("two_shot", 1 << 20), ("pushed", 5000), (None, 5000)):
        say(f"all_reduce by {method} of {n} elements in memory of NVSHMEM")
        x = symmetric(n, dtype=torch.bfloat16)
        shared = weft.Symmetric(x)
        for launch in range(5):
            x.copy_(values(rank, n, launch, torch.bfloat16))
            distributed.all_reduce(shared, method=method)  # pyright: ignore[reportArgumentType]
            wanted = values(0, n, launch, torch.bfloat16).float()
            for other in range(1, ranks):
                wanted = wanted + values(other, n, launch, torch.bfloat16).float()
            torch.testing.assert_close(x, wanted.bfloat16(), rtol=0, atol=0)


def measure(rank: int) -> None:
    n = 1 << 24
    x, y = symmetric(n), symmetric(n)
    shared = weft.Symmetric(x), weft.Symmetric(y)
    for programs in (1, 16, 64):
        times: list[float] = []
        for _ in range(12):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            meet()
            start.record()
            put_on[programs](*shared, n, n // programs, 0, FLAGS)
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        median = sorted(times)[len(times) // 2]
        rate = n * 4 / median / 1e6
        say(f"64 MiB to the next rank by {programs} programs: {median * 1e3:.0f} us, {rate:.0f} GB/s each way")


def describe(tensor: torch.Tensor, shared: Any) -> None:
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD.group_name)  # pyright: ignore[reportOptionalMemberAccess]
    say(f"buffer_ptrs {[hex(pointer) for pointer in handle.buffer_ptrs]}, own {hex(tensor.data_ptr())}")
    group = shared.group
    say(f"PEs {group.pes()}, reached by pointers: {group.peers(tensor, 0) is not None}, pads {group.pads()}")


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    say(
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}, weft {weft.__version__}"
    )
    say(f"NVSHMEM available: {symm_mem.is_nvshmem_available()}; the wheel: {nvshmem.installed()}")
    say(str({name: value for name, value in os.environ.items() if name.startswith(("NVSHMEM", "TORCH_SYMM", "NCCL"))}))
    symm_mem.set_backend("NVSHMEM")
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    symm_mem.enable_symm_mem_for_group(dist.group.WORLD.group_name)  # pyright: ignore[reportOptionalMemberAccess]
    say(f"backend {symm_mem.get_backend(torch.device('cuda'))}; the first allocation initialises NVSHMEM")
    first = symmetric(512)
    say("weft.Symmetric, which allocates the pads")
    describe(first, weft.Symmetric(first))
    check_puts(rank, ranks)
    check_quiet(rank, ranks)
    check_all(rank, ranks)
    check_graph(rank, ranks)
    check_collectives(rank, ranks)
    measure(rank)
    meet()
    say(f"rank {rank} of {ranks} agrees on NVSHMEM")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
