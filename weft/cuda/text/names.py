"""Names in the emitted text: the author's names, made legal and unique."""

from __future__ import annotations

import re
from functools import lru_cache

from weft.ops.libdevice import FUNCTIONS

REGISTER = "r"
"""The index variable of unrolled loops over a thread's registers."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = _words(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const
    const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false
    float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
    while xor xor_eq"""
)
# C functions that NVRTC declares implicitly: a kernel cannot have their names, and a variable would hide them.
BUILTINS = _words(
    """abort abs acos acosf acosh asin asinf asinh assert atan atan2 atanf atanh cbrt ceil ceilf clock clock64 copysign
    copysignf cos cosf cosh cospi cyl_bessel_i0 erf erfc erff erfinv exp exp10 exp2 exp2f expf expm1 fabs fabsf fdim
    floor floorf fma fmaf fmax fmaxf fmin fminf fmod fmodf free frexp hypot ilogb isfinite isinf isnan j0 j1 jn labs
    ldexp lgamma llabs llmax llmin llrint log log10 log1p log2 log2f logb logf lrint main malloc max memcpy memset min
    modf nan nearbyint nextafter norm norm3d normcdf pow powf printf rcbrt remainder remquo rint round rsqrt rsqrtf
    scalbn signbit sin sincos sinf sinh sinpi sqrt sqrtf tan tanf tanh tanhf tgamma trap trunc truncf ullmax ullmin
    umax umin va_list vprintf warpSize y0 y1 yn
    threadIdx blockIdx blockDim gridDim"""
) | {overload.cuda for function in FUNCTIONS.values() for overload in function.overloads}
# The macros without a leading underscore that NVRTC 13.0 defines, found by `#ifdef` on every word in its libraries: no variable
# can have such a name. CUDA's own macros form families that grow with each release.
_MACRO = re.compile(r"NULL|assert|va_(arg|copy|end|start)|NV_\w+|CUDARTAPI\w*|CUDART_\w+")
# Types that NVRTC declares implicitly: a variable may hide them, but a kernel cannot have their names.
_TYPES = _words("dim3 size_t ptrdiff_t nullptr_t uint3 cudaStream_t cudaError_t")
OWN = _words("DEV shared_memory scratch")
"""Names that the emitted text declares, in addition to the functions that it calls."""

# Names of the functions generated for a kernel (`weft.cuda.text.accesses`, `weft.cuda.text.atomics`).
_MADE = re.compile(
    r"(load|store)_(shared_|matrix_)?\w+x\d+\w*|(load|store)_(shared_)?([iuf]\d+|bf16|f8e\dm\d)(_\w+)?|atomic_\w+|add_shared\w*"
    r"|padded_\d+\w*|copy_async_\w+|mbar_\w+|fence_mbar_init|tma_(load|store|reduce)_\w+|bulk_\w+|nanoseconds|(make|prefetch)_map\w*"
    r"|tma_(gather|scatter)4|(tmem|tcgen05|clc|wgmma)_\w+"
)


class Names:
    """Creates names that differ from keywords, built-ins and earlier names: `x`, `x_1`, `x_2`."""

    __slots__ = ("_next", "_taken")

    def __init__(self, reserved: frozenset[str]) -> None:
        self._taken = set(reserved | KEYWORDS | BUILTINS | OWN | {REGISTER})
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """A unique name derived from `wanted`; unnamed values are called `t`."""
        base = _legal(wanted)
        name, number = base, self._next.get(base, 0)
        while name in self._taken:
            number += 1
            name = f"{base.rstrip('_')}_{number}"
        self._next[base] = number
        self._taken.add(name)
        return name


@lru_cache(maxsize=1 << 12)
def _legal(wanted: str) -> str:
    """`wanted` as a C++ name that neither C++ nor the prelude reserves as a family of names."""
    base = re.sub(r"\W", "_", wanted, flags=re.ASCII) or "t"
    # C++ reserves names with double underscores, and those that begin with an underscore and a capital letter.
    base = re.sub(r"__+", "_", base).lstrip("_0123456789") or "t"
    return f"my_{base}" if _MADE.fullmatch(base) or _MACRO.fullmatch(base) else base


def symbol(name: str, reserved: frozenset[str]) -> str:
    """The symbol of a kernel: its name, or one derived from it if CUDA C++ or the emitted text (`reserved`) reserves the name.

    >>> symbol("matmul", frozenset()), symbol("NULL", frozenset()), symbol("größe", frozenset())
    ('matmul', 'my_NULL_kernel', 'gr_e_kernel')
    """
    made, bare = Names(reserved | _TYPES).fresh(name), name.lstrip("_")
    # A single leading underscore is legal before a lower-case letter.
    return name if made == bare and name in (bare, f"_{bare}") and not re.match("_[A-Z]", name) else f"{made}_kernel"
