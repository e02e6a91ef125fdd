"""Crafted files in the cache: whatever stands there, a kernel is compiled to the code that it had, and nothing is raised.

Each case damages one file of a folder that real compilations filled, and asks for all kernels again. Files whose checksum is
right are damaged in ways that no version of weft writes: what the owner of a folder forges soundly is believed, as the
documentation says.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import language as gl
from weft import settings
from weft.runtime import nvrtc
from weft.runtime.compiled import Binary
from weft.runtime.entry import MAGIC
from weft.runtime.folder import MARKER
from weft.tune.key import Point
from weft.tune.store import Choice, Store, encode

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")

CASES = 300
SCALE = gl.constexpr(3)
LAYOUT = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def helper(value):
    return value * SCALE


@weft.jit
def scale(src, dst, n, N: gl.constexpr):
    i = gl.program_id(0) * N + gl.arange(0, N, LAYOUT)
    gl.store(dst + i, helper(gl.load(src + i, mask=i < n, other=0.0)), mask=i < n)


@weft.jit
def fill(dst, N: gl.constexpr):
    gl.store(dst + gl.arange(0, N, LAYOUT), 1.0)


def compiled() -> list[Binary]:
    """The machine code of both kernels, as a process has it that knows nothing yet."""
    scale.forget()
    fill.forget()
    first = scale.warmup("*fp32", "*fp32", "i32", 256, target="sm_90a")
    return [first.binary, fill.warmup("*fp32", 256, target="sm_90a").binary]


# Files with a right checksum


def seal(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).digest() + body


def opened(data: bytes) -> tuple[Any, bytes]:
    """The header and the parts of an entry's file."""
    body = data[len(MAGIC) + 32 :]
    end = 8 + struct.unpack_from("<Q", body)[0]
    return json.loads(body[8:end]), body[end:]


