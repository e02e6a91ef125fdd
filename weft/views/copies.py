"""Cooperative copies: the threads of a block divide the elements by a thread layout.

    gl.copy_dram_to_sram(shared.vectorize[1, 4](), tile.vectorize[1, 4](), thread_layout=Layout.row_major(32, 8))

`dram` is global memory, `sram` shared memory, `local` thread-private memory. A global or shared side is divided among the
threads; a `local` side belongs to one thread as a whole. Out-of-bounds elements of masked views are not accessed; an
asynchronous copy writes zeros for them. `thread` is the number of the calling thread and `threads` the number of calling
threads. Threads beyond the thread layout copy nothing. The copies wait for nothing and place no barrier.

A `swizzle` permutes offsets in shared memory, counted in numbers from the view's first one, as Mojo's copies count them. The
numbers of a vector stay together: a vector lies where the swizzle puts its first number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import plus
from weft.layout.nested.layouts import Layout
from weft.views import swizzles
from weft.views.access import number
from weft.views.data import ViewData
from weft.views.fragments import Fragment, evened, together
from weft.views.partition import distributed, first_offset
from weft.views.storage import AddressSpace, Index
from weft.views.swizzles import Swizzling
from weft.views.threads import check_layout_of_threads, shares_of
from weft.views.transfers import check_async_width, check_source

if TYPE_CHECKING:
    from weft.views.tensor import LayoutTensor

_DRAM, _SRAM, _LOCAL = AddressSpace.GLOBAL, AddressSpace.SHARED, AddressSpace.LOCAL
_NAMES = {_DRAM: "global memory", _SRAM: "shared memory", _LOCAL: "a thread's own memory"}


@dataclass(frozen=True, slots=True)
class CopySide:
    """One side of a copy: a view, the layout of the threads that divide it (None: not divided), and its swizzle."""

    view: LayoutTensor
    threads: Layout | None = None
    swizzle: Swizzling | None = None
    axis: int | None = None

    def part(self, thread: Index) -> LayoutTensor:
        """One thread's part, without the swizzle."""
        if self.threads is None:
            return self.view
        return distributed(self.view, self.threads, thread, self.axis, None, guarded=True)

    def swizzled(self, fragment: Fragment, thread: Index) -> list[Fragment]:
        """A thread's accesses at their swizzled offsets: one fragment, or one per access."""
        if self.swizzle is None or self.threads is None:
            return [fragment]
        plain = swizzles.by_numbers(self.view)
        shares = shares_of(plain, self.threads, self.axis)
        inside = [*fragment.places.const]
        firsts = swizzles.starts(plain, shares)
        width = self.view.element_size
        if any(self.swizzle(first + step) % width for first in firsts for step in inside):
            raise fail(errors.SWIZZLE_VECTORS, swizzle=self.swizzle, view=self.view.history, width=width)
        index = number(self.view, thread)
        first = first_offset(plain, shares, self.threads, index)
        if swizzles.is_repeated(self.swizzle, firsts, inside):
            return [fragment.moved(plus(self.view.offset, self.swizzle(first)))]
        places = swizzles.scattered(self.swizzle, firsts, first, inside)
        return [fragment.access(i, plus(self.view.offset, place)) for i, place in enumerate(places)]


def copy_dram_to_sram(
    dst: LayoutTensor, src: LayoutTensor, thread_layout: Layout, thread: Index, *,
    dst_thread_layout: Layout | None = None, swizzle: Swizzling | None = None, threads: int | None = None,
) -> None:  # fmt: skip
    """Copy from global to shared memory. `dst_thread_layout`: the thread layout of the target, if different from the
    source's."""
    to = CopySide(dst, dst_thread_layout or thread_layout, swizzle)
    _copy("copy_dram_to_sram", (_DRAM, _SRAM), to, CopySide(src, thread_layout), thread, threads)


def copy_dram_to_sram_async(
    dst: LayoutTensor, src: LayoutTensor, thread_layout: Layout, thread: Index, *,
    dst_thread_layout: Layout | None = None, swizzle: Swizzling | None = None, threads: int | None = None,
) -> None:  # fmt: skip
    """Issue an asynchronous copy from global to shared memory; `async_copy_wait_all()` waits for those of the calling
    thread."""
    what = "copy_dram_to_sram_async"
    to, of = CopySide(dst, dst_thread_layout or thread_layout, swizzle), CopySide(src, thread_layout)
    # A mask would make the threads that take no part write zeros.
    active = _guard((to.threads, of.threads), dst, thread, threads)
    for target, source in _pairs(what, (_DRAM, _SRAM), to, of, thread, True):
        check_async_width(dst, src, target.places.width)
        target.view.storage.copy_async(
            target.view.offset, target.places, source.view.storage, source.view.offset, source.places, source.mask,
            None if active is True else active,
        )  # fmt: skip


