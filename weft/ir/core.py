"""Values, operations, regions and functions: the whole IR, immutable.

A region is one block of operations that ends in a terminator; control flow is an operation with regions. Values are
compared by identity. A pass never changes an operation, it makes a new function (`weft.ir.rebuild`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.errors import Loc
from weft.ir.types import Type

if TYPE_CHECKING:
    from weft.ir.define import OpDef

Attrs = Mapping[str, Any]


class Value:
    """The result of an operation or an argument of a region. `name` is the author's name for it, or empty."""

    __slots__ = ("name", "type")

    def __init__(self, type: Type, name: str = "") -> None:
        self.type = type
        self.name = name

    def __repr__(self) -> str:
        return f"%{self.name or '_'}: {self.type}"


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Arguments and operations; the last operation is the terminator."""

    args: tuple[Value, ...]
    ops: tuple[Op, ...]

    @property
    def terminator(self) -> Op:
        """The last operation (`control.yield`, `control.condition` or `control.return`)."""
        return self.ops[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operation. `operands` follow the definition's parameters, with None where an optional one is absent."""

    kind: OpDef
    operands: tuple[Value | None, ...]
    attrs: Attrs
    results: tuple[Value, ...]
    regions: tuple[Region, ...] = ()
    loc: Loc | None = None

    @property
    def name(self) -> str:
        """Dialect-qualified name, as in `arith.add`."""
        return self.kind.name

    @property
    def result(self) -> Value:
        """The only result."""
        (result,) = self.results
        return result

    @property
    def uses(self) -> Iterator[Value]:
        """Operands that are present."""
        return (value for value in self.operands if value is not None)

    def operand(self, name: str) -> Value | None:
        """The operand of a named parameter (not of a variadic one)."""
        return self.operands[self.kind.operand_index[name]]


@dataclass(frozen=True, slots=True, eq=False)
class Func:
    """A kernel: its name, its run-time parameters as the body's arguments, and what it is compiled for.

    `attrs`: "num_warps" (int), "target" (name), "params" (tuple of parameter facts: None or dict with "divisible", one per
    argument), "stage" ("tile" or "lowered"), what the launch asked for: "maxnreg" (registers of a thread, at most, or None),
    "debug" (device assertions are compiled), "sync" ("auto", "explicit" or "none") and, for a launch with `block=`, "block"
    (threads along x, y and z; "num_warps" holds them, the last one perhaps not all), once shared memory is allocated
    "shared_bytes" (int) and "kept_bytes" (ranges that the author keeps alive), where there is tensor memory "tensor_columns"
    (how many the kernel takes) and "two_ctas" (True where two blocks multiply together), and after lowering
    "min_blocks" (see `passes.bound_blocks`) and "storage" (which C variable a value shares: see `passes.assign_registers`),
    for single threads "exact" (sums that never wrap: see `passes.mark_exact`).
    With partitions "num_warps" is the default one's, "total_warps" the block's, and "registers" what each thread begins with,
    where it matters (see `passes.split_partitions`).
    """

    name: str
    body: Region
    attrs: Attrs = field(default_factory=dict[str, Any])
    loc: Loc | None = None

    @property
    def params(self) -> tuple[Value, ...]:
        """The run-time parameters."""
        return self.body.args

    def with_attrs(self, **attrs: Any) -> Func:
        """The same function with some attributes set."""
        return Func(self.name, self.body, {**self.attrs, **attrs}, self.loc)


def walk(region: Region) -> Iterator[Op]:
    """Every operation, outer before inner, in program order."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from walk(inner)
