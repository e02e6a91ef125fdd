"""Divergence analysis: whether a scalar is uniform across the block, across each warp, or differs between threads.

    %w = program.warp                            warp scope
    %l = program.lane                            thread scope
    %b = arith.cmp %l, %n                        thread scope
    control.if %b { sync.barrier }               an error: the barrier needs block-uniform control flow

A result has the most divergent scope of its operands and of its operation's definition, or a less divergent one that
`weft.analysis.lanes` proves: `thread // 32` has warp scope. A result of control flow also takes the scope of the condition: `x`
after `if lane < 4: x = 1` is thread-divergent. `hints.uniform` asserts block or warp scope. Each
operation declares the scope of control flow that it needs; operations on tiles, and writes of tiles to global memory, need
block-uniform control flow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.analysis import lanes
from weft.analysis.facts import ValueFacts, facts
from weft.analysis.flow import LOOPS, PARALLEL, STRUCTURED, Edge, Values, decided_at, decides
from weft.analysis.lanes import ANY, WARP, Spread, scope_of, spread_of
from weft.errors import Loc, fail
from weft.errors import compiler as errors
from weft.errors.asynchronous import OPERAND_SCOPE
from weft.errors.partitions import WORKER_SCOPE
from weft.ir.core import SCOPES, Func, Op, OpDef, Scope, Value, walk
from weft.ir.types import (
    DescriptorType,
    LocalType,
    RegsType,
    ScalarType,
    SharedArrayType,
    SharedType,
    TensorType,
    TileType,
    Type,
)
from weft.ops import control, hints, mma, sync, warp

BLOCK: Scope = "block"
THREAD: Scope = "thread"
HANDLES = (SharedType, TensorType, SharedArrayType, DescriptorType)
SPELLED: dict[OpDef, str] = {
    sync.barrier: "gl.barrier()",
    sync.warp_barrier: "gl.syncwarp()",
    warp.shuffle_xor: "a shuffle",
    warp.shuffle_idx: "a shuffle",
    warp.vote: "gl.warp.vote",
    mma.mma_sync: "mma_op of a TensorCore",
}
"""The author's spelling of operations that are often found under a divergent condition."""
_TOGETHER = "let all threads reach it: put what some skip under an if instead of returning early; or decide with "
_ROUNDS = "let all threads run the same number of iterations, with what some skip under an if; or take bounds from "
_OF_WARPS = (
    "values that all threads of a warp share, such as gl.warp_id(), gl.thread_idx.x // 32, or a comparison of gl.thread_idx.x "
    'with a multiple of 32; if all threads of each warp are known to have one value, claim so with gl.uniform(x, "warp")'
)
_OF_BLOCKS = (
    "values that the whole block shares, such as parameters and gl.program_id(0); if all threads are known to have one value, "
    "claim so with gl.uniform(x)"
)
_INSTEAD: dict[tuple[Scope, bool], str] = {
    ("warp", False): _TOGETHER + _OF_WARPS,
    ("warp", True): _ROUNDS + _OF_WARPS,
    ("block", False): _TOGETHER + _OF_BLOCKS,
    ("block", True): _ROUNDS + _OF_BLOCKS,
}
"""The fix that a message proposes, by the scope that the operation needs and by whether a loop (or a branch) diverges."""
NARROW = (ScalarType, RegsType, *HANDLES)
"""Types of values that may diverge. A thread-local array always diverges."""


@dataclass(frozen=True, slots=True)
class Control:
    """The most divergent condition around an operation: its scope, its line, and whether it belongs to a loop."""

    scope: Scope = BLOCK
    loc: Loc | None = None
    in_loop: bool = False

    def under(self, scope: Scope, loc: Loc | None, in_loop: bool = False) -> Control:
        """Control inside a branch or loop whose condition has this scope."""
        return self if _join(self.scope, scope) == self.scope else Control(scope, loc, in_loop)


def scopes(func: Func, precise: bool = False) -> dict[Value, Scope]:
    """The scope of every scalar; that of index arithmetic only if `precise`, or where some operation needs it.

    Raises CompilationError: control-scope if an operation is under control flow more divergent than it allows,
    async-operand-scope if an operand of an operation that runs once per block diverges, partitions-worker-scope.
    """
    analysis = _analysis_of(func, facts(func)) if precise else _analysed(func)
    for op, standing in analysis.standing.items():
        _check(op, standing)
        _check_operands(op, analysis)
    return {value: scope_of(spread) for value, spread in analysis.known.items() if isinstance(value.type, ScalarType)}


def divided(func: Func) -> frozenset[Op]:
    """Branches and loops with divergent conditions, and all branches and loops nested in them."""
    standing = _analysed(func).standing
    return frozenset(op for op in standing if any(standing[region.ops[0]].scope != BLOCK for region in op.regions))


def _analysed(func: Func) -> _Analysis:
    """The analysis without index arithmetic, which takes the facts of integers; with it if an operation is under control flow
    that is otherwise too divergent for it."""
    quick = _analysis_of(func, None)
    if any(_is_misplaced(op, standing) for op, standing in quick.standing.items()):
        return _analysis_of(func, facts(func))
    return quick


def _analysis_of(func: Func, known: ValueFacts | None) -> _Analysis:
    analysis = _Analysis(known)
    analysis.known.update(dict.fromkeys(func.params, lanes.BLOCK))
    analysis.run(func.body, Control())
    return analysis


def _join(*found: Scope) -> Scope:
    return SCOPES[max(map(SCOPES.index, found), default=0)]


