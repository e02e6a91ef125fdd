"""Fragments: the accesses of a whole view, or of several views that are used together, in one order of values.

The logical order is row-major: axes with the last fastest, along an axis its elements, and in an element its vector. A kernel
loads a fragment by one operation, whose table of offsets is computed here. The order of values is the one with the widest
accesses: along the vectors first, even if they are not along the last axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, NamedTuple

from weft.errors import fail
from weft.errors import views as errors
from weft.views.access import vector_width
from weft.views.data import ViewData
from weft.views.modes import axes_of, element_axes, extent
from weft.views.storage import AddressSpace, Index, Places

# A bounds condition: (view, axis, element coordinate that must be below the axis's limit).
Condition = tuple[int, int, int]


class Dim(NamedTuple):
    """One loop over the numbers of a view. `weight` is the distance of its steps in logical order."""

    size: int
    stride: Index
    weight: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """Accesses of one view, in an order of values shared with other views. `mask` has a condition per access, or is None.

    `order` has the logical index of each value.
    """

    view: ViewData
    places: Places
    mask: list[Any] | None
    order: list[int]

    def narrowed(self, width: int) -> Fragment:
        """The fragment with narrower accesses; `width` divides the current width."""
        places = self.places
        if places.width == width:
            return self
        parts = range(0, places.width, width)
        const = tuple(first + part for first in places.const for part in parts)
        factors = tuple(tuple(factor for factor in table for _ in parts) for table in places.factors)
        mask = None if self.mask is None else [condition for condition in self.mask for _ in parts]
        return replace(self, places=Places(const, width, places.strides, factors), mask=mask)

    def guarded(self, condition: Any) -> Fragment:
        """The fragment under an additional condition."""
        if condition is True:
            return self
        mask = [True] * len(self.places.const) if self.mask is None else self.mask
        return replace(self, mask=[_both(entry, condition) for entry in mask])

    def moved(self, offset: Index) -> Fragment:
        """The fragment at another offset in the view's memory."""
        return replace(self, view=self.view.replaced(offset=offset))

    def access(self, index: int, offset: Index) -> Fragment:
        """A single access of the fragment, at an offset in the view's memory."""
        return replace(
            self.apart()[index], view=self.view.replaced(offset=offset), places=Places((0,), self.places.width)
        )

    def apart(self) -> list[Fragment]:
        """A fragment per access."""
        width, strides = self.places.width, self.places.strides
        return [
            Fragment(
                self.view,
                Places((const,), width, strides, tuple((table[i],) for table in self.places.factors)),
                None if self.mask is None else [self.mask[i]],
                self.order[i * width : (i + 1) * width],
            )
            for i, const in enumerate(self.places.const)
        ]

    def load(self) -> Any:
        """Load all numbers."""
        return self.view.storage.load(self.view.offset, self.places, self.mask)

    def store(self, value: Any) -> None:
        """Store all numbers."""
        self.view.storage.store(self.view.offset, self.places, value, self.mask)


def dims(view: ViewData, what: str) -> list[Dim]:
    """The loop nest over all numbers of a view, slowest first. Raises ViewError (view-unknown-size)."""
    found: list[Dim] = []
    weight = 1
    for modes, element in zip(reversed(axes_of(view)), reversed(element_axes(view)), strict=True):
        for mode in (*element, *modes):
            if not isinstance(mode.size, int):
                raise fail(errors.UNKNOWN_SIZE, what=what, view=view.history, layout=view.layout)
            if mode.size != 1:
                found.append(Dim(mode.size, mode.stride, weight))
            weight *= mode.size
    return found[::-1]


def count(loops: Sequence[Dim]) -> int:
    """The number of iterations of a loop nest."""
    total = 1
    for loop in loops:
        total *= loop.size
    return total


def numbers_along(view: ViewData) -> list[Index]:
    """The number of numbers along each axis, counting vectors by their width."""
    pairs = zip(axes_of(view), element_axes(view), strict=True)
    return [extent(modes) * extent(element) for modes, element in pairs]


def together(views: Sequence[ViewData], what: str, logical: bool = False) -> list[Fragment]:
    """Fragments of views with equal numbers of values, in a common order of values (`logical`: the logical order).

    The mask is common too: a value out of bounds in one view is not accessed in any."""
    loops = [dims(view, what) for view in views]
    order = list(range(count(loops[0]))) if logical else _order(views, loops)
    tables = [_table(each, order) for each in loops]
    conditions = _conditions(views, order)
    made: list[Fragment] = []
    known = Conditions(views)
    for view, (consts, strides, factors) in zip(views, tables, strict=True):
        width = _width(view, consts, factors, conditions)
        firsts = range(0, len(order), width)
        places = Places(
            tuple(consts[i] for i in firsts),
            width,
            strides,
            tuple(tuple(table[i] for i in firsts) for table in factors),
        )
        mask = None if conditions is None else known.mask([conditions[i] for i in firsts])
        made.append(Fragment(view, places, mask, order))
    return made


