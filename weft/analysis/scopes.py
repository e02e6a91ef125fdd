"""Who shares each scalar: the whole block, a warp, or each thread its own. And whether operations stand where they may.

    %w = program.warp                            warp
    %l = program.lane                            thread
    %b = arith.cmp %l, %n                        thread
    control.if %b { sync.barrier }               an error: the barrier needs the whole block

A result has the widest scope of its operands and of its operation's definition; what control flow yields is joined with what
decides about it: `x` after `if lane < 4: x = 1` is a thread's own. `program.uniform` makes block scope. Operations say how
much of the block they need; those on tiles, and writes of the whole program to global memory, need all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.analysis.flow import LOOPS, PARALLEL, STRUCTURED, Edge, Values, decides
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
from weft.ops import control, program, regs

BLOCK: Scope = "block"
THREAD: Scope = "thread"
HANDLES = (SharedType, TensorType, SharedArrayType, DescriptorType)
SPELLED: dict[OpDef, str] = {
    program.barrier: "gl.barrier()",
    program.warp_barrier: "gl.syncwarp()",
    regs.shuffle_xor: "a shuffle",
    regs.shuffle_idx: "a shuffle",
}
"""What authors write for operations that they often find under a condition."""
_TOGETHER = "let all threads come to it, with an if around what some leave out instead of a return; or decide with "
_ROUNDS = "let all threads go round equally often, with an if around what some leave out; or take bounds from "
_OF_WARPS = "a value that a whole warp shares, such as gl.warp_id() in place of gl.thread_idx.x // 32"
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
"""What to write, by the threads that an operation needs and by whether a loop or a branch keeps some from it."""
NARROW = (ScalarType, RegsType, *HANDLES)
"""Types of values that threads may differ in. An array of a thread's own differs in any case."""


@dataclass(frozen=True, slots=True)
class Control:
    """The scope of what decides whether an operation runs, the line of the narrowest decision, and whether that is a loop's."""

    scope: Scope = BLOCK
    loc: Loc | None = None
    in_loop: bool = False

    def under(self, scope: Scope, loc: Loc | None, in_loop: bool = False) -> Control:
        """Control inside a construct that a value of this scope decides."""
        return self if _join(self.scope, scope) == self.scope else Control(scope, loc, in_loop)


def scopes(func: Func) -> dict[Value, Scope]:
    """The scope of every scalar.

    Raises CompilationError: control-scope where an operation needs more threads than come, async-operand-scope where threads
    would differ in what is done once for all of them, partitions-worker-scope.
    """
    analysis = _analysed(func)
    for op, standing in analysis.standing.items():
        _check(op, standing)
        _check_operands(op, analysis)
    return {value: scope for value, scope in analysis.known.items() if isinstance(value.type, ScalarType)}


def divided(func: Func) -> frozenset[Op]:
    """Branches and loops that the threads of a block take differently, and all that stand in those."""
    standing = _analysed(func).standing
    return frozenset(op for op in standing if any(standing[region.ops[0]].scope != BLOCK for region in op.regions))


def _analysed(func: Func) -> _Analysis:
    analysis = _Analysis()
    analysis.known.update(dict.fromkeys(func.params, BLOCK))
    analysis.run(func.body, Control())
    return analysis


def _join(*found: Scope) -> Scope:
    return SCOPES[max(map(SCOPES.index, found), default=0)]


def _of_type(type: Type, scope: Scope) -> Scope:
    if isinstance(type, LocalType):
        return THREAD
    return scope if isinstance(type, NARROW) else BLOCK


def _needs(op: Op) -> Scope:
    """The scope of control flow that an operation may stand under at most."""
    writes = op.kind.stage == "tile" and any(effect.kind == "write" for effect in op.kind.effects)
    tiles = any(isinstance(value.type, TileType) for value in (*op.uses, *op.results))
    return BLOCK if (tiles or writes) and not op.kind.terminator else op.kind.needs


