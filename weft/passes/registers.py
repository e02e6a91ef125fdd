"""Copy propagation through register arrays: the source of each register, which `simplify` uses.

regs.extract (regs.concat %a, %b), 1                 -->  %b
regs.concat (regs.extract %v, 0), (... %v, 1)        -->  %v             (where %v has two registers)
regs.concat (regs.extract %v, 1), (... %v, 0)        -->  regs.gather %v, [1, 0]
regs.gather (regs.splat %x), ...                     -->  regs.splat %x
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.core import Op, Value
from weft.ir.rebuild import Operands, Rebuilder, Replacement
from weft.ir.types import RegsType
from weft.ops import regs

Register = tuple[Value, int | None]
"""A scalar (and None), or an array and the index of one of its registers."""


class Registers:
    """The source of each register of an array, and of scalars that are extracted from arrays."""

    def __init__(self) -> None:
        self._sources: dict[Value, tuple[Register, ...]] = {}

    def concat(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """A concatenation of all registers of an array is that array; of some of them, a gather."""
        found = tuple([r for value in operands if value is not None for r in self._of(value)])
        return self._array(out, op, operands, found)

    def gather(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """A gather of the sources of the array's registers."""
        (x,) = operands
        assert x is not None
        own = self._of(x)
        table: tuple[int, ...] = op.attrs["table"]
        return self._array(out, op, operands, tuple([own[i] for i in table]))

    def splat(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """A splat is a concatenation of equal registers."""
        (x,) = operands
        assert x is not None
        return self._array(out, op, operands, self._of(x) * op.attrs["count"])

    def extract(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """The scalar that the register was made of, or an extract from the array that the register comes from."""
        (x,) = operands
        assert x is not None
        index: int = op.attrs["index"]
        source, number = self._of(x)[index]
        if number is None:
            return (source,)
        made: Value = out.emit(regs.extract, source, index=number, name=op.result.name)
        self._sources[made] = ((source, number),)
        return (made,)

    def one(self, value: Value) -> Value | None:
        """The scalar that all registers are equal to, if there is one."""
        first, *others = self._of(value)
        return first[0] if first[1] is None and all(other == first for other in others) else None

    def _of(self, value: Value) -> tuple[Register, ...]:
        known = self._sources.get(value)
        if known is not None:
            return known
        if not isinstance(value.type, RegsType):
            return ((value, None),)
        return tuple([(value, i) for i in range(value.type.count)])

    def _array(self, out: Rebuilder, op: Op, operands: Operands, found: Sequence[Register]) -> Replacement:
        source, number = found[0]
        made: Value
        if number is not None and all(other is source for other, _ in found):
            table = tuple([i for _, i in found if i is not None])
            assert isinstance(source.type, RegsType)
            if table == tuple(range(source.type.count)):
                return (source,)
            made = out.emit(regs.gather, source, table=table, name=op.result.name)
        elif number is None and all(register == found[0] for register in found):
            made = out.emit(regs.splat, source, count=len(found), name=op.result.name)
        else:
            made = out.emit(op.kind, *operands, name=op.result.name, **op.attrs)
        self._sources[made] = tuple(found)
        return (made,)
