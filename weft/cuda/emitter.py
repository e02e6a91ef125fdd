"""The emitter: names, references, loops over registers, and the prelude functions in use.

An operation's rule determines its instructions; the emitter determines the form of the text. Adjacent elementwise operations on
arrays of one length share one unrolled loop, and a value used in that loop only is a scalar inside it. Constants, splats and
permuted arrays have no variable.

A rule has one of four forms.

* `@emits`: statements. `rule(e, op)` writes them.
* `@elects`: statements of the partition's elected thread. `rule(e, op, last)` returns them, each with its number of
  repetitions; adjacent operations share one branch. `last`: the next operation in the branch is of another kind.
* `@spells`: elementwise. `rule(e, op, *operands)` returns the expression of one element from its operands' texts; the emitter
  writes the loop, which adjacent operations share. `e.index` is the current register.
* `@refers`: no code. `rule(e, op)` returns the result as a reference to other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Literal, TypeVar

import weft.cuda.text.spelling as spelling
from weft.cuda.kept import kept_ids
from weft.cuda.storage import storage_of
from weft.cuda.text import tables
from weft.cuda.text.names import OWN, REGISTER, Names, symbol
from weft.cuda.text.prelude import PIECE_NAMES, Pieces
from weft.cuda.text.refs import Index, Inline, Picked, Ref, Variable
from weft.cuda.text.tables import IndexTable
from weft.cuda.text.writer import WIDTH, Writer
from weft.errors import Loc
from weft.ir.core import Func, Op, OpDef, Region, Value, walk
from weft.ir.types import RegsType
from weft.loading import Registry
from weft.targets import Target

Number = int | float | bool
Statement = tuple["Loc | None", Callable[[Index], str]]
Move = tuple[Variable, Ref]


Repeated = tuple[int, "Callable[[Index], str]"]
"""The number of repetitions of a statement, and its text for each."""
RuleForm = Literal["statement", "elected", "element", "reference"]
Writing = TypeVar("Writing", bound="Callable[[Emitter, Op], None]")
Elected = TypeVar("Elected", bound="Callable[[Emitter, Op, bool], list[Repeated]]")
Element = TypeVar("Element", bound="Callable[..., str]")
Reference = TypeVar("Reference", bound="Callable[[Emitter, Op], Ref]")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and its form."""

    form: RuleForm
    write: Callable[..., Any]


RULES: Registry[OpDef, Rule] = Registry("CUDA rule of")


def emits(*kinds: OpDef) -> Callable[[Writing], Writing]:
    """Register a rule that writes statements."""
    return lambda rule: _register("statement", kinds, rule)


def elects(*kinds: OpDef) -> Callable[[Elected], Elected]:
    """Register a rule that returns statements of the elected thread."""
    return lambda rule: _register("elected", kinds, rule)


def spells(*kinds: OpDef) -> Callable[[Element], Element]:
    """Register a rule that returns the expression of one element."""
    return lambda rule: _register("element", kinds, rule)


def refers(*kinds: OpDef) -> Callable[[Reference], Reference]:
    """Register a rule that returns a reference to other values."""
    return lambda rule: _register("reference", kinds, rule)


def _register(form: RuleForm, kinds: tuple[OpDef, ...], rule: Any) -> Any:
    for kind in kinds:
        RULES.enter(kind, Rule(form, rule))
    return rule


@dataclass(frozen=True, slots=True)
class Partition:
    """The partition for which code is emitted: `num_warps` warps of the block from `first_warp`, and its hardware barrier."""

    first_warp: int
    num_warps: int
    barrier: int = 0


