"""The prelude: functions that emitted text may call, as texts with their dependencies. A kernel's text contains those it uses.

Each is inline PTX in a function, or plain C++. The text includes no header: a small kernel without includes compiles in 30 ms.

A key is a function's name, followed by its parameter types if the name is overloaded; `Pieces.use` returns the name to call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

TYPES = """\
typedef signed char i8; typedef short i16; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
#define DEV __device__ __forceinline__"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of prelude text, and the keys of the pieces on which it depends."""

    text: str
    needs: tuple[str, ...] = ()


class Pieces:
    """The pieces that one kernel uses, in dependency order."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def use(self, key: str) -> str:
        """Add a piece of the table to the text; returns the name to call."""
        return self.define(key, PIECES[key])

    def define(self, key: str, piece: Piece) -> str:
        """Add a piece generated for this kernel to the text; returns the name to call."""
        if key not in self._texts:
            for need in piece.needs:
                self.use(need)
            self._texts[key] = piece.text
        return key.partition("(")[0]

    def distinct(self, name: str, make: Callable[[str], Piece]) -> str:
        """Add the piece that `make` generates for a name, which is numbered if another piece has it; returns the name to
        call."""
        numbered = (name if number == 1 else f"{name}_{number}" for number in count(1))
        made = ((called, make(called)) for called in numbered)
        return next(
            self.define(called, piece) for called, piece in made if self._texts.get(called, piece.text) == piece.text
        )

    @property
    def text(self) -> str:
        """The text of all pieces."""
        return "\n".join([TYPES, *self._texts.values()])


def _unary(name: str, result: str, operand: str, ptx: str, needs: tuple[str, ...] = ()) -> tuple[str, Piece]:
    """`name(x)` by one PTX instruction."""
    (out, reg_out), (into, reg_in) = _OPERANDS[result], _OPERANDS[operand]
    text = (
        f'DEV {result} {name}({operand} x) {{ {result} y; asm("{ptx} %0, %1;" '
        f': "={reg_out}"({out("y")}) : "{reg_in}"({into("x")})); return y; }}'
    )
    return f"{name}({operand})", Piece(text, (*_struct(result), *_struct(operand), *needs))


def _binary(name: str, type: str, ptx: str) -> tuple[str, Piece]:
    """`name(a, b)` by one PTX instruction on one type."""
    of, reg = _OPERANDS[type]
    text = (
        f'DEV {type} {name}({type} a, {type} b) {{ {type} y; asm("{ptx} %0, %1, %2;" '
        f': "={reg}"({of("y")}) : "{reg}"({of("a")}), "{reg}"({of("b")})); return y; }}'
    )
    return f"{name}({type})", Piece(text, _struct(type))


def _struct(type: str) -> tuple[str, ...]:
    return (type,) if type in ("f16", "bf16", "f8e4m3", "f8e5m2") else ()


def _itself(name: str) -> str:
    return name


def _bits(name: str) -> str:
    return f"{name}.bits"


_OPERANDS = {
    "f16": (_bits, "h"), "bf16": (_bits, "h"), "float": (_itself, "f"), "double": (_itself, "d"),
    "int": (_itself, "r"), "u32": (_itself, "r"), "i64": (_itself, "l"), "u64": (_itself, "l"),
}  # fmt: skip

_STRUCTS = {
    name: Piece(f"struct {name} {{ {bits} bits; }};")
    for name, bits in (("f16", "u16"), ("bf16", "u16"), ("f8e4m3", "u8"), ("f8e5m2", "u8"))
}

# Integers. Signed overflow is undefined in C but wraps in kernels, so arithmetic is unsigned and truncated to the type.
_INTEGERS = {
    **{
        f"{name}_wrap": Piece(f"template <typename T> DEV T {name}_wrap(T a, T b) {{ return (T)((u64)a {sign} (u64)b); }}")
        for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))
    },
    **{
        f"trips({type})": Piece(
            "// trip count of Python's range(lower, upper, step); 0 for a step of 0\n"
            f"DEV {word} trips({type} lower, {type} upper, {type} step) {{\n"
            f"  const {word} span = step > 0 ? ({word})upper - ({word})lower : ({word})lower - ({word})upper;\n"
            f"  const {word} by = step > 0 ? ({word})step : 0 - ({word})step;\n"
            "  return (step > 0 ? lower < upper : step < 0 && upper < lower) ? (span - 1) / by + 1 : 0; }"
        )
        for type, word in (("int", "u32"), ("i64", "u64"))
    },
    "shl": Piece(
        "// 0 for negative amounts and for amounts of the width or more\n"
        "template <typename T> DEV T shl(T x, T n) {\n"
        "  if constexpr (sizeof(T) == 8) return (u64)n < 64 ? (T)((u64)x << n) : (T)0;\n"
        "  else return (u32)n < 8 * sizeof(T) ? (T)((u32)x << n) : (T)0; }"
    ),
    "shr": Piece(
        "// sign fill for negative amounts and for amounts of the width or more\n"
        "template <typename T> DEV T shr(T x, T n) {\n"
        "  if ((u64)n < 8 * sizeof(T)) return (T)(x >> n);\n"
        "  return (T)(x < (T)0 ? -1 : 0); }"
    ),
}  # fmt: skip

# A bfloat16 is the upper half of a float32. cvt converts fp8 only in pairs, and only to f16x2 (PTX ISA, cvt), so a single
# element is converted together with its zero neighbour, and then from float16 to float32.
_SMALL_TO_FLOAT = {
    **dict([_unary("to_f32", "float", "f16", "cvt.f32.f16")]),
    "to_f32(bf16)": Piece("DEV float to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }", ("bf16",)),
    **{
        f"to_f32({name})": Piece(
            f"DEV float to_f32({name} x) {{\n"
            "  u32 pair; u16 low, high;\n"
            f'  asm("cvt.rn.f16x2.{ptx}x2 %0, %1;" : "=r"(pair) : "h"((u16)x.bits));\n'
            '  asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(pair));\n'
            "  return to_f32(f16{low}); }",
            (name, "to_f32(f16)"),
        )
        for name, ptx in (("f8e4m3", "e4m3"), ("f8e5m2", "e5m2"))
    },
}
# cvt to fp8 takes a pair of float32 and requires .satfinite (PTX ISA, cvt); the other element of the pair is zero.
_FLOAT_TO_SMALL = {
    **dict(
        _unary(f"to_{small}{suffix}", small, "float", f"cvt.{rounding}.{small}.f32")
        for small in ("f16", "bf16")
        for suffix, rounding in (("", "rn"), ("_rz", "rz"))
    ),
    **dict(
        _unary(f"to_f16{suffix}", "f16", "double", f"cvt.{rounding}.f16.f64")
        for suffix, rounding in (("", "rn"), ("_rz", "rz"))
    ),
    **{
        f"to_{name}(float)": Piece(
            f"DEV {name} to_{name}(float x) {{\n"
            f'  u16 pair; asm("cvt.rn.satfinite.{ptx}x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));\n'
            f"  return {name}{{(u8)pair}}; }}",
            (name,),
        )
        for name, ptx in (("f8e4m3", "e4m3"), ("f8e5m2", "e5m2"))
    },
}

# Half precision. bfloat16 add, sub and mul are fused multiply-adds with constants 1, -1 and -0: sm_80 has no bf16 add or mul
# (add.bf16 and mul.bf16 require sm_90; PTX ISA), and an fma with these constants rounds once on every target.
_HALVES = {
    **dict(_binary(f"operator{sign}", "f16", f"{name}.rn.f16") for sign, name in (("+", "add"), ("-", "sub"), ("*", "mul"))),
    **{
        f"operator{sign}(bf16)": Piece(
            f"DEV bf16 operator{sign}(bf16 a, bf16 b) {{ return fma_rn({arguments}); }}", ("fma_rn(bf16)",)
        )
        for sign, arguments in (
            ("+", "a, bf16{0x3f80}, b"), ("-", "b, bf16{0xbf80}, a"), ("*", "a, b, bf16{0x8000}"),
        )
    },
    **{
        f"fma_rn({type})": Piece(
            f"DEV {type} fma_rn({type} a, {type} b, {type} c) {{ {type} y; asm(\"fma.rn.{type} %0, %1, %2, %3;\" "
            ': "=h"(y.bits) : "h"(a.bits), "h"(b.bits), "h"(c.bits)); return y; }',
            (type,),
        )
        for type in ("f16", "bf16")
    },
}  # fmt: skip

# Minimum and maximum of floats: -0 is less than +0. If an operand is NaN the result is the other one, or NaN in the `_nan`
# functions.
_EXTREMES = {
    **dict(
        _binary(f"{name}_{suffix}", type, f"{name}{nan}.{ptx}")
        for name in ("min", "max")
        for suffix, nan in (("num", ""), ("nan", ".NaN"))
        for type, ptx in (("f16", "f16"), ("bf16", "bf16"), ("float", "f32"))
    ),
    **dict(_binary(f"{name}_num", "double", f"{name}.f64") for name in ("min", "max")),
    **{
        f"{name}_nan(double)": Piece(
            f"DEV double {name}_nan(double a, double b) {{ return a != a ? a : b != b ? b : {name}_num(a, b); }}",
            (f"{name}_num(double)",),
        )
        for name in ("min", "max")
    },
}

_APPROXIMATE = dict(
    _unary(name, "float", "float", ptx)
    for name, ptx in (
        ("exp2_approx", "ex2.approx.f32"), ("sqrt_approx", "sqrt.approx.f32"), ("rsqrt_approx", "rsqrt.approx.f32"),
    )
)  # fmt: skip


# Approximate instructions with .ftz. Without it ptxas scales subnormal numbers around the instruction: `ex2.approx.f32` takes
# four instructions, `ex2.approx.ftz.f32` one (13.0, sm_90a).
_INSTRUCTIONS = {
    **{f"{name}_ftz": f"{name}.approx.ftz.f32" for name in ("ex2", "lg2", "sin", "cos", "sqrt", "rsqrt", "div")},
    "tanh_approx": "tanh.approx.f32",
}


def _fast(name: str, text: str, operands: str = "x") -> tuple[str, Piece]:
    """A function of libdevice's names by these instructions."""
    parameters = ", ".join(f"float {each}" for each in operands)
    needs = tuple(f"{key}(float)" for key in _INSTRUCTIONS if f"{key}(" in text)
    return name, Piece(f"DEV float {name}({parameters}) {{ return {text}; }}", needs)


