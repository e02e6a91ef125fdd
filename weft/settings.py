"""Every environment variable of weft, read once into one frozen record.

Only `current()` reads the environment; nothing else in the package does. `using` changes fields for a block of code, which is
how a program or a test sets what a user would export.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from weft.errors import fail
from weft.errors.launch import SETTING
from weft.scoped import Scoped

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _flag(variable: str, text: str) -> bool:
    if text.lower() in ("1", "true", "on", "yes"):
        return True
    if text.lower() in ("0", "false", "off", "no"):
        return False
    raise fail(SETTING, variable=variable, text=text, expected="a flag", example="1")


def _bytes(variable: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,15}) *([kmg]?)(i?b)?", text.strip().lower())
    if match is None:
        raise fail(SETTING, variable=variable, text=text, expected="a number of bytes", example="512MiB")
    return int(match[1]) * _UNITS[match[2]]


def _count(variable: str, text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise fail(SETTING, variable=variable, text=text, expected="a number", example="1000000")
    return int(text)


def _folder(variable: str, text: str) -> Path:
    try:
        # Absolute, so that a program that changes its working directory keeps the same folder.
        return Path(text).expanduser().absolute()
    except (RuntimeError, OSError):
        raise fail(
            SETTING, variable=variable, text=text, expected="the path of a folder", example="/tmp/weft"
        ) from None


def _target(variable: str, text: str) -> str:
    if re.fullmatch(r"(sm_|cuda:)?\d+a?", text) is None:
        raise fail(SETTING, variable=variable, text=text, expected="a GPU architecture", example="sm_90a")
    return text


def _cache_home(environ: Mapping[str, str]) -> Path:
    """`weft` in the user's cache folder; for a user without a home, as in some containers, in the temporary folder."""
    # The XDG base directory specification demands that relative paths be ignored.
    caches = Path(environ.get("XDG_CACHE_HOME", ""))
    if caches.is_absolute():
        return caches / "weft"
    try:
        return Path.home() / ".cache" / "weft"
    except RuntimeError:
        import tempfile

        user = os.getuid() if hasattr(os, "getuid") else 0
        return Path(tempfile.gettempdir()) / f"weft-{user}"


def _variable(name: str, parse: Callable[[str, str], Any], **default: Any) -> Any:
    return field(metadata={"variable": name, "parse": parse}, **default)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. Each field names its environment variable; an unset variable leaves the default."""

    target: str = _variable("WEFT_TARGET", _target, default="sm_90a")
    """The architecture that is simulated when there is no GPU."""
    cache: bool = _variable("WEFT_CACHE", _flag, default=True)
    """Keep compiled kernels on disk."""
    cache_dir: Path = _variable("WEFT_CACHE_DIR", _folder, default_factory=lambda: _cache_home(os.environ))
    cache_size: int = _variable("WEFT_CACHE_SIZE", _bytes, default=1 << 30)
    """Limit of the disk cache in bytes. Above it the least recently used entries are deleted."""
    debug: bool = _variable("WEFT_DEBUG", _flag, default=False)
    """Default of `debug` for launches and kernels that do not set it."""
    traceback: bool = _variable("WEFT_TRACEBACK", _flag, default=False)
    """Whether tracebacks of errors in launches include weft's own frames."""
    verify: bool = _variable("WEFT_VERIFY", _flag, default=False)
    """Verify the IR after every pass: for work on the compiler."""
    max_statements: int = _variable("WEFT_MAX_STATEMENTS", _count, default=100_000)
    """Limit on the statements of a kernel after its constant loops are unrolled and its helpers inlined."""
    max_iterations: int = _variable("WEFT_MAX_ITERATIONS", _count, default=1_000_000)
    """The simulator reports a `while` loop as endless after this many iterations."""
    tune: bool = _variable("WEFT_TUNE", _flag, default=True)
    """Whether autotuned launches measure when no choice is stored. If not, they take the first config that compiles."""
    tune_progress: bool | None = _variable("WEFT_TUNE_PROGRESS", _flag, default=None)
    """Whether tuning shows its progress; when unset, only on a terminal."""


def read(environ: Mapping[str, str]) -> Settings:
    """The settings of an environment. Raises LaunchError (setting-value) for a value that cannot be parsed.

    A variable that is empty or blank counts as unset, so that `WEFT_CACHE_DIR=$UNSET` does not name the current directory.

    >>> read({"WEFT_TARGET": "sm_100a", "WEFT_CACHE_SIZE": "2 MiB"}).cache_size
    2097152
    """
    given: dict[str, Any] = {"cache_dir": _cache_home(environ)}
    for entry in fields(Settings):
        variable, parse = entry.metadata["variable"], entry.metadata["parse"]
        text = environ.get(variable, "")
        if text.strip():
            given[entry.name] = parse(variable, text)
    return Settings(**given)


_changes: Scoped[Mapping[str, Any]] = Scoped("weft.settings")
under_way = _changes.under_way
"""`under_way()` is true within a block of `using`."""


@cache
def _of_process() -> Settings:
    return read(os.environ)


def current() -> Settings:
    """The settings of this thread or task. The environment is read at the first call."""
    found = _of_process()
    for changes in _changes.values():
        found = replace(found, **changes)
    return found


@contextmanager
def using(**changes: Any) -> Iterator[Settings]:
    """Change fields of the settings for a block of code, in its thread or asyncio task.

    Threads that the block starts do not see the change, unless they run in a copy of its context (`contextvars.copy_context`).

    >>> with using(target="sm_80"): current().target
    'sm_80'
    """
    with _changes.block(changes):
        yield current()
