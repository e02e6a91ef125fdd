"""The plan of a warp-specialised kernel: the warps, registers and named barriers of each role.

A role can serve several `control.warp_specialize` operations: it runs one worker region of each in turn, if these request the
same numbers of warps and registers.

    default partition of 4 warps, workers of 1, 4 and 1 warps, registers requested:

    warp       0..3      4..7      8         9         10..11
               default   worker 1  worker 0  worker 2  (padding)
    registers  208       208       40        40        40
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.errors import Loc, fail
from weft.errors import partitions as errors
from weft.errors.compiler import TMEM_WARPS
from weft.ir.core import Func, Op, Region, walk
from weft.layout.base import WARPGROUP
from weft.ops import control, sync, tensor_memory
from weft.targets import Target

GRANULARITY, LEAST, MOST = 8, 24, 256
"""Register counts that `setmaxnreg` accepts: multiples of 8 from 24 to 256 (PTX ISA, setmaxnreg)."""


@dataclass(slots=True, eq=False)
class Role:
    """Consecutive warps with the same code for the whole kernel. `registers` is the number per thread, 0 if not requested.

    `regions` has for each `control.warp_specialize` in turn the region that the role runs, or None.
    """

    num_warps: int
    registers: int = 0
    regions: list[Region | None] = field(default_factory=list["Region | None"])
    first_warp: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The roles of a kernel: the default partition, then the workers; and `padding`, idle warps that fill up warpgroups.

    `total_warps` is the number of warps of the block. `start_registers` is the number of registers per thread at launch if
    registers are requested, else 0.
    """

    roles: tuple[Role, ...]
    padding: tuple[Role, ...]
    total_warps: int
    start_registers: int


def specialisations(func: Func) -> list[Op]:
    """The function's `control.warp_specialize` operations, which are at the top level of its body."""
    return [op for op in func.body.ops if op.kind is control.warp_specialize]


def check_partitions(func: Func, target: Target) -> Func:
    """Check a function's partitions. Raises the errors of `plan_partitions` and `first_barrier` before anything is lowered.

    Raises CompilationError (tensor-memory-warps) if a partition without whole warpgroups moves tiles between registers and
    tensor memory: warp i of a warpgroup can access lanes 32 i to 32 i + 31 only. (`plan_partitions` aligns partitions of whole
    warpgroups to four warps.)
    """
    first_barrier(func, target, plan_partitions(func, target))
    _check_warpgroups(func.body, func.attrs.num_warps, "the kernel", "launch it with num_warps=4")
    return func


def _check_warpgroups(region: Region, warps: int, who: str, where: str) -> None:
    for op in region.ops:
        if op.kind in (tensor_memory.load, tensor_memory.store) and warps % WARPGROUP:
            raise fail(TMEM_WARPS, loc=op.loc, what=op.name, who=who, warps=warps, where=where)
        if op.kind is not control.warp_specialize:
            for inner in op.regions:
                _check_warpgroups(inner, warps, who, where)
            continue
        _check_warpgroups(op.regions[0], warps, "the default partition", where)
        for number, (inner, count) in enumerate(zip(op.regions[1:], op.attrs["num_warps"], strict=True)):
            counts = [WARPGROUP if other == number else each for other, each in enumerate(op.attrs["num_warps"])]
            _check_warpgroups(inner, count, f"worker {number}", f"worker_num_warps={counts}")


def plan_partitions(func: Func, target: Target) -> Plan | None:
    """The plan of a function in tile IR; None if it is not warp-specialised.

    Raises CompilationError: partitions-too-many-warps, partitions-register-pool, partitions-no-registers.
    """
    ops = specialisations(func)
    if not ops:
        return None
    default = Role(func.attrs.num_warps, regions=[op.regions[0] for op in ops])
    workers = _roles(ops)
    asked = next((op for op in ops if op.attrs["num_regs"]), None)
    if asked is not None and not target.has_setmaxnreg:
        raise fail(errors.NO_REGISTERS, loc=asked.loc, target=target.name)
    total = _place(default, workers, asked is not None)
    limit = target.max_threads // target.warp_size
    if total > limit:
        raise fail(errors.TOO_MANY_WARPS, loc=ops[-1].loc, default=default.num_warps, total=total, limit=limit)
    padding = _padding((default, *workers), total)
    plan = Plan((default, *workers), padding, total, _start_registers(func, target, total) if asked else 0)
    if asked is not None:
        _share_registers(plan, asked.loc)
    return plan


