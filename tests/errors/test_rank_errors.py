"""Mistakes with symmetric tensors, ranks and signals, in kernels and on the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from tests.distributed.worlds import EACH
from weft import language as gl
from weft.distributed import of_torch
from weft.errors import CompilationError, Deadlock, LaunchError, UserError


def caught(on: Any, ranks: int = 2, **options: bool) -> UserError:
    with pytest.raises(UserError) as found:
        weft.distributed.simulate(on, ranks=ranks, **options)
    assert found.value.fix
    return found.value


@weft.jit
def wrong(x: gl.symmetric, y, CASE: gl.constexpr, EACH: gl.constexpr):
    if CASE == "pointer":
        gl.signal(y, 0)
    elif CASE == "rank":
        gl.store(x.peer(2), 1.0)
    elif CASE == "rank of a signal":
        gl.signal(x, -1)
    elif CASE == "type":
        gl.wait_signal(x, 0.5)
    elif CASE == "flag":
        gl.signal(x, 0, 4096)
    elif CASE == "flag type":
        gl.signal(x, 0, y)
    elif CASE == "timeout":
        gl.wait_signal(x, 0, timeout_ns=0)
    elif CASE == "count":
        gl.wait_signal(x, 0, count=0)
    elif CASE == "multicast":
        gl.store(x.multicast, 1.0)
    elif CASE == "multimem type":
        gl.multimem_ld_reduce(x.local, op="xor")
    elif CASE == "multimem op":
        gl.multimem_red(x.local, 1.0, op="sub")
    elif CASE == "word type":
        gl.wait_value(x, 0)
    elif CASE == "word of a pointer":
        gl.wait_value(y, 0)
    elif CASE == "run-time rank":
        gl.store(x.peer(x.rank + 2), 1.0)
    else:
        gl.signal(x, 0, gl.arange(0, 32, EACH) + 4090)


MISTAKES = [
    ("pointer", "ranks-symmetric-needed", "gl.signal needs a symmetric tensor"),
    ("rank", "ranks-no-rank", "x.peer got rank 2, and the group has 2 ranks"),
    ("rank of a signal", "ranks-no-rank", "got rank -1"),
    ("type", "ranks-rank-type", "the constant 0.5"),
    ("flag", "ranks-flag", "4096"),
    ("flag type", "ranks-flag", "has 4096 of them"),
    ("timeout", "ranks-timeout", "got 0"),
    ("count", "ranks-count", "got 0"),
    ("multicast", "ranks-no-multicast", "x has no multicast address"),
    ("multimem type", "multimem-type", "got float32, and takes for op='xor' int32"),
    ("word type", "ranks-word-type", "int32 or int64, and got one of float32"),
    ("word of a pointer", "ranks-symmetric-needed", "gl.wait_value needs a symmetric tensor"),
    ("multimem op", "multimem-type", "got op='sub', and takes op add, min"),
]


@pytest.mark.parametrize(("case", "code", "words"), MISTAKES)
def test_a_mistake_in_a_kernel(case: str, code: str, words: str):
    def on(rank: int):
        wrong[1](weft.Symmetric(weft.distributed.empty(4, np.float32)), np.zeros(4, np.float32), case, EACH)

    error = caught(on)
    assert isinstance(error, CompilationError)
    assert error.code == code
    assert words in error.message
    assert error.loc is not None


@weft.jit
def wrong_words(words: gl.symmetric, CASE: gl.constexpr):
    if CASE == "index":
        gl.wait_value(words, 0.5)
    elif CASE == "value":
        gl.wait_value(words, 0, True)
    elif CASE == "timeout":
        gl.wait_value(words, 0, timeout_ns=-1)
    else:
        gl.wait_value(words, 0, sem="release")


WRONG_WORDS = [
    ("index", "ranks-word-number", "as its index"), ("value", "ranks-word-number", "as its value"),
    ("timeout", "ranks-timeout", "gl.wait_value waits for a number of nanoseconds"), ("sem", "language-poll-order", "release"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "code", "words"), WRONG_WORDS)
def test_a_mistake_with_a_word(case: str, code: str, words: str):
    error = caught(lambda rank: wrong_words[1](weft.Symmetric(weft.distributed.empty(4, np.int32)), case))
    assert isinstance(error, CompilationError)
    assert error.code == code
    assert words in error.message
    assert error.loc is not None


@pytest.mark.parametrize(
    ("dtype", "given", "code", "words"),
    [
        (np.float32, (0, 0, 1), "ranks-word", "a symmetric tensor of int32, and got float32"),
        (np.int32, (2, 0, 1), "ranks-option", "rank=2, which is not a rank from 0 to 1"),
        (np.int32, (0, 4, 1), "ranks-option", "index=4, which is not a word from 0 to 3"),
        (np.int32, (0, 0, 1 << 31), "ranks-option", "a number of 32 bits"),
    ],
)
def test_a_mistake_with_a_write(dtype: Any, given: tuple[int, int, int], code: str, words: str):
    def on(rank: int):
        weft.distributed.write_value(weft.Symmetric(weft.distributed.empty(4, dtype)), *given)

    error = caught(on)
    assert error.code == code
    assert words in error.message


def test_a_write_to_a_part_with_gaps():
    error = caught(
        lambda rank: weft.distributed.write_value(weft.Symmetric(weft.distributed.empty(8, np.int32)[::2]), 0, 1, 1)
    )
    assert error.code == "ranks-word"
    assert "a part with gaps" in error.message


@pytest.mark.parametrize(
    "call",
    [
        lambda x: weft.distributed.copy(x, 0, np.zeros(4, np.float32)),
        lambda x: weft.distributed.write_value(x, 0, 0, 1),
    ],
)
def test_an_array_in_place_of_a_symmetric_tensor(call: Any):
    error = caught(lambda rank: call(weft.distributed.empty(4, np.float32)))
    assert error.code == "ranks-symmetric-host"
    assert "got a ndarray" in error.message


def test_no_peer_of_what_has_gaps():
    def of_part(rank: int):
        weft.Symmetric(weft.distributed.empty((4, 8), np.float32)[:, :4]).peer(0)

    def of_view(rank: int):
        view = weft.LayoutTensor(weft.distributed.empty((4, 8), np.float32), weft.Layout.row_major(4, 8))
        weft.Symmetric(view).peer(0)

    error = caught(of_part)
    assert error.code == "ranks-peer"
    assert "shape [4, 4] and strides [8, 1]" in error.message
    assert caught(of_view).code == "ranks-peer"


def test_no_rank_of_a_peer_on_the_host():
    assert caught(lambda rank: weft.Symmetric(weft.distributed.empty(4, np.float32)).peer(3)).code == "ranks-option"


@weft.jit
def waits_for_a_word(words: gl.symmetric):
    gl.wait_value(words, 2, 7)


def test_a_word_that_nobody_writes():
    error = caught(lambda rank: waits_for_a_word[1](weft.Symmetric(weft.distributed.empty(4, np.int32))))
    assert isinstance(error, Deadlock)
    assert "words[2] to become 7; it holds 0" in error.related[0][0]
    assert "weft.distributed.write_value()" in error.fix


@weft.jit
def wrong_puts(x: gl.symmetric, y, CASE: gl.constexpr, EACH: gl.constexpr):
    if CASE == "pointer":
        gl.put(y, 0, y, 1)
    elif CASE == "peer":
        gl.store(x.peer(0), 1.0)
    elif CASE == "source":
        gl.put(x, 0, x.local.to(gl.pointer_type(gl.int32)), 1)
    elif CASE == "tile":
        gl.put(x, 0, x.local + gl.arange(0, 32, EACH), 1)
    elif CASE == "count":
        gl.put(x, 0, x.local, 1.5)
    elif CASE == "at":
        gl.put(x, 0, x.local, 1, -1)
    elif CASE == "ranks":
        gl.put(x, gl.arange(0, 2, EACH), x.local, 1)
    elif CASE == "rank":
        gl.put(x, 2, x.local, 1)
    else:
        gl.quiet(x)


WRONG_PUTS = [
    ("pointer", "ranks-symmetric-needed", "gl.put needs a symmetric tensor"),
    ("peer", "ranks-not-reached", "no pointer reaches the memory of some ranks"),
    ("source", "ranks-put-source", "a pointer to float32"),
    ("tile", "ranks-put-source", "tile [32]"),
    ("count", "ranks-put-number", "takes count as a number of elements"),
    ("at", "ranks-put-number", "got the constant -1"),
    ("ranks", "ranks-rank-type", "int32 tile"),
    ("rank", "ranks-no-rank", "got rank 2"),
]


def putting(case: str, **options: Any) -> Any:
    def on(rank: int):
        x = weft.Symmetric(weft.distributed.empty(4, np.float32))
        wrong_puts[1](x, np.zeros(4, np.float32), case, EACH, **options)

    return on


@pytest.mark.parametrize(("case", "code", "words"), WRONG_PUTS)
def test_a_mistake_with_a_put(case: str, code: str, words: str):
    error = caught(putting(case), nvshmem=True, peer_access=False)
    assert isinstance(error, CompilationError)
    assert error.code == code
    assert words in error.message


def test_a_put_to_other_memory():
    error = caught(putting("quiet"))
    assert error.code == "ranks-nvshmem-needed"
    assert 'set_backend("NVSHMEM")' in error.fix


@pytest.mark.parametrize(("options", "words"), [({"block": 32}, "block="), ({"num_ctas": 2}, "num_ctas=2")])
def test_a_put_that_not_all_threads_of_a_block_execute(options: dict[str, int], words: str):
    with weft.simulate(target="sm_90a"):
        error = caught(putting("quiet", **options), nvshmem=True)
    assert error.code == "ranks-put-block"
    assert words in error.message


def test_no_peer_access_without_nvshmem():
    assert caught(putting("quiet"), peer_access=False).code == "ranks-option"


def test_a_copy_to_memory_that_pointers_do_not_reach():
    def on(rank: int):
        x = weft.distributed.empty(4, np.float32)
        weft.distributed.copy(weft.Symmetric(x), 1 - rank, np.zeros(4, np.float32))

    assert caught(on, nvshmem=True, peer_access=False).code == "ranks-no-peer-access"


@pytest.mark.parametrize(
    ("case", "words"), [("run-time rank", "the group has ranks 0 to 1"), ("run-time flag", "flags 0 to 4095")]
)
def test_a_number_that_is_none_at_run_time(case: str, words: str):
    def on(rank: int):
        wrong[1](weft.Symmetric(weft.distributed.empty(4, np.float32)), np.zeros(4, np.float32), case, EACH)

    error = caught(on)
    assert error.code == "hazard-assertion"
    assert words in error.message
    assert "of rank" in error.message


@weft.jit
def waits(x: gl.symmetric):
    gl.wait_signal(x, 1 - x.rank, gl.program_id(0))


def test_a_deadlock_says_who_waits_for_whom():
    def on(rank: int):
        waits[2](weft.Symmetric(weft.distributed.empty(4, np.float32)))

    error = caught(on)
    assert isinstance(error, Deadlock)
    assert "4 programs of 2 ranks" in error.message
    labels = [label for label, _ in error.related]
    assert "program (0, 0, 0) of rank 0 waits for signal 1 of rank 1 on flag 0, which has sent 0" in labels[0]
    assert "of rank 1 waits for signal 1 of rank 0 on flag" in labels[1]
    assert "let rank 1 call gl.signal() for rank 0 on flag 0" in error.fix


def test_a_deadlock_names_ranks_that_have_returned():
    def on(rank: int):
        if rank == 0:
            waits[1](weft.Symmetric(weft.distributed.empty(4, np.float32)))

    assert "rank 1 has returned" in caught(on).message


def test_a_launch_whose_programs_do_not_fit():
    def on(rank: int):
        with weft.simulate(max_resident=3):
            waits[4](weft.Symmetric(weft.distributed.empty(4, np.float32)))

    error = caught(on)
    assert error.code == "launch-programs-wait"
    assert "of its 4 programs only 3 fit" in error.message


def test_a_plain_array():
    error = caught(lambda rank: weft.Symmetric(np.zeros(4)))
    assert error.code == "ranks-plain-tensor"
    assert "weft.distributed.empty" in error.fix


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: weft.Symmetric(np.zeros(4)), "weft.Symmetric"),
        (lambda: weft.distributed.empty(4, np.float32), "weft.distributed.empty"),
        (weft.distributed.barrier, "weft.distributed.barrier"),
    ],
)
def test_outside_of_a_world(call: Any, what: str):
    with pytest.raises(LaunchError, match=what) as found:
        call()
    assert found.value.code == "ranks-outside"


def test_ranks_that_allocate_differently():
    error = caught(lambda rank: weft.distributed.empty(4 + rank, np.float32))
    assert error.code == "ranks-different"
    assert "rank 1 allocates float32 (5,)" in error.message


@weft.jit
def told(x: gl.symmetric, NUMBER: gl.constexpr, LINE: gl.constexpr):
    gl.store(x.local + gl.arange(0, 4, LINE), NUMBER)


LINE = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def told_twice(x: gl.symmetric, NUMBER: gl.constexpr, LINE: gl.constexpr):
    gl.store(x.local + gl.arange(0, 4, LINE), 2 * NUMBER)


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (lambda rank, x: told[1](x, rank, LINE), "in kernel told: rank 1 has NUMBER: 1; rank 0 has NUMBER: 0"),
        (
            lambda rank, x: (told, told_twice)[rank][1](x, 8, LINE),
            "rank 1 is at kernel told_twice; rank 0 at kernel told",
        ),
        (lambda rank, x: rank or told_twice[1](x, 7, LINE), "rank 0 is at kernel told_twice; rank 1 at the end"),
    ],
    ids=["constants", "kernels", "one rank alone"],
)
def test_ranks_that_launch_differently(launch: Any, words: str):
    """On GPUs they would wait for one another, or worse."""

    def on(rank: int):
        x = weft.Symmetric(weft.distributed.empty(4, np.float32))
        told[1](x, 7, LINE)
        launch(rank, x)

    error = caught(on)
    assert error.code == "ranks-different"
    assert words in error.message


@pytest.mark.parametrize("options", [{"ranks": 0}, {"ranks": 65}, {"ranks": "two"}, {"seed": 0.5}])
def test_options_of_a_world(options: dict[str, Any]):
    with pytest.raises(LaunchError) as found:
        weft.distributed.simulate(lambda rank: None, **options)
    assert found.value.code == "ranks-option"


def test_an_error_of_a_host_function_ends_all_ranks():
    def on(rank: int):
        if rank == 1:
            raise ZeroDivisionError("one")
        waits[1](weft.Symmetric(weft.distributed.empty(4, np.float32)))

    with pytest.raises(ZeroDivisionError, match="one"):
        weft.distributed.simulate(on)


def test_a_peer_without_access():
    handle = SimpleNamespace(rank=0, buffer_ptrs=[1 << 20, 0], world_size=2)
    with pytest.raises(LaunchError) as found:
        of_torch.TorchGroup(0, 2, "all", "cuda:0", handle).peers(SimpleNamespace(data_ptr=lambda: (1 << 20) + 64), 0)
    assert found.value.code == "ranks-no-peer-access"
    assert "rank 1 cannot be reached from rank 0" in found.value.message
