"""The command line, run in this process."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

import weft
from weft.cli import main
from weft.errors import LayoutError
from weft.layout import BlockedLayout, NVMMADistributedLayout, SliceLayout
from weft.layout.parse import CONSTRUCTORS, parse_layout, parse_shape
from weft.layout.show.text import format_hardware_view, format_tensor_view

TEXT = "BlockedLayout([2,4],[16,2],[2,2],[1,0])"
BLOCKED = BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])


def test_show_prints_the_tensor_view(capsys):
    assert main(["show", TEXT, "32x8"]) == 0
    assert capsys.readouterr().out == format_tensor_view(BLOCKED, [32, 8]) + "\n"


def test_show_prints_the_hardware_view(capsys):
    assert main(["show", TEXT, "32x8", "--hardware", "--no-color"]) == 0
    assert capsys.readouterr().out == format_hardware_view(BLOCKED, [32, 8]) + "\n"


def test_show_colours_a_terminal_and_no_color_does_not(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    main(["show", TEXT, "32x8"])
    assert "\x1b[" in capsys.readouterr().out
    main(["show", TEXT, "32x8", "--no-color"])
    assert "48;2" not in capsys.readouterr().out


def test_show_writes_an_svg(tmp_path, capsys):
    path = tmp_path / "layout.svg"
    assert main(["show", TEXT, "32x8", "--svg", str(path)]) == 0
    assert ET.fromstring(path.read_text("utf-8")).tag.endswith("svg")
    assert capsys.readouterr().out == ""


def test_a_user_error_is_one_message_and_status_1(capsys):
    assert main(["show", "BlockedLayout([1],[16],[4],[0])", "64"]) == 1
    assert "threads_per_warp [16] multiplies to 16" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_line(tmp_path, capsys):
    assert main(["show", TEXT, "32x8", "--svg", str(tmp_path / "no" / "layout.svg")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_an_unknown_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["draw"])
    assert "invalid choice: 'draw'" in capsys.readouterr().err


def test_the_package_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "weft", "show", "BlockedLayout([1],[32],[1],[0])", "32"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0] == "[ T0:0,"


def test_layouts_read_as_they_print():
    for layout in (BLOCKED, SliceLayout(1, BLOCKED), NVMMADistributedLayout([2, 0], [4, 1], [16, 8])):
        assert parse_layout(repr(layout)) == layout
    assert parse_layout(f"gl.SliceLayout(dim=1, parent=weft.language.{TEXT})") == SliceLayout(1, BLOCKED)


def test_every_layout_can_be_named():
    assert all(constructor.__name__ == name for name, constructor in CONSTRUCTORS.items())
    assert "AutoLayout" in CONSTRUCTORS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__import__('os').system('true')", "there is no layout 'system'"),
        ("BlockedLayout([2", "never closed"),
        ("BlockedLayout([x], [32], [4], [0])", "neither a literal nor a layout"),
        ("BlockedLayout([1], [32], [4])", "missing 1 required positional argument"),
        ("BlockedLayout([1], [32], [4], [0], **{})", "unexpected keyword"),
        ("(lambda: 1)()", "there is no layout ''"),
        ("[1, 2]", "not a call of a layout's constructor"),
        ("", "invalid syntax"),
    ],
)
def test_other_text_is_refused(text, reason):
    with pytest.raises(LayoutError, match="cannot read") as caught:
        parse_layout(text)
    assert reason in caught.value.message


def test_shapes_in_several_spellings():
    assert parse_shape("32x8") == parse_shape("[32, 8]") == parse_shape("32X8") == (32, 8)
    assert parse_shape("128") == (128,)


@pytest.mark.parametrize("text", ["", "x", "32x", "-4", "3.5", "32*8"])
def test_other_shapes_are_refused(text):
    with pytest.raises(LayoutError, match="as the shape of a tile"):
        parse_shape(text)


def test_the_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"weft {weft.__version__}\n"


def test_show_takes_sizes_one_by_one(capsys):
    assert main(["show", TEXT, "32", "8"]) == 0
    assert capsys.readouterr().out == format_tensor_view(BLOCKED, [32, 8]) + "\n"


SCRIPT = """\
import sys

def fails():
    raise ValueError("bad")

print(sys.argv[1:])
if "fail" in sys.argv:
    fails()
"""


def test_an_option_of_weft_behind_the_script_is_no_argument_of_it(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, "utf-8")
    with pytest.raises(SystemExit, match="2"):
        main(["check", str(script), "--runs", "5"])
    assert f"--runs stands behind {script}" in capsys.readouterr().err
    assert main(["check", str(script), "--size", "5"]) == 0
    assert "['--size', '5']" in capsys.readouterr().out
    assert main(["check", "--runs", "2", str(script), "--", "--runs", "5"]) == 0
    assert "['--runs', '5']" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "explain"])
def test_what_stopped_a_script_has_its_line(tmp_path, capsys, command):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, "utf-8")
    assert main([command, str(script), "fail"]) == 1
    assert f"{script}:4: ValueError: bad" in capsys.readouterr().out