def first_barrier(func: Func, target: Target, plan: Plan | None) -> int:
    """The hardware index of the author's named barrier 0: the block and each role have one before it. Raises
    partitions-barriers."""
    taken = 1 + (len(plan.roles) if plan is not None else 0)
    for op in walk(func.body):
        if op.kind is sync.named_barrier and op.attrs["number"] + taken >= target.named_barriers:
            number: int = op.attrs["number"]
            raise fail(
                errors.BARRIERS, loc=op.loc, number=number, hardware=number + taken, limit=target.named_barriers,
                partitions=taken - 1,
            )  # fmt: skip
    return taken


def _roles(ops: list[Op]) -> list[Role]:
    """Assign each worker to the first role of its size that has no region of the same operation yet, or to a new role."""
    roles: list[Role] = []
    for turn, op in enumerate(ops):
        registers = op.attrs["num_regs"] or (0,) * len(op.attrs["num_warps"])
        for region, warps, asked in zip(op.regions[1:], op.attrs["num_warps"], registers, strict=True):
            free = (r for r in roles if (r.num_warps, r.registers) == (warps, asked) and r.regions[turn] is None)
            role = next(free, None)
            if role is None:
                role = Role(warps, asked, [None] * len(ops))
                roles.append(role)
            role.regions[turn] = region
    return roles


def _place(default: Role, workers: list[Role], registers: bool) -> int:
    """Set first warps, larger workers first, so that warpgroups are whole; returns the total number of warps."""
    end = default.num_warps
    if registers:
        end = _up(end)
    for worker in sorted(workers, key=lambda role: -role.num_warps):
        worker.first_warp = _up(end) if worker.num_warps >= WARPGROUP else end
        end = worker.first_warp + worker.num_warps
    return _up(end) if registers else end


def _padding(roles: tuple[Role, ...], total: int) -> tuple[Role, ...]:
    """Idle roles for the warps between roles and after the last one."""
    gaps: list[Role] = []
    end = 0
    for first, count in (*sorted((role.first_warp, role.num_warps) for role in roles), (total, 0)):
        if first > end:
            gaps.append(Role(first - end, first_warp=end))
        end = first + count
    return tuple(gaps)


def _start_registers(func: Func, target: Target, total: int) -> int:
    """The registers per thread at launch: the author's `maxnreg`, or as many as a block can have."""
    most = min(target.registers_per_block // (total * target.warp_size), MOST)
    return min(func.attrs.maxnreg or MOST, most) // GRANULARITY * GRANULARITY


def _share_registers(plan: Plan, loc: Loc | None) -> None:
    """Distribute the block's registers: a warpgroup of workers gets the largest request of its roles, and the default partition
    gets the rest. `setmaxnreg` acts on whole warpgroups."""
    groups: dict[int, list[Role]] = {}
    for role in (*plan.roles, *plan.padding):
        groups.setdefault(role.first_warp // WARPGROUP, []).append(role)
    default, *workers = groups.values()
    taken = 0
    for group in workers:
        asked = [role.registers or plan.start_registers for role in group if role in plan.roles]
        _set(group, max(asked))
        taken += max(asked) * _warps(group)
    pool = plan.start_registers * plan.total_warps
    left = (pool - taken) // _warps(default) // GRANULARITY * GRANULARITY
    if left < LEAST:
        raise fail(errors.POOL, loc=loc, left=max(left, 0), pool=32 * pool, taken=32 * taken)
    _set(default, min(left, MOST))


def _set(group: list[Role], registers: int) -> None:
    for role in group:
        role.registers = registers


def _warps(group: list[Role]) -> int:
    return sum(role.num_warps for role in group)


def _up(warps: int) -> int:
    return -(-warps // WARPGROUP) * WARPGROUP
