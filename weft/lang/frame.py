"""State of the reader: the kernel under construction, and the function being read with its environment.

One `Trace` lasts for a whole kernel. Each function read (the kernel and every inlined helper) has a `Frame`. The reader of a
construct is a free function, entered in one of two tables by `expression` and `statement`; the frame looks it up by node type.

A statement ends in an outcome: continue with the next statement, break, continue, or return. When a branch on a run-time
condition contains a `return`, the code after the branch must become part of the other branch, because the IR is structured and
has no jumps. So a compound statement gets `after`, its continuation: a callable that takes the statement's outcome and reads
the rest of the function.

In a run-time loop the continuation ends with the loop's body. A `break` or `return` there binds hidden names (not identifiers,
so no author can write them) and ends the reading of its branch. Branches join these names as they join all others, and the loop
carries them (see `weft.lang.exits`).
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from weft import settings
from weft.errors import ErrorGroup, Loc, Row, UserError, WeftError, fail
from weft.errors import source as errors
from weft.ir.build import Builder
from weft.ir.core import Value
from weft.ir.types import Type
from weft.lang.source import Path, Source

MOST_ERRORS = 10

RESULT, GOING, RETURNED = "its result", "(going)", "(returned)"
"""Hidden names of a run-time loop: the function's result, a flag that is False after a break, a flag that is True after a
return."""


class Signal(enum.Enum):
    """Outcomes of a statement other than a return. END: reading of the enclosing region ends here.

    BREAK and CONTINUE occur in unrolled loops only.
    """

    NEXT = enum.auto()
    BREAK = enum.auto()
    CONTINUE = enum.auto()
    END = enum.auto()


@dataclass(frozen=True, slots=True)
class Return:
    """The outcome of a return with its value; `loc` is the return's location, None at the function's end."""

    value: Any
    loc: Loc | None = None

    @property
    def binding(self) -> Binding:
        """The value as a binding of the result's hidden name."""
        return Binding(self.value, self.loc)


Outcome = Signal | Return
After = Callable[[Outcome], Outcome]


def final(outcome: Outcome) -> bool:
    """True when reading of the function, or of the enclosing region, ends here."""
    return outcome is Signal.END or isinstance(outcome, Return)


@dataclass(frozen=True, slots=True)
class Unusable:
    """The binding of a name without a value: the error to report when the name is read.

    Without a `row` the error has been reported already. `loc` is the location of the error, if it is not the reading line.
    """

    row: Row | None = None
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    loc: Loc | None = None
    related: tuple[tuple[str, Loc], ...] = ()

    def error(self, reader: Loc) -> UserError:
        """The error for a read at this location. Raises Skip when it has been reported already."""
        if self.row is None:
            raise Skip
        if self.loc is None:
            return fail(self.row, loc=reader, related=self.related, **self.fields)
        used = () if reader == self.loc else (("used here", reader),)
        return fail(self.row, loc=self.loc, related=(*self.related, *used), **self.fields)


POISON = Unusable()


class TooLong(Exception):
    """The statement limit is reached. It is not a user error, so that no enclosing statement recovers from it."""


class Skip(Exception):
    """A statement reads a value whose computation has failed. It is skipped without another error."""


class Binding(NamedTuple):
    """The value of a name, and where it was assigned."""

    value: Any
    loc: Loc | None


Env = dict[str, Binding]


def spell(path: Path) -> str:
    """A path in Python's syntax: `cfg.tiles[0]`."""
    spelled = {"name": ".{}", "attribute": ".{}", "item": "[{!r}]", "length": ".__len__()"}
    return "".join(spelled[kind].format(key) for kind, key in path).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Read:
    """A recorded read of a global or closure variable of `owner`, or of a path of attributes and items from one.

    `owner` is a function, or a module or class whose attribute was read other than by a path.
    """

    owner: Any
    path: Path
    value: Any


@dataclass(frozen=True, slots=True)
class Ran:
    """A call of the author's Python while a kernel was read, with those of its arguments that are the author's objects."""

    function: Any
    arguments: tuple[Any, ...]


