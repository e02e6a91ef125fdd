"""Launches of row kernels: how many programs, and sums over what programs leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weft import language as gl
from weft.kernels.device.rows import add_programs
from weft.kernels.machines import machine_of, multiprocessors_of, target_of
from weft.kernels.memory import used_on
from weft.kernels.rows.calls import launched, zeros_kept
from weft.kernels.rows.plan import RowConfig, RowPlan, power_of_two
from weft.runtime.arguments import HOST

ADDED = 256, 32
"""Programs and columns that a program of `add_programs` adds up at a time."""
MOST_TICKETS = 1 << 24
"""Tickets that float32 numbers can be."""
MOST_RESIDENT = 64
"""Warps of a multiprocessor."""
_resident: dict[Any, int] = {}


def groups_of(plan: RowPlan, rows: int) -> int:
    """How many times a program takes rows, over all programs."""
    return rows if plan.blocks > 1 else -(-rows // plan.lines)


def drawing(plan: RowPlan, rows: int, numbers: int) -> RowPlan:
    """The plan by which programs draw tickets for their rows, where they copy one ahead and warps exchange numbers: a ticket is
    one more than the `numbers` that they exchange."""
    if plan.ahead != 1 or plan.blocks * plan.across == 1 or groups_of(plan, rows) > MOST_TICKETS:
        return plan
    return replace(plan, tickets=True, numbers=power_of_two(numbers + 1))


def counter_of(plan: RowPlan, like: Any, stream: Any) -> Any:
    """The counter of tickets of a launch, if it needs one."""
    return zeros_kept(like, 1, stream) if plan.tickets else None


def persistent(
    kernel: Any, given: tuple[Any, ...], options: dict[str, Any], plan: RowPlan, config: RowConfig, rows: int, device: int,
    key: Any, warps: int = MOST_RESIDENT,
) -> int:  # fmt: skip
    """Programs of a persistent grid: those that are resident, at most `warps` warps of a multiprocessor, or without tickets as
    many of them as have rows equally often; none without rows. `key`: what distinguishes the kernel compiled for these
    arguments from others of the plan."""
    if config.programs:
        return min(config.programs, groups_of(plan, rows))
    key = plan, device, options["maxnreg"], key
    found = _resident.get(key)
    if found is None:
        count = multiprocessors_of(device, machine_of(target_of(device)))
        most = max(count * warps // (plan.blocks * plan.warps), 1)
        found = _resident[key] = min(_count(kernel, given, options, device, count), most)
    groups = groups_of(plan, rows)
    if plan.tickets:
        return min(found, groups)
    # As few as take equally many turns: a last turn of few of them would leave the others idle.
    return -(-groups // max(-(-groups // found), 1))


def _count(kernel: Any, given: tuple[Any, ...], options: dict[str, Any], device: int, count: int) -> int:
    if device == HOST:
        return max(count // options["num_ctas"], 1)
    compiled = kernel.warmup(*given, **options)
    return compiled.active_clusters() if options["num_ctas"] > 1 else compiled.occupancy() * count


def added(partial: Any, out: Any, programs: int, cols: int, stream: Any) -> None:
    """`out` [cols] = the sums over the programs of `partial` [programs, cols], in a fixed order."""
    lines, part = min(ADDED[0], max(power_of_two(programs), 8)), ADDED[1]
    warps = max(lines // 16, 1)
    layout = gl.BlockedLayout([1, 1], [1, 32], [warps, 1], [1, 0])
    sizes = programs, cols, lines, part, layout
    launched(add_programs, -(-cols // part), (partial, out, *sizes), {"num_warps": warps}, stream)
    used_on(partial, stream)
