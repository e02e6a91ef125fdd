"""What the reader carries along: the kernel under construction, and the function being read with its names.

One `Trace` lasts for a whole kernel; each function read, the kernel itself and every inlined helper, has a `Frame`. The
methods of a construct are free functions entered into two tables, `expression` and `statement`; the frame looks them up.

A statement ends in an outcome: the next one runs, a loop is left or goes on, or the function is done. Where a branch on a
run-time condition contains a `return`, what follows the branch must become a part of it. Therefore compound statements get
`after`, the rest of the function as a callable: given how they ended it reads on until the function is done.

In a loop that runs on the GPU the rest ends with the loop's body. What leaves such a loop binds names that no author can write
and ends the reading there: they are joined by branches as all names are, and the loop carries them (see `weft.lang.exits`).
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft import settings
from weft.errors import ErrorGroup, Loc, Row, UserError, WeftError, fail
from weft.errors import lang as errors
from weft.ir.build import Builder
from weft.ir.core import Value
from weft.ir.types import Type
from weft.lang.source import Path, Source

MOST_ERRORS = 10

RESULT, GOING, RETURNED = "its result", "(going)", "(returned)"
"""Names of what leaves a loop on the GPU: what the function returns, False after a break, True after a return."""


class Signal(enum.Enum):
    """How a statement ended, other than by returning. END: nothing of the enclosing region is left to read.

    BREAK and CONTINUE are those of unrolled loops.
    """

    NEXT = enum.auto()
    BREAK = enum.auto()
    CONTINUE = enum.auto()
    END = enum.auto()


@dataclass(frozen=True, slots=True)
class Return:
    """The function is done, with this value; `loc` is the return's, None at the function's end."""

    value: Any
    loc: Loc | None = None

    @property
    def binding(self) -> Binding:
        """The value as a name would hold it."""
        return Binding(self.value, self.loc)


Outcome = Signal | Return
After = Callable[[Outcome], Outcome]


def final(outcome: Outcome) -> bool:
    """True when nothing of the function, or of the enclosing region, is left to read."""
    return outcome is Signal.END or isinstance(outcome, Return)


@dataclass(frozen=True, slots=True)
class Unusable:
    """What a name holds when it has no value: the mistake to report where somebody reads it.

    Without a `row` the mistake has been reported already. `loc` is the place of the mistake, if not the reading line.
    """

    row: Row | None = None
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    loc: Loc | None = None
    related: tuple[tuple[str, Loc], ...] = ()

    def error(self, reader: Loc) -> UserError:
        """The mistake, for a reader in this line. Raises Skip when it is known already."""
        if self.row is None:
            raise Skip
        if self.loc is None:
            return fail(self.row, loc=reader, related=self.related, **self.fields)
        used = () if reader == self.loc else (("used here", reader),)
        return fail(self.row, loc=self.loc, related=(*self.related, *used), **self.fields)


POISON = Unusable()


class TooLong(Exception):
    """Reading ends: no statement that contains this one goes on, as it would after a mistake."""


class Skip(Exception):
    """A statement needs a value whose making has failed before; it is passed over in silence."""


class Binding(NamedTuple):
    """What a name holds, and where it was assigned."""

    value: Any
    loc: Loc | None


Env = dict[str, Binding]


def spell(path: Path) -> str:
    """A path as the author writes it: `cfg.tiles[0]`."""
    spelled = {"name": ".{}", "attribute": ".{}", "item": "[{!r}]", "length": ".__len__()"}
    return "".join(spelled[kind].format(key) for kind, key in path).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Read:
    """A global or closure name, or a path of attributes and items from one, as `owner` saw it.

    `owner` is a function, or a module or a class of which an attribute was read in another way than by a path.
    """

    owner: Any
    path: Path
    value: Any


@dataclass(frozen=True, slots=True)
class Ran:
    """Python of the author's that was called while a kernel was read, and the author's objects that it was called with."""

    function: Any
    arguments: tuple[Any, ...]


@dataclass(slots=True)
class Trace:
    """A kernel under construction: its builder, the functions being read, what was read from outside, and mistakes.

    `promoted` remembers for each loop the types of what goes round in another type than it came in, by path, and `left` how
    it is left early; `unrolled` are the rounds of the unrolled loops around the current line, without which a place does not
    say which loop is meant. `named` remembers how many calls deep a handle got its name. `ran` is the author's
    Python that was called, `known` are those functions of which all reads are recorded too (by identity), and `opened` says
    that the result depends on more than the reads say.
    """

    builder: Builder
    frames: list[Frame] = field(default_factory=list["Frame"])
    reads: dict[tuple[int, Path], Read] = field(default_factory=dict[tuple[int, Path], Read])
    ran: dict[tuple[int, ...], Ran] = field(default_factory=dict[tuple[int, ...], Ran])
    known: dict[int, Any] = field(default_factory=dict[int, Any])
    opened: bool = False
    errors: list[UserError] = field(default_factory=list[UserError])
    promoted: dict[object, dict[str, Type]] = field(default_factory=dict[object, dict[str, Type]])
    left: dict[object, Any] = field(default_factory=dict[object, Any])
    unrolled: list[int] = field(default_factory=list[int])
    named: dict[Value, int] = field(default_factory=dict[Value, int])
    statements: int = 0
    most_statements: int = field(default_factory=lambda: settings.current().max_statements)

    def count(self) -> None:
        """One more statement, or element of a comprehension, is read. Raises TooLong."""
        self.statements += 1
        if self.statements > self.most_statements:
            raise TooLong

    def read(self, owner: Any, path: Path, value: Any) -> Any:
        """Record a read; gives the value that was found when it was recorded first."""
        return self.reads.setdefault((id(owner), path), Read(owner, path, value)).value

    def report(self, error: UserError) -> None:
        """Keep a mistake, once for each place. Raises them all when there are too many to go on."""
        found = error.errors if isinstance(error, ErrorGroup) else [error]
        known = {(e.code, e.message, e.loc) for e in self.errors}
        self.errors += [e for e in found if (e.code, e.message, e.loc) not in known]
        if len(self.errors) >= MOST_ERRORS:
            self.finish()

    def finish(self) -> None:
        """Raise what was reported: the one mistake, or an ErrorGroup."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise ErrorGroup(self.errors)


