"""Random straight lines of inline PTX in the simulator, against the oracle of single instructions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.sim.numbers import ptx_oracle as oracle
from weft.sim.numbers import ptx
from weft.sim.numbers.ptx_forms import Form, width_of
from weft.sim.numbers.ptx_instructions import instructions

PROGRAMS = 2000
LANES = 8
# Exact forms, whose result follows from their operands' bits; copysign moves NaNs, whose bits are open.
FORMS = [f for f in instructions().values() if f.bound is None and not f.text.startswith("copysign")]
NANS = {"f16", "bf16", "f32", "f64"}


def register(type: str) -> str:
    return "pred" if width_of(type) == 1 else f"b{max(width_of(type), 16)}"


class Program:
    """A text, and what its registers hold in each lane; registers of floats are read as floats only, so that no NaN's bits
    count."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.declared: list[str] = []
        self.values: dict[str, list[int]] = {}
        self.kinds: dict[str, str] = {}
        for n in range(1, 5):
            width = 64 if n > 2 else 32
            self.values[f"${n}"] = [rng.choice([0, 1, 7, 31, 32, 255, (1 << width) - 1, 1 << width - 1, rng.getrandbits(width)])
                                    for _ in range(LANES)]  # fmt: skip
            self.kinds[f"${n}"] = f"b{width}"

    def operand(self, type: str) -> tuple[str, list[int]] | None:
        """A register, or a constant, that the type can be read from."""
        fits = [name for name, kind in self.kinds.items() if kind == register(type) or kind == type]
        fits = [name for name in fits if self.kinds[name] in (register(type), type)]
        if (
            type[0] in "sub"
            and type not in ("bf16", "bf16x2")
            and "x2" not in type
            and width_of(type) > 8
            and self.rng.random() < 0.2
        ):
            value = self.rng.choice([0, 1, 2, 5, 13, 31, 255, self.rng.getrandbits(width_of(type) - 1)])
            return self.rng.choice([str(value), hex(value)]), [value] * LANES
        if not fits:
            return None
        name = self.rng.choice(fits)
        return name, self.values[name]

    def step(self, form: Form) -> None:
        chosen = [("150", [150] * LANES) if t == "immediate" else self.operand(t) for t in form.operands]
        if any(c is None for c in chosen):
            return
        picked = [c for c in chosen if c is not None]
        if form.unspecified is not None and 0 in picked[1][1]:
            return
        name = f"r{len(self.declared)}"
        # Floats, and pairs with fp8 in them, keep their type; bits of integers may be read as anything.
        half = form.result.removesuffix("x2")
        kind = form.result if half in oracle.FORMATS else register(form.result)
        self.declared.append(f".reg .{register(form.result)} {name};")
        self.lines.append(f"{form.text} {name}, {', '.join(text for text, _ in picked)};")
        self.values[name] = [self.lane(form, [values[i] for _, values in picked]) for i in range(LANES)]
        self.kinds[name] = kind

    @staticmethod
    def lane(form: Form, bits: list[int]) -> int:
        found = oracle.evaluate(form.text, bits, form.result)
        return oracle.signed(found, 8) & 0xFFFF if form.result == "s8" else found


def agree(type: str, first: int, second: int) -> bool:
    if first == second:
        return True
    half = type.removesuffix("x2")
    if half not in NANS:
        return False
    size = oracle.width(half)
    return all(
        (a == b) or (oracle.decode(a, half).nan and oracle.decode(b, half).nan)
        for s in range(0, oracle.width(type), size)
        for a, b in [(first >> s & (1 << size) - 1, second >> s & (1 << size) - 1)]
    )


def wrong(seed: int) -> str | None:
    """What a program's last registers hold, where it is not what they should."""
    rng = random.Random(seed)
    program = Program(rng)
    for _ in range(40):
        program.step(rng.choice(FORMS))
    outputs = [name for name in program.values if name.startswith("r") and program.kinds[name] != "pred"][-4:]
    text = "{ " + " ".join(program.declared + program.lines)
    widths = [max(width_of(program.kinds[name]), 16) for name in outputs]
    # The text numbers its operands after the results.
    for n in range(4, 0, -1):
        text = text.replace(f"${n}", f"$${n + len(outputs) - 1}")
    text = text.replace("$$", "$") + " ".join(
        f" mov.b{width} ${i}, {name};" for i, (width, name) in enumerate(zip(widths, outputs, strict=True))
    )
    given = [np.array(program.values[f"${n}"], np.uint64 if n > 2 else np.uint32) for n in range(1, 5)]
    with np.errstate(all="ignore"):
        found = ptx.run(text + " }", widths, given)
    for name, value in zip(outputs, found, strict=True):
        got = np.broadcast_to(value.bits, (LANES,)).tolist()
        for lane, (a, b) in enumerate(zip(got, program.values[name], strict=True)):
            if not agree(program.kinds[name], a, b):
                return f"seed {seed}: {name}, lane {lane}: {a:#x}, not {b:#x}\n{text}"
    return None


@pytest.mark.stress
def test_random_texts(scale, stress_report):
    failures = [found for seed in range(PROGRAMS * scale) if (found := wrong(seed)) is not None]
    stress_report("random PTX texts", tried=PROGRAMS * scale, wrong=len(failures))
    assert not failures, failures[0]
