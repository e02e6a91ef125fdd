"""`python -m weft tune`."""

from __future__ import annotations

import pytest

from weft import settings, tune
from weft.cli import main
from weft.tune.key import Point
from weft.tune.store import Choice, default


@pytest.fixture(autouse=True)
def stored(store):
    point = Point((("M", 64), ("x", (3, 4))), (("a", "float16"),), "Some GPU", 90, 0)
    kept = default()
    assert kept is not None
    for kernel in ("matmul", "softmax"):
        kept.put(Choice(kernel, "ab" * 32, point, "BLOCK=64, num_warps=8", 0.125))


def test_list(capsys):
    assert main(["tune", "list"]) == 0
    rest = "on Some GPU for M=64, x=3x4, a: float16: BLOCK=64, num_warps=8 (0.125 ms)\n"
    assert capsys.readouterr().out == f"matmul {rest}softmax {rest}"
    assert main(["tune", "list", "--kernel", "softmax", "--no-color"]) == 0
    assert "matmul" not in capsys.readouterr().out


def test_export_and_import(tmp_path, capsys):
    file = tmp_path / "choices.json"
    assert main(["tune", "export", str(file), "--kernel", "matmul"]) == 0
    assert capsys.readouterr().out == f"1 choice exported to {file}\n"
    with settings.using(cache_dir=tmp_path / "elsewhere"):
        assert main(["tune", "import", str(file)]) == 0
        assert [choice.kernel for choice in tune.choices()] == ["matmul"]
    assert capsys.readouterr().out == "1 choice imported\n"


def test_clear(capsys):
    assert main(["tune", "clear", "--kernel", "matmul"]) == 0
    assert [choice.kernel for choice in tune.choices()] == ["softmax"]
    assert main(["tune", "clear"]) == 0
    assert tune.choices() == []
    assert capsys.readouterr().out == "1 choice forgotten\n1 choice forgotten\n"


def test_mistakes_are_messages(tmp_path, capsys):
    assert main(["tune", "import", str(tmp_path / "none.json")]) == 1
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{")
    assert main(["tune", "import", str(tmp_path / "bad.json")]) == 1
    assert "[tune-damaged-file]" in capsys.readouterr().err
