"""The registry of CUDA rules: how each operation of the lowered stage becomes text.

A rule has one of four forms.
* `@emits`: statements. `rule(e, op)` writes them.
* `@elects`: statements of the partition's elected thread. `rule(e, op, last)` gives them, each with the number of registers
  that it is repeated for; neighbours share one branch. `last`: the next operation in the branch is of another kind.
* `@spells`: elementwise. `rule(e, op, *operands)` gives the expression of one element from its operands' texts; the emitter
  makes the loop, and lets neighbours share it. `e.index` is the register it is asked for.
* `@refers`: no code. `rule(e, op)` gives what the result is called in terms of other values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from weft.ir.define import OpDef
from weft.loading import Registry

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter
    from weft.cuda.refs import Index, Ref
    from weft.ir.core import Op

Repeated = tuple[int, "Callable[[Index], str]"]
"""How often a statement stands, and its text each time."""
Form = Literal["statement", "elected", "element", "reference"]
Statement = TypeVar("Statement", bound="Callable[[Emitter, Op], None]")
Elected = TypeVar("Elected", bound="Callable[[Emitter, Op, bool], list[Repeated]]")
Element = TypeVar("Element", bound="Callable[..., str]")
Reference = TypeVar("Reference", bound="Callable[[Emitter, Op], Ref]")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and its form."""

    form: Form
    write: Callable[..., Any]


RULES: Registry[OpDef, Rule] = Registry("CUDA rule of")


def emits(*kinds: OpDef) -> Callable[[Statement], Statement]:
    """Register a rule that writes statements."""
    return lambda rule: _register("statement", kinds, rule)


def elects(*kinds: OpDef) -> Callable[[Elected], Elected]:
    """Register a rule that gives statements of the elected thread."""
    return lambda rule: _register("elected", kinds, rule)


def spells(*kinds: OpDef) -> Callable[[Element], Element]:
    """Register a rule that spells one element."""
    return lambda rule: _register("element", kinds, rule)


def refers(*kinds: OpDef) -> Callable[[Reference], Reference]:
    """Register a rule that refers to other values."""
    return lambda rule: _register("reference", kinds, rule)


def _register(form: Form, kinds: tuple[OpDef, ...], rule: Any) -> Any:
    for kind in kinds:
        RULES.enter(kind, Rule(form, rule))
    return rule