def evened(fragments: Sequence[Fragment]) -> list[Fragment]:
    """The fragments with a common access width, the gcd of their widths."""
    width = gcd(*(fragment.places.width for fragment in fragments))
    return [fragment.narrowed(width) for fragment in fragments]


def _order(views: Sequence[ViewData], loops: Sequence[Sequence[Dim]]) -> list[int]:
    """The logical index of each value, in the order with the widest accesses."""
    widths = [vector_width(view) for view in views]
    widest = max(range(len(views)), key=widths.__getitem__)
    own = list(loops[widest])
    vector = _vector_loops(own, widths[widest])
    order = [0]
    # Loops are compared by weight, since run-time strides cannot be compared here.
    inside = {loop.weight for loop in vector}
    for loop in [*(loop for loop in own if loop.weight not in inside), *reversed(vector)]:
        order = [number + step * loop.weight for number in order for step in range(loop.size)]
    return order


def _vector_loops(loops: Sequence[Dim], width: int) -> list[Dim]:
    """The loops through the vector of an element, fastest first."""
    found: list[Dim] = []
    run = 1
    while run < width:
        loop = next(each for each in loops if isinstance(each.stride, int) and each.stride == run)
        found.append(loop)
        run *= loop.size
    return found


def _table(loops: Sequence[Dim], order: Sequence[int]) -> tuple[list[int], tuple[Index, ...], list[list[int]]]:
    """For each value the constant part of its offset; the distinct run-time strides; and the factor of each stride per
    value."""
    strides: list[Index] = []
    consts = [0] * len(order)
    factors: list[list[int]] = []
    for loop in loops:
        steps = [number // loop.weight % loop.size for number in order]
        if isinstance(loop.stride, int):
            consts = [const + step * loop.stride for const, step in zip(consts, steps, strict=True)]
            continue
        same = next((i for i, stride in enumerate(strides) if stride is loop.stride), None)
        if same is None:
            strides.append(loop.stride)
            factors.append(steps)
        else:
            factors[same] = [a + b for a, b in zip(factors[same], steps, strict=True)]
    return consts, tuple(strides), factors


def _width(
    view: ViewData, consts: list[int], factors: list[list[int]], conditions: list[frozenset[Condition]] | None
) -> int:
    """The widest access that the view's vectors allow in this order."""
    if view.address_space is AddressSpace.LOCAL:
        return 1
    width = vector_width(view)
    while len(consts) % width or not _runs(width, consts, factors, conditions):
        width -= 1
    return width


def _runs(
    width: int, consts: list[int], factors: list[list[int]], conditions: list[frozenset[Condition]] | None
) -> bool:
    for first in range(0, len(consts), width):
        run = range(first, first + width)
        if any(consts[i] != consts[first] + i - first for i in run):
            return False
        if any(table[i] != table[first] for table in factors for i in run):
            return False
        if conditions is not None and any(conditions[i] != conditions[first] for i in run):
            return False
    return True


# Masks


def _conditions(views: Sequence[ViewData], order: Sequence[int]) -> list[frozenset[Condition]] | None:
    """The bounds conditions of each value over all views; None if no view has a limit."""
    if all(view.limits is None for view in views):
        return None
    found: list[set[Condition]] = [set() for _ in order]
    for which, view in enumerate(views):
        if view.limits is None:
            continue
        weight = 1
        sizes, widths = numbers_along(view), [extent(element) for element in element_axes(view)]
        for axis in reversed(range(view.rank)):
            if view.limits[axis] is not None:
                for conditions, number in zip(found, order, strict=True):
                    conditions.add((which, axis, number // weight % sizes[axis] // widths[axis]))
            weight *= sizes[axis]
    return [frozenset(conditions) for conditions in found]


class Conditions:
    """Evaluates bounds conditions; equal ones are computed once."""

    def __init__(self, views: Sequence[ViewData]) -> None:
        self.views = views
        self.singles: dict[Condition, Any] = {}
        self.joined: dict[frozenset[Condition], Any] = {}

    def mask(self, accesses: Sequence[frozenset[Condition]]) -> list[Any] | None:
        """The predicate of each access; None if all are always in bounds."""
        mask = [self._all(conditions) for conditions in accesses]
        return None if all(entry is True for entry in mask) else mask

    def _all(self, conditions: frozenset[Condition]) -> Any:
        if conditions not in self.joined:
            holds: Any = True
            for condition in sorted(conditions):
                holds = _both(holds, self._holds(condition))
            self.joined[conditions] = holds
        return self.joined[conditions]

    def _holds(self, condition: Condition) -> Any:
        if condition not in self.singles:
            which, axis, coordinate = condition
            limits = self.views[which].limits
            limit = None if limits is None else limits[axis]
            self.singles[condition] = True if limit is None else limit > coordinate
        return self.singles[condition]


def _both(a: Any, b: Any) -> Any:
    if isinstance(a, bool) or isinstance(b, bool):
        return b if a is True else a if b is True else False
    return a & b