_FAST = {
    **dict(
        _binary(name, "float", ptx) if name == "div_ftz" else _unary(name, "float", "float", ptx)
        for name, ptx in _INSTRUCTIONS.items()
    ),
    **dict(
        (
            _fast("fast_exp2f", "ex2_ftz(x)"), _fast("fast_expf", "ex2_ftz(x * 1.44269504f)"),
            _fast("fast_exp10f", "ex2_ftz(x * 3.32192809f)"),
            _fast("fast_log2f", "lg2_ftz(x)"), _fast("fast_logf", "lg2_ftz(x) * 0.693147181f"),
            _fast("fast_log10f", "lg2_ftz(x) * 0.301029996f"), _fast("fast_powf", "ex2_ftz(y * lg2_ftz(x))", "xy"),
            _fast("fast_sqrtf", "sqrt_ftz(x)"), _fast("fast_rsqrtf", "rsqrt_ftz(x)"),
            _fast("fast_dividef", "div_ftz(x, y)", "xy"),
            _fast("fast_sinf", "sin_ftz(x)"), _fast("fast_cosf", "cos_ftz(x)"),
            _fast("fast_tanf", "div_ftz(sin_ftz(x), cos_ftz(x))"), _fast("fast_tanhf", "tanh_approx(x)"),
        )
    ),
}  # fmt: skip
_DIVISION = dict([_binary("div_full", "float", "div.full.f32")])

