"""Loads and stores as prelude functions: one per element type, width and modifiers, generated when a kernel uses it.

Each function accesses consecutive elements with one PTX instruction. Elements of 32 and 64 bits are its operands; narrower ones
are packed into 32-bit words. The `asm` is volatile, which keeps accesses in program order; ptxas may still overlap them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from typing import Literal

from weft.cuda.emitter import Emitter
from weft.cuda.text.prelude import Piece
from weft.cuda.text.spelling import c_type, is_small_float
from weft.ir.types import DType
from weft.ops.memory import L2Policy

Masked = Literal["", "if", "or"]
"""Unmasked; predicated, with undefined values where the predicate is false; predicated, leaving the registers unchanged
there."""

WEAK, VOLATILE = "", ".volatile"
"""PTX's memory order of an access: weak, volatile, or an order with a scope, as in `.acquire.gpu`."""

Matrix = Literal["", "plain", "transposed"]
"""A plain access, or one of 8x8 matrices whose rows are at the lanes' addresses (ldmatrix, stmatrix)."""

_REGISTER = {"f32": "f", "f64": "d"}


@dataclass(frozen=True, slots=True)
class AccessFunction:
    """One shape of access: `modifiers` are PTX's between the space and the type, as in `.cg` or `.L1::evict_last`; `l2` is the
    policy of a `.L2::cache_hint` among them.

    `multimem` is the instruction of an access by a multicast address up to its vector and type, as `ld_reduce.global.add`. A
    matrix access has `vec` elements per thread, one 32-bit word per matrix. A store that `signals` (st.async) takes an
    mbarrier's address after its own."""

    space: Literal["global", "shared", "shared::cluster"]
    dtype: DType
    vec: int
    masked: Masked = ""
    modifiers: str = ""
    strength: str = ""
    matrix: Matrix = ""
    signals: bool = False
    l2: L2Policy = ()
    multimem: str = ""

    @property
    def name(self) -> str:
        """The suffix of the function's name after `load_` or `store_`: `f32x4_cg_if`."""
        space = {"global": "", "shared": "shared_", "shared::cluster": "cluster_"}[self.space] + "async_" * self.signals
        space = {"": space, "plain": "matrix_", "transposed": "matrix_transposed_"}[self.matrix]
        tags = [tag.rpartition(":")[2] for tag in self.modifiers.split(".") if tag and tag != HINT[1:]]
        tags += [policy_name(self.l2)] if self.l2 else []
        tags += ["multimem", *self.multimem.replace("::", "_").split(".")] if self.multimem else []
        tags += [tag for tag in self.strength.split(".") if tag] + ([self.masked] if self.masked else [])
        return "_".join([f"{space}{self.dtype.code}x{self.vec}", *tags])

    @property
    def one(self) -> str:
        """The suffix of functions that load or store one element by value: `shared_f32_if`."""
        return self.name.replace(f"{self.dtype.code}x1", self.dtype.code)

    @property
    def address(self) -> tuple[str, str]:
        """C type and constraint of the address."""
        return (f"{c_type(self.dtype)}*", "l") if self.space == "global" else ("u32", "r")

    @property
    def word_bits(self) -> int:
        """The width of one operand of the instruction."""
        return 32 if self.matrix else max(self.dtype.itemsize * 8, min(32, self.vec * self.dtype.itemsize * 8))

    @property
    def words(self) -> int:
        """The number of operands of the instruction."""
        return self.vec * self.dtype.itemsize * 8 // self.word_bits

    @property
    def direct(self) -> bool:
        """True if elements are operands of the instruction, without packing."""
        return self.dtype.bits >= 32 and not (self.matrix and self.dtype.code in _REGISTER)

    @property
    def instruction(self) -> str:
        """The instruction after `ld` or `st`: space, modifiers, vector and type."""
        if self.matrix:
            return f"matrix.sync.aligned.m8n8.x{self.words}{'.trans' * (self.matrix == 'transposed')}.shared.b16"
        if self.multimem:
            return f"{f'.v{self.words}' if self.words > 1 else ''}.{self._combined}"
        kind = f"f{self.word_bits}" if self.dtype.code in _REGISTER else f"b{self.word_bits}"
        if self.signals:
            vector = f".v{self.words}" if self.words > 1 else ""
            return f".async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.{kind}"
        return f"{self.strength}.{self.space}{self.modifiers}{f'.v{self.words}' if self.words > 1 else ''}.{kind}"

    @property
    def _combined(self) -> str:
        """The type of a multimem instruction. PTX has sums of unsigned 64-bit integers only, which are those of signed ones."""
        if self.dtype.bits == 16 and self.dtype.is_floating():
            return f"{'bf16' if self.dtype.is_bf16() else 'f16'}x2"
        if self.dtype.is_floating():
            return f"f{self.word_bits}"
        what = self.multimem.rpartition(".")[2]
        if what not in ("add", "min", "max"):
            return f"b{self.word_bits}"
        signed = self.dtype.kind == "int" and not (what == "add" and self.word_bits == 64)
        return f"{'s' if signed else 'u'}{self.word_bits}"

    @property
    def register(self) -> str:
        """The constraint of an operand; inline assembly has no 8-bit one, so an 8-bit operand takes a 16-bit register."""
        return _REGISTER.get("" if self.matrix else self.dtype.code) or {64: "l", 32: "r"}.get(self.word_bits, "h")

    @property
    def word(self) -> str:
        """The C type of a packed word."""
        return "u32" if self.word_bits == 32 else "u16"


