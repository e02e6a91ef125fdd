"""Choose the minimum number of blocks per SM for `__launch_bounds__`, which tells ptxas how many registers it may use.

    func @f {num_warps = 16}    -->    func @f {num_warps = 16, min_blocks = 1}

Without that bound ptxas was seen to save registers: it issues some of a batch of loads, waits for them, and only then issues
the rest. The pass estimates the peak register pressure of the function. The number of blocks is what fits in the SM's register
file at that pressure with some to spare, and ptxas may use all registers that this number of blocks leaves to each. Where that
is too few all the same, the kernel is compiled again for one block (`weft.compiler`), so the bound makes nothing spill; with 1
everywhere, ptxas takes more registers than a copy needs, and fewer blocks are resident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import LocalType, RegsType, SharedArrayType
from weft.ops import arith, control, mma, regs
from weft.targets import Target

SPARE = 24
"""Registers for addresses, predicates, counters and temporaries that the IR does not contain."""
LEAST = 128
"""The registers that ptxas may always use: a division, or a math function of doubles, has temporaries that the IR does not
show."""
ENOUGH = 64
"""The register pressure from which on the pass sets a bound. Below it ptxas needs none."""

# Emitted inline at their uses: they take no registers of their own.
_INLINE = frozenset({arith.constant, regs.splat, regs.affine})


def bound_blocks(func: Func, target: Target) -> Func:
    """Set "min_blocks" if the register pressure is high. A warp-specialised kernel is meant to run with one block per SM."""
    if func.attrs.total_warps is not None:
        return func.with_attrs(min_blocks=1)
    warps = func.attrs.num_warps
    sizes = {
        result: 0 if op.kind in _INLINE else _registers(result, op.attrs.get("vec") == 1)
        for op in walk(func.body)
        for result in op.results
    }
    peak = Pressure(lambda value: sizes[value] if value in sizes else _registers(value)).peak(func.body, func.params)
    if peak < ENOUGH:
        return func
    blocks = target.registers_per_sm // (warps * target.warp_size * max(peak + SPARE, LEAST))
    return func.with_attrs(min_blocks=max(min(blocks, target.max_warps_per_sm // warps), 1))


class Pressure:
    """Peak register pressure by a backward liveness walk. `size` gives the registers, or bytes, of a value.

    A value from outside a region that the region uses is live throughout it, since a loop's body is followed by itself. So
    each region is walked once, with the values defined in it; the enclosing walk adds the values from outside. A branch is
    followed by what is behind it: a value that is not used there is live up to its last use in each branch."""

    def __init__(self, size: Callable[[Value], int]) -> None:
        self._of = size
        self._free: dict[Op, set[Value]] = {}

    def peak(self, region: Region, params: Sequence[Value] = ()) -> int:
        """The peak pressure of the values defined in a region, and of `params`."""
        own = {*params, *region.args, *(result for op in region.ops for result in op.results)}
        live = own & set(region.terminator.uses)
        highest = held = self._size(live)
        for op in reversed(region.ops[:-1]):
            needed = own.intersection(op.uses)
            dead = held - self._size(live.intersection(op.results))
            highest = max(highest, dead + self._size(op.results) + self._size(_copied(op, own, live)))
            if op.regions:
                free = own & self._from_outside(op)
                if op.kind is control.if_:
                    ends = [(inner, free.difference(live).intersection(self._used(inner))) for inner in op.regions]
                    highest = max([highest, *[dead + self.peak(inner, [*last]) for inner, last in ends]])
                else:
                    outside = dead + self._size(free - live)
                    highest = max([highest, *[outside + self.peak(inner) for inner in op.regions]])
                needed |= free
            live.difference_update(op.results)
            needed -= live
            live |= needed
            held = dead + self._size(needed)
        return highest

    def _size(self, values: Iterable[Value]) -> int:
        return sum(map(self._of, values))

    def _from_outside(self, op: Op) -> set[Value]:
        """Values from outside that an operation's regions use."""
        if not op.regions:
            return set()
        if op not in self._free:
            self._free[op] = set[Value]().union(*map(self._used, op.regions))
        return self._free[op]

    def _used(self, region: Region) -> set[Value]:
        """Values from outside that a region uses."""
        used: set[Value] = set()
        made = set(region.args)
        for inner in region.ops:
            used.update(inner.uses, self._from_outside(inner))
            made.update(inner.results)
        return used - made


def _copied(op: Op, own: set[Value], after: set[Value]) -> set[Value]:
    """Operands that an operation copies while the original stays live.

    A wgmma takes operand A from registers as packed 32-bit words, which are a copy if the array is used afterwards too.
    """
    held = op.operands[:1] if op.kind is mma.wgmma and op.attrs["left"] is None else ()
    return {value for value in held if value is not None and (value in after or value not in own)}


def _registers(value: Value, single: bool = False) -> int:
    """The number of registers of a value. Elements below 32 bits are packed unless they are loaded one at a time (`single`)."""
    if isinstance(value.type, SharedArrayType):
        return 0
    count = value.type.count if isinstance(value.type, RegsType | LocalType) else 1
    bits = value.type.element.bits
    return 0 if bits == 1 else -(-count * (max(bits, 32) if single else bits) // 32)
