"""Statements of the elected thread of a partition, or of each warp: adjacent statements share one branch.

TMA instructions issued by several warps have separate branches, one for each run of consecutive warps.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from weft.cuda.rules import RULES, Repeated
from weft.cuda.writer import WIDTH
from weft.ir.core import Op
from weft.ops import tma

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter


def condition(e: Emitter, each_warp: bool = False, on: str | None = None) -> str:
    """The condition of the elected thread: the lane that `elect.sync` elects in the partition's first warp (or in each warp).

    A uniform predicate `on` is tested first. Under a branch inside the `elect.sync` branch, ptxas no longer knows that a single
    lane is active, and generates a loop over the active lanes around each TMA instruction."""
    here = e.partition
    if not e.target.has_elect:
        first = here.first_warp * e.target.warp_size
        elected = f"(threadIdx.x & {e.target.warp_size - 1}u) == 0" if each_warp else f"threadIdx.x == {first}"
    else:
        elected = e.call("elect_one")
    alone = each_warp or here.num_warps == 1 or not e.target.has_elect
    warp = None if alone else f"{e.warp} == {here.first_warp}"
    return " && ".join(part for part in (warp, on, elected) if part is not None)


def write(e: Emitter, ops: list[Op]) -> None:
    """Write operations in order, with one branch for each run of equal predicates. A `__syncwarp` precedes a thread that acts
    for its warp."""
    synced = False
    for (load, each_warp, on), some in groupby(ops, lambda op: _kind_of_branch(e, op)):
        group = list(some)
        e.out.loc = group[0].loc
        if load is not None:
            _requests(e, load, on)
            continue
        if each_warp and not synced:
            e.out.line("__syncwarp();")
        synced = each_warp
        _branch(e, group, condition(e, each_warp, on))


def _kind_of_branch(e: Emitter, op: Op) -> tuple[Op | None, bool, str | None]:
    """The key of operations that share a branch; a load issued by several warps has its own."""
    return op if tma.by_several(op) else None, bool(op.attrs.get("each_warp")), _predicate(e, op)


def _requests(e: Emitter, load: Op, on: str | None) -> None:
    """The TMA instructions of a load by several warps: one branch for each run of consecutive warps."""
    warps, first = load.attrs["issuers"], load.attrs["first"]
    ((count, text),) = _statements(e, load, True)
    e.declare_pending()
    done = 0
    while done < count:
        start = (first + done) % warps
        some = min(count - done, warps - start)
        low, high = e.partition.first_warp + start, e.partition.first_warp + start + some
        if some == 1:
            who, index = [f"{e.warp} == {low}"], done
        else:
            who = [f"{e.warp} >= {low}"] * (start > 0) + [f"{e.warp} < {high}"] * (start + some < warps)
            index = f"{e.warp} - {low - done}" if low > done else e.warp if low == done else f"{e.warp} + {done - low}"
        e.out.line(f"if ({' && '.join([*who, *([on] if on else []), e.call('elect_one')])}) {text(index)}")
        done += some


def _branch(e: Emitter, ops: list[Op], condition: str) -> None:
    """A branch with its operations."""
    kinds = [op.kind for op in ops]
    ends = [kind is not after for kind, after in zip(kinds, [*kinds[1:], None], strict=True)]
    statements = [_statements(e, op, end) for op, end in zip(ops, ends, strict=True)]
    head = f"if ({condition})"
    line = _in_one_line(head, ops, statements)
    if line is not None:
        e.declare_pending()
        e.out.line(line)
        return
    with e.braces(head):
        for op, repeated in zip(ops, statements, strict=True):
            e.out.loc = op.loc
            for count, text in repeated:
                e.unrolled(count, [(op.loc, text)])


def _in_one_line(head: str, ops: list[Op], statements: list[list[Repeated]]) -> str | None:
    """The branch with its statements on one line, if they are few and from one source line."""
    every = [item for repeated in statements for item in repeated]
    if len({op.loc for op in ops}) > 1 or any(count > 1 for count, _ in every):
        return None
    texts = [text(0) for _, text in every]
    line = f"{head} {texts[0]}" if len(texts) == 1 else f"{head} {{ {' '.join(texts)} }}"
    return line if len(texts) == 1 or len(line) <= WIDTH else None


def _statements(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    return RULES[op.kind].write(e, op, last)


def _predicate(e: Emitter, op: Op) -> str | None:
    return e.operand(op, "pred") if "pred" in op.kind.operand_index else None
