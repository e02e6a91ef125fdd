"""`gl.block` and `gl.warp` in kernels of threads, and the guards around them that hold for whole warps."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison, same
from weft import language as gl
from weft.errors import UserError


@weft.jit
def reductions(out, x):
    i = gl.thread_idx.x
    v = x[i]
    total = gl.block.sum(v)
    out[0, i] = total
    out[1, i] = gl.block.max(val=v, block_size=gl.block_dim.x)
    out[2, i] = gl.block.min(v, broadcast=False)
    out[3, i] = gl.block.prefix_sum(v)
    out[4, i] = gl.block.prefix_sum(v, exclusive=True)
    out[5, i] = gl.block.broadcast(v, 7)
    if total > 0:
        out[6, i] = gl.block.sum(gl.thread_idx.x)


@pytest.mark.parametrize(("dtype", "threads"), [(np.int32, 32), (np.int32, 256), (np.float32, 96), (np.float16, 64)])
def test_reductions(run, rng, dtype, threads):
    x = rng.integers(1, 9, threads).astype(dtype)
    out = poison((7, threads), dtype)
    run(reductions, 1, Viewed(out), Viewed(x), block=threads)
    sums = np.cumsum(x, dtype=dtype)
    want = [sums[-1], x.max(), x.min(), sums, sums - x, x[7], np.arange(threads).sum()]
    same(out, np.stack([np.broadcast_to(np.asarray(row, dtype), threads) for row in want]))


@weft.jit
def in_loops(out, x, ROUNDS: gl.constexpr):
    i = gl.thread_idx.x
    found = x[i]
    for k in range(ROUNDS):
        found = gl.block.sum(found) - gl.block.broadcast(found, k) - found
    out[i] = found


def test_in_a_loop(run, rng):
    x, out = rng.integers(-9, 9, 64).astype(np.int32), poison(64, np.int32)
    run(in_loops, 1, Viewed(out), Viewed(x), 3, block=64)
    for k in range(3):
        x = x.sum(dtype=np.int32) - x[k] - x
    same(out, x)


@weft.jit
def of_vectors(out, x):
    i = 4 * gl.thread_idx.x
    v = x.load[4](i)
    out.store(i, gl.block.sum(v) + gl.block.broadcast(v, 33) + gl.block.prefix_sum(v, exclusive=True))


def test_vectors(run, rng):
    x, out = rng.integers(-9, 9, (64, 4)).astype(np.int32), poison(256, np.int32)
    run(of_vectors, 1, Viewed(out), Viewed(x.reshape(-1)), block=64)
    same(out.reshape(64, 4), x.sum(0, dtype=np.int32) + x[33] + np.cumsum(x, 0, dtype=np.int32) - x)


@weft.jit
def guarded(out, x):
    i = gl.global_idx.x
    if i < x.dim(0):
        out[0, i] = gl.warp.sum(x[i])
        if i // 32 % 2 == 1:
            out[0, i] = gl.warp.max(x[i])
        if gl.thread_idx.x < 64:
            gl.syncwarp()
            out[1, i] = gl.warp.shuffle_down(x[i], 1)
        else:
            out[1, i] = gl.warp.prefix_sum(x[i], exclusive=True)
        if gl.warp.broadcast(x[i]) > 0:
            out[2, i] = gl.warp.shuffle_xor(x[i], 1) + gl.warp.min(x[i])
        else:
            out[2, i] = gl.warp.shuffle_idx(x[i], 5) + gl.warp.shuffle_up(x[i], 2)


def test_guards_of_whole_warps(run, rng):
    x, out = rng.integers(-9, 9, 160).astype(np.int32), poison((3, 160), np.int32)
    run(guarded, 2, Viewed(out), Viewed(x), block=96)
    want = np.empty_like(out)
    lane = np.arange(32)
    for warp, v in enumerate(x.reshape(5, 32)):
        part = slice(32 * warp, 32 * warp + 32)
        want[0, part] = v.max() if warp % 2 else v.sum()
        want[1, part] = v[np.minimum(lane + 1, 31)] if warp % 3 < 2 else np.cumsum(v) - v
        want[2, part] = v[lane ^ 1] + v.min() if v[0] > 0 else v[5] + v[np.where(lane < 2, lane, lane - 2)]
    same(out, want)


@weft.jit
def claimed(out, x, n):
    i = gl.thread_idx.x
    if gl.uniform(i < n, "warp"):
        out[i] = gl.warp.sum(x[i])


def test_a_claim_for_each_warp(run, rng):
    x, out = rng.integers(-9, 9, 128).astype(np.int32), np.zeros(128, np.int32)
    run(claimed, 1, Viewed(out), Viewed(x), 96, block=128)
    same(out, np.append(np.repeat(x[:96].reshape(3, 32).sum(1), 32), np.zeros(32)).astype(np.int32))


def test_a_false_claim():
    with pytest.raises(UserError) as caught:
        claimed[1](*(weft.LayoutTensor(np.zeros(128, np.int32)) for _ in range(2)), 80, block=128)
    assert caught.value.code == "hazard-not-uniform"
    assert "in all threads of a warp, but thread (64, 0, 0) has True and thread (80, 0, 0) has False" in str(
        caught.value
    )


@weft.jit
def scoped(out):
    out[gl.thread_idx.x] = gl.uniform(0.0, "grid")


@weft.jit
def sized(out):
    out[gl.thread_idx.x] = gl.block.sum(1.0, block_size=64)


@weft.jit
def divergent(out):
    if gl.thread_idx.x < 32:
        out[gl.thread_idx.x] = gl.block.sum(1.0)


@weft.jit
def split_warps(out):
    if gl.thread_idx.x < 40:
        out[gl.thread_idx.x] = gl.warp.sum(1.0)


@pytest.mark.parametrize(
    ("kernel", "code", "text"),
    [
        (scoped, "language-uniform-scope", "not of 'grid'"),
        (sized, "thread-block-size", "a block of 64 threads, but the kernel is launched with 128"),
        (divergent, "control-scope", "gl.block.sum must be executed by the whole block"),
        (split_warps, "control-scope", "a shuffle must be executed by the whole warp"),
    ],
)
def test_mistakes(kernel, code, text):
    with pytest.raises(UserError) as caught:
        kernel[1](weft.LayoutTensor(np.zeros(128, np.float32)), block=128)
    assert caught.value.code == code
    assert text in str(caught.value)


@weft.jit
def parameters_first(out, x):
    i, n = gl.thread_idx.x, gl.block_dim.x
    out[0, i] = gl.block.sum(block_size=n, broadcast=False)(val=x[i])
    out[1, i] = gl.block.prefix_sum(dtype=gl.float32, block_size=n, exclusive=True)(x[i])
    out[2, i] = gl.block.broadcast(dtype=gl.float32, width=1, block_size=n)(val=x[i], src_thread=3)
    before = gl.warp.prefix_sum(exclusive=True)(x[i])
    most: gl.float32 = gl.min_finite[gl.float32]()
    out[3, i] = before if before > most else gl.max_finite(gl.float32)


def test_parameters_before_the_value(run, rng):
    x, out = rng.integers(-9, 9, 64).astype(np.float32), poison((4, 64), np.float32)
    run(parameters_first, 1, Viewed(out), Viewed(x), block=64)
    sums = np.cumsum(x) - x
    within = (np.cumsum(x.reshape(2, 32), axis=1) - x.reshape(2, 32)).ravel()
    same(out, np.stack([np.full(64, x.sum()), sums, np.full(64, x[3]), within]))


@weft.jit
def two_numbers(out):
    out[gl.thread_idx.x] = gl.block.broadcast(width=2)(1.0)


def test_a_width_that_is_not_the_value_s():
    with weft.simulate(), pytest.raises(UserError) as caught:
        two_numbers[1](weft.LayoutTensor(np.zeros(32, np.float32)), block=32)
    assert caught.value.code == "thread-width"


@weft.jit
def lane_groups(out, x):
    i = gl.thread_idx.x
    out[0, i] = gl.warp.lane_group_sum(num_lanes=8)(x[i])
    out[1, i] = gl.warp.lane_group_max(x[i], num_lanes=4, stride=8)
    out[2, i] = gl.warp.lane_group_min(num_lanes=2, stride=2)(val=x[i])
    out[3, i] = gl.warp.lane_group_sum(x[i], num_lanes=1)


def test_groups_of_lanes(run, rng):
    x, out = rng.integers(-99, 99, 64).astype(np.int32), poison((4, 64), np.int32)
    run(lane_groups, 1, Viewed(out), Viewed(x), block=64)
    sums = np.repeat(x.reshape(8, 8).sum(1, dtype=np.int32), 8)
    largest = np.broadcast_to(x.reshape(2, 4, 8).max(1)[:, None], (2, 4, 8)).reshape(64)
    smallest = np.broadcast_to(x.reshape(16, 2, 2).min(1)[:, None], (16, 2, 2)).reshape(64)
    same(out, np.stack([sums, largest, smallest, x]))


def test_groups_of_a_warp_differ():
    @weft.jit
    def kernel(out, x):
        i = gl.thread_idx.x
        if gl.warp.lane_group_sum(num_lanes=16)(x[i]) > 0:
            out[i] = gl.warp.sum(x[i])

    with pytest.raises(UserError) as caught:
        kernel[1](*(weft.LayoutTensor(np.zeros(32, np.float32)) for _ in range(2)), block=32)
    assert caught.value.code == "control-scope"


@pytest.mark.parametrize(("lanes", "stride"), [(6, 1), (32, 2), (0, 1), (8, 3)])
def test_what_is_no_group_of_lanes(lanes, stride):
    @weft.jit
    def kernel(out, LANES: gl.constexpr, STRIDE: gl.constexpr):
        out[gl.thread_idx.x] = gl.warp.lane_group_sum(num_lanes=LANES, stride=STRIDE)(1.0)

    with pytest.raises(UserError) as caught:
        kernel[1](weft.LayoutTensor(np.zeros(32, np.float32)), lanes, stride, block=32)
    assert caught.value.code == "thread-shuffle"


@weft.jit
def larger(a, b):
    return max(a, b)


@weft.jit
def by_functions(out, x):
    i = gl.thread_idx.x
    out[0, i] = gl.warp.reduce(func=larger)(x[i])
    out[1, i] = gl.warp.reduce(shuffle=gl.shuffle_down, func=gl.add)(x[i])
    out[2, i] = gl.warp.lane_group_reduce(x[i], func=gl.minimum, num_lanes=4, stride=8)
    out[3, i] = gl.warp.lane_group_reduce(func=larger, num_lanes=1)(x[i])


def test_reductions_by_functions(run, rng):
    x, out = rng.integers(-99, 99, 64).astype(np.int32), poison((4, 64), np.int32)
    run(by_functions, 1, Viewed(out), Viewed(x), block=64)
    same(out[0], np.repeat(x.reshape(2, 32).max(1), 32))
    same(out[1, ::32], x.reshape(2, 32).sum(1, dtype=np.int32))
    same(out[2], np.broadcast_to(x.reshape(2, 4, 8).min(1)[:, None], (2, 4, 8)).reshape(64))
    same(out[3], x)


@weft.jit
def votes(words, out, x, n):
    i = gl.thread_idx.x
    words[0, i] = gl.warp.vote(x[i] > 0)
    words[1, i] = gl.warp.vote(ret_type=gl.uint32)(val=x[i])
    words[2, i] = gl.warp.vote(n > 0)
    words[3, i] = gl.warp.vote(gl.warp_id())
    out[0, i] = gl.popcount(gl.warp.vote(x[i] < 0))
    out[1, i] = 0
    if gl.warp.vote(x[i] > 98) != 0:
        out[1, i] = gl.warp.sum(x[i])


def test_votes(run, rng):
    x = rng.integers(-98, 98, 96).astype(np.int32)
    x[40], x[0::7] = 99, 0
    words, out = poison((4, 96), np.uint32), poison((2, 96), np.int32)
    run(votes, 1, Viewed(words), Viewed(out), Viewed(x), 3, block=96)
    rows = x.reshape(3, 32)

    def word(flags):
        return np.repeat((flags.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(1).astype(np.uint32), 32)

    same(words[0], word(rows > 0))
    same(words[1], word(rows != 0))
    same(words[2], np.full(96, 0xFFFFFFFF, np.uint32))
    same(words[3], np.repeat(np.array([0, 0xFFFFFFFF, 0xFFFFFFFF], np.uint32), 32))
    same(out[0], np.repeat((rows < 0).sum(1).astype(np.int32), 32))
    same(out[1], np.concatenate([np.zeros(32), np.full(32, rows[1].sum()), np.zeros(32)]).astype(np.int32))


def test_a_vote_takes_one_flag_of_each_thread():
    @weft.jit
    def of_vectors(x):
        x[0] = gl.warp.vote(x.load[4](0))

    @weft.jit
    def of_another_type(x):
        x[0] = gl.warp.vote(ret_type=gl.uint64)(x[0] > 0)

    @weft.jit
    def in_a_branch(x):
        if gl.thread_idx.x < 5:
            x[0] = gl.warp.vote(x[0] > 0)

    @weft.jit
    def of_a_tile(x):
        gl.store(x.ptr, gl.warp.vote(gl.arange(0, 32, gl.BlockedLayout([1], [32], [1], [0])) > 3))

    for kernel, code, words in (
        (of_vectors, "thread-vote", "a vector of 4 int32"),
        (of_another_type, "thread-vote", "ret_type=uint64"),
        (in_a_branch, "control-scope", "gl.warp.vote must be executed by the whole warp"),
        (of_a_tile, "thread-value-needed", "int1 tile [32]"),
    ):
        with pytest.raises(UserError) as caught:
            kernel[1](weft.LayoutTensor(np.zeros(32, np.int32)), block=32)
        assert (caught.value.code, words in caught.value.message) == (code, True)


def test_a_vote_that_was_never_stored():
    @weft.jit
    def kernel(x):
        flag = gl.stack_allocation[gl.int1](gl.row_major[1]())
        if x[0] > 0:
            flag[0] = True
        x[gl.thread_idx.x] = gl.warp.vote(flag[0])

    with weft.simulate(), pytest.raises(UserError, match="a vote") as caught:
        kernel[1](weft.LayoutTensor(np.zeros(32, np.int32)), block=32)
    assert caught.value.code == "hazard-undefined"


def test_a_reduction_of_a_warp_takes_functions_of_kernels():
    def of_python(a, b):
        return a + b

    @weft.jit
    def kernel(x, FUNC: gl.constexpr, SHUFFLE: gl.constexpr):
        x[0] = gl.warp.reduce(x[0], func=FUNC, shuffle=SHUFFLE)

    for function, shuffle, got in ((of_python, gl.shuffle_xor, "got of_python"), (gl.add, 3, "got 3")):
        with pytest.raises(UserError) as caught:
            kernel[1](weft.LayoutTensor(np.zeros(32, np.int32)), function, shuffle, block=32)
        assert (caught.value.code, got in caught.value.message) == ("tile-combine-function", True)

    @weft.jit
    def lacking(x):
        x[0] = gl.warp.reduce(x[0])

    with pytest.raises(UserError) as caught:
        lacking[1](weft.LayoutTensor(np.zeros(32, np.int32)), block=32)
    assert "(val, *, func, shuffle=shuffle_xor)" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "fix"),
    [("any", "gl.warp.vote(x) != 0"), ("ballot", "gl.warp.vote(x)"), ("vot", "did you mean 'vote'?")],
)
def test_names_of_other_languages(name, fix):
    @weft.jit
    def kernel(x, NAME: gl.constexpr):
        x[0] = getattr(gl.warp, NAME)(x[0])

    with pytest.raises(UserError) as caught:
        kernel[1](weft.LayoutTensor(np.zeros(32, np.int32)), name, block=32)
    assert (caught.value.code, fix in caught.value.fix) == ("lang-attribute", True)
