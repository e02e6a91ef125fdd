"""Joining two branches: a name with the same value in both keeps it; leaves that differ become phis, results of the `if`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import Loc, Row
from weft.errors import source as errors
from weft.ir.core import Value
from weft.ir.types import Type
from weft.lang.frame import RESULT, Binding, Env, Frame, Unusable
from weft.lang.statements import name_leaves
from weft.lang.values import (
    common_type,
    difference,
    has_placeholder,
    is_runtime,
    materialise,
    placeholder,
    same_leaf,
    show,
)
from weft.language.runtime_value import RuntimeValue, wrap
from weft.language.tree import Structure, flatten, unflatten

VALUE = "its value"
"""Name of a conditional expression's value in messages; that of a function's result is RESULT."""


@dataclass(frozen=True, slots=True, eq=False)
class Absent:
    """The result of a function that has not returned yet, in a run-time loop at `line`.

    `around` is the environment before the loop, whose values are available after it. `fillers` are the loop's arguments for the
    leaves of the result, by leaf number. A branch that does not return yields them; their value is never used.
    """

    line: Loc
    around: Env
    fillers: Mapping[int, Value] = field(default_factory=dict[int, Value])

    def carried(self, leaf: Any) -> Type | None:
        """The type in which the loop carries a leaf of the result; None for constants and values from before the loop, which
        need no carrying."""
        return None if self._exists(leaf) else leaf.handle.type

    def lost(self, path: str, leaf: object) -> Unusable | None:
        """The error (lang-return-in-loop) for a leaf that neither exists outside of the loop nor can be carried."""
        if self._exists(leaf) or (isinstance(leaf, RuntimeValue) and has_placeholder(leaf.handle.type)):
            return None
        return Unusable(errors.RETURN_IN_LOOP, {"path": path, "value": show(leaf), "line": self.line.line})

    def _exists(self, leaf: object) -> bool:
        if not isinstance(leaf, RuntimeValue):
            return not is_runtime(leaf)
        names = (flatten(binding.value)[0] for binding in self.around.values())
        return any(same_leaf(leaf, other) for leaves in names for other in leaves)


@dataclass(slots=True)
class Join:
    """The join of two branches: leaves that differ are results of the `if`; `shapes` rebuild each name from them."""

    line: Loc
    types: list[Type] = field(default_factory=list[Type])
    ones: list[Any] = field(default_factory=list[Any])
    others: list[Any] = field(default_factory=list[Any])
    shapes: list[tuple[str, Loc | None, Structure, list[Any]]] = field(default_factory=list[Any])
    lost: dict[str, Unusable] = field(default_factory=dict[str, Unusable])

    def add(self, name: str, one: Binding, other: Binding, row: Row, **fields: Any) -> None:
        """Join the values of a name after the two branches. A name whose types differ is lost, with `row` as the error."""
        if isinstance(one.value, Unusable) or isinstance(other.value, Unusable):
            self.lost[name] = one.value if isinstance(one.value, Unusable) else other.value
            return
        if isinstance(other.value, Absent):
            self._add_present(name, one, other.value, True)
            return
        if isinstance(one.value, Absent):
            self._add_present(name, other, one.value, False)
            return
        leaves, structure = flatten(one.value)
        other_leaves, other_structure = flatten(other.value)
        if structure != other_structure:
            self._lose(name, name, (one.value, other.value), (one.loc, other.loc), row, fields)
            return
        self._add_leaves(name, structure, (leaves, other_leaves), (one.loc, other.loc), row, fields)

    def _add_present(self, name: str, present: Binding, absent: Absent, is_first: bool) -> None:
        """Join a result with an absent one. The branch without a result yields a filler or placeholder, which is never used."""
        leaves, structure = flatten(present.value)
        shape: list[Any] = []
        for number, (path, leaf) in enumerate(zip(structure.paths(name), leaves, strict=True)):
            lost = absent.lost(path, leaf)
            if lost is not None:
                self.lost[name] = Unusable(lost.row, lost.fields, present.loc)
                return
            type, filler = absent.carried(leaf), absent.fillers.get(number)
            if type is None:
                shape.append(leaf)
                continue
            nothing = _Nothing(filler if filler is not None and filler.type == type else None)
            shape.append(_Result(len(self.types)))
            self.ones.append(leaf if is_first else nothing)
            self.others.append(nothing if is_first else leaf)
            self.types.append(type)
        self.shapes.append((name, present.loc, structure, shape))

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
        here, there = ("at its end" if loc is None else f"in line {loc.line}" for loc in locs)
        named = {**fields, "path": path, "line": self.line.line, "one": one, "other": other, "fix": fix}
        self.lost[name] = Unusable(row, {**named, "here": here, "there": there}, locs[0], related)

    def values(self, frame: Frame, leaves: Sequence[Any]) -> list[Value]:
        """The values that one branch yields. Emits constants for the Python numbers among them into the open region."""
        return [_value(frame, leaf, type) for leaf, type in zip(leaves, self.types, strict=True)]

    def bindings(self, results: Sequence[Value]) -> Iterator[tuple[str, Binding]]:
        """Bindings after the `if`: every joined name with its value, every lost one with its error."""
        for name, loc, structure, shape in self.shapes:
            leaves = [wrap(results[leaf.number]) if isinstance(leaf, _Result) else leaf for leaf in shape]
            value = unflatten(structure, leaves)
            if name not in (VALUE, RESULT):
                name_leaves(name.strip("()"), value)
            yield name, Binding(value, loc)
        for name, unusable in self.lost.items():
            yield name, Binding(unusable, self.line)


def _value(frame: Frame, leaf: Any, type: Type) -> Value:
    if isinstance(leaf, _Nothing):
        return placeholder(frame.builder, type) if leaf.filler is None else leaf.filler
    return materialise(frame.builder, leaf, type)


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A leaf in the branch that has no value for it."""

    filler: Value | None


@dataclass(frozen=True, slots=True)
class _Result:
    """A leaf that is a result of the `if`."""

    number: int
