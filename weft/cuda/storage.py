"""Values that share a C variable, and the location of its declaration.

`passes.assign_registers` coalesces values (`func.attrs.storage`). This module finds the innermost region that contains all
values of a class, and the first operation there that needs the variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.ir.core import Func, Op, Region, Value

Path = tuple[int, ...]
"""The position of an operation: its index in the function's body, then region and index at each nesting level."""


@dataclass(frozen=True, slots=True)
class Storage:
    """`class_of`: the class of each value that shares its variable. `starts`: the classes declared before an operation.
    `ends`: the classes assigned for the last time in an operation. `members` lists a class in program order."""

    class_of: Mapping[Value, int]
    starts: Mapping[Op, tuple[int, ...]]
    ends: Mapping[Op, tuple[int, ...]]
    members: Mapping[int, tuple[Value, ...]]


def storage_of(func: Func) -> Storage:
    """The function's classes with more than one value; the function's parameters are in none."""
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
    """All values except the function's parameters, with the path of the operation that defines or yields them."""
    for index, op in enumerate(region.ops):
        path = (*prefix, index)
        for number, inner in enumerate(op.regions):
            yield from ((arg, path) for arg in inner.args)
            yield from _definitions(inner, (*path, number))
        yield from ((result, path) for result in op.results)


def _level(paths: list[Path]) -> int:
    """The length of the path prefix that names an operation of the innermost region containing all paths."""
    first, last = min(paths), max(paths)
    same = 0
    while same < min(map(len, paths)) and first[same] == last[same]:
        same += 1
    if same == min(map(len, paths)):
        return same
    # Entries at odd positions are region numbers. Paths that first differ there are in different regions of one operation,
    # which the prefix names.
    return same if same % 2 else same + 1


def _at(region: Region, path: Path) -> Op:
    op = region.ops[path[0]]
    for level in range(1, len(path), 2):
        op = op.regions[path[level]].ops[path[level + 1]]
    return op
