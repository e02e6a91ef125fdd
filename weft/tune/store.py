"""Choices on disk: a folder beside the compiled kernels, with one small JSON file for each choice.

A file is written beside its place and renamed into it, so any number of processes may write at once, and a reader sees a whole
file or none. One that is damaged all the same costs a warning and counts as absent. Files carry the number of their format;
a weft of another format looks in another folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from weft import settings
from weft.errors import fail
from weft.errors.tune import DAMAGED, OTHER_VERSION
from weft.runtime.fingerprint import digest
from weft.tune.key import Point, Value, distance

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that was measured: of `kernel` (a name) at `point`, the config of this text, which took `ms` milliseconds.

    `identity` is that of `weft.tune.identity`; a choice counts for that text of the kernel only.
    """

    kernel: str
    identity: str
    point: Point
    config: str
    ms: float


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of choices."""

    directory: Path

    def find(self, kernel: str, identity: str, point: Point) -> Choice | None:
        """The choice for a point: of its device, or, in the simulator, of any GPU of the simulated architecture."""
        exact = self._read(self._path(kernel, identity, point))
        if exact is not None or not point.simulated:
            return exact
        alike = (
            choice
            for choice in self._of(kernel, identity)
            if (choice.point.values, choice.point.dtypes, choice.point.arch) == (point.values, point.dtypes, point.arch)
        )
        return next(alike, None)

    def nearest(self, kernel: str, identity: str, point: Point) -> Choice | None:
        """The choice for the same dtypes and device whose key is nearest: all but its positive numbers must be equal."""
        apart = [(distance(choice.point, point), choice) for choice in self._of(kernel, identity)]
        best = min(apart, key=lambda found: found[0], default=None)
        return None if best is None or best[0] == float("inf") else best[1]

    def put(self, choice: Choice) -> None:
        """Keep a choice. Where the folder cannot be written, warns and goes on: it is measured again next time."""
        path = self._path(choice.kernel, choice.identity, choice.point)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, json.dumps({"format": FORMAT, **encode(choice)}, indent=1))
        except OSError as error:
            warnings.warn(f"weft keeps no tuning choices: {error}", RuntimeWarning, stacklevel=2)

    def all(self, kernel: str | None = None) -> list[Choice]:
        """Every choice, or those of the kernels of a name; by kernel and point."""
        found = [self._read(path) for path in self._files()]
        chosen = [choice for choice in found if choice is not None and kernel in (None, choice.kernel)]
        return sorted(chosen, key=lambda choice: (choice.kernel, choice.point.device, repr(choice.point)))

    def clear(self, kernel: str | None = None) -> int:
        """Delete every choice, or those of the kernels of a name; how many there were."""
        if kernel is None:
            count = len(self._files())
            shutil.rmtree(self.directory, ignore_errors=True)
            return count
        chosen = self.all(kernel)
        for choice in chosen:
            # Another process may clear as well.
            with contextlib.suppress(OSError):
                self._path(choice.kernel, choice.identity, choice.point).unlink()
        return len(chosen)

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob("*/*.json"))

    def _of(self, kernel: str, identity: str) -> Iterator[Choice]:
        for path in sorted(self._folder(kernel, identity).glob("*.json")):
            choice = self._read(path)
            if choice is not None and choice.identity == identity:
                yield choice

    def _folder(self, kernel: str, identity: str) -> Path:
        return self.directory / f"{re.sub(r'[^0-9A-Za-z_]', '_', kernel)}-{identity[:24]}"

    def _path(self, kernel: str, identity: str, point: Point) -> Path:
        return (
            self._folder(kernel, identity) / f"{digest(repr(point.values), repr(point.dtypes), point.device)[:32]}.json"
        )

    def _read(self, path: Path) -> Choice | None:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            return _ignored(path, error)
        try:
            return decode(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _ignored(path, error)


def _ignored(path: Path, error: Exception) -> None:
    warnings.warn(f"weft ignores the damaged tuning choice {path}: {error}", RuntimeWarning, stacklevel=4)


def default() -> Store | None:
    """The store below the folder of the cache that the settings name, or None when they turn the cache off."""
    now = settings.current()
    return Store(now.cache_dir / "tune" / f"format-{FORMAT}") if now.cache else None


def encode(choice: Choice) -> dict[str, Any]:
    """A choice as JSON has it."""
    point = choice.point
    return {
        "kernel": choice.kernel,
        "identity": choice.identity,
        "device": point.device,
        "arch": point.arch,
        "key": [list(pair) for pair in point.values],
        "dtypes": [list(pair) for pair in point.dtypes],
        "config": choice.config,
        "ms": choice.ms,
    }


def decode(entry: Any) -> Choice:
    """The choice of what `encode` gave. Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
    values = tuple((_text(label), _value(value)) for label, value in entry["key"])
    dtypes = tuple((_text(name), _text(dtype)) for name, dtype in entry["dtypes"])
    point = Point(values, dtypes, _text(entry["device"]), int(entry["arch"]))
    return Choice(_text(entry["kernel"]), _text(entry["identity"]), point, _text(entry["config"]), float(entry["ms"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(map(_value, cast("list[Any]", value)))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{value!r} is no value of a key")


def choices(kernel: str | None = None) -> list[Choice]:
    """The stored choices, or those of the kernels of a name."""
    store = default()
    return [] if store is None else store.all(kernel)


def clear_choices(kernel: str | None = None) -> int:
    """Forget the stored choices, or those of the kernels of a name; how many there were.

    What a process has chosen already, it keeps."""
    store = default()
    return 0 if store is None else store.clear(kernel)


def export_choices(path: str | os.PathLike[str], kernel: str | None = None) -> int:
    """Write the stored choices, or those of the kernels of a name, to one file for another machine; how many there are."""
    found = choices(kernel)
    write(Path(path), json.dumps({"format": FORMAT, "choices": list(map(encode, found))}, indent=1))
    return len(found)


def import_choices(path: str | os.PathLike[str]) -> int:
    """Keep the choices of a file that `export_choices` wrote; how many there are. They replace those for the same points.

    A choice counts for the text of kernel and configs that it was measured with, and on GPUs of its name. Raises TuningError:
    tune-damaged-file, tune-other-version; OSError where the file cannot be read.
    """
    found, store = read_export(Path(path)), default()
    if store is not None:
        for choice in found:
            store.put(choice)
    return len(found)


def read_export(path: Path) -> list[Choice]:
    """The choices of an exported file. Raises as `import_choices` does."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        version, entries = whole["format"], cast("Iterable[Any]", whole["choices"])
    except (ValueError, KeyError, TypeError) as error:
        raise fail(DAMAGED, path=path, reason=_reason(error)) from error
    if version != FORMAT:
        raise fail(OTHER_VERSION, path=path, found=version, known=FORMAT)
    try:
        return list(map(decode, entries))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise fail(DAMAGED, path=path, reason=_reason(error)) from error


def _reason(error: Exception) -> str:
    return f"it has no entry {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]


def write(path: Path, text: str) -> None:
    """Put a whole file in place, or none."""
    handle, name = tempfile.mkstemp(prefix=path.stem[:16], suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
