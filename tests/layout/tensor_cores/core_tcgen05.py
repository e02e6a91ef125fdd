"""A model of tcgen05 instructions, written from the PTX ISA: fields of descriptors, memory, lanes and columns.

It knows nothing of layouts. Shared memory is an array with an entry per byte, of which an element uses the first; tensor memory
has 128 lanes of 512 columns of 4 bytes. Blocks are the first dimension of both. Elements are small integers.
"""

from __future__ import annotations

import numpy as np

from tests.layout.tensor_cores.core import addresses

MATRIX = [("address", 0, 14), ("leading", 16, 14), ("stride", 32, 14), ("constant", 46, 3), ("base", 49, 3)]
MATRIX += [("absolute", 52, 1), ("zero", 53, 8), ("swizzle", 61, 3)]
"""Shared memory descriptor: names, lowest bits and widths of its fields."""
WIDTH = {0: 0, 2: 128, 4: 64, 6: 32}

COMMON = [("sparse", 0, 3), ("negate", 13, 2), ("transpose_a", 15, 1), ("transpose_b", 16, 1), ("n8", 17, 6)]
PLAIN = [*COMMON, ("saturate", 3, 1), ("acc", 4, 2), ("gap6", 6, 1), ("a", 7, 3), ("b", 10, 3), ("gap23", 23, 1)]
PLAIN += [("m16", 24, 5), ("gap29", 29, 1), ("shift", 30, 2)]
SCALED = [*COMMON, ("gap3", 3, 1), ("b_id", 4, 2), ("gap6", 6, 1), ("a", 7, 3), ("b", 10, 3), ("scale", 23, 1)]
SCALED += [("gap24", 24, 3), ("m128", 27, 2), ("a_id", 29, 2), ("k", 31, 1)]
FOURS = [*[f for f in SCALED if f[0] != "b"], ("b", 10, 2), ("gap12", 12, 1)]
"""Instruction descriptors, of mxf8f6f4 and of the kinds of e2m1 alone."""
FIELDS = {"mxf8f6f4": SCALED, "mxf4": FOURS, "mxf4nvf4": FOURS}
LENGTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
BYTES = {"f16": 2, "tf32": 4}
RUN = {"mxf8f6f4": 32, "mxf4": 32, "mxf4nvf4": 16}


def decode(word, fields):
    """Values of fields, which cover the word."""
    return {name: word >> low & (1 << width) - 1 for name, low, width in fields}


def encode(values, fields):
    """The word with these values; others are 0."""
    out = 0
    for name, low, width in fields:
        value = values.get(name, 0)
        assert 0 <= value < 1 << width
        out |= value << low
    return out


def read(shared, descriptor, transposed, size, outer, k):
    """An operand [outer, k] of elements of `size` bytes as a descriptor finds it."""
    fields = decode(descriptor, MATRIX)
    assert (fields["constant"], fields["base"], fields["absolute"], fields["zero"]) == (1, 0, 0, 0)
    width = WIDTH[fields["swizzle"]] // 16
    places = addresses(fields["address"], fields["leading"], fields["stride"], width, transposed, 8 * size, outer, k)
    return shared[places]


def pairs(values):
    """Elements of e2m1, two from each byte, the first one in the low half."""
    return np.stack([values & 15, values >> 4], -1).reshape(*values.shape[:-1], -1)


