"""Running one kernel everywhere it can run, and saying whether numbers agree.

    def test_sum(run, rng):
        x, out = values(rng, np.float32, 1000), poison(1000, np.float32)
        run(kernel, 4, out, x, 1000, ...)            # NumPy arrays in, results in `out`
        same(out, x + x)

In the simulator `run` also runs the lowered IR on fresh copies, which must leave the same bits, as must other schedules of a
kernel that uses shared memory, and compiles the CUDA text, which must spill nothing and keep no array in memory. On a GPU it
also runs the simulator, which must leave the GPU's bits. References are NumPy's, in wider types: nothing here asks weft what is
right. `Described(x, block, layout)` among the arguments is an array whose descriptor the kernel gets, `Viewed(x, layout)` one
that it gets a view of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import StringIO
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

import weft
from tests.conftest import Device
from weft import compiler, sim
from weft import language as gl
from weft.kernel import JITFunction, host_values
from weft.nvidia.hopper import TensorDescriptor
from weft.runtime import grid as grids
from weft.runtime.compiled import CompiledKernel
from weft.views import LayoutTensor

FP8_MAX = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
NUMPY: dict[Any, Any] = {
    gl.int1: np.bool_, gl.int8: np.int8, gl.int16: np.int16, gl.int32: np.int32, gl.int64: np.int64,
    gl.uint8: np.uint8, gl.uint16: np.uint16, gl.uint32: np.uint32, gl.uint64: np.uint64,
    gl.float8e4nv: ml_dtypes.float8_e4m3fn, gl.float8e5: ml_dtypes.float8_e5m2,
    gl.float16: np.float16, gl.bfloat16: ml_dtypes.bfloat16, gl.float32: np.float32, gl.float64: np.float64,
}  # fmt: skip
SIGNED = (gl.int8, gl.int16, gl.int32, gl.int64)
UNSIGNED = (gl.uint8, gl.uint16, gl.uint32, gl.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = (gl.float16, gl.bfloat16, gl.float32, gl.float64)
FP8 = (gl.float8e4nv, gl.float8e5)
DTYPES = (gl.int1, *INTEGERS, *FP8, *FLOATS)
POISON = 0xA5


@dataclass(frozen=True)
class Described:
    """An array that a kernel gets the descriptor of: of all of it, or of the first `columns` of its last dimension."""

    array: np.ndarray
    block_shape: list[int]
    layout: Any
    padding: str = "zero"
    columns: int | None = None
    rounds: bool = False

    def of(self, array: Any) -> TensorDescriptor:
        """The descriptor of a copy of the array, on any device."""
        part = array[..., : self.columns]
        return TensorDescriptor.from_tensor(part, self.block_shape, self.layout, self.padding, self.rounds)


@dataclass(frozen=True)
class Viewed:
    """An array that a kernel gets a view of, with a layout (its own, if there is none) and what else a view takes."""

    array: np.ndarray
    layout: Any = None
    masked: bool = False

    def of(self, array: Any) -> LayoutTensor:
        """The view of a copy of the array, on any device."""
        return LayoutTensor(array, self.layout, masked=self.masked)


@dataclass(frozen=True)
class Within:
    """An array that is a part of the argument that `make` makes of it, such as a tuple."""

    array: np.ndarray
    make: Callable[[Any], Any]

    def of(self, array: Any) -> Any:
        """The argument with a copy of the array, on any device."""
        return self.make(array)


_MADE = Described, Viewed, Within


@dataclass(frozen=True)
class Runner:
    """Runs kernels on a device; see the module."""

    device: Device

    def __call__(
        self, kernel: JITFunction, grid: Any, *args: Any, compiles: bool = True, spills: bool = False,
        exact: bool = True, ordered: bool = True, **options: Any,
    ) -> CompiledKernel:  # fmt: skip
        """Launch on the device and write every array that changed back into the given ones; read-only ones must not change.

        `compiles=False` leaves NVRTC out; `spills` allows local memory; `exact=False` says that the GPU may be off by a stated
        bound; `ordered=False` that results depend on the order of threads. Options are the launch's.
        """
        assert not any(isinstance(a, (TensorDescriptor, LayoutTensor)) for a in args), (
            "of a host array: `Described`, `Viewed`"
        )
        described, args = args, tuple(a.array if isinstance(a, _MADE) else a for a in args)
        first = [self.device.array(a) if isinstance(a, np.ndarray) else a for a in args]
        compiled = kernel[grid](*as_given(described, first), **options)
        results = [self.device.numpy(a) if isinstance(g, np.ndarray) else g for a, g in zip(first, args, strict=True)]
        if self.device.is_gpu:
            again = [copied(a) for a in args]
            if exact and ordered:
                kernel[grid](*as_given(described, again), **options)
                agree("the GPU and the simulator", results, again)
        else:
            again = [copied(a) for a in args]
            run_lowered(kernel, compiled, grid, as_given(described, again), options)
            if ordered:
                agree("tile IR and lowered IR", results, again)
            if compiled.front.tile.attrs.shared_bytes:
                run_otherwise(kernel, grid, described, args, options, results if ordered else args)
            if compiles:
                check_machine_code(compiled, spills)
        for given, result in zip(args, results, strict=True):
            if not isinstance(given, np.ndarray):
                continue
            if given.flags.writeable:
                bits(given)[...] = bits(result)
            else:
                np.testing.assert_array_equal(bits(result), bits(given), "an input changed")
        return compiled


def check_machine_code(compiled: CompiledKernel, spills: bool = False) -> None:
    """NVRTC takes the CUDA text for the simulated target, and every tile stays in registers."""
    made = compiled.front.machine_code
    if not spills:
        assert (made.n_spills, made.stack) == (0, 0), f"spills or local memory:\n{compiled.asm['cuda']}"


def run_lowered(
    kernel: JITFunction, compiled: CompiledKernel, grid: Any, args: Any, options: Any, programs: Any = None
) -> list[str]:
    """Run the lowered IR of a simulated launch on these arrays, or some programs of it; gives what it printed."""
    bound, _ = kernel.signature.bind(args, options)
    size = grids.evaluate(kernel.__name__, grid if callable(grid) else grids.normalise(kernel.__name__, grid), bound)
    stages = compiled.front
    named: dict[str, Any] = {}
    for name, kind in compiled.request.run_time.items():
        named.update(host_values(name, kind, bound[name]))
    given = compiler.given(stages.lowered, named)
    out = StringIO()
    return sim.run(
        stages.lowered, size, given, target=stages.target, stdout=out, progress=False, programs=programs
    ).lines


def run_otherwise(
    kernel: JITFunction, grid: Any, described: Sequence[Any], args: Any, options: Any, results: Any
) -> None:
    """Run with copies that move their data at other times and tasks in another order: the same comes of it, and no alarm."""
    for schedule, seed in (("early", 1), ("random", 2), ("random", 3)):
        again = [copied(a) for a in args]
        with weft.simulate(schedule=schedule, seed=seed):
            kernel[grid](*as_given(described, again), **options)
        if results is not args:
            agree(f"copies that are {schedule} (seed {seed}) and late ones", results, again)


def as_given(described: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Arrays, and descriptors or views of those that were given as one of `_MADE`."""
    return [d.of(a) if isinstance(d, _MADE) else a for d, a in zip(described, arrays, strict=True)]


