"""Pointers, loads, stores and atomics."""

from __future__ import annotations

import pytest

from tests.language.support import BLOCKED, MATRIX, mistake
from weft import language as gl
from weft.language.nvidia.ampere import CachePolicy, FractionalEvictionPolicy

WEAK = {"order": "", "scope": "gpu"}
READ_HERE, WRITTEN_HERE = {"multimem": ""}, {"multimem": False}
"""Accesses of one rank's memory, not by multicast addresses."""
ATOMICS = ("add", "max", "min", "and", "or", "xor", "xchg")


def addresses(kernel, element=gl.float32, n=128):
    return kernel.pointer(element) + gl.arange(0, n, BLOCKED)


def test_a_pointer_moves_by_a_tile(kernel):
    p = addresses(kernel)
    assert p.shape == [128] and p.dtype == gl.pointer_type(gl.float32) and p.layout == BLOCKED
    assert kernel.names == ["tile.arange", "tile.splat", "memory.addptr"]


def test_a_tile_of_pointers_moves_by_a_scalar(kernel):
    p = addresses(kernel)
    _ = 4 + p
    assert kernel.ops[-2].attrs["value"] == 4
    _ = p + kernel.scalar(gl.int64)
    assert kernel.names[-2:] == ["tile.splat", "memory.addptr"]
    assert kernel.ops[-1].operands[1].type.element == gl.int64
    _ = p + 2**31
    assert kernel.ops[-2].attrs["type"].element == gl.int64


def test_a_pointer_moves_back(kernel):
    p = kernel.pointer()
    _ = p - 3
    assert [op.attrs.get("value") for op in kernel.ops] == [-3, None]
    _ = p - kernel.scalar(gl.uint32)
    assert kernel.names[-3:] == ["arith.cast", "arith.math", "memory.addptr"]
    assert kernel.ops[-1].operands[1].type.element == gl.int64


def test_pointer_arithmetic_that_means_nothing(kernel):
    p, q = kernel.pointer(), kernel.pointer()
    with mistake("language-pointer-difference"):
        _ = p - q
    with mistake("language-pointer-difference"):
        _ = 3 - p
    with mistake("language-pointer-operand"):
        _ = p + q
    with mistake("language-pointer-operand"):
        _ = p * 2
    with mistake("language-pointer-offset"):
        _ = p + 1.0
    with mistake("language-pointer-offset"):
        _ = p + kernel.scalar(gl.float32)
    with mistake("language-operand"):
        _ = p + "1"


def test_pointers_compare(kernel):
    assert (kernel.pointer() == kernel.pointer()).dtype == gl.int1
    assert kernel.names == ["arith.bitcast", "arith.bitcast", "arith.cmp"]
    with mistake("language-pointer-operand"):
        _ = kernel.pointer() == 0


def test_load(kernel):
    x = gl.load(addresses(kernel, gl.float16))
    assert (x.dtype, x.shape, x.layout) == (gl.float16, [128], BLOCKED)
    assert gl.load(kernel.pointer(gl.int8)).handle.type == kernel.scalar(gl.int8).handle.type
    assert kernel.last("memory.load").attrs == {
        "cache": "",
        "eviction": "",
        **HINTS,
        **READ_HERE,
        "volatile": False,
        **WEAK,
    }


def test_load_with_a_mask(kernel):
    p, mask = addresses(kernel, gl.float16), kernel.tile(gl.int1)
    gl.load(p, mask=mask, other=0)
    op = kernel.last("memory.load")
    assert op.operands[1] is mask.handle
    assert op.operands[2].type.element == gl.float16
    gl.load(p, mask=mask, other=kernel.tile(gl.float32))
    assert kernel.names[-2:] == ["arith.cast", "memory.load"]
    gl.load(p, mask=kernel.scalar(gl.int1))
    assert kernel.names[-2:] == ["tile.splat", "memory.load"]


def test_masks_known_at_compile_time(kernel):
    p = addresses(kernel)
    gl.load(p, mask=True, other=1.0)
    assert kernel.last("memory.load").operands[1:] == (None, None)
    gl.load(p, mask=False, other=1.0)
    assert kernel.last("memory.load").operands[1] is kernel.ops[-3].result


def test_masks_and_addresses_stretch(kernel):
    p = kernel.pointer() + gl.arange(0, 32, gl.SliceLayout(0, MATRIX))[None, :]
    mask = kernel.tile(gl.int1, (16, 1))
    assert gl.load(p, mask=mask).shape == [16, 32]


HINTS = {"l2": (), "prefetch": 0}


