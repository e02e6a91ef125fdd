"""Distributed layouts: which register of which lane of which warp of which block holds each element of a tile.

Each class is a spelling; its meaning for a tile of a given shape is `to_linear(shape)`, a linear layout from
("register", "lane", "warp", "block") to ("dim0", "dim1", ...). A tile larger than the layout's own tile repeats it in more
registers, in `order`; a smaller one is broadcast: warps repeat first, then lanes, then registers.

This module neither chooses layouts nor moves data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import (
    WARP_SIZE,
    Step,
    TileLayout,
    check_bases,
    check_onto,
    check_order,
    check_powers_of_two,
    check_ranks,
    check_reshaped,
    check_tile_shape,
    cover,
    ints,
    listed,
    tile_dims,
    unresolved,
    vectors,
    whole_shape,
)
from weft.layout.cluster import Cga, block_bases, block_shape, cga_fields, check_held
from weft.layout.linear.f2 import Span, is_power_of_two, log2
from weft.layout.linear.maps import LinearLayout

IN_DIMS = ("register", "lane", "warp", "block")


class DistributedLayout(TileLayout):
    """Base of the layouts of tiles in registers."""

    __slots__ = ()

    ENDS: ClassVar[str] = "register"

    @property
    def num_warps(self) -> int | None:
        """Warps that the layout is spread over; None if it is not yet resolved."""
        raise NotImplementedError

    @property
    def is_resolved(self) -> bool:
        """Whether the layout maps elements to registers; AutoLayout and CoalescedLayout leave that to the compiler."""
        return True

    @property
    def num_ctas(self) -> int:
        """Blocks of a cluster that the layout is spread over."""
        return 1 << len(self.cga)

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles; () for a single block."""
        return ()

    def check_sizes(self, shape: Sequence[int]) -> None:
        """Raise LayoutError (layout-tile-shape, layout-tile-elements) where no tile, reshaped or not, has this shape."""
        check_reshaped(shape)

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether a tile of this shape has the layout's rank and, where the layout has a shape of its own, that shape."""
        return len(shape) == self.rank

    def copied(self, bits: int) -> DistributedLayout:
        """This layout of a single block with a copy in each of 2 ** bits blocks; call `in_cluster`, which checks."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _OpenLayout(DistributedLayout):
    """A placeholder that the compiler resolves to a layout; it has no map of its own."""

    @property
    def rank(self) -> int:
        """Unknown until resolved: raises."""
        return unresolved(self)

    @property
    def is_resolved(self) -> bool:
        """False."""
        return False

    @property
    def num_warps(self) -> int | None:
        """None: the kernel's warps, whatever their number."""
        return None

    def copied(self, bits: int) -> DistributedLayout:
        """The layout itself: the compiler resolves it with the blocks of the program."""
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AutoLayout(_OpenLayout):
    """A placeholder that the compiler resolves from the tile's uses."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CoalescedLayout(_OpenLayout):
    """A placeholder that the compiler resolves to the layout that makes a global memory access coalesced and vectorised."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockedLayout(DistributedLayout):
    """Blocks within blocks: each thread holds a small block, threads form a warp's, warps form the whole.

    Per dimension: `size_per_thread` elements, `threads_per_warp` threads (32 in all), `warps_per_cta` warps. `order` lists
    the dimensions fastest first, at every level. All entries are powers of two. The blocks of a cluster are given by
    `cga_layout`, or by `ctas_per_cga`, `cta_split_num` and `cta_order` (stored as `cga_layout`).
    """

    size_per_thread: Sequence[int]
    threads_per_warp: Sequence[int]
    warps_per_cta: Sequence[int]
    order: Sequence[int]
    ctas_per_cga: Sequence[int] | Sequence[Sequence[int]] | None = None
    cta_split_num: Sequence[int] | None = None
    cta_order: Sequence[int] | None = None
    cga_layout: Sequence[Sequence[int]] | None = None

    def _complete(self) -> None:
        levels = {
            "size_per_thread": ints(self.size_per_thread),
            "threads_per_warp": ints(self.threads_per_warp),
            "warps_per_cta": ints(self.warps_per_cta),
        }
        order = ints(self.order)
        check_ranks("BlockedLayout", **levels, order=order)
        for field, values in levels.items():
            check_powers_of_two(field, values)
        check_order("order", order, len(order))
        threads = levels["threads_per_warp"]
        if prod(threads) != WARP_SIZE:
            raise fail(errors.WARP_SIZE, threads=list(threads), product=prod(threads), size=WARP_SIZE)
        clustered = cga_fields(self, len(order))
        check_held(clustered["cga_layout"], len(order))
        self._freeze(**levels, order=order, **clustered)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.order)

    @property
    def num_warps(self) -> int:
        """Product of `warps_per_cta`."""
        return prod(self.warps_per_cta)

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles."""
        return vectors(self.cga_layout or ())

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over a tile of this shape."""
        levels = zip(IN_DIMS, (self.size_per_thread, self.threads_per_warp, self.warps_per_cta), strict=False)
        steps = [(level, d, sizes[d]) for level, sizes in levels for d in self.order]
        return assemble(steps, shape, self.order, self.cga)

    def copied(self, bits: int) -> BlockedLayout:
        """With a zero vector for each bit."""
        return replace(self, cga_layout=[[0] * self.rank] * bits)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SliceLayout(DistributedLayout):
    """The parent layout without its dimension `dim`: the result of a reduction along it, and the operand of `expand_dims`.

    Lanes and warps along the dropped dimension repeat elements; registers that would only repeat are dropped.
    """

    dim: int
    parent: DistributedLayout

    def _complete(self) -> None:
        check_parent("SliceLayout", self.parent)
        if self.dim < 0 or (self.parent.is_resolved and self.dim >= self.parent.rank):
            last = self.parent.rank - 1 if self.parent.is_resolved else "the last"
            raise fail(errors.SLICE_DIM, dim=self.dim, parent=self.parent, last=last)
        self._freeze(parent=self.parent.settled() if isinstance(self.parent, EditedLinearLayout) else self.parent)

    @property
    def rank(self) -> int:
        """One less than the parent's."""
        return self.parent.rank - 1

    @property
    def is_resolved(self) -> bool:
        """The parent's."""
        return self.parent.is_resolved

    @property
    def num_warps(self) -> int | None:
        """The parent's."""
        return self.parent.num_warps

    @property
    def cga(self) -> Cga:
        """The parent's, without the dimension."""
        return tuple(basis[: self.dim] + basis[self.dim + 1 :] for basis in self.parent.cga)

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether the parent takes a tile that measures 1 in the dropped dimension."""
        return self.parent.accepts(self._parent_shape(shape))

    def _parent_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[: self.dim], 1, *shape[self.dim :])

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over a tile of this shape."""
        return drop_dim(self.parent.to_linear(self._parent_shape(shape)), self.dim)

    def copied(self, bits: int) -> SliceLayout:
        """Of the parent's."""
        return SliceLayout(self.dim, self.parent.copied(bits))