class Emitter:
    """The state of one function's emission. Rules call it; see the forms of rules above.

    `refs`: the reference of each value. `constants`: the values of constants. `index`: the register for which an elementwise
    rule is called. `uses_shared`: the text uses the base of shared memory. `buffers`: names and addresses of the author's
    allocations, which the kernel's head defines. `allocation_of`: the allocation of each view. `workspace`: the name of the
    block's part of the global workspace, if there is one. `partition`: the partition that executes the emitted code; outside of
    `control.partitions` it is the whole block. `exact`: additions that never overflow. `kept`: block indices that are read once
    and kept in registers.
    """

    def __init__(self, func: Func, target: Target) -> None:
        self.func = func
        self.target = target
        self.out = Writer()
        self.symbol = symbol(func.name, PIECE_NAMES | OWN)
        self.names = Names(PIECE_NAMES | {self.symbol})
        self.pieces = Pieces()
        self.refs: dict[Value, Ref] = {}
        self.constants: dict[Value, Number] = {}
        self.tables: dict[IndexTable, str] = {}
        self.index: Index = 0
        self.uses_shared = False
        self.buffers: list[tuple[str, str]] = []
        self.allocation_of: dict[Value, Value] = {}
        self.partition = Partition(0, func.attrs.num_warps)
        self.exact: Mapping[Value, str] = func.attrs.exact
        self.kept = kept_ids(func)
        self.warp_name = ""
        self.workspace = ""
        self._users = _users(func)
        self._storage = storage_of(func)
        self._classes: dict[int, Variable] = {}
        self._undeclared: list[Variable] = []
        self._loop: list[Op] = []
        self._filled: set[Ref] = set()
        self._elected: list[Op] = []

    # Values

    def at(self, value: Value, index: Index | None = None) -> str:
        """The text of a scalar, or of one register (by default the current one)."""
        return self.refs[value].at(self.index if index is None else index)

    def operand(self, op: Op, name: str, index: Index | None = None) -> str | None:
        """The text of an optional operand; None if it is absent."""
        value = op.operand(name)
        return None if value is None else self.at(value, index)

    def number(self, value: Value) -> Number | None:
        """The value as a compile-time constant, if it is one."""
        return self.constants.get(value)

    def entry(self, table: IndexTable, index: Index) -> str:
        """The entry of a constant table at a register."""
        if isinstance(index, int):
            return spelling.integer(table[index])
        spelled = tables.expression(table, index)
        return f"{self.array(table)}[{index}]" if spelled is None else spelled

    def array(self, table: IndexTable) -> str:
        """The name of a table as a constexpr array of the kernel; equal tables share one."""
        if table not in self.tables:
            self.tables[table] = self.names.fresh("table")
        return self.tables[table]

    def call(self, piece: str, *arguments: str) -> str:
        """A call of a prelude function, which is added to the text."""
        return f"{self.pieces.use(piece)}({', '.join(arguments)})"

    def shared_address(self, offset: str) -> str:
        """A 32-bit shared memory address: the block's base plus an offset in bytes, or the base itself."""
        self.uses_shared = True
        return f"scratch + {offset}" if offset else "scratch"

    @property
    def warp(self) -> str:
        """The name of the warp index, which the kernel's head then defines."""
        self.warp_name = self.warp_name or self.names.fresh("warp")
        return self.warp_name

    # Variables

    def variable(self, value: Value, mutable: bool = False) -> Variable:
        """The value's variable. An array is declared now, a scalar at its first assignment."""
        ref = self.refs.get(value)
        if isinstance(ref, Variable):
            return ref
        number = self._storage.class_of.get(value)
        made = self._make(value.name, value, mutable) if number is None else self._classes[number]
        if number is None:
            self._declare(made, value)
        self.refs[value] = made
        return made

    def counter(self, value: Value) -> Variable:
        """A variable that a loop's head declares."""
        made = self._make(value.name or "i", value, mutable=False)
        self.refs[value] = made
        return made

    def define(self, value: Value, text: str) -> None:
        """`const int x = text;`, or an assignment if several values share the variable."""
        if value in self._storage.class_of:
            self.set(self.variable(value), text)
            return
        made = self._make(value.name, value, mutable=False)
        self.refs[value] = made
        self.out.statement(f"{_const(made.type)} {made.name} = {text};")

    def is_used(self, value: Value) -> bool:
        """Whether an operation uses a value."""
        return value in self._users

    def call_for(self, value: Value, text: str) -> None:
        """A call with side effects: the definition of its result, or an expression statement if the result is unused."""
        if value in self._users:
            self.define(value, text)
        else:
            self.out.statement(f"{text};")

    def call_each(self, op: Op, call: Callable[[Index], str]) -> None:
        """A call with side effects for each register of the result."""
        value, count = op.result, spelling.count_of(op.result.type)
        if count is None:
            self.call_for(value, call(0))
        elif value in self._users:
            into = self.variable(value)
            self.unrolled(count, [(op.loc, lambda index: f"{into.at(index)} = {call(index)};")])
        else:
            self.unrolled(count, [(op.loc, lambda index: f"{call(index)};")])

    def set(self, variable: Variable, text: str) -> None:
        """Assign a scalar variable; the first assignment declares it."""
        first = variable in self._undeclared
        if first:
            self._undeclared.remove(variable)
        self.out.statement(f"{variable.declaration if first else variable.name} = {text};")

    def declare_pending(self) -> None:
        """Declare the scalars that have no assignment yet, since their first one will be in an inner scope."""
        for variable in self._undeclared:
            self.out.bare(f"{variable.declaration};")
        self._undeclared.clear()

    def _make(self, name: str, value: Value, mutable: bool) -> Variable:
        return Variable(
            self.names.fresh(name or spelling.unnamed(value.type.element)),
            spelling.c_type_of(value.type),
            spelling.count_of(value.type),
            mutable,
        )

    def _declare(self, variable: Variable, value: Value) -> None:
        # An array of one register is written by array accesses, which do not declare it.
        if variable.count is None and not isinstance(value.type, RegsType):
            self._undeclared.append(variable)
        else:
            self.out.bare(f"{variable.declaration};")

    def _declare_classes(self, op: Op) -> None:
        for number in self._storage.starts.get(op, ()):
            members = self._storage.members[number]
            name = next((member.name for member in members if member.name), "")
            self._classes[number] = self._make(name, members[0], mutable=True)
            self._declare(self._classes[number], members[0])

    # Parallel assignment

    def assign(self, targets: Sequence[Value], sources: Sequence[Value], mutable: bool = False) -> None:
        """A parallel assignment, as at a region's edge; values that share a variable need none."""
        pairs = [(self.variable(t, mutable), self.refs[s]) for t, s in zip(targets, sources, strict=True)]
        moves = sorted((m for m in pairs if m[0] is not m[1]), key=lambda m: m[0].count or 0)
        for count, group in groupby(moves, key=lambda m: m[0].count):
            if count is None:
                self._assign_scalars(list(group))
            else:
                self.unrolled(count, [(self.out.loc, partial(_assignment, m)) for m in self._in_order(list(group))])

    def _assign_scalars(self, moves: list[Move]) -> None:
        for target, source in self._in_order(moves):
            if target.local:
                self.out.statement(f"{_const(target.type)} {target.name} = {source.at(0)};")
            else:
                self.set(target, source.at(0))

    def _in_order(self, moves: list[Move]) -> list[Move]:
        """The sequential order of a parallel assignment; a cycle is broken by a temporary."""
        ordered: list[Move] = []
        while moves:
            free = next((m for m in moves if all(other is m or other[1] is not m[0] for other in moves)), None)
            if free is None:
                victim = moves[0][0]
                saved = Variable(self.names.fresh(f"old_{victim.name}"), victim.type, victim.count, local=True)
                ordered.append((saved, victim))
                moves = [(target, saved if source is victim else source) for target, source in moves]
                continue
            ordered.append(free)
            moves = [m for m in moves if m is not free]
        return ordered

    # Loops over registers

    def unrolled(self, count: int, statements: Iterable[Statement]) -> None:
        """The statements for each of `count` registers, in one unrolled loop; a `count` of 1 needs no loop."""
        statements = list(statements)
        if count == 1:
            self._statements(statements, 0)
            return
        head = f"for (int {REGISTER} = 0; {REGISTER} < {count}; ++{REGISTER})"
        self.out.bare("#pragma unroll")
        if len(statements) == 1:
            (self.out.loc, write) = statements[0]
            self.out.line(f"{head} {write(REGISTER)}")
            return
        self.out.bare(f"{head} {{")
        with self.out.indented():
            self._statements(statements, REGISTER)
        self.out.bare("}")

    def _statements(self, statements: list[Statement], index: Index) -> None:
        for self.out.loc, write in statements:
            self.out.statement(write(index))

    @contextmanager
    def registers(self, count: int) -> Iterator[Index]:
        """A loop over `count` registers (or groups of them); the body is written inside the `with` block. Yields the index."""
        self.declare_pending()
        if count == 1:
            yield 0
            return
        self.out.bare("#pragma unroll")
        with self.out.braces(f"for (int {REGISTER} = 0; {REGISTER} < {count}; ++{REGISTER})"):
            yield REGISTER

    # Operations

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A statement with a body; variables that are first assigned in it are declared before it."""
        self.declare_pending()
        with self.out.braces(head):
            yield

    def region(self, region: Region) -> None:
        """Emit all operations of a region except the terminator."""
        for op in region.ops[:-1]:
            self._op(op)
        self._close()
        self.out.loc = region.terminator.loc

    def _op(self, op: Op) -> None:
        self._declare_classes(op)
        rule = RULES[op.kind]
        if any(result in self._storage.class_of for result in op.results):
            self._close_elected()
        if rule.form == "statement":
            self._close()
            self.out.loc = op.loc
            rule.write(self, op)
        elif rule.form == "elected":
            self._close_loop()
            self._elected.append(op)
        elif rule.form == "reference":
            self._refer(op, rule)
        elif spelling.count_of(op.result.type) is None:
            self._scalar(op)
        else:
            self._close_elected()
            self._join_loop(op)
        for number in self._storage.ends.get(op, ()):
            self._classes[number].mutable = False

    def _close(self) -> None:
        """Write the deferred operations: the open loop and the operations of the elected thread."""
        self._close_loop()
        self._close_elected()

    def _close_elected(self) -> None:
        """Write the deferred operations of the elected thread; only definitions occurred between them."""
        group, self._elected = self._elected, []
        if group:
            write_elected(self, group)

    def _refer(self, op: Op, rule: Rule) -> None:
        """Alias the result to the rule's reference, or copy if the reference is mutable or not written yet."""
        sources = [self.refs[value] for value in op.uses]
        if not self._filled.isdisjoint(sources):
            self._close_loop()
        changing = any(isinstance(source, Variable) and source.mutable for source in sources)
        if not changing and op.result not in self._storage.class_of:
            self.refs[op.result] = rule.write(self, op)
            return
        self._close_loop()
        self.out.loc = op.loc
        self.copy(op.result, rule.write(self, op))

    def copy(self, value: Value, ref: Ref) -> None:
        """Give the value a variable with the current contents of `ref`, unless `ref` is that variable."""
        if self.refs.get(value) is ref:
            return
        if spelling.count_of(value.type) is None:
            self.define(value, ref.at(0))
            return
        made = self.variable(value)
        if made is not ref:
            self.unrolled(made.count or 1, [(self.out.loc, partial(_assignment, (made, ref)))])

    def _scalar(self, op: Op) -> None:
        # An open loop accesses arrays only, so the copy may precede it, unless it assigns a shared scalar.
        if op.result in self._storage.class_of:
            self._close_loop()
        self.out.loc = op.loc
        self.define(op.result, self._spell(op, 0))

    def _join_loop(self, op: Op) -> None:
        value = op.result
        if self._loop and spelling.count_of(self._loop[0].result.type) != spelling.count_of(value.type):
            self._close_loop()
        if value in self._storage.class_of:
            self.variable(value)
        else:
            self.refs[value] = self._make(value.name, value, mutable=False)
        self._loop.append(op)
        self._filled.add(self.refs[value])

    def _close_loop(self) -> None:
        """Write the open loop, preceded by the declarations of its arrays."""
        group, self._loop = self._loop, []
        if not group:
            return
        self._filled.clear()
        inside = set(group)
        for op in group:
            variable = self.variable(op.result)
            if op.result not in self._storage.class_of:
                variable.local = self._users.get(op.result, set()) <= inside
                if not variable.local:
                    self._declare(variable, op.result)
        self.unrolled(self.variable(group[0].result).count or 1, [(op.loc, partial(self._element, op)) for op in group])

    def _element(self, op: Op, index: Index) -> str:
        return _assignment((self.variable(op.result), Inline(self._spell(op, index))), index)

    def _spell(self, op: Op, index: Index) -> str:
        self.index = index
        return RULES[op.kind].write(self, op, *[self.at(value) for value in op.uses])

    def picked(self, source: Ref, table: IndexTable) -> Ref:
        """A permutation of a value's registers, without a copy."""
        if isinstance(source, Inline):
            return source
        if isinstance(source, Picked):
            return Picked(source.source, tuple([source.table[i] for i in table]), self.entry)
        return Picked(source, table, self.entry)