# Functions of CUDA's device library that NVRTC links without declaring them.
_LIBRARY = {
    name: Piece(f'extern "C" __device__ {result} {name}({parameters});')
    for name, result, parameters in (
        ("__nv_powif", "float", "float, int"), ("__nv_powi", "double", "double, int"), ("__nv_rcp64h", "double", "double"),
    )
}  # fmt: skip

# Conversions that C leaves undefined. Out-of-range floats saturate to the integer type's range, and NaN converts to 0, which
# cvt does by itself only from 32 bits to 32 bits.
_INTEGER_CODES = (("i32", "int", "s32"), ("u32", "u32", "u32"), ("i64", "i64", "s64"), ("u64", "u64", "u64"))


def _to_integer(code: str, type: str, ptx: str, source: str, register: str) -> tuple[str, Piece]:
    name = f"to_{code}"
    if source == "float" and code in ("i32", "u32"):
        return _unary(name, type, source, f"cvt.rzi.{ptx}.f32")
    kind = "f32" if source == "float" else "f64"
    letter = "r" if code in ("i32", "u32") else "l"
    text = (
        f'DEV {type} {name}({source} x) {{ {type} y; asm("cvt.rzi.{ptx}.{kind} %0, %1;" : "={letter}"(y) : "{register}"(x)); '
        "return x == x ? y : 0; }"
    )
    return f"{name}({source})", Piece(text)


