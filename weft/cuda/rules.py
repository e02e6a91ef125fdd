"""The registry of CUDA rules, which emit the text of each operation of the lowered stage.

A rule has one of four forms.

* `@emits`: statements. `rule(e, op)` writes them.
* `@elects`: statements of the partition's elected thread. `rule(e, op, last)` returns them, each with its number of
  repetitions; adjacent operations share one branch. `last`: the next operation in the branch is of another kind.
* `@spells`: elementwise. `rule(e, op, *operands)` returns the expression of one element from its operands' texts; the emitter
  writes the loop, which adjacent operations share. `e.index` is the current register.
* `@refers`: no code. `rule(e, op)` returns the result as a reference to other values.
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
"""The number of repetitions of a statement, and its text for each."""
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
    """Register a rule that returns statements of the elected thread."""
    return lambda rule: _register("elected", kinds, rule)


def spells(*kinds: OpDef) -> Callable[[Element], Element]:
    """Register a rule that returns the expression of one element."""
    return lambda rule: _register("element", kinds, rule)


def refers(*kinds: OpDef) -> Callable[[Reference], Reference]:
    """Register a rule that returns a reference to other values."""
    return lambda rule: _register("reference", kinds, rule)


def _register(form: Form, kinds: tuple[OpDef, ...], rule: Any) -> Any:
    for kind in kinds:
        RULES.enter(kind, Rule(form, rule))
    return rule
