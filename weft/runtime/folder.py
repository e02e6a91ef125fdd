"""Ownership of cache folders: which folders belong to weft, which it refuses, and which files in them it may delete.

    weft-cache                                     the marker
    ab/<62 digits>.entry                           an entry; its key is the 64 digits of the path (`weft.runtime.cache`)
    tune/format-1/<kernel>-<24 digits>/<32>.json   a choice of a tuner (`weft.tune.store`)
    <any of these>.<16 digits>.tmp                 a file that is being written

A folder is weft's when it has the marker. weft writes the marker into a folder that it creates, finds empty, or finds to
contain only files with these names (as after the marker was deleted). A folder with other contents is refused: weft neither
writes nor deletes there. In a folder with a marker, only files with these names are deleted.

Whoever can write to the folder can make weft run any code on the GPU. So a folder that belongs to another user, or that others
can write to, is not read.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path

from weft.runtime import files
from weft.runtime.files import UnusableFile

MARKER = "weft-cache"
LAYOUT = 1
"""Version of the file names above, recorded in the marker. Other versions of weft may use other names."""
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
    """True when the folder may be read, False when it does not exist. Raises Unusable when other users may have written it."""
    try:
        status = os.stat(folder)  # noqa: PTH116  (half the time of Path.stat, at each look-up in the cache)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnusableFile(f"{folder} cannot be read ({error.strerror}); {_ADVICE}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise UnusableFile(f"{folder} is no folder; {_ADVICE}")
    reason = files.why_untrusted(status)
    if reason is not None:
        raise UnusableFile(f"{folder} is refused: {reason}; {_ADVICE}")
    return True


def owned(folder: Path) -> bool:
    """True when files of the folder may be deleted: it is usable and has the marker. Raises Unusable as `usable` does."""
    return usable(folder) and _marked(folder)


def claim(folder: Path) -> None:
    """Mark the folder as weft's, unless it is already. Raises Unusable for other contents, OSError if it is read-only."""
    if not usable(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        usable(folder)
    if _marked(folder):
        return
    other = _other(folder)
    if other is not None:
        raise UnusableFile(f"{folder} holds other things, such as {other}; {_ADVICE}")
    files.write(folder / MARKER, _MARK)


def below(folder: Path, *names: str) -> Path:
    """A folder inside a claimed one, created if missing. Raises OSError, and Unusable if a link or a file has its name."""
    for name in names:
        folder /= name
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise UnusableFile(f"{folder} is no folder") from None
    return folder


def folders(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    """Subfolders with matching names, in no order, without links. Empty for an unreadable folder."""
    return (Path(entry.path) for entry in _entries(folder) if name.fullmatch(entry.name) and _is_folder(entry))


def plain_files(folder: Path, name: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str], os.stat_result]]:
    """Regular files with matching names: path, match, status. Empty for an unreadable folder."""
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
    """Warn about a folder, once per process and `subject`; otherwise every launch would repeat the warning."""
    # `dict.setdefault` is atomic, so no lock is needed, which a fork could leave held.
    ours = object()
    if _warned.setdefault((str(folder), subject), ours) is ours:
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _marked(folder: Path) -> bool:
    """True when the folder has the marker. Raises Unusable for another file of that name, or another layout's marker."""
    try:
        found = files.read(f"{folder}/{MARKER}", len(_MARK) + 8)
    except UnusableFile as error:
        raise UnusableFile(f"{folder / MARKER} is not weft's: {error}; {_ADVICE}") from None
    if found is None:
        return False
    match = _ANY_MARK.fullmatch(found[0])
    if match is None:
        raise UnusableFile(f"{folder / MARKER} is not weft's; {_ADVICE}")
    if int(match[1]) != LAYOUT:
        raise UnusableFile(f"{folder} is the cache of another version of weft (layout {int(match[1])}); {_ADVICE}")
    return True


def _other(folder: Path, within: str = "") -> str | None:
    """The relative path of an entry that weft does not create; None when there is none."""
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
