"""Random kernels of integer expressions, and what NumPy's wrapping arithmetic gives for them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

N = 512
DTYPES = {
    "int32": np.int32,
    "int64": np.int64,
    "uint32": np.uint32,
    "int8": np.int8,
    "int16": np.int16,
    "uint8": np.uint8,
}
COMMON = ("int32", "int32", "int32", "int64", "uint32", "int8", "int16", "uint8")
COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
EDGES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 64, 100, 255, 256, 4096, 65536, 1 << 30, (1 << 31) - 1, (1 << 31) - 512)
PROGRAMS = (0, 1, 3, 511, 4095, 4096, 32767, 32768, 65535, (1 << 22) - 1, (1 << 22))


@dataclass
class Tile:
    """A name of the kernel, and its numbers."""

    name: str
    dtype: str
    value: np.ndarray


@dataclass
class Writer:
    """Writes one kernel, and computes it on the way for one program and one set of arguments."""

    random: random.Random
    program: int
    arguments: dict[str, int]
    x: np.ndarray
    threads: bool = False
    lines: list[str] = field(default_factory=list[str])
    tiles: list[Tile] = field(default_factory=list[Tile])
    masks: list[Tile] = field(default_factory=list[Tile])

    def add(self, text: str, dtype: str, value: Any) -> Tile:
        name = f"v{len(self.lines)}"
        self.lines.append(f"    {name} = {text}")
        found = Tile(name, dtype, np.broadcast_to(np.asarray(value), (N,)))
        (self.masks if dtype == "int1" else self.tiles).append(found)
        return found

    def number(self, value: int, dtype: str) -> str:
        kind = np.dtype(DTYPES[dtype])
        wrapped = int(np.array(value & (1 << 8 * kind.itemsize) - 1, f"u{kind.itemsize}").view(kind))
        return f"gl.cast({wrapped}, gl.{dtype})"

    def leaf(self) -> Tile:
        pick = self.random
        kind = pick.choice(["range", "program", "n", "k", "x", "row", "row", "row"])
        if kind == "range":
            return self.add("i", "int32", np.arange(N, dtype=np.int32))
        if kind == "row":
            factor = pick.choice([3, 512, 1024, 65536, 65536, 1 << 20, 1 << 20])
            row = np.int64(self.program) * factor + np.arange(N)
            return self.add(f"gl.program_id(0) * {factor} + i", "int32", row.astype(np.int32))
        if kind == "program":
            return self.add("gl.program_id(0) + i * 0", "int32", np.full(N, self.program, np.int32))
        if kind == "x":
            return self.add("gl.load(x + i)", "int32", self.x)
        dtype = "int32" if kind == "n" else "int64"
        return self.add(f"{kind} + gl.cast(i * 0, gl.{dtype})", dtype, np.full(N, self.arguments[kind], DTYPES[dtype]))

    def step(self) -> None:
        pick = self.random
        x = pick.choice(self.tiles if pick.random() < 0.3 else self.tiles[-2:])
        kind = pick.choice(
            ["sum", "sum", "const", "const", "shift", "cast", "extreme", "where", "cmp", "masks", "load"]
        )
        dtype = x.dtype
        with np.errstate(all="ignore"):
            if kind == "sum":
                y = pick.choice([t for t in self.tiles if t.dtype == dtype])
                sign, function = pick.choice([("+", np.add), ("-", np.subtract), ("*", np.multiply), ("&", np.bitwise_and),
                                              ("|", np.bitwise_or), ("^", np.bitwise_xor)])  # fmt: skip
                self.add(f"{x.name} {sign} {y.name}", dtype, function(x.value, y.value))
            elif kind == "const":
                self.with_constant(x)
            elif kind == "shift":
                bits = np.dtype(DTYPES[dtype]).itemsize * 8
                amount = pick.randrange(min(bits, 20))
                sign, function = pick.choice([("<<", np.left_shift), (">>", np.right_shift)])
                value = function(x.value, DTYPES[dtype](amount))
                self.add(f"{x.name} {sign} {self.number(amount, dtype)}", dtype, value)
            elif kind == "cast":
                target = pick.choice(COMMON)
                self.add(f"{x.name}.to(gl.{target})", target, x.value.astype(DTYPES[target]))
            elif kind == "extreme":
                y = pick.choice([t for t in self.tiles if t.dtype == dtype])
                name, function = pick.choice([("minimum", np.minimum), ("maximum", np.maximum)])
                self.add(f"gl.{name}({x.name}, {y.name})", dtype, function(x.value, y.value))
            elif kind == "where" and self.masks:
                y, m = pick.choice([t for t in self.tiles if t.dtype == dtype]), pick.choice(self.masks)
                self.add(f"gl.where({m.name}, {x.name}, {y.name})", dtype, np.where(m.value, x.value, y.value))
            elif kind == "cmp":
                self.compare(x)
            elif kind == "masks" and self.masks:
                a, b = pick.choice(self.masks), pick.choice(self.masks)
                sign, function = pick.choice([("&", np.logical_and), ("|", np.logical_or)])
                self.add(f"{a.name} {sign} {b.name}", "int1", function(a.value, b.value))
            elif kind == "load" and self.masks:
                self.load(x)

    def with_constant(self, x: Tile) -> None:
        pick, dtype = self.random, x.dtype
        kind = DTYPES[dtype]
        sign = pick.choice(["+", "-", "*", "//", "//", "//", "%", "%", "&", "&", "|"])
        small = sign in "//%&" and pick.random() < 0.8
        number = pick.choice([1, 2, 4, 8, 16, 64, 6] if small else EDGES) * pick.choice([1, 1, 1, -1])
        size = 1 << 8 * np.dtype(kind).itemsize
        value = kind(np.array(number % size, np.uint64).astype(kind))
        if sign in ("//", "%"):
            if value in (0, -1) or (np.dtype(kind).kind == "i" and value == np.iinfo(kind).min):
                return
            quotient = np.abs(x.value.astype(object)) // abs(int(value))
            negative = (x.value.astype(object) < 0) != (int(value) < 0)
            quotient = np.where(negative, -quotient, quotient)
            result = quotient if sign == "//" else x.value.astype(object) - quotient * int(value)
            self.add(f"{x.name} {sign} {self.number(int(value), dtype)}", dtype, result.astype(kind))
            return
        function = {"+": np.add, "-": np.subtract, "*": np.multiply, "&": np.bitwise_and, "|": np.bitwise_or}[sign]
        self.add(f"{x.name} {sign} {self.number(int(value), dtype)}", dtype, function(x.value, value))

    def compare(self, x: Tile) -> None:
        pick = self.random
        sign = pick.choice(list(COMPARE))
        if pick.random() < 0.6:
            bound = int(x.value[pick.randrange(N)]) & -pick.choice([1, 4, 16])
            y, text = np.array(bound).astype(DTYPES[x.dtype]), self.number(bound, x.dtype)
        else:
            other = pick.choice([t for t in self.tiles if t.dtype == x.dtype])
            y, text = other.value, other.name
        self.add(f"{x.name} {sign} {text}", "int1", COMPARE[sign](x.value, y))

    def load(self, x: Tile) -> None:
        mask = self.random.choice(self.masks)
        self.lines.append(f"    at = {x.name} & {self.number(127, x.dtype)}")
        at = x.value & DTYPES[x.dtype](127)
        text = f"gl.load(x + at, mask={mask.name}, other=-7)"
        self.add(text, "int32", np.where(mask.value, self.x[at.astype(np.int64)], np.int32(-7)))

    def text(self, per_thread: int) -> tuple[str, dict[str, np.ndarray]]:
        """The kernel, and what it leaves in `out` and in `sums`."""
        for _ in range(3):
            self.leaf()
        self.compare(self.random.choice(self.tiles))
        for _ in range(self.random.randint(4, 14)):
            self.step()
        for _ in range(2):
            self.compare(self.random.choice(self.tiles[-3:]))
        body = list(self.lines)
        out = np.full((4, N), -1, np.int64)
        for row in range(4):
            value, mask = self.random.choice(self.tiles[-4:]), self.random.choice(self.masks[-3:])
            body.append(f"    gl.store(out + {row * N} + i, {value.name}.to(gl.int64), mask={mask.name})")
            out[row][mask.value] = value.value[mask.value].astype(np.int64)
        layout = f"gl.BlockedLayout([{per_thread}], [32], [4], [0])"
        head = f"@weft.jit\ndef program(out, x, n, k):\n    i = gl.arange(0, {N}, layout={layout})\n"
        return head + "\n".join(body) + "\n", {"out": out.ravel()}


def random_case(seed: int) -> tuple[str, int, dict[str, Any], np.ndarray]:
    """A kernel's text, the number of the program to run, its arguments, and what it leaves in `out`."""
    pick = random.Random(seed)
    n = pick.choice([*EDGES, -5, -(1 << 31), 48])
    k = pick.choice([*EDGES, -5, (1 << 63) - 600, -(1 << 63), (1 << 32) - 256, 1 << 40])
    n, program = min(n, (1 << 31) - 1), pick.choice(PROGRAMS)
    x = np.random.default_rng(seed).choice(np.array([*range(-20, 200), (1 << 31) - 1, -(1 << 31)], np.int32), N)
    writer = Writer(pick, program, {"n": n, "k": k}, x)
    text, found = writer.text(pick.choice([1, 2, 4, 4, 8]))
    return text, program, {"x": x, "n": n, "k": k}, found["out"]
