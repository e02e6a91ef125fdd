"""Conversions inside a warp: a sequence of `shfl.idx` between conditional swaps of registers.

S(r, λ) is the element in source register r of lane λ, D(r, l) the element of destination register r of lane l. In step j every
lane l fills one destination register, j ^ P l, from one lane, N l ^ c(j). The register that this lane sends must be a function
of the step and of that lane: source register T j ^ Q λ. So the plan is five matrices. They exist if and only if there are P
and Q with

    span { D_lane e_i + D_reg P e_i }  within  span { S_lane e_k + S_reg Q e_k },

and both sides are chosen greedily: the left one avoids the source's registers as far as possible, the right one uses the
source's redundant lanes for the rest. Lanes keep elements that they already have where possible. `Q` becomes the conditional
swaps before the steps (each lane moves the register that it sends to a fixed position), `P` those after. Warp bits may select
registers and lanes too, so a tile that every warp holds a copy of is distributed over warps without memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.layout import cost
from weft.layout.cost import Cost
from weft.layout.linear import f2
from weft.layout.linear.columns import Columns, Registers, combinations, distinct_registers, kernel
from weft.layout.linear.f2 import Span

LANE_BITS = 5


@dataclass(frozen=True, slots=True)
class ShuffleStep:
    """One shuffle: a lane receives position `register` of the source lane; `lane` is XORed onto the lane map."""

    register: int
    lane: int


@dataclass(frozen=True, slots=True)
class WarpShuffle:
    """A conversion inside each warp, in order of execution.

    1. `registers`: a thread's working list holds, at position p, its source register `registers[p]`.
    2. `pre`: for each (bit, mask), a thread with parity(thread & mask) = 1 swaps positions p and p ^ (1 << bit), all p.
       `thread` is lane | warp << 5, so masks reach above 31 only where the warp decides.
    3. `steps`: step j receives position `steps[j].register` of the lane `source_lane(thread, j)` as item j of a new list.
    4. `post`: as `pre`, on the new list.
    5. `result`: destination register r is item `result[r]`.

    `lane_map[i]` is what bit i of `thread` contributes (by XOR) to the source lane.
    """

    bits: int
    registers: tuple[int, ...]
    pre: tuple[tuple[int, int], ...]
    lane_map: tuple[int, ...]
    steps: tuple[ShuffleStep, ...]
    post: tuple[tuple[int, int], ...]
    result: tuple[int, ...]

    @property
    def own_lanes(self) -> bool:
        """Whether the lane map is the identity: step j then reads lane ^ steps[j].lane, which is `shfl.bfly`."""
        identity = tuple(1 << bit for bit in range(LANE_BITS))
        return self.lane_map[:LANE_BITS] == identity and not any(self.lane_map[LANE_BITS:])

    def moves(self, step: int) -> bool:
        """Whether a step needs a shuffle: it does not if every lane reads itself."""
        return not self.own_lanes or self.steps[step].lane != 0

    def source_lane(self, thread: int, step: int) -> int:
        """The lane that `thread` (lane | warp << 5) reads in a step."""
        return f2.apply(self.lane_map, thread) ^ self.steps[step].lane

    @property
    def shuffles(self) -> int:
        """Shuffle instructions per thread."""
        return cost.words(self.bits) * sum(self.moves(step) for step in range(len(self.steps)))

    @property
    def selects(self) -> int:
        """Select instructions per thread: one for each position that a conditional swap rewrites and that is read later."""
        read = {step.register for step in self.steps}
        count = len(self.post) * len(self.steps)
        for bit, _ in reversed(self.pre):
            count += len(read)
            read |= {position ^ 1 << bit for position in read}
        return cost.words(self.bits) * count

    def cost(self) -> Cost:
        """Price and words."""
        counts = ((self.shuffles, "shuffle"), (self.selects, "select"))
        text = " and ".join(f"{count} {what}{'s'[: count != 1]}" for count, what in counts if count)
        return Cost(cost.SHUFFLE * self.shuffles + cost.SELECT * self.selects, text)


def plan_shuffle(src: Columns, dst: Columns, bits: int) -> WarpShuffle | None:
    """The shuffle plan between two layouts of one tile, or None if data must cross warps or no such plan exists.

    `bits` is the element's width; it counts in the cost only.
    """
    give, take = distinct_registers(src.register), distinct_registers(dst.register)
    warp_moves = [a ^ b for a, b in zip(src.warp, dst.warp, strict=True)]
    warp_holds = Span((*give.columns, *src.lane))
    if any(column not in warp_holds for column in (*take.columns, *dst.lane, *warp_moves)):
        return None
    wanted = _lanes_wanted(dst.lane, take.columns, give.columns, spare=len(kernel(src.lane, give.columns)))
    if wanted is None:
        return None
    offered = _lanes_offered(src.lane, give.columns, wanted)
    by_lane = Span(offered)
    lane_map = [1 << i if wanted[i] == offered[i] else _solved(by_lane, wanted[i]) for i in range(LANE_BITS)]
    places = Span((*give.columns, *offered))
    in_register = (1 << len(give.columns)) - 1
    warps = [_solved(places, element) for element in warp_moves]
    rounds = combinations([_solved(places, element) for element in take.columns])
    pre = _registers_between(src.lane, offered, give) + [place & in_register for place in warps]
    return WarpShuffle(
        bits=bits,
        registers=give.numbers,
        pre=tuple(_swaps(pre)),
        lane_map=(*lane_map, *(place >> len(give.columns) for place in warps)),
        steps=tuple(ShuffleStep(place & in_register, place >> len(give.columns)) for place in rounds),
        post=tuple(_swaps(_registers_between(dst.lane, wanted, take))),
        result=take.position,
    )


def _lanes_wanted(lanes: Sequence[int], own: Sequence[int], held: Sequence[int], spare: int) -> list[int] | None:
    """D_lane + D_reg P: for each destination lane bit, its column shifted by the destination's registers (`own`).

    Together they avoid the span of `held`, the source's registers, except for at most `spare` dimensions, which redundant
    lanes of the source must supply; None if more are needed.
    """
    wanted: list[int] = []
    for column in lanes:
        known = Span((*own, *wanted)).solve(column)
        if known is not None:
            wanted.append(f2.apply(wanted, known >> len(own)))
            continue
        avoided = Span((*held, *wanted))
        free = next((column ^ shift for shift in (0, *own) if column ^ shift not in avoided), None)
        spare -= free is None
        wanted.append(column if free is None else free)
    return wanted if spare >= 0 else None


def _lanes_offered(lanes: Sequence[int], held: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """S_lane + S_reg Q: source lane columns shifted by the source's registers (`held`), so that they span `wanted`."""
    givers = _givers(lanes, held, wanted)
    units = [1 << k for k in range(len(lanes))]
    shifts = [element ^ f2.apply(lanes, giver) for giver, element in givers.items()] + [0] * len(units)
    chosen = Span((*givers, *units))
    return [lanes[k] ^ f2.apply(shifts, _solved(chosen, units[k])) for k in range(len(lanes))]