def test_policies(kernel):
    p = addresses(kernel)
    gl.load(p, cache_modifier=".cg", volatile=True)
    assert kernel.last("memory.load").attrs == {
        "cache": ".cg",
        "eviction": "",
        **HINTS,
        **READ_HERE,
        "volatile": True,
        **WEAK,
    }
    gl.store(p, 0, eviction_policy="evict_last")
    assert kernel.last("memory.store").attrs == {
        "cache": "",
        "eviction": "evict_last",
        "l2": (),
        **WEAK,
        **WRITTEN_HERE,
    }
    with mistake("language-cache-modifier") as found:
        gl.load(p, cache_modifier=".wb")
    assert ".ca, .cg" in found.text
    with mistake("language-cache-modifier"):
        gl.store(p, 0, cache_modifier=".ca")
    with mistake("language-eviction-policy"):
        gl.load(p, eviction_policy="last")
    with mistake("cuda-cache-and-eviction") as found:
        gl.load(p, cache_modifier=".cg", eviction_policy="evict_first")
    assert "'.cg'" in found.text
    assert "'evict_first'" in found.text


FIRST = FractionalEvictionPolicy("evict_first", 1)
EARLY, AHEAD = CachePolicy(l2=FIRST), CachePolicy(l2_prefetch_size=64)
PART = FractionalEvictionPolicy("evict_last", 0.5, "evict_first")


def test_cache_policies(kernel):
    p = addresses(kernel)
    gl.load(p, cache_policy=CachePolicy(l1="no_allocate", l2=PART, l2_prefetch_size=256))
    attrs = kernel.last("memory.load").attrs
    assert [attrs[name] for name in ("cache", "eviction", "l2", "prefetch")] == [
        "", "no_allocate", ("evict_last", 0.5, "evict_first"), 256
    ]  # fmt: skip
    gl.store(p, 0, cache_policy=CachePolicy(".wt", l2=FIRST))
    attrs = kernel.last("memory.store").attrs
    assert [attrs[name] for name in ("cache", "eviction", "l2")] == [".wt", "", ("evict_first", 1.0, "evict_unchanged")]
    gl.load(p, sem="acquire", cache_policy=CachePolicy(l2=FIRST))
    assert kernel.last("memory.load").attrs["l2"] == ("evict_first", 1.0, "evict_unchanged")


@pytest.mark.parametrize(
    ("code", "words", "call"),
    [
        ("language-cache-policy", "primary 'no_allocate'", lambda p: FractionalEvictionPolicy("no_allocate", 1.0)),
        ("language-cache-policy", "secondary 'evict_last'", lambda p: FractionalEvictionPolicy("evict_first", 1, "evict_last")),
        ("language-cache-policy", "fraction 0", lambda p: FractionalEvictionPolicy("evict_first", 0)),
        ("language-cache-policy", "fraction 1.5", lambda p: FractionalEvictionPolicy("evict_first", 1.5)),
        ("language-cache-policy", "fraction nan", lambda p: FractionalEvictionPolicy("evict_first", float("nan"))),
        ("language-cache-policy", "fraction 'all'", lambda p: FractionalEvictionPolicy("evict_first", "all")),
        ("language-cache-policy", "l1 'first'", lambda p: CachePolicy(l1="first")),
        ("language-cache-policy", "cache_modifier 'cx'", lambda p: CachePolicy(".cx")),
        ("language-cache-policy", "l2 'evict_first'", lambda p: CachePolicy(l2="evict_first")),
        ("language-cache-policy", "l2_prefetch_size 32", lambda p: CachePolicy(l2_prefetch_size=32)),
        ("language-cache-policy", "l2_prefetch_size True", lambda p: CachePolicy(l2_prefetch_size=True)),
        ("language-cache-policy-empty", "sets nothing", lambda p: CachePolicy()),
        ("language-cache-policy-needed", "got 'evict_first'", lambda p: gl.load(p, cache_policy="evict_first")),
        ("language-cache-policy-part", "l2_prefetch_size=64", lambda p: gl.store(p, 0, cache_policy=AHEAD)),
        ("language-cache-policy-part", "l2=", lambda p: gl.load(p, volatile=True, cache_policy=CachePolicy(l2=FIRST))),
        ("language-cache-modifier", "'.wb'", lambda p: gl.load(p, cache_policy=CachePolicy("wb"))),
        ("language-cache-modifier", "'.cg'", lambda p: gl.load(p, sem="relaxed", cache_policy=CachePolicy("cg"))),
        ("cuda-cache-and-eviction", "'.cg'", lambda p: gl.load(p, cache_policy=CachePolicy("cg", l1="evict_first"))),
        ("language-cache-policy-twice", "cache_modifier='.cg'", lambda p: gl.load(p, cache_modifier=".cg", cache_policy=EARLY)),
        ("language-cache-policy-twice", "eviction_policy='evict_last'",
         lambda p: gl.store(p, 0, eviction_policy="evict_last", cache_policy=EARLY)),
    ],
)  # fmt: skip
def test_mistakes_with_cache_policies(kernel, code, words, call):
    with mistake(code) as found:
        call(addresses(kernel))
    assert words in found.text