HINT = ".L2::cache_hint"
"""The qualifier of an access whose last operand is a policy of L2."""


def policy_name(l2: L2Policy) -> str:
    """The name of the function that creates a policy of L2: `l2_evict_first`, `l2_evict_last_0_5`."""
    primary, fraction, secondary = l2 or ("evict_normal", 1.0, "evict_unchanged")
    part = "" if fraction == 1.0 else "_" + re.sub(r"\W", "_", f"{fraction:.9g}")
    return f"l2_{primary}{part}" + (f"_{secondary}" if secondary != "evict_unchanged" else "")


def define_policy(e: Emitter, l2: L2Policy) -> list[str]:
    """Define the function that creates a policy of L2, before the functions that call it; its name in a list, or none."""
    if not l2:
        return []
    primary, fraction, secondary = l2
    other = f".L2::{secondary}" if secondary != "evict_unchanged" else ""
    name = policy_name(l2)
    # The statement is not volatile, so that all accesses of a kernel share the policy that it creates.
    create = f"createpolicy.fractional.L2::{primary}{other}.b64 %0, {_float(fraction)};"
    return [
        e.pieces.define(
            name, Piece(f'DEV u64 {name}() {{ u64 policy; asm("{create}" : "=l"(policy)); return policy; }}')
        )
    ]


def _float(number: float) -> str:
    """A float32 constant of PTX: 0f3F000000 is 0.5."""
    return f"0f{struct.pack('>f', number).hex().upper()}"


def read(e: Emitter, a: AccessFunction, address: str, mask: str | None, other: str | None = None) -> str:
    """An expression: the element at the address, or `other` if the predicate is false."""
    whole, element = f"load_{a.name}", c_type(a.dtype)
    pointer = f"const {a.address[0]}" if a.space == "global" else a.address[0]
    on = ", bool on" * bool(a.masked)
    given = f", {element} x" if a.masked == "or" else ""
    own = "" if a.masked == "or" else f"{element} x; "
    text = f"({pointer} p{on}{given}) {{ {own}{whole}(&x, p{', on' * bool(a.masked)}); return x; }}"
    e.pieces.define(whole, _load(whole, a))
    name = e.pieces.define(f"load_{a.one}", Piece(f"DEV {element} load_{a.one}{text}"))
    return f"{name}({', '.join(part for part in (address, mask, other) if part is not None)})"


