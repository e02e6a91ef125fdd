"""Products, copies and commits of Blackwell's tensor cores as text, and the instructions that become of them."""

from __future__ import annotations

import re

import pytest

from tests.cuda.build import Kernel, compiled, needs_nvrtc, text_of
from tests.cuda.rules.test_async import barriers, descriptor, room, sass
from tests.effort import crossed
from weft.ir.core import Func, Value
from weft.ir.types import ScalarType, float16, int1, int32
from weft.layout.tensor_cores.shared_operands import Operand
from weft.layout.tensor_cores.tcgen05 import instruction_descriptor
from weft.ops import arith, control, mbarrier, tcgen05, tma
from weft.ops.check import TypingError

ARCH = "sm_100a"
LEFT, RIGHT = Operand(128, False, 16, 1024, ()), Operand(128, True, 8192, 1024, ())
DENSE = instruction_descriptor("f16", "f16", "f16", "f32", 128, 256, False, True)
STEPS = tuple([(0, 32 * k, 2048 * k, k == 0, DENSE, 0, 0) for k in range(4)])
"""128 x 256 x 64 halves."""

# What each kind multiplies, whether it has scales, and the instruction that does so.
KINDS = {
    "f16": ("f16", "f16", "f32", "UTCHMMA"),
    "tf32": ("f32", "f32", "f32", "UTCHMMA"),
    "f8f6f4": ("f8e4m3", "f8e5m2", "f32", "UTCQMMA"),
    "i8": ("i8", "u8", "i32", "UTCIMMA"),
    "mxf8f6f4": ("e4m3", "e2m1", "f32", "UTCQMMA"),
    "mxf4": ("e2m1", "e2m1", "f32", "UTCOMMA"),
    "mxf4nvf4": ("e2m1", "e2m1", "f32", "UTCOMMA.4X"),
}


def lines(func: Func) -> str:
    return re.sub(r" *#line.*\n", "", text_of(func, ARCH))


def branch(func: Func) -> str:
    """What the elected thread does."""
    text = lines(func)
    found = re.search(r"  if \(warp == 0 && (?:\w+ && )?elect_one\(\)\) \{\n(.*?)\n  \}\n", text, re.DOTALL)
    assert found is not None
    return re.sub(r"^    ", "", found[1], flags=re.MULTILINE)


def kernel(**attrs) -> tuple[Kernel, Value, Value, Value]:
    """A kernel with an address in tensor memory, and two matrices in shared memory."""
    k = Kernel(("acc", int32), ("more", int1), ("on", int1), **attrs)
    return k, k.params[0], room(k, float16, 8192, 1024, "a"), room(k, float16, 16384, 32768, "b")


def product(k: Kernel, a: Value, b: Value, acc: Value, use_acc: Value | None = None, **given) -> None:
    scales = given.pop("a_scale", None), given.pop("b_scale", None)
    attrs = {"kind": "f16", "left": LEFT, "right": RIGHT, "steps": STEPS, **given}
    k.emit(tcgen05.issue, a, b, acc, *scales, use_acc, attrs.pop("pred", None), **attrs)


def straight(func: Func) -> str:
    """Machine code in which one thread issues everything: no loop over lanes, no predicate that is not uniform."""
    text = sass(func, ARCH)
    assert "VOTE" not in text and not re.search(r"@!?P\d UTC", text)
    assert not re.search(r"ptxas warning|\(C7\d+\)", compiled(func, ARCH).log)
    return text


# Products


def test_a_product_reads_well():
    k, acc, a, b = kernel()
    product(k, a, b, acc, k.params[1])
    assert (
        branch(k.done())
        == """\
const u64 left = matrix(0x40004040u, 0x10000u + matrix_start(a));
const u64 right = matrix(0x40004040u, 0x2000000u + matrix_start(b));
#pragma unroll
for (int r = 0; r < 4; ++r) tcgen05_mma_f16(acc, left + 2 * r, right + 128 * r, 0x8410010u, r >= 1 || more);"""
    )


