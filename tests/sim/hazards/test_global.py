"""Races on global memory: between programs, between threads of one, and what orders them."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import verdict
from tests.sim.build import Kernel, pointer, run
from weft import language as gl
from weft.errors import hazard
from weft.ir.types import Pointer, int8, int32
from weft.ops import arith, memory, program
from weft.sim.memory.heap import Buffer

LINE = gl.BlockedLayout([1], [32], [4], [0])
OTHER = gl.BlockedLayout([4], [32], [4], [0])


def numbers(n: int = 256) -> np.ndarray:
    return np.arange(n, dtype=np.int32)


@weft.jit
def overlapping(out, step, value: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * step + gl.arange(0, 128, layout=layout)
    gl.store(out + at, 7 if value else gl.program_id(0) + gl.zeros([128], gl.int32, layout))


def test_programs_that_write_the_same_elements():
    found = verdict(overlapping, lambda: (numbers(), 100, False, LINE), grid=2)
    assert type(found) is hazard.GlobalRace
    assert found.code == "hazard-global-race"
    assert found.buffer == "out"
    assert "program (1, 0, 0) writes out[100], which program (0, 0, 0) wrote" in found.message
    assert found.first == found.second
    assert verdict(overlapping, lambda: (numbers(), 128, False, LINE), grid=2) is None


def test_equal_values_are_advice():
    compiled = overlapping[2](numbers(), 100, True, LINE)
    assert [a.rule for a in compiled.report.advice] == ["equal-stores"]


@weft.jit
def neighbours(x, layout: gl.constexpr):
    at = gl.program_id(0) * 64 + gl.arange(0, 64, layout=layout)
    gl.store(x + at, gl.load(x + (at + 1) % 256) + 1)


def test_a_program_that_reads_what_another_writes():
    found = verdict(neighbours, lambda: (numbers(), LINE), grid=4)
    assert type(found) is hazard.GlobalRace
    assert "another of its threads" in found.message
    assert found.code == "hazard-global-thread-race"


@weft.jit
def one_reads_all(x, out, layout: gl.constexpr):
    at = gl.arange(0, 256, layout=layout)
    if gl.program_id(0) == 0:
        gl.store(x + at, at * 2)
    else:
        gl.store(out + at, gl.load(x + at))


def test_the_order_of_programs_is_no_order():
    found = verdict(one_reads_all, lambda: (numbers(), numbers(), LINE), grid=2)
    assert type(found) is hazard.GlobalRace
    assert found.code == "hazard-global-race"


@weft.jit
def passed_on(x, flag, out, order: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, 256, layout=layout)
    if gl.program_id(0) == 0:
        gl.store(x + at, at * 2)
        gl.barrier()
        gl.atomic_xchg(flag, 1, sem="release" if order else "relaxed")
    else:
        while gl.atomic_cas(flag, 1, 1, sem="acquire" if order else "relaxed") != 1:
            pass
        gl.barrier()
        gl.store(out + at, gl.load(x + at))


def test_a_release_and_an_acquire_order_programs():
    def arguments(order):
        return lambda: (numbers(), np.zeros(1, np.int32), numbers(), order, LINE)

    assert verdict(passed_on, arguments(True), grid=2) is None
    assert type(verdict(passed_on, arguments(False), grid=2)) is hazard.GlobalRace


@weft.jit
def counted(total, flags, layout: gl.constexpr):
    """Programs take turns in any order; the last one to come reads all."""
    at = gl.program_id(0) * 64 + gl.arange(0, 64, layout=layout)
    gl.store(total + at, at)
    if gl.atomic_add(flags, 1) == gl.num_programs(0) - 1:
        sums = gl.zeros([64], gl.int32, layout)
        for i in range(gl.num_programs(0)):
            sums += gl.load(total + i * 64 + gl.arange(0, 64, layout=layout))
        gl.store(total + 256 + gl.arange(0, 64, layout=layout), sums)


def test_the_last_one_may_read_what_all_wrote():
    assert verdict(counted, lambda: (numbers(512), np.zeros(1, np.int32), LINE), grid=4) is None


@weft.jit
def exchanged(x, wait: gl.constexpr, one: gl.constexpr, other: gl.constexpr):
    gl.store(x + gl.arange(0, 512, layout=one), gl.arange(0, 512, layout=one) * 3)
    if wait:
        gl.barrier()
    at = gl.arange(0, 512, layout=other)
    gl.store(x + 512 + at, gl.load(x + at))


def test_threads_of_a_program():
    assert verdict(exchanged, lambda: (numbers(1024), True, LINE, OTHER)) is None
    assert verdict(exchanged, lambda: (numbers(1024), False, LINE, LINE)) is None
    found = verdict(exchanged, lambda: (numbers(1024), False, LINE, OTHER))
    assert type(found) is hazard.GlobalRace
    assert found.code == "hazard-global-thread-race"
    assert "gl.barrier()" in found.fix


@weft.jit
def scalars(x, wait: gl.constexpr):
    gl.store(x, gl.load(x) + 1)
    if wait:
        gl.barrier()
    gl.store(x + 1, gl.load(x))


def test_a_scalar_is_stored_by_one_thread_and_read_by_all():
    assert verdict(scalars, lambda: (numbers(), True)) is None
    assert type(verdict(scalars, lambda: (numbers(), False))) is hazard.GlobalRace


@weft.jit
def piled(out, layout: gl.constexpr, equal: gl.constexpr):
    at = gl.arange(0, 128, layout=layout)
    gl.store(out + at // 2, at // 2 if equal else at)


def test_one_store_with_several_values_for_an_element():
    assert verdict(piled, lambda: (numbers(), LINE, True)) is None
    found = verdict(piled, lambda: (numbers(), LINE, False))
    assert type(found) is hazard.GlobalRace
    assert found.code == "hazard-global-store-race"
    assert "out[0]" in found.message


def test_atomics_do_not_race_with_one_another():
    @weft.jit
    def add(x, layout: gl.constexpr):
        gl.atomic_add(x + gl.arange(0, 128, layout=layout) % 4, 1, sem="relaxed")

    x = np.zeros(4, np.int32)
    add[5](x, LINE)
    assert x.tolist() == [160] * 4


@pytest.mark.parametrize("offset", [0, 4, 5])
def test_granules_become_finer(offset):
    """Bytes of words that were written as wholes, in storage that starts anywhere."""
    data = np.zeros(64 + offset, np.uint8)
    whole = Buffer("words", data, offset, 8)

    def kernel(byte: int):
        k = Kernel(("words", pointer(int32)))
        first = k.cmp("eq", k.emit(program.program_id, axis=0), k.number(0))
        at = k.arange(16)
        (words,) = k.params
        k.emit(memory.store, k.address(words, at), at, k.splat(first, at))
        later = k.emit(arith.xor, first, k.number(True, first))
        narrow = k.emit(arith.bitcast, words, element=Pointer(int8))
        k.emit(memory.store, k.emit(memory.addptr, narrow, k.number(byte)), k.number(1, int8), later)
        return k.done()

    for byte in (0, 5, 63):
        with pytest.raises(hazard.GlobalRace) as caught:
            run(kernel(byte), Buffer("words", data.copy(), offset, 8), grid=(2,))
        assert f"words[{byte}]" in caught.value.message
    run(kernel(0), whole, grid=(1,))


def test_without_checks_nothing_is_said():
    with weft.simulate(hazards=False):
        overlapping[2](numbers(), 100, False, LINE)
    with pytest.raises(hazard.GlobalRace):
        overlapping[2](numbers(), 100, False, LINE)