@dataclass(slots=True, eq=False)
class Frame:
    """A function being read. `caller` is the call that inlined it; `loops` says of each open loop whether it is unrolled."""

    trace: Trace
    function: Any  # a FunctionType; a field annotated so would read as a bound method to type checkers
    source: Source
    caller: Loc | None
    env: Env
    loops: tuple[bool, ...] = ()

    @property
    def builder(self) -> Builder:
        """Where operations go."""
        return self.trace.builder

    def at(self, node: ast.stmt | ast.expr) -> Loc:
        """The place of a node, with the call that inlined this function."""
        source = self.source
        return Loc(
            source.file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, source.name, self.caller
        )

    def mark(self, node: ast.stmt | ast.expr) -> Loc:
        """Stamp the node's place on what is built next; returns it."""
        self.builder.loc = loc = self.at(node)
        return loc

    def bind(self, name: str, value: Any, loc: Loc | None) -> None:
        """Let a name hold a value."""
        self.env[name] = Binding(value, loc)

    def value(self, node: ast.expr) -> Any:
        """Read an expression. Raises the author's mistakes, without a place where only the builder knows it."""
        return EXPRESSIONS[type(node)](self, node)

    def returns(self, value: Any, loc: Loc | None) -> Outcome:
        """Be done with the function. A loop on the GPU has to be left first: it says after its end that this is so."""
        if all(self.loops):
            return Return(value, loc)
        self.bind(RETURNED, True, loc)
        self.bind(RESULT, value, loc)
        return Signal.END

    def usable(self, result: Any, loc: Loc) -> Any:
        """A function's result; where its returns differ the mistake is reported, and the result is poisoned."""
        if not isinstance(result, Unusable) or result is POISON:
            return result
        self.trace.report(result.error(result.loc or loc))
        return POISON

    def suite(self, statements: list[ast.stmt], after: After) -> Outcome:
        """Read statements in turn until one does not end in NEXT."""
        for i, node in enumerate(statements):
            compound = isinstance(node, (ast.If, ast.For, ast.While))
            outcome = self.statement(node, self._rest(statements, i + 1, after) if compound else after)
            if outcome is not Signal.NEXT:
                return outcome
        return Signal.NEXT

    def _rest(self, statements: list[ast.stmt], start: int, after: After) -> After:
        def rest(outcome: Outcome) -> Outcome:
            if outcome is Signal.NEXT:
                outcome = self.suite(statements[start:], after)
            return outcome if final(outcome) else after(outcome)

        return rest

    def statement(self, node: ast.stmt, after: After) -> Outcome:
        """Read one statement. A mistake is reported, what the statement assigns is poisoned, and reading goes on."""
        self.mark(node)
        self.trace.count()
        env = self.env
        try:
            return STATEMENTS[type(node)](self, node, after)
        except Skip:
            pass
        except UserError as error:
            self.trace.report(error.at(self.builder.loc))
        except EXPECTED as error:
            self.trace.report(explain(error).at(self.builder.loc))
        self.env = env
        for name in self.source.spoiled(node):
            self.bind(name, POISON, self.builder.loc)
        return self.returns(POISON, self.builder.loc) if isinstance(node, ast.Return) else Signal.NEXT


# What computing with constants may raise, and what weft's own typing rules do.
EXPECTED = (WeftError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def explain(error: Exception) -> UserError:
    """A user error that says what an exception said."""
    if isinstance(error, WeftError):
        found = fail(errors.INTERNAL, message=error)
    else:
        found = fail(errors.RAISED, kind=type(error).__name__, message=error)
    found.__cause__ = error
    return found


Expression = Callable[[Frame, Any], Any]
Statement = Callable[[Frame, Any, After], Outcome]
EXPRESSIONS: dict[type[ast.expr], Expression] = {}
STATEMENTS: dict[type[ast.stmt], Statement] = {}


def expression(kind: type[ast.expr]) -> Callable[[Expression], Expression]:
    """Enter a function as the way to read a kind of expression: frame and node in, value out."""

    def enter(read: Expression) -> Expression:
        EXPRESSIONS[kind] = read
        return read

    return enter


def statement(kind: type[ast.stmt]) -> Callable[[Statement], Statement]:
    """Enter a function as the way to read a kind of statement: frame, node and the rest in, outcome out."""

    def enter(read: Statement) -> Statement:
        STATEMENTS[kind] = read
        return read

    return enter