def _assignment(move: Move, index: Index) -> str:
    target, source = move
    prefix = f"{_const(target.type)} " if target.local else ""
    return f"{prefix}{target.at(index)} = {source.at(index)};"


def _const(type: str) -> str:
    return f"{type} const" if type.endswith("*") else f"const {type}"


def _users(func: Func) -> dict[Value, set[Op]]:
    users: dict[Value, set[Op]] = {}
    for op in walk(func.body):
        for value in op.uses:
            users.setdefault(value, set()).add(op)
    return users


# Statements of the one thread that acts for its partition, or for its warp: neighbours stand in one branch. Requests that
# several warps issue have branches of their own, one for warps that follow one another.


def elected_condition(e: Emitter, each_warp: bool = False, on: str | None = None) -> str:
    """The condition of the elected thread: the lane that `elect.sync` elects in the partition's first warp (or in each warp).

    A uniform predicate `on` is tested first. Under a branch inside the `elect.sync` branch, ptxas no longer knows that a single
    lane is active, and generates a loop over the active lanes around each TMA instruction."""
    here = e.partition
    if not e.target.has_elect:
        first = here.first_warp * e.target.warp_size
        elected = f"(threadIdx.x & {e.target.warp_size - 1}u) == 0" if each_warp else f"threadIdx.x == {first}"
    else:
        elected = e.call("elect_one")
    alone = each_warp or here.num_warps == 1 or not e.target.has_elect
    warp = None if alone else f"{e.warp} == {here.first_warp}"
    return " && ".join(part for part in (warp, on, elected) if part is not None)


