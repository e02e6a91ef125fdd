"""References: the representation of a value in the text, as a variable, an expression, or a permutation of registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.cuda.text.tables import IndexTable

Index = int | str
"""A register: a number, or the index variable of an unrolled loop."""


@dataclass(slots=True, eq=False)
class Variable:
    """A C variable: a scalar (`count` None) or an array.

    `mutable` variables are assigned more than once, so later code must not alias them. `local` variables are scalars inside
    one unrolled loop.
    """

    name: str
    type: str
    count: int | None = None
    mutable: bool = False
    local: bool = False

    def at(self, index: Index) -> str:
        """The text of one element."""
        return self.name if self.count is None or self.local else f"{self.name}[{index}]"

    @property
    def declaration(self) -> str:
        """Type, name and length."""
        return f"{self.type} {self.name}" + ("" if self.count is None else f"[{self.count}]")


@dataclass(frozen=True, slots=True)
class Inline:
    """An expression without a variable, equal for all registers."""

    text: str

    def at(self, index: Index) -> str:
        """The text of one element."""
        return self.text


@dataclass(frozen=True, slots=True)
class Picked:
    """`source[table[i]]`: a permutation of another value's registers."""

    source: Ref
    table: IndexTable
    spell: Callable[[IndexTable, Index], str]

    def at(self, index: Index) -> str:
        """The text of one element."""
        return self.source.at(self.spell(self.table, index))


Ref = Variable | Inline | Picked
