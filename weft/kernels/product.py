"""A prepared matmul: its kernel and grid, and the kernel's arguments from arrays.

Preparation takes long compared to a launch but depends only on shapes, strides, types and devices, so its result is cached. A
call then looks up the descriptors for its arrays' addresses and launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from weft.kernel import JITFunction, Repeated
from weft.kernels.arrays import Described, Packing, address, described_as, packed, source_of
from weft.kernels.config import DESCRIBED, TENSOR_VARIANTS, UNIFORM, MatmulConfig, best_group, piece_width
from weft.kernels.device import split_k
from weft.kernels.device.epilogue import RESIDUAL
from weft.kernels.device.specialised import matmul_cooperative, matmul_ping_pong
from weft.kernels.device.tensor_memory import matmul_tensor_memory
from weft.kernels.device.uniform import matmul_uniform
from weft.kernels.epilogue import Ending
from weft.kernels.epilogue_plan import PLAIN, Epilogue
from weft.kernels.machines import HOPPER, Machine, programs_at_a_time
from weft.kernels.memory import empty_like, used_on
from weft.kernels.model import residents
from weft.kernels.operands import Matrix, form_of, output_form, why_undescribed
from weft.kernels.plan import DTYPES, Form, OutputForm, Plan, SplitReduction, make_plan, make_tensor_plan
from weft.locks import lazy
from weft.runtime.compiled import CompiledKernel

KERNELS: dict[str, JITFunction[..., Any]] = {
    **dict.fromkeys(UNIFORM, matmul_uniform), "cooperative": matmul_cooperative, "ping_pong": matmul_ping_pong,
    **dict.fromkeys(TENSOR_VARIANTS, matmul_tensor_memory),
}  # fmt: skip


class _Themselves(dict[int, int]):
    """The value of an address that a kernel gets as it is."""

    def __missing__(self, address: int) -> int:
        return address


_themselves = _Themselves()


@dataclass(frozen=True)
class Product:
    """a [M, K] @ b [K, N] in a configuration, for arrays of given shapes, strides, types and devices.

    `given` are the operands as [rows, K], `out` the output and `ending` the epilogue, as the kernel computes them: exchanged
    and transposed if the configuration has `swap`. Of a gated product the caller's b stands for two arrays. Without `fast`,
    fp8 accumulators are promoted to float32 along K. `multiprocessors` is the device's number of multiprocessors, `machine` its
    generation.
    """

    given: tuple[Matrix, Matrix]
    out: Matrix
    ending: Ending
    config: MatmulConfig
    multiprocessors: int
    fast: bool = True
    machine: Machine = HOPPER

    @lazy
    def packings(self) -> tuple[Packing | None, Packing | None]:
        """The packed copies of operands that TMA cannot read; None for operands used in place."""
        transposable = self.transposable
        first, second = (
            Packing.of(x, transposable) if self.config.pack and why_undescribed(x, transposable) else None
            for x in self.given
        )
        return first, second

    @lazy
    def a(self) -> Matrix:
        """The left operand as the matmul kernel reads it."""
        packing = self.packings[0]
        return self.given[0] if packing is None else packing.target

    @lazy
    def b(self) -> Matrix:
        """The right operand, likewise."""
        packing = self.packings[1]
        return self.given[1] if packing is None else packing.target

    @lazy
    def plan(self) -> Plan:
        """The kernel's plan."""
        out = output_form(self.out)
        epilogue = self.ending.plan
        if self.splits > 1:
            # Partial results go to a workspace with a descriptor; the reduction applies the epilogue.
            epilogue = PLAIN
            out = OutputForm("int32" if self.integers else "float32", True, self.columns_first, 1)
        config = self.config
        group = config.group or best_group(self.multiprocessors // config.cluster, self.rows, self.columns)
        packs = self.packings != (None, None)
        exact = replace(config, splits=self.splits, shares=self.shares, group=group, programs=0, swap=False, pack=packs)
        if self._loads_residual(out):
            assert epilogue.residual is not None
            epilogue = replace(epilogue, residual=replace(epilogue.residual, described=True))
        if self.batched:
            out = replace(out, batched=self.splits == 1)
        a, b = (replace(form_of(operand, self.transposable), batched=self.batched) for operand in (self.a, self.b))
        return self._plan(a, b, out, epilogue, exact)

    def _loads_residual(self, out: OutputForm) -> bool:
        """Whether TMA can load the residual into the buffers through which it stores the output."""
        residual = self.ending.residual
        if residual is None or self.splits > 1 or self.shares > 1 or self.batched or self.config.in_tensor_memory:
            return False
        # A load is issued into the same buffer for every tile.
        pieces = self.config.pieces(piece_width(self.columns, self.out.itemsize)) // self.ending.halves
        whole = pieces % min(self.config.buffers, pieces) == 0
        return whole and out.described and output_form(residual) == out

    @lazy
    def residual(self) -> Described | None:
        """Descriptors of the residual; None if threads read it."""
        plan, residual = self.plan, self.ending.residual
        if residual is None or not plan.epilogue.loaded:
            return None
        return described_as(residual.transposed if plan.out.columns_first else residual, plan.out)

    def ended(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The argument of the kernel's epilogue from what it reads; None if another kernel adds splits."""
        found, residual = None if self.splits > 1 else self.ending.argument(values), self.residual
        if found is None or residual is None:
            return found
        at = RESIDUAL.value
        return *found[:at], residual.of(values[at]), *found[at + 1 :]

    def _plan(self, a: Form, b: Form, out: OutputForm, epilogue: Epilogue, config: MatmulConfig) -> Plan:
        if config.in_tensor_memory:
            return make_tensor_plan(a, b, out, epilogue, self.ending.halves, config, self.transposable)
        return make_plan(a, b, out, epilogue, self.ending.halves, config, self.fast, self.stacked)

    @property
    def batched(self) -> bool:
        """Whether there are several products."""
        return self.out.batches > 1

    @lazy
    def batch(self) -> tuple[int, int, int, int] | None:
        """The kernel's argument for a batch, see `weft.kernels.device.rings.Batch`."""
        if not self.batched:
            return None
        operands = (
            (x, 1 if found is not None else x.step) for x, found in zip((self.a, self.b), self.sources, strict=True)
        )
        a, b = (step if x.batches > 1 else 0 for x, step in operands)
        return self.out.batches, a, b, self.out.step

    @property
    def stacked(self) -> bool:
        """Whether the two operands of a gated product are the kernel's a: it computes the transpose."""
        return self.config.swap and self.ending.halves > 1

    @property
    def rows(self) -> int:
        """Rows of the output in a tile."""
        return self.config.rows // (self.ending.halves if self.stacked else 1)

    @property
    def columns(self) -> int:
        """Columns of the output in a tile."""
        return self.config.block_n // (1 if self.stacked else self.ending.halves)

    @property
    def columns_first(self) -> bool:
        """Whether partial results lie column by column: as the output does, where its transpose may be computed."""
        return output_form(self.out).columns_first and not self.ending.plan.straight

    @property
    def transposable(self) -> tuple[int, ...]:
        """Element sizes that tensor cores read in either major-ness."""
        return self.machine.transposable

    @property
    def integers(self) -> bool:
        """True for integer accumulators."""
        return self.a.dtype in ("int8", "uint8")

    @lazy
    def splits(self) -> int:
        """Splits of K, none of them empty."""
        blocks = -(-self.a.shape[1] // self.config.block_k)
        return -(-blocks // -(-blocks // min(self.config.splits, blocks)))

    @lazy
    def shares(self) -> int:
        """CTAs that share a tile: a power of two, and few enough that each has a block along K."""
        blocks = -(-self.a.shape[1] // self.config.block_k)
        return min(self.config.shares, 1 << blocks.bit_length() - 1)

    @lazy
    def grid(self) -> int:
        """The number of programs."""
        config, (m, n) = self.config, self.out.shape
        tiles = -(-m // self.rows) * -(-n // self.columns) * self.splits * self.out.batches
        if not config.persistent:
            return tiles
        itemsize = 4 if self.splits > 1 else self.out.itemsize
        at_a_time = int(programs_at_a_time(config.cluster, self.multiprocessors))
        at_a_time *= residents(config, self.a.itemsize, itemsize, not self.plan.b.along_k)
        most = config.programs or at_a_time
        return min(tiles, most)

    @lazy
    def sources(self) -> tuple[Described | None, Described | None]:
        """Descriptors of the operands; None for those that are read through their pointer."""
        return source_of(self.a, self.plan.a), source_of(self.b, self.plan.b)

    @lazy
    def target(self) -> Described | None:
        """Descriptors of the array that the kernel writes; None if it writes through the pointer."""
        output = self.plan.out
        if not output.described:
            return None
        if self.splits > 1:
            shape = self.partials
            return Described(shape, (shape[1], 1), output.block, output.layout)
        return described_as(self.out.transposed if output.columns_first else self.out, output)

    @lazy
    def partials(self) -> tuple[int, int]:
        """Shape of the split-K workspace: the partial results stacked vertically, in the output's memory order."""
        (m, n), config = self.out.shape, self.config
        if self.ending.halves > 1:
            n = -(-n // self.columns) * config.block_n
        rows, columns, block = (n, m, config.block_n) if self.plan.out.columns_first else (m, n, config.rows)
        return self.out.batches * self.splits * -(-rows // block) * block, -(-columns // 4) * 4

    @lazy
    def sizes(self) -> tuple[int, ...]:
        """The kernel's integer arguments."""
        numbers = (*self.out.steps, *self.out.shape, self.a.shape[1])
        return numbers if self.config.variant in DESCRIBED else (*numbers, *self.a.steps, *self.b.steps)

    @lazy
    def options(self) -> dict[str, int]:
        """Launch options: warps and CTAs of a program, and whether the kernel may start while the launch before it ends."""
        dependent = {"launch_pdl": True} if self.plan.dependent else {}
        return {"num_warps": self.config.num_warps, "num_ctas": self.plan.cluster * self.shares, **dependent}

    @lazy
    def kernel(self) -> JITFunction[..., Any]:
        """The matmul kernel."""
        return KERNELS[self.config.variant]

    def run(self, a: Any, b: Any, out: Any, values: tuple[Any, ...], stream: Any) -> CompiledKernel:
        """Launch on arrays, `a` and `b` in the caller's order; `values` are what the epilogue reads. Returns the compiled
        matmul kernel."""
        config = self.config
        if config.swap:
            a, b = b, a
        if config.pack:
            a, b = self._packed(a, b, stream)
        if config.splits > 1 and self.splits > 1:
            return self._run_split_k(a, b, out, values, stream)
        return self._launched(a, b, out, values, stream)

    def _launched(self, a: Any, b: Any, out: Any, values: tuple[Any, ...], stream: Any) -> CompiledKernel:
        """Launch the matmul kernel; `values` are what its epilogue reads."""
        run = self.repeated.ready()
        if run is None:
            return self.repeated.launch(
                self.grid, *self.arguments(a, b, out, self.ended(values)), **self.options, stream=stream
            )
        given = [of(values[place]) for place, of in self.reads] if self.reads else ()
        if self.ending.halves > 1:
            of_first, of_second, of_third, of_out = self.parts
            first, second, third = (*a, b) if self.stacked else (a, *b)
            return run(stream, of_first(first), of_second(second), of_third(third), of_out(out), *given)
        of_a, of_b, of_out = self.parts
        return run(stream, of_a(a), of_b(b), of_out(out), *given)

    def run_at(self, a: int, b: int, out: int, stream: Any) -> bool:
        """`run` of a plain product, with addresses in the caller's order that it has had before. False, and nothing launched,
        if one is new, and where more is to do than a launch."""
        run, tables = self.repeated.ready(), self.tables
        if run is None or tables is None:
            return False
        if self.config.swap:
            a, b = b, a
        first, second, third = tables
        try:
            a, b, out = first[a], second[b], third[out]
        except KeyError:
            return False
        run(stream, a, b, out)
        return True

    @lazy
    def tables(self) -> tuple[Mapping[int, Any], Mapping[int, Any], Mapping[int, Any]] | None:
        """The kernel's values of a, b and the output by address; None for a product with other launches or arguments."""
        if not self.ending.plan.plain or self.splits > 1 or self.packings != (None, None):
            return None
        first, second, third = (_themselves if x is None else x.maps for x in (*self.sources, self.target))
        return first, second, third

    @lazy
    def repeated(self) -> Repeated:
        """Launches of the kernel, which differ in the operands, the output, and what the epilogue reads."""
        count, described = self.ending.halves + 2, RESIDUAL.value if self.residual is not None else None
        places = self.ending.places(described) if self.splits == 1 else ()
        return Repeated(self.kernel, (*range(count), *(count + place for place in places)))

    @lazy
    def parts(self) -> tuple[Callable[[Any], Any], ...]:
        """What makes the kernel's values of a, b and the output: tensor maps or addresses."""
        first, second = self.sources
        above, beside = (2, 1) if self.stacked else (1, self.ending.halves)
        described = (*[first] * above, *[second] * beside, self.target)
        return tuple(address if one is None else one.map_of for one in described)

    @lazy
    def reads(self) -> tuple[tuple[int, Callable[[Any], Any]], ...]:
        """What the kernel's epilogue reads: places among the values, and what makes the kernel's value of each."""
        if self.splits > 1:
            return ()
        at, loaded = RESIDUAL.value, self.residual
        return tuple((i, of if loaded is None or i != at else loaded.map_of) for i, of in self.ending.reading)

    def _packed(self, a: Any, b: Any, stream: Any) -> tuple[Any, Any]:
        if self.ending.halves == 1:
            return packed(self.packings, (a, b), stream)
        if self.stacked:
            up = packed((self.packings[0], None), (a[1], b), stream)[0]
            gate, b = packed(self.packings, (a[0], b), stream)
            return (gate, up), b
        up = packed((None, self.packings[1]), (a, b[1]), stream)[1]
        a, gate = packed(self.packings, (a, b[0]), stream)
        return a, (gate, up)

    def arguments(self, a: Any, b: Any, out: Any, given: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """The kernel's arguments from arrays in the kernel's order; `given` is that of the epilogue."""
        target = self.target
        a, b = (
            x if found is None else tuple(map(found.of, cast("Any", x))) if isinstance(x, tuple) else found.of(x)
            for x, found in zip((a, b), self.sources, strict=True)
        )
        out = out if target is None else target.of(out)
        return a, b, out, given, self.batch, *self.sizes, self.plan

    def compiled(self, a: Any, b: Any, out: Any, values: tuple[Any, ...]) -> CompiledKernel:
        """The matmul kernel, compiled without launching."""
        if self.config.swap:
            a, b = b, a
        given = self.ended(values)
        if self.splits > 1:
            out = self._workspace(out)
        a, b = (
            x if found is None else tuple(map(found.empty, cast("Any", x))) if isinstance(x, tuple) else found.empty(x)
            for x, found in zip((a, b), self.packings, strict=True)
        )
        return self.kernel.warmup(*self.arguments(a, b, out, given), **self.options)

    def _workspace(self, like: Any) -> Any:
        return empty_like(like, self.partials, "int32" if self.integers else "float32")

    def _run_split_k(self, a: Any, b: Any, out: Any, values: tuple[Any, ...], stream: Any) -> CompiledKernel:
        partials = self._workspace(out)
        compiled = self._launched(a, b, partials, values, stream)
        self.reduction.run(partials, out, values, stream)
        used_on(partials, stream)
        return compiled

    @lazy
    def reduction(self) -> Reduction:
        """The kernel that adds the splits."""
        lies, ending = (self.out.transposed, self.ending.transposed) if self.columns_first else (self.out, self.ending)
        half = self.columns if ending.halves > 1 else 0
        plan = SplitReduction(self.splits, DTYPES[self.out.dtype], ending.plan, half)
        return Reduction(lies, ending, self.partials, plan)


@dataclass(frozen=True)
class Reduction:
    """The second kernel of split-K: `out` and `ending` as the kernel sees them, the shape of the partial results, its plan."""

    out: Matrix
    ending: Ending
    partials: tuple[int, int]
    plan: SplitReduction

    def run(self, partials: Any, out: Any, values: tuple[Any, ...], stream: Any) -> None:
        """Add the partial results; `values` are what the epilogue reads."""
        run = self.repeated.ready()
        if run is not None:
            run(stream, address(partials), address(out), *[of(values[place]) for place, of in self.reads])
            return
        (rows, columns), batches, (high, across) = self.out.shape, self.out.batches, self.partials
        grid = (-(-rows // split_k.ROWS), -(-columns // split_k.COLUMNS), batches)
        self.repeated.launch(
            grid, partials, out, self.ending.argument(values), *self.out.steps, rows, columns,
            high // (self.plan.splits * batches), across, self.out.step if batches > 1 else None, self.plan,
            num_warps=split_k.WARPS, launch_pdl=True, stream=stream,
        )  # fmt: skip

    @lazy
    def repeated(self) -> Repeated:
        """Launches of the kernel, which differ in the arrays, and in what the epilogue reads."""
        kernel = cast("JITFunction[..., Any]", split_k.reduce_splits)
        return Repeated(kernel, (0, 1, *(2 + place for place in self.ending.places())))

    @lazy
    def reads(self) -> tuple[tuple[int, Callable[[Any], Any]], ...]:
        """As `Product.reads`."""
        return self.ending.reading