def closed(header: Any, parts: bytes, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return seal(struct.pack("<Q", len(text) if length is None else length) + text + parts)


JUNK: list[Any] = [
    None,
    True,
    -1,
    1.5,
    1 << 80,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    {"a": 1},
    [None, 1],
    "\ud800",
]


def junk_for(value: Any, rng: random.Random) -> Any:
    """Something of a type that cannot stand where this value does."""
    return rng.choice([item for item in JUNK if type(item) is not type(value) or item in (-1, 1 << 80, "\ud800")])


def misshapen(value: Any, rng: random.Random) -> Any:
    """A JSON value with one thing wrong, somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(sorted(value))
        how = rng.random()
        if how < 0.1:
            return {other: inner for other, inner in value.items() if other != name}
        if how < 0.2:
            return {**value, rng.choice(["entry", "more", ""]): "../" * 5 + "etc/passwd"}
        return {**value, name: misshapen(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        return [*value[:place], misshapen(value[place], rng), *value[place + 1 :]]
    if isinstance(value, list):
        return rng.choice([None, 7, "list", {}, [[]], [None]])
    return junk_for(value, rng)


# Attacks: each changes one file


def truncated(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def flipped(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def overwritten(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    data[start : start + rng.randrange(1, 4096)] = rng.randbytes(rng.randrange(1, 4096))
    path.write_bytes(data)


def random_bytes(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.choice([b"", MAGIC, b"\x80\x04\x95", b"\x7fELF"]) + rng.randbytes(rng.randrange(200)))


def header_misshapen(path: Path, rng: random.Random) -> None:
    header, parts = opened(path.read_bytes())
    path.write_bytes(closed(misshapen(header, rng), parts))


def other_json(path: Path, rng: random.Random) -> None:
    _, parts = opened(path.read_bytes())
    texts = [
        b"",
        b"[]",
        b"7",
        b"null",
        b'"x"',
        b"{",
        b"\xff",
        b"NaN",
        b"9" * 5000,
        b'{"key":1,"key":2}',
        b"\xff\xfe[\x00]\x00",
    ]
    path.write_bytes(closed(rng.choice(texts), parts))


def deep_header(path: Path, rng: random.Random) -> None:
    header, parts = opened(path.read_bytes())
    depth = rng.choice([100, 900, 5_000, 200_000])
    text = json.dumps({**header, "metadata": "DEEP"}).encode()
    deep = rng.choice([b"[" * depth + b"]" * depth, b'{"variants":' * depth + b"1" + b"}" * depth])
    path.write_bytes(closed(text.replace(b'"DEEP"', deep), parts))


def long_header(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    header, parts = opened(data)
    path.write_bytes(
        closed(header, parts, rng.choice([0, 1, len(data), len(data) * 2, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]))
    )


def wrong_sizes(path: Path, rng: random.Random) -> None:
    header, parts = opened(path.read_bytes())
    size = rng.choice([0, 1, len(parts) - 1, len(parts) + 1, 1 << 62, -len(parts)])
    header["parts"] = rng.choice(
        [[["cubin", size]], [["cubin", len(parts)], ["cubin", size]], [["code", len(parts)]], []]
    )
    if header["parts"] != [[name, len(parts)] for name, _ in header["parts"]] or parts:
        path.write_bytes(closed(header, parts + b"x" * (size == 0)))


def newer(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"weft" + bytes([rng.choice([0, 1, 3, 255])]) + path.read_bytes()[5:])


def swapped(path: Path, rng: random.Random) -> None:
    other = rng.choice([entry for entry in entries(path.parents[1]) if entry != path])
    mine, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(mine)


def replaced(path: Path, rng: random.Random) -> None:
    other = rng.choice([entry for entry in entries(path.parents[1]) if entry != path])
    path.unlink()
    rng.choice([path.symlink_to, path.hardlink_to])(other)


def special(path: Path, rng: random.Random) -> None:
    """No plain file."""
    path.unlink()

    def listen(at: Path) -> None:
        server = socket.socket(socket.AF_UNIX)
        back = Path.cwd()
        os.chdir(at.parent)  # the name of a socket may have no more than 108 letters
        try:
            server.bind(at.name)
        finally:
            os.chdir(back)
            server.close()

    kinds: list[Callable[[Path], object]] = [
        os.mkfifo, Path.mkdir, listen, lambda at: at.symlink_to("/dev/zero"), lambda at: at.symlink_to(at.name),
        lambda at: at.symlink_to("nothing"), lambda at: (at / "x").mkdir(parents=True),
    ]  # fmt: skip
    rng.choice(kinds)(path)


def huge(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.choice([1 << 29, 1 << 34, 1 << 40]))


def open_to_all(path: Path, rng: random.Random) -> None:
    rng.choice([path, path.parents[1]]).chmod(0o777)


def parent_replaced(path: Path, rng: random.Random) -> None:
    parent, away = path.parent, path.parents[2] / "away"
    parent.rename(away)
    rng.choice([lambda: parent.symlink_to(away), lambda: parent.write_text("file"), lambda: os.mkfifo(parent)])()


def marker_changed(path: Path, rng: random.Random) -> None:
    marker = path.parents[1] / MARKER
    marker.unlink()
    text = "weft makes and deletes the files in this folder (layout 9)\n"
    kinds = [
        lambda: None,
        lambda: os.mkfifo(marker),
        marker.mkdir,
        lambda: marker.write_text(text),
        lambda: marker.write_text(""),
    ]
    rng.choice(kinds)()


def strangers_moved_in(path: Path, rng: random.Random) -> None:
    place = path.parents[1]
    if rng.random() < 0.5:
        (place / MARKER).unlink()
    (place / "app.js").write_text("mine")
    (path.parent / "notes.entry").write_text("mine")


ATTACKS = [
    truncated, flipped, overwritten, random_bytes, other_json, deep_header, long_header, wrong_sizes, newer, swapped, replaced,
    special, special, huge, open_to_all, parent_replaced, marker_changed, strangers_moved_in, *[header_misshapen] * 3,
]  # fmt: skip


def entries(place: Path) -> list[Path]:
    return sorted(place.glob("??/*.entry"))


def attacked(place: Path, seed: int, expected: list[Binary]) -> str | None:
    """What went wrong in a case, or None."""
    rng = random.Random(seed)
    attack = ATTACKS[seed % len(ATTACKS)]
    victim = rng.choice(entries(place))
    outside = place.parent / "outside"
    outside.write_text("mine")
    attack(victim, rng)
    named = f"seed {seed}, {attack.__name__} of {victim.name[:8]}"
    try:
        with (
            settings.using(cache_dir=place, cache_size=rng.choice([1, 1 << 30])),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            again = [compiled(), compiled()]
    except Exception as error:  # noqa: BLE001  (whatever is raised is what this test looks for)
        return f"{named}: {type(error).__name__}: {error}"
    if again != [expected, expected]:
        return f"{named}: other code"
    subjects = {str(warning.message).split()[1] for warning in caught}
    if len(caught) != len(subjects):
        return f"{named}: {len(caught)} warnings"
    mine = [path for path in (place / "app.js", place / victim.parent.name / "notes.entry", outside) if path.exists()]
    if [path.read_text() for path in mine] != ["mine"] * (3 if attack is strangers_moved_in else 1):
        return f"{named}: files of others are gone"
    return None


def test_crafted_entries(tmp_path, scale, stress_report):
    with settings.using(cache_dir=tmp_path / "filled"):
        expected = compiled()
    assert len(entries(tmp_path / "filled")) == 4
    wrong: list[str] = []
    for seed in range(CASES * scale):
        case = tmp_path / f"case{seed}"
        shutil.copytree(tmp_path / "filled", case / "cache")
        (case / "cache").chmod(0o700)
        found = attacked(case / "cache", seed, expected)
        wrong += [found] if found else []
        shutil.rmtree(case)
    stress_report("crafted cache entries", CASES * scale, len(wrong))
    assert wrong == []


# Choices of tuners


def choice(m: int) -> Choice:
    values = (("M", m), ("layout", "row"), ("x", (3, 4.5, None, True)))
    return Choice("matmul", "ab" * 32, Point(values, (("a", "float16"),), "GPU", 90), f"BLOCK={m}", 0.25)


def choice_misshapen(path: Path, rng: random.Random) -> None:
    path.write_text(json.dumps(misshapen(json.loads(path.read_text()), rng)))


def choice_of_another(path: Path, rng: random.Random) -> None:
    path.write_text(json.dumps({"format": rng.choice([1, 1, 1, 2]), **encode(choice(rng.randrange(100, 200)))}))


def choice_nested(path: Path, rng: random.Random) -> None:
    depth = rng.choice([20, 300, 900, 100_000])
    text = json.dumps({**json.loads(path.read_text()), "key": "DEEP"})
    path.write_text(text.replace('"DEEP"', '[["M", ' + "[" * depth + "]" * depth + "]]"))


CHOICE_ATTACKS = [truncated, flipped, overwritten, random_bytes, special, huge, choice_misshapen, choice_misshapen]
CHOICE_ATTACKS += [choice_misshapen, choice_of_another, choice_nested]


def choice_attacked(place: Path, seed: int, kept: dict[int, Choice]) -> str | None:
    rng = random.Random(seed)
    attack = CHOICE_ATTACKS[seed % len(CHOICE_ATTACKS)]
    attack(rng.choice(sorted(place.glob("tune/*/*/*.json"))), rng)
    store, named = Store(place), f"seed {seed}, {attack.__name__}"
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = {m: store.find("matmul", "ab" * 32, kept[m].point) for m in kept}
            listed = store.all()
            near = store.nearest("matmul", "ab" * 32, choice(77).point)
            store.put(kept[1])
            again = store.find("matmul", "ab" * 32, kept[1].point)
            store.clear()
    except Exception as error:  # noqa: BLE001  (whatever is raised is what this test looks for)
        return f"{named}: {type(error).__name__}: {error}"
    # A change within a text, a number or white space may leave another sound choice; then it is for the same key.
    sound = attack in (flipped, overwritten, choice_misshapen)
    for m, got in found.items():
        if got is not None and got != kept[m] and not (sound and got.point == kept[m].point):
            return f"{named}: found {got}"
    if len(listed) > len(kept) or near is None or len(caught) > 2:
        return f"{named}: {listed}, {near}, {len(caught)} warnings"
    if again not in (kept[1], None):
        return f"{named}: {again} after it was kept again"
    return None


def test_crafted_choices(tmp_path, scale, stress_report):
    kept = {m: choice(m) for m in range(1, 5)}
    for each in kept.values():
        Store(tmp_path / "filled").put(each)
    wrong: list[str] = []
    for seed in range(CASES * scale):
        case = tmp_path / f"case{seed}"
        shutil.copytree(tmp_path / "filled", case)
        found = choice_attacked(case, seed, kept)
        wrong += [found] if found else []
        shutil.rmtree(case)
    stress_report("crafted tuning choices", CASES * scale, len(wrong))
    assert wrong == []
