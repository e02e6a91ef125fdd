"""A product made ready: kernels, grids, and the way from arrays to their arguments.

Preparing takes a while and depends on shapes, strides, types and devices only, so that what is ready is kept; a call then
looks up the descriptors of its arrays' addresses and launches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from weft.kernel import JITFunction
from weft.kernels import parts
from weft.kernels.config import UNIFORM, MatmulConfig
from weft.kernels.heuristic import residents
from weft.kernels.memory import empty_like
from weft.kernels.operands import Matrix, form_of, output_form
from weft.kernels.plan import DTYPES, Output, Plan, Side, make_plan
from weft.kernels.schedules import best_group
from weft.kernels.specialised import matmul_cooperative, matmul_ping_pong
from weft.kernels.uniform import matmul_uniform
from weft.nvidia.hopper import TensorDescriptor
from weft.runtime.arguments import HOST, array
from weft.runtime.compiled import CompiledKernel
from weft.runtime.descriptor import TensorMap

KERNELS: dict[str, JITFunction] = {
    **dict.fromkeys(UNIFORM, matmul_uniform), "cooperative": matmul_cooperative, "ping_pong": matmul_ping_pong,
}  # fmt: skip
_MAPS_KEPT = 256
_new = object.__new__


class Described:
    """Descriptors of arrays that differ in nothing but their address."""

    __slots__ = ("_known", "block", "layout", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], block: tuple[int, ...], layout: Any) -> None:
        self.shape, self.strides, self.block, self.layout = shape, strides, block, layout
        self._known: dict[int, TensorMap] = {}

    def of(self, value: Any) -> TensorDescriptor:
        """The descriptor of an array."""
        pointer = address(value)
        try:
            tensor_map = self._known[pointer]
        except KeyError:
            return self._made(value, pointer)
        # As `TensorDescriptor.from_tensor` does it for what it has seen before.
        found = _new(TensorDescriptor)
        found.base, found.tensor_map = value, tensor_map
        return found

    def _made(self, value: Any, pointer: int) -> TensorDescriptor:
        made = TensorDescriptor(value, self.shape, self.strides, self.block, self.layout)
        if len(self._known) >= _MAPS_KEPT:
            self._known.clear()
        self._known[pointer] = made.tensor_map
        return made


def address(value: Any) -> int:
    """Where an array begins."""
    try:
        return value.data_ptr()
    except AttributeError:
        found = array(value)
        assert found is not None
        return found.pointer


@dataclass(frozen=True)
class Product:
    """a [M, K] @ b [K, N] in a configuration, as the arrays of one kind are multiplied.

    `a` and `b` are the operands as [rows, K] and `out` the output as the kernel computes them, that is, exchanged and transposed
    where the configuration says `swap`.
    """

    a: Matrix
    b: Matrix
    out: Matrix
    scale_a: str
    scale_b: str
    config: MatmulConfig
    multiprocessors: int

    @cached_property
    def plan(self) -> Plan:
        """What the kernel is compiled for."""
        described, columns_first = output_form(self.out)
        scales = (self.scale_a, self.scale_b)
        dtype = self.out.dtype
        if self.splits > 1:
            # Parts go to memory that has a descriptor, and get their scales when they are added.
            described, scales, dtype = True, ("", ""), "int32" if self.integers else "float32"
        config = self.config
        group = config.group or best_group(self.multiprocessors, config.block_m, config.block_n)
        exact = replace(config, splits=self.splits, group=group, programs=0, swap=False)
        return make_plan(form_of(self.a), form_of(self.b), dtype, described, columns_first, *scales, exact)

    @property
    def integers(self) -> bool:
        """Sums are integers."""
        return self.a.dtype in ("int8", "uint8")

    @cached_property
    def splits(self) -> int:
        """Parts of the sum along K, none of them empty."""
        blocks = -(-self.a.shape[1] // self.config.block_k)
        return -(-blocks // -(-blocks // min(self.config.splits, blocks)))

    @cached_property
    def grid(self) -> int:
        """Programs."""
        config, (m, n) = self.config, self.out.shape
        tiles = -(-m // config.block_m) * -(-n // config.block_n) * self.splits
        if not config.persistent:
            return tiles
        itemsize = 4 if self.splits > 1 else self.out.itemsize
        most = config.programs or self.multiprocessors * residents(config, self.a.itemsize, itemsize)
        return min(tiles, most)

    @cached_property
    def sources(self) -> tuple[Described | None, Described | None]:
        """Descriptors of the operands; None for those that are read through their address."""
        return _source(self.a, self.plan.a), _source(self.b, self.plan.b)

    @cached_property
    def target(self) -> Described | None:
        """Descriptors of what the kernel writes; None where it writes through the address."""
        output = self.plan.out
        if not output.described:
            return None
        if self.splits > 1:
            shape = self.partials
            return Described(shape, (shape[1], 1), output.block, output.layout)
        lies = self.out.turned if output.columns_first else self.out
        return Described(lies.shape, lies.strides, output.block, output.layout)

    @cached_property
    def partials(self) -> tuple[int, int]:
        """Shape of the parts' outputs, which lie below one another, their rows as the output's lie in memory."""
        (m, n), config = self.out.shape, self.config
        rows, columns, block = (n, m, config.block_n) if self.plan.out.columns_first else (m, n, config.block_m)
        return self.splits * -(-rows // block) * block, -(-columns // 4) * 4

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Arguments of the kernel that are numbers."""
        numbers = (*self.out.strides, *self.out.shape, self.a.shape[1])
        return numbers if self.config.variant in UNIFORM else (*numbers, *self.a.strides, *self.b.strides)

    @cached_property
    def launch(self) -> Callable[..., CompiledKernel]:
        """The kernel with its grid."""
        return KERNELS[self.config.variant][self.grid]

    def run(self, a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any, stream: Any) -> CompiledKernel:
        """Launch on arrays; `a`, `b` and their scales as the caller has them. Gives the compiled kernel that multiplies."""
        if self.config.swap:
            a, b, scale_a, scale_b = b, a, scale_b, scale_a
        if self.splits > 1:
            return self._run_in_parts(a, b, out, scale_a, scale_b, stream)
        arguments = self.arguments(a, b, out, scale_a, scale_b)
        return self.launch(*arguments, num_warps=self.config.num_warps, stream=stream)

    def arguments(self, a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any) -> tuple[Any, ...]:
        """Arguments of the kernel, from arrays in its own order."""
        described_a, described_b = self.sources
        target = self.target
        return (
            a if described_a is None else described_a.of(a),
            b if described_b is None else described_b.of(b),
            out if target is None else target.of(out),
            scale_a, scale_b, *self.sizes, self.plan,
        )  # fmt: skip

    def compiled(self, a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any) -> CompiledKernel:
        """The kernel that multiplies, compiled and not launched."""
        if self.config.swap:
            a, b, scale_a, scale_b = b, a, scale_b, scale_a
        if self.splits > 1:
            out, scale_a, scale_b = self._sums(a), None, None
        arguments = self.arguments(a, b, out, scale_a, scale_b)
        return KERNELS[self.config.variant].warmup(*arguments, num_warps=self.config.num_warps)

    def _sums(self, like: Any) -> Any:
        return empty_like(like, self.partials, "int32" if self.integers else "float32")

    def _run_in_parts(self, a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any, stream: Any) -> CompiledKernel:
        sums = self._sums(a)
        compiled = self.launch(*self.arguments(a, b, sums, None, None), num_warps=self.config.num_warps, stream=stream)
        lies, scales, kinds = self.out, (scale_a, scale_b), (self.scale_a, self.scale_b)
        if self.plan.out.columns_first:
            lies, scales, kinds = lies.turned, scales[::-1], kinds[::-1]
        rows, columns = lies.shape
        adding = parts.Adding(self.splits, DTYPES[self.out.dtype], *kinds)
        grid = (-(-rows // parts.ROWS), -(-columns // parts.COLUMNS))
        high, across = self.partials
        parts.add_parts[grid](
            sums, out, *scales, *lies.strides, rows, columns, high // self.splits, across, adding,
            num_warps=parts.WARPS, stream=stream,
        )  # fmt: skip
        return compiled


def _source(operand: Matrix, side: Side) -> Described | None:
    if side.path != "descriptor":
        return None
    lies = operand if side.along_k else operand.turned
    return Described(lies.shape, lies.strides, side.block, side.layout)


def multiprocessors_of(device: int) -> int:
    """Multiprocessors of a device; the host simulates an H200's."""
    if device == HOST:
        return 132
    from weft.runtime import driver

    return driver.device(device).multiprocessors
