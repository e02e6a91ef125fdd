"""The exceptions a user can meet, and how a row of the catalogue becomes one.

Every user error is a row: a stable code, a message in the author's words with the two things that disagree, and the fix.
Rows live beside this file, one module per family; `fail` makes the exception of a row. Code that has no location at hand
raises without one, and whoever reads the author's source (the `lang` package) adds it with `at`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from typing import Any

from weft.errors.location import Loc, render
from weft.loading import Registry


class WeftError(Exception):
    """Base of everything weft raises on purpose. It can be pickled: processes hand errors on to each other."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own way calls the class with `args`, which is the message alone; in a worker of a pool that ends in a
        # parent that waits for ever.
        return _restored, (type(self), self.args), dict(self.__dict__)


def _restored(kind: type[WeftError], args: tuple[object, ...]) -> WeftError:
    """An error as it is before its attributes are set."""
    return kind.__new__(kind, *args)


class UserError(WeftError):
    """A mistake in a kernel, a layout or a launch.

    Attributes: `code` (stable, kebab-case), `message`, `fix` (what to write instead), `loc` (the Python line, when known)
    and `related` (label and location of the other places involved).
    """

    def __init__(
        self, code: str, message: str, fix: str = "", loc: Loc | None = None, related: tuple[tuple[str, Loc], ...] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.loc = loc
        self.related = related

    def at(self, loc: Loc | None) -> UserError:
        """Give the error a place, unless it already has one; returns itself, so `raise error.at(loc)` reads well."""
        if self.loc is None:
            self.loc = loc
        return self

    def __str__(self) -> str:
        out = [f"{self.message} [{self.code}]"]
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
    """Something that a kernel may well do, and that will be slow: warned of (`warnings.warn`), never raised."""


class Hazard(UserError):
    """A mistake found while a kernel ran in the simulator (see `weft.errors.hazard` for one subclass per rule).

    Of two accesses that clash, `first` is the location of the earlier one and `second` that of the later (which is `loc`).
    `buffer` names the memory and `partitions` who accesses it, first and second, where that is known. Of a run that goes on
    after hazards (`weft.simulate(keep_going=True)`), `times` counts how often it met this one, and `earlier` are those before
    the one that ended it.
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
        """Where the earlier of the two accesses stands."""
        return self.related[0][1] if self.related else None

    @property
    def second(self) -> Loc | None:
        """Where the later of the two accesses stands, which was found at fault."""
        return self.loc


class ErrorGroup(UserError):
    """Several mistakes of one kernel, reported together."""

    def __init__(self, errors: list[UserError]) -> None:
        first = errors[0]
        super().__init__(first.code, first.message, first.fix, first.loc, first.related)
        self.errors = errors

    def __str__(self) -> str:
        return "\n\n".join(str(error) for error in self.errors)


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
"""A layout as it prints, in a fix: kernels spell it with `gl.`, but for those of tensor memory, which are no part of `gl`."""


def counted(count: int, noun: str, plural: str = "s") -> str:
    """The number and the noun, with its plural's ending where there is not one of it.

    >>> counted(1, "program"), counted(2, "program"), counted(0, "launch", "es")
    ('1 program', '2 programs', '0 launches')
    """
    return f"{count} {noun}{'' if count == 1 else plural}"
