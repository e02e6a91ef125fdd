"""Choices on disk: found again, carried elsewhere, never torn."""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft import settings, tune
from weft.errors import UserError
from weft.runtime import cache
from weft.runtime.arguments import HOST
from weft.runtime.folder import MARKER
from weft.tune.key import SIMULATOR, Point, distance, parts_of
from weft.tune.store import Choice, Store, decode, default, encode

POINT = Point((("M", 64), ("layout", "row"), ("x", (3, 4))), (("a", "float16"),), "GPU", 90, 0)
CHOICE = Choice("matmul", "ab" * 32, POINT, "BLOCK=64, num_warps=8", 0.125)


def at(m: int, **changes: object) -> Choice:
    fields = {"device": "GPU", "arch": 90, "dtypes": POINT.dtypes} | changes
    point = Point((("M", m),), fields["dtypes"], fields["device"], fields["arch"], 0)
    return Choice("matmul", "ab" * 32, point, f"BLOCK={m}", 1.0)


@pytest.fixture
def folder() -> Store:
    store = default()
    assert store is not None
    return store


def test_json_keeps_everything():
    assert decode(json.loads(json.dumps(encode(CHOICE)))) == CHOICE


def test_put_then_find(folder):
    assert folder.find("matmul", CHOICE.identity, POINT) is None
    folder.put(CHOICE)
    assert folder.find("matmul", CHOICE.identity, POINT) == CHOICE
    assert folder.find("matmul", "cd" * 32, POINT) is None
    assert folder.find("matmul", CHOICE.identity, at(64).point) is None


def test_a_choice_of_another_architecture_is_none_though_its_path_is_the_same(folder):
    folder.put(at(64, device=SIMULATOR, arch=80))
    assert folder.find("matmul", CHOICE.identity, at(64, device=SIMULATOR, arch=80).point) is not None
    assert folder.find("matmul", CHOICE.identity, at(64, device=SIMULATOR).point) is None


def test_a_later_choice_replaces_an_earlier_one(folder):
    folder.put(CHOICE)
    folder.put(Choice("matmul", CHOICE.identity, POINT, "BLOCK=128", 0.1))
    assert [choice.config for choice in tune.choices()] == ["BLOCK=128"]


def test_the_simulator_takes_the_choice_of_any_gpu_of_its_architecture(folder):
    folder.put(at(64, arch=80, device="older"))
    simulated = Point((("M", 64),), POINT.dtypes, SIMULATOR, 90, HOST)
    assert folder.find("matmul", CHOICE.identity, simulated) is None
    folder.put(at(64))
    assert folder.find("matmul", CHOICE.identity, simulated) == at(64)
    other_gpu = Point((("M", 64),), POINT.dtypes, "another", 90, 0)
    assert folder.find("matmul", CHOICE.identity, other_gpu) is None


def test_the_nearest_key_is_counted_in_powers_of_two(folder):
    for m in (64, 1000, 4096):
        folder.put(at(m))
    folder.put(at(512, dtypes=(("a", "float32"),)))
    folder.put(at(512, device="another"))
    nearest = folder.nearest("matmul", CHOICE.identity, at(512).point)
    assert nearest == at(1000)
    assert folder.nearest("matmul", "cd" * 32, at(512).point) is None


@pytest.mark.parametrize("other", [(("M", 64), ("layout", "column"), ("x", (3, 4))), (("M", 0), ("layout", "row"))])
def test_only_positive_numbers_may_differ(other):
    assert distance(POINT, Point(other, POINT.dtypes, "GPU", 90)) == float("inf")
    near = Point((("M", 128), ("layout", "row"), ("x", (6, 4))), POINT.dtypes, "GPU", 90)
    assert distance(POINT, near) == 2


FIELDS = encode(CHOICE)


def without(name: str) -> dict[str, object]:
    return {field: value for field, value in FIELDS.items() if field != name}


def nested(depth: int) -> object:
    return [nested(depth - 1)] if depth else 1


