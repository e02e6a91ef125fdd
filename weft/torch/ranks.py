"""Operators between ranks: `weft.kernels.distributed` on ordinary tensors.

Kernels need symmetric memory on every rank. An operator keeps a room of it for each use, shape and group, copies its operands
there and its results out of it, so that callers see ordinary tensors: two copies within the GPU's own memory. Rooms are made at
the first call, on all ranks together; call an operator once before a graph is captured. `group` is the name of a process group,
"" that of all ranks; in `weft.distributed.simulate` and `on_one_gpu` there is only the group of all ranks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.distributed import Symmetric
from weft.distributed.current import current
from weft.kernels import distributed
from weft.kernels.distributed.rooms import room_for
from weft.torch.operators import operator

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::all_reduce")
def all_reduce(x: Tensor, group: str = "") -> Tensor:
    """`weft.kernels.distributed.all_reduce` as an operator: the sum over all ranks, a new tensor."""
    room = _filled("all_reduce", x, group)
    return distributed.all_reduce(room).clone()


@all_reduce.register_fake
def _(x: Tensor, group: str = "") -> Tensor:
    return x.new_empty(x.shape)


@operator("weft::all_gather")
def all_gather(x: Tensor, group: str = "") -> Tensor:
    """`weft.kernels.distributed.all_gather` as an operator: [world_size, *x.shape]."""
    room = room_for("all_gather", (world_size(group), *x.shape), x.dtype, x, group)
    return distributed.all_gather(x.contiguous(), room).clone()


@all_gather.register_fake
def _(x: Tensor, group: str = "") -> Tensor:
    return x.new_empty((world_size(group), *x.shape))


@operator("weft::reduce_scatter")
def reduce_scatter(x: Tensor, group: str = "") -> Tensor:
    """`weft.kernels.distributed.reduce_scatter` as an operator, of x [world_size, ...]."""
    return distributed.reduce_scatter(_filled("reduce_scatter", x, group), x.new_empty(x.shape[1:]))


@reduce_scatter.register_fake
def _(x: Tensor, group: str = "") -> Tensor:
    return x.new_empty(x.shape[1:])


@operator("weft::all_reduce_rms_norm")
def all_reduce_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, group: str = ""
) -> tuple[Tensor, Tensor]:
    """`weft.kernels.distributed.all_reduce_rms_norm` as an operator: the normalised rows, and the new residual."""
    total, out = residual.clone(), x.new_empty(x.shape)
    distributed.all_reduce_rms_norm(_filled("all_reduce_rms_norm", x, group), total, weight, out, eps=eps)
    return out, total


@all_reduce_rms_norm.register_fake
def _(x: Tensor, residual: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), residual.new_empty(residual.shape)


@operator("weft::all_gather_matmul")
def all_gather_matmul(a: Tensor, b: Tensor, group: str = "") -> Tensor:
    """`weft.kernels.distributed.all_gather_matmul` as an operator: all ranks' rows `a` [m, K] @ b, [world_size * m, N]."""
    room = room_for("all_gather_matmul", (world_size(group), *a.shape), a.dtype, a, group)
    room.tensor[room.rank].copy_(a)
    return distributed.all_gather_matmul(room, b, b.new_empty((room.world_size * a.shape[0], b.shape[1])))


@all_gather_matmul.register_fake
def _(a: Tensor, b: Tensor, group: str = "") -> Tensor:
    return b.new_empty((world_size(group) * a.shape[0], b.shape[1]))


@operator("weft::matmul_reduce_scatter")
def matmul_reduce_scatter(a: Tensor, b: Tensor, group: str = "") -> Tensor:
    """`weft.kernels.distributed.matmul_reduce_scatter` as an operator: this rank's rows of the sum of a @ b over all ranks."""
    out = b.new_empty((a.shape[0] // world_size(group), b.shape[1]))
    return distributed.matmul_reduce_scatter(a, b, _work(a, b, group), out)


@matmul_reduce_scatter.register_fake
def _(a: Tensor, b: Tensor, group: str = "") -> Tensor:
    return b.new_empty((a.shape[0] // world_size(group), b.shape[1]))


@operator("weft::matmul_all_reduce")
def matmul_all_reduce(a: Tensor, b: Tensor, group: str = "") -> Tensor:
    """`weft.kernels.distributed.matmul_all_reduce` as an operator: the sum of a @ b over all ranks."""
    out = room_for("matmul_all_reduce", (a.shape[0], b.shape[1]), b.dtype, b, group)
    return distributed.matmul_all_reduce(a, b, _work(a, b, group), out).clone()


@matmul_all_reduce.register_fake
def _(a: Tensor, b: Tensor, group: str = "") -> Tensor:
    return b.new_empty((a.shape[0], b.shape[1]))


@operator("weft::dispatch")
def dispatch(
    x: Tensor, ids: Tensor, experts: int, capacity: int, group: str = ""
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`weft.kernels.distributed.dispatch` as an operator: the rows [capacity, width] for this rank's experts, their offsets,
    and the places of the own tokens. Rows behind the last offset are undefined."""
    import torch

    ranks = world_size(group)
    rows = room_for("dispatch", (capacity, x.shape[1]), x.dtype, x, group)
    counts = room_for("dispatch.counts", (ranks, experts), torch.int32, x, group)
    found = distributed.dispatch(x, ids, experts, rows, counts)
    return rows.tensor.clone(), found.offsets, found.places


@dispatch.register_fake
def _(x: Tensor, ids: Tensor, experts: int, capacity: int, group: str = "") -> tuple[Tensor, Tensor, Tensor]:
    import torch

    offsets = ids.new_empty(experts // world_size(group) + 1, dtype=torch.int32)
    return x.new_empty((capacity, x.shape[1])), offsets, ids.new_empty(ids.shape, dtype=torch.int32)


@operator("weft::combine")
def combine(rows: Tensor, ids: Tensor, places: Tensor, weights: Tensor, experts: int, group: str = "") -> Tensor:
    """`weft.kernels.distributed.combine` as an operator: each token's sum of its experts' rows with weights."""
    out = rows.new_empty((ids.shape[0], rows.shape[1]))
    return distributed.combine(_filled("combine", rows, group), ids, places, weights, experts, out)


@combine.register_fake
def _(rows: Tensor, ids: Tensor, *_: Any) -> Tensor:
    return rows.new_empty((ids.shape[0], rows.shape[1]))


def world_size(group: str) -> int:
    """The number of ranks of a group."""
    member = current.innermost(None)
    if member is not None:
        return member.size
    ranks = import_module("torch.distributed")
    return int(ranks.distributed_c10d._resolve_process_group(group).size() if group else ranks.get_world_size())


def _work(a: Tensor, b: Tensor, group: str) -> Symmetric:
    elements = distributed.work_elements(a.shape[0], b.shape[1], world_size(group))
    return room_for("work", (elements,), a.dtype, a, group)


def _filled(use: str, x: Tensor, group: str) -> Symmetric:
    """A room with a copy of a tensor."""
    found = room_for(use, tuple(x.shape), x.dtype, x, group)
    found.tensor.copy_(x)
    return found
