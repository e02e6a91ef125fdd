"""The exception classes of user errors, the catalogue of their messages, and `fail`, which makes an exception from a row.

Every user error is a row: a stable code, a message that names the two things that disagree, and a fix. Rows live beside
this file, one module per family. Code that knows no source location raises without one; the reader of kernel source (the
`lang` package) adds it with `at`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from typing import Any

from weft.errors.location import Loc, render
from weft.loading import Registry


class WeftError(Exception):
    """Base class of every exception that weft raises deliberately. Picklable, so that a worker process can return one."""

    def __reduce__(self) -> tuple[Any, ...]:
        # `BaseException.__reduce__` calls the class with `args`, here the message alone, which fails for constructors of
        # several arguments. A result that a process pool cannot unpickle makes the parent hang.
        return _restored, (type(self), self.args), dict(self.__dict__)


def _restored(kind: type[WeftError], args: tuple[object, ...]) -> WeftError:
    """An error whose attributes are not restored yet."""
    return kind.__new__(kind, *args)


class UserError(WeftError):
    """A mistake in a kernel, a layout or a launch.

    Attributes: `code` (stable, kebab-case), `message`, `fix` (what to write instead), `loc` (the Python line, when known),
    `related` (label and location of the other places involved) and `during` (the operator that was being called, if any).
    """

    during: str = ""

    def __init__(
        self, code: str, message: str, fix: str = "", loc: Loc | None = None, related: tuple[tuple[str, Loc], ...] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.loc = loc
        self.related = related

    def within(self, what: str) -> UserError:
        """Name the operator that was being called, unless the error names one already. Returns the error itself."""
        self.during = self.during or what
        return self

    def at(self, loc: Loc | None) -> UserError:
        """Set the location unless the error already has one. Returns the error itself, for `raise error.at(loc)`."""
        if self.loc is None:
            self.loc = loc
        return self

    def __str__(self) -> str:
        out = [f"{self.during and self.during + ': '}{self.message} [{self.code}]"]
        if self.loc is not None:
            out.append(render(self.loc))
        for label, loc in self.related:
            out.append(f"{label}:")
            out.append(render(loc))
        if self.fix:
            out.append(f"fix: {self.fix}")
        return "\n".join(out)


class LayoutError(UserError, ValueError):
    """A layout that is impossible, or that does not fit its tile or its operation."""


class CompilationError(UserError):
    """A kernel that cannot be compiled as written."""


class LaunchError(UserError, ValueError):
    """A launch whose grid, options or arguments cannot be used."""


class DeviceError(UserError, RuntimeError):
    """The machine lacks something: a driver, NVRTC, a disassembler, the right GPU."""


class PerformanceWarning(UserError, UserWarning):
    """Valid code that will run slowly. Issued with `warnings.warn`, never raised."""


class Hazard(UserError):
    """A mistake found while a kernel ran in the simulator (see `weft.errors.hazard` for one subclass per rule).

    Of two conflicting accesses, `first` is the location of the earlier one and `second` that of the later one (which is
    `loc`). `buffer` names the memory, `partitions` the partitions of the first and the second access, where they are known.
    In a run that continues after hazards (`weft.simulate(keep_going=True)`), `times` counts the occurrences of this hazard,
    and `earlier` holds the hazards found before the one that ended the run.
    """

    buffer: str = ""
    partitions: tuple[str, ...] = ()
    times: int = 1
    earlier: tuple[Hazard, ...] = ()

    @property
    def rule(self) -> str:
        """The rule that was broken: its code in the catalogue."""
        return self.code

    @property
    def first(self) -> Loc | None:
        """The location of the earlier of the two accesses."""
        return self.related[0][1] if self.related else None

    @property
    def second(self) -> Loc | None:
        """The location of the later of the two accesses, where the hazard was detected."""
        return self.loc


class ErrorGroup(UserError):
    """Several mistakes of one kernel, reported together."""

    def __init__(self, errors: list[UserError]) -> None:
        first = errors[0]
        super().__init__(first.code, first.message, first.fix, first.loc, first.related)
        self.errors = errors

    def __str__(self) -> str:
        during = f"{self.during}:\n" if self.during else ""
        return during + "\n\n".join(str(error) for error in self.errors)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the catalogue. `message` and `fix` are format strings; their fields are the arguments of `fail`."""

    code: str
    kind: type[UserError]
    message: str
    fix: str

    @property
    def fields(self) -> frozenset[str]:
        """Names that `fail` must be given."""
        return frozenset(
            name.split(".")[0].split("[")[0]
            for text in (self.message, self.fix)
            for _, name, _, _ in Formatter().parse(text)
            if name
        )


CATALOGUE: Registry[str, Row] = Registry("error code")


def row(code: str, kind: type[UserError], message: str, fix: str = "") -> Row:
    """Enter a row into the catalogue. A code is entered once."""
    return CATALOGUE.enter(code, Row(code, kind, message, fix))


def fail(
    entry: Row, *, loc: Loc | None = None, related: tuple[tuple[str, Loc], ...] = (), **fields: object
) -> UserError:
    """The exception of a row, with its fields filled in. Use as `raise fail(errors.layout.WARP_SIZE, product=64)`."""
    fix = _LAYOUT.sub(r"gl.\1", entry.fix.format(**fields))
    return entry.kind(entry.code, entry.message.format(**fields), fix, loc, related)


_LAYOUT = re.compile(r"(?<![\w.'])((?!TensorMemory)\w+Layout\()")
"""The `repr` of a layout in a fix. Kernels write it with `gl.`, except for tensor memory layouts, which `gl` lacks."""


def counted(count: int, noun: str, plural: str = "s") -> str:
    """The number and the noun, in the plural unless the number is 1.

    >>> counted(1, "program"), counted(2, "program"), counted(0, "launch", "es")
    ('1 program', '2 programs', '0 launches')
    """
    return f"{count} {noun}{'' if count == 1 else plural}"
