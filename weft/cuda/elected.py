"""Statements of the one thread that acts for its partition, or for its warp: neighbours stand in one branch."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from weft.cuda.rules import RULES, Repeated
from weft.cuda.writer import WIDTH
from weft.ir.core import Op

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
    for (each_warp, on), some in groupby(ops, lambda op: (bool(op.attrs.get("each_warp")), _predicate(e, op))):
        group = list(some)
        e.out.loc = group[0].loc
        if each_warp and not met:
            e.out.line("__syncwarp();")
        met = each_warp
        _branch(e, group, condition(e, each_warp, on))


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
