"""One test for each mistake in what `@autotune` is given, and in calls of what it made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from tests.tune.kernels import scale
from weft import Config
from weft.errors import LaunchError, UserError
from weft.errors.tune import TuningError

X = np.zeros(8, np.float32)


def function(x, n=0, *, BLOCK=None):
    return BLOCK


def caught(make, code: str) -> UserError:
    with pytest.raises(TuningError) as info:
        make()
    assert info.value.code == code
    assert info.value.fix
    return info.value


def test_what_cannot_be_tuned():
    assert "above 7" in caught(lambda: weft.autotune({"BLOCK": [1]})(7), "tune-subject").message


@pytest.mark.parametrize("configs", [None, 3, [3]])
def test_configs_that_are_none(configs):
    assert (
        f"contain {3 if configs else None}, which"
        in caught(lambda: weft.autotune(configs)(scale), "tune-configs-kind").message
    )


def test_a_constraint_that_returns_an_array():
    space = weft.tune.Space({"BLOCK": [1, 2]}, where=lambda BLOCK: np.arange(3) < BLOCK)
    error = caught(lambda: weft.autotune(space)(scale), "tune-option-kind")
    assert error.message.startswith(
        "what the constraint returns of weft.tune.Space is array([ True, False, False]), not"
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Config({}, num_stages=3), "weft.Config has no option num_stages: pipelining is written in the kernel"),
        (lambda: Config({}, num_warp=3), "weft.Config has no option num_warp; did you mean num_warps?"),
        (lambda: weft.autotune({"BLOCK": [1]}, prune_by=3), "weft.autotune has no option prune_by; did you mean prune?"),
        (weft.simulate(seeds=3).__enter__, "weft.simulate has no option seeds; did you mean seed?"),
    ],
)  # fmt: skip
def test_keywords_that_are_no_options(make, said):
    with pytest.raises(LaunchError) as info:
        make()
    assert info.value.code == "launch-no-option"
    assert info.value.message.startswith(said)
    assert "others" not in info.value.fix


def test_a_decorator_without_configs():
    error = caught(lambda: weft.autotune(scale), "tune-configs-kind")
    assert "<kernel tests.tune.kernels.scale>" in error.message
    assert "@weft.autotune([" in error.fix


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("prune", 3, "not a function"), ("model", [], "not a function"), ("check", "x", "not a function"),
        ("bench", 1.0, "not a function"), ("top_k", 0, "not a number of configs"), ("top_k", "2", "not a number"),
    ],
)  # fmt: skip
def test_options_of_another_kind(option, value, words):
    error = caught(lambda: weft.autotune({"BLOCK": [1]}, **{option: value})(scale), "tune-option-kind")
    assert f"{option} of scale is {value!r}, {words}" in error.message


@pytest.mark.parametrize("key", [3, [3]])
def test_a_key_that_is_no_name(key):
    assert "is 3, not the name" in caught(lambda: weft.autotune({"BLOCK": [1]}, key)(scale), "tune-option-kind").message


def test_one_name_needs_no_list():
    def run(matrix, *, BLOCK):
        return BLOCK

    assert weft.autotune({"BLOCK": [64]}, key="matrix", restore="matrix", reset=None)(run)(X) == 64


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prune": lambda configs, arguments: None}, "what prune= returns of scale is None, not a list of configs"),
        ({"model": lambda config, arguments: "fast"}, "what model= returns of scale is 'fast', not a number"),
    ],
)
def test_functions_that_return_something_else(options, words):
    tuned = weft.autotune({"BLOCK": [64]}, **options)(scale)
    assert words in caught(lambda: tuned[1](X, X.copy(), len(X)), "tune-option-kind").message


@pytest.mark.parametrize("subject", [scale, function])
def test_a_config_that_sets_no_parameter(subject):
    error = caught(lambda: weft.autotune([Config({"BLOK": 64})])(subject), "tune-unknown-parameter")
    assert "the config (BLOK=64) sets BLOK" in error.message
    assert "did you mean BLOCK?" in error.message


def test_a_config_that_sets_a_run_time_argument_of_a_kernel():
    caught(lambda: weft.autotune([Config({"n": 64})])(scale), "tune-unknown-parameter")


def test_an_option_that_a_function_has_no_parameter_for():
    error = caught(lambda: weft.autotune([Config({"BLOCK": 1}, num_warps=4)])(function), "tune-unknown-parameter")
    assert "parameter for each launch option" in error.fix


@pytest.mark.parametrize("option", ["key", "restore", "reset"])
def test_names_that_are_no_parameters(option):
    error = caught(lambda: weft.autotune({"BLOCK": [1]}, **{option: ["xx"]})(scale), "tune-unknown-name")
    assert f"{option} of scale names xx, which is not a parameter of scale" in error.message


@pytest.mark.parametrize("option", ["key", "restore", "reset"])
def test_names_that_configs_set(option):
    caught(lambda: weft.autotune({"BLOCK": [1]}, **{option: ["BLOCK"]})(function), "tune-tuned-name")


def test_a_call_that_gives_what_a_config_sets():
    tuned = weft.autotune({"BLOCK": [1]})(function)
    assert tuned(X) == 1
    error = caught(lambda: tuned(X, BLOCK=2), "tune-argument-twice")
    assert "gives BLOCK" in error.message
    assert tuned.fn(X, BLOCK=2) == 2
    caught(lambda: weft.autotune({"BLOCK": [1]})(scale)[1](X, X, 8, 64), "tune-argument-twice")
    caught(lambda: weft.autotune([Config(num_warps=4)])(scale).warmup(X, X, 8, 64, num_warps=8), "tune-argument-twice")


def test_a_function_with_a_grid():
    caught(lambda: weft.autotune({"BLOCK": [1]})(function)[1](X), "tune-no-grid")


def test_tuning_a_kernel_without_a_grid():
    caught(lambda: weft.autotune({"BLOCK": [1]})(scale).tune(X, X, 8), "tune-grid-missing")


def test_a_key_that_says_nothing():
    with Path(__file__).open(encoding="utf-8") as file:
        error = caught(lambda: weft.autotune({"BLOCK": [1]}, key=["n"])(function)(X, file), "tune-key-value")
    assert "the key n of function is <_io.TextIOWrapper" in error.message


def test_a_kernel_called_like_a_function():
    with pytest.raises(LaunchError) as info:
        weft.autotune({"BLOCK": [1]})(scale)(X, X, 8)
    assert info.value.code == "launch-host-call"


def test_missing_arguments_are_those_of_the_call():
    with pytest.raises(LaunchError, match="without y, n"):
        weft.autotune({"BLOCK": [1]})(scale)[1](X)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        weft.autotune({"BLOCK": [1]})(function)()
