"""Laws of the disk cache: what is put is got, what is damaged is gone, and processes do not disturb each other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import settings as weft_settings
from weft.runtime import cache
from weft.runtime.cache import Cache, Entry

ENTRY = Entry({"regs": 32, "name": "copy"}, {"cubin": b"\x00\x7fELF" * 50}, {"cuda": "// größer\n"})
KEY = "ab" + "0" * 62
LIMIT = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Cache:
    return Cache(tmp_path, LIMIT)


@given(
    st.dictionaries(st.text(max_size=8), st.integers() | st.text() | st.none() | st.booleans()),
    st.dictionaries(st.text(max_size=8), st.binary(max_size=200)),
    st.dictionaries(st.text(max_size=8), st.text(max_size=50)),
)
@settings(deadline=None, max_examples=80)
def test_decode_inverts_encode(metadata, blobs, texts):
    entry = Entry(metadata, blobs, texts)
    assert cache.decode(cache.encode(entry)) == entry


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_any_damage_is_noticed(data):
    good = cache.encode(ENTRY)
    position = data.draw(st.integers(0, len(good) - 1))
    if data.draw(st.booleans()):
        assert cache.decode(good[:position]) is None
    else:
        assert cache.decode(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :]) is None


def test_put_then_get(store):
    assert store.get(KEY) is None
    store.put(KEY, ENTRY)
    assert store.get(KEY) == ENTRY
    assert store.size() > 200
    store.clear()
    assert store.get(KEY) is None


@pytest.mark.parametrize("damage", [b"", b"weft\x01", b"\x80\x04\x95junk that a pickle would run"])
def test_a_damaged_entry_is_deleted_and_written_anew(store, damage):
    store.put(KEY, ENTRY)
    path = store._path(KEY)
    path.write_bytes(damage)
    assert store.get(KEY) is None
    assert not path.exists()
    store.put(KEY, ENTRY)
    assert store.get(KEY) == ENTRY


def test_the_oldest_entries_go_first(store):
    size = len(cache.encode(ENTRY))
    small = Cache(store.directory, 3 * size)
    keys = [f"{i:02x}{'0' * 62}" for i in range(3)]
    for age, key in enumerate(keys):
        small.put(key, ENTRY)
        os.utime(small._path(key), (1000 + age, 1000 + age))
    assert small.get(keys[0]) == ENTRY, "and is now the one used last"
    small.put(KEY, ENTRY)
    assert [small.get(key) is not None for key in keys] == [True, False, True]
    assert small.get(KEY) == ENTRY
    assert small.size() <= small.max_bytes


def test_half_written_files_are_never_read_and_go_when_old(store):
    store.put(KEY, ENTRY)
    leftover = store._path(KEY).parent / "half.tmp"
    leftover.write_bytes(b"half")
    store.trim()
    assert leftover.exists(), "another process may be writing it"
    os.utime(leftover, (time.time() - 7200,) * 2)
    store.trim()
    assert not leftover.exists()
    assert store.get(KEY) == ENTRY


def test_a_directory_that_cannot_be_written_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    blocked = Cache(tmp_path / "file", LIMIT)
    with pytest.warns(RuntimeWarning, match="keeps no compiled kernels"):
        blocked.put(KEY, ENTRY)
    assert blocked.get(KEY) is None


def test_settings_name_the_cache(tmp_path):
    with weft_settings.using(cache_dir=tmp_path, cache_size=5):
        assert cache.default() == Cache(tmp_path, 5)
    with weft_settings.using(cache=False):
        assert cache.default() is None


WORKER = """
import sys
from pathlib import Path
from weft.runtime.cache import Cache, Entry

store = Cache(Path(sys.argv[1]), 20_000)
me = int(sys.argv[2])
for round in range(60):
    key = f"{round % 7:02x}" + "0" * 62
    found = store.get(key)
    assert found is None or found.blobs["cubin"] == key.encode() * 40, "a torn entry was read"
    store.put(key, Entry({"round": round % 7}, {"cubin": key.encode() * 40}))
    if round % 20 == me:
        store._path(key).write_bytes(b"damage")
print("done")
"""


def test_eight_processes_at_once(tmp_path):
    root = str(Path(cache.__file__).parents[2])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        for i in range(8)
    ]
    results = [worker.communicate(timeout=120) for worker in workers]
    assert [out for out, _ in results] == ["done\n"] * 8, [err for _, err in results]
    assert Cache(tmp_path, 20_000).size() <= 24_000