class Machine:
    """Blocks that multiply together, or one: shared memory by operand, and tensor memory."""

    def __init__(self, shared, tensor):
        self.shared, self.tensor, self.blocks = shared, tensor, len(tensor)

    def mma(self, kind, left, right, step, formats, base):
        """One instruction; `base` is the address, or byte, where each of a, b, acc, a_scale and b_scale begins."""
        acc, at_a, at_b, first, word, a_scale, b_scale = step
        scaled = kind in FIELDS
        fields = decode(word, FIELDS.get(kind, PLAIN))
        assert not any(
            value for name, value in fields.items() if name.startswith(("gap", "sparse", "negate", "shift", "k"))
        )
        m, n = fields["m128"] * 128 if scaled else fields["m16"] * 16, fields["n8"] * 8
        rows, columns = m // self.blocks, n // self.blocks
        size, length = BYTES.get(kind, 1), LENGTH[kind]
        at, along_n = right | base["b"] + at_b >> 4, fields["transpose_b"]
        b = np.concatenate([
            self._shared("b", block, at, along_n, size, columns, length, formats[1], kind) for block in range(self.blocks)
        ])  # fmt: skip
        for block in range(self.blocks):
            if left is None:
                assert rows == 128 or base["a"] + at_a >> 16 == base["acc"] + acc >> 16, "lanes of 64 rows differ"
                a = self._tensor_left(block, base["a"] + at_a, rows, size, length, formats[0])
            else:
                at = left | base["a"] + at_a >> 4
                a = self._shared("a", block, at, fields["transpose_a"], size, rows, length, formats[0], kind)
            scaled_a, scaled_b = a, b
            if scaled:
                scaled_a = a * self._scales(block, base["a_scale"] + a_scale, fields["a_id"], rows, kind)
                scaled_b = b * self._scales(block, base["b_scale"] + b_scale, fields["b_id"], n, kind)
            self._add(block, base["acc"] + acc, scaled_a @ scaled_b.T, first)

    def copy(self, shape, operand, step, base):
        """One tcgen05.cp, in every block."""
        lanes, wide = {"128x256b": (128, 32), "128x128b": (128, 16), "32x128b.warpx4": (32, 16)}[shape]
        source, target = step
        lane, column = divmod(base["dst"] + target, 1 << 16)
        assert lane == 0
        for block in range(self.blocks):
            data = read(self.shared["src"][block], operand | base["src"] + source >> 4, False, 1, lanes, wide)
            self.tensor[block, :, 4 * column : 4 * column + wide] = np.tile(data, (128 // lanes, 1))

    def _shared(self, name, block, descriptor, transposed, size, outer, length, form, kind):
        shared = self.shared[name][block]
        if form != "e2m1":
            return read(shared, descriptor, transposed, size, outer, length)
        if kind != "mxf8f6f4":
            return pairs(read(shared, descriptor, transposed, 1, outer, length // 2))
        data = read(shared, descriptor, transposed, 1, outer, length).reshape(outer, -1, 16)
        return pairs(data[:, :, :8].reshape(outer, -1))

    def _tensor_left(self, block, address, rows, size, length, form):
        lane, column = divmod(address, 1 << 16)
        assert lane in ((0,) if rows == 128 else (0, 16))
        r = np.arange(rows)
        lanes = r if rows == 128 else lane + r // 16 * 32 + r % 16
        entries = length // 2 if form == "e2m1" else length
        data = self.tensor[block, lanes, 4 * column : 4 * column + entries * size : size]
        return pairs(data) if form == "e2m1" else data

    def _scales(self, block, column, first, rows, kind):
        """Scales by row and element along k: those of row r stand in lane r % 32 of every warp, column r // 32."""
        r, run = np.arange(rows), RUN[kind]
        count = LENGTH[kind] // run
        assert first % count == 0
        assert column % 2 == 0
        byte = 4 * (column + r // 32)[:, None] + first + np.arange(count)
        found = self.tensor[block, (r % 32)[:, None], byte]
        for warp in range(1, 4):
            np.testing.assert_array_equal(found, self.tensor[block, (32 * warp + r % 32)[:, None], byte])
        return np.repeat(found, run, axis=1)

    def _add(self, block, address, product, first):
        lane, column = divmod(address, 1 << 16)
        rows, n = product.shape
        r, c = np.ogrid[:rows, :n]
        if rows == 128:
            assert lane == 0
            lanes, columns = r + 0 * c, c + 0 * r
        elif self.blocks == 1:
            assert lane in (0, 16)
            lanes, columns = r // 16 * 32 + r % 16 + 0 * c, c + 0 * r
        else:
            assert lane == 0
            lanes, columns = r + 64 * (c // (n // 2)), c % (n // 2) + 0 * r
        places = (block, lanes + lane, 4 * (columns + column))
        self.tensor[places] = product if first else self.tensor[places] + product
