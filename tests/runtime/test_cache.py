"""Laws of the disk cache: what is put is got, what is damaged is absent, and processes do not disturb each other."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from weft import settings as weft_settings
from weft.runtime import cache, kept
from weft.runtime.cache import Cache
from weft.runtime.compiled import Binary
from weft.runtime.entry import MAGIC, Entry, decode, encode
from weft.runtime.files import UnusableFile

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62
ENTRY = Entry({"regs": 32, "name": "größer"}, {"cubin": b"\x00\x7fELF" * 50})
LIMIT = 1 << 20


def whole(entry: Entry) -> Entry:
    return entry


@pytest.fixture
def store(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", LIMIT)


def path_of(store: Cache, key: str) -> Path:
    return Path(store._path(key))


# The file of an entry


@given(
    st.dictionaries(st.text(max_size=8), st.integers() | st.text() | st.none() | st.booleans()),
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), st.binary(max_size=200)),
)
@settings(deadline=None, max_examples=examples(80))
def test_decode_inverts_encode(metadata, parts):
    entry = Entry(metadata, parts)
    assert decode(KEY, encode(KEY, entry)) == entry


@given(st.data())
@settings(deadline=None, max_examples=examples(200))
def test_any_damage_is_noticed(data):
    good = encode(KEY, ENTRY)
    position = data.draw(st.integers(0, len(good) - 1))
    changed = good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :]
    with pytest.raises(UnusableFile):
        decode(KEY, good[:position] if data.draw(st.booleans()) else changed)


def sealed(header: object, rest: bytes = b"", length: int | None = None) -> bytes:
    """A file whose checksum is right, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = struct.pack("<Q", len(text) if length is None else length) + text + rest
    return MAGIC + hashlib.sha256(body).digest() + body


def headed(**changes: object) -> dict[str, object]:
    return {"key": KEY, "metadata": {}, "parts": [["cubin", 4]], **changes}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "another version"),
        (b"\x80\x04\x95junk that a pickle would run", "another version"),
        (b"weft\x03" + encode(KEY, ENTRY)[5:], "another version"),
        (MAGIC, "checksum"),
        (MAGIC + hashlib.sha256(b"").digest(), "ends inside its header"),
        (sealed(headed(), b"code", 1 << 63), "ends inside its header"),
        (sealed(b"{"), "not JSON"),
        (sealed(b"\xff\xfe"), "not JSON"),
        (sealed(b"[" * 100_000 + b"]" * 100_000), "not JSON"),
        (sealed(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), "not JSON"),
        (sealed(7), "7 in it is no object"),
        (sealed([]), "a list in it is no object"),
        (sealed({"key": KEY, "parts": []}), "no field metadata"),
        (sealed(headed(more=1)), "has a field 'more'"),
        (sealed(headed(key=OTHER), b"code"), "another key"),
        (sealed(headed(key=[KEY]), b"code"), "another key"),
        (sealed(headed(metadata=[]), b"code"), "a list in it is no object"),
        (sealed(headed(parts={}), b"code"), "a dict in it is no list"),
        (sealed(headed(parts=[["cubin"]]), b"code"), "has 1 items, not 2"),
        (sealed(headed(parts=[["cubin", -4]]), b"code"), "-4 in it is no whole number"),
        (sealed(headed(parts=[["cubin", True]]), b"code"), "True in it is no whole number"),
        (sealed(headed(parts=[["cubin", 4.0]]), b"code"), "4.0 in it is no whole number"),
        (sealed(headed(parts=[["cubin", 5]]), b"code"), "5 in it is no whole number"),
        (sealed(headed(parts=[["cubin", 1 << 70]]), b"code"), "is no whole number"),
        (sealed(headed(), b"codes"), "do not add up"),
        (sealed(headed(parts=[[None, 4]]), b"code"), "None in it is no text"),
        (sealed(headed(parts=[["\ud800", 4]]), b"code"), "no Unicode text"),
    ],
)
def test_a_file_that_nobody_encoded(store, data, reason):
    with pytest.raises(UnusableFile, match=reason):
        decode(KEY, data)
    store.put(KEY, ENTRY)
    path_of(store, KEY).write_bytes(data)
    with pytest.warns(RuntimeWarning, match="the kernel is compiled again"):
        assert store.get(KEY, whole) is None


