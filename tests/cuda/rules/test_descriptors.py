"""Descriptors that a kernel makes, as text: the fields that are set, their codes, and what the instructions become."""

from __future__ import annotations

import re

import pytest

from tests.cuda.build import Kernel, compiled, needs_nvrtc, pointer, text_of
from tests.cuda.rules.test_async import HOPPER, descriptor, room
from tests.effort import crossed
from weft import targets
from weft.cuda import emit
from weft.cuda.rules.tma.descriptors import ELEMENT_TYPES, FILLS, SWIZZLES
from weft.ir.core import Value
from weft.ir.types import DTYPES, DType, float16, float32, int1, int32, int64
from weft.layout import NVMMASharedLayout
from weft.ops import control, shared, tma
from weft.runtime.sass import disassemble

# PTX ISA 9.0, table "Tensormap new_val validity": a value is the position of its meaning.
ISA_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")
ISA_SWIZZLES = (0, 32, 64, 128)
ISA_FILLS = ("zero", "nan")
MEANT = {
    "i1": "u8", "i8": "u8", "u8": "u8", "f8e4m3": "u8", "f8e5m2": "u8", "i16": "u16", "u16": "u16", "i32": "s32", "u32": "u32",
    "i64": "s64", "u64": "u64", "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
}  # fmt: skip


def test_codes_are_those_of_the_manual():
    assert {dtype.code for dtype in DTYPES} == set(ELEMENT_TYPES) == set(MEANT)
    assert {code: ISA_TYPES[number] for code, number in ELEMENT_TYPES.items()} == MEANT
    assert {span: ISA_SWIZZLES[number] for span, number in SWIZZLES.items()} == {s: s for s in ISA_SWIZZLES}
    assert {fill: ISA_FILLS[number] for fill, number in FILLS.items()} == {f: f for f in ISA_FILLS}


def made(
    k: Kernel, ptr: Value, block: tuple[int, ...], layout: NVMMASharedLayout, *, slot: int = 0, again: bool = False,
    padding: str = "zero", pitch: Value | None = None,
) -> Value:  # fmt: skip
    """A descriptor of blocks of a tensor whose extents are the kernel's number."""
    n, one = k.params[1], k.number(1, int64)
    form = k.emit(shared.scratch, dtype=int32, count=32, tag=100 + slot, offset=1024 * 64, align=128)
    strides = [one if pitch is None else pitch] * (len(block) - 1)
    return k.emit(
        tma.write_descriptor, form, ptr, *[n] * len(block), *strides, one, block_shape=block, layout=layout, padding=padding,
        slot=slot, again=again, name="desc",
    )  # fmt: skip


def kernel(element: DType, sites: int = 1, **attrs: object) -> Kernel:
    return Kernel(("p", pointer(element)), ("n", int32), ("pitch", int64), workspace_bytes=128 * sites, **attrs)


@needs_nvrtc
@pytest.mark.parametrize(("element", "arch"), crossed(DTYPES, HOPPER), ids=str)
def test_every_type_and_rank_compiles(element, arch):
    k = kernel(element, 5)
    smem = room(k, element, 4096, 0, "smem")
    inner = 32 // element.itemsize
    for rank in range(1, 6):
        block = (2,) * (rank - 1) + (inner,)
        layout = NVMMASharedLayout(0, 8 * element.itemsize, rank)
        desc = made(k, k.params[0], block, layout, slot=128 * (rank - 1), again=rank > 3, pitch=k.params[2])
        k.emit(tma.store, desc, smem, *[k.number(0)] * rank, boxes=(((0,) * rank, 0),))
    k.emit(tma.store_wait, pendings=0)
    machine = compiled(k.done(), arch)
    assert (machine.n_spills, machine.stack) == (0, 0)
    sass = disassemble(machine.cubin)
    assert sass.count("UTMACCTL.IV") == 5, "each is made known to TMA"
    for rank in range(1, 6):
        assert f"UTMASTG.{rank}D" in sass


def test_the_fields_of_a_descriptor():
    """Dimensions count from the innermost one on; the rank counts from 0; the innermost dimension has no stride."""
    k = kernel(float16, 2)
    made(k, k.params[0], (4, 16, 64), NVMMASharedLayout(128, 16, 3), slot=128, padding="nan", pitch=k.params[2])
    text = emit(k.done(), targets.get("sm_90a"))
    fields = re.findall(r'"tensormap\.replace\.tile\.(\w+)\.shared::cta\.b1024\.b(\d\d) \[%0\], (?:(\d), )?%1;', text)
    numbered = {"box_dim": "32", "global_dim": "32", "element_stride": "32"}
    assert fields == [
        ("global_address", "64", ""), ("rank", "32", ""),
        *(("box_dim", "32", str(d)) for d in range(3)), *(("global_dim", "32", str(d)) for d in range(3)),
        *(("global_stride", "64", str(d)) for d in range(2)), *(("element_stride", "32", str(d)) for d in range(3)),
        ("elemtype", "32", ""), ("interleave_layout", "32", ""), ("swizzle_mode", "32", ""), ("fill_mode", "32", ""),
    ]  # fmt: skip
    assert all(bits == numbered.get(field, bits) for field, bits, _ in fields)
    assert '.rank.shared::cta.b1024.b32 [%0], %1;" :: "r"(room), "n"(2)' in text
    body = text[text.index('extern "C"') :]
    assert "const CUtensorMap* const desc = (const CUtensorMap*)(block_workspace + 128);" in body
    steps = "pitch * 2, pitch * 2"
    assert f"make_map_3d<6, 3, 1, false>(desc, scratch + 65536, p, 64, 16, 4, n, n, n, {steps});" in body


