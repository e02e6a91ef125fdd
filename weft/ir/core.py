"""Values, operations and their definitions, regions and functions: the whole IR, immutable.

A region is one block of operations that ends in a terminator; control flow is operations with regions. Values are compared by
identity. A pass never modifies an operation; it builds a new function (`weft.ir.rebuild`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from weft.errors import Loc
from weft.ir.types import DType, Type

Attrs = Mapping[str, Any]


Scope = Literal["block", "warp", "thread"]
OpStage = Literal["tile", "lowered", "both"]
Completion = Literal["cp.async", "mbarrier", "bulk", "wgmma", "tcgen05"]
"""Completion mechanisms of asynchronous accesses: a thread's cp.async groups, an mbarrier's phase, the elected thread's bulk
groups, a warpgroup's wgmma groups, and the elected thread's tcgen05 operations, whose commit arrives on an mbarrier."""
SCOPES: tuple[Scope, ...] = ("block", "warp", "thread")
By = Literal["threads", "elected", "each warp", "several warps"]
"""Who carries something out: all threads of the partition, its elected thread, the elected thread of each warp, or those of
several warps that share the work."""
Order = Literal["", "relaxed", "acquire", "release", "acq_rel"]


class Value:
    """The result of an operation or an argument of a region. `name` is the author's name for it, or empty."""

    __slots__ = ("name", "type")

    def __init__(self, type: Type, name: str = "") -> None:
        self.type = type
        # Assigned after construction: a value exists before the author's assignment statement names it, and a pass gives its
        # name to the value that replaces it. Names appear in IR text, messages and CUDA identifiers.
        self.name = name

    def __repr__(self) -> str:
        return f"%{self.name or '_'}: {self.type}"


