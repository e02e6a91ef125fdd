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
    check = check_script(script("beyond[(1,)](x[:100].copy())\nadd_one[(2,)](x, 200)\nassert (x == 1).all()\n"), runs=2)
    (finding,) = check.findings
    assert (finding.kernel, finding.hazard.code, sorted(finding.runs)) == (
        "beyond",
        "hazard-out-of-bounds",
        ["in order", "in reverse"],
    )
    assert isinstance(finding.hazard, Hazard)
    assert (check.launches, check.stopped, check.clean) == (2, "", False)


def test_one_mistake_is_one_finding(script):
    check = check_script(script("for _ in range(3):\n    beyond[(1,)](x[:100].copy())\n"), runs=3)
    assert len(check.findings) == 1
    assert check.launches == 3


def test_races_are_found(script, capsys):
    assert main(["check", "--no-color", "--runs", "1", str(script("unordered[(1,)](x)\n"))]) == 1
    out = capsys.readouterr().out
    assert out.startswith("ThreadRace in unordered (in order)\n")
    assert "turned = buffer.load(" in out
    assert "fix: " in out
    assert out.endswith("1 launch checked, 2 hazards\n")


def test_arrays_end_as_one_run_leaves_them(script):
    check = check_script(script("add_one[(2,)](x, 200)\nassert (x == 1).all(), x\n"), runs=5)
    assert check.clean


def test_the_script_s_own_way_of_simulating_stays(script):
    text = "with weft.simulate(programs=[1]):\n    add_one[(2,)](x, 200)\nassert x[:128].sum() == 0 and (x[128:] == 1).all()\n"
    assert check_script(script(text), runs=2).clean


def test_kernels_print_once(script, capsys):
    text = "@weft.jit\ndef talk(x):\n    gl.device_print('said', 7)\n\ntalk[(1,)](x)\n"
    assert check_script(script(text), runs=3).clean
    assert capsys.readouterr().out.count("said") == 1


def test_a_script_that_stops_is_a_failure(script, capsys):
    path = script("assert x.sum() == 1, 'not yet'\n")
    assert main(["check", "--no-color", str(path)]) == 1
    stopped, counts = capsys.readouterr().out.splitlines()
    assert stopped.startswith(f"the script stopped: {path}:") and stopped.endswith(": AssertionError: not yet")
    assert counts == "no launches checked, no hazards"


@pytest.mark.parametrize("runs", ["0", "-1", "many"])
def test_a_number_of_runs(script, runs, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["check", "--runs", runs, str(script(""))])
    assert "is not a number from 1 on" in capsys.readouterr().err


def test_afterwards_launches_run_as_before(script):
    check_script(script(""), runs=1)
    assert simulation.supervisor() is None


RACES = """
@weft.jit
def zeroed(x, log):
    if gl.program_id(0) == 0:
        gl.store(x, 0.0)
    gl.atomic_add(x, 1.0)
    gl.store(log, gl.program_id(0) * 1.0)

@weft.jit
def ticketed(x, log, count):
    ticket = gl.atomic_add(count, 1)
    if ticket == 0:
        gl.store(x, 1.0)
        gl.store(log, 1.0)
    gl.barrier()
    if gl.program_id(0) == 0:
        gl.store(log + 1, gl.load(x))

@weft.jit(sync="none")
def unwritten(x):
    i = gl.arange(0, 128, LINE)
    buffer = gl.allocate_shared_memory(gl.float32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    value = buffer.load(LINE)
    buffer.store(gl.load(x + i) + value)
    turned = buffer.load(gl.BlockedLayout([4], [32], [4], [0]))
    gl.store(x + gl.arange(0, 128, gl.BlockedLayout([4], [32], [4], [0])), turned)

log, count = np.zeros(2, np.float32), np.zeros(1, np.int32)
"""


def test_every_hazard_of_a_launch_is_found_once(script, capsys):
    path = script(RACES + "zeroed[(4,)](x, log)\n")
    check = check_script(path, runs=3)
    lines = [finding.hazard.loc.line - HEAD.count("\n") for finding in check.findings]
    assert sorted(lines) == [6, 7]
    assert all(finding.times > 1 for finding in check.findings if "in order" in finding.runs)
    assert main(["check", "--no-color", str(path)]) == 1
    assert "GlobalRace in zeroed (in order, in reverse, seed 1" in capsys.readouterr().out


def test_a_ticket_that_is_taken_as_a_program_s_number(script):
    """In the order of the grid program 0 has ticket 0, so only another order shows what is wrong."""
    path = script(RACES + "ticketed[(4,)](x, log, count)\n")
    assert check_script(path, runs=1).clean
    (finding, *_) = check_script(path, runs=2).findings
    assert (finding.hazard.code, finding.runs) == ("hazard-global-race", ["in reverse"])


def test_an_unwritten_buffer_does_not_hide_the_race_behind_it(script):
    path = script(RACES + "unwritten[(1,)](x)\n")
    codes = {finding.hazard.code for finding in check_script(path, runs=1).findings}
    assert {"hazard-uninitialized", "hazard-thread-race"} <= codes
    poisoned = {finding.hazard.code for finding in check_script(path, runs=1, uninitialized="poison").findings}
    assert "hazard-thread-race" in poisoned and "hazard-uninitialized" not in poisoned


def test_what_came_before_the_hazard_that_ends_a_run(script):
    text = RACES + "@weft.jit\ndef both(x):\n    gl.store(x, gl.program_id(0) * 1.0)\n    beyond(x)\n"
    codes = [finding.hazard.code for finding in check_script(script(text + "both[(2,)](x[:200])\n"), runs=1).findings]
    assert "hazard-global-race" in codes