def write_elected(e: Emitter, ops: list[Op]) -> None:
    """Write operations in order, with one branch for each run of equal predicates. A `__syncwarp` precedes a thread that acts
    for its warp."""
    synced = False
    for (load, each_warp, on), some in groupby(ops, lambda op: _kind_of_branch(e, op)):
        group = list(some)
        e.out.loc = group[0].loc
        if load is not None:
            _requests(e, load, on)
            continue
        if each_warp and not synced:
            e.out.line("__syncwarp();")
        synced = each_warp
        _branch(e, group, elected_condition(e, each_warp, on))


def _kind_of_branch(e: Emitter, op: Op) -> tuple[Op | None, bool, str | None]:
    """The key of operations that share a branch; a load issued by several warps has its own."""
    return op if op.by == "several warps" else None, op.by == "each warp", _predicate_of(e, op)


def _requests(e: Emitter, load: Op, on: str | None) -> None:
    """The TMA instructions of a load by several warps: one branch for each run of consecutive warps."""
    warps, first = load.attrs["issuers"], load.attrs["first"]
    ((count, text),) = _statements_of(e, load, True)
    e.declare_pending()
    done = 0
    while done < count:
        start = (first + done) % warps
        some = min(count - done, warps - start)
        low, high = e.partition.first_warp + start, e.partition.first_warp + start + some
        if some == 1:
            who, index = [f"{e.warp} == {low}"], done
        else:
            who = [f"{e.warp} >= {low}"] * (start > 0) + [f"{e.warp} < {high}"] * (start + some < warps)
            index = f"{e.warp} - {low - done}" if low > done else e.warp if low == done else f"{e.warp} + {done - low}"
        e.out.line(f"if ({' && '.join([*who, *([on] if on else []), e.call('elect_one')])}) {text(index)}")
        done += some