def copied(value: Any) -> Any:
    """A writable copy of an array at a fresh address; anything else as it is."""
    return np.array(value, copy=True) if isinstance(value, np.ndarray) else value


def agree(what: str, first: list[Any], second: list[Any]) -> None:
    """Arrays hold the same bits, NaNs aside (whose payloads are unspecified)."""
    for number, (a, b) in enumerate(zip(first, second, strict=True)):
        if isinstance(a, np.ndarray):
            same(a, b, f"{what} disagree about argument {number}")


# Data


def specials(dtype: Any) -> np.ndarray:
    """Values at which arithmetic goes wrong: infinities, NaN, both zeros, subnormals, extremes, one and its neighbours."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return np.array([False, True])
    if kind.kind in "iu":
        info = np.iinfo(kind)
        wanted = [0, 1, 2, 3, 7, -1, -2, info.min, info.min + 1, info.max, info.max - 1, info.max // 2 + 1]
        return np.array([v for v in dict.fromkeys(wanted) if info.min <= v <= info.max], kind)
    info = ml_dtypes.finfo(kind)
    largest, tiny, least = (float(getattr(info, name)) for name in ("max", "smallest_normal", "smallest_subnormal"))
    step = float(info.eps)
    both = [0.0, least, tiny - least, tiny, 0.5, 1.0, 1.0 + step, 1.5, 3.0, largest]
    found = [sign * v for v in both for sign in (1.0, -1.0)] + [np.nan]
    if kind.name != "float8_e4m3fn":
        found += [np.inf, -np.inf]
    return np.array(found, np.float64).astype(kind)


def random(rng: np.random.Generator, dtype: Any, size: int | tuple[int, ...]) -> np.ndarray:
    """Integers over their whole range, half of them small; floats of all moderate magnitudes and both signs."""
    kind, count = np.dtype(dtype), int(np.prod(size))
    if kind == np.bool_:
        found = rng.integers(0, 2, count).astype(bool)
    elif kind.kind in "iu":
        whole = rng.integers(0, 256, count * kind.itemsize, dtype=np.uint8).view(kind)
        small = rng.integers(-9 if kind.kind == "i" else 0, 10, count).astype(kind)
        found = np.where(rng.random(count) < 0.5, whole, small)
    else:
        found = (rng.normal(size=count) * np.exp2(rng.integers(-4, 5, count))).astype(kind)
    return frozen(found.reshape(size))


def values(rng: np.random.Generator, dtype: Any, size: int) -> np.ndarray:
    """`random`, with the special values strewn in."""
    found = np.array(random(rng, dtype, size))
    special = specials(dtype)[:size]
    found[rng.permutation(size)[: special.size]] = special
    return frozen(found)


def pairs(rng: np.random.Generator, dtype: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays in which every special value meets every other, and random ones meet random ones."""
    special = specials(dtype)
    x, y = (np.array(random(rng, dtype, size)) for _ in range(2))
    count = min(special.size**2, size)
    x[:count], y[:count] = np.repeat(special, special.size)[:count], np.tile(special, special.size)[:count]
    return frozen(x), frozen(y)