def write(e: Emitter, a: AccessFunction, address: str, element: str, mask: str | None) -> str:
    """A statement that stores one element."""
    whole, on, bar = f"store_{a.name}", ", bool on" * bool(a.masked), ", u32 bar" * a.signals
    to = f"p{', bar' * a.signals}"
    text = f"({a.address[0]} p{bar}, {c_type(a.dtype)} x{on}) {{ {whole}({to}, &x{', on' * bool(a.masked)}); }}"
    e.pieces.define(whole, _store(whole, a))
    name = e.pieces.define(f"store_{a.one}", Piece(f"DEV void store_{a.one}{text}"))
    return f"{name}({', '.join(part for part in (address, element, mask) if part is not None)});"


def load(e: Emitter, access: AccessFunction, registers: str, address: str, mask: str | None) -> str:
    """A statement that loads `vec` registers."""
    key = f"load_{access.name}"
    e.pieces.define(key, _load(key, access))
    return f"{key}({', '.join([registers, address, *([] if mask is None else [mask])])});"


def store(e: Emitter, access: AccessFunction, address: str, registers: str, mask: str | None) -> str:
    """A statement that stores `vec` registers."""
    key = f"store_{access.name}"
    e.pieces.define(key, _store(key, access))
    return f"{key}({', '.join([address, registers, *([] if mask is None else [mask])])});"


def part(e: Emitter, access: AccessFunction, way: Literal["load", "store"]) -> str:
    """The function that loads or stores elements `begin` to `end` of a vector one by one, if `on` holds."""
    one = replace(access, vec=1)
    each, name = f"{way}_{one.name}", f"{way}_{access.name}_part"
    e.pieces.define(each, (_load if way == "load" else _store)(each, one))
    element = c_type(access.dtype)
    const = ("const ", "") if way == "load" else ("", "const ")
    arguments = "x + j, p + j" if way == "load" else "p + j, x + j"
    text = (
        f"DEV void {name}({const[0]}{element}* p, {const[1]}{element}* x, bool on, int begin, int end) {{\n"
        f"  if (!on) return;\n  #pragma unroll\n"
        f"  for (int j = 0; j < {access.vec}; ++j) if (begin <= j && j < end) {each}({arguments}); }}"
    )
    return e.pieces.define(name, Piece(text))


def _load(name: str, a: AccessFunction) -> Piece:
    element, (address, letter) = c_type(a.dtype), a.address
    pointer = f"const {address}" if a.space == "global" else address
    head = f"DEV void {name}({element}* x, {pointer} p{', bool on' if a.masked else ''}) {{"
    keeps = a.masked == "or"
    into = "x" if a.direct else "w"
    outputs = ", ".join(f'"={"&" * keeps}{a.register}"({into}[{i}])' for i in range(a.words))
    inputs = f'"{letter}"(p)'
    before = ""
    if keeps:
        # The moves of `other` precede the load unconditionally. Moves after it, under the opposite predicate, are converted by
        # ptxas to a select, which waits for each load in turn.
        moves = (f"mov.b{max(a.word_bits, 16)} %{i}, %{a.words + 2 + i};\\n" for i in range(a.words))
        before = "".join(moves)
    asm = _asm(
        _mnemonic("ld", a), a, f"{_braces(a, 0)}, [%{a.words}]", outputs, inputs, before, _kept(a) if keeps else ""
    )
    if a.direct:
        return Piece(f"{head}\n  {asm} }}")
    words = f"  {a.word} w[{a.words}];\n" + (f"  {_pack(a, 'other')}\n" if keeps else "")
    needs = (*_needs(a, _unpacker(a)), *(_needs(a, _packer(a)) if keeps else ()))
    return Piece(f"{head}\n{words}  {asm}\n  {_unpack(a)} }}", needs)


def _kept(a: AccessFunction) -> str:
    """The operands of a masked load as read and written (`+`), since it leaves registers unchanged where the mask is false."""
    source = "x" if a.direct else "other"
    return "".join(f', "{a.register}"({source}[{i}])' for i in range(a.words))


