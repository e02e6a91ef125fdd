"""Flattening of tuples, lists and aggregates into leaves.

A leaf is a `tensor`, or any other Python object, which is then a compile-time constant. The IR has leaves only: values carried
through loops and branches are converted by `flatten` and `unflatten`, and errors name a leaf by its path, as in `mma.acc`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

Leaf = Any


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of a value without its leaves; comparable and hashable.

    `kind` is tuple, list, a named tuple class, an aggregate class, or None for a leaf; `names` are the field names of named
    tuples and aggregates.
    """

    kind: type | None
    parts: tuple[Structure, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of leaves."""
        return 1 if self.kind is None else sum(part.count for part in self.parts)

    def paths(self, root: str) -> Iterator[str]:
        """The source notation of each leaf of a value named `root`, in the order of the leaves.

        >>> list(flatten((1, (2, 3)))[1].paths("pair"))
        ['pair[0]', 'pair[1][0]', 'pair[1][1]']
        """
        if self.kind is None:
            yield root
            return
        for i, part in enumerate(self.parts):
            yield from part.paths(f"{root}.{self.names[i]}" if self.names else f"{root}[{i}]")


LEAF = Structure(None)


def fields_of(kind: type) -> tuple[str, ...]:
    """Field names of an aggregate class or a named tuple; empty for any other class."""
    return tuple(getattr(kind, "__weft_aggregate__", ()) or getattr(kind, "_fields", ()))


def flatten(value: Any) -> tuple[list[Leaf], Structure]:
    """The leaves of a value, depth first, and its structure.

    >>> flatten((1, [2.0, None]))[0]
    [1, 2.0, None]
    """
    parts = parts_of(value)
    if parts is None:
        return [value], LEAF
    leaves: list[Leaf] = []
    structures: list[Structure] = []
    for part in parts:
        found, structure = flatten(part)
        leaves += found
        structures.append(structure)
    kind = value.__class__
    return leaves, Structure(kind, tuple(structures), fields_of(kind))


def parts_of(value: Any) -> tuple[Any, ...] | None:
    """The direct parts of a tuple, list or aggregate; None for a leaf. An unset field is None."""
    if isinstance(value, (tuple, list)):
        return tuple(cast("Sequence[Any]", value))
    kind = value.__class__
    if hasattr(kind, "__weft_aggregate__"):
        return tuple(getattr(value, name, None) for name in fields_of(kind))
    return None


def unflatten(structure: Structure, leaves: Sequence[Leaf]) -> Any:
    """The inverse of `flatten`. Aggregates are created without calling `__init__`.

    >>> unflatten(flatten((1, (2, 3)))[1], "abc")
    ('a', ('b', 'c'))
    """
    value, rest = _build(structure, leaves)
    if rest:
        raise ValueError(f"{len(leaves)} leaves for a structure of {structure.count}")
    return value


def _build(structure: Structure, leaves: Sequence[Leaf]) -> tuple[Any, Sequence[Leaf]]:
    if structure.kind is None:
        return leaves[0], leaves[1:]
    parts: list[Any] = []
    for part in structure.parts:
        value, leaves = _build(part, leaves)
        parts.append(value)
    return _assemble(structure.kind, structure.names, parts), leaves


def _assemble(kind: Any, names: tuple[str, ...], parts: list[Any]) -> Any:
    if not hasattr(kind, "__weft_aggregate__"):
        return kind(*parts) if names else kind(parts)
    made = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made
