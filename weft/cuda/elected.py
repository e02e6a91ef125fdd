"""Statements of the one thread that acts for its partition, or for its warp: neighbours stand in one branch.

Requests that several warps issue have branches of their own, one for warps that follow one another.
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
    """What holds for the elected thread: of the partition's first warp (of each one), the lane that `elect.sync` picks.

    A predicate `on`, the same in all threads, comes first: below a branch after `elect.sync` ptxas does not know any more that
    one lane is left, and makes a loop over lanes of each TMA request."""
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
    """Operations one after another, those of one predicate in one branch; before a thread acts for its warp, that has come."""
    met = False
    for (load, each_warp, on), some in groupby(ops, lambda op: _kind_of_branch(e, op)):
        group = list(some)
        e.out.loc = group[0].loc
        if load is not None:
            _requests(e, load, on)
            continue
        if each_warp and not met:
            e.out.line("__syncwarp();")
        met = each_warp
        _branch(e, group, condition(e, each_warp, on))


def _kind_of_branch(e: Emitter, op: Op) -> tuple[Op | None, bool, str | None]:
    """What operations of one branch have in common: a load by several warps is alone."""
    return op if tma.by_several(op) else None, bool(op.attrs.get("each_warp")), _predicate(e, op)


def _requests(e: Emitter, load: Op, on: str | None) -> None:
    """The requests of a load by several warps: a branch for as many as go to warps that follow one another."""
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
    """What stands under one condition."""
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
    """The branch with its statements, where they are few and of one line of the author's."""
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
