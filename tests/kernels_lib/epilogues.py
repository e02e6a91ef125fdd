"""Epilogues as tests give them to `matmul`, and what the output has to be: float64 values, and how far off they may be."""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, sqrt
from typing import Any

import ml_dtypes
import numpy as np

import weft
from tests.kernels_lib.matrices import TYPES, Lies, operand
from weft import language as gl

ROUNDED = 2.0**-23
"""Of a result in float32, for two roundings: of an operation and of what it begins with."""
ERF = np.vectorize(erf, otypes=[float])


@dataclass(frozen=True)
class Activation:
    """An activation in float64, the largest slope that it has, and how far off the GPU's is: for outputs of 32 bits and of 16,
    each relative to the value and to x."""

    exact: Any
    slope: float
    wide: tuple[float, float] = (0.0, 0.0)
    brief: tuple[float, float] = (0.0, 0.0)


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _tanh_of(x: np.ndarray) -> np.ndarray:
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


# erf and tanh of float32 are within 2 ulp; the hardware's tanh has a relative error of 2^-11 (PTX ISA, tanh). Exponentials of
# x lose |x| roundings, of which tests have fewer than 32.
ACTIVATIONS = {
    "relu": Activation(lambda x: np.maximum(x, 0), 1),
    "relu_squared": Activation(lambda x: np.maximum(x, 0) ** 2, 64, (2.0**-22, 0), (2.0**-22, 0)),
    "gelu": Activation(lambda x: x / 2 * (1 + ERF(x / sqrt(2))), 1.13, (0, 2.0**-21), (0, 2.0**-21)),
    "gelu_tanh": Activation(lambda x: x / 2 * (1 + _tanh_of(x)), 1.13, (0, 2.0**-20), (0, 2.0**-12 + 2.0**-20)),
    "silu": Activation(_silu, 1.1, (2.0**-17, 0), (2.0**-17, 0)),
    "sigmoid": Activation(lambda x: 1 / (1 + np.exp(-x)), 0.25, (2.0**-17, 0), (2.0**-17, 0)),
    "tanh": Activation(np.tanh, 1, (2.0**-21, 0), (2.0**-10.9, 0)),
}  # fmt: skip


@dataclass(frozen=True)
class About:
    """Numbers, and how far off each may be."""

    value: np.ndarray
    off: np.ndarray

    def add(self, x: Any) -> About:
        value = self.value + np.asarray(x, np.float64)
        return About(value, self.off + ROUNDED * (np.abs(value) + self.off))

    def times(self, x: Any) -> About:
        x = np.asarray(x, np.float64)
        value, off = self.value * x, self.off * np.abs(x)
        return About(value, off + ROUNDED * (np.abs(value) + off))

    def by(self, other: About) -> About:
        value = self.value * other.value
        off = self.off * (np.abs(other.value) + other.off) + other.off * np.abs(self.value)
        return About(value, off + ROUNDED * (np.abs(value) + off))

    def activated(self, name: str, out: str) -> About:
        known = ACTIVATIONS[name]
        value = known.exact(self.value)
        relative, of_x = known.brief if np.dtype(TYPES[out]).itemsize <= 2 else known.wide
        own = relative * np.abs(value) + of_x * np.abs(self.value) + ROUNDED * np.abs(value)
        return About(value, known.slope * self.off * (1 + ROUNDED) + own)

    def check(self, found: np.ndarray) -> None:
        """Elements of an output are within the bound of the exact values, rounded to their type."""
        info = ml_dtypes.finfo(found.dtype)
        step = float(info.eps) / 2
        allowed = self.off * (1 + step) + np.abs(self.value) * step + float(info.smallest_subnormal)
        off = np.abs(found.astype(np.float64) - self.value)
        excess = np.where(np.isnan(off), np.inf, off) - allowed
        worst = np.unravel_index(np.argmax(excess), off.shape)
        text = f"{found[worst]!r} at {worst}, want {self.value[worst]!r} within {allowed[worst]!r}"
        assert np.all(excess <= 0), text


@weft.jit
def mixed(x, rows, columns, extras):
    """Every kind of extra, and the element's own place."""
    place = (rows * 3 + columns).to(gl.float32)
    return (x * extras.high + extras.wide) * extras.all + extras.each * extras.one + place * extras.number


class Everything:
    """All steps of an epilogue of an output, with operands of every type, shape and order."""

    def __init__(self, device: Any, rng: np.random.Generator, m: int, n: int, out: str = "float32") -> None:
        def given(dtype: str, shape: tuple[int, ...], order: str = "C", gap: int = 0) -> tuple[Any, np.ndarray]:
            if len(shape) == 2 and 1 not in shape:
                made = operand(device, rng, dtype, (shape[0], shape[1]), Lies(order, gap))
                return made.array, made.values
            values = rng.normal(size=shape).astype(np.float32).astype(TYPES[dtype])
            return device.array(values), values

        pairs = {
            "scale_a": given("float32", (m,)), "scale_b": given("float32", (n,)), "bias": given("float16", (n,)),
            "residual": given("bfloat16", (m, n), gap=8), "high": given("float16", (m, 1)), "wide": given("bfloat16", (n,)),
            "each": given("float32", (m, n), "F", 3), "one": given("float32", (1,)),
        }  # fmt: skip
        self.values = {name: values.astype(np.float64) for name, (_, values) in pairs.items()}
        arrays = {name: array for name, (array, _) in pairs.items()}
        extras = {"high": arrays["high"], "wide": arrays["wide"], "all": 0.5, "each": arrays["each"], "one": arrays["one"],
                  "number": 2}  # fmt: skip
        self.out = out
        self.options = {
            "scale_a": arrays["scale_a"], "scale_b": arrays["scale_b"], "bias": arrays["bias"], "activation": "gelu_tanh",
            "residual": arrays["residual"], "epilogue": mixed, "extras": extras, "out_dtype": out,
        }  # fmt: skip

    def of(self, exact: np.ndarray, bound: np.ndarray) -> About:
        """The output for a product and its bound."""
        v = self.values
        x = About(exact, bound).times(v["scale_a"][:, None]).times(v["scale_b"]).add(v["bias"])
        x = x.activated("gelu_tanh", self.out).add(v["residual"])
        m, n = exact.shape
        place = np.arange(m)[:, None] * 3.0 + np.arange(n)
        x = x.times(v["high"]).add(v["wide"]).times(0.5)
        other = v["each"] * v["one"]
        x = About(x.value + other, x.off + ROUNDED * (np.abs(x.value + other) + np.abs(other) + x.off))
        return x.add(place * 2.0)
