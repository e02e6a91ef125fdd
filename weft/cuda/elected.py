"""Statements of the one thread that acts for its partition, or for its warp: neighbours stand in one branch."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import groupby
from typing import TYPE_CHECKING

from weft.cuda.rules import RULES, Repeated
from weft.cuda.writer import WIDTH
from weft.ir.core import Op

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter


def condition(e: Emitter, each_warp: bool = False) -> str:
    """What holds for the elected thread: of the partition's first warp (of each one), the lane that `elect.sync` picks."""
    here = e.partition
    if not e.target.has_elect:
        first = here.first_warp * e.target.warp_size
        return f"(threadIdx.x & {e.target.warp_size - 1}u) == 0" if each_warp else f"threadIdx.x == {first}"
    if each_warp:
        return e.call("elect_one")
    return e.call("elect_one") if here.num_warps == 1 else f"{e.warp} == {here.first_warp} && {e.call('elect_one')}"


def write(e: Emitter, ops: list[Op]) -> None:
    """Operations one after another; before a thread acts for its warp, that has come."""
    for each_warp, some in groupby(ops, lambda op: bool(op.attrs.get("each_warp"))):
        group = list(some)
        e.out.loc = group[0].loc
        if each_warp:
            e.out.line("__syncwarp();")
        _branch(e, group, condition(e, each_warp))


def _branch(e: Emitter, ops: list[Op], elected: str) -> None:
    """What stands under one condition. A predicate that all share belongs to it, others to what they hold for."""
    kinds = [op.kind for op in ops]
    ends = [kind is not after for kind, after in zip(kinds, [*kinds[1:], None], strict=True)]
    statements = [_statements(e, op, end) for op, end in zip(ops, ends, strict=True)]
    predicates = {_predicate(e, op) for op in ops}
    shared = predicates.pop() if len(predicates) == 1 else None
    head = f"if ({elected}{'' if shared is None else f' && {shared}'})"
    line = _in_one_line(head, ops, statements)
    if line is not None and not predicates:
        e.declare_pending()
        e.out.line(line)
        return
    with e.braces(head):
        each = zip(ops, statements, strict=True)
        for on, group in groupby(each, lambda item: _predicate(e, item[0]) if predicates else None):
            some = list(group)
            e.out.loc = some[0][0].loc
            with nullcontext() if on is None else e.out.braces(f"if ({on})"):
                for op, repeated in some:
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
