"""Values, operations, regions and functions: the whole IR, immutable.

A region is one block of operations that ends in a terminator; control flow is operations with regions. Values are compared by
identity. A pass never modifies an operation; it builds a new function (`weft.ir.rebuild`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

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
    """One operation. `operands` are in the order of the definition's parameters, with None for an absent optional one."""

    kind: OpDef
    operands: tuple[Value | None, ...]
    attrs: Attrs
    results: tuple[Value, ...]
    regions: tuple[Region, ...] = ()
    loc: Loc | None = None

    @property
    def name(self) -> str:
        """The name with its family, as in `arith.add`."""
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


Stage = Literal["tile", "lowered"]
SyncMode = Literal["auto", "explicit", "none"]
"""Who writes barriers and fences: passes, passes but the author the fences, or the author alone."""


@dataclass(frozen=True, slots=True)
class ParamFacts:
    """What is known of a parameter: it is a multiple of `divisible` (a pointer in bytes), and `optional`, it goes if unused."""

    divisible: int = 1
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FuncAttrs:
    """What a function is compiled for, and what passes decided for it as a whole. Text has what is not the default."""

    num_warps: int
    """Warps of the block; with partitions those of the default one. A block of threads fills the last perhaps in part."""
    target: str = ""
    stage: Stage
    params: tuple[ParamFacts, ...] = ()
    """One for each parameter."""
    num_ctas: int = 1
    """Blocks of a program; more than one are a cluster."""
    block: tuple[int, int, int] | None = None
    """Threads along x, y and z, in a launch with `block=`."""
    sync: SyncMode = "auto"
    maxnreg: int | None = None
    """Registers of a thread, at most."""
    debug: bool = False
    """Whether device assertions are compiled."""
    shared_bytes: int = 0
    kept_bytes: tuple[tuple[int, int], ...] = ()
    """Ranges of shared memory that the author keeps allocated, which scratch must not take."""
    tensor_columns: int = 0
    """Columns of tensor memory that the kernel takes."""
    two_ctas: bool = False
    """Whether pairs of blocks share MMA instructions (tcgen05, cta_group::2)."""
    total_warps: int | None = None
    """Warps of all partitions; None where the kernel is not split into partitions (`passes.split_partitions`)."""
    registers: int = 0
    """Registers of a thread as partitions begin, where they change that number (`passes.split_partitions`); else 0."""
    workspace_bytes: int = 0
    """Global memory of each block, where descriptors lie that the kernel makes."""
    min_blocks: int | None = None
    """Resident blocks per multiprocessor that registers are limited for (`passes.bound_blocks`)."""
    exact: Mapping[Value, str] = field(default_factory=dict[Value, str])
    """Sums that never wrap, with the reason (`passes.mark_exact`)."""
    storage: Mapping[Value, int] = field(default_factory=dict[Value, int])
    """Which C variable a value shares with others (`passes.assign_registers`)."""

    @property
    def warps_of_block(self) -> int:
        """Warps of the block, those of all its partitions."""
        return self.num_warps if self.total_warps is None else self.total_warps


ABOUT_VALUES = ("exact", "storage")
"""Attributes of a function that speak of its values."""


@dataclass(frozen=True, slots=True, eq=False)
class Func:
    """A kernel: its name, its run-time parameters as the body's arguments, and its attributes."""

    name: str
    body: Region
    attrs: FuncAttrs
    loc: Loc | None = None

    @property
    def params(self) -> tuple[Value, ...]:
        """The run-time parameters."""
        return self.body.args

    def with_attrs(self, **attrs: Any) -> Func:
        """The same function with some attributes set."""
        return replace(self, attrs=replace(self.attrs, **attrs))

    def with_body(self, body: Region, **attrs: Any) -> Func:
        """The function with another body, and some attributes set."""
        return Func(self.name, body, replace(self.attrs, **attrs) if attrs else self.attrs, self.loc)


def walk(region: Region) -> Iterator[Op]:
    """Every operation, outer before inner, in program order."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from walk(inner)