def _givers(lanes: Sequence[int], held: Sequence[int], wanted: Sequence[int]) -> dict[int, int]:
    """Independent XORs of source lanes (masks), each with the wanted element that it supplies up to registers.

    A lane that can supply its own element does; other lanes prefer a source that holds the element in register 0.
    """
    independent = f2.independent(wanted)
    needed = [i for i in range(len(wanted)) if independent >> i & 1]
    in_registers = Span(held)
    givers = {1 << i: wanted[i] for i in needed if lanes[i] ^ wanted[i] in in_registers}
    redundant = kernel(lanes, held)
    exactly, nearly = Span(lanes), Span((*held, *lanes))
    moving = [wanted[i] for i in needed if 1 << i not in givers]
    for element in moving:
        giver = exactly.solve(element)
        if giver is None:
            giver = _solved(nearly, element) >> len(held)
        taken = Span(givers)
        if giver in taken:
            giver ^= next(lane for lane in redundant if lane not in taken)
        givers[giver] = element
    return givers


def _registers_between(lanes: Sequence[int], shifted: Sequence[int], registers: Registers) -> list[int]:
    """For each lane bit, the register positions (a mask) whose columns lie between its column and the shifted one."""
    held = Span(registers.columns)
    return [_solved(held, a ^ b) for a, b in zip(lanes, shifted, strict=True)]


def _swaps(masks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Transpose: from the position mask that each thread bit adds, the thread mask that each position bit depends on."""
    for bit in range(max(masks).bit_length()):
        thread = sum(1 << index for index, mask in enumerate(masks) if mask >> bit & 1)
        if thread:
            yield bit, thread


def _solved(span: Span, element: int) -> int:
    generators = span.solve(element)
    if generators is None:
        raise ValueError(f"element {element} is out of reach")
    return generators