def test_a_product_and_its_commit_are_one_branch():
    k, acc, a, b = kernel()
    (bar,) = barriers(k)
    product(k, a, b, acc, pred=k.params[2])
    k.emit(tcgen05.commit, bar, k.params[2])
    text = lines(k.done())
    assert text.count("elect_one()") == 1 and "&& on && elect_one()) {" in text
    assert text.index("tcgen05_mma_f16(") < text.index("tcgen05_commit(bars);")


def test_the_first_steps_along_k_obey_the_condition():
    """They come first, or at regular distances, or anywhere. A condition that is known is no part of the text."""
    columns = {
        (True, False, False, False): "r >= 1",
        (True, True, False, False): "r >= 2",
        (True, False, True, False): "r % 2 > 0",
        (True, False, False, True): "table[r] > 0",
    }
    for first, text in columns.items():
        for condition in ("more", True, False):
            k, acc, a, b = kernel()
            use_acc = k.params[1] if condition == "more" else k.number(condition, int1)
            steps = tuple([(*step[:3], one, *step[4:]) for step, one in zip(STEPS, first, strict=True)])
            product(k, a, b, acc, use_acc, steps=steps)
            expected = {"more": f"{text} || more", True: "true", False: text}[condition]
            assert f"u, {expected});" in branch(k.done())
    for first, text in ((True, "more"), (False, "true")):
        k, acc, a, b = kernel()
        product(k, a, b, acc, k.params[1], steps=((*STEPS[0][:3], first, *STEPS[0][4:]),) * 2)
        assert f"u, {text});" in branch(k.done())
        k, acc, a, b = kernel()
        product(k, a, b, acc, k.params[1], steps=((*STEPS[0][:3], first, *STEPS[0][4:]),))
        assert f"u, {text});" in lines(k.done())


