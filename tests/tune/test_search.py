"""What is measured, in which order, and what becomes of configs that are not: with a fake GPU and a fake clock."""

from __future__ import annotations

import threading
from contextvars import copy_context

import pytest

import weft
from tests.runtime.fake_driver import CUresult, FakeTensor, float16
from tests.tune.kernels import tuned
from weft import Config, tune
from weft.errors import UserError
from weft.tune import search

X, Y = FakeTensor(0x1000), FakeTensor(0x2000)


def rows(results) -> dict[int, str]:
    return {result.config.kwargs["BLOCK"]: result.status for result in results}


def test_the_fastest_config_is_launched_and_kept(machine):
    kernel = tuned(machine, times={64: 3.0, 128: 1.0, 256: 2.0})
    kernel[lambda arguments: (arguments["n"] // arguments["BLOCK"],)](X, Y, 1024)
    assert kernel.best_config == Config({"BLOCK": 128})
    assert machine.cuda.launches[-1].grid == (8, 1, 1)
    assert machine.measured[:3] == [64, 128, 256]
    count = len(machine.measured)
    kernel[1](X, Y, 1024)
    assert len(machine.measured) == count
    assert [(choice.kernel, choice.config, choice.ms) for choice in tune.choices()] == [("scale", "BLOCK=128", 1.0)]
    assert dict(tune.choices()[0].point.values) == {"n": 1024}
    assert tune.choices()[0].point.device == "Fake H200"


def test_rounds_go_there_and_back_and_leave_out_the_slow(machine):
    tuned(machine, times={64: 1.0, 128: 1.2, 256: 5.0})[1](X, Y, 8)
    assert machine.measured == [64, 128, 256, 128, 64, 64, 128]


def test_a_clear_winner_is_not_measured_again(machine):
    tuned(machine, times={64: 1.0, 128: 2.0, 256: 5.0})[1](X, Y, 8)
    assert machine.measured == [64, 128, 256]


def test_the_median_of_the_rounds_counts(machine):
    times = {64: [1.0, 1.3, 1.3], 128: [1.1, 1.1, 1.1]}

    def bench(run, prepare):
        return times[run().request.arguments["BLOCK"].value].pop(0)

    kernel = tuned(machine, blocks=(64, 128), bench=bench)
    kernel[1](X, Y, 8)
    assert kernel.best_config == Config({"BLOCK": 128})
    assert [result.ms for result in kernel.results] == [1.1, 1.3]


def test_each_key_and_dtype_has_its_own_choice(machine):
    kernel = tuned(machine)
    kernel[1](X, Y, 8)
    kernel[1](X, Y, 16)
    kernel[1](X, FakeTensor(0x3000, float16), 16)
    assert len(tune.choices()) == 3
    kernel[1](X, Y, n=8)
    assert len(machine.measured) == 9


def test_a_process_finds_what_another_chose(machine):
    tuned(machine, times={256: 0.5})[1](X, Y, 8)
    measured = len(machine.measured)
    again = tuned(machine)
    again[1](X, Y, 8)
    assert again.best_config == Config({"BLOCK": 256})
    assert len(machine.measured) == measured


def test_other_configs_are_another_choice(machine):
    tuned(machine)[1](X, Y, 8)
    tuned(machine, blocks=(64, 512))[1](X, Y, 8)
    assert len(tune.choices()) == 2


def test_tune_measures_again_and_replaces_the_choice(machine):
    kernel = tuned(machine, times={64: 1.0})
    kernel[1](X, Y, 8)
    machine.times[256] = 0.5
    results = kernel.tune(X, Y, 8, grid=4)
    assert results is kernel.results
    assert results.best.config == Config({"BLOCK": 256})
    assert [choice.config for choice in tune.choices()] == ["BLOCK=256"]
    kernel[1](X, Y, 8)
    assert kernel.best_config == Config({"BLOCK": 256})


def test_everything_is_compiled_in_threads_before_anything_is_measured(machine):
    compiled_before = []

    def bench(run, prepare):
        compiled_before.append(len(machine.requests))
        return machine.bench(run, prepare)

    tuned(machine, bench=bench)[1](X, Y, 8)
    assert compiled_before[0] == 3
    assert all(name.startswith("weft-tune") for name in machine.threads)


def test_what_cannot_be_compiled_is_a_row_with_its_reason(machine):
    machine.broken = {64}
    kernel = tuned(machine)
    kernel[1](X, Y, 8)
    assert rows(kernel.results) == {128: "timed", 256: "timed", 64: "failed"}
    assert kernel.results[-1].reason == "BLOCK=64 is broken [test-broken]"
    assert "BLOCK=64 is broken [test-broken]" in str(kernel.results)
    assert 64 not in machine.measured


def test_what_cannot_be_launched_is_a_row_with_its_reason(machine):
    def bench(run, prepare):
        machine.cuda.results = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES] if not machine.measured else []
        machine.measured.append(0)
        return machine.bench(run, prepare)

    kernel = tuned(machine, bench=bench)
    kernel[1](X, Y, 8)
    assert rows(kernel.results)[64] == "failed"
    assert "launch-registers" in kernel.results[-1].reason


def test_wrong_results_are_out(machine):
    seen = []

    def check(arguments, result):
        seen.append((arguments["n"], arguments["BLOCK"], result.name))
        if arguments["BLOCK"] == 128:
            raise AssertionError("off by one\nand more")
        return arguments["BLOCK"] != 64

    kernel = tuned(machine, check=check)
    kernel[1](X, Y, 8)
    assert seen == [(8, 64, "scale"), (8, 128, "scale"), (8, 256, "scale")]
    reasons = {result.config.kwargs["BLOCK"]: result.reason for result in kernel.results}
    assert reasons == {
        64: "AssertionError: check= found a wrong result",
        128: "AssertionError: off by one",
        256: "",
    }


def test_spilling_configs_are_refused_where_others_do_not_spill(machine):
    machine.spills = {64: 16}
    kernel = tuned(machine)
    kernel[1](X, Y, 8)
    assert rows(kernel.results) == {128: "timed", 256: "timed", 64: "refused"}
    assert "spills 16 bytes" in kernel.results[-1].reason
    kernel = tuned(machine, spills=True, key=[lambda arguments: "with spills"])
    kernel[1](X, Y, 8)
    assert kernel.best_config == Config({"BLOCK": 64})


def test_spilling_configs_are_measured_where_all_spill(machine):
    machine.spills = {64: 16, 128: 16, 256: 8}
    kernel = tuned(machine)
    kernel[1](X, Y, 8)
    assert set(rows(kernel.results).values()) == {"timed"}
    assert [result.spills for result in kernel.results] == [16, 16, 8]
    assert (kernel.results[0].registers, kernel.results[0].shared) == (32, 64)


def test_the_users_pruning_and_model(machine):
    asked = []

    def prune(configs, arguments):
        asked.append(arguments["n"])
        return [config for config in configs if config.kwargs["BLOCK"] <= arguments["n"]]

    kernel = tuned(
        machine, blocks=(64, 128, 256, 512), prune=prune, model=lambda config, _: -config.kwargs["BLOCK"], top_k=2
    )
    kernel[1](X, Y, 256)
    assert asked == [256]
    assert rows(kernel.results) == {128: "timed", 256: "timed", 512: "refused", 64: "refused"}
    assert {result.config.kwargs["BLOCK"]: result.reason for result in kernel.results if result.reason} == {
        512: "left out by prune=",
        64: "the model expects -64, not among the best 2",
    }
    assert machine.measured[:2] == [256, 128]


def test_all_failed_names_every_reason(machine):
    machine.broken = {64, 128}
    kernel = tuned(machine, prune=lambda configs, _: configs[:2])
    with pytest.raises(UserError) as caught:
        kernel[1](X, Y, 8)
    assert caught.value.code == "tune-all-failed"
    assert caught.value.message.splitlines() == [
        "none of the 3 configs of scale can be used",
        "  BLOCK=256: left out by prune=",
        "  BLOCK=64: BLOCK=64 is broken [test-broken]",
        "  BLOCK=128: BLOCK=128 is broken [test-broken]",
    ]
    assert caught.value.__cause__ is not None
    assert tune.choices() == []


def test_a_lost_gpu_ends_the_search(machine):
    def bench(run, prepare):
        machine.synchronised = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
        raise RuntimeError("CUDA error: an illegal memory access")

    with pytest.raises(UserError, match=r"the config \(BLOCK=64\) of scale broke the CUDA context") as caught:
        tuned(machine, bench=bench)[1](X, Y, 8)
    assert caught.value.code == "tune-device-lost"


class Numbers:
    """Poses as an array on the GPU with contents."""

    def __init__(self, value: float, pointer: int = 0x1000) -> None:
        self.value = value
        self.tensor = FakeTensor(pointer)

    def __getattr__(self, name: str):
        return getattr(self.tensor, name)

    def clone(self) -> Numbers:
        return Numbers(self.value)

    def __setitem__(self, place: object, value: object) -> None:
        self.value = value.value if isinstance(value, Numbers) else value


def test_arrays_are_restored_and_reset_before_each_run(machine):
    x, y = Numbers(5.0), Numbers(7.0)
    seen = []

    def bench(run, prepare):
        prepare()
        seen.append((x.value, y.value))
        x.value, y.value = 8.0, 9.0
        return machine.bench(run, lambda: None)

    tuned(machine, bench=bench, restore=["x"], reset=["y"]).tune(x, y, 8, grid=1)
    assert set(seen) == {(5.0, 0)}
    assert (x.value, y.value) == (5.0, 0)


def test_arrays_that_are_absent_need_no_restoring(machine):
    kernel = tuned(machine, restore=["x"], reset=["y"])
    kernel.tune(None, None, 8, grid=1)
    assert kernel.results.best is not None


@pytest.mark.parametrize(("option", "done"), [("restore", "copied"), ("reset", "filled")])
def test_what_cannot_be_put_back(machine, option, done):
    with pytest.raises(UserError, match=f"{option} of scale names n, which is a int and cannot be {done}") as caught:
        tuned(machine, **{option: ["n"]}).tune(X, Y, 8, grid=1)
    assert caught.value.code == "tune-restore-kind"


def test_a_configs_hook_is_called_before_each_launch_and_not_measured(machine):
    called = []

    def bench(run, prepare):
        prepare()
        called.append("run")
        run()
        return 1.0

    config = Config({"BLOCK": 64}, pre_hook=lambda arguments: called.append((arguments["n"], arguments["BLOCK"])))
    kernel = tuned(machine, configs=[config], bench=bench)
    kernel[1](X, Y, 8)
    assert called == [(8, 64), "run", (8, 64)]


def test_one_search_at_a_time(machine):
    kernel = tuned(machine)
    # Settings are those of a thread; these take the test's along.
    threads = [threading.Thread(target=copy_context().run, args=(lambda: kernel[1](X, Y, 8),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(machine.measured) == 3
    assert len(machine.cuda.launches) == 7


def test_without_a_store_a_process_remembers(machine):
    kernel = tuned(machine, key=["n", lambda arguments: [arguments["n"], 2]])
    with weft.settings.using(cache=False):
        kernel[1](X, Y, 8)
        measured = len(machine.measured)
        kernel[1](X, Y, 8)
        kernel[1](FakeTensor(0x3000), Y, 8)
        assert len(machine.measured) == measured
        kernel[1](X, Y, 9)
        assert len(machine.measured) > measured


def test_with_tuning_off_the_first_config_that_compiles_is_taken(machine):
    machine.broken = {64}
    kernel = tuned(machine)
    with weft.settings.using(tune=False):
        kernel[1](X, Y, 8)
    assert kernel.best_config == Config({"BLOCK": 128})
    assert (machine.measured, tune.choices()) == ([], [])


def test_progress_is_shown_when_asked_for(machine, capsys):
    tuned(machine, progress=True)[1](X, Y, 8)
    shown = capsys.readouterr().err
    assert "tuning scale: round 1 of 3" in shown
    assert "best 64 ms: BLOCK=64" in shown
    with weft.settings.using(tune_progress=None):
        tuned(machine)[1](X, Y, 16)
    assert capsys.readouterr().err == ""


def test_as_many_threads_as_processors(monkeypatch):
    monkeypatch.delattr(search.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(search.os, "cpu_count", lambda: 3)
    assert search._processors() == 3