@pytest.mark.parametrize("scope", [None, "cta", "cluster", "gpu", "sys"])
def test_orders_of_loads_and_stores(kernel, scope):
    p, reach = addresses(kernel), {"scope": scope or "gpu"}
    for sem in ("relaxed", "acquire"):
        gl.load(p, sem=sem, scope=scope)
        assert kernel.last("memory.load").attrs == {
            "cache": "", "eviction": "", **HINTS, **READ_HERE, "volatile": False, "order": sem, **reach
        }  # fmt: skip
    for sem in ("relaxed", "release"):
        gl.store(p, 0, sem=sem, scope=scope)
        plain = {"cache": "", "eviction": "", "l2": (), **WRITTEN_HERE}
        assert kernel.last("memory.store").attrs == {**plain, "order": sem, **reach}


def test_orders_that_loads_and_stores_do_not_have(kernel):
    p = addresses(kernel)
    for sem in ("release", "acq_rel", "seq_cst", 1):
        with mistake("language-access-order") as found:
            gl.load(p, sem=sem)
        assert "use one of 'relaxed' or 'acquire'" in found.text
    for sem in ("acquire", "acq_rel", True):
        with mistake("language-access-order"):
            gl.store(p, 0, sem=sem)
    with mistake("language-access-order") as found:
        gl.store(p, 0, sem="release", scope="warp")
    assert "'cta', 'cluster', 'gpu', 'sys'" in found.text


def test_what_does_not_go_with_an_order(kernel):
    p = addresses(kernel)
    for wrong in (
        lambda: gl.load(p, scope="gpu"), lambda: gl.load(p, sem="acquire", volatile=True),
        lambda: gl.load(p, sem="relaxed", cache_modifier=".cg"), lambda: gl.store(p, 0, scope="sys"),
        lambda: gl.store(p, 0, sem="release", cache_modifier=".wt"),
    ):  # fmt: skip
        with mistake("language-access-order-with"):
            wrong()


def test_store(kernel):
    p = addresses(kernel, gl.float16)
    assert gl.store(p, kernel.tile(gl.float32), mask=kernel.tile(gl.int1)) is None
    assert kernel.names[-2:] == ["arith.cast", "memory.store"]
    gl.store(p, kernel.scalar(gl.int32))
    assert kernel.names[-3:] == ["arith.cast", "tile.splat", "memory.store"]
    gl.store(kernel.pointer(gl.int1), True)
    assert kernel.last("memory.store").operands[1].type.element == gl.int1


def test_what_cannot_be_accessed(kernel):
    p = kernel.pointer()
    with mistake("language-pointer-needed"):
        gl.load(kernel.tile())
    with mistake("language-pointer-needed"):
        gl.store(3, 4)
    with mistake("language-other-without-mask"):
        gl.load(p, other=0.0)
    with mistake("language-mask-type"):
        gl.load(addresses(kernel), mask=kernel.tile(gl.int32))
    with mistake("language-tile-at-scalar") as found:
        gl.load(p, mask=kernel.tile(gl.int1, name="inside"))
    assert "'inside'" in found.text
    with mistake("language-tile-at-scalar"):
        gl.store(p, kernel.tile())
    with mistake("language-tile-at-scalar"):
        gl.load(p, mask=True, other=kernel.tile())
    with mistake("tile-layout-mismatch"):
        other = gl.BlockedLayout([4], [32], [4], [0])
        gl.store(addresses(kernel, n=512), kernel.tile(shape=(512,), layout=other))


@pytest.mark.parametrize("kind", ATOMICS)
def test_atomics(kernel, kind):
    p, mask = addresses(kernel, gl.int32), kernel.tile(gl.int1)
    old = getattr(gl, f"atomic_{kind}")(p, 1, mask=mask)
    assert old.dtype == gl.int32 and old.shape == [128]
    op = kernel.last("memory.atomic")
    assert op.attrs == {"kind": kind, "order": "acq_rel", "scope": "gpu", **WRITTEN_HERE}
    assert op.operands[2] is mask.handle


