"""Infer the layouts that the author left to the compiler.

    %o = tile.arange {layout = AutoLayout()}                         %o = tile.arange {layout = BlockedLayout(...)}
    %r = tile.set_layout %o {layout = BlockedLayout(...)}      -->
    %s = arith.add %r, %t                                            %s = arith.add %o, %t

Layouts propagate forward and backward over the constraints of operations (`weft.analysis.layout_links`) to `AutoLayout` tiles.
If none reaches a tile that is loaded from or stored to tensor memory, it gets that of `get_tmem_reg_layout`. If none reaches a
`CoalescedLayout` tile, it gets the layout in which its memory accesses are widest. At last, a tile that is only converted gets
the layout that it is converted to. The pass inserts no conversions: a tile whose uses need different layouts is an error, and
so is a tile without any constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from weft.analysis.facts import facts
from weft.analysis.layout_links import Link, Tie, links_of
from weft.errors import ErrorGroup, Loc, UserError, fail
from weft.errors import compiler as errors
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.rebuild import Operands, Rebuilder, Replacement
from weft.ir.types import Pointer, TensorType, TileType, Type, tile_type
from weft.layout import CoalescedLayout, DistributedLayout
from weft.layout.cluster import block_shape
from weft.layout.tensor_memory.layouts import TensorMemoryLayout
from weft.layout.tensor_memory.load_store import register_layout
from weft.ops import memory, tensor_memory, tile
from weft.ops.control import run_by
from weft.passes.tile.coalesce import AddressTile, coalesced, row_major
from weft.targets import Target

ACCESSES = (memory.load, memory.store, memory.atomic, memory.atomic_cas, memory.poll)


def resolve_layouts(func: Func, target: Target) -> Func:
    """The function with every layout resolved and without `tile.set_layout`; the same object if it is so already.

    Raises CompilationError if a tile needs two layouts (resolve-conflict) or has none (resolve-open).
    """
    if not any(_is_open(result) or op.kind is tile.set_layout for op in walk(func.body) for result in op.results):
        return func
    layouts = _Layouts(func)
    layouts.propagate()
    layouts.meet_tensor_memory()
    layouts.coalesce(target)
    layouts.follow_conversions()
    layouts.check()
    out = _Retyper(layouts)
    return func.with_body(out.copy_region(func.body))


def _is_open(value: Value) -> bool:
    return isinstance(value.type, TileType) and not value.type.resolved


@dataclass(frozen=True, slots=True)
class Found:
    """A layout and the line that demands it."""

    layout: DistributedLayout
    loc: Loc | None


class _Layouts:
    """Equivalence classes of values with the same unresolved layout (a union-find forest), links between classes, and the
    layouts found so far."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.parents: dict[Value, Value] = {}
        self.members: dict[Value, list[Value]] = {}
        self.found: dict[Value, Found] = {}
        self.places: dict[Value, Loc | None] = {}
        self._news: list[Value] = []
        self.warps: dict[Value, int] = {}
        relations = [relation for op, warps in run_by(func) for relation in self._enter(op, warps)]
        ties = [relation for relation in relations if isinstance(relation, Tie)]
        for tie in ties:
            self._unite(tie.values)
        self._links = [relation for relation in relations if isinstance(relation, Link)]
        self._links_of: dict[Value, list[Link]] = {}
        for link in self._links:
            for value in (link.source, link.target):
                self._links_of.setdefault(self.root(value), []).append(link)
        for tie in ties:
            self._seed(tie)
        for link in self._links:
            self._follow(link)

    def _enter(self, op: Op, warps: int) -> Iterator[Tie | Link]:
        for value in (*op.results, *(arg for region in op.regions for arg in region.args)):
            self.places[value] = op.loc
            if _is_open(value):
                self.members[value] = [value]
                self.warps[value] = warps
        return links_of(op)

    def root(self, value: Value) -> Value:
        """The representative of a value's class."""
        while (parent := self.parents.get(value)) is not None:
            value = parent
        return value

    def layout(self, value: Value) -> DistributedLayout | None:
        """The layout of a tile, if it is known."""
        assert isinstance(value.type, TileType)
        if value.type.resolved:
            return value.type.layout
        found = self.found.get(self.root(value))
        return None if found is None else found.layout

    def _unite(self, values: Iterable[Value]) -> None:
        first, *others = dict.fromkeys(self.root(value) for value in values if _is_open(value))
        for other in others:
            self.parents[other] = first
            self.members[first] += self.members.pop(other)

    def _seed(self, tie: Tie) -> None:
        """The resolved values of a tie determine the layout of the unresolved ones."""
        opened = next(value for value in tie.values if _is_open(value))
        for value in tie.values:
            if not _is_open(value):
                self._assign(opened, self.layout(value), tie.op)

    def _assign(self, value: Value, layout: DistributedLayout | None, op: Op) -> None:
        """Set the layout that an operation demands of a value; raise if it contradicts the known one."""
        if layout is None:
            return
        root = self.root(value)
        before = self.found.get(root)
        if before is None:
            self.found[root] = Found(layout, op.loc)
            self._news.append(root)
        elif not _agree(before.layout, layout, self.members[root]):
            raise self._conflict(value, layout, op)

    def _conflict(self, value: Value, layout: DistributedLayout, op: Op) -> UserError:
        root = self.root(value)
        before = self.found[root]
        related = (("the first layout is needed here", before.loc),) if before.loc is not None else ()
        return fail(
            errors.LAYOUT_CONFLICT, loc=op.loc, related=related,
            value=self._name(root), first=before.layout, second=layout,
        )  # fmt: skip

    def _follow(self, link: Link) -> None:
        """Infer one side of a link from the other, or check that they agree if both are known."""
        source, target = self.layout(link.source), self.layout(link.target)
        try:
            if source is None and target is not None:
                self._assign(link.source, link.backward(target), link.op)
            elif source is not None and _is_open(link.target):
                self._check(link, link.forward(source), target)
        except UserError as error:
            raise error.at(link.op.loc) from None

    def _check(self, link: Link, follows: DistributedLayout | None, target: DistributedLayout | None) -> None:
        """Check that the source's layout implies the target's. If not, the conflict is reported at the source if another
        source layout would fit."""
        wanted = link.backward(target) if target is not None and _is_open(link.source) else None
        members = self.members[self.root(link.target)]
        if target is None or follows is None or wanted is None or _agree(target, follows, members):
            self._assign(link.target, follows, link.op)
        else:
            raise self._conflict(link.source, wanted, link.op)

    def propagate(self) -> None:
        """Propagate newly found layouts over links to a fixpoint."""
        while self._news:
            for link in self._links_of.get(self._news.pop(), ()):
                self._follow(link)

    def meet_tensor_memory(self) -> None:
        """Give unresolved tiles that are loaded from or stored to tensor memory a layout that `tcgen05.ld` and `st` support."""
        for op in walk(self.func.body):
            if op.kind not in (tensor_memory.load, tensor_memory.store):
                continue
            held = op.result if op.kind is tensor_memory.load else op.operand("value")
            if held is not None and self.layout(held) is None:
                try:
                    self._assign(held, _in_registers(op.operands[0], self.warps[held]), op)
                except UserError as error:
                    raise error.at(op.loc) from None
                self.propagate()

    def coalesce(self, target: Target) -> None:
        """Choose layouts for classes with a `CoalescedLayout`: first those with memory accesses, then the others as if they
        were row-major in memory."""
        wishes = self._wishes()
        if not wishes:
            return
        accesses = self._accesses(wishes)
        for root in (*accesses, *wishes):
            if root not in self.found:
                given = accesses.get(root) or [row_major(*_measures(member.type)) for member in self.members[root]]
                widest, blocks = target.max_access_bits // 8, self.func.attrs.num_ctas
                self.found[root] = Found(coalesced(given, self.warps[root], widest, blocks), self.places[root])
                self._news.append(root)
                self.propagate()

    def _wishes(self) -> dict[Value, None]:
        """Classes with a `CoalescedLayout`, and those that links connect to them."""
        wishes = {
            root: None
            for root, members in self.members.items()
            if root not in self.found and any(_is_coalesced(member.type) for member in members)
        }
        for link in self._links:
            if self.root(link.source) in wishes and self.layout(link.target) is None:
                wishes[self.root(link.target)] = None
        return wishes

    def _accesses(self, wishes: dict[Value, None]) -> dict[Value, list[AddressTile]]:
        known = facts(self.func, addresses=True)
        accesses: dict[Value, list[AddressTile]] = {}
        for op in walk(self.func.body):
            if op.kind not in ACCESSES:
                continue
            pointer = op.uses[0]
            if _is_open(pointer) and self.root(pointer) in wishes:
                access = AddressTile(_measures(pointer.type)[0], known[pointer], _measures(pointer.type)[1])
                accesses.setdefault(self.root(pointer), []).append(access)
        return accesses

    def follow_conversions(self) -> None:
        """Give an unresolved tile that is converted the layout that it is converted to."""
        for op in walk(self.func.body):
            if op.kind is not tile.convert:
                continue
            (source,) = op.uses
            if self.layout(source) is None:
                self._assign(source, self.layout(op.result), op)
                self.propagate()

    def check(self) -> None:
        """Raise one error for all classes without a layout."""
        missing = [self._missing(root) for root in self.members if root not in self.found]
        if missing:
            raise missing[0] if len(missing) == 1 else ErrorGroup(missing)

    def _missing(self, root: Value) -> UserError:
        members = set(self.members[root])
        uses = (op.loc for op in walk(self.func.body) if members.intersection(op.uses))
        used = next((loc for loc in uses if loc is not None and loc != self.places[root]), None)
        related = (("it is used here", used),) if used is not None else ()
        return fail(errors.LAYOUT_OPEN, loc=self.places[root], related=related, value=self._name(root))

    def _name(self, root: Value) -> str:
        names = [member.name for member in self.members[root] if member.name]
        return repr(names[0]) if names else "this tile"