_CONVERSIONS = {
    **dict(
        _to_integer(*codes, source, register)
        for codes in _INTEGER_CODES
        for source, register in (("float", "f"), ("double", "d"))
    ),
    **dict(
        _unary(f"to_{to}_rz", result, type, f"cvt.rz.{to}.{ptx}")
        for to, result in (("f32", "float"), ("f64", "double"))
        for _, type, ptx in _INTEGER_CODES
    ),
    **dict(
        _unary(f"to_f16{suffix}", "f16", type, f"cvt.{rounding}.f16.{ptx}")
        for suffix, rounding in (("", "rn"), ("_rz", "rz"))
        for _, type, ptx in _INTEGER_CODES
    ),
    **dict([_unary("to_f32_rz", "float", "double", "cvt.rz.f32.f64")]),
    **{
        f"to_f32_odd({type})": Piece(
            f"// round to odd: a second rounding to a narrower float then gives the correctly rounded result\n"
            f"DEV float to_f32_odd({type} x) {{\n"
            "  float y = to_f32_rz(x);\n"
            f"  return ({type})y == x ? y : __uint_as_float(__float_as_uint(y) | 1u); }}",
            (f"to_f32_rz({type})",),
        )
        for type in ("int", "u32", "i64", "u64", "double")
    },
}


# Shuffles; values narrower than 32 bits are widened to 32.
def _shuffle(kind: str, ptx: str, operand: str) -> Piece:
    def by_way_of(narrow: str, wide: str) -> str:
        exchanged = f"__shfl_{ptx}sync(0xffffffffu, ({wide})__builtin_bit_cast({narrow}, x), {operand})"
        return f"return __builtin_bit_cast(T, ({narrow}){exchanged});"

    return Piece(
        f"template <typename T> DEV T shuffle_{kind}(T x, int {operand}) {{\n"
        f"  if constexpr (sizeof(T) == 8) {by_way_of('u64', 'u64')}\n"
        f"  else if constexpr (sizeof(T) == 4) {by_way_of('u32', 'u32')}\n"
        f"  else if constexpr (sizeof(T) == 2) {by_way_of('u16', 'u32')}\n"
        f"  else {by_way_of('u8', 'u32')} }}"
    )


_SHUFFLES = {
    "shuffle_xor": _shuffle("xor", "xor_", "mask"),
    "shuffle_idx": _shuffle("idx", "", "lane"),
    "vote": Piece("DEV u32 vote(bool x) { return __ballot_sync(0xffffffffu, x); }"),
}