@pytest.mark.parametrize(("reuse", "usages"), [(2, ["fill", "lastuse"] * 2), (4, ["fill", "use", "use", "lastuse"])])
def test_a_tile_of_a_stays_in_the_collector(reuse, usages):
    steps = tuple([(64 * i, 32 * (i // reuse), 2048 * i, True, DENSE, 0, 0) for i in range(4)])
    k, acc, a, b = kernel()
    product(k, a, b, acc, k.params[1], steps=steps, reuse=reuse)
    func = k.done()
    assert f"0x8410010u, more, r % {reuse});" in branch(func)
    ptx = compiled(func, ARCH).ptx
    assert re.findall(r"tcgen05\.mma\.\S*::f16\.collector::a::(\w+) ", ptx) == usages


def test_the_steps_of_a_run_read_the_same_tile():
    k, acc, a, b = kernel()
    with pytest.raises(TypingError, match="runs of 2 steps do not read the same tile of a"):
        product(k, a, b, acc, reuse=2)


def scaled(kind: str, steps: int = 4, two_ctas: bool = False) -> Func:
    """Instructions that find their scales in bytes of columns, one after another."""
    a, b, acc, _ = KINDS[kind]
    k, into, left, right = kernel(two_ctas=two_ctas)
    scales = {f"{name}_scale": k.emit(arith.add, into, k.number(at)) for name, at in (("a", 256), ("b", 260))}
    scale = {"mxf4nvf4": "f8e4m3"}.get(kind, "u8")
    taken = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 4}[kind]
    given = []
    for i in range(steps):
        column, byte = divmod(taken * i, 4)
        ids = (byte, byte)
        what = instruction_descriptor(kind, a, b, acc, 128, 128, scale=scale, scale_ids=ids)
        given.append((0, 32 * i, 32 * i, i == 0, what, 4 * column, 4 * column))
    product(k, left, right, into, k.params[1], kind=kind, right=LEFT, steps=tuple(given), two_ctas=two_ctas, **scales)
    return k.done()


def test_scales_of_a_product():
    """The descriptor says which bytes of a column; the addresses say which columns."""
    text = branch(scaled("mxf8f6f4", steps=8))
    first = instruction_descriptor("mxf8f6f4", "e4m3", "e2m1", "f32", 128, 128, scale="u8")
    assert f"{first:#x}u + 536870928 * (r % 4), t + 4 * (r / 4), t_1 + 4 * (r / 4), r >= 1 || more);" in text
    assert "t + 4 * r, t_1 + 4 * r," in branch(scaled("mxf4nvf4"))
    assert all(f".kind::{kind}.block_scale" in compiled(scaled(kind), ARCH).ptx for kind in KINDS if "mx" in kind)


@needs_nvrtc
@pytest.mark.parametrize(("kind", "two_ctas"), crossed(KINDS, [False, True]))
def test_kinds(kind, two_ctas):
    """One instruction for each step, its descriptors in uniform registers."""
    a, b, acc, name = KINDS[kind]
    if "mx" in kind:
        func = scaled(kind, two_ctas=two_ctas)
    else:
        k, into, left, right = kernel(two_ctas=two_ctas)
        what = instruction_descriptor(kind, a, b, acc, 256 if two_ctas else 128, 128)
        steps = tuple([(0, 32 * i, 32 * i, i == 0, what, 0, 0) for i in range(4)])
        product(k, left, right, into, k.params[1], kind=kind, right=LEFT, steps=steps, two_ctas=two_ctas)
        func = k.done()
    text = straight(func)
    scales = r", tmem\[UR\d+\]" * ("mx" in kind)
    operands = rf"gdesc\[UR\d+\], gdesc\[UR\d+\], tmem\[UR\d+\], tmem\[UR\d+\], idesc\[UR\d+\]{scales}"
    found = re.findall(rf"(UTC\w*MMA\S*) {operands}, (UP\w);", text)
    name = name.replace("MMA", "MMA.2CTA" if two_ctas else "MMA")
    assert found == [(name, predicate) for predicate in ("UP0", "UPT", "UPT", "UPT")]


@needs_nvrtc
@pytest.mark.parametrize("two_ctas", [False, True])
def test_a_left_operand_in_tensor_memory(two_ctas):
    k, acc, _, b = kernel(two_ctas=two_ctas)
    left = k.emit(arith.add, acc, k.number(256), name="left")
    steps = tuple([(0, 8 * i, 32 * i, i == 0, DENSE, 0, 0) for i in range(4)])
    product(k, left, b, acc, left=None, steps=steps, two_ctas=two_ctas)
    func = k.done()
    assert f"tcgen05_mma_f16_ta{'_pair' * two_ctas}(acc, left + 8 * r, right + 2 * r, " in branch(func)
    name = "UTCHMMA.2CTA" if two_ctas else "UTCHMMA"
    assert len(re.findall(rf"{name} tmem\[UR\d+(?:\+0x\w+)?\], gdesc", straight(func))) == 4


@needs_nvrtc
def test_many_instructions_are_one_loop():
    """Blocks of the accumulator, then steps along k; all constants once they are unrolled."""
    k, acc, a, b = kernel()
    places = [(i // 8, i % 8) for i in range(16)]
    steps = tuple([(128 * n, 32 * step, 16384 * n + 2048 * step, step == 0, DENSE, 0, 0) for n, step in places])
    product(k, a, b, acc, k.params[1], steps=steps)
    func = k.done()
    assert branch(func).count("tcgen05_mma_f16(") == 1
    assert "tcgen05_mma_f16(acc + 128 * (r / 8), " in branch(func) and "r % 8 > 0 || more);" in branch(func)
    text = straight(func)
    assert text.count("UTCHMMA") == 16 and text.count(", UPT;") >= 14 and "R2UR" not in text


@needs_nvrtc
def test_a_loop_of_products_is_not_repeated():
    k, acc, a, b = kernel()
    (bar,) = barriers(k)
    with k.region([ScalarType(int32)], ["i"]) as body:
        product(k, a, b, acc, k.emit(arith.cmp, body.args[0], k.number(0), predicate="gt", name="added"))
        k.emit(tcgen05.commit, bar, None)
        k.emit(mbarrier.wait, bar, k.emit(arith.and_, body.args[0], k.number(1)), None)
        k.emit(control.yield_)
    k.emit(control.for_, k.number(0), acc, k.number(1), regions=(body.done,), descending=False)
    func = k.done()
    assert "#pragma unroll 1" in text_of(func, ARCH)
    assert straight(func).count("UTCHMMA") == 4


# Copies

COPIES = {
    "128x256b": "", "128x128b": "128dp128bit", "4x256b": "4dp256bit", "32x128b.warpx4": "4x32dp128bit",
    "64x128b.warpx2::02_13": "2x64dp128bit_lw02_lw13", "64x128b.warpx2::01_23": "2x64dp128bit_lw01_lw23",
}  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize(("shape", "two_ctas"), crossed(COPIES, [False, True]))
def test_copies(shape, two_ctas):
    k, to, source, _ = kernel(two_ctas=two_ctas)
    operand = Operand(0, False, 16, 128, ())
    steps = tuple([(512 * i, 4 * i) for i in range(4)])
    k.emit(tcgen05.copy_shared, source, to, shape=shape, operand=operand, steps=steps, two_ctas=two_ctas)
    func = k.done()
    name = f"tcgen05_copy_{re.sub(r'[.:]+', '_', shape)}{'_pair' * two_ctas}"
    text = branch(func)
    assert "const u64 source = matrix(0x4008u, 0x10000u + matrix_start(a));" in text
    assert f"{name}(acc + 4 * r, source + 32 * r);" in text
    name = ".".join(["UTCCP.T.S", *["2CTA"] * two_ctas, *[COPIES[shape]] * bool(COPIES[shape])])
    found = re.findall(r"(UTCCP\S*) tmem\[UR\d+(?:\+(0x\w+))?\]", straight(func))
    assert found == [(name, at) for at in ("", "0x4", "0x8", "0xc")]


# Commits


@needs_nvrtc
@pytest.mark.parametrize("two_ctas", [False, True])
@pytest.mark.parametrize(
    ("receivers", "mask"),
    [
        ((), ""),
        ((3,), "0xf"),
        ((3, 1), "0xf"),
        ((1,), "(u16)(0x3 << (cluster_rank() & -2))"),
        ((1, 2), "(u16)(0x3 << (cluster_rank() & -2) | 0x5 << (cluster_rank() & -3))"),
    ],
)
def test_commits(receivers, mask, two_ctas):
    """To the own barrier, or to those of all blocks that differ in the bits of a mask."""
    k, *_ = kernel(num_ctas=4, two_ctas=two_ctas)
    (bar,) = barriers(k)
    k.emit(tcgen05.commit, bar, k.params[2], receivers=receivers)
    func = k.done()
    pair = "_pair" * two_ctas
    call = f"tcgen05_commit_multicast{pair}(bars, {mask});" if mask else f"tcgen05_commit{pair}(bars);"
    assert f"if (warp == 0 && on && elect_one()) {call}" in lines(func)
    text = straight(func)
    assert re.search(rf"UTCBAR{r'.2CTA' * two_ctas}{'.MULTICAST' * bool(mask)} \[UR\d+\]", text)


# Pairs of blocks


@needs_nvrtc
@pytest.mark.parametrize("multicast", [False, True])
def test_loads_of_a_pair_arrive_at_its_first_block(multicast):
    k = Kernel(("n", int32), num_ctas=4, two_ctas=True)
    desc = descriptor(k, "desc")
    (bar,), smem = barriers(k), room(k, float16, 4096, 1024, "smem")
    k.emit(mbarrier.expect, bar, None, bytes=8192, shared_by=1)
    to = {"shared_by": 1, "multicast": multicast, "boxes": (((0, 0), 0),)}
    k.emit(tma.load, desc, bar, smem, None, k.params[0], k.number(0), **to)
    func = k.done()
    name = "tma_load_multicast_pair_2d" if multicast else "tma_load_pair_2d"
    assert f"{name}(smem, &desc, bars, 0, n" in text_of(func, ARCH)
    made = compiled(func, ARCH)
    assert f"complete_tx::bytes{'.multicast::cluster' * multicast}.cta_group::2" in made.ptx
    text = straight(func)
    # The bit of the block's number is no part of the barrier's address; that of the memory keeps it.
    assert re.search(rf"UTMALDG\.2D{'.MULTICAST' * multicast}.2CTA", text) and "0xfeff" in text
