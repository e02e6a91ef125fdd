"""The folder of the cache: which folders weft takes for its own, which it refuses, and which files in them are its own.

    weft-cache                                     the marker
    ab/<62 digits>.entry                           an entry; its key is the 64 digits of the path (`weft.runtime.cache`)
    tune/format-1/<kernel>-<24 digits>/<32>.json   a choice of a tuner (`weft.tune.store`)
    <any of these>.<16 digits>.tmp                 a file that is being written

A folder is weft's when it has the marker. weft writes it where it makes the folder, finds it empty, or finds nothing in it but
files with these names, as after something deleted the marker. A folder that holds other things is refused: weft neither writes
nor deletes there. Where there is a marker, only files with these names are deleted.

Whoever can write to the folder can have weft run code on a GPU. So a folder that belongs to somebody else, or that others can
write to, is not read either.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path

from weft.runtime import files
from weft.runtime.files import Unusable

MARKER = "weft-cache"
LAYOUT = 1
"""Number of the arrangement above, which the marker tells. A weft of another arrangement owns other names."""
_MARK = f"weft makes and deletes the files in this folder (layout {LAYOUT})\n".encode()
_ANY_MARK = re.compile(rb"weft makes and deletes the files in this folder \(layout ([0-9]{1,9})\)\n")

_TEMPORARY = r"\.[0-9a-f]{16}\.tmp"
_FILES = re.compile(
    rf"(?:{MARKER}|[0-9a-f]{{2}}/[0-9a-f]{{62}}\.entry|tune/format-[0-9]+/\w+-[0-9a-f]{{24}}/[0-9a-f]{{32}}\.json)"
    rf"(?:{_TEMPORARY})?",
    re.ASCII,
)
_FOLDERS = re.compile(r"[0-9a-f]{2}|tune(?:/format-[0-9]+(?:/\w+-[0-9a-f]{24})?)?", re.ASCII)
_ADVICE = "set WEFT_CACHE_DIR to another folder, or WEFT_CACHE=0"

_warned: dict[tuple[str, str], object] = {}


def usable(folder: Path) -> bool:
    """True where the folder may be read, False where there is none. Raises Unusable for one that others may have filled."""
    try:
        status = os.stat(folder)  # noqa: PTH116  (half the time of Path.stat, at each look into the cache)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unusable(f"{folder} cannot be read ({error.strerror}); {_ADVICE}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise Unusable(f"{folder} is no folder; {_ADVICE}")
    reason = files.why_untrusted(status)
    if reason is not None:
        raise Unusable(f"{folder} is refused: {reason}; {_ADVICE}")
    return True


def owned(folder: Path) -> bool:
    """True where files of the folder may be deleted: it is usable and has the marker. Raises Unusable as `usable` does."""
    return usable(folder) and _marked(folder)


def claim(folder: Path) -> None:
    """Make the folder weft's, unless it is already. Raises Unusable where it holds other things, OSError if it is read-only."""
    if not usable(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        usable(folder)
    if _marked(folder):
        return
    other = _other(folder)
    if other is not None:
        raise Unusable(f"{folder} holds other things, such as {other}; {_ADVICE}")
    files.write(folder / MARKER, _MARK)


def below(folder: Path, *names: str) -> Path:
    """A folder inside a claimed one, made if need be. Raises OSError, and Unusable where a link or a file has its name."""
    for name in names:
        folder /= name
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise Unusable(f"{folder} is no folder") from None
    return folder


def folders(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    """The folders inside a folder whose names match, in no order; links are none. Nothing where it cannot be read."""
    return (Path(entry.path) for entry in _entries(folder) if name.fullmatch(entry.name) and _is_folder(entry))


def plain_files(folder: Path, name: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str], os.stat_result]]:
    """The plain files inside a folder whose names match: path, match, status. Nothing where it cannot be read."""
    for entry in _entries(folder):
        match = name.fullmatch(entry.name)
        if match is None:
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            # Another process has deleted it.
            continue
        if stat.S_ISREG(status.st_mode):
            yield entry.path, match, status


def warn_once(folder: Path, subject: str, text: str) -> None:
    """Warn of something about a folder that every launch meets again: of each `subject` once in a process."""
    # Without a lock, which a fork could leave locked: setting a default is one step.
    ours = object()
    if _warned.setdefault((str(folder), subject), ours) is ours:
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _marked(folder: Path) -> bool:
    """True where the marker is there. Raises Unusable where something else has its name, or it tells another layout."""
    try:
        found = files.read(f"{folder}/{MARKER}", len(_MARK) + 8)
    except Unusable as error:
        raise Unusable(f"{folder / MARKER} is not weft's: {error}; {_ADVICE}") from None
    if found is None:
        return False
    match = _ANY_MARK.fullmatch(found[0])
    if match is None:
        raise Unusable(f"{folder / MARKER} is not weft's; {_ADVICE}")
    if int(match[1]) != LAYOUT:
        raise Unusable(f"{folder} is the cache of another version of weft (layout {int(match[1])}); {_ADVICE}")
    return True


def _other(folder: Path, within: str = "") -> str | None:
    """Something in a folder that weft does not put there, by its path from `folder`; None where there is nothing."""
    for entry in _entries(folder / within):
        path = f"{within}/{entry.name}" if within else entry.name
        is_folder = _is_folder(entry)
        if not (_FOLDERS if is_folder else _FILES).fullmatch(path):
            return ascii(path)
        found = _other(folder, path) if is_folder else None
        if found is not None:
            return found
    return None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