def test_atomic_order_and_scope(kernel):
    gl.atomic_add(kernel.pointer(), 1.0, sem="relaxed", scope="sys")
    assert kernel.last("memory.atomic").attrs == {"kind": "add", "order": "relaxed", "scope": "sys", **WRITTEN_HERE}
    with mistake("language-atomic-order"):
        gl.atomic_add(kernel.pointer(), 1.0, sem="seq_cst")
    with mistake("language-atomic-order"):
        gl.atomic_cas(kernel.pointer(), 0, 1, scope="warp")


def test_atomic_loads_and_stores(kernel):
    value = gl.atomic_load(addresses(kernel, gl.int8), mask=kernel.tile(gl.int1))
    assert value.dtype == gl.int8
    assert {"order": "acquire", "scope": "gpu"}.items() <= kernel.last("memory.load").attrs.items()
    gl.atomic_store(kernel.pointer(), 1, sem="relaxed", scope="sys")
    assert {"order": "relaxed", "scope": "sys"}.items() <= kernel.last("memory.store").attrs.items()
    gl.atomic_store(kernel.pointer(), 1)
    assert kernel.last("memory.store").attrs["order"] == "release"
    with mistake("language-atomic-order"):
        gl.atomic_load(kernel.pointer(), sem="release")
    with mistake("language-atomic-order"):
        gl.atomic_store(kernel.pointer(), 1, sem="acquire")


@pytest.mark.parametrize("element", [gl.float16, gl.bfloat16, gl.float32, gl.float64, gl.int32, gl.uint64])
def test_types_of_atomic_add(kernel, element):
    assert gl.atomic_add(kernel.pointer(element), 1).dtype == element


@pytest.mark.parametrize(
    ("kind", "element"),
    [("add", gl.int16), ("add", gl.float8e5), ("max", gl.float16), ("and", gl.float32), ("xchg", gl.int8)],
)
def test_types_that_atomics_refuse(kernel, kind, element):
    with mistake("language-atomic-type") as found:
        getattr(gl, f"atomic_{kind}")(kernel.pointer(element), 1)
    assert element.name in found.text


def test_a_poll(kernel):
    met = gl.atomic_poll(kernel.pointer(gl.int32), 3)
    assert met.dtype == gl.int1 and met.is_scalar
    op = kernel.last("memory.poll")
    plain = {"at_least": False, "patience": 0, "signal": False}
    assert op.attrs == {"order": "acquire", "scope": "gpu", **plain} and op.operand("timeout") is None
    met = gl.atomic_poll(addresses(kernel, gl.int64), kernel.tile(gl.int64), sem="relaxed", scope="sys", timeout_ns=5)
    assert met.dtype == gl.int1 and met.shape == [128]
    op = kernel.last("memory.poll")
    assert op.attrs == {"order": "relaxed", "scope": "sys", **plain} and op.operand("timeout") is not None


def test_a_fence(kernel):
    gl.fence()
    assert kernel.last("sync.fence").attrs == {"order": "acq_rel", "scope": "gpu"}
    gl.fence("sc", "sys")
    assert kernel.last("sync.fence").attrs == {"order": "sc", "scope": "sys"}
    for wrong in ({"sem": "acquire"}, {"scope": "warp"}):
        with mistake("language-access-order"):
            gl.fence(**wrong)


def test_what_a_poll_refuses(kernel):
    with mistake("language-poll-order") as found:
        gl.atomic_poll(kernel.pointer(gl.int32), 1, sem="release")
    assert "'relaxed' or 'acquire'" in found.text
    for timeout in (-1, 1.5, "1 s", True, 1 << 63):
        with mistake("language-poll-timeout"):
            gl.atomic_poll(kernel.pointer(gl.int32), 1, timeout_ns=timeout)
    for element in (gl.float32, gl.int8):
        with mistake("language-atomic-type"):
            gl.atomic_poll(kernel.pointer(element), 1)
    with mistake("language-pointer-needed"):
        gl.atomic_poll(3, 1)
    with mistake("language-tile-at-scalar"):
        gl.atomic_poll(kernel.pointer(gl.int64), kernel.tile(gl.int64))


def test_compare_and_swap(kernel):
    old = gl.atomic_cas(addresses(kernel, gl.int32), 0, kernel.tile(gl.int64))
    assert old.dtype == gl.int32
    assert kernel.names[-2:] == ["arith.cast", "memory.atomic_cas"]
    gl.atomic_cas(kernel.pointer(gl.float16), 0, 1)
    with mistake("language-atomic-type"):
        gl.atomic_cas(kernel.pointer(gl.int8), 0, 1)