def _of_type(type: Type, spread: Spread) -> Spread:
    if isinstance(type, LocalType):
        return ANY
    return spread if isinstance(type, NARROW) else lanes.BLOCK


def _needs(op: Op) -> Scope:
    """The most divergent control flow that an operation allows."""
    writes = op.kind.stage == "tile" and any(effect.kind == "write" for effect in op.effects)
    tiles = any(isinstance(value.type, TileType) for value in (*op.uses, *op.results))
    return BLOCK if (tiles or writes) and not op.kind.terminator else op.kind.needs


def _is_misplaced(op: Op, standing: Control) -> bool:
    """Whether an operation is under control flow that is more divergent than it allows."""
    return standing.scope != BLOCK and SCOPES.index(standing.scope) > SCOPES.index(_needs(op))


def _check(op: Op, standing: Control) -> None:
    if not _is_misplaced(op, standing):
        return
    needs = _needs(op)
    related = (("the condition", standing.loc),) if standing.loc is not None else ()
    raise fail(
        errors.SCOPE, loc=op.loc, related=related, what=op.attrs.get("of") or SPELLED.get(op.kind, op.name),
        needs=needs, scope=standing.scope,
        instead=_INSTEAD[needs, standing.in_loop],
    )  # fmt: skip


def _check_operands(op: Op, analysis: _Analysis) -> None:
    """Handles must be block-uniform, and so must scalars of operations that run once per block, such as TMA coordinates and
    phases of mbarriers."""
    if op.kind.terminator:
        return
    once = op.kind.needs == BLOCK and not op.regions
    for value in op.uses:
        if analysis.known[value] == lanes.BLOCK:
            continue
        if isinstance(value.type, HANDLES) or (once and isinstance(value.type, ScalarType)):
            name = repr(value.name) if value.name else f"a value of {value.type}"
            raise fail(OPERAND_SCOPE, loc=op.loc, what=op.name, value=name, scope=scope_of(analysis.known[value]))


class _Analysis(Values[Spread, Control]):
    """The forward analysis. `known` maps values to spreads, `standing` maps operations to the control flow around them."""

    def __init__(self, known: ValueFacts | None) -> None:
        super().__init__()
        self.standing: dict[Op, Control] = {}
        self._facts = known

    def visit(self, op: Op, context: Control) -> None:
        """The widest spread of the operands and of the operation's definition, or less where `weft.analysis.lanes` says so."""
        self.standing[op] = context
        kind, given = op.kind, self._of(op.uses)
        spread = max(given, default=lanes.BLOCK)
        if kind is hints.uniform:
            spread = min(spread, spread_of(op.attrs["scope"]))
        elif spread > WARP:
            spread = ANY if self._facts is None or not op.results else lanes.spread_after(op, given, self._facts)
        else:
            spread = max(spread, lanes.STARTS.get(kind, spread_of(kind.scope)))
        self._set(op.results, spread)

    def join(self, value: Value, old: Spread, new: Spread, number: int) -> Spread:
        """The more divergent one."""
        return _of_type(value.type, max(old, new))

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> Spread:
        """A value that leaves a region is at least as divergent as the condition or trip count of the region."""
        spread = self.known[value]
        return spread if edge.source is None else _of_type(value.type, max(spread, self._decided(op)))

    def through(self, op: Op, context: Control) -> None:
        """Record the control flow around an operation with regions; worker partitions may use block-uniform values only."""
        self.standing[op] = context
        if op.kind is control.warp_specialize:
            self._check_workers(op)
        super().through(op, context)

    def begin(self, op: Op, context: Control) -> None:
        """A loop counter has the scope of its bounds. Each thread runs an elementwise function for its own elements."""
        for region in op.regions:
            if op.kind is control.for_:
                self._set(region.args[:1], self._decided(op))
            elif op.kind not in STRUCTURED:
                self._set(region.args, ANY)

    def within(self, op: Op, number: int, context: Control) -> Control:
        """Inside a partition, block scope means uniform across the partition, so its context is the one around it."""
        if op.kind in PARALLEL:
            return context
        if op.kind not in STRUCTURED:
            return context.under(THREAD, op.loc)
        return context.under(scope_of(self._decided(op)), decided_at(op), in_loop=op.kind in LOOPS)

    def end(self, op: Op, context: Control) -> None:
        """The result of an elementwise function is a tile, or a scalar that all threads share."""
        if op.kind not in STRUCTURED:
            self._set(op.results, lanes.BLOCK)

    def _decided(self, op: Op) -> Spread:
        """The spread of a condition or of a loop's bounds: what depends on one that differs in some bits may differ in all."""
        spread = max(self._of(value for value in decides(op) if value in self.known), default=lanes.BLOCK)
        return spread if spread <= WARP else ANY

    def _of(self, values: Iterable[Value]) -> tuple[Spread, ...]:
        """The spreads of values; tiles have block scope."""
        return tuple([self.known[value] for value in values])

    def _set(self, values: Iterable[Value], spread: Spread) -> None:
        """Give several values the same spread."""
        for value in values:
            self.known[value] = _of_type(value.type, spread)

    def _check_workers(self, op: Op) -> None:
        for worker in op.regions[1:]:
            for inner in walk(worker):
                for value in inner.uses:
                    spread = self.known.get(value, lanes.BLOCK)
                    if spread != lanes.BLOCK:
                        name = repr(value.name) if value.name else f"a value of {value.type}"
                        raise fail(WORKER_SCOPE, loc=inner.loc, value=name, scope=scope_of(spread))
