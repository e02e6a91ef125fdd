"""The harness on a clock of our own: order, medians, checks, ratios and verdicts."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import compile as first_calls
from benchmarks import copies, elementwise, harness, launch, reductions, report
from benchmarks.harness import Variant, WrongResultError
from benchmarks.report import Goal, Line


class FakeClock:
    """Each run takes the next of its scripted times; what ran is noted."""

    def __init__(self, times):
        self.times = {name: iter(values) for name, values in times.items()}
        self.ran = []

    def milliseconds(self, run):
        name = run()
        self.ran.append(name)
        return next(self.times[name])


def variant(name, correct=True):
    return Variant(name, lambda: name, lambda: None, lambda: correct)


def test_median_over_rounds_without_the_warm_up():
    warm_up = [1000.0] * harness.WARM_UP
    clock = FakeClock({"a": [*warm_up, 3.0, 1.0, 2.0], "b": [*warm_up, 5.0, 5.0, 50.0]})
    assert harness.measure([variant("a"), variant("b")], clock, rounds=3) == {"a": 2.0, "b": 5.0}


def test_variants_take_turns_behind_each_other():
    clock = FakeClock({name: [1.0] * 100 for name in "abc"})
    harness.measure([variant(name) for name in "abc"], clock, rounds=60)
    ran = "".join(clock.ran[3 * harness.WARM_UP :])
    rounds = [ran[i : i + 3] for i in range(0, len(ran), 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert {each[i : i + 2] for each in rounds for i in range(2)} == {"ab", "ac", "ba", "bc", "ca", "cb"}


def test_a_wrong_result_is_named_and_never_timed(capsys):
    clock = FakeClock({"good": [1.0] * 5})
    assert harness.measure([variant("bad", correct=False), variant("good")], clock, rounds=1) == {"good": 1.0}
    assert set(clock.ran) == {"good"}
    assert "bad: not measured: WrongResultError" in capsys.readouterr().err


def test_a_variant_that_raises_is_named(capsys):
    broken = Variant("broken", lambda: 1 // 0, lambda: None, lambda: True)
    assert harness.measure([broken], FakeClock({}), rounds=3) == {}
    assert "broken: not measured: ZeroDivisionError" in capsys.readouterr().err


def test_the_output_is_poisoned_before_the_check():
    state = []
    lazy = Variant("lazy", lambda: None, lambda: state.append("poison"), lambda: not state)
    with pytest.raises(WrongResultError):
        harness.check(lazy)


def test_race_gives_throughput_by_case_and_name():
    times = {"fast": [2.0] * 9, "slow": [4.0] * 9}
    jobs = {"x": {"weft": lambda: "fast", "gluon": lambda: "slow"}}
    found = harness.race(jobs, FakeClock(times), 3, nbytes=8 * 10**9, poison=lambda: None, correct=lambda: True)
    assert found == {"x": {"weft": pytest.approx(4.0), "gluon": pytest.approx(2.0)}}


def test_relative_error(torch):
    want = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert harness.relative_error(torch.tensor([3.0, 4.5]), want) == pytest.approx(0.1)
    assert math.isnan(harness.relative_error(torch.tensor([3.0, float("nan")]), want))


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal(1.0, "gluon"), "pass"),
        (Goal(1.2, "gluon"), "FAIL"),
        (Goal(4.0), "pass"),
        (Goal(3.0, ceiling=True), "FAIL"),
        (Goal(0.9, "torch"), ""),
    ],
)
def test_verdict(goal, verdict):
    assert Line("copy", 4.0, "TB/s", {"gluon": 3.8}, (goal,)).verdict == verdict


def test_one_missed_goal_fails_the_line():
    assert Line("copy", 4.0, "TB/s", {"gluon": 3.8}, (Goal(1.0, "gluon"), Goal(5.0))).verdict == "FAIL"


def test_saved_results_say_where_and_when(tmp_path):
    lines = [Line("copy", 4.0, "TB/s", {"gluon": 3.2}, (Goal(1.0, "gluon"),), "a note")]
    report.save(tmp_path, "copies", "Copies", lines, report.about())
    record = json.loads((tmp_path / "copies.json").read_text(encoding="utf-8"))
    assert record["about"]["numpy"]
    assert len(record["about"]["date"]) == 10
    assert record["lines"][0]["verdict"] == "pass"
    page = (tmp_path / "copies.md").read_text(encoding="utf-8")
    assert "| copy | 4 | 3.2 | 1.25 | TB/s | >= 1 x gluon | pass | a note |" in page


def test_table_shows_goals_and_verdicts():
    text = report.rendered("Copies", [Line("copy", 3.0, "TB/s", {"gluon": 3.2}, (Goal(1.0, "gluon"),))])
    assert ">= 1 x gluon" in text
    assert "FAIL" in text
    assert "0.9375" in text


def test_best_of_a_table_is_each_compilers_own():
    table = {"A": {"weft": 4.2, "gluon": 3.0}, "B": {"weft": 4.0, "gluon": 4.0}}
    line = copies.best("best", table, {"torch": 4.3}, copies.BEST)
    assert (line.ours, line.peers) == (4.2, {"gluon": 4.0, "torch": 4.3})
    assert line.note == "weft at A; gluon at B"
    assert line.verdict == "pass"


def test_a_figure_that_is_missing_fails_its_goal():
    assert copies.line("copy", {"gluon": 4.0}, (Goal(1.0, "gluon"),)).verdict == "FAIL"


def test_launch_times_are_per_call():
    calls = {"a": 0}

    def job():
        calls["a"] += 1

    found = launch.times({"a": job}, rounds=3, synchronize=lambda: None)
    assert calls["a"] == 4 * launch.BATCH
    assert 0 < found["a"] < 1000


def call(ms, **parts):
    return {"ms": ms, "parts": parts}


def test_first_calls_are_medians_over_processes_with_their_parts():
    run = {
        "first": [call(300.0, NVRTC=200.0, rest=100.0)],
        "later": [call(90.0), call(110.0)],
        "product": [call(350.0, NVRTC=270.0)],
    }
    other = {"first": [call(700.0)], "later": [call(300.0)], "product": [call(500.0)]}
    lines = first_calls.lines({"weft": [run, run], "gluon": [other]}, {"weft": [run], "gluon": [other]})
    assert [line.ours for line in lines] == [300.0, 100.0, 300.0, 100.0, 350.0, 350.0, 80.0]
    assert [line.verdict for line in lines] == ["pass", "pass", "", "FAIL", "pass", "FAIL", "FAIL"]
    assert lines[0].peers == {"gluon": 700.0}
    assert lines[0].note == "NVRTC 200.0, rest 100.0"


def test_the_sweep_covers_every_kernel_with_whole_vectors():
    sums, softmaxes = reductions.sweep_points()
    assert all(cols >= 32 * warps * vec for vec, _, cols, warps in sums)
    assert set(softmaxes) == {"plain", "threads", "persistent", "online"}


def test_the_sweep_of_additions_fits_on_a_multiprocessor():
    points = elementwise.sweep_points()
    assert {example for example, _, _ in points.values()} == {"add_async_copy", "add_tma", "add_warp_specialized"}
    for example, _, point in points.values():
        if example != "add_async_copy":
            tiles = 2 * point["num_buffers"] + 2
            assert tiles * point["XBLOCK"] * 1024 * point["programs"] <= 132 * 227 * 1024
