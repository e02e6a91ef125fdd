"""Every instruction of inline PTX that the simulator models, in the simulator and on a GPU, against an independent oracle.

The table is the simulator's own list of forms, so that none can be added untested. Each runs on pairs of edge values and on
random bits; results are compared bit by bit (a NaN is a NaN), those of approximate instructions within the manual's bound.
"""

from __future__ import annotations

from itertools import groupby
from zlib import crc32

import numpy as np
import pytest

import weft
from tests.kernels.harness import frozen
from tests.sim.numbers import ptx_oracle as oracle
from weft import language as gl
from weft.runtime import nvrtc
from weft.sim.numbers.ptx_forms import Form, width_of
from weft.sim.numbers.ptx_instructions import instructions

N = 128
AT_ONCE = 48
TABLE = 150  # of lop3
LINE = gl.BlockedLayout([1], [32], [4], [0])
LETTERS = {8: "h", 16: "h", 32: "r", 64: "l", 1: "r"}
UNSIGNED = {"h": (np.uint16, gl.uint16), "r": (np.uint32, gl.uint32), "l": (np.uint64, gl.uint64)}
APPROXIMATE_AT = (-100.0, -3.0, -1.0, -0.3, 0.1, 0.75, 1.0, 1.5, 2.0, 3.14159, 6.0, 10.0, 80.0, 1e-3, 1e5)


def letter(type: str) -> str:
    return LETTERS[width_of(type)]


def signature(form: Form) -> str:
    """The constraints of its registers, result first."""
    return "".join(map(letter, (form.result, *(t for t in form.operands if t != "immediate"))))


def groups() -> list[tuple[str, list[Form]]]:
    """Forms with the same registers, some at a time."""
    found: list[tuple[str, list[Form]]] = []
    for key, same in groupby(sorted(instructions().values(), key=signature), signature):
        members = list(same)
        found += [(key, members[i : i + AT_ONCE]) for i in range(0, len(members), AT_ONCE)]
    return found


def text(form: Form) -> str:
    """The instruction on `$0` to `$4`; predicates go by way of a register that is 0 or 1."""
    before, after, names = "", "", ["$0"]
    for number, type in enumerate(form.operands, 1):
        names.append(str(TABLE) if type == "immediate" else f"${number}")
        if type == "pred":
            names[-1] = f"q{number}"
            before += f".reg .pred q{number}; setp.ne.u32 q{number}, ${number}, 0; "
    if form.result == "pred":
        names[0], before, after = "p", f".reg .pred p; {before}", " selp.u32 $0, 1, 0, p;"
    return f"{{ {before}{form.text} {', '.join(names)};{after} }}"


@weft.jit
def apply(out, first, second, third, fourth, texts: gl.constexpr, constraints: gl.constexpr, dtype: gl.constexpr,
          N: gl.constexpr, operands: gl.constexpr, layout: gl.constexpr):  # fmt: skip
    at = gl.arange(0, N, layout)
    for i in gl.static_range(len(texts)):
        given = [gl.load(first + i * N + at)]
        if operands > 1:
            given = [*given, gl.load(second + i * N + at)]
        if operands > 2:
            given = [*given, gl.load(third + i * N + at)]
        if operands > 3:
            given = [*given, gl.load(fourth + i * N + at)]
        r = gl.inline_asm_elementwise(texts[i], constraints, given, dtype, is_pure=True, pack=1)
        gl.store(out + i * N + at, r)


def edges(type: str) -> list[int]:
    """Bits at which the instruction may go wrong."""
    size = width_of(type)
    if type == "pred":
        return [0, 1]
    half = type.removesuffix("x2")
    if half in oracle.FORMATS:
        exponent, fraction = oracle.FORMATS[half]
        small = size // 2 if half != type else size
        top, one = (1 << exponent) - 1 << fraction, (1 << exponent - 1) - 1 << fraction
        magnitudes = [
            0,
            1,
            (1 << fraction) - 1,
            1 << fraction,
            one - 1,
            one,
            one + 1,
            one | 1 << fraction - 1,
            top - 1,
            top,
        ]
        # A half, two and a half, the neighbours of 2**31 and 2**63, and two NaNs.
        magnitudes += [
            one - (1 << fraction),
            one + (1 << fraction) + (1 << fraction - 2),
            top | 1 << fraction - 1,
            top | 1,
        ]
        magnitudes += [m for e in (7, 8, 15, 16, 31, 32, 63, 64) for m in (one + (e << fraction),) if m < top]
        signs = [m | s << small - 1 for m in magnitudes for s in (0, 1)]
        return signs if half == type else [a << small | b for a, b in zip(signs, signs[5:] + signs[:5], strict=True)]
    found = [0, 1, 2, 3, 5, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 255]
    found += [
        value & (1 << size) - 1
        for k in (7, 8, 15, 16, 31, 32, 63, 64)
        for value in ((1 << k) - 1, 1 << k, -(1 << k), ~(1 << k))
    ]
    return [value & (1 << size) - 1 for value in found] + [(1 << size) - 1, (1 << size) - 2]


