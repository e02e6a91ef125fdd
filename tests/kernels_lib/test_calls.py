"""Calls of row functions are repeated for arrays of the same form, with the same results as calls that are prepared anew."""

from __future__ import annotations

import pytest

import weft
from tests.kernels_lib.rows import Recorder
from tests.runtime import fake_driver
from tests.runtime.fake_driver import FakeTensor, float16, float32
from weft import language as gl
from weft import targets
from weft.errors import LaunchError
from weft.kernels import cumsum, rms_norm, rowwise, scan, softmax, softmax_backward
from weft.kernels.rows import calls, norms


class Tensor(FakeTensor):
    """A CUDA tensor whose copies lie at new addresses."""

    made = 0x7F0000000000

    def new_empty(self, shape, dtype):
        Tensor.made += 1 << 20
        return Tensor(Tensor.made, {"float32": float32, "float16": float16}[dtype], shape=tuple(shape))

    def element_size(self):
        return 4


class Launches(Recorder):
    """Launches with a stream and without."""

    params = ()

    def generation(self):
        return 0

    def repeat(self, keep, programs, *arguments, **options):
        self[programs](*arguments, **options)

    def __getitem__(self, grid):
        return lambda *arguments, stream=None, **options: self.given.append((arguments, options))


@pytest.fixture
def prepared(monkeypatch):
    """The recorders of the kernels, and how often a call was prepared."""
    recorder, counted = Launches(), []
    for module, name in ((rowwise, "softmax_rows"), (rowwise, "softmax_backward_rows"), (norms, "normalise")):
        monkeypatch.setattr(module, name, recorder)
    monkeypatch.setattr(rowwise, "persistent", lambda *_: 7)
    monkeypatch.setattr(calls.memory, "empty_like", lambda like, shape, dtype: like.new_empty(shape, dtype))
    original = calls._prepared
    monkeypatch.setattr(calls, "_prepared", lambda *args: counted.append(1) or original(*args))
    calls._known.clear()
    yield recorder, counted
    calls._known.clear()


def tensor(place, shape=(4, 256), dtype=float32):
    return Tensor(place << 16, dtype, shape=shape)


def test_the_second_call_launches_the_same_on_its_own_arrays(prepared):
    recorder, counted = prepared
    results = [softmax(x) for x in (tensor(1), tensor(2), tensor(3))]
    assert len(counted) == 1 and len({id(y) for y in results}) == 3
    (first, options), (second, again), _ = recorder.given
    assert (first[0].pointer, second[0].pointer) == (1 << 16, 2 << 16)
    assert second[1] is results[1] and first[2:] == second[2:] and options == again


def test_several_results_and_arguments_by_name(prepared):
    recorder, counted = prepared
    for place in (1, 5):
        x, residual, weight = tensor(place), tensor(place + 1), tensor(place + 2, (256,))
        done = rms_norm(x, weight, residual=residual, statistics=True)
        arguments = recorder.given[-1][0]
        assert arguments[:3] == (x, residual, weight) and done.scales is None
        assert (done.out, done.total, done.rstd) == (arguments[4], arguments[5], arguments[8])
    assert len(counted) == 1


@pytest.mark.parametrize(
    "other",
    [tensor(2, (5, 256)), tensor(2, dtype=float16), Tensor((2 << 16) + 4, shape=(4, 256))],
    ids=["shape", "type", "address"],
)
def test_another_form_is_prepared_anew(prepared, other):
    softmax(tensor(1))
    softmax(other)
    assert len(prepared[1]) == 2


def test_numbers_of_different_types_are_different(prepared):
    for eps in (1, 1.0, True):
        rms_norm(tensor(1), eps=eps)
    assert len(prepared[1]) == 3


def test_one_array_for_two_arguments(prepared):
    recorder, _ = prepared
    for grad, y in ((tensor(1), None), (tensor(2), tensor(3))):
        softmax_backward(grad, grad if y is None else y)
    assert [given[0][:2] for given in recorder.given][1][1].pointer == 3 << 16


def test_overlap_is_looked_at_in_each_call(prepared):
    for out in (tensor(1), tensor(9), tensor(1), tensor(8)):
        softmax(tensor(1), out)
    with pytest.raises(LaunchError, match="overlaps"):
        softmax(tensor(1), Tensor((1 << 16) + 64, shape=(4, 256)))


def test_zeros_that_launches_leave_are_found_for_each_call(prepared, monkeypatch):
    """Another stream has other zeros: what is repeated is how they are found."""
    recorder, counted = prepared
    monkeypatch.setattr(scan.device, "scan", recorder)
    monkeypatch.setattr(scan, "target_of", lambda _: targets.get("sm_90a"))
    monkeypatch.setattr(scan, "multiprocessors_of", lambda *_: 132)
    zeros = [tensor(7), tensor(8)]
    monkeypatch.setattr(calls.memory, "zeros_kept", lambda *_: zeros.pop())
    cumsum(tensor(1))
    cumsum(tensor(2))
    assert len(counted) == 1 and not zeros
    (first, options), (second, again) = recorder.given
    assert [x.pointer >> 16 for x in (*first[1:3], *second[1:3])] == [1, 8, 2, 7]
    assert first[3:] == second[3:] and options == again


@weft.jit
def scaled(FACTOR: gl.constexpr, pair, x, y, n, out):
    gl.store(out, gl.load(x) + gl.load(y) + pair[0] + pair[1] + n)


@calls.prepared("out")
def add(x, y, out, n):
    made = calls.empty_like(x, x.shape, "float32")
    calls.launched(scaled, 3, (2, (5, (7, 11)), x, made, n, out), {}, None)
    calls.launched(scaled, 3, (2, (5, (7, 11)), made, y, n, out), {}, None)
    return made


def test_repeated_launches_have_their_own_addresses(monkeypatch):
    """From the third launch on only addresses are given, by their numbers among the kernel's values; of tensors of another
    alignment, and of lazily negated ones, all arguments are looked at again."""
    fake_driver.install_compiler(monkeypatch)
    cuda = fake_driver.install_driver(monkeypatch)
    cuda.parameters = 7
    monkeypatch.setattr(calls.memory, "empty_like", lambda like, shape, dtype: like.new_empty(shape, dtype))
    calls._known.clear()
    wanted = []
    for place in range(1, 6):
        x, y, out = (tensor(3 * place + i) for i in range(3))
        made = add(x, y, out, 40)
        wanted += [(5, 7, 11, each[0].pointer, each[1].pointer, 40, out.pointer) for each in ((x, made), (made, y))]
    x.is_neg = lambda: True
    with pytest.raises(LaunchError, match="negated"):
        add(x, y, out, 40)
    x, y, out = Tensor((30 << 16) + 4, shape=(4, 256)), tensor(31), tensor(32)
    made = add(x, y, out, 40)
    wanted += [(5, 7, 11, each[0].pointer, each[1].pointer, 40, out.pointer) for each in ((x, made), (made, y))]
    fake_driver.forget_devices()
    assert [launched.words for launched in cuda.launches] == wanted
    known, _ = calls._known.values()
    assert [launch[0].ready() is not None for launch in known.launches] == [True, True]
