"""Measured choices: `tune_matmul` with a fake GPU and a fake clock, the store, and files of shapes."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runtime import fake_driver
from tests.runtime.fake_driver import FakeTensor, float16
from weft import settings, tune
from weft.cli import main
from weft.errors import DeviceError
from weft.errors.tune import TuningError
from weft.kernels import MatmulConfig, chosen_config, heuristic, matmul, measured, multiply, tune_matmul
from weft.kernels.shapes import Shape, read_shapes

M, N, K = 256, 512, 1024


@pytest.fixture(autouse=True)
def store(tmp_path):
    with settings.using(cache_dir=tmp_path / "cache", tune_progress=False):
        forget()
        yield
    forget()


def forget():
    """What a process knows of the store."""
    measured._stored.cache_clear()
    multiply.forget()


class Operand(FakeTensor):
    """A fake tensor [M, N] of float16."""

    is_cuda = True

    def __init__(self, pointer, shape):
        super().__init__(pointer, float16, 0, shape)


@pytest.fixture
def machine(monkeypatch):
    """A fake GPU and compiler; returns the matrices and a clock by which tiles of 64 columns with fewest stages win."""
    fake_driver.install_compiler(monkeypatch)
    fake_driver.install_driver(monkeypatch)
    monkeypatch.setattr("weft.tune.search._compile", lambda call, trials, shown: None)
    monkeypatch.setattr("weft.tune.measure.lost", lambda ordinal: "")
    operands = Operand(0x1000000, (M, K)), Operand(0x2000000, (K, N)), Operand(0x3000000, (M, N))

    def bench(run, prepare):
        prepare()
        run()
        config = next(iter(multiply._known.values())).product.config if len(multiply._known) == 1 else None
        multiply._known.clear()
        assert config is not None
        return config.stages + (0.0 if config.block_n == 64 else 50.0)

    yield operands, bench
    fake_driver.forget_devices()


def tuned(machine):
    operands, bench = machine
    multiply._known.clear()
    return tune_matmul(*operands, bench=bench, candidates=40)


def test_the_fastest_replaces_the_built_in_choice(machine):
    operands = machine[0]
    before = chosen_config(*operands)
    results = tuned(machine)
    after = chosen_config(*operands)
    assert results.best is not None and after == MatmulConfig(**results.best.config.kwargs)
    assert after.block_n == 64 and after != before
    assert chosen_config(*operands, explain=True).source == "measured"
    assert "measured on this GPU" in str(chosen_config(*operands, explain=True))
    matmul(*operands)
    ready = next(iter(multiply._known.values()))
    assert ready.product is not None and ready.product.config == after


def test_other_problems_keep_theirs(machine):
    tuned(machine)
    other = Operand(0x1000000, (M, K // 2)), Operand(0x2000000, (K // 2, N)), Operand(0x3000000, (M, N))
    assert chosen_config(*other, explain=True).source != "measured"
    unaligned = Operand(0x1000002, (M, K)), *machine[0][1:]
    assert chosen_config(*unaligned, explain=True).source != "measured"


def test_a_later_process_finds_it_and_so_does_the_simulator(machine):
    tuned(machine)
    found = chosen_config(*machine[0])
    forget()
    assert chosen_config(*machine[0]) == found
    choice = tune.choices(measured.NAME)[0]
    assert (choice.point.device, choice.point.arch, choice.ms) == ("Fake H200", 90, float(found.stages))
    problem = heuristic.replace(multiply.problem(*machine[0]), device=-1)
    assert heuristic.choose(problem) == found
    assert heuristic.choose(heuristic.replace(problem, finish=20.0)) == found, "with an epilogue, too"
    assert measured.find(heuristic.replace(problem, batch=2)) is None
    with settings.using(target="sm_100a"):
        assert measured.find(problem) is None, "it was measured on another architecture"


def test_another_gpu_and_other_kernels_have_no_choice(machine, monkeypatch):
    tuned(machine)
    problem = multiply.problem(*machine[0])
    assert measured.find(problem) is not None
    with monkeypatch.context() as patch:
        patch.setattr(fake_driver.FakeCuda, "cuDeviceGetName", lambda self, size, handle: (0, b"Fake H100\0"))
        fake_driver.forget_devices()
        patch.setattr("weft.runtime.driver.bindings", lambda: fake_driver.FakeCuda())
        assert measured.find(problem) is None
    fake_driver.forget_devices()
    measured._stored.cache_clear()
    monkeypatch.setattr(measured, "kernels", lambda: "ab" * 32)
    assert measured.find(problem) is None


def test_clear_forgets(machine):
    tuned(machine)
    assert tune.clear_choices(measured.NAME) == 1
    forget()
    assert measured.find(multiply.problem(*machine[0])) is None


def test_a_choice_that_cannot_run_is_ignored_with_a_warning(machine):
    problem = multiply.problem(*machine[0])
    measured.keep(problem, MatmulConfig(variant="tcgen05", block_n=128, block_k=64, stages=4), 1.0)
    with pytest.warns(RuntimeWarning, match="ignores a stored choice for matmul"):
        assert measured.find(problem) is None
    assert chosen_config(*machine[0]) == heuristic.built_in(problem)[1]


def test_nothing_is_read_before_something_is_stored(monkeypatch):
    monkeypatch.setattr(measured, "kernels", lambda: pytest.fail("the kernels' text was read"))
    assert measured.find(heuristic.Problem(64, 64, 64, "float16", 2, 2, True, 132)) is None


def test_host_arrays_are_refused():
    a, b = np.ones((16, 32), np.float16), np.ones((32, 8), np.float16)
    with pytest.raises(DeviceError, match="the arrays are on the host") as caught:
        tune_matmul(a, b)
    assert caught.value.code == "device-no-benchmark"


# Files


def test_tables(tmp_path):
    file = tmp_path / "shapes.csv"
    file.write_text("m, n, k, dtype, layout, lda\n4096,4096,8192,bfloat16,NT,\n\n64,128,256,,TN,72\n")
    assert read_shapes(file) == [
        Shape(4096, 4096, 8192, "bfloat16", layout="NT"),
        Shape(64, 128, 256, layout="TN", lda=72),
    ]


def test_json_lines(tmp_path):
    file = tmp_path / "shapes.jsonl"
    rows = [{"m": 16, "n": 32, "k": 64}, {"m": 1, "n": 2, "k": 3, "dtype": "float8_e4m3fn", "out_dtype": "float32"}]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert read_shapes(file) == [Shape(**row) for row in rows]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "the file ends without a shape"),
        ("m,n,k\n", 1, "the file ends without a shape"),
        ("m,n,dtype\n1,2,float16\n", 1, "it has no k"),
        ("m,n,k,type\n", 1, "it has 'type' where names should be among m, n, k, dtype"),
        ("m,n,k,k\n", 1, "it has a name twice"),
        ("m,n,k\n1,2,3\n4,5\n", 3, "it has 2 cells under 3 columns"),
        ("m,n,k\n\n1,-2,3\n", 3, "its n is '-2', not a whole number from 1"),
        ("m,n,k\n1,2,\n", 2, "it has no k"),
        ("m,n,k,dtype\n1,2,3,float17\n", 2, "its dtype is 'float17', not one of float16"),
        ("m,n,k,out_dtype\n1,2,3,int8\n", 2, "its out_dtype is 'int8', and that of float16 is one of"),
        ("m,n,k,layout\n1,2,3,NC\n", 2, "its layout is 'NC', not one of NN, NT, TN, TT"),
        ("m,n,k,lda\n1,2,30,20\n", 2, "its lda is 20, less than the 30 elements that it separates"),
    ],
)
def test_mistakes_in_tables_name_the_line(tmp_path, text, line, reason):
    file = tmp_path / "shapes.csv"
    file.write_text(text)
    with pytest.raises(TuningError) as caught:
        read_shapes(file)
    assert caught.value.code == "tune-shapes-line"
    assert caught.value.message.startswith(f"{file}:{line}: {reason}")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{"m": 1, "n": 2, "k": 3}\n{"m": 1,\n', 2, "it is no JSON"),
        ("\n[1, 2, 3]\n", 2, "it is no JSON object"),
        ('{"m": 1.5, "n": 2, "k": 3}', 1, "its m is '1.5', not a whole number"),
        ('{"m": true, "n": 2, "k": 3}', 1, "its m is 'True', not a whole number"),
        ('{"m": 1, "n": 2, "k": 3, "K": 3}', 1, "it has 'K' where names should be"),
    ],
)
def test_mistakes_in_json_lines_name_the_line(tmp_path, text, line, reason):
    file = tmp_path / "shapes.jsonl"
    file.write_text(text)
    with pytest.raises(TuningError, match="tune-shapes-line") as caught:
        read_shapes(file)
    assert caught.value.message.startswith(f"{file}:{line}: {reason}")


# The command


def test_the_command_without_a_gpu(tmp_path, monkeypatch, capsys):
    file = tmp_path / "shapes.csv"
    file.write_text("m,n,k\n64,64,64\n")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    assert main(["tune", "matmul", "--shapes", str(file)]) == 1
    assert "needs PyTorch with a CUDA device" in capsys.readouterr().err
    file.write_text("m,n,k\n64,0,64\n")
    assert main(["tune", "matmul", "--shapes", str(file)]) == 1
    assert f"{file}:2: its n is '0'" in capsys.readouterr().err


def test_the_command_tunes_each_shape(machine, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("weft.testing.torch_with_cuda", lambda: None)
    monkeypatch.setattr("weft.tune.measure.gpu_bench", lambda warmup, rep: machine[1])
    monkeypatch.setattr("weft.kernels.tuning.operands", lambda torch, shape: machine[0][:2])
    monkeypatch.setattr("weft.kernels.tuning.empty_like", lambda a, shape, dtype: machine[0][2])
    file = tmp_path / "shapes.csv"
    file.write_text(f"m,n,k\n{M},{N},{K}\n")
    assert main(["tune", "matmul", "--shapes", str(file), "--candidates", "40"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{M}x{N}x{K} float16 NN: ")
    assert "times as fast as the built-in choice" in text
    assert len(tune.choices(measured.NAME)) == 1
    assert main(["tune", "list"]) == 0
    assert f"m={M}, n={N}, k={K}" in capsys.readouterr().out
