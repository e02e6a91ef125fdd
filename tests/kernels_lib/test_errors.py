"""What `matmul` says about arrays and configurations that it cannot take."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import settings
from weft.errors import CompilationError, LaunchError
from weft.kernels import MatmulConfig, chosen_config, compile_matmul, matmul, matmul_configs, rms_factors

A, B = np.ones((24, 40), np.float16), np.ones((40, 16), np.float16)


class Elsewhere:
    """An array of no framework that `matmul` could make another one of; on a GPU if told so."""

    def __init__(self, values, device=None):
        self.values, self.dtype, self.shape = values, values.dtype, values.shape
        if device is not None:
            self.device = SimpleNamespace(id=device)
            interface = dict(values.__array_interface__)
            self.__cuda_array_interface__ = {**interface, "version": 3}
        else:
            self.__dlpack__, self.__dlpack_device__ = values.__dlpack__, values.__dlpack_device__


def refused(code, call, *words):
    with pytest.raises(LaunchError) as caught:
        call()
    assert caught.value.code == code
    assert caught.value.fix
    text = str(caught.value)
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (3.0, ("a is a float",)), ([[1.0]], ("a is a list",)), (np.ones(40, np.float16), ("shape [40]",)),
        (np.zeros((24, 40), [("x", "f2"), ("y", "i1")])["x"], ("strides",)),
    ],
)  # fmt: skip
def test_no_matrix(a, words):
    refused("kernels-array", lambda: matmul(a, B), *words)


@pytest.mark.parametrize(("a", "b"), [(A[:, :0], B[:0]), (A[:0], B), (A, B[:, :0])])
@pytest.mark.parametrize("call", [compile_matmul, chosen_config, matmul_configs])
def test_nothing_to_compile(call, a, b):
    refused("kernels-empty", lambda: call(a, b), str([len(a), b.shape[1]]), "K is 0")


@pytest.mark.parametrize("dtype", ["floaty", float, 7])
def test_an_output_type_that_is_none(dtype):
    refused("kernels-out-dtype", lambda: matmul(A, B, out_dtype=dtype), repr(dtype), "float16, bfloat16, float32")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("block_m", 128.0, "an int"), ("block_n", "64", "an int"), ("stages", None, "an int"), ("consumers", [2], "an int"),
        ("buffers", True, "an int"), ("group", 1 << 33, "an int up to 2147483647"), ("programs", 1 << 33, "an int"),
        ("swap", "yes", "True or False"), ("pack", 1, "True or False"),
    ],
)  # fmt: skip
def test_fields_of_another_kind(field, value, words):
    refused("kernels-config", lambda: matmul(A, B, config={"block_n": 64, field: value}), field, repr(value), words)
    # What compares equal to a good value must not be taken for it afterwards, either.
    matmul(A, B, config={"block_n": 64})


def test_shapes_that_do_not_agree():
    refused("kernels-shapes", lambda: matmul(A, B.T), "[24, 40]", "[16, 40]", "40 elements", "16", "b.T")


@pytest.mark.parametrize(
    ("a", "b", "convert"),
    [
        ("float16", "float32", "convert b to float16"), ("float64", "bfloat16", "convert a to bfloat16"),
        ("float64", "float64", "convert both to float32"), ("int8", "float8_e4m3fn", "convert a to float8_e4m3fn"),
    ],
)  # fmt: skip
def test_types_that_are_not_multiplied(a, b, convert):
    kinds = [getattr(ml_dtypes, name, None) or getattr(np, name) for name in (a, b)]
    refused("kernels-dtypes", lambda: matmul(A.astype(kinds[0]), B.astype(kinds[1])), a, b, "fp8", convert)


@pytest.mark.parametrize("name", ["b", "out", "scale_a"])
def test_devices_that_differ(name):
    given = {"b": B, "out": np.ones((24, 16), np.float16), "scale_a": np.ones(24, np.float32)}
    given[name] = Elsewhere(given[name], device=1)
    if name != "scale_a":
        given["scale_a"] = None
    refused("kernels-devices", lambda: matmul(A, **given), "the host", "GPU 1", name)


def test_an_output_of_another_shape():
    refused("kernels-out-shape", lambda: matmul(A, B, np.ones((16, 24), np.float16)), "[16, 24]", "[24, 16]")


def test_an_output_of_another_type():
    refused("kernels-out-dtype", lambda: matmul(A, B, np.ones((24, 16), np.int32)), "int32", "bfloat16")
    refused("kernels-out-dtype", lambda: matmul(A, B, out_dtype="float64"), "float64")


def test_two_types_for_the_output():
    out = np.ones((24, 16), np.float16)
    refused("kernels-out-dtype-differs", lambda: matmul(A, B, out, out_dtype="float32"), "float16", "float32")


def test_an_output_that_must_be_given():
    refused("kernels-out-needed", lambda: matmul(Elsewhere(A), Elsewhere(B)), "Elsewhere", "out=", "[24, 16]")


def test_an_output_that_overlaps(torch):
    memory = np.ones(40 * 40, np.float16)
    a, b = memory[: 24 * 40].reshape(24, 40), np.ones((40, 40), np.float16)
    refused("kernels-out-overlaps", lambda: matmul(a, b, memory[-960:].reshape(24, 40)), "with a")
    refused("kernels-out-overlaps", lambda: matmul(b[:, :24].T, a.T, a[:24, :24]), "with b")
    assert matmul(a[:4], b, memory[-160:].reshape(4, 40))[0, 0] == 40
    tensors = torch.ones(24, 40, dtype=torch.float16), torch.ones(40, 40, dtype=torch.float16)
    matmul(*tensors, torch.ones(24, 40, dtype=torch.float16))
    refused("kernels-out-overlaps", lambda: matmul(*tensors, tensors[0]), "with a")


def test_an_output_whose_elements_share_memory():
    for out in (np.broadcast_to(np.ones(16, np.float16), (24, 16)),
                np.lib.stride_tricks.as_strided(np.ones(100, np.float16), (24, 16), (4, 2))):  # fmt: skip
        refused("kernels-out-repeats", lambda out=out: matmul(A, B, out), "[24, 16]", "strides")


@pytest.mark.parametrize(
    "scale",
    [np.ones(16, np.float32), np.ones(24), np.ones(48, np.float32)[::2], "x", np.ones((24, 16), np.float32)],
)
def test_scales_of_another_shape(scale):
    refused("kernels-scale", lambda: matmul(A, B, scale_a=scale), "scale_a", "24 rows", "float32")


def test_scales_of_columns():
    refused("kernels-scale", lambda: matmul(A, B, scale_b=np.ones(24, np.float32)), "scale_b", "16 columns")


def test_an_unknown_variant():
    refused("kernels-variant", lambda: matmul(A, B, variant="fastest"), "'fastest'", "ping_pong")


@pytest.mark.parametrize("variant", ["pipelined", "persistent", "persistent_pipelined"])
def test_a_variant_that_cannot_take_the_path(variant):
    odd = np.ones((24, 41), np.float16)[:, :40]
    refused(
        "kernels-variant-path", lambda: matmul(odd, B, variant=variant), variant, "a has no", "82 bytes", "cooperative"
    )
    fp8 = [np.ones(shape, ml_dtypes.float8_e4m3fn) for shape in ((24, 48), (48, 16))]
    refused("kernels-variant-path", lambda: matmul(*fp8, variant=variant), "b has no", "contiguous along K")
    refused("kernels-variant-path", lambda: matmul(A[:, ::2], B[::2], variant=variant), "any dimension")
    moved = np.ones(24 * 40 + 1, np.float16)[1:].reshape(24, 40)
    refused("kernels-variant-path", lambda: matmul(moved, B, variant=variant), "starts")


def test_a_cluster_that_cannot_take_the_path():
    odd, config = np.ones((24, 41), np.float16)[:, :40], MatmulConfig(cluster=2)
    refused("kernels-variant-path", lambda: matmul(odd, B, config=config), "cluster=2", "a has no", "82 bytes")
    matmul(odd, B, config=MatmulConfig(cluster=2, pack=True))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("block_m", 100, ("128, 256 or 512",)), ("block_m", 64, ("128",)), ("block_n", 50, ("power of two",)),
        ("block_k", 8, ("from 16",)), ("stages", 1, ("at least 2",)), ("stages", 9, ("shared memory",)),
        ("order", "hilbert", ("serpentine",)), ("consumers", 4, ("1, 2 or 3",)), ("splits", 0, ("at least 1",)),
        ("buffers", 3, ("1, 2 or 4",)), ("cluster", 3, ("1, or 2 or 4",)),
        ("group", -1, ("at least 0",)), ("programs", -1, ("at least 0",)),
        ("stages", -1, ("at least 2",)), ("block_k", -1, ("from 16",)), ("consumers", 0, ("1, 2 or 3",)),
    ],
)  # fmt: skip
def test_a_configuration_that_does_not_work(field, value, words):
    config = {"variant": "cooperative", field: value}
    refused("kernels-config", lambda: matmul(A, B, config=config), field, str(value), "cooperative", *words)


def test_sums_that_do_not_fit_in_registers():
    config = MatmulConfig(block_m=256, block_n=256, stages=2)
    refused("kernels-config", lambda: matmul(A, B, config=config), "block_n", "144 sums", "not 256")
    tall = MatmulConfig(block_m=192, block_n=208, consumers=3, stages=2)
    refused("kernels-config", lambda: matmul(A, B, config=tall), "block_n", "96 sums", "not 104")


def test_sums_of_fp8_in_float32_do_not_fit_in_registers():
    fp8 = [np.ones(shape, ml_dtypes.float8_e4m3fn) for shape in ((24, 48), (48, 16))]
    config = MatmulConfig(block_m=128, block_n=256)
    call = lambda: matmul(*fp8, config=config, fast_accumulate=False)  # noqa: E731
    refused("kernels-config", call, "block_n", "64 sums", "not 128")


@pytest.mark.parametrize("config", ["cooperative", {"tile": 3}, 128])
def test_no_configuration(config):
    refused("kernels-config-kind", lambda: matmul(A, B, config=config), "MatmulConfig")


def test_a_target_without_wgmma():
    with settings.using(target="sm_80"):
        refused("kernels-target", lambda: matmul(A, B), "sm_80", "Hopper", "Blackwell")


@pytest.mark.parametrize(
    ("target", "variant", "words"),
    [
        ("sm_90a", "tcgen05", ("wgmma", "cooperative", "ping_pong")),
        ("sm_90a", "tcgen05_clc", ("wgmma",)),
        ("sm_100a", "pipelined", ("tcgen05.mma", "tcgen05, tcgen05_clc")),
        ("sm_100a", "cooperative", ("tcgen05.mma",)),
    ],
)
def test_a_variant_of_another_generation(target, variant, words):
    with settings.using(target=target):
        refused("kernels-variant-target", lambda: matmul(A, B, variant=variant), variant, target, *words)
        refused("kernels-variant-target", lambda: matmul(A, B, config=MatmulConfig(variant=variant)), variant)


def test_what_blackwell_cannot_describe():
    odd = np.ones((24, 41), np.float16)[:, :40]
    with settings.using(target="sm_100a"):
        refused("kernels-variant-path", lambda: matmul(odd, B, variant="tcgen05"), "a has no", "82 bytes", "pack=True")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("block_m", 256, "must be 128"), ("block_n", 8, "from 16 to 256"), ("cluster", 4, "1, or 2"),
        ("consumers", 4, "1 or 2"), ("stages", 5, "shared memory"),
        ("block_n", 16, "a multiple of 16 for each CTA of a cluster"),
    ],
)  # fmt: skip
def test_a_configuration_of_blackwell_that_does_not_work(field, value, words):
    config = {"cluster": 2 if "cluster" in words else 1, field: value}
    with settings.using(target="sm_100a"):
        refused("kernels-config", lambda: matmul(A, B, config=config), field, str(value), "tcgen05", words)


def test_a_tile_too_low_for_its_warps_and_of_an_odd_width():
    refused("kernels-config", lambda: matmul(A, B, config={"block_m": 64, "block_n": 112}), "block_m", "64", "128")


def test_configurations_that_are_offered_work():
    for config in matmul_configs(A, B):
        config.check(2, 4)


def test_importing_the_kernels_loads_no_framework():
    text = "import sys, weft.kernels; print({'torch', 'cuda', 'cupy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "set()\n"


# Epilogues


@weft.jit
def kept(x, rows, columns, extras):
    return x


@weft.jit
def only_columns(x, rows, columns, extras):
    return columns


@weft.jit
def misspelt(x, rows, columns, extras):
    return x.maximum


@weft.jit
def three(x, rows, columns):
    return x


@pytest.mark.parametrize("name", ["bias", "residual"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.ones(7, np.float32), ("7 columns of 16", "[24, 16]")), (np.ones((23, 16), np.float16), ("23 rows of 24",)),
        (np.ones((2, 24, 16), np.float16), ("3 dimensions",)), ("x", ("is a str",)),
        (np.zeros((24, 16), [("x", "f2"), ("y", "i1")])["x"], ("no whole elements",)),
    ],
)  # fmt: skip
def test_what_does_not_broadcast(name, value, words):
    refused("kernels-extra", lambda: matmul(A, B, **{name: value}), name, *words)
    extras = {"first": 1.0, "second": value}
    refused("kernels-extra", lambda: matmul(A, B, epilogue=kept, extras=extras), "extras['second']", *words)


def test_a_bias_of_both_halves():
    refused("kernels-extra", lambda: matmul(A, B, bias=np.ones(8, np.float32), gated=True), "8 columns of 16")


@pytest.mark.parametrize("dtype", [np.float64, np.bool_])
def test_types_that_an_epilogue_does_not_take(dtype):
    refused("kernels-extra-dtype", lambda: matmul(A, B, bias=np.ones(16, dtype)), "bias", np.dtype(dtype).name)


@pytest.mark.parametrize(
    ("extras", "words"),
    [(3, "a int"), ({"a b": 1}, "'a b'"), ({"class": 1}, "'class'"), ({"_x": 1}, "'_x'"), (np.ones(3), "a ndarray")],
)
def test_extras_of_another_kind(extras, words):
    refused("kernels-extras", lambda: matmul(A, B, epilogue=kept, extras=extras), words)


def test_extras_without_an_epilogue():
    refused("kernels-extras", lambda: matmul(A, B, extras=(1,)), "no epilogue")


@pytest.mark.parametrize("activation", ["swish", 3, np.tanh])
def test_an_unknown_activation(activation):
    refused("kernels-activation", lambda: matmul(A, B, activation=activation), repr(activation), "'silu'")


@pytest.mark.parametrize(
    ("function", "words"),
    [(lambda x: x, ("<lambda>", "plain Python")), (3, ("a int",)), (three, ("three", "(x, rows, columns)"))],
)
def test_no_epilogue(function, words):
    refused("kernels-epilogue", lambda: matmul(A, B, epilogue=function), *words)


def test_an_epilogue_of_another_shape():
    with pytest.raises(CompilationError) as caught:
        matmul(A, B, epilogue=only_columns)
    assert caught.value.code == "kernels-epilogue-result"
    assert "only_columns returns a tile [1, 16]" in str(caught.value)
    assert caught.value.loc is not None
    assert caught.value.loc.source.strip() == "return columns"


def test_a_mistake_in_an_epilogue_has_its_line():
    with pytest.raises(CompilationError) as caught:
        matmul(A, B, epilogue=misspelt)
    assert caught.value.loc is not None
    assert caught.value.loc.source.strip() == "return x.maximum"


@pytest.mark.parametrize("b", [(B,), (B, B[:, :8]), (B, B.astype(np.float32)), (B, np.asfortranarray(B)), B[:, :15]])
def test_no_halves(b):
    refused("kernels-gated", lambda: matmul(A, b, gated=True), "(gate, up)")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"block_n": 16}, "block_n is 16, from 32"), ({"block_n": 96}, "block_n is 96, from 32"),
        ({"block_n": 32, "cluster": 2}, "block_n is 32, from 64"),
        ({"shares": 2, "block_n": 64, "stages": 2}, "shares is 2, not swapped"),
        ({"swap": True}, "block_m is 128, at least 256"), ({"swap": True, "splits": 2, "block_m": 256}, "splits is 2, 1 for"),
        ({"swap": True, "variant": "ping_pong"}, "variant is ping_pong, cooperative"),
    ],
)  # fmt: skip
def test_configurations_without_halves(config, words):
    refused("kernels-config", lambda: matmul(A, B, gated=True, config=config), "gated product", *words.split(", "))


def test_pairs_of_blackwell_have_no_halves():
    with settings.using(target="sm_100a"):
        refused("kernels-config", lambda: matmul(A, B, gated=True, config={"cluster": 2}), "cluster", "gated product")


def test_an_output_that_overlaps_what_the_epilogue_reads():
    memory = np.ones(600, np.float16)
    out = memory[:384].reshape(24, 16)
    refused("kernels-out-overlaps", lambda: matmul(A, B, out, residual=memory[8:392].reshape(24, 16)), "with residual")
    refused("kernels-out-overlaps", lambda: matmul(A, B, out, bias=memory[380:396]), "with bias")
    refused("kernels-out-overlaps", lambda: matmul(A, B, out, residual=out.T[:16].T[:, ::-1]), "with residual")
    refused("kernels-out-overlaps", lambda: matmul(A, B, out, residual=out.view(ml_dtypes.bfloat16)), "with residual")
    call = lambda: matmul(A, B, out, epilogue=kept, extras=(out[:, :1],))  # noqa: E731
    refused("kernels-out-overlaps", call, "extras[0]")
    assert matmul(A, B, out, residual=out, epilogue=kept, extras=(memory[384:400],))[0, 0] == 41


@pytest.mark.parametrize("name", ["row_squares", "row_peaks", "out_scales"])
@pytest.mark.parametrize(
    "value", [np.ones((24, 2), np.float32), np.ones((24, 1)), np.broadcast_to(np.ones(1, np.float32), (24, 1))]
)
def test_statistics_of_another_shape(name, value):
    call = lambda: matmul(A, B, out_dtype="float8_e4m3fn", **{name: value})  # noqa: E731
    refused("kernels-written", call, name, "[24, 1]", "128 columns")


def test_statistics_that_overlap():
    memory = np.ones((24, 2), np.float32)
    call = lambda **given: matmul(A, B, **given)  # noqa: E731
    refused("kernels-written-overlaps", lambda: call(row_squares=memory[:, :1], row_peaks=memory[:, 1:]), "row_squares")
    refused(
        "kernels-written-overlaps", lambda: call(row_peaks=memory[:, :1], scale_a=memory[:, 1:2].T[0, :1]), "scale_a"
    )
    a = np.ones((24, 40), np.float16)
    refused("kernels-written-overlaps", lambda: matmul(a, B, row_peaks=a[:, :2].view(np.float32)), "with a")


def test_scales_of_an_output_that_is_not_fp8():
    scales = np.ones((24, 1), np.float32)
    refused("kernels-out-scales", lambda: matmul(A, B, out_scales=scales), "out is float16")
    refused(
        "kernels-out-scales",
        lambda: matmul(A, B, out_dtype="float8_e5m2", out_scales=scales, out_scale=2.0),
        "out_scale",
    )
    refused("kernels-scale", lambda: matmul(A, B, out_scale=np.ones(16, np.float32)), "out_scale")


@pytest.mark.parametrize("config", [{"swap": True, "block_n": 128}, {"block_n": 64}, {"block_n": 192}])
def test_configurations_that_do_not_measure_rows(config):
    call = lambda: matmul(A, B, row_peaks=np.ones((24, 1), np.float32), config=config)  # noqa: E731
    refused("kernels-config", call, next(iter(config)), "128 columns")


def test_squares_of_another_type():
    refused("kernels-squares", lambda: rms_factors(np.ones((4, 2)), 8), "float64")
    refused("kernels-squares", lambda: rms_factors(np.ones((4, 2), np.float32), 0), "0 columns")