def _check(op: Op, standing: Control) -> None:
    needs = _needs(op)
    if SCOPES.index(standing.scope) <= SCOPES.index(needs):
        return
    related = (("the condition", standing.loc),) if standing.loc is not None else ()
    raise fail(
        errors.SCOPE, loc=op.loc, related=related, what=SPELLED.get(op.kind, op.name), needs=needs, scope=standing.scope,
        instead=_INSTEAD[needs, standing.in_loop],
    )  # fmt: skip


def _check_operands(op: Op, analysis: _Analysis) -> None:
    """Memory is one for all threads, and so are the numbers in what is requested once, such as coordinates and phases."""
    once = op.kind.needs == BLOCK and not op.regions
    for value in op.uses:
        one = isinstance(value.type, HANDLES) or (once and isinstance(value.type, ScalarType))
        if one and not op.kind.terminator and analysis.known[value] != BLOCK:
            name = repr(value.name) if value.name else f"a value of {value.type}"
            raise fail(OPERAND_SCOPE, loc=op.loc, what=op.name, value=name, scope=analysis.known[value])


class _Analysis(Values[Scope, Control]):
    """`known` are scopes, `standing` is the control flow around each operation."""

    def __init__(self) -> None:
        super().__init__()
        self.standing: dict[Op, Control] = {}

    def visit(self, op: Op, context: Control) -> None:
        """The widest scope of the operands, and of the operation's own."""
        self.standing[op] = context
        self._set(op.results, BLOCK if op.kind is program.uniform else _join(op.kind.scope, *self._of(op.uses)))

    def join(self, value: Value, old: Scope, new: Scope, number: int) -> Scope:
        """The wider one."""
        return _of_type(value.type, _join(old, new))

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> Scope:
        """What comes out of a region has at least the scope of what decides whether and how often it runs."""
        scope = self.known[value]
        return scope if edge.source is None else _of_type(value.type, _join(scope, self._decided(op)))

    def through(self, op: Op, context: Control) -> None:
        """Workers see what the whole block agrees on."""
        self.standing[op] = context
        if op.kind is control.warp_specialize:
            self._check_workers(op)
        super().through(op, context)

    def begin(self, op: Op, context: Control) -> None:
        """A counter has the scope of its bounds; functions of elements are run by each thread for those that it holds."""
        for region in op.regions:
            if op.kind is control.for_:
                self._set(region.args[:1], self._decided(op))
            elif op.kind not in STRUCTURED:
                self._set(region.args, THREAD)

    def within(self, op: Op, number: int, context: Control) -> Control:
        """Each partition is a block of its own: its threads agree on what is of block scope in it, and on nothing narrower."""
        if op.kind in PARALLEL:
            return context
        if op.kind not in STRUCTURED:
            return context.under(THREAD, op.loc)
        loc = op.regions[0].terminator.loc if op.kind is control.while_ else op.loc
        return context.under(self._decided(op), loc, in_loop=op.kind in LOOPS)

    def end(self, op: Op, context: Control) -> None:
        """What functions of elements give is a tile."""
        if op.kind not in STRUCTURED:
            self._set(op.results, BLOCK)

    def _decided(self, op: Op) -> Scope:
        return _join(*self._of(value for value in decides(op) if value in self.known))

    def _of(self, values: Iterable[Value]) -> tuple[Scope, ...]:
        """Scopes of values; a tile belongs to the block."""
        return tuple([self.known[value] for value in values])

    def _set(self, values: Iterable[Value], scope: Scope) -> None:
        """Enter one scope for several values."""
        self.known.update((value, _of_type(value.type, scope)) for value in values)

    def _check_workers(self, op: Op) -> None:
        for worker in op.regions[1:]:
            for inner in walk(worker):
                for value in inner.uses:
                    scope = self.known.get(value, BLOCK)
                    if scope != BLOCK:
                        name = repr(value.name) if value.name else f"a value of {value.type}"
                        raise fail(WORKER_SCOPE, loc=inner.loc, value=name, scope=scope)