def frozen(array: np.ndarray) -> np.ndarray:
    """An input: the kernel must leave it alone."""
    array.flags.writeable = False
    return array


def poison(size: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """An output: bytes that no test expects (of bools, all true)."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return np.ones(size, bool)
    count = prod(size) if isinstance(size, tuple) else size
    return np.full(count * kind.itemsize, POISON, np.uint8).view(kind).reshape(size)


# Comparison


def bits(array: np.ndarray) -> np.ndarray:
    """The same memory as unsigned integers."""
    return array.view(f"u{array.dtype.itemsize}")


def is_nan(array: np.ndarray) -> np.ndarray:
    """Where floats are NaN; nowhere in other arrays."""
    if array.dtype.kind in "iub":
        return np.zeros(array.shape, bool)
    with np.errstate(invalid="ignore"):
        return np.isnan(array)


def same(found: np.ndarray, expected: np.ndarray, what: str = "") -> None:
    """Bit for bit equal, and NaN where the other is NaN."""
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    wrong = (bits(found) != bits(expected)) & ~(is_nan(found) & is_nan(expected))
    places = np.argwhere(wrong)[:8]
    shown = "\n".join(f"  {tuple(map(int, p))}: {found[tuple(p)]!r}, want {expected[tuple(p)]!r}" for p in places)
    assert not wrong.any(), f"{what or 'results'}: {np.count_nonzero(wrong)} of {wrong.size} differ\n{shown}"


def kept_poison(found: np.ndarray, start: int) -> None:
    """Everything from `start` on is still what `poison` put there."""
    rest = found.reshape(-1)[start:]
    np.testing.assert_array_equal(
        bits(rest), bits(poison(rest.size, rest.dtype)), "elements beyond the mask were written"
    )


def within(found: np.ndarray, exact: np.ndarray, ulps: float) -> None:
    """Within so many units in the last place of the exact values, which are given in a wider type.

    Infinities, NaNs and zeros where the exact result, rounded, has them.
    """
    rounded = exact.astype(found.dtype)
    wide = exact.astype(np.longdouble)
    finite = np.isfinite(rounded.astype(np.float64)) & np.isfinite(found.astype(np.float64))
    same(np.where(finite, 0, found).astype(found.dtype), np.where(finite, 0, rounded).astype(found.dtype))
    unit = np.maximum(np.abs(np.spacing(rounded)), np.finfo(found.dtype).smallest_subnormal).astype(np.longdouble)
    off = np.where(finite, np.abs(found.astype(np.longdouble) - wide) / unit, 0)
    worst = int(np.argmax(off))
    assert off.max(initial=0) <= ulps, (
        f"{float(off.flat[worst]):.2f} ulp off: {found.flat[worst]!r}, want {wide.flat[worst]!r}"
    )


def rounded(x: np.ndarray, dtype: Any, toward_zero: bool = False) -> np.ndarray:
    """Numbers of any type as floats of `dtype`, rounded once (to nearest even), from the definition of the format.

    fp8 saturates at its largest finite number. Everything is computed in the x87's 64-bit significands, which hold every
    integer and float of weft.
    """
    kind = np.dtype(dtype)
    info = ml_dtypes.finfo(kind)
    wide = (
        x.astype(np.float32).astype(np.longdouble)
        if x.dtype.itemsize < 4 and x.dtype.kind not in "iub"
        else x.astype(np.longdouble)
    )
    largest = np.longdouble(float(info.max))
    _, exponent = np.frexp(np.where(np.isfinite(wide), wide, 0))
    quantum = np.ldexp(np.longdouble(1), np.maximum(exponent - 1, info.minexp) - info.nmant)
    whole = np.trunc(wide / quantum) if toward_zero else np.rint(wide / quantum)
    result = np.where(np.isfinite(wide), whole * quantum, wide)
    beyond = np.abs(result) > largest
    if kind.name in FP8_MAX or toward_zero:
        clamps = beyond & (np.isfinite(wide) | (kind.name in FP8_MAX))
        result = np.where(clamps, np.copysign(largest, wide), result)
    elif kind.itemsize < 8:
        result = np.where(beyond, np.copysign(np.longdouble(np.inf), wide), result)
    # Every value left is one of the format's, so that no further conversion rounds.
    return result.astype(np.float64).astype(kind)


def fma_exactly(x: np.ndarray, y: np.ndarray, z: np.ndarray, kind: Any) -> np.ndarray:
    """`x * y + z` with one rounding to nearest even: an exact fraction, rounded by the definition of the format."""
    info = ml_dtypes.finfo(kind)
    out = np.empty(x.size, kind)
    for i, (a, b, c) in enumerate(zip(x.tolist(), y.tolist(), z.tolist(), strict=True)):
        if not np.isfinite([a, b, c]).all():
            # A product of finite numbers is finite, however large.
            with np.errstate(all="ignore"):
                out[i] = c if np.isfinite([a, b]).all() else np.float64(a) * np.float64(b) + np.float64(c)
            continue
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact == 0:
            out[i] = np.float64(a) * np.float64(b) + np.float64(c) if a * b == 0 else 0.0
            continue
        exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
        exponent -= abs(exact) < Fraction(2) ** exponent
        quantum = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
        near = round(exact / quantum) * quantum
        largest = Fraction(float(info.max))
        number = float("inf") if abs(near) > largest else float(abs(near))
        out[i] = -number if exact < 0 else number
    return out