# Packing of elements narrower than 32 bits into 32-bit words.
_PACKING = {
    "pair16": Piece(
        "template <class T> DEV u32 pair16(T x, T y) {\n"
        "  return (u32)__builtin_bit_cast(u16, y) << 16 | __builtin_bit_cast(u16, x); }"
    ),
    # ptxas sees through these moves, so that two halves stay in the register that they were loaded to, or come from; NVRTC does
    # not see through assembly, and shifts leave ptxas two registers.
    "join16": Piece(
        'DEV u32 join16(u16 x, u16 y) { u32 w; asm("mov.b32 %0, {%1, %2};" : "=r"(w) : "h"(x), "h"(y)); return w; }'
    ),
    "part16": Piece(
        'DEV void part16(u16& x, u16& y, u32 w) { asm("mov.b32 {%0, %1}, %2;" : "=h"(x), "=h"(y) : "r"(w)); }'
    ),
    "pack16": Piece(
        "DEV u32 pack16(const void* p) { const u16* x = (const u16*)p; u32 w; "
        'asm("mov.b32 %0, {%1, %2};" : "=r"(w) : "h"(x[0]), "h"(x[1])); return w; }'
    ),
    "unpack16": Piece(
        "DEV void unpack16(void* p, u32 w) { u16* x = (u16*)p; "
        'asm("mov.b32 {%0, %1}, %2;" : "=h"(x[0]), "=h"(x[1]) : "r"(w)); }'
    ),
    "pack8": Piece(
        "// pairs that cvt produced stay pairs\n"
        "template <int N> DEV u32 pack8(const void* p) { u32 w = 0; memcpy(&w, p, N); return w; }"
    ),
    "unpack_bool": Piece(
        "// any non-zero byte is true\n"
        "template <int N> DEV void unpack_bool(bool* x, u32 w) {\n"
        "  #pragma unroll\n"
        "  for (int i = 0; i < N; ++i) x[i] = (u8)(w >> 8 * i) != 0; }"
    ),
    "unpack8": Piece(
        "template <int N, typename T> DEV void unpack8(T* x, u32 w) {\n"
        "  #pragma unroll\n"
        "  for (int i = 0; i < N; ++i) x[i] = __builtin_bit_cast(T, (u8)(w >> 8 * i)); }"
    ),
}