def test_one_warp_makes_it():
    """The partition's first; each block has bytes of its own, whatever the grid."""
    for warps, head in ((4, "if (warp == 0) make_map_1d<"), (1, "  make_map_1d<")):
        k = kernel(float32, num_warps=warps)
        made(k, k.params[0], (64,), NVMMASharedLayout(0, 32, 1))
        assert head in (text := text_of(k.done()))
    assert "kernel(float* p, const int n, const i64 pitch, u8* workspace) {" in text
    number = "((u64)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x"
    assert f"u8* const block_workspace = workspace + 128 * ({number});" in text


def test_authors_may_use_the_names():
    k = Kernel(("workspace", pointer(float32)), ("n", int32), workspace_bytes=128)
    made(k, k.params[0], (64,), NVMMASharedLayout(0, 32, 1))
    text = text_of(k.done())
    assert "kernel(float* workspace, const int n, u8* workspace_1) {" in text
    assert "block_workspace = workspace_1 + 128" in text


@needs_nvrtc
def test_descriptors_of_a_loop_wait_for_stores():
    """What a descriptor replaces has been read by then."""
    found: list[str] = []
    for again in (False, True):
        k = kernel(float32)
        smem = room(k, float32, 1024, 0, "smem")
        with k.region([k.params[1].type], ["i"]) as body:
            desc = made(k, k.params[0], (64,), NVMMASharedLayout(0, 32, 1), again=again)
            k.emit(tma.store, desc, smem, body.args[0], boxes=(((0,), 0),))
            k.emit(control.yield_)
        k.emit(control.for_, k.number(0), k.params[1], k.number(1), regions=(body.done,), descending=False)
        found.append(disassemble(compiled(k.done()).cubin))
    assert ["DEPBAR.LE SB0, 0x0" in text for text in found] == [False, True]


@needs_nvrtc
@pytest.mark.parametrize("arch", HOPPER)
def test_parameters_are_fetched(arch):
    k = Kernel(("n", int32))
    maps = [descriptor(k, name) for name in ("first", "second")]
    for desc in maps:
        k.emit(tma.prefetch, desc)
    func = k.done()
    text = text_of(func, arch)
    assert "if (warp == 0 && elect_one()) { prefetch_map(&first); prefetch_map(&second); }" in text
    assert disassemble(compiled(func, arch).cubin).count("UTMACCTL.PF") == 2


@needs_nvrtc
def test_pointers_to_small_floats_that_nobody_follows():
    """The struct is declared for the parameter's sake."""
    for element in DTYPES:
        if element is not int1:
            k = Kernel(("p", pointer(element)))
            assert compiled(k.done()).n_spills == 0


@needs_nvrtc
@pytest.mark.parametrize(
    ("changed", "again", "arch"), crossed([(0, 1, 2), (), (0,), (1, 2)], [False, True], HOPPER), ids=str
)
def test_updates_compile(changed, again, arch):
    """The fields of the changed dimensions, counted from the innermost, and the address."""
    k = kernel(float16, 2)
    smem, layout = room(k, float16, 4096, 0, "smem"), NVMMASharedLayout(32, 16, 3)
    first = made(k, k.params[0], (2, 4, 16), layout)
    form = k.emit(shared.scratch, dtype=int32, count=32, tag=200, offset=1024 * 65, align=128)
    numbers = [k.params[1]] * len(changed) + [k.params[2]] * len(changed)
    ptr = k.params[0] if again or not changed else None
    desc = k.emit(tma.rewrite_descriptor, form, first, ptr, *numbers, changed=changed, slot=128, again=again)
    k.emit(tma.store, desc, smem, *[k.number(0)] * 3, boxes=(((0, 0, 0), 0),))
    text = emit(k.done(), targets.get(arch))
    body = text[text.index("void update_map") :].split("DEV ")[0]
    assert ("global_address" in body) == (ptr is not None)
    for dim in range(3):
        axis = 2 - dim
        assert (f"global_dim.shared::cta.b1024.b32 [%0], {axis}" in body) == (dim in changed)
        assert (f"global_stride.shared::cta.b1024.b64 [%0], {axis - 1}" in body) == (dim in changed and axis > 0)
    assert "fence.proxy.tensormap::generic.acquire" in body
    assert "UTMASTG" in disassemble(compiled(k.done(), arch).cubin)
