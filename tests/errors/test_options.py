"""What a user writes for an option: taken as what it says, or refused in words, wherever options are given."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import weft
from tests.errors.users import LINE, shown, zeros
from weft import language as gl
from weft.errors import LaunchError
from weft.errors.tune import TuningError
from weft.plain import one_of, real, several, truth, whole
from weft.tune import Space

PAIR = np.array([4, 8])
FALSE: Any = np.False_


class Four(IntEnum):
    WARPS = 4


@weft.jit
def fill(out, n):
    gl.store(out + gl.arange(0, 128, LINE), 1.0)


@weft.jit
def tuned(x, y, n, BLOCK: gl.constexpr = 64):
    gl.store(y, 1.0)


def launch(**options):
    return fill[1](zeros(128), 4, **options)


def prepared(**options):
    return fill._prepared(("*fp32", "i32"), options)


def test_what_is_an_integer_a_number_a_truth_value():
    assert [whole(v) for v in (4, np.int8(4), np.array(4), Four.WARPS, True, np.True_, 4.0, "4", PAIR, int, None)] == [
        4, 4, 4, 4, *[None] * 7
    ]  # fmt: skip
    assert [real(v) for v in (4, 1.5, np.float32(1.5), float("inf"), 1j, "1", True)] == [4, 1.5, 1.5, *[None] * 4]
    assert [truth(v) for v in (True, np.False_, 0, 1.0, None, PAIR)] == [True, False, *[None] * 4]
    assert [one_of(v, "a", None) for v in ("a", None, "b", 3, np.array(["a", "b"]))] == [True, True, *[False] * 3]
    assert [several(v) for v in (None, "ab", 3, ["a"], ("a", 3))] == [(), ("ab",), (3,), ("a",), ("a", 3)]


# Launches


@pytest.mark.parametrize("call", [launch, prepared])
@pytest.mark.parametrize("option", ["num_warps", "num_ctas", "maxnreg"])
@pytest.mark.parametrize("value", [True, False, 4.0, 32.0, np.float32(4), "4", [4], PAIR, np.True_, 4 + 0j, {}])
def test_options_that_are_no_integers(call, option, value):
    text = shown(lambda: call(**{option: value}), "launch-option-value", kind=LaunchError)
    assert text.startswith(f"{option}={value!r} of fill is not a ")


@pytest.mark.parametrize("value", [4, np.int64(4), np.uint8(4), Four.WARPS, np.array(4)])
def test_integers_of_any_kind(value):
    assert type(launch(num_warps=value).request.options.num_warps) is int
    assert launch(num_warps=value) is not None
    assert prepared(num_warps=value) is prepared(num_warps=4)
    assert prepared(maxnreg=np.int32(64)) is prepared(maxnreg=64)


@pytest.mark.parametrize("call", [launch, prepared])
@pytest.mark.parametrize(
    "option", ["debug", "sanitize_overflow", "launch_pdl", "launch_cooperative_grid", "enable_fp_fusion"]
)
@pytest.mark.parametrize("value", ["a", 1, 0, 1.0, [], PAIR])
def test_options_that_are_no_truth_values(call, option, value):
    assert "not True or False" in shown(lambda: call(**{option: value}), "launch-option-value", kind=LaunchError)


def test_truth_values_of_numpy():
    assert prepared(debug=np.True_) is prepared(debug=True)
    assert prepared(sanitize_overflow=FALSE) is prepared()


@pytest.mark.parametrize("block", [True, (True,), 128.0, "a", [128], (), (1, 1, 1, 1), (128, None), PAIR, (2000,)])
@pytest.mark.parametrize("call", [launch, prepared])
def test_what_is_no_block(call, block):
    shown(lambda: call(block=block), "launch-option-value", kind=LaunchError)


@pytest.mark.parametrize("warps", [True, 4.0, PAIR])
def test_num_warps_beside_a_block(warps):
    shown(lambda: launch(block=128, num_warps=warps), "launch-option-value", kind=LaunchError)


@pytest.mark.parametrize("stream", ["a", 0.5, True, [1], PAIR])
@pytest.mark.parametrize("call", [launch, prepared])
def test_what_is_no_stream(call, stream):
    shown(lambda: call(stream=stream), "launch-stream", kind=LaunchError)


@pytest.mark.parametrize("sizes", [1.0, True, (1.0,), (True, 1), "1", PAIR, [[1]], np.True_])
def test_a_grid_that_is_no_integer_after_one_that_is(sizes):
    fill[lambda meta: 1](zeros(128), 4)
    fill[lambda meta: (1, 1)](zeros(128), 4)
    text = shown(lambda: fill[lambda meta: sizes](zeros(128), 4), "launch-grid-kind", kind=LaunchError)
    assert f"got {sizes!r}" in text


@pytest.mark.parametrize("sizes", ["a", 4.0, True, PAIR, (1, 2, 3, 4)])
def test_a_grid_of_warmup(sizes):
    shown(lambda: fill.warmup("*fp32", "i32", grid=sizes), "launch-grid-kind", kind=LaunchError)


def test_a_block_beside_the_grid_of_warmup():
    twice = lambda: fill.warmup("*fp32", "i32", grid=((1,), (64,)), block=64)  # noqa: E731
    shown(twice, "launch-block-twice", kind=LaunchError)


# Decorators


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"debug": "a"}, "debug='a' of kernel is not True or False"),
        ({"debug": 1}, "debug=1 of kernel"),
        ({"debug": PAIR}, "debug=array([4, 8])"),
        ({"sync": 3}, "sync=3 of kernel"),
        ({"sync": PAIR}, "sync=array([4, 8]) of kernel"),
        ({"do_not_specialize": "xyz"}, "do_not_specialize='xyz' of kernel is not a parameter"),
        ({"do_not_specialize": 3}, "do_not_specialize=3 of kernel"),
        ({"do_not_specialize": [1.0]}, "do_not_specialize=1.0 of kernel"),
        ({"do_not_specialize": [True]}, "do_not_specialize=True of kernel"),
        ({"do_not_specialize": [PAIR]}, "do_not_specialize=array([4, 8]) of kernel"),
        ({"do_not_specialize": [None]}, "do_not_specialize=None of kernel"),
    ],
)
def test_options_of_jit(options, text):
    def kernel(out, count):
        gl.store(out, count)

    assert text in shown(lambda: weft.jit(**options)(kernel)[1](zeros(), 4), "launch-option-value", kind=LaunchError)


@pytest.mark.parametrize("plain", ["count", 1, np.int64(1), ["count"], ("count",), {"count"}])
def test_one_parameter_that_is_not_specialised_needs_no_list(plain):
    def kernel(out, count):
        gl.store(out, count)

    assert [p.specialise for p in weft.jit(do_not_specialize=plain)(kernel).params] == [True, False]


@pytest.mark.parametrize("option", ["num_warps", "num_ctas", "maxnreg"])
@pytest.mark.parametrize("value", [True, 4.0, 128.0, "4", [4], PAIR])
@pytest.mark.parametrize("config", [lambda o, v: weft.Config({}, **{o: v}), lambda o, v: weft.Config({o: v})])
def test_options_of_a_config(option, value, config):
    text = shown(lambda: config(option, value), "launch-option-value", kind=LaunchError)
    assert f"{option}={value!r} of weft.Config" in text


def test_a_config_has_integers_of_python():
    assert str(weft.Config(num_warps=np.int64(4), maxnreg=np.int32(64))) == "num_warps=4, maxnreg=64"  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["abc", [1, 2], 3, {1: 2}, [("BLOCK", 64)]])
@pytest.mark.parametrize("made", [weft.Config, Space])
def test_what_names_no_parameters(made, given):
    assert "not a dictionary of values" in shown(lambda: made(given), "tune-option-kind", kind=TuningError)


@pytest.mark.parametrize(
    "made",
    [
        lambda: weft.Config({}, pre_hook=3),  # type: ignore[arg-type]
        lambda: Space({}, where=3),  # type: ignore[arg-type]
        lambda: Space({}, pre_hook=3),  # type: ignore[arg-type]
    ],
)
def test_hooks_that_are_no_functions(made):
    assert "is 3, not a function" in shown(made, "tune-option-kind", kind=TuningError)


@pytest.mark.parametrize("values", [PAIR, (value for value in (64, 128)), iter([64])])
def test_values_that_are_no_list(values):
    shown(lambda: weft.autotune({"BLOCK": values})(tuned), "tune-option-kind", kind=TuningError)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("top_k", [True, 0, 2.0, "2", PAIR]),
        ("rounds", [True, 0, 1.5, "3", None]),
        ("warmup", ["a", -1, None, True, float("nan"), PAIR]),
        ("rep", ["a", -1, None, True, float("nan")]),
        ("within", ["a", 0.5, None, True, float("nan")]),
        ("spills", ["x", 1, None]),
        ("progress", ["x", 1, PAIR]),
        ("restore", [3, [3], [None]]),
        ("reset", [3, [3], [None]]),
        ("key", [3, [None]]),
    ],
)
def test_options_of_autotune(option, values):
    for value in values:
        made = lambda: weft.autotune({"BLOCK": [64]}, **{option: value})(tuned)  # noqa: E731, B023
        assert f"{option} of tuned is" in shown(made, "tune-option-kind", kind=TuningError)


def test_numbers_of_numpy_in_autotune():
    options: Any = {"top_k": np.int64(2), "rounds": np.int8(3), "rep": np.float32(3), "spills": np.True_, "key": {"n"}}
    assert weft.autotune({"BLOCK": [64]}, **options)(tuned).configs == (weft.Config({"BLOCK": 64}),)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("seed", ["a", 1.0, True, PAIR]),
        ("progress", ["x", 1, PAIR]),
        ("max_resident", [True, 1.0, 0, "a", PAIR]),
        ("schedule", ["x", 3, ["late"], PAIR]),
        ("uninitialized", [None, 3, PAIR]),
        ("hazards", [1, "x", PAIR]),
        ("bounds", [3, None, PAIR]),
        ("order", [3, [1], PAIR]),
        ("keep_going", ["x", 1, None, PAIR]),
        ("programs", [3, [1.0], [True], [(0, 0, 0, 0)], [None], "ab", [PAIR]]),
    ],
)
def test_options_of_simulate(option, values):
    for value in values:
        with pytest.raises(LaunchError) as caught, weft.simulate(**{option: value}):
            pass
        assert caught.value.code == "launch-option-value"
        assert f"{option}=" in caught.value.message


def test_numpy_in_simulate():
    with weft.simulate(seed=np.int64(7), hazards=FALSE, max_resident=np.int8(2), programs=np.array([0])):  # type: ignore[arg-type]
        launch()


def test_a_hint_of_gluon_about_inlining_changes_nothing():
    @weft.jit(noinline=True)
    def one_more(x):
        return x + 1.0

    @weft.jit(noinline=False)
    def kernel(out):
        gl.store(out + gl.arange(0, 128, LINE), one_more(1.0))

    out = zeros(128)
    kernel[1](out)
    assert (out == 2.0).all()
