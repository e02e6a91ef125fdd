"""Say how many blocks a multiprocessor is meant to hold, so that ptxas knows how many registers it may use.

    func @f {num_warps = 16}    -->    func @f {num_warps = 16, min_blocks = 1}

Without a word ptxas saves registers: it starts a batch of loads, waits for some, and only then starts the rest. The pass counts
the 32-bit registers that the function needs at its tightest place; what fits beside each other with some to spare is the number
of blocks, and ptxas may use all that this number leaves to each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import LocalType, RegsType, SharedArrayType
from weft.ops import arith, mma, regs
from weft.targets import Target

SPARE = 24
"""Registers for addresses, predicates, counters and temporaries that no value of the IR stands for."""
LEAST = 128
"""Registers that ptxas may use at least: a division or a function of doubles has temporaries that the IR does not show."""
ENOUGH = 64
"""Values that a function must hold at a time before the pass says anything: with fewer, ptxas does well by itself."""

# Written inline by whoever uses them: they take no registers of their own.
_INLINE = frozenset({arith.constant, regs.splat, regs.affine})


def bound_blocks(func: Func, target: Target) -> Func:
    """Set "min_blocks", where the function holds enough for it to matter. A kernel of several partitions has the multiprocessor
    to itself."""
    if func.attrs.total_warps is not None:
        return func.with_attrs(min_blocks=1)
    warps = func.attrs.num_warps
    inline = {result for op in walk(func.body) if op.kind in _INLINE for result in op.results}
    single = {result for op in walk(func.body) if op.attrs.get("vec") == 1 for result in op.results}
    peak = Pressure(lambda value: 0 if value in inline else _registers(value, value in single)).peak(
        func.body, func.params
    )
    if peak < ENOUGH:
        return func
    blocks = target.registers_per_sm // (warps * target.warp_size * max(peak + SPARE, LEAST))
    return func.with_attrs(min_blocks=max(min(blocks, target.max_warps_per_sm // warps), 1))


class Pressure:
    """Counts what is held at a time by a backward walk; `size` is what a value takes.

    What a region needs from outside is held all the while that it runs, for a loop's body is followed by itself. So a region
    is walked by itself, once, with the values that are made in it; the rest is added by whoever holds it."""

    def __init__(self, size: Callable[[Value], int]) -> None:
        self._of = size
        self._free: dict[Op, set[Value]] = {}

    def peak(self, region: Region, params: Sequence[Value] = ()) -> int:
        """The most that is held at a time of the values that a region makes, and of `params`."""
        own = {*params, *region.args, *(result for op in region.ops for result in op.results)}
        live = own & set(region.terminator.uses)
        highest = held = self._size(live)
        for op in reversed(region.ops[:-1]):
            free = own & self._from_outside(op)
            kept = [result for result in op.results if result in live]
            dead = held - self._size(kept)
            highest = max(highest, dead + self._size(op.results) + self._size(_copied(op, own, live)))
            for inner in op.regions:
                highest = max(highest, dead + self._size(free - live) + self.peak(inner))
            live.difference_update(kept)
            needed = (free | own.intersection(op.uses)) - live
            live |= needed
            held = dead + self._size(needed)
        return highest

    def _size(self, values: Iterable[Value]) -> int:
        return sum(map(self._of, values))

    def _from_outside(self, op: Op) -> set[Value]:
        """Values of outside that an operation's regions use."""
        if not op.regions:
            return set()
        if op not in self._free:
            used: set[Value] = set()
            made: set[Value] = set()
            for region in op.regions:
                made.update(region.args)
                for inner in region.ops:
                    used.update(inner.uses, self._from_outside(inner))
                    made.update(inner.results)
            self._free[op] = used - made
        return self._free[op]


def _copied(op: Op, own: set[Value], after: set[Value]) -> set[Value]:
    """What an operation has a copy of beside the value itself, which is needed after it too.

    Instructions of tensor cores take elements of memory that lie in registers as whole words, which are made for them.
    """
    held = op.operands[:1] if op.kind is mma.wgmma and op.attrs["left"] is None else ()
    return {value for value in held if value is not None and (value in after or value not in own)}


def _registers(value: Value, single: bool) -> int:
    """Of a value. Elements of less than 32 bits share a register, but not those that come in one at a time (`single`)."""
    if isinstance(value.type, SharedArrayType):
        return 0
    count = value.type.count if isinstance(value.type, RegsType | LocalType) else 1
    bits = value.type.element.bits
    return 0 if bits == 1 else -(-count * (max(bits, 32) if single else bits) // 32)