def check_slices(layout: DistributedLayout, rank: int) -> None:
    """Reject slices of an unresolved layout that drop a dimension beyond the rank of their parent (layout-slice-dim)."""
    while isinstance(layout, SliceLayout):
        if layout.dim > rank:
            raise fail(errors.SLICE_DIM, dim=layout.dim, parent=layout.parent, last=rank)
        layout, rank = layout.parent, rank + 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedLinearLayout(DistributedLayout):
    """A linear layout spelled by its bases: per register, lane, warp and block bit the coordinates it moves to.

    `shape` is the tile's, in powers of two; every element must be reached. A larger tile repeats the layout in more registers,
    first along the dimension that the first registers move along. In a smaller one bases beyond it are zero, and registers that
    would only repeat elements are dropped. A tile may end early along dimensions whose upper bits lie in registers. A deep copy
    has lists for bases, which code may edit before the layout is used.
    """

    reg_bases: Sequence[Sequence[int]]
    lane_bases: Sequence[Sequence[int]]
    warp_bases: Sequence[Sequence[int]]
    block_bases: Sequence[Sequence[int]]
    shape: Sequence[int]

    _keywords: ClassVar[bool] = True

    def _complete(self) -> None:
        shape = ints(self.shape)
        check_tile_shape(shape)
        check_powers_of_two("the shape of DistributedLinearLayout", shape)
        bases = {f: vectors(getattr(self, f)) for f in ("reg_bases", "lane_bases", "warp_bases", "block_bases")}
        for field, given in bases.items():
            check_bases(field, given, shape)
        got, need = len(bases["lane_bases"]), log2(WARP_SIZE)
        if got != need:
            raise fail(errors.LANE_COUNT, got=got, need=need, size=WARP_SIZE)
        check_onto(_distributed(dict(zip(IN_DIMS, bases.values(), strict=True)), shape))
        self._freeze(**bases, shape=shape)
        for field, vectors_of in bases.items():
            object.__setattr__(self, field, listed(vectors_of))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def num_warps(self) -> int:
        """Two to the number of warp bases."""
        return 1 << len(self.warp_bases)

    @property
    def cga(self) -> Cga:
        """The block bases, which here count elements."""
        return vectors(self.block_bases)

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether the shape is the layout's own, or 1 where it differs; sizes between powers of two count as the next one."""
        whole = whole_shape(shape)
        return len(shape) == self.rank and all(n in (1, own) for n, own in zip(whole, self.shape, strict=True))

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over a tile of this shape. Raises LayoutError (layout-linear-shape) if it reaches not every element."""
        own = (self.reg_bases, self.lane_bases, self.warp_bases, self.block_bases)
        if shape == self.shape:
            return _distributed(dict(zip(IN_DIMS, own, strict=True)), shape)
        cut = [[[v if v < n else 0 for v, n in zip(basis, shape, strict=True)] for basis in bases] for bases in own]
        cut[0] = [basis for basis in cut[0] if any(basis)] + self._repeats(shape)
        found = _distributed(dict(zip(IN_DIMS, cut, strict=True)), shape)
        if not found.is_surjective:
            raise fail(errors.LINEAR_SHAPE, layout=self, own=list(self.shape), shape=list(shape))
        return found

    def _repeats(self, shape: tuple[int, ...]) -> list[list[int]]:
        """The register bases by which the layout repeats over a larger shape."""
        moved = [d for basis in self.reg_bases for d, step in enumerate(basis) if step]
        order = dict.fromkeys([*moved, *reversed(range(self.rank))])
        bits = ((d, bit) for d in order for bit in range(log2(self.shape[d]), log2(shape[d])))
        return [[(1 << bit) * (axis == d) for axis in range(self.rank)] for d, bit in bits]

    def __deepcopy__(self, _: Any) -> DistributedLinearLayout:
        return EditedLinearLayout.of(self)

    def copied(self, bits: int) -> DistributedLinearLayout:
        """With a zero vector for each bit."""
        return replace(self, block_bases=[[0] * self.rank] * bits)


class EditedLinearLayout(DistributedLinearLayout):
    """A deep copy of a linear layout. Its bases and shape are lists, as Gluon's are, and may be edited.

    It compares and hashes as `settled`, the layout that it has become, which is what kernels take."""

    __slots__ = ()

    @classmethod
    def of(cls, layout: DistributedLinearLayout) -> EditedLinearLayout:
        """A copy of a layout."""
        made = object.__new__(cls)
        for field in ("reg_bases", "lane_bases", "warp_bases", "block_bases"):
            object.__setattr__(made, field, [list(basis) for basis in getattr(layout, field)])
        object.__setattr__(made, "shape", list(layout.shape))
        return made

    def settled(self) -> DistributedLinearLayout:
        """The layout with the present bases. Raises what `DistributedLinearLayout` raises."""
        return DistributedLinearLayout(self.reg_bases, self.lane_bases, self.warp_bases, self.block_bases, self.shape)

    def __eq__(self, other: object) -> bool:
        # Tables may still hold a layout that has been edited since, even into none: comparing with it raises nothing.
        return isinstance(other, DistributedLinearLayout) and _present(self) == _present(other)

    def __hash__(self) -> int:
        return hash(self.settled())

    def __repr__(self) -> str:
        return repr(self.settled())

    def __reduce__(self) -> tuple[Any, ...]:
        return self.settled().__reduce__()

    def to_linear(self, shape: Sequence[int]) -> LinearLayout:
        """The layout over a tile of this shape."""
        return self.settled().to_linear(shape)


def _present(layout: DistributedLinearLayout) -> list[Any]:
    """Bases and shape of a linear layout, as they are now."""
    bases = (layout.reg_bases, layout.lane_bases, layout.warp_bases, layout.block_bases)
    return [*([list(basis) for basis in each] for each in bases), list(layout.shape)]


def check_num_warps(layout: DistributedLayout, num_warps: int, partition: str = "") -> None:
    """Raise LayoutError unless the layout is spread over `num_warps` warps; layouts not yet resolved fit any number.

    `partition` names the function whose warps they are, where they are not the kernel's."""
    if not is_power_of_two(num_warps):
        raise fail(errors.POWER_OF_TWO, what="num_warps", value=num_warps, found=num_warps)
    own = layout.num_warps
    if own is not None and own != num_warps:
        who, ask = ("the kernel", "launch with")
        if partition:
            who, ask = f"the partition of {partition}", "let gl.warp_specialize give it"
        raise fail(errors.NUM_WARPS, layout=layout, layout_warps=own, num_warps=num_warps, who=who, ask=ask)