def _agree(a: DistributedLayout, b: DistributedLayout, members: list[Value]) -> bool:
    """Whether two layouts are equal for the shape of every tile of a class."""
    if a == b:
        return True
    shapes = {member.type.shape for member in members if isinstance(member.type, TileType)}
    return all(a.accepts(s) and b.accepts(s) and a.to_linear(s) == b.to_linear(s) for s in shapes)


def _in_registers(handle: Value | None, num_warps: int) -> DistributedLayout:
    """The register layout of a tile that is loaded from or stored to a handle. Raises LayoutError."""
    assert handle is not None and isinstance(handle.type, TensorType)
    t, layout = handle.type, handle.type.layout
    if isinstance(layout, TensorMemoryLayout):
        # A slice of a tile may be smaller than the layout's block.
        part = block_shape(layout.cga, t.shape)
        layout = replace(layout, block=tuple(map(min, layout.block, part)))
    return register_layout(t.element.bits, t.shape, layout, num_warps)


def _measures(type: Type) -> tuple[tuple[int, ...], int]:
    """The shape of a tile and its element size in bytes; for pointers, that of the pointed-to type."""
    assert isinstance(type, TileType)
    element = type.element
    return type.shape, (element.element_ty if isinstance(element, Pointer) else element).itemsize


def _is_coalesced(type: Type) -> bool:
    return isinstance(type, TileType) and isinstance(type.layout, CoalescedLayout)


