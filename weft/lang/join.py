"""The ends of two branches become one: names that hold the same in both stay, leaves that differ become results of the `if`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import Loc, Row
from weft.ir.core import Value
from weft.ir.types import Type
from weft.lang.frame import Binding, Frame, Unusable
from weft.lang.statements import name_leaves
from weft.lang.values import common_type, difference, materialise, same_leaf
from weft.language.runtime_value import wrap
from weft.language.tree import Structure, flatten, unflatten

# What a joined value is called in messages when it has no name: that of a conditional expression, and that of a function.
VALUE, RESULT = "its value", "its result"
UNNAMED = frozenset({VALUE, RESULT})


@dataclass(slots=True)
class Join:
    """Two branches become one: leaves that differ are results of the `if`; `shape` rebuilds each name from them."""

    line: Loc
    types: list[Type] = field(default_factory=list[Type])
    ones: list[Any] = field(default_factory=list[Any])
    others: list[Any] = field(default_factory=list[Any])
    shapes: list[tuple[str, Loc | None, Structure, list[Any]]] = field(default_factory=list[Any])
    lost: dict[str, Unusable] = field(default_factory=dict[str, Unusable])

    def add(self, name: str, one: Binding, other: Binding, row: Row, **fields: Any) -> None:
        """Join what a name holds after the two branches; a name whose types differ is lost, with `row` as the mistake."""
        if isinstance(one.value, Unusable) or isinstance(other.value, Unusable):
            self.lost[name] = one.value if isinstance(one.value, Unusable) else other.value
            return
        leaves, structure = flatten(one.value)
        other_leaves, other_structure = flatten(other.value)
        if structure != other_structure:
            self._lose(name, name, (one.value, other.value), (one.loc, other.loc), row, fields)
            return
        self._add_leaves(name, structure, (leaves, other_leaves), (one.loc, other.loc), row, fields)

    def _add_leaves(
        self, name: str, structure: Structure, leaves: tuple[list[Any], list[Any]],
        locs: tuple[Loc | None, Loc | None], row: Row, fields: dict[str, Any],
    ) -> None:  # fmt: skip
        results: list[tuple[Any, Any, Type]] = []
        shape: list[Any] = []
        for path, a, b in zip(structure.paths(name), *leaves, strict=True):
            if same_leaf(a, b):
                shape.append(a)
                continue
            type = common_type(a, b)
            if type is None:
                self._lose(name, path, (a, b), locs, row, fields)
                return
            shape.append(_Result(len(self.types) + len(results)))
            results.append((a, b, type))
        for a, b, type in results:
            self.ones.append(a)
            self.others.append(b)
            self.types.append(type)
        self.shapes.append((name, locs[0], structure, shape))

    def _lose(
        self, name: str, path: str, values: tuple[Any, Any], locs: tuple[Loc | None, Loc | None], row: Row,
        fields: dict[str, Any],
    ) -> None:  # fmt: skip
        one, other, fix = difference(path, *values)
        related = () if locs[1] is None else (("in the other branch", locs[1]),)
        named = {**fields, "path": path, "line": self.line.line, "one": one, "other": other, "fix": fix}
        self.lost[name] = Unusable(row, named, locs[0], related)

    def values(self, frame: Frame, leaves: Sequence[Any]) -> list[Value]:
        """The results that one branch yields; emits the numbers among them into the open region."""
        return [materialise(frame.builder, leaf, type) for leaf, type in zip(leaves, self.types, strict=True)]

    def bindings(self, results: Sequence[Value]) -> Iterator[tuple[str, Binding]]:
        """Every joined name with its value after the `if`, and every lost one."""
        for name, loc, structure, shape in self.shapes:
            leaves = [wrap(results[leaf.number]) if isinstance(leaf, _Result) else leaf for leaf in shape]
            value = unflatten(structure, leaves)
            if name not in UNNAMED:
                name_leaves(name, value)
            yield name, Binding(value, loc)
        for name, unusable in self.lost.items():
            yield name, Binding(unusable, self.line)


@dataclass(frozen=True, slots=True)
class _Result:
    """Stands for a leaf that is a result of the `if`."""

    number: int
