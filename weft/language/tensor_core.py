"""`TensorCore`: the products of a warp by `mma.sync`, on views.

    core: gl.constexpr = gl.TensorCore[gl.float16, gl.float32, gl.Index(16, 8, 16)]()
    d = core.mma_op(core.load_a(a), core.load_b(b), core.load_c(c))      # a: 16 x 16, b: 16 x 8, c: 16 x 8
    core.store_d(c, d)

The fragments of a thread are vectors in registers, in the order of the instruction (PTX ISA, "Matrix Fragments for mma.m16n8k8"
and the like): those of a and c are distributed by rows of four lanes, those of b by columns, in words of 32 bits along k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors import thread as errors
from weft.ir.types import DType, bfloat16, float8e4nv, float8e5, float16, float32
from weft.language.context import current
from weft.language.nvidia.checks import demand
from weft.language.program import lane_id
from weft.language.runtime_value import name_of
from weft.language.tensor import apply, tensor
from weft.language.vector import SIMD, concat
from weft.layout.nested.layouts import Layout
from weft.ops import mma
from weft.views import LayoutTensor
from weft.views.brackets import Complete

ROWS, COLUMNS = 16, 8
K_BITS = 256
"""Bits along k of one instruction: k is 8, 16 or 32 for elements of 32, 16 or 8 bits."""
WORD_BITS = 32
OF_ROWS, OF_COLUMNS = Layout.row_major(8, 4), Layout.col_major(4, 8)
"""The lanes along the rows of a and c, and along the columns of b."""
SUMS = {
    float32: (float32,), float16: (float32, float16), bfloat16: (float32,), float8e4nv: (float32,), float8e5: (float32,),
}  # fmt: skip
"""The types of operands, with those of their accumulators; float32 operands are multiplied as tf32."""


@dataclass(frozen=True, slots=True)
class WarpProducts:
    """The instruction m16n8k`k` for operands of a type and accumulators of another one.

    Its methods are executed by all threads of a warp. With `transpose_b`, `load_b` takes a view of shape [8, k].
    """

    operands: DType
    sums: DType
    k: int
    transpose_b: bool = False

    def load_a(self, a: LayoutTensor) -> tensor:
        """The thread's fragment of a view of shape [16, k]. Raises thread-tensor-core-view."""
        return self._loaded("load_a", a, (ROWS, self.k), (1, self._in_word), OF_ROWS)

    def load_b(self, b: LayoutTensor) -> tensor:
        """The thread's fragment of a view of shape [k, 8]. Raises thread-tensor-core-view."""
        if self.transpose_b:
            self._check("load_b", b, (COLUMNS, self.k))
            b = b.transpose()
        return self._loaded("load_b", b, (self.k, COLUMNS), (self._in_word, 1), OF_COLUMNS)

    def load_c(self, c: LayoutTensor) -> tensor:
        """The thread's fragment of a view of shape [16, 8]. Raises thread-tensor-core-view."""
        return self._loaded("load_c", c, (ROWS, COLUMNS), (1, 2), OF_ROWS)

    def mma_op(self, a: tensor, b: tensor, c: tensor) -> tensor:
        """`c + a @ b` of fragments. Raises thread-tensor-core-fragment, async-target."""
        demand("TensorCore", "mma.sync")
        if self.operands.is_fp8():
            demand("TensorCore of fp8", "products of fp8")
        sizes = (ROWS * self.k // 32, self.k * COLUMNS // 32, ROWS * COLUMNS // 32)
        for name, x, size, dtype in zip(
            "abc", (a, b, c), sizes, (self.operands, self.operands, self.sums), strict=True
        ):
            if not isinstance(x, SIMD) or x.size != size or x.dtype != dtype:
                raise fail(errors.TENSOR_CORE_FRAGMENT, name=name, size=size, dtype=dtype.name, got=name_of(x))
        code = self.operands.code
        return apply(mma.mma_sync, a, b, c, k=self.k, element=code, other=code, steps=((0, 0, 0),))

    def store_d(self, d_dst: LayoutTensor, d_src: tensor) -> None:
        """Store an accumulator's fragment to a view of shape [16, 8]. Raises thread-tensor-core-view, -fragment."""
        if not isinstance(d_src, SIMD) or d_src.size != 4:
            raise fail(errors.TENSOR_CORE_FRAGMENT, name="d", size=4, dtype=self.sums.name, got=name_of(d_src))
        part = self._part("store_d", d_dst, (ROWS, COLUMNS), (1, 2), OF_ROWS)
        for i in range(2):
            part[i, 0] = d_src[2 * i : 2 * i + 2]

    @property
    def _in_word(self) -> int:
        return WORD_BITS // self.operands.bits

    def _loaded(self, what: str, view: Any, shape: tuple[int, int], word: tuple[int, int], lanes: Layout) -> tensor:
        part = self._part(what, view, shape, word, lanes)
        rows, columns = part.shape
        return concat([part[i, j] for j in range(columns) for i in range(rows)])

    def _part(self, what: str, view: Any, shape: tuple[int, int], word: tuple[int, int], lanes: Layout) -> LayoutTensor:
        """The words of the executing thread, in the order of the instruction when read column by column."""
        self._check(what, view, shape)
        return view.vectorize(*word).distribute(lanes)(lane_id())

    def _check(self, what: str, view: Any, shape: tuple[int, int]) -> None:
        current(what)
        dtype = self.sums if what in ("load_c", "store_d") else self.operands
        if not isinstance(view, LayoutTensor) or view.shape != shape or view.element_size != 1 or view.dtype != dtype:
            size = " x ".join(map(str, shape))
            raise fail(errors.TENSOR_CORE_VIEW, what=what, size=size, dtype=dtype.name, got=name_of(view))


def _tensor_core(_: None, operands: Any, sums: Any, shape: Any, transpose_b: bool = False) -> WarpProducts:
    k = K_BITS // operands.bits if isinstance(operands, DType) and operands in SUMS else 0
    if not k or sums not in SUMS[operands] or tuple(shape) != (ROWS, COLUMNS, k):
        known = ", ".join(dtype.name for dtype in SUMS)
        given, total = (getattr(dtype, "name", dtype) for dtype in (operands, sums))
        raise fail(errors.TENSOR_CORE, operands=given, sums=total, shape=tuple(shape), known=known)
    return WarpProducts(operands, sums, k, bool(transpose_b))


class TensorCoreOf(Complete[WarpProducts]):
    """`TensorCore[operand type, accumulator type, Index(16, 8, k)]()`: the products of a warp by the instruction m16n8k`k`.

    k is 8 for float32 (multiplied as tf32), 16 for float16 and bfloat16, 32 for fp8. In parentheses it also takes
    `transpose_b=True`. Raises thread-tensor-core."""


TensorCore = TensorCoreOf(None, _tensor_core)