class Region:
    """Arguments and operations; the last operation is the terminator."""

    __slots__ = ("_every", "_kinds", "args", "ops")

    def __init__(self, args: tuple[Value, ...], ops: tuple[Op, ...]) -> None:
        self.args: Final = args
        self.ops: Final = ops
        self._every: tuple[Op, ...] = ()
        self._kinds: frozenset[OpDef] = frozenset()

    @property
    def every(self) -> tuple[Op, ...]:
        """Every operation, outer before inner, in program order; listed once, since many passes walk one function."""
        if not self._every:
            self._every = _every(self.ops)
        return self._every

    @property
    def kinds(self) -> frozenset[OpDef]:
        """The kinds of all these operations: most passes have nothing to do in a kernel without some of them."""
        if not self._kinds:
            self._kinds = frozenset([op.kind for op in self.every])
        return self._kinds

    @property
    def terminator(self) -> Op:
        """The last operation (`control.yield`, `control.condition` or `control.return`)."""
        return self.ops[-1]


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect of an operation on memory.

    `kind`: "read" and "write" access memory. "update" modifies a barrier atomically, by the elected thread. "release" makes
    earlier accesses of all threads of the partition visible. "sync" orders accesses: in space "threads" it is a barrier of the
    partition, in "warp" one of each warp, in "grid" it is between launches; with `completes` a wait for accesses with that
    completion mechanism; with proxy "async" a proxy fence.

    `operand` names the pointer or handle parameter (None: memory internal to the operation, or all memory). `space` is the
    memory space, `proxy` the proxy of the access, `completes` the completion mechanism of an asynchronous access (None:
    synchronous), or the one that a wait waits for, with at most `pendings` groups left.

    `by` is who performs it. `order` is the memory order of a strong access (PTX's .sem; a volatile one is relaxed) or of an
    arrival. `waits` is False for a barrier at which threads arrive without waiting. `remote`: the memory may be another CTA's.
    Effects stand in the order in which they happen.
    """

    kind: Literal["read", "write", "update", "release", "sync"]
    space: Literal["global", "shared", "tensor", "local", "io", "threads", "warp", "cluster", "grid"]
    operand: str | None = None
    proxy: Literal["generic", "async"] = "generic"
    completes: Completion | None = None
    by: By = "threads"
    order: Order = ""
    waits: bool = True
    pendings: int = 0
    remote: bool = False


Effects = tuple[Effect, ...] | Callable[[Attrs], tuple[Effect, ...]]
"""Effects of an operation, or the function that gives them from its attributes."""

Fold = Callable[[tuple[int, ...], Attrs, DType], int | None]
"""The result of an operation on constant integers, of its attributes and of their type, before it wraps; None: not known."""


@dataclass(frozen=True, slots=True)
class Laws:
    """Algebra of an operation on integers, as far as simplification uses it.

    `commutes`: its first two operands may be exchanged, floats too. `neutral`: the right operand that leaves the left one as it
    is, `floats`: floats as well. `absorbing`: the right operand that alone decides the result. `itself`: of one value twice the
    result is that value ("same"), or does not depend on it ("constant").
    """

    commutes: bool = False
    neutral: int | None = None
    floats: bool = False
    absorbing: int | None = None
    itself: Literal["", "same", "constant"] = ""


NO_LAWS = Laws()


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """The definition of an operation; see `weft.ir.define`. Compared by identity.

    `pure` is True when results depend only on operands and attributes, without effects. `scope` is the minimum scope of the
    results, joined with the operands' scopes; `needs` is the scope of control flow that the operation requires. `removed_by`
    names the pass that eliminates the operation, which then has no CUDA rule. `elementwise`: element i of the result depends on
    element i of each operand alone (a scalar is the same for all). `updates` names an operand in lowered IR whose registers the
    result takes over (for a variadic one: each result those of the operand of its number); the other operands are read until it
    is complete. `verb` is the participle for what it does to memory, where its effects do not say it. `fold` and `laws` are for
    operations on integers.
    """

    name: str
    rule: Callable[..., Type | tuple[Type, ...] | None]
    doc: str
    operands: tuple[str, ...]
    variadic: str | None
    regions: tuple[str, ...]
    variadic_region: str | None
    attributes: tuple[str, ...]
    defaults: Attrs
    effects: Effects
    stage: OpStage
    removed_by: str | None
    scope: Scope
    needs: Scope
    terminator: bool
    pure: bool
    elementwise: bool
    updates: str | None
    verb: str
    fold: Fold | None
    laws: Laws
    operand_index: dict[str, int] = field(default_factory=dict[str, int])

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def family(self) -> str:
        """The first part of the name: `arith` of `arith.add`."""
        return self.name.partition(".")[0]

    def infer(self, operands: tuple[Value | None, ...], attrs: Attrs, regions: tuple[Region, ...]) -> tuple[Type, ...]:
        """Result types, by the typing rule. Raises what the rule raises."""
        if not regions:
            types = self.rule(*operands, **attrs)
        elif self.variadic_region is not None:
            types = self.rule(*operands, *regions, **attrs)
        else:
            types = self.rule(*operands, **attrs, **dict(zip(self.regions, regions, strict=True)))
        if types is None:
            return ()
        return types if isinstance(types, tuple) else (types,)

    def region_names(self, count: int) -> tuple[str, ...]:
        """The names of an operation's `count` regions in IR text."""
        return self.regions if self.variadic_region is None else (self.variadic_region,) * count


class Op:
    """One operation. `operands` are in the order of the definition's parameters, with None for an absent optional one, and
    `uses` are those that are present."""

    __slots__ = ("attrs", "kind", "loc", "operands", "regions", "results", "uses")

    def __init__(
        self,
        kind: OpDef,
        operands: tuple[Value | None, ...],
        attrs: Attrs,
        results: tuple[Value, ...],
        regions: tuple[Region, ...] = (),
        loc: Loc | None = None,
    ) -> None:
        self.kind: Final = kind
        self.operands: Final = operands
        self.uses: Final = tuple(filter(None, operands))
        self.attrs: Final = attrs
        self.results: Final = results
        self.regions: Final = regions
        self.loc: Final = loc

    def __repr__(self) -> str:
        return f"<{self.kind.name}>"

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
    def effects(self) -> tuple[Effect, ...]:
        """What it does to memory, with its attributes."""
        declared = self.kind.effects
        return declared(self.attrs) if callable(declared) else declared

    @property
    def by(self) -> By:
        """Who carries it out: not all threads where one of its effects says so."""
        for effect in self.effects:
            if effect.by != "threads":
                return effect.by
        return "threads"

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
    fp_fusion: bool = True
    """Whether products and sums of floats are contracted (`passes.contract_fma`)."""
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


def walk(region: Region) -> tuple[Op, ...]:
    """Every operation, outer before inner, in program order."""
    return region.every


def _every(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    if not any(op.regions for op in ops):
        return ops
    found: list[Op] = []
    for op in ops:
        found.append(op)
        for region in op.regions:
            found += _every(region.ops)
    return tuple(found)