def inputs(form: Form) -> list[np.ndarray]:
    """Bits for each register operand: edges against shuffled edges, then random ones, small ones among them."""
    rng = np.random.default_rng(crc32(form.text.encode()))
    columns: list[np.ndarray] = []
    for type in (t for t in form.operands if t != "immediate"):
        size, dtype = width_of(type), UNSIGNED[letter(type)][0]
        if form.bound is not None and type == "f32":
            special = np.float32(APPROXIMATE_AT).view(np.uint32).tolist()
        else:
            special = edges(type)
        random = (
            rng.integers(0, 1 << size, N // 2, dtype=np.uint64, endpoint=size == 64)
            if size < 64
            else rng.integers(0, (1 << 64) - 1, N // 2, dtype=np.uint64, endpoint=True)
        )
        if form.bound is not None:
            random = rng.choice(special, N // 2)
        elif type[0] in "sub" and size > 1:
            random = np.where(rng.random(N // 2) < 0.3, random & np.uint64(63), random)
        column = np.concatenate([rng.choice(np.array(special, np.uint64), N // 2), random.astype(np.uint64)])
        if len(columns) == 1 and form.unspecified is not None:
            column = np.where(column == 0, np.uint64(7), column)
        columns.append(frozen(column.astype(dtype)))
    return columns


def check(form: Form, columns: list[np.ndarray], found: np.ndarray) -> None:
    size = width_of(form.result)
    for place in range(N):
        given = [int(column[place]) for column in columns]
        if form.bound is None:
            wanted = oracle.evaluate(form.text, [*given, TABLE] if form.text.startswith("lop3") else given, form.result)
            if size == 8 and form.result[0] == "s":
                wanted = oracle.signed(wanted, 8) & 0xFFFF
            got = int(found[place])
            message = f"{form.text} {[hex(v) for v in given]}: {got:#x}, not {wanted:#x}"
            assert got == wanted or both_nan(form.result, got, wanted), message
        else:
            within_bound(form, given, int(found[place]))


def both_nan(type: str, *bits: int) -> bool:
    half = type.removesuffix("x2")
    if half not in oracle.FORMATS:
        return False
    size = oracle.width(half)
    parts = [[b >> s & (1 << size) - 1 for s in range(0, oracle.width(type), size)] for b in bits]
    numbers = [[oracle.decode(p, half) for p in part] for part in parts]
    return all((a.nan and b.nan) or p == q for a, b, p, q in zip(*numbers, *parts, strict=True))


def within_bound(form: Form, given: list[int], got: int) -> None:
    assert form.bound is not None
    half, name = form.result.removesuffix("x2"), form.text.split(".")[0]
    size = oracle.width(half)
    for shift in range(0, oracle.width(form.result), size):
        values = [oracle.decode(g >> shift & (1 << size) - 1, half) for g in given]
        if "ftz" in form.text:
            values = [oracle.flush(v, half) for v in values]
        if not all(v.finite and abs(v.value) < 200 for v in values):
            continue
        try:
            true = oracle.TRUE[name](*map(float, (v.value for v in values)))
        except (ValueError, ZeroDivisionError, OverflowError):
            continue
        result = oracle.decode(got >> shift & (1 << size) - 1, half)
        normal = 2.0 ** (3 - (1 << oracle.FORMATS[half][0] - 1))
        if name in ("sin", "cos") and abs(float(values[0].value)) > 6.28:
            continue
        if not normal < abs(true) < 1 / normal:
            continue
        # Half a unit in the last place for the rounding of the result itself.
        error = max(form.bound.relative * abs(true), form.bound.absolute) + 2.0 ** -(oracle.FORMATS[half][1] + 1) * abs(
            true
        )
        assert result.finite and abs(float(result.value) - true) <= error, (
            f"{form.text} of {values}: {result}, not {true}"
        )


@pytest.mark.parametrize(("registers", "forms"), groups(), ids=lambda v: v if isinstance(v, str) else v[0].text)
def test_instructions(run, registers, forms):
    columns = [inputs(form) for form in forms]
    dtype, kind = UNSIGNED[registers[0]]
    operands = [frozen(np.concatenate([c[i] for c in columns])) for i in range(len(registers) - 1)]
    operands += [np.zeros(1, np.uint32)] * (4 - len(operands))
    out = np.zeros(len(forms) * N, dtype)
    constraints = ",".join(["=" + registers[0], *registers[1:]])
    texts = tuple(map(text, forms))
    run(apply, 1, out, *operands, texts, constraints, kind, N, len(registers) - 1, LINE, compiles=False, exact=False)
    wrong: list[str] = []
    for number, (form, column) in enumerate(zip(forms, columns, strict=True)):
        try:
            check(form, column, out[number * N : (number + 1) * N])
        except AssertionError as difference:
            wrong.append(str(difference).splitlines()[0])
    assert not wrong, "\n".join(wrong)


def test_ptxas_takes_every_form():
    if not nvrtc.available():
        pytest.skip("NVRTC is not installed")
    lines: list[str] = []
    for form in instructions().values():
        names, declared = [], ""
        for number, type in enumerate((form.result, *form.operands)):
            if type == "immediate":
                names.append(str(TABLE))
                continue
            names.append(f"r{number}")
            declared += f".reg .{'pred' if type == 'pred' else f'b{max(width_of(type), 16)}'} r{number}; "
        lines.append(f'"{{ {declared}{form.text} {", ".join(names)}; }}\\n"')
    source = 'extern "C" __global__ void all() { asm volatile(' + "\n".join(lines) + "); }"
    assert nvrtc.compile_cuda(source, name="all", arch="sm_90a").cubin