def _branch(e: Emitter, ops: list[Op], condition: str) -> None:
    """A branch with its operations."""
    kinds = [op.kind for op in ops]
    ends = [kind is not after for kind, after in zip(kinds, [*kinds[1:], None], strict=True)]
    statements = [_statements_of(e, op, end) for op, end in zip(ops, ends, strict=True)]
    head = f"if ({condition})"
    line = _in_one_line(head, ops, statements)
    if line is not None:
        e.declare_pending()
        e.out.line(line)
        return
    with e.braces(head):
        for op, repeated in zip(ops, statements, strict=True):
            e.out.loc = op.loc
            for count, text in repeated:
                e.unrolled(count, [(op.loc, text)])


def _in_one_line(head: str, ops: list[Op], statements: list[list[Repeated]]) -> str | None:
    """The branch with its statements on one line, if they are few and from one source line."""
    every = [item for repeated in statements for item in repeated]
    if len({op.loc for op in ops}) > 1 or any(count > 1 for count, _ in every):
        return None
    texts = [text(0) for _, text in every]
    line = f"{head} {texts[0]}" if len(texts) == 1 else f"{head} {{ {' '.join(texts)} }}"
    return line if len(texts) == 1 or len(line) <= WIDTH else None


def _statements_of(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    return RULES[op.kind].write(e, op, last)


def _predicate_of(e: Emitter, op: Op) -> str | None:
    return e.operand(op, "pred") if "pred" in op.kind.operand_index else None
