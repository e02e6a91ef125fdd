"""Which values share a C variable, and where that variable is declared.

`passes.assign_registers` decides the sharing (`func.attrs.storage`); this module finds the innermost region that holds all
values of a class, and the first operation there that needs the variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.ir.core import Func, Op, Region, Value

Path = tuple[int, ...]
"""Where an operation stands: its index in the function's body, then region and index of each level further in."""


@dataclass(frozen=True, slots=True)
class Storage:
    """`class_of`: the class of each value that shares its variable. `starts`: classes declared before an operation.

    `ends`: classes that are assigned for the last time in an operation. `members` lists a class in program order."""

    class_of: Mapping[Value, int]
    starts: Mapping[Op, tuple[int, ...]]
    ends: Mapping[Op, tuple[int, ...]]
    members: Mapping[int, tuple[Value, ...]]


def storage_of(func: Func) -> Storage:
    """The function's classes with more than one value; its own parameters are never in one."""
    class_of = func.attrs.storage
    members: dict[int, list[Value]] = {}
    paths: dict[int, list[Path]] = {}
    for value, path in _definitions(func.body, ()):
        if value in class_of:
            members.setdefault(class_of[value], []).append(value)
            paths.setdefault(class_of[value], []).append(path)
    starts: dict[Op, tuple[int, ...]] = {}
    ends: dict[Op, tuple[int, ...]] = {}
    for number, places in paths.items():
        level = _level(places)
        for at, bound in ((starts, min), (ends, max)):
            op = _at(func.body, bound(path[:level] for path in places))
            at[op] = (*at.get(op, ()), number)
    return Storage(class_of, starts, ends, {number: tuple(values) for number, values in members.items()})


def _definitions(region: Region, prefix: Path) -> Iterator[tuple[Value, Path]]:
    """Every value but the function's parameters, with the path of the operation that owns or yields it."""
    for index, op in enumerate(region.ops):
        path = (*prefix, index)
        for number, inner in enumerate(op.regions):
            yield from ((arg, path) for arg in inner.args)
            yield from _definitions(inner, (*path, number))
        yield from ((result, path) for result in op.results)


def _level(paths: list[Path]) -> int:
    """How much of the paths names operations of the innermost region that holds them all."""
    first, last = min(paths), max(paths)
    same = 0
    while same < min(map(len, paths)) and first[same] == last[same]:
        same += 1
    if same == min(map(len, paths)):
        return same
    # Regions of one operation differ at odd places; then it is that operation.
    return same if same % 2 else same + 1


def _at(region: Region, path: Path) -> Op:
    op = region.ops[path[0]]
    for level in range(1, len(path), 2):
        op = op.regions[path[level]].ops[path[level + 1]]
    return op