class _Retyper(Rebuilder):
    """Copies a function with the layouts found. Operations that create tiles get them; typing rules derive the others."""

    __slots__ = ("layouts",)

    def __init__(self, layouts: _Layouts) -> None:
        super().__init__(self._retype)
        self.layouts = layouts

    def type(self, value: Value) -> Type:
        """The type of a value with its layout resolved."""
        if not _is_open(value):
            return value.type
        layout = self.layouts.layout(value)
        assert isinstance(value.type, TileType) and layout is not None
        return tile_type(value.type.element, value.type.shape, layout)

    def copy_region(self, region: Region, args: tuple[Value, ...] | None = None) -> Region:
        """As `Rebuilder.copy_region`, with resolved types for the arguments."""
        return super().copy_region(region, args or tuple(Value(self.type(arg), arg.name) for arg in region.args))

    def _retype(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op.kind is tile.set_layout:
            (x,) = operands
            assert x is not None
            return (x,)
        if len(op.results) != 1 or not _is_open(op.result):
            return None
        type = self.type(op.result)
        assert isinstance(type, TileType)
        given: dict[str, Any] = {"type": type, "layout": type.layout}
        changed = {name: given[name] for name in op.attrs if name in given}
        return (out.emit(op.kind, *operands, name=op.result.name, **{**op.attrs, **changed}),) if changed else None