DAMAGES = {
    "empty": "",
    "cut": json.dumps({"format": 1, **FIELDS})[:-9],
    "binary": "\x00",
    "no object": "[]",
    "no fields": '{"format": 1}',
    "newer": json.dumps({"format": 2, **FIELDS}),
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep key": json.dumps({"format": 1, **FIELDS, "key": [["M", nested(500)]]}),
    "another": json.dumps({"format": 1, **encode(Choice("matmul", "ab" * 32, at(3).point, "BLOCK=3", 1.0))}),
    "another identity": json.dumps({"format": 1, **FIELDS, "identity": "cd" * 32}),
    **{f"no {name}": json.dumps({"format": 1, **without(name)}) for name in FIELDS},
    **{f"{name} a number": json.dumps({"format": 1, **FIELDS, name: 7}) for name in FIELDS if name not in ("ms", "arch")},
    **{
        f"{name} {value}": json.dumps({"format": 1, **FIELDS, name: value})
        for name, value in [
            ("arch", "90"), ("arch", 1e999), ("arch", True), ("ms", None), ("ms", "fast"), ("ms", float("nan")),
            ("ms", 10**400), ("key", [["M"]]), ("key", [[1, 2]]), ("key", [["M", {}]]), ("dtypes", [["a", 16]]),
            ("kernel", ""), ("identity", "../" * 8), ("device", "\ud800"),
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_or_swapped_file_costs_a_warning(folder, damage):
    folder.put(CHOICE)
    (path,) = folder.directory.glob("tune/*/*/*.json")
    path.write_text(damage)
    with pytest.warns(RuntimeWarning, match="ignores the damaged tuning choice"):
        assert folder.find("matmul", CHOICE.identity, POINT) is None
    assert folder.all() == []
    folder.put(CHOICE)
    assert folder.find("matmul", CHOICE.identity, POINT) == CHOICE


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_plain_file_costs_a_warning(folder, put):
    folder.put(CHOICE)
    (path,) = folder.directory.glob("tune/*/*/*.json")
    path.unlink()
    put(path)
    with pytest.warns(RuntimeWarning, match="ignores the damaged tuning choice"):
        assert folder.find("matmul", CHOICE.identity, POINT) is None
    assert folder.all() == []


class Color(enum.IntEnum):
    RED = 1


class Order(str, enum.Enum):
    ROW = "row"


def test_keys_of_subclasses_are_found_again(folder):
    """A NumPy scalar or a member of an enumeration is kept as the number or text that it is."""
    values = {"a": np.float64(1.5), "b": Color.RED, "c": Order.ROW, "d": float("inf"), "e": (np.int32(3), True)}
    point = parts_of("matmul", list(values), list(values), frozenset()).point(values)
    assert repr(point.values) == "(('a', 1.5), ('b', 1), ('c', 'row'), ('d', inf), ('e', (3, True)))"
    folder.put(Choice("matmul", CHOICE.identity, point, "BLOCK=1", 1.0))
    assert folder.find("matmul", CHOICE.identity, point) is not None
    assert folder.all()[0].point == point


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    blocked = Store(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="keeps no tuning choices: .*file is no folder"):
        blocked.put(CHOICE)
    assert blocked.all() == []


def test_without_a_cache_nothing_is_kept(tmp_path):
    with settings.using(cache=False):
        assert default() is None
        assert tune.choices() == []
        assert tune.clear_choices() == 0
        assert tune.export_choices(tmp_path / "none.json") == 0
        assert tune.import_choices(tmp_path / "none.json") == 0


def test_the_cache_of_kernels_leaves_choices_alone(folder):
    folder.put(CHOICE)
    kernels = cache.default()
    assert kernels is not None
    kernels.clear()
    assert tune.choices() == [CHOICE]


def test_clearing_one_kernel_keeps_the_others(folder):
    other = Choice("softmax", CHOICE.identity, POINT, "BLOCK=1", 1.0)
    folder.put(CHOICE)
    folder.put(other)
    assert tune.clear_choices("matmul") == 1
    assert tune.choices() == [other]
    assert tune.clear_choices() == 1
    assert tune.choices() == []


def test_clearing_deletes_no_file_of_others(folder):
    folder.put(CHOICE)
    (path,) = folder.directory.glob("tune/*/*/*.json")
    others = [
        path.parent / "notes.txt",
        path.parents[1] / "results.json",
        path.parents[1] / "results" / path.name,
        path.parents[2] / "mine" / path.parent.name / path.name,
        folder.directory / "app.js",
    ]
    for other in others:
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_text("mine")
    assert tune.clear_choices() == 1
    assert not path.exists()
    assert [other.read_text() for other in others] == ["mine"] * 5


def test_a_folder_without_a_marker_is_not_cleared(folder):
    folder.put(CHOICE)
    (folder.directory / MARKER).unlink()
    assert tune.clear_choices() == 0
    assert tune.choices() == [CHOICE]


def test_an_imported_choice_stays_in_its_folder(folder, tmp_path):
    away = encode(CHOICE) | {"identity": "/../../../../away" + "0" * 47}
    (tmp_path / "choices.json").write_text(json.dumps({"format": 1, "choices": [away]}))
    with pytest.raises(UserError, match="does not say of which kernel"):
        tune.import_choices(tmp_path / "choices.json")
    assert not list(tmp_path.parent.glob("**/away*"))


def test_choices_travel_in_a_file(folder, tmp_path):
    folder.put(CHOICE)
    folder.put(at(64))
    assert tune.export_choices(tmp_path / "all.json") == 2
    assert tune.export_choices(tmp_path / "none.json", "softmax") == 0
    with settings.using(cache_dir=tmp_path / "elsewhere"):
        assert tune.import_choices(tmp_path / "all.json") == 2
        assert tune.choices("matmul") == sorted([CHOICE, at(64)], key=lambda choice: repr(choice.point))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "Expecting value"),
        ('{"format": 1}', "no field choices"),
        ('{"format": 1, "choices": [{"key": []}]}', "no field arch"),
        ("[1]", "a list in it is no object"),
        ("[" * 100_000, "not JSON"),
        ('{"format": 1, "choices": [7]}', "7 in it is no object"),
    ],
)
def test_a_damaged_export_is_refused_whole(tmp_path, text, reason):
    path = tmp_path / "choices.json"
    path.write_text(text)
    with pytest.raises(UserError, match=reason) as caught:
        tune.import_choices(path)
    assert caught.value.code == "tune-damaged-file"
    assert tune.choices() == []


