"""Masks of every form at loads, stores, selections and copies: both stages give the same bits, or the same report.

A mask is a conjunction or disjunction of comparisons with limits inside, outside or undefined. The numbers compared count up,
down or in steps, wrap, or belong to rows. The subject are the vectors that such a mask cuts.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import tiles
from tests.passes.lower.rules.test_shared import alloc
from tests.support import POISON, any_bits, lowered, ops_of, simulate, tile_kernel, warps_of
from weft.errors import CompilationError, UserError
from weft.ir.types import float8e5, float16, float32, float64, int1, int8, int16, int32, int64, uint32, uint64
from weft.layout import BlockedLayout, SliceLayout, SwizzledSharedLayout
from weft.ops import arith, async_copy, memory, program, regs, shared, sync, tile

LAW = settings(deadline=None, max_examples=examples(120))
COMPARED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
"""Comparisons, and with their sides exchanged."""
ELEMENTS = [int1, int8, float8e5, float16, float32, float64]
ROOM = 128
"""Elements before and behind those that an access may have."""


def verdict(func, arguments):
    """The bytes of all arrays, or the code and place of the report."""
    try:
        arrays, _ = simulate(func, arguments, (2,))
    except UserError as error:
        return error.code, error.loc
    return [array.tobytes() for array in arrays]


def check_verdicts(k):
    """The verdict, which is that of both stages. Gives the lowered function, too."""
    func = k.finished()
    after = lowered(func)
    found = verdict(func, k.arguments)
    assert found == verdict(after, k.arguments)
    return found, after


class Masks:
    """Random masks over a tile of the numbers `counters`, of which none is larger than `most`."""

    def __init__(self, k, draw, counters, most, undefined):
        self.k, self.draw, self.counters, self.most, self.undefined = k, draw, counters, most, undefined

    def one_of(self, *options):
        return self.draw(st.sampled_from(options))

    def number(self, low, high):
        return self.draw(st.integers(low, high))

    def mask(self):
        k, mask = self.k, None
        for _ in range(self.number(1, 3)):
            x = self.widened(self.counted(self.one_of(*self.counters)))
            limit, predicate = self.limit(x), self.one_of("lt", "lt", *COMPARED)
            turned = self.draw(st.booleans())
            one = k.cmp(COMPARED[predicate], limit, x) if turned else k.cmp(predicate, x, limit)
            kind = self.one_of(arith.and_, arith.and_, arith.and_, arith.or_)
            mask = one if mask is None else k.emit(kind, mask, one)
        return mask

    def counted(self, x):
        """Numbers that count up from some number, in steps, down, or out of order."""
        k, spread = self.k, lambda number, divisor=1: self.k.splat(self.k.number_in(number, int32, divisor), x)
        step = self.one_of(2, 4, 8)
        programs = k.splat(k.emit(program.program_id, axis=0), x)
        match self.number(0, 9):
            case 0:
                return k.add(x, spread(self.number(-5, 5) * step, step))
            case 1:
                return k.add(x, k.number(self.number(-20, 20), x))
            case 2:
                return k.mul(k.emit(arith.div, x, k.number(step, x)), k.number(step, x))
            case 3:
                return k.emit(self.one_of(arith.rem, arith.div, arith.xor), x, k.number(step, x))
            case 4:
                return k.mul(x, self.one_of(k.number(step, x), spread(step)))
            case 5:
                return k.emit(arith.sub, k.number(self.most, x), x)
            case 6:
                return k.add(x, k.mul(programs, self.one_of(k.number(13, x), spread(16, 16))))
            case _:
                return x

    def widened(self, x):
        """The same as numbers of another type, which wrap if they are negative and the type is not."""
        k = self.k
        types = self.one_of((), (), (int64,), (uint64,), (uint32,), (int16, int32), (uint32, int64), (int64, int32))
        for dtype in types:
            x = k.cast(x, dtype)
        if types in ((int64,), (uint64,)) and self.draw(st.booleans()):
            x = k.add(x, k.splat(k.number_in(self.number(-9 if types == (int64,) else 0, 9), types[0], 1), x))
        return x

    def limit(self, x):
        """A limit that is known to be a multiple of a number, at an end of the type, or undefined."""
        k, dtype = self.k, x.type.element
        divisor = self.one_of(1, 1, 2, 4, 8, 16)
        near = st.one_of(st.integers(-9, self.most + 9), st.integers(0, 24)).map(lambda n: n - n % divisor)
        number = self.draw(near)
        if dtype.is_int_unsigned():
            number = abs(number)
        elif self.number(0, 19) == 0:
            number, divisor = self.one_of(dtype.min_value, dtype.max_value), 1
        if self.undefined and self.draw(st.booleans()):
            nothing = k.pointer_in(np.array([number]).astype(f"i{dtype.itemsize}"), dtype)
            return k.splat(k.emit(memory.load, nothing, k.number_in(False, int1), None), x)
        return k.splat(k.number_in(number, dtype, divisor), x)


def spread(k, line, axis, shape):
    return k.broadcast(k.expand(line, 1 - axis), shape)


def program_of(data, element, ways, undefined):
    """A kernel of one way to use a random mask, in a random layout."""
    draw = data.draw
    rank = draw(st.sampled_from([1, 2]))
    usual = st.sampled_from([1, 2, 4, 8, 16]).map(lambda each: (BlockedLayout([each], [32], [4], [0]), [2048]))
    grid = st.sampled_from([2, 4, 8, 16]).map(lambda each: (BlockedLayout([1, each], [4, 8], [2, 2], [1, 0]), [16, 64]))
    layout, shape = draw(st.one_of(usual if rank == 1 else grid, tiles(rank)))
    shape = tuple(shape)
    k = tile_kernel(num_warps=warps_of(layout, shape))
    pitch = shape[-1] + draw(st.sampled_from([0, 0, 3, 8]))
    if rank == 2:
        lines = [k.emit(tile.arange, start=0, end=shape[a], layout=SliceLayout(1 - a, layout)) for a in (0, 1)]
        rows, columns = (spread(k, line, axis, shape) for axis, line in enumerate(lines))
        step = k.number(pitch, rows)
        if draw(st.booleans()):
            step = k.splat(k.number_in(pitch, int32, pitch & -pitch), rows)
        places = k.add(k.mul(rows, step), columns)
        counters = [rows, columns, columns, places]
    else:
        places = k.emit(tile.arange, start=0, end=shape[0], layout=layout)
        counters = [places]
    most = (prod(shape[:-1]) - 1) * pitch + shape[-1] if rank == 2 else shape[0]
    return Use(k, layout, shape, places, most, element, Masks(k, draw, counters, most, undefined)), draw(
        st.sampled_from(ways)
    )


class Use:
    """Accesses of an array under a mask, from a first element that is negative in half of the cases."""

    def __init__(self, k, layout, shape, places, most, element, masks):
        self.k, self.layout, self.shape, self.element, self.masks = k, layout, shape, element, masks
        self.room = masks.one_of(ROOM, ROOM, 0)
        first = masks.one_of(0, 0, 8, -8, 16) if self.room else 0
        self.size = most + 2 * self.room
        offsets = k.add(places, k.splat(k.number_in(first, int32, 8), places)) if first else places
        self.offsets = k.cast(offsets, int64) if masks.draw(st.booleans()) else offsets
        self.mask = masks.mask()
        # What is masked off is reported where it is used; then both stages must say so.
        self.shown = None if masks.undefined and masks.draw(st.booleans()) else self.mask
        self.number = k.splat(k.number_in(3 if element.is_int() and not element.is_bool() else 1, element), places)

    def addresses(self, array):
        k = self.k
        start = k.emit(memory.addptr, k.pointer_in(array, self.element), k.number(self.room))
        return k.emit(memory.addptr, k.splat(start, self.offsets), self.offsets)

    def source(self):
        return self.addresses(any_bits(self.k.rng, self.element, self.size))

    def load(self):
        self.k.output(self.k.emit(memory.load, self.source(), self.mask, None), self.shown)

    def load_or(self):
        others = self.k.input(self.element, self.shape, self.layout)
        other = self.masks.one_of(self.number, others)
        self.k.output(self.k.emit(memory.load, self.source(), self.mask, other))

    def store(self):
        poison = np.full(self.size * self.element.itemsize, 1 if self.element.is_bool() else POISON, np.uint8)
        value = self.k.emit(memory.load, self.source(), self.shown and self.mask, None)
        self.k.emit(memory.store, self.addresses(poison), value, self.mask)

    def select(self):
        x = self.k.input(self.element, self.shape, self.layout)
        self.k.output(self.k.emit(arith.select, self.mask, x, self.number))

    def copy(self):
        k, zeros = self.k, self.masks.draw(st.booleans())
        held = SwizzledSharedLayout(1, 1, 1, [0])
        if len(self.shape) == 2:
            held = self.masks.one_of(SwizzledSharedLayout(1, 1, 1, [1, 0]), SwizzledSharedLayout(8, 1, 8, [1, 0]))
        smem = alloc(k, self.element, self.shape, held)
        k.emit(async_copy.global_to_shared, smem, self.source(), self.mask, zeros=zeros)
        k.emit(async_copy.commit)
        k.emit(async_copy.wait, pendings=0)
        k.emit(sync.barrier)
        k.output(k.emit(shared.load, smem, layout=self.layout), None if zeros else self.shown)


@LAW
@given(st.data(), st.sampled_from(ELEMENTS), st.booleans())
def test_accesses(data, element, undefined):
    use, way = program_of(data, element, ["load", "load_or", "store", "select"], undefined)
    getattr(use, way)()
    check_verdicts(use.k)


@LAW
@given(st.data(), st.sampled_from([int8, float16, float32, int64]), st.booleans())
def test_copies(data, element, undefined):
    use, _ = program_of(data, element, ["copy"], undefined)
    use.copy()
    try:
        check_verdicts(use.k)
    except CompilationError as error:
        if error.code != "async-copy-width":
            raise


# Widths


def widths(limit, divisor, per_thread=8):
    """Vectors of a load of float16 under `at < limit`, and the parts of them that are accessed one by one."""
    k = tile_kernel()
    at = k.emit(tile.arange, start=0, end=4096, layout=BlockedLayout([per_thread], [32], [4], [0]))
    mask = k.cmp("lt", at, k.splat(k.number_in(limit, int32, divisor), at))
    x = k.load(k.pointer_in(any_bits(k.rng, float16, 4096), float16), at, mask)
    k.output(k.emit(arith.select, mask, x, k.splat(k.number_in(0.5, float16), at)))
    _, after = check_verdicts(k)
    return (
        [op.attrs["vec"] for op in ops_of(after, memory.load_regs)],
        [op.attrs["vec"] for op in ops_of(after, memory.load_part)],
        [op.operand("end") is not None for op in ops_of(after, regs.within)],
    )


@pytest.mark.parametrize("limit", [0, 4, 12, 2044, 2048, 4096, 5000])
def test_a_limit_that_divides_less_than_a_vector(limit):
    """One comparison serves four registers of a selection, and is not the exact limit of vectors of eight."""
    assert widths(limit, 4) == ([8], [8], [False])
    assert widths(limit, 2) == ([8], [8], [True])
    assert widths(limit - limit % 8, 8) == ([8], [], [False])


# What is undefined, or wrapped


@pytest.mark.parametrize("way", ["load", "store"])
def test_a_limit_that_wrapped(way):
    """It cuts the one vector that there is, so that only the access to its parts depends on it."""
    k = tile_kernel()
    at = k.emit(tile.arange, start=0, end=1024, layout=BlockedLayout([8], [32], [4], [0]))
    most, five = k.number_in(int32.max_value, int32, 1), 5
    limit = k.add(k.add(most, k.number(five + 1)), k.number(int32.min_value))
    mask = k.cmp("lt", at, k.splat(limit, at))
    ptr = k.pointer_in(any_bits(k.rng, float16, 1024), float16)
    if way == "load":
        k.output(k.load(ptr, at, mask), mask)
    else:
        k.store(ptr, at, k.number(0.5, k.cast(at, float16)), mask)
    (code, _), after = check_verdicts(k)
    assert code == "hazard-wrapped-mask"
    assert ops_of(after, memory.load_part if way == "load" else memory.store_part)


@pytest.mark.parametrize("count", [20, 40])
def test_a_selection_by_an_undefined_limit(count):
    """Undefined are those elements that the other limit does not exclude."""
    k = tile_kernel()
    at = k.emit(tile.arange, start=0, end=1024, layout=BlockedLayout([8], [32], [4], [0]))
    number = k.emit(memory.load, k.pointer_in(np.array([30]), int32), k.number_in(False, int1), None)
    known = k.cmp("lt", at, k.splat(k.number_in(21, int32, 1), at))
    mask = k.emit(arith.and_, known, k.cmp("ge", at, k.splat(number, at)))
    found = k.emit(arith.select, mask, k.input(float16, (1024,), at.type.layout), k.number(0.5, k.cast(at, float16)))
    k.output(found, k.cmp("ge", at, k.number(count, at)))
    verdict, after = check_verdicts(k)
    assert len(ops_of(after, regs.within)) == 1
    assert isinstance(verdict, tuple) == (count == 20)


@pytest.mark.parametrize(("first", "count"), [(3, 100), (3, 1), (11, 4), (3, 0)])
def test_what_a_copy_takes_along(first, count):
    """Elements before the first one are undefined, and no program waits for another that writes them."""
    found = []
    for masked in (True, False):
        k = tile_kernel()
        at = k.emit(tile.arange, start=0, end=1024, layout=BlockedLayout([8], [32], [4], [0]))
        inside = [
            k.cmp("ge", at, k.splat(k.number_in(first, int32, 1), at)),
            k.cmp("lt", at, k.splat(k.number_in(first + count, int32, 1), at)),
        ]
        mask = k.emit(arith.and_, *inside)
        ptr = k.pointer_in(any_bits(k.rng, float16, 1024), float16)
        before = k.emit(arith.xor, inside[0], k.splat(k.number_in(True, int1), at))
        programs = k.emit(program.program_id, axis=0)
        second = k.splat(k.cmp("eq", programs, k.number(1)), at)
        k.store(ptr, at, k.splat(k.number_in(1.5, float16), at), k.emit(arith.and_, before, second))
        smem = alloc(k, float16, (1024,), SwizzledSharedLayout(1, 1, 1, [0]))
        k.emit(async_copy.global_to_shared, smem, k.address(ptr, at), mask, zeros=False)
        k.emit(async_copy.commit)
        k.emit(async_copy.wait, pendings=0)
        k.emit(sync.barrier)
        x = k.emit(shared.load, smem, layout=at.type.layout)
        own = k.emit(arith.and_, mask, k.emit(arith.xor, second, k.splat(k.number_in(True, int1), at)))
        k.output(x, own if masked else None)
        verdict, after = check_verdicts(k)
        (copy,) = ops_of(after, async_copy.copy)
        assert copy.attrs["vec"] == 8 and copy.operand("begin") is not None
        found.append(verdict)
    assert isinstance(found[0], list)
    assert found[1][0] == "hazard-undefined"
