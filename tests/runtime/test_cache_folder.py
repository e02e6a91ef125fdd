"""Whose a cache folder is: weft takes what is empty or marked as its own, refuses the rest, and deletes only its own files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.runtime import files, folder, nvrtc
from weft.runtime.cache import Cache
from weft.runtime.entry import Entry, encode
from weft.runtime.files import UnusableFile
from weft.runtime.folder import MARKER

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62
ENTRY = Entry({}, {"cubin": b"code"})


def whole(entry: Entry) -> Entry:
    return entry


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def store(place: Path) -> Cache:
    return Cache(place, 1 << 20)


def tree(directory: Path) -> dict[str, bytes | None]:
    """Everything in a folder, with the contents of files."""
    found = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in found}


def write(path: Path, text: str = "mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1000, 1000))
    return path


def use(store: Cache) -> None:
    for _ in range(3):
        store.put(OTHER, ENTRY)
        assert store.get(KEY, whole) is None
        store.trim()
        store.clear()


def test_a_folder_that_weft_makes_is_marked_and_closed_to_others(store, place):
    store.put(KEY, ENTRY)
    assert (place / MARKER).read_text() == "weft makes and deletes the files in this folder (layout 1)\n"
    for path in (place, place / "ab", *place.rglob("*.entry"), place / MARKER):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_an_empty_folder_is_taken(store, place):
    place.mkdir(mode=0o755)
    store.put(KEY, ENTRY)
    assert store.get(KEY, whole) == ENTRY
    assert (place / MARKER).exists()


OTHERS = ["ui/app.js", "db/data.sqlite", "app.py", "ab/notes", "tune/notes", ".git/config", "Ab/x", "abc/x"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_that_holds_other_things_is_refused(store, place, name):
    """One warning, nothing written, nothing deleted: a launch goes on without a cache."""
    write(place / name)
    os.utime(place, (1000, 1000))
    before = tree(place)
    with pytest.warns(RuntimeWarning, match="holds other things.*WEFT_CACHE_DIR") as caught:
        use(store)
    assert len(caught) == 1
    assert tree(place) == before
    assert place.stat().st_mtime == 1000


def test_only_files_of_weft_are_deleted(store, place):
    """In a folder that is weft's, others' files stay whatever they are called and however old they are."""
    store.put(KEY, ENTRY)
    others = [
        *[write(place / name) for name in OTHERS],
        write(place / "ab" / "x.entry"),
        write(place / "ab" / "x.tmp"),
        write(place / "ab" / ("0" * 61 + "g.entry")),
        write(place / "ab" / ("0" * 62 + ".ENTRY")),
        write(place / "ab" / "deeper" / ("0" * 62 + ".entry")),
        write(place / "abc" / ("0" * 62 + ".entry")),
        write(place / ("0" * 62 + ".entry")),
    ]
    elsewhere = write(place.parent / "elsewhere" / ("2" * 62 + ".entry"))
    (place / "ee").symlink_to(elsewhere.parent)
    link = place / "ab" / ("3" * 62 + ".entry")
    link.symlink_to(elsewhere)
    Cache(place, 0).trim()
    Cache(place, 0).put(OTHER, ENTRY)
    store.clear()
    assert not list(place.glob("cd/*"))
    assert not Path(store._path(KEY)).exists()
    assert [path.read_text() for path in (*others, elsewhere)] == ["mine"] * (len(others) + 1)
    assert link.is_symlink()


def test_nothing_is_deleted_without_a_marker(store, place):
    store.put(KEY, ENTRY)
    (place / MARKER).unlink()
    before = tree(place)
    Cache(place, 0).trim()
    store.clear()
    assert tree(place) == before


def test_a_folder_that_lost_its_marker_is_taken_again(store, place):
    """Cleaners of temporary folders delete the oldest file, which is the marker. Earlier versions had none."""
    store.put(KEY, ENTRY)
    (place / MARKER).unlink()
    write(place / "tune" / "format-1" / f"matmul-{'0' * 24}" / f"{'1' * 32}.json", "{}")
    store.put(OTHER, ENTRY)
    assert (place / MARKER).exists()
    assert store.get(KEY, whole) == store.get(OTHER, whole) == ENTRY


def test_entries_of_an_earlier_version_make_room(place):
    """They had no marker and another header; their keys are never asked for, so they are the first to go."""
    old = write(place / "ab" / ("0" * 62 + ".entry"), "weft\x01" + "x" * 1000)
    Cache(place, len(encode(OTHER, ENTRY))).put(OTHER, ENTRY)
    assert not old.exists()
    assert Cache(place, 1).get(OTHER, whole) == ENTRY


@pytest.mark.parametrize(
    "mark", ["", "mine", "weft makes and deletes the files in this folder (layout 2)\n", "x" * 100_000]
)
def test_a_marker_of_another_version_or_of_others_is_respected(store, place, mark):
    write(place / MARKER, mark)
    before = tree(place)
    with pytest.warns(RuntimeWarning, match="another version of weft|is not weft's"):
        store.put(KEY, ENTRY)
    store.clear()
    assert tree(place) == before


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_marker_that_is_no_file_is_respected(store, place, make):
    place.mkdir(mode=0o700)
    make(place / MARKER)
    with pytest.warns(RuntimeWarning, match="is not weft's"):
        store.put(KEY, ENTRY)
    assert [path.name for path in place.iterdir()] == [MARKER]


# Who else can write


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_folder_that_others_can_write_is_neither_read_nor_written(store, place, mode):
    store.put(KEY, ENTRY)
    place.chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users can write to it, which `chmod go-w` ends") as caught:
        use(store)
    assert len(caught) == 1
    place.chmod(0o755)
    assert store.get(KEY, whole) == ENTRY
    assert store.get(OTHER, whole) is None


def disown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file another user's. Only root can; another user's process is told that it is run by a third one."""
    user = os.geteuid()
    if user == 0:
        os.chown(path, 4242, 4242)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)