def copy_sram_to_dram(
    dst: LayoutTensor, src: LayoutTensor, thread_layout: Layout, thread: Index, *,
    swizzle: Swizzling | None = None, threads: int | None = None,
) -> None:  # fmt: skip
    """Copy from shared to global memory."""
    to, of = CopySide(dst, thread_layout), CopySide(src, thread_layout, swizzle)
    _copy("copy_sram_to_dram", (_SRAM, _DRAM), to, of, thread, threads)


def copy_dram_to_local(
    dst: LayoutTensor, src: LayoutTensor, thread_layout: Layout, thread: Index, *, threads: int | None = None
) -> None:
    """Copy a thread's part of global memory to its private memory."""
    _copy("copy_dram_to_local", (_DRAM, _LOCAL), CopySide(dst), CopySide(src, thread_layout), thread, threads)


def copy_local_to_dram(
    dst: LayoutTensor, src: LayoutTensor, thread_layout: Layout, thread: Index, *, threads: int | None = None
) -> None:
    """Copy a thread's private memory to its part of global memory."""
    _copy("copy_local_to_dram", (_LOCAL, _DRAM), CopySide(dst, thread_layout), CopySide(src), thread, threads)


def copy_sram_to_local(
    dst: LayoutTensor, src: LayoutTensor, thread_layout: Layout, thread: Index, *,
    axis: int | None = None, swizzle: Swizzling | None = None, threads: int | None = None,
) -> None:  # fmt: skip
    """Copy a thread's part of shared memory to its private memory; with `axis` only that axis is divided, as in
    `distribute`."""
    of = CopySide(src, thread_layout, swizzle, axis)
    _copy("copy_sram_to_local", (_SRAM, _LOCAL), CopySide(dst), of, thread, threads)


def copy_local_to_shared(
    dst: LayoutTensor, src: LayoutTensor, thread_layout: Layout, thread: Index, *,
    swizzle: Swizzling | None = None, threads: int | None = None,
) -> None:  # fmt: skip
    """Copy a thread's private memory to its part of shared memory."""
    to = CopySide(dst, thread_layout, swizzle)
    _copy("copy_local_to_shared", (_LOCAL, _SRAM), to, CopySide(src), thread, threads)


def _copy(
    what: str, spaces: tuple[AddressSpace, AddressSpace], to: CopySide, of: CopySide, thread: Index, threads: int | None
) -> None:
    pairs = _pairs(what, spaces, to, of, thread, _guard((to.threads, of.threads), to.view, thread, threads))
    # All loads are issued before the first store, so that their latencies overlap.
    values = [source.load() for _, source in pairs]
    for (target, _), value in zip(pairs, values, strict=True):
        target.store(value)


def _pairs(
    what: str, spaces: tuple[AddressSpace, AddressSpace], to: CopySide, of: CopySide, thread: Index, guard: Any
) -> list[tuple[Fragment, Fragment]]:
    """The calling thread's pairs of target and source: one pair of fragments, or one per access if a swizzle scatters them.

    `guard` is an additional condition of every access."""
    _require(what, of.view, spaces[0], spaces)
    _require(what, to.view, spaces[1], spaces)
    parts = [to.part(thread), of.part(thread)]
    check_source(parts[0], parts[1], what)
    fragments = [fragment.guarded(guard) for fragment in together(parts, what)]
    if to.swizzle is None and of.swizzle is None:
        target, source = fragments
        return [(target, source)]
    both = evened(fragments)
    sides = [side.swizzled(fragment, thread) for side, fragment in zip((to, of), both, strict=True)]
    if len(sides[0]) != len(sides[1]):
        sides = [side if len(side) > 1 else fragment.apart() for side, fragment in zip(sides, both, strict=True)]
    return list(zip(*sides, strict=True))


def _require(what: str, view: Any, space: AddressSpace, spaces: tuple[AddressSpace, AddressSpace]) -> None:
    """Check that a view is in the memory space of the copy. Host arrays may stand for any space."""
    if not isinstance(view, ViewData):
        raise fail(errors.SOURCE, what=what, got=f"a {type(view).__name__}")
    if view.address_space not in (space, AddressSpace.GENERIC):
        source, target = (_NAMES[each] for each in spaces)
        raise fail(
            errors.SPACE, what=what, source=source, target=target, view=view.history, space=repr(view.address_space)
        )


def _guard(layouts: tuple[Layout | None, Layout | None], view: LayoutTensor, thread: Index, threads: int | None) -> Any:
    """The condition under which a thread takes part; True when all calling threads do."""
    holds: Any = True
    for layout in layouts:
        if layout is None:
            continue
        check_layout_of_threads(layout)
        count = layout.cosize()
        if threads is not None and threads < count:
            raise fail(errors.THREADS_FEW, threads=layout, count=count, block=threads)
        if threads is not None and threads > count:
            holds = thread < count
    return holds