@dataclass(slots=True)
class Trace:
    """A kernel under construction: its builder, the functions being read, the reads from outside, and the errors found.

    `promoted` keeps for each loop, by path, the types of leaves that are carried in another type than at entry; `left` keeps
    its exits. Both spare attempts when the loop is read again as part of an enclosing one. `unrolled` lists the iteration
    numbers of the unrolled loops around the current line: a location alone does not identify a loop inside them. `named` keeps
    the call depth at which a handle got its name. `ran` lists the calls of the author's Python. `known` holds (by identity)
    the functions whose reads are all recorded. `opened` is true when the result depends on more than the recorded reads.
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
        """Count a statement, or an element of a comprehension. Raises TooLong above the limit."""
        self.statements += 1
        if self.statements > self.most_statements:
            raise TooLong

    def read(self, owner: Any, path: Path, value: Any) -> Any:
        """Record a read. Returns the value of the first recording, so that one compilation sees one value."""
        return self.reads.setdefault((id(owner), path), Read(owner, path, value)).value

    def report(self, error: UserError) -> None:
        """Collect an error, once per location: a mistake in a helper is one, wherever that is called. Raises all of them when
        there are `MOST_ERRORS`."""
        found = error.errors if isinstance(error, ErrorGroup) else [error]
        known = set(map(_mistake, self.errors))
        self.errors += [e for e in found if _mistake(e) not in known]
        if len(self.errors) >= MOST_ERRORS:
            self.finish()

    def finish(self) -> None:
        """Raise the collected errors: the only one, or an ErrorGroup."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise ErrorGroup(self.errors)


def _mistake(error: UserError) -> tuple[str, str, Loc | None]:
    """What tells errors apart."""
    return error.code, error.message, None if error.loc is None else replace(error.loc, caller=None)


@dataclass(slots=True, eq=False)
class Frame:
    """A function being read. `caller` is the location of the inlining call; `loops` has a bool per enclosing loop, true for an
    unrolled one; `arguments` are a helper's, as it was called."""

    trace: Trace
    function: Any  # A FunctionType. Annotated as such, type checkers would take the field for a method.
    source: Source
    caller: Loc | None
    env: Env
    loops: tuple[bool, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    locs: dict[ast.stmt | ast.expr, Loc] = field(default_factory=dict["ast.stmt | ast.expr", Loc])

    @property
    def builder(self) -> Builder:
        """The builder of the kernel."""
        return self.trace.builder

    def at(self, node: ast.stmt | ast.expr) -> Loc:
        """The location of a node, with the call that inlined this function."""
        found = self.locs.get(node)
        if found is None:
            source, end = self.source, (node.end_lineno, node.end_col_offset)
            self.locs[node] = found = Loc(source.file, node.lineno, node.col_offset, *end, source.name, self.caller)
        return found

    def mark(self, node: ast.stmt | ast.expr) -> Loc:
        """Set the node's location on the operations that are built next. Returns it."""
        self.builder.loc = loc = self.at(node)
        return loc

    def bind(self, name: str, value: Any, loc: Loc | None) -> None:
        """Bind a name to a value."""
        self.env[name] = Binding(value, loc)

    def value(self, node: ast.expr) -> Any:
        """Read an expression. Errors that it raises may lack a location; the builder's current location applies then."""
        return EXPRESSIONS[type(node)](self, node)

    def returns(self, value: Any, loc: Loc | None) -> Outcome:
        """Return from the function. Within a run-time loop the return sets hidden names, which are tested after the loop."""
        if all(self.loops):
            return Return(value, loc)
        self.bind(RETURNED, True, loc)
        self.bind(RESULT, value, loc)
        return Signal.END

    def usable(self, result: Any, loc: Loc) -> Any:
        """A function's result. When its returns have different types, the error is reported and the result is poison."""
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
        """Read one statement. After an error the names that the statement assigns are poisoned and reading continues."""
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
        for name in self.source.poisoned(node):
            self.bind(name, POISON, self.builder.loc)
        return self.returns(POISON, self.builder.loc) if isinstance(node, ast.Return) else Signal.NEXT


# Exceptions of constant folding (Python's) and of weft's typing rules (WeftError).
EXPECTED = (WeftError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def explain(error: Exception) -> UserError:
    """A user error with the text of an exception."""
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
    """Register the reader of a node type: it takes frame and node and returns the value."""

    def enter(read: Expression) -> Expression:
        EXPRESSIONS[kind] = read
        return read

    return enter


def statement(kind: type[ast.stmt]) -> Callable[[Statement], Statement]:
    """Register the reader of a node type: it takes frame, node and continuation and returns the outcome."""

    def enter(read: Statement) -> Statement:
        STATEMENTS[kind] = read
        return read

    return enter