def _store(name: str, a: AccessFunction) -> Piece:
    element, (address, letter) = c_type(a.dtype), a.address
    bar, barrier = (", u32 bar", ['"r"(bar)']) if a.signals else ("", [])
    head = f"DEV void {name}({address} p{bar}, const {element}* x{', bool on' if a.masked else ''}) {{"
    words = [f'"{a.register}"({"x" if a.direct else "w"}[{i}])' for i in range(a.words)]
    signal = f", [%{a.words + 1}]" if a.signals else ""
    asm = _asm(
        _mnemonic("st", a), a, f"[%0], {_braces(a, 1)}{signal}", "", ", ".join([f'"{letter}"(p)', *words, *barrier])
    )
    if a.direct:
        return Piece(f"{head}\n  {asm} }}")
    return Piece(f"{head}\n  {_pack(a)}\n  {asm} }}", _needs(a, _packer(a)))


def _braces(a: AccessFunction, first: int) -> str:
    names = [f"%{first + i}" for i in range(a.words)]
    return f"{{{', '.join(names)}}}" if a.words > 1 or a.matrix else names[0]


def _mnemonic(way: str, a: AccessFunction) -> str:
    return f"multimem.{a.multimem}" if a.multimem else way


def _asm(
    mnemonic: str, a: AccessFunction, operands: str, outputs: str, inputs: str, before: str = "", kept: str = ""
) -> str:
    # An access that is ordered with other threads' accesses also clobbers memory, so that NVRTC moves no access across it,
    # including those of shared memory.
    clobber = ' : "memory"' if mnemonic != "ld" or a.strength not in (WEAK, VOLATILE) else ""
    results = f" {outputs}" if outputs else ""
    if a.l2:
        kept += f', "l"({policy_name(a.l2)}())'
        moved = a.words if a.masked == "or" else 0
        operands += f", %{a.words + 1 + a.signals + bool(a.masked) + moved}"
    if not a.masked:
        inputs += kept
        return (
            f'asm volatile("{mnemonic}{a.instruction} {operands};" :{outputs and f" {outputs} "}: {inputs}{clobber});'
        )
    guarded = (
        f"{{\\n.reg .pred on;\\nsetp.ne.b32 on, %{a.words + 1 + a.signals}, 0;\\n{before}"
        f"@on {mnemonic}{a.instruction} {operands};\\n}}"
    )
    return f'asm volatile("{guarded}"\n    :{results}\n    : {inputs}, "r"((int)on){kept}{clobber});'


def _needs(a: AccessFunction, piece: str) -> tuple[str, ...]:
    struct = (a.dtype.code,) if is_small_float(a.dtype) else ()
    return (*struct, piece) if a.dtype.itemsize == 1 or (a.word_bits == 32 and a.dtype.itemsize < 4) else struct


def _packer(a: AccessFunction) -> str:
    return "pack8" if a.dtype.itemsize == 1 else "pack16"


def _unpacker(a: AccessFunction) -> str:
    if a.dtype.is_bool():
        return "unpack_bool"
    return "unpack8" if a.dtype.itemsize == 1 else "unpack16"


def _pack(a: AccessFunction, name: str = "w") -> str:
    """Statements that pack elements into words."""
    per_word = a.vec // a.words
    if a.dtype.itemsize == 4:
        words = [f"__builtin_bit_cast(u32, x[{i}])" for i in range(a.words)]
    elif a.dtype.itemsize == 1:
        words = [f"({a.word})pack8<{per_word}>(x + {i * per_word})" for i in range(a.words)]
    elif a.word_bits == 32:
        words = [f"pack16(x + {i * 2})" for i in range(a.words)]
    else:
        words = ["*(const u16*)x"]
    return f"const {a.word} {name}[{a.words}] = {{{', '.join(words)}}};"


def _unpack(a: AccessFunction) -> str:
    """Statements that unpack words into elements."""
    per_word = a.vec // a.words
    if a.dtype.itemsize == 4:
        return " ".join(f"x[{i}] = __builtin_bit_cast({c_type(a.dtype)}, w[{i}]);" for i in range(a.words))
    if a.dtype.itemsize == 1:
        return " ".join(f"{_unpacker(a)}<{per_word}>(x + {i * per_word}, w[{i}]);" for i in range(a.words))
    if a.word_bits == 32:
        return " ".join(f"{_unpacker(a)}(x + {i * 2}, w[{i}]);" for i in range(a.words))
    return "*(u16*)x = w[0];"
