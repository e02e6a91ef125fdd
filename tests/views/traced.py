"""Run-time scalars and memory that stand for a kernel's: arithmetic is recorded, and can be carried out."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from weft.layout.nested.layouts import Layout
from weft.views import AddressSpace, LayoutTensor
from weft.views.modes import SCALAR

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "xor": "^", "and_": "&", "rshift": ">>",
    "lshift": "<<", "lt": "<", "gt": ">", "ge": ">=", "le": "<=",
}  # fmt: skip


class Scalar:
    """A number with the text of how it came about. `made` has all results of arithmetic so far."""

    made: ClassVar[list] = []

    def __init__(self, text, value):
        self.text = text
        self.value = value

    def __repr__(self):
        return self.text

    def __bool__(self):
        raise AssertionError(f"nobody knows {self.text} yet")

    __index__ = __int__ = __bool__


def _operator(name, swapped):
    compute, symbol = getattr(operator, name), _SYMBOLS[name]

    def apply(self, other):
        texts, values = [str(self), str(other)], [self.value, getattr(other, "value", other)]
        if swapped:
            texts.reverse()
            values.reverse()
        made = Scalar(f"({texts[0]} {symbol} {texts[1]})", compute(*values))
        Scalar.made.append(made.text)
        return made

    return apply


for _name in _SYMBOLS:
    setattr(Scalar, f"__{_name.rstrip('_')}__", _operator(_name, False))
    if _name not in ("lt", "gt", "ge", "le"):
        setattr(Scalar, f"__r{_name.rstrip('_')}__", _operator(_name, True))


def known(x):
    """What a number turns out to be at run time."""
    return getattr(x, "value", x)


@dataclass(eq=False)
class Memory:
    """A storage like a kernel's. `log` has every operation with its base as text."""

    values: np.ndarray
    space: AddressSpace = AddressSpace.GLOBAL
    log: list = field(default_factory=list)
    bounds: list = field(default_factory=list)

    @property
    def dtype(self):
        return self.values.dtype

    def places(self, base, places, mask):
        starts = [
            known(base) + const + sum(known(s) * f[i] for s, f in zip(places.strides, places.factors, strict=True))
            for i, const in enumerate(places.const)
        ]
        on = [True] * len(starts) if mask is None else [bool(known(m)) for m in mask]
        assert len(on) == len(starts)
        assert all(len(table) == len(starts) for table in places.factors)
        return [(start + k, m) for start, m in zip(starts, on, strict=True) for k in range(places.width)]

    def load(self, base, places, mask):
        self.log.append(("load", str(base), places, mask))
        return np.array([self.values[i] if m else np.nan for i, m in self.places(base, places, mask)])

    def store(self, base, places, value, mask):
        self.log.append(("store", str(base), places, mask))
        targets = self.places(base, places, mask)
        for (i, m), v in zip(targets, np.broadcast_to(known(value), len(targets)), strict=True):
            if m:
                assert i >= 0
                self.values[i] = v

    def copy_async(self, base, places, source, source_base, source_places, mask, active=None):
        if active is not None and not known(active):
            return
        self.log.append(("copy", str(base), places, mask))
        of = source.places(source_base, source_places, mask)
        for (i, _), (j, m) in zip(self.places(base, places, None), of, strict=True):
            self.values[i] = source.values[j] if m else 0

    def check(self, indices, sizes, history, where):
        assert len(indices) == len(sizes) == len(where)
        self.bounds.append((list(map(str, indices)), list(map(str, sizes)), history))
        self.where = where
        for index, size in zip(indices, sizes, strict=True):
            if not 0 <= known(index) < known(size):
                raise IndexError(f"{history}: {index} of {size}")

    def wide(self, index):
        return Scalar(f"wide({index})", known(index))

    def clamp(self, index, low, high):
        return Scalar(f"clamp({index}, {low}, {high})", min(max(known(index), low), known(high)))

    def width(self, value):
        return int(np.size(value))

    def address(self, offset):
        return offset


def view(layout, values=None, space=AddressSpace.GLOBAL, sizes=None, strides=None, masked=False, dtype=np.float32):
    """A view as in a kernel, of an argument `t`; UNKNOWN numbers come from `sizes` and `strides`."""
    sizes = layout.flat_shape if sizes is None else sizes
    strides = layout.flat_stride if strides is None else strides
    if values is None:
        values = np.arange(1 + sum((known(n) - 1) * known(d) for n, d in zip(sizes, strides, strict=True)), dtype=dtype)
    return LayoutTensor.from_fields(Memory(values, space), 0, layout, SCALAR, sizes, strides, None, masked, "t")


def numbers(tensor):
    """Every number of a host or traced view in logical order, by the definition: one index at a time."""
    from weft.views.access import element_places

    shape = [known(s) for s in tensor.shape]
    found = np.empty([*shape, tensor.element_size])
    for index in np.ndindex(*shape):
        offset = known(tensor.offset) + coordinate_offset(tensor, index)
        element = tensor.storage.load(offset, element_places(tensor.element_layout), None)
        found[index] = np.asarray(element, float).reshape(-1)
    return found if tensor.element_size > 1 else found[..., 0]


def coordinate_offset(tensor, index):
    """The offset of a logical coordinate, by the layout of the view with its run-time numbers."""
    from weft.views.modes import axes_of

    total = 0
    for axis, coordinate in zip(axes_of(tensor), index, strict=True):
        total += Layout(tuple(known(m.size) for m in axis), tuple(known(m.stride) for m in axis))(coordinate)
    return total