MADE = Binary(b"code", 40, 8, 1000, 24, ("x.shape_0", "y"), 4, 384)


def test_kinds_of_entries_are_read_back():
    assert kept.binary(kept.of_binary(MADE)) == MADE
    variants = [[["", "SCALE", "int:3"], ["/helper", "größe", "float:0x1p0"]], []]
    assert kept.variants(kept.of_variants(variants)) == variants


@pytest.mark.parametrize(
    "changes",
    [
        {"n_regs": "40"}, {"n_regs": -1}, {"n_regs": True}, {"n_spills": 1.0}, {"dynamic_shared": 1 << 40},
        {"workspace": None}, {"unused": "xy"}, {"unused": [1]}, {"unused": {"x": 1}}, {"more": 1},
    ],
)  # fmt: skip
def test_a_binary_of_wrong_types_is_none(changes):
    entry = kept.of_binary(MADE)
    with pytest.raises(UnusableFile):
        kept.binary(Entry({**entry.metadata, **changes}, entry.parts))


def test_a_binary_without_code_is_none():
    entry = kept.of_binary(MADE)
    with pytest.raises(UnusableFile):
        kept.binary(Entry(entry.metadata, {}))
    with pytest.raises(UnusableFile):
        kept.binary(Entry({name: n for name, n in entry.metadata.items() if name != "n_regs"}, entry.parts))


@pytest.mark.parametrize(
    "variants",
    [None, {}, "ab", [1], ["abc"], [["abc"]], [[["", "SCALE"]]], [[["", "SCALE", 3]]], [[["", "\ud800", ""]]]],
)
def test_a_manifest_of_wrong_types_is_none(variants):
    with pytest.raises(UnusableFile):
        kept.variants(Entry({"variants": variants}))


# Keeping entries


def test_put_then_get(store):
    assert store.get(KEY, whole) is None
    store.put(KEY, ENTRY)
    assert store.get(KEY, whole) == ENTRY
    assert store.size() > 200
    store.clear()
    assert store.get(KEY, whole) is None


@pytest.mark.parametrize("key", ["", "ab", "../" * 21 + "x", "AB" + "0" * 62, "ab" + "0" * 61 + "/", KEY + "\n"])
def test_only_digests_are_keys(store, key):
    for use in (lambda: store.get(key, whole), lambda: store.put(key, ENTRY)):
        with pytest.raises(ValueError, match="no key of the cache"):
            use()


@pytest.mark.parametrize("damage", [b"", MAGIC, b"\x80\x04\x95junk that a pickle would run"])
def test_a_damaged_entry_is_absent_and_written_anew(store, damage):
    store.put(KEY, ENTRY)
    path_of(store, KEY).write_bytes(damage)
    with pytest.warns(RuntimeWarning, match="weft ignores"):
        assert store.get(KEY, whole) is None
    store.put(KEY, ENTRY)
    assert store.get(KEY, whole) == ENTRY


def test_an_entry_under_the_name_of_another_is_absent(store):
    store.put(KEY, ENTRY)
    store.put(OTHER, Entry({"regs": 40}, {"cubin": b"other"}))
    path_of(store, KEY).replace(path_of(store, OTHER))
    with pytest.warns(RuntimeWarning, match="it is the entry of another key"):
        assert store.get(OTHER, whole) is None


def test_an_entry_of_another_kind_is_absent(store):
    store.put(KEY, kept.of_variants([]))
    with pytest.warns(RuntimeWarning, match="it has no field dynamic_shared"):
        assert store.get(KEY, kept.binary) is None


def test_a_process_warns_once(store, recwarn):
    for key in (KEY, OTHER):
        store.put(key, ENTRY)
        path_of(store, key).write_bytes(b"damage")
    for key in (KEY, OTHER, KEY):
        assert store.get(key, whole) is None
    assert len(recwarn) == 1


# What goes


def at(second: float, *paths: Path) -> None:
    for path in paths:
        os.utime(path, (second, second))