# Barriers and fences, whose memory clobber keeps the compiler from moving memory accesses across them, and setmaxnreg.
_SYNC = {
    # The non-aligned form, for warps that arrive from different instructions: `.aligned` requires all threads of a warp to
    # execute the same barrier instruction (PTX ISA, barrier).
    "barrier_sync": Piece(
        "template <int ID, int THREADS> DEV void barrier_sync() {\n"
        '  asm volatile("barrier.sync %0, %1;" :: "n"(ID), "n"(THREADS) : "memory"); }'
    ),
    "nanoseconds": Piece(
        'DEV u64 nanoseconds() { u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }'
    ),
    "bar_sync": Piece(
        "template <int ID, int THREADS> DEV void bar_sync() {\n"
        '  asm volatile("bar.sync %0, %1;" :: "n"(ID), "n"(THREADS) : "memory"); }'
    ),
    "bar_arrive": Piece(
        "template <int ID, int THREADS> DEV void bar_arrive() {\n"
        '  asm volatile("bar.arrive %0, %1;" :: "n"(ID), "n"(THREADS) : "memory"); }'
    ),
    # ptxas moves nothing across a trigger of performance monitor events, and one that selects no event does nothing. Neither
    # `asm volatile` nor operands keep arithmetic on its side of another instruction: ptxas does not see them.
    "schedule_barrier": Piece('DEV void schedule_barrier() { asm volatile("pmevent.mask 0;" ::: "memory"); }'),
    "fence_async": Piece('DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }'),
    "fence_async_cluster": Piece(
        'DEV void fence_async_cluster() { asm volatile("fence.proxy.async.shared::cluster;" ::: "memory"); }'
    ),
    "fence_async_global": Piece(
        'DEV void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }'
    ),
    "fence_cluster": Piece('DEV void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }'),
    # The memory clobber of both keeps accesses on their side: those before the wait run beside the launches waited for, and
    # dependents that start early take bandwidth from what stands behind their release.
    **{
        f"gdc_{name}": Piece(f'DEV void gdc_{name}() {{ asm volatile("griddepcontrol.{name};" ::: "memory"); }}')
        for name in ("wait", "launch_dependents")
    },
    "cluster_rank": Piece(
        'DEV int cluster_rank() { int rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); return rank; }'
    ),
    **{
        f"cluster_{name}": Piece(
            f'DEV void cluster_{name}() {{ asm volatile("barrier.cluster.{ptx}.aligned;" ::: "memory"); }}'
        )
        for name, ptx in (("arrive", "arrive"), ("arrive_relaxed", "arrive.relaxed"), ("wait", "wait"))
    },
    # elect.sync tells ptxas that a single lane is active. Without that knowledge ptxas generates a loop over the active lanes
    # around each TMA instruction (see `weft.cuda.elected.condition`).
    "elect_one": Piece(
        "// elects one lane of a converged warp; ptxas knows that a single lane is active\n"
        "DEV bool elect_one() {\n"
        '  u32 one; asm volatile("{\\n.reg .pred p;\\nelect.sync _|p, 0xffffffff;\\nselp.u32 %0, 1, 0, p;\\n}" : "=r"(one));\n'
        "  return one != 0; }"
    ),
    # setmaxnreg requires sm_90a and blocks until the registers are available. ptxas ignores it, with warning C7508, in a kernel
    # without a register limit at entry: `passes.bound_blocks` sets `__launch_bounds__(threads, 1)` for warp specialization.
    "take_registers": Piece(
        "template <int N> DEV void take_registers() {\n"
        '  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }'
    ),
    "give_registers": Piece(
        "template <int N> DEV void give_registers() {\n"
        '  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }'
    ),
}

_BLOCKS = {
    f"block_{axis}": Piece(
        "// volatile: the compiler otherwise sinks the read into loops and repeats it in each iteration\n"
        f'DEV int block_{axis}() {{ int n; asm volatile("mov.u32 %0, %%ctaid.{axis};" : "=r"(n)); return n; }}'
    )
    for axis in "xyz"
}

# The type of a tensor map parameter, opaque to the kernel.
# A tensor map is 128 bytes, aligned to 64 (CUDA Driver API, cuTensorMapEncodeTiled).
_TENSOR_MAPS = {"CUtensorMap": Piece("struct alignas(64) CUtensorMap { u64 opaque[16]; };")}

_MATRICES = {
    # The field holds bits 4 to 17 of the address, so operands are aligned to 16 bytes (PTX ISA, matrix descriptor format).
    "matrix_start": Piece(
        "// the start address field of a matrix descriptor\n"
        "DEV u32 matrix_start(u32 address) { return address >> 4 & 0x3fffu; }"
    ),
    "matrix": Piece("DEV u64 matrix(u32 high, u32 low) { return (u64)high << 32 | low; }"),
}
"""Matrix descriptors of shared memory operands. Only the lower half depends on the address."""

PIECES: dict[str, Piece] = {
    **_STRUCTS, **_TENSOR_MAPS,
    **_INTEGERS, **_SMALL_TO_FLOAT, **_FLOAT_TO_SMALL, **_HALVES, **_EXTREMES, **_APPROXIMATE, **_FAST, **_DIVISION, **_LIBRARY,
    **_CONVERSIONS, **_SHUFFLES, **_PACKING, **_SYNC, **_BLOCKS, **_MATRICES,
}  # fmt: skip

PIECE_NAMES = frozenset(key.partition("(")[0] for key in PIECES) | {
    "i8", "i16", "i64", "u8", "u16", "u32", "u64",
}  # fmt: skip
"""All names that the prelude may declare, so that no variable hides one."""
