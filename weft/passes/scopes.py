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

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from weft.errors import Loc, fail
from weft.errors import compiler as errors
from weft.errors.asynchronous import OPERAND_SCOPE
from weft.errors.partitions import WORKER_SCOPE
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.define import SCOPES, OpDef, Scope
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
    analysis.region(func.body, Control())
    return analysis


def _join(*found: Scope) -> Scope:
    return SCOPES[max(map(SCOPES.index, found), default=0)]


def _joined(found: tuple[Scope, ...], scope: Scope) -> tuple[Scope, ...]:
    return tuple([_join(each, scope) for each in found])


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


class _Analysis:
    """`known` are scopes so far, `standing` is the control flow around each operation. Loops are walked until both hold."""

    def __init__(self) -> None:
        self.known: dict[Value, Scope] = {}
        self.standing: dict[Op, Control] = {}

    def region(self, region: Region, around: Control) -> tuple[Scope, ...]:
        """Scopes of what the region hands on."""
        for op in region.ops:
            self.standing[op] = around
            special = _SPECIAL.get(op.kind)
            if special is not None:
                special(self, op, around)
            elif op.regions:
                self._elements(op)
            else:
                own = BLOCK if op.kind is program.uniform else _join(op.kind.scope, *self.of(op.uses))
                self.set(op.results, own)
        return self.of(region.terminator.uses)

    def of(self, values: Iterable[Value]) -> tuple[Scope, ...]:
        """Scopes of values; a tile belongs to the block."""
        return tuple([self.known[value] for value in values])

    def set(self, values: Iterable[Value], scope: Scope) -> None:
        """Enter one scope for several values."""
        self.known.update((value, _of_type(value.type, scope)) for value in values)

    def set_each(self, values: Iterable[Value], found: Iterable[Scope], least: Scope) -> None:
        """Enter a scope for each value, at least `least`."""
        for value, scope in zip(values, found, strict=True):
            self.set((value,), _join(scope, least))

    def _elements(self, op: Op) -> None:
        """Functions of elements: each thread runs them for the elements it holds."""
        for region in op.regions:
            self.set(region.args, THREAD)
            self.region(region, self.standing[op].under(THREAD, op.loc))
        self.set(op.results, BLOCK)

    def for_(self, op: Op, around: Control) -> None:
        """The bounds decide how often, so what is carried has at least their scope."""
        (body,) = op.regions
        operands = self.of(op.uses)
        scope = _join(*operands[:3])
        inside = around.under(scope, op.loc, in_loop=True)
        self.set(body.args[:1], scope)
        self._carry(body.args[1:], operands[3:], lambda: _joined(self.region(body, inside), scope))
        self.set_each(op.results, self.of(body.args[1:]), scope)

    def while_(self, op: Op, around: Control) -> None:
        """The condition decides how often; it may depend on what is carried."""
        before, after = op.regions
        inside = around

        def once() -> tuple[Scope, ...]:
            nonlocal inside
            handed = self.region(before, inside)
            decides: Scope = handed[0]
            inside = around.under(decides, before.terminator.loc, in_loop=True)
            self.set_each(after.args, handed[1:], decides)
            return _joined(self.region(after, inside), decides)

        self._carry(before.args, self.of(op.uses), once)
        self.region(before, inside)
        self.set_each(op.results, self.of(after.args), BLOCK)

    def if_(self, op: Op, around: Control) -> None:
        """Results are at least as narrow as what decides between the branches."""
        (scope,) = self.of(op.uses)
        inside = around.under(scope, op.loc)
        then, orelse = (self.region(region, inside) for region in op.regions)
        for result, pair in zip(op.results, zip(then, orelse, strict=True), strict=True):
            self.set((result,), _join(scope, *pair))

    def warp_specialize(self, op: Op, around: Control) -> None:
        """Each partition is a block of its own: its threads agree on what is of block scope in it, and on nothing narrower."""
        for worker in op.regions[1:]:
            for inner in walk(worker):
                for value in inner.uses:
                    scope = self.known.get(value, BLOCK)
                    if scope != BLOCK:
                        name = repr(value.name) if value.name else f"a value of {value.type}"
                        raise fail(WORKER_SCOPE, loc=inner.loc, value=name, scope=scope)
        found = [self.region(region, around) for region in op.regions]
        self.set_each(op.results, found[0], BLOCK)

    def partitions(self, op: Op, around: Control) -> None:
        """As `warp_specialize`, once each computes all that it needs."""
        for region in op.regions:
            self.region(region, around)

    def _carry(self, args: tuple[Value, ...], inits: Iterable[Scope], walk: Callable[[], tuple[Scope, ...]]) -> None:
        self.set_each(args, inits, BLOCK)
        changed = True
        while changed:
            changed = False
            for arg, scope in zip(args, walk(), strict=True):
                before = self.known[arg]
                self.set((arg,), _join(before, scope))
                changed = changed or self.known[arg] is not before


_SPECIAL: dict[OpDef, Callable[[_Analysis, Op, Control], None]] = {
    control.for_: _Analysis.for_,
    control.while_: _Analysis.while_,
    control.if_: _Analysis.if_,
    control.warp_specialize: _Analysis.warp_specialize,
    control.partitions: _Analysis.partitions,
}