def keys(count: int) -> list[str]:
    return [hashlib.sha256(bytes([i])).hexdigest() for i in range(count)]


def test_the_oldest_entries_go_first(store):
    size = len(encode(KEY, ENTRY))
    small = Cache(store.directory, 3 * size)
    three = keys(3)
    for age, key in enumerate(three):
        small.put(key, ENTRY)
        at(1000 + age, path_of(small, key))
    assert small.get(three[0], whole) == ENTRY, "and is now the one used last"
    small.put(KEY, ENTRY)
    assert [small.get(key, whole) is not None for key in three] == [True, False, True]
    assert small.get(KEY, whole) == ENTRY
    assert small.size() <= small.max_bytes


def test_new_entries_survive_a_clock_that_goes_back(store):
    """The clock was ten days ahead: what was written then looks newer than all that follows."""
    size = len(encode(KEY, ENTRY))
    full = Cache(store.directory, 40 * size)
    old, new = keys(60)[:40], keys(60)[40:]
    for age, key in enumerate(old):
        full.put(key, ENTRY)
        at(time.time() + 864_000 + age, path_of(full, key))
    for key in new:
        full.put(key, ENTRY)
    assert [full.get(key, whole) is not None for key in new] == [True] * 20
    assert [full.get(key, whole) is not None for key in old] == [False] * 20 + [True] * 20, (
        "the oldest of them are gone"
    )


def test_use_counts_again_after_the_clock_went_back(store):
    size = len(encode(KEY, ENTRY))
    small = Cache(store.directory, 3 * size)
    three = keys(3)
    for age, key in enumerate(three):
        small.put(key, ENTRY)
        at(time.time() + 864_000 + age, path_of(small, key))
    small.trim()
    assert all(path_of(small, key).stat().st_mtime <= time.time() for key in three)
    assert small.get(three[0], whole) == ENTRY
    small.put(KEY, ENTRY)
    assert [small.get(key, whole) is not None for key in three] == [True, False, True]


def test_an_entry_larger_than_the_bound_is_kept_while_it_is_the_newest(store):
    tiny = Cache(store.directory, 5)
    tiny.put(KEY, ENTRY)
    assert tiny.get(KEY, whole) == ENTRY
    tiny.put(OTHER, ENTRY)
    assert (tiny.get(KEY, whole), tiny.get(OTHER, whole)) == (None, ENTRY)


def test_half_written_files_are_never_read_and_go_when_old(store):
    store.put(KEY, ENTRY)
    path = path_of(store, KEY)
    leftover = path.with_name(f"{path.name}.{'0' * 16}.tmp")
    leftover.write_bytes(b"half")
    store.trim()
    assert leftover.exists(), "another process may be writing it"
    at(time.time() - 7200, leftover)
    store.trim()
    assert not leftover.exists()
    assert store.get(KEY, whole) == ENTRY


def test_settings_name_the_cache(tmp_path):
    with weft_settings.using(cache_dir=tmp_path, cache_size=5):
        assert cache.default() == Cache(tmp_path, 5)
    with weft_settings.using(cache=False):
        assert cache.default() is None


WORKER = """
import sys
from pathlib import Path
import warnings
from weft.runtime.cache import Cache
from weft.runtime.entry import Entry

warnings.simplefilter("ignore")
store = Cache(Path(sys.argv[1]), 20_000)
me = int(sys.argv[2])
for round in range(60):
    key = f"{round % 7:02x}" + "0" * 62
    found = store.get(key, lambda entry: entry)
    assert found is None or found.parts["cubin"] == key.encode() * 40, "a torn entry was read"
    store.put(key, Entry({"round": round % 7}, {"cubin": key.encode() * 40}))
    if round % 20 == me:
        Path(store._path(key)).write_bytes(b"damage")
print("done")
"""


def test_eight_processes_at_once(tmp_path):
    root = str(Path(cache.__file__).parents[2])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "cache"), str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        for i in range(8)
    ]
    results = [worker.communicate(timeout=120) for worker in workers]
    assert [out for out, _ in results] == ["done\n"] * 8, [err for _, err in results]
    assert Cache(tmp_path / "cache", 20_000).size() <= 24_000
