"""Stored choices: one small JSON file each, in the folder of the compiled kernels.

A file is written under a temporary name and renamed, so that any number of processes may write at once, and a reader sees a
complete file or none. Its name is a digest of the choice in it, so a swapped file is detected; a swapped or damaged file costs
one warning per process and counts as absent. Folder names contain the format's version, so versions of weft with different
formats use different folders. `weft.runtime.folder` decides whether the folder is weft's, and what may be deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import settings
from weft.errors import fail
from weft.errors.tune import DAMAGED, OTHER_VERSION
from weft.runtime import files, folder
from weft.runtime.files import UnusableFile, mapping, number, parse, record, sequence, text, whole
from weft.runtime.function_text import digest
from weft.tune.key import Point, Value, distance

FORMAT = 1
_PLACES = ("tune", f"format-{FORMAT}")
_KERNEL = re.compile(r"\w+-[0-9a-f]{24}", re.ASCII)
_NAME = re.compile(r"[0-9a-f]{32}\.json")
_IDENTITY = re.compile(r"[0-9a-f]{64}")
_FIELDS = ("kernel", "identity", "device", "arch", "key", "dtypes", "config", "ms")
_MOST_BYTES = 1 << 20
_DEEPEST = 16
"""Maximum nesting of tuples in a value of a key."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A measured choice: for `kernel` (a name) at `point`, the text of the chosen config, and its time `ms` in milliseconds.

    `identity` is that of `weft.tune.identity`; a choice is valid only for the same identity.
    """

    kernel: str
    identity: str
    point: Point
    config: str
    ms: float


@dataclass(frozen=True, slots=True)
class Store:
    """The choices in a cache folder."""

    directory: Path

    def find(self, kernel: str, identity: str, point: Point) -> Choice | None:
        """The choice for a point: for its device, or, in the simulator, for any GPU of the simulated architecture."""
        if not self._usable():
            return None
        exact = self._read(self._path(kernel, identity, point))
        # The file name does not cover the architecture: a device's name determines it, but the simulator's does not.
        if exact is not None and (exact.kernel, exact.identity, exact.point.arch) == (kernel, identity, point.arch):
            return exact
        if not point.simulated:
            return None
        alike = (
            choice
            for choice in self.of(kernel, identity)
            if (choice.point.values, choice.point.dtypes, choice.point.arch) == (point.values, point.dtypes, point.arch)
        )
        return next(alike, None)

    def nearest(self, kernel: str, identity: str, point: Point) -> Choice | None:
        """The choice for the same dtypes and device whose key is nearest by `distance`."""
        apart = [(distance(choice.point, point), choice) for choice in self.of(kernel, identity)]
        best = min(apart, key=lambda found: found[0], default=None)
        return None if best is None or best[0] == float("inf") else best[1]

    def put(self, choice: Choice) -> None:
        """Store a choice. A failure only warns, since the choice can be measured again next time."""
        path = self._path(choice.kernel, choice.identity, choice.point)
        try:
            folder.claim(self.directory)
            folder.below(self.directory, *_PLACES, path.parent.name)
            files.write(path, json.dumps({"format": FORMAT, **encode(choice)}, indent=1).encode())
        except (OSError, UnusableFile) as reason:
            self._keeps_nothing(reason)

    def all(self, kernel: str | None = None) -> list[Choice]:
        """Every choice, or those for kernels of a name, sorted by kernel and point."""
        found = [choice for choice in map(self._read, self._files()) if choice is not None]
        chosen = [choice for choice in found if kernel in (None, choice.kernel)]
        return sorted(chosen, key=lambda choice: (choice.kernel, choice.point.device, repr(choice.point)))

    def clear(self, kernel: str | None = None) -> int:
        """Delete every choice, including damaged ones, or those for kernels of a name. Returns their number."""
        try:
            if not folder.owned(self.directory):
                return 0
        except UnusableFile as reason:
            self._keeps_nothing(reason)
            return 0
        chosen = self.all(kernel)
        paths = self._files() if kernel is None else [self._path(c.kernel, c.identity, c.point) for c in chosen]
        for path in paths:
            # Another process may clear at the same time, and `rmdir` fails for a folder that is not empty yet.
            with contextlib.suppress(OSError):
                path.unlink()
                path.parent.rmdir()
        return len(chosen)

    def _usable(self) -> bool:
        try:
            return folder.usable(self.directory)
        except UnusableFile as reason:
            self._keeps_nothing(reason)
            return False

    def _files(self) -> list[Path]:
        if not self._usable():
            return []
        kernels = folder.folders(self.directory.joinpath(*_PLACES), _KERNEL)
        return sorted(Path(path) for kernel in kernels for path, _, _ in folder.plain_files(kernel, _NAME))

    def has(self, kernel: str) -> bool:
        """Whether choices for kernels of a name are stored, of any identity."""
        if not self._usable():
            return False
        prefix = self._folder(kernel, "").name
        return any(path.name.startswith(prefix) for path in folder.folders(self.directory.joinpath(*_PLACES), _KERNEL))

    def of(self, kernel: str, identity: str) -> Iterator[Choice]:
        """The choices for a kernel of this identity."""
        if not self._usable():
            return
        for path in sorted(path for path, _, _ in folder.plain_files(self._folder(kernel, identity), _NAME)):
            choice = self._read(Path(path))
            if choice is not None and (choice.kernel, choice.identity) == (kernel, identity):
                yield choice

    def _folder(self, kernel: str, identity: str) -> Path:
        name = re.sub(r"[^0-9A-Za-z_]", "_", kernel)
        return self.directory.joinpath(*_PLACES, f"{name}-{identity[:24]}")

    def _path(self, kernel: str, identity: str, point: Point) -> Path:
        name = digest(repr(point.values), repr(point.dtypes), point.device)[:32]
        return self._folder(kernel, identity) / f"{name}.json"

    def _read(self, path: Path) -> Choice | None:
        """The choice in a file, or None without a valid one."""
        try:
            found = files.read(str(path), _MOST_BYTES)
            if found is None:
                return None
            fields = mapping(parse(found[0]))
            if fields.pop("format", None) != FORMAT:
                raise UnusableFile(f"it is not in format {FORMAT}")
            choice = decode(fields)
            if self._path(choice.kernel, choice.identity, choice.point) != path:
                raise UnusableFile("it is a choice for something else")
        except UnusableFile as reason:
            what = f"weft ignores the damaged tuning choice {path}: {reason}; other such files are not reported"
            folder.warn_once(self.directory, "choice", what)
            return None
        return choice

    def _keeps_nothing(self, reason: Exception) -> None:
        folder.warn_once(self.directory, "choices", f"weft keeps no tuning choices: {reason}")


def default() -> Store | None:
    """The store in the cache folder that the settings name, or None when they turn the cache off."""
    now = settings.current()
    return Store(now.cache_dir) if now.cache else None


def encode(choice: Choice) -> dict[str, Any]:
    """A choice as a JSON object."""
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


def decode(entry: object) -> Choice:
    """The inverse of `encode`. Raises Unusable for other objects."""
    found = record(entry, *_FIELDS)
    kernel, identity = text(found["kernel"]), text(found["identity"])
    # Both become part of the path of an imported choice, so they are checked first.
    if not kernel or not _IDENTITY.fullmatch(identity):
        raise UnusableFile("it does not say of which kernel it is")
    values = tuple([(text(label), _value(value)) for label, value in _pairs(found["key"])])
    dtypes = tuple([(text(name), text(dtype)) for name, dtype in _pairs(found["dtypes"])])
    point = Point(values, dtypes, text(found["device"]), whole(found["arch"], 1 << 16))
    return Choice(kernel, identity, point, text(found["config"]), number(found["ms"]))


def _pairs(value: object) -> list[list[object]]:
    return [sequence(item, 2) for item in sequence(value)]


def _value(value: object, depth: int = 0) -> Value:
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth == _DEEPEST:
        raise UnusableFile("a value of its key is nested too deeply")
    return tuple([_value(item, depth + 1) for item in sequence(value)])


def choices(kernel: str | None = None) -> list[Choice]:
    """The stored choices, or those for kernels of a name."""
    store = default()
    return [] if store is None else store.all(kernel)


def clear_choices(kernel: str | None = None) -> int:
    """Delete the stored choices, or those for kernels of a name. Returns their number.

    Running processes keep the choices that they have already made."""
    store = default()
    return 0 if store is None else store.clear(kernel)


def export_choices(path: str | os.PathLike[str], kernel: str | None = None) -> int:
    """Write the stored choices, or those for kernels of a name, to a file for another machine. Returns their number."""
    found = choices(kernel)
    files.write(Path(path), json.dumps({"format": FORMAT, "choices": list(map(encode, found))}, indent=1).encode())
    return len(found)


def import_choices(path: str | os.PathLike[str]) -> int:
    """Store the choices of a file that `export_choices` wrote, replacing those for the same points. Returns their number.

    A choice is valid for the text of kernel and configs that it was measured with, and on GPUs of the same name. Raises
    TuningError: tune-damaged-file, tune-other-version; OSError when the file cannot be read.
    """
    found, store = read_export(Path(path)), default()
    if store is not None:
        for choice in found:
            store.put(choice)
    return len(found)


def read_export(path: Path) -> list[Choice]:
    """The choices of an exported file. Raises as `import_choices` does."""
    data = path.read_bytes()
    try:
        fields = mapping(parse(data))
        version = whole(fields.get("format"), 1 << 31)
        if version == FORMAT:
            return list(map(decode, sequence(record(fields, "format", "choices")["choices"])))
    except UnusableFile as reason:
        raise fail(DAMAGED, path=path, reason=reason) from None
    raise fail(OTHER_VERSION, path=path, found=version, known=FORMAT)
