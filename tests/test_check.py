"""`weft check`, as data and as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft import simulation
from weft.check import check_script
from weft.cli import main
from weft.errors import Hazard

HEAD = """\
import numpy as np
import weft
import weft.language as gl

LINE = gl.BlockedLayout([1], [32], [4], [0])

@weft.jit
def add_one(x, n):
    i = gl.program_id(0) * 128 + gl.arange(0, 128, LINE)
    gl.store(x + i, gl.load(x + i, i < n) + 1, i < n)

@weft.jit
def beyond(x):
    i = gl.arange(0, 128, LINE)
    gl.store(x + i, gl.load(x + i))

@weft.jit(sync="none")
def unordered(x):
    i = gl.arange(0, 128, LINE)
    buffer = gl.allocate_shared_memory(gl.float32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    buffer.store(gl.load(x + i))
    turned = buffer.load(gl.BlockedLayout([4], [32], [4], [0]))
    gl.store(x + gl.arange(0, 128, gl.BlockedLayout([4], [32], [4], [0])), turned)

x = np.zeros(200, np.float32)
"""


@pytest.fixture
def script(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(HEAD + text, "utf-8")
        return path

    return write


def test_a_clean_script(script, capsys):
    path = script("add_one[(2,)](x, 200)\nassert (x == 1).all()\nadd_one[(2,)](x, 200)\nassert (x == 2).all()\n")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == "2 launches checked, no hazards\n"


def test_a_hazard_ends_its_launch_and_not_the_script(script):
    check = check_script(
        script("beyond[(1,)](x[:100].copy())\nadd_one[(2,)](x, 200)\nassert (x == 1).all()\n"), seeds=2
    )
    (finding,) = check.findings
    assert (finding.kernel, finding.hazard.code, sorted(finding.seeds)) == ("beyond", "hazard-out-of-bounds", [0, 1])
    assert isinstance(finding.hazard, Hazard)
    assert (check.launches, check.stopped, check.clean) == (2, "", False)


def test_one_mistake_is_one_finding(script):
    check = check_script(script("for _ in range(3):\n    beyond[(1,)](x[:100].copy())\n"), seeds=3)
    assert len(check.findings) == 1
    assert check.launches == 3


def test_races_are_found(script, capsys):
    assert main(["check", "--no-color", "--seeds", "1", str(script("unordered[(1,)](x)\n"))]) == 1
    out = capsys.readouterr().out
    assert out.startswith("ThreadRace in unordered (seed 0)\n")
    assert "turned = buffer.load(" in out
    assert "fix: " in out
    assert out.endswith("1 launch checked, 1 hazard\n")


def test_arrays_end_as_one_run_leaves_them(script):
    check = check_script(script("add_one[(2,)](x, 200)\nassert (x == 1).all(), x\n"), seeds=5)
    assert check.clean


def test_the_script_s_own_way_of_simulating_stays(script):
    text = "with weft.simulate(programs=[1]):\n    add_one[(2,)](x, 200)\nassert x[:128].sum() == 0 and (x[128:] == 1).all()\n"
    assert check_script(script(text), seeds=2).clean


def test_kernels_print_once(script, capsys):
    text = "@weft.jit\ndef talk(x):\n    gl.device_print('said', 7)\n\ntalk[(1,)](x)\n"
    assert check_script(script(text), seeds=3).clean
    assert capsys.readouterr().out.count("said") == 1


def test_a_script_that_stops_is_a_failure(script, capsys):
    assert main(["check", "--no-color", str(script("assert x.sum() == 1, 'not yet'\n"))]) == 1
    assert capsys.readouterr().out == "the script stopped: AssertionError: not yet\nno launches checked, no hazards\n"


@pytest.mark.parametrize("seeds", ["0", "-1", "many"])
def test_a_number_of_seeds(script, seeds, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["check", "--seeds", seeds, str(script(""))])
    assert "is not a number from 1 on" in capsys.readouterr().err


def test_afterwards_launches_run_as_before(script):
    check_script(script(""), seeds=1)
    assert simulation.supervisor() is None
