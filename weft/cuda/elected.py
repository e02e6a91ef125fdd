"""Statements of the one thread that acts for its partition: neighbours stand in one branch."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import groupby
from typing import TYPE_CHECKING

from weft.cuda.rules import RULES, Repeated
from weft.cuda.writer import WIDTH
from weft.ir.core import Op

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter


def condition(e: Emitter) -> str:
    """What holds for the elected thread: of the partition's first warp, the lane that `elect.sync` picks."""
    here = e.partition
    if not e.target.has_elect:
        return f"threadIdx.x == {here.first_warp * e.target.warp_size}"
    return e.call("elect_one") if here.num_warps == 1 else f"{e.warp} == {here.first_warp} && {e.call('elect_one')}"


def write(e: Emitter, ops: list[Op]) -> None:
    """Operations one after another. A predicate that they share belongs to the branch, others to what they hold for."""
    kinds = [op.kind for op in ops]
    ends = [kind is not after for kind, after in zip(kinds, [*kinds[1:], None], strict=True)]
    statements = [_statements(e, op, end) for op, end in zip(ops, ends, strict=True)]
    predicates = {_predicate(e, op) for op in ops}
    shared = predicates.pop() if len(predicates) == 1 else None
    e.out.loc = ops[0].loc
    head = f"if ({condition(e)}{'' if shared is None else f' && {shared}'})"
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
