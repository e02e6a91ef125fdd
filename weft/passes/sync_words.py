"""Why a barrier or a fence stands where it does, in the author's words."""

from __future__ import annotations

from weft.ir.core import Op
from weft.passes.sync_state import Bytes

_VERBS = {
    "mbarrier.init": "initialised",
    "mbarrier.invalidate": "invalidated",
    "mbarrier.wait": "waited on",
    "async_copy.global_to_shared": "copied to",
}
_KINDS = {"read": "read", "write": "written", "update": "updated"}


def reason(op: Op, earlier: Op, meeting: tuple[Bytes, Bytes] | None) -> str:
    """As in 'before tma.store of c_smem (written at line 12)'; `meeting` are the bytes of the earlier and of the later access.

    What is not known, a name or a line, is left out.
    """
    if meeting is None:
        return f"before {op.name}{_place(f'after {earlier.name}', earlier)}"
    mine, others = meeting
    name = others.alloc.result.name
    verb = verb_of(earlier)
    if mine.alloc is not others.alloc and mine.alloc.result.name:
        verb = f"bytes of {mine.alloc.result.name}, {verb}"
    return f"before {op.name}{f' of {name}' if name else ''}{_place(verb, earlier)}"


def verb_of(op: Op) -> str:
    """What an operation does to shared or tensor memory."""
    if op.name in _VERBS:
        return _VERBS[op.name]
    kinds = {effect.kind for effect in op.kind.effects if effect.space in ("shared", "tensor")}
    return next((verb for kind, verb in _KINDS.items() if kind in kinds), "accessed")


def bytes_words(some: Bytes) -> str:
    """A buffer by the author's name."""
    return some.alloc.result.name or "shared memory"


def _place(what: str, op: Op) -> str:
    return "" if op.loc is None else f" ({what} at line {op.loc.line})"