def test_a_folder_of_another_user_is_refused(store, place, monkeypatch):
    store.put(KEY, ENTRY)
    disown(place, monkeypatch)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert store.get(KEY, whole) is None
    store.put(OTHER, ENTRY)
    assert not Path(store._path(OTHER)).exists()


def test_an_entry_of_another_user_is_ignored(store, place, monkeypatch):
    store.put(KEY, ENTRY)
    disown(Path(store._path(KEY)), monkeypatch)
    monkeypatch.setattr(folder, "usable", lambda _: True)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert store.get(KEY, whole) is None


def test_an_entry_that_others_can_write_is_ignored(store):
    store.put(KEY, ENTRY)
    Path(store._path(KEY)).chmod(0o606)
    with pytest.warns(RuntimeWarning, match="other users can write to it"):
        assert store.get(KEY, whole) is None


# What stands in the place of an entry, or of the folder


def loop(path: Path) -> None:
    path.symlink_to(path.name)


STRANGE = {
    "FIFO": os.mkfifo,
    "folder": Path.mkdir,
    "full folder": lambda path: write(path / "x"),
    "link": lambda path: path.symlink_to(write(path.parent.parent.parent / "target")),
    "endless link": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "loop": loop,
    "huge file": lambda path: os.truncate(write(path), 1 << 40),
}


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_what_is_no_file_is_no_entry(store, make):
    store.put(KEY, ENTRY)
    path = Path(store._path(KEY))
    path.unlink()
    make(path)
    with pytest.warns(RuntimeWarning, match="weft ignores"):
        assert store.get(KEY, whole) is None


@pytest.mark.parametrize("make", [lambda path: path.write_text(""), loop, lambda path: path.symlink_to("../elsewhere")])
def test_what_is_no_folder_holds_no_entry(store, place, make):
    (place.parent / "elsewhere").mkdir()
    store.put(OTHER, ENTRY)
    make(place / "ab")
    with pytest.warns(RuntimeWarning, match="keeps no compiled kernels"):
        store.put(KEY, ENTRY)
    assert not list((place.parent / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_text("in the way"), "is no folder"),
        (os.mkfifo, "is no folder"),
        (loop, "Too many levels"),
        (lambda path: path.symlink_to("nothing/there"), "nothing|exists"),
    ],
)
def test_a_place_that_is_no_folder_costs_a_warning(store, place, make, reason):
    make(place)
    with pytest.warns(RuntimeWarning, match=reason) as caught:
        use(store)
    assert len(caught) == 1


def test_a_folder_may_be_reached_by_a_link(store, place):
    (place.parent / "large disk").mkdir(mode=0o700)
    place.symlink_to("large disk")
    store.put(KEY, ENTRY)
    assert store.get(KEY, whole) == ENTRY


def test_a_full_disk_costs_a_warning(store, place, monkeypatch):
    store.put(OTHER, ENTRY)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(RuntimeWarning, match="keeps no compiled kernels: .*No space left"):
        store.put(KEY, ENTRY)
    assert not list(place.rglob("*.tmp"))


def test_reads_that_are_cut_short_are_continued(tmp_path, monkeypatch):
    path, whole_read = write(tmp_path / "file", "0123456789"), os.read
    monkeypatch.setattr(os, "read", lambda handle, size: whole_read(handle, min(size, 3)))
    found = files.read(str(path), 100)
    assert found is not None
    assert found[0] == b"0123456789"
    with pytest.raises(UnusableFile, match="10 bytes are more"):
        files.read(str(path), 9)


# The whole way


PROGRAM = """
import os, sys, warnings
from pathlib import Path
import weft
from weft import language as gl, settings

@weft.jit
def kernel(out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    gl.store(out + gl.arange(0, N, layout), 1.0)

import numpy as np
out = np.zeros(128, np.float32)
kernel[1](out, 128)
assert out.all()
kernel.warmup("*fp32", 128, target="sm_90a")
"""


@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
def test_an_empty_variable_does_not_name_the_current_directory(tmp_path):
    """Files of the current directory, older than an hour, in folders with names of two letters."""
    mine = [
        write(tmp_path / "ui" / "app.js"),
        write(tmp_path / "db" / "data.sqlite"),
        write(tmp_path / "program.py", PROGRAM),
    ]
    before = tree(tmp_path)
    root = str(Path(weft.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "WEFT_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "home")}
    for directory in (tmp_path, "."):
        environment["WEFT_CACHE_DIR"] = "" if directory == "." else str(directory)
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert all(path.exists() for path in mine)
        assert done.stderr.count("RuntimeWarning") == (directory != "."), done.stderr
    after = tree(tmp_path)
    assert {name for name in after.keys() - before.keys() if not name.startswith("home")} == set()
