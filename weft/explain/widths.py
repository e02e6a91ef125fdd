"""The width of global-memory accesses, and the reason when it is less than 16 bytes.

The reason comes from the lowering (`weft.passes.lower.vectors`). If too little was known of an address or a mask, the kernel is
lowered again with arguments assumed to be divisible; the report names those arguments without which the access stays narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weft import compiler
from weft.errors import Loc
from weft.explain.notes import Note, in_bytes
from weft.ir.core import Op, OpDef, ParamFacts, Value, walk
from weft.ir.types import Pointer
from weft.ops import async_copy, memory
from weft.ops.check import pointer_of
from weft.passes.lower.widths import Reason, Width
from weft.passes.pipeline import access_widths, tile_pipeline
from weft.runtime.specialise import ALIGNMENT

_COPY = "async_copy.global_to_shared"
_INSTRUCTIONS: dict[OpDef, tuple[str, str]] = {
    memory.load_regs: ("load", "registers"),
    memory.store_regs: ("store", "registers"),
    async_copy.copy: (_COPY, "places"),
}
"""Names of instructions in the report, and the attribute with one entry per access."""
_PARTS: dict[OpDef, str] = {memory.load_part: "load", memory.store_part: "store"}
"""Instructions for elements of accesses that the mask cuts, counted with those that are whole."""
_IN_SHARED = f", not {ALIGNMENT}: no more of a thread's elements are neighbours in shared memory"
_REASONS: dict[Reason, str] = {
    "elements": "a thread holds {have} of the tile: use a layout with {most} contiguous elements a thread",
    "neighbours": "no {wider} elements of a thread are neighbours in memory: use a layout with {most} contiguous elements a "
    "thread along the dimension of stride 1",
    "stride": "the stride between a thread's elements is known at run time only: pass 1, for which a launch compiles the "
    "kernel anew, or use a layout with {most} contiguous elements a thread along the dimension of stride 1",
    "offsets": "the offsets are not known to count up by one (loaded ones, // and % do not tell): promise it with "
    "gl.max_contiguous and gl.multiple_of",
    "alignment": "the addresses are not known to be multiples of {bytes} bytes",
    "mask": "the mask is not known to be equal for {wider} neighbours",
}


@dataclass(frozen=True, slots=True)
class Missing:
    """An argument that is not known to be a multiple of `divisor` (in bytes for an array)."""

    name: str
    divisor: int
    array: bool


_Places = Mapping[tuple[Loc | None, int], Width]
"""Widths by location of the access and its number there: an unrolled line has many accesses."""


def notes(stages: compiler.Stages, *, together: bool) -> Iterator[Note]:
    """Notes on accesses to global memory, including cp.async, at their final width.

    `together` adds up those of a line, for thread-level kernels, in which an unrolled line has many accesses.
    """
    why = _reasons(stages)
    counts: dict[tuple[str, int, str], int] = {}
    locs: dict[str, Loc | None] = {}
    cut: set[tuple[str, Loc | None]] = set()
    for number, op in enumerate(walk(stages.lowered.body)):
        if op.kind in _PARTS:
            cut.add((_PARTS[op.kind], op.loc))
        if op.kind not in _INSTRUCTIONS:
            continue
        name, table = _INSTRUCTIONS[op.kind]
        place = str(op.loc) if together else str(number)
        locs.setdefault(place, op.loc)
        key = name, _access_bytes(op), place
        counts[key] = counts.get(key, 0) + len(op.attrs[table])
    for (name, size, place), times in counts.items():
        loc = locs[place]
        text, missing = why.get((loc, size), ("" if size >= ALIGNMENT or name != _COPY else _IN_SHARED, False))
        text += ", elements one by one where the mask cuts them" if (name, loc) in cut else ""
        yield Note("global access", loc, f"{name}: {times} times {in_bytes(size)} a thread{text}", warning=missing)


def _access_bytes(op: Op) -> int:
    ptr = op.operand("ptr")
    assert ptr is not None
    return op.attrs["vec"] * pointer_of(ptr).element_ty.itemsize


def _reasons(stages: compiler.Stages) -> dict[tuple[Loc | None, int], tuple[str, bool]]:
    """By line and width, the reason why accesses are narrow, and whether facts about arguments are missing."""
    found = _by_place(access_widths(stages.tile, stages.target))
    narrow = {place: width for place, width in found.items() if width.bytes < ALIGNMENT and width.reason is not None}
    missing = _missing(stages, narrow)
    return {
        (width.loc, width.bytes): (
            f", not {ALIGNMENT}: {_words(stages, width, missing.get(place, ()))}",
            place in missing,
        )
        for place, width in narrow.items()
    }


def _by_place(widths: Iterable[Width]) -> _Places:
    found: dict[tuple[Loc | None, int], Width] = {}
    counts: dict[Loc | None, int] = {}
    for width in widths:
        number = counts[width.loc] = counts.get(width.loc, -1) + 1
        found[width.loc, number] = width
    return found


def _missing(stages: compiler.Stages, narrow: _Places) -> dict[tuple[Loc | None, int], tuple[Missing, ...]]:
    """For each narrow access the arguments that must be divisible for it to be wider, with the smallest divisor that
    suffices."""
    limited = {place: width for place, width in narrow.items() if width.reason in ("alignment", "mask")}
    found: dict[tuple[Loc | None, int], tuple[Missing, ...]] = {}
    for divisor in sorted({ALIGNMENT, *(ALIGNMENT // width.itemsize for width in limited.values())} if limited else ()):
        func = stages.built.func
        unknown = [i for i, param in enumerate(func.params) if _is_unknown(param, func.attrs.params[i], divisor)]
        best = _widths_if_divisible(stages, unknown, divisor)
        helped = [
            place
            for place, width in limited.items()
            if place not in found and place in best and best[place].vec > width.vec
        ]
        if not helped:
            continue
        without = {
            i: _widths_if_divisible(stages, [other for other in unknown if other != i], divisor) for i in unknown
        }
        for place in helped:
            needed = [i for i in unknown if place in without[i] and without[i][place].vec < best[place].vec]
            found[place] = tuple(_as_missing(func.params[i], divisor) for i in needed)
    return {place: missing for place, missing in found.items() if missing}


def _is_unknown(param: Value, given: ParamFacts, divisor: int) -> bool:
    element = param.type.element
    counts = isinstance(element, Pointer) or element.kind in ("int", "uint")
    return counts and given.divisible < _as_missing(param, divisor).divisor


def _as_missing(param: Value, divisor: int) -> Missing:
    array = isinstance(param.type.element, Pointer)
    return Missing(param.name, ALIGNMENT if array else divisor, array)


def _widths_if_divisible(stages: compiler.Stages, indices: Sequence[int], divisor: int) -> _Places:
    """The widths that the accesses would have if these arguments were known to be divisible."""
    func = stages.built.func
    params = [
        replace(given, divisible=_as_missing(param, divisor).divisor) if i in indices else given
        for i, (param, given) in enumerate(zip(func.params, func.attrs.params, strict=True))
    ]
    supposed = func.with_attrs(sync=stages.request.options.sync, params=tuple(params))
    return _by_place(access_widths(tile_pipeline(supposed, stages.target), stages.target))


def _words(stages: compiler.Stages, width: Width, missing: Sequence[Missing]) -> str:
    assert width.reason is not None
    text = _REASONS[width.reason].format(
        have="1 element" if width.vec == 1 else f"{width.vec} elements",
        wider=2 * width.vec,
        bytes=2 * width.bytes,
        most=ALIGNMENT // width.itemsize,
    )
    if width.reason in ("alignment", "mask") and not missing:
        return f"{text}, whatever divides the arguments"
    return "; ".join([text, *(_promise(stages, each) for each in missing)])


def _promise(stages: compiler.Stages, missing: Missing) -> str:
    """Advice for an argument that is not known to be divisible."""
    own, _, part = missing.name.partition(".")
    unknown = f"{missing.name} is not known to be a multiple of {missing.divisor}{' bytes' * missing.array}"
    if part:
        return f"{unknown}: give the view {own} a static layout, or sizes and strides that {ALIGNMENT} divides"
    promise = f"promise it with gl.multiple_of({own}, {missing.divisor})"
    if any(param.name == own and not param.specialise for param in stages.request.fn.params):
        return f"{unknown}, since it is in do_not_specialize: {promise}"
    if missing.array:
        return f"{unknown}: pass an array that starts at one, or {promise}"
    return f"{unknown}: pass a multiple of {ALIGNMENT}, for which a launch compiles the kernel anew, or {promise}"