def in_cluster(layout: DistributedLayout, num_ctas: int) -> DistributedLayout:
    """The layout in a program of `num_ctas` blocks; a layout of a single block becomes a copy of the tile in each block.

    Raises LayoutError (layout-num-ctas) if it is spread over another number of blocks."""
    if not layout.is_resolved or layout.num_ctas == num_ctas:
        return layout
    check_num_ctas(layout, layout.num_ctas, num_ctas)
    return layout.copied(log2(num_ctas))


def check_num_ctas(layout: TileLayout, own: int, num_ctas: int) -> None:
    """Raise LayoutError (layout-num-ctas) unless a layout is over all `num_ctas` blocks or over a single one (`own` 1)."""
    if own not in (1, num_ctas):
        bits = log2(num_ctas)
        raise fail(errors.NUM_CTAS, layout=layout, own=own, num_ctas=num_ctas, bits=bits)


def drop_dim(linear: LinearLayout, dim: int) -> LinearLayout:
    """A distributed linear layout projected along a dimension, without the registers that then only repeat others."""
    kept, ends = ([size for d, size in enumerate(sizes) if d != dim] for sizes in (linear.out_sizes, linear.sizes))
    dims = [d for index, d in enumerate(linear.out_dims) if index != dim]
    projected = linear.sublayout(linear.in_dims, dims).reshape_outs(tile_dims(kept))
    span = Span()
    return projected.with_columns("register", [c for c in projected.columns["register"] if span.add(c)]).ending(ends)


def _distributed(bases: Mapping[str, Sequence[Sequence[int]]], shape: Sequence[int]) -> LinearLayout:
    return LinearLayout.make({d: bases[d] for d in IN_DIMS}, tile_dims(shape))


def assemble(steps: Iterable[Step], shape: Sequence[int], order: Iterable[int], cga: Cga) -> LinearLayout:
    """The tile that `steps` build within a block, repeated in registers up to the shape, then spread over blocks."""
    part = block_shape(cga, shape)
    known = list(steps)
    covered = [prod(size for _, dim, size in known if dim == d) for d in range(len(shape))]
    more: list[Step] = [("register", d, max(part[d] // covered[d], 1)) for d in order]
    bases = cover([*known, *more], part, IN_DIMS)
    return _distributed({**bases, "block": block_bases(cga, shape)}, shape)


def check_parent(owner: str, parent: object) -> None:
    """The parent of a layout is a distributed layout."""
    if not isinstance(parent, DistributedLayout):
        raise fail(errors.NOT_DISTRIBUTED, owner=owner, parent=parent)