def test_an_export_of_another_format_is_refused(tmp_path):
    path = tmp_path / "choices.json"
    path.write_text('{"format": 99, "choices": []}')
    with pytest.raises(UserError, match="in format 99, and this weft reads format 1") as caught:
        tune.import_choices(path)
    assert caught.value.code == "tune-other-version"


WORKER = """
import sys
import warnings
from pathlib import Path
from weft.tune.key import Point
from weft.tune.store import Choice, Store

warnings.simplefilter("error")
store, me = Store(Path(sys.argv[1])), int(sys.argv[2])
for round in range(100):
    point = Point((("M", round % 5),), (("a", "float16"),), "GPU", 90, 0)
    store.put(Choice("matmul", "ab" * 32, point, f"BLOCK={round % 5}", me))
    found = store.find("matmul", "ab" * 32, point)
    assert found is not None and found.config == f"BLOCK={round % 5}", found
    assert len(store.all()) <= 5
print("done")
"""


def test_four_processes_at_once(tmp_path):
    root = str(Path(cache.__file__).parents[2])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "store"), str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        for i in range(4)
    ]
    results = [worker.communicate(timeout=120) for worker in workers]
    assert [out for out, _ in results] == ["done\n"] * 4, [err for _, err in results]
    found = Store(tmp_path / "store").all()
    assert [choice.config for choice in found] == [f"BLOCK={i}" for i in range(5)]
    assert not list((tmp_path / "store").rglob("*.tmp"))
