"""Plans: everything that a matmul kernel is specialised on, as one constexpr argument.

Plans are cached, so that equal plans are one object, which launches compare by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from weft import language as gl
from weft.kernels.config import PROMOTED, SUM_BYTES, TRANSPOSABLE, MatmulConfig, piece_width, roomy, slices_of
from weft.kernels.epilogue_plan import Epilogue
from weft.kernels.schedulers import Schedule
from weft.language.nvidia.blackwell import TensorMemoryLayout
from weft.language.nvidia.hopper import warpgroup_mma_layout
from weft.layout import LinearLayout

Path = Literal["descriptor", "copies", "loads"]
"""The path of an operand's blocks to shared memory: TMA, cp.async, or through registers."""

DTYPES: dict[str, Any] = {
    "float16": gl.float16, "bfloat16": gl.bfloat16, "float8_e4m3fn": gl.float8e4nv, "float8_e5m2": gl.float8e5,
    "float32": gl.float32, "int8": gl.int8, "uint8": gl.uint8, "int32": gl.int32,
}  # fmt: skip
"""Element types by canonical name."""
THREAD_BYTES = 4
"""Minimum bytes that a thread of a loading warp reads, and writes to shared memory, at a time."""
MOST_HELD = 64
"""Maximum elements that a thread of a loading warp holds at a time."""
LOADING_WARPS = 4
CONSUMER_WARPS = 4
SUMS_BYTES = 16
"""Bytes of sums that a thread sends to another CTA at a time."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an operand [rows, K] in global memory, as far as kernels are specialised on it.

    `contiguous` is the contiguous dimension, "k", "rows" or "" for none, and `unit` the bytes of an aligned access along it.
    `batched`: it is a batch of matrices, or one matrix for a batch.
    """

    dtype: str
    path: Path
    contiguous: str
    unit: int
    batched: bool = False


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The form of the output in global memory. TMA stores it if `described`. `columns_first`: it is column-major. `unit`: the
    elements of an aligned access along the contiguous dimension. `batched`: it is a batch of matrices."""

    dtype: str
    described: bool
    columns_first: bool
    unit: int
    batched: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class StagedOperand:
    """An operand: the layout of its blocks in shared memory, and how they are loaded.

    `block` is the shape of a block in memory, [rows, K] if `along_k` (K-major), else [K, rows]. For operands that warps copy,
    `registers` is the register layout, `step` the extent along the block's dimension `cut` copied at a time, and `unit` the
    elements of an aligned access. `batched`: TMA copies a block as one of a batch, [1, *block].
    """

    dtype: Any
    path: Path
    contiguous: str
    along_k: bool
    block: tuple[int, int]
    layout: Any
    nbytes: int
    registers: Any
    cut: int
    step: int
    unit: int
    batched: bool

    @property
    def box(self) -> tuple[tuple[int, ...], Any]:
        """The block of a TMA copy, and its layout in shared memory."""
        return _box(self)


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The output: stored by TMA if `described`, in pieces of `width` columns with shared-memory layout `layout`.

    `columns_first`: it is column-major, so that its descriptor is that of the transpose. Otherwise threads store it from
    registers in the layout `registers`, `unit` aligned elements at a time. `batched`: it is a batch of matrices.
    """

    dtype: Any
    described: bool
    columns_first: bool
    height: int
    width: int
    layout: Any
    registers: Any
    unit: int
    batched: bool

    @property
    def block(self) -> tuple[int, int]:
        """Shape of a piece in memory."""
        return (self.width, self.height) if self.columns_first else (self.height, self.width)

    @property
    def box(self) -> tuple[tuple[int, ...], Any]:
        """The block of a TMA copy, and its layout in shared memory."""
        return _box(self)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything that a kernel is specialised on.

    `halves` is 2 if a tile has columns of two operands b, one half each; or if it is `stacked`, rows of two operands a: each
    consumer has as many rows of both. `promoted`: elements along K after which the tensor
    core's accumulator is added to float32 registers; None for never. `dependent`: it may start while
    the launch before it ends. In a
    cluster, tiles and blocks of a cover all `cluster` CTAs, which split their rows; a slot has for each half `cluster` blocks
    of b, each of which one CTA multicasts to all. `shares`: CTAs of a cluster that multiply parts of K for the same tile; each
    has blocks of its own, and slices of the tile's columns to add up and store. `batched`: there are several products of the
    same shape.
    """

    a: StagedOperand
    b: StagedOperand
    out: Output
    acc_type: Any
    epilogue: Epilogue
    halves: int
    stacked: bool
    block_m: int
    block_n: int
    block_k: int
    stages: int
    buffers: int
    splits: int
    order: str
    group: int
    consumers: int
    cluster: int
    shares: int
    overlap: bool
    registers: tuple[int, ...] | None
    promoted: int | None
    dependent: bool
    batched: bool

    @property
    def described(self) -> bool:
        """True when TMA loads both operands."""
        return self.a.path == self.b.path == "descriptor"

    @property
    def parts(self) -> int:
        """Blocks of a in a slot: one per consumer in a cluster, where a consumer's rows are not a slice, one of each operand
        per consumer if they are stacked, otherwise one."""
        return self.consumers * self.across[0] if self.cluster > 1 or self.stacked else 1

    @property
    def sent(self) -> int:
        """Blocks of b in a slot: for each half one per CTA of the cluster, which multicasts it to all."""
        return self.cluster * self.across[1]

    @property
    def across(self) -> tuple[int, int]:
        """The number of operands a, and of operands b."""
        return (self.halves, 1) if self.stacked else (1, self.halves)

    @property
    def rows(self) -> int:
        """Rows of the output in a tile."""
        return self.block_m // self.across[0]

    @property
    def columns(self) -> int:
        """Columns of the output in a tile."""
        return self.block_n // self.across[1]

    @property
    def stored(self) -> int:
        """Columns of a tile that are stored at a time: those of the output, or a slice of them if CTAs share it; or all of its
        sums if another kernel adds splits."""
        if self.shares > 1:
            return slices_of(self.block_n, self.shares)[0]
        return self.columns if self.splits == 1 else self.block_n

    @property
    def slices(self) -> int:
        """Slices of a tile that CTAs share."""
        return self.block_n // self.stored

    @property
    def receivers(self) -> int:
        """CTAs that have slices: the slice number i has the CTA i % receivers."""
        return slices_of(self.block_n, self.shares)[1]

    @property
    def turns(self) -> int:
        """The most slices of a CTA."""
        return slices_of(self.block_n, self.shares)[2]

    @property
    def sums(self) -> Any:
        """The layout in shared memory of a slice of sums of one consumer: in the order of threads and registers, four
        registers of a thread side by side, so that threads send and read them as vectors without bank conflicts."""
        rows = self.block_m // self.consumers
        whole = warpgroup_mma_layout(self.a.dtype, [rows, self.block_n], CONSUMER_WARPS)
        return _in_registers(whole.to_linear((rows, self.block_n)), self.stored, self.shares)

    @property
    def a_block(self) -> tuple[int, int]:
        """Shape in memory of a consumer's block of both operands a."""
        rows = self.block_m // self.consumers
        return (rows, self.block_k) if self.a.along_k else (self.block_k, rows)

    @property
    def room(self) -> int:
        """Columns that memory holds for a slot's whole block of b."""
        return self.sent * self.b.block[0 if self.b.along_k else 1]

    @property
    def b_block(self) -> tuple[int, int]:
        """Shape in memory of a slot's whole block of b."""
        return (self.block_n, self.block_k) if self.b.along_k else (self.block_k, self.block_n)

    @property
    def split_rows(self) -> list[list[int]] | None:
        """The `cga_layout` that splits the rows of a tile over the CTAs of a cluster; CTAs that share the tile all hold it."""
        return _copies(self.shares) or _split(self.cluster, 0)

    @property
    def producers(self) -> int:
        """Warps of the producer."""
        return 1 if self.described else LOADING_WARPS

    @property
    def copies(self) -> bool:
        """True when cp.async loads an operand, so that consumers need a proxy fence before the MMA."""
        return "copies" in (self.a.path, self.b.path)

    @property
    def loads(self) -> bool:
        """True when an operand is loaded through registers."""
        return "loads" in (self.a.path, self.b.path)

    @property
    def arrivals(self) -> int:
        """Arrivals per phase of a slot's `ready` barrier: one with the expected TMA bytes, and those of copying threads."""
        return bool(self.expected) + 32 * LOADING_WARPS * self.copies + self.loads

    @property
    def expected(self) -> int:
        """Bytes that TMA loads into a slot of one CTA."""
        a, b = (side.nbytes if side.path == "descriptor" else 0 for side in (self.a, self.b))
        return self.parts * a // self.cluster + self.sent * b


@dataclass(frozen=True, slots=True, eq=False)
class TensorPlan(Plan):
    """The plan of a kernel with accumulators in tensor memory, in the layout `acc`, whose programs get tiles by `schedule`.

    Blocks of a and b cover both CTAs of a pair, each of which holds half."""

    acc: Any
    schedule: Schedule

    @property
    def pairs(self) -> bool:
        """True when a pair of CTAs executes MMAs together (cta_group::2)."""
        return self.cluster == 2

    @property
    def tiles(self) -> int:
        """Accumulator tiles in tensor memory (double buffering)."""
        return 2

    @property
    def parts(self) -> int:
        """One block of a in a slot."""
        return 1

    @property
    def sent(self) -> int:
        """Blocks of b in a slot."""
        return self.halves

    @property
    def expected(self) -> int:
        """Bytes that TMA loads into a slot of one CTA."""
        return (self.a.nbytes + self.halves * self.b.nbytes) // self.cluster


@dataclass(frozen=True, slots=True)
class SplitReduction:
    """The plan of the split-K reduction: number of splits, output type, epilogue, and the columns of a tile's halves (0 if it
    has one operand b)."""

    splits: int
    dtype: Any
    epilogue: Epilogue
    half: int


@lru_cache(maxsize=1024)
def make_plan(
    a: Form, b: Form, out: OutputForm, epilogue: Epilogue, halves: int, config: MatmulConfig, fast: bool,
    stacked: bool = False,
) -> Plan:  # fmt: skip
    """The plan of a matmul from the forms of operands and output, the epilogue, and the configuration."""
    cluster, shares = config.cluster, config.shares
    above, beside = (halves, 1) if stacked else (1, halves)
    stored = config.block_n // beside if config.splits == 1 else config.block_n
    stored = slices_of(stored, shares)[0] if shares > 1 else stored
    output = output_of(out, config.rows_of_warps, stored, config.num_warps, cluster, shares)
    rows = config.rows // (config.consumers * above) if cluster > 1 or stacked else config.rows
    columns = config.block_n // (cluster * beside)
    if cluster * beside == 1 and b.path == "descriptor" and b.contiguous == "rows":
        columns = roomy(columns, DTYPES[b.dtype].itemsize)
    return Plan(
        side_of(a, rows, config.block_k, cluster, shares=shares),
        side_of(b, columns, config.block_k, cluster, shared=True, shares=shares),
        output,
        accumulator_type(a),
        epilogue,
        halves,
        stacked,
        config.rows,
        config.block_n,
        config.block_k,
        config.stages,
        min(config.buffers, config.pieces(output.width) * stored // (config.block_n * above)),
        config.splits,
        config.order,
        config.group,
        config.consumers,
        cluster,
        shares,
        config.overlap,
        config.registers_for(a.path == b.path == "descriptor"),
        None if fast else min(PROMOTED, config.block_k),
        True,
        a.batched,
    )


@lru_cache(maxsize=1024)
def make_tensor_plan(
    a: Form, b: Form, out: OutputForm, epilogue: Epilogue, halves: int, config: MatmulConfig, transposable: tuple[int, ...]
) -> TensorPlan:  # fmt: skip
    """The plan of a matmul in tensor memory; as `make_plan`. `transposable`: see `side_of`."""
    rows, columns, cluster = config.rows, config.block_n, config.cluster
    stored = columns // halves if config.splits == 1 else columns
    output = output_of(out, config.rows_of_warps, stored, config.num_warps, cluster)
    return TensorPlan(
        side_of(a, rows, config.block_k, cluster, transposable=transposable),
        side_of(b, columns // halves, config.block_k, cluster, transposable=transposable),
        output,
        accumulator_type(a),
        epilogue,
        halves,
        False,
        rows,
        columns,
        config.block_k,
        config.stages,
        min(config.buffers, stored // output.width),
        config.splits,
        config.order,
        config.group,
        config.consumers,
        cluster,
        shares=1,
        overlap=False,
        registers=None,
        promoted=None,
        dependent=config.pack,
        batched=a.batched,
        acc=TensorMemoryLayout(
            [config.block_m, columns], col_stride=1, cga_layout=_split(cluster, 0), two_ctas=cluster == 2
        ),
        schedule=Schedule("stolen" if config.variant == "tcgen05_clc" else "static"),
    )


def accumulator_type(form: Form) -> Any:
    """The accumulator type for an operand's element type."""
    return gl.int32 if form.dtype in ("int8", "uint8") else gl.float32


def side_of(
    form: Form, rows: int, depth: int, cluster: int, shared: bool = False, transposable: tuple[int, ...] = TRANSPOSABLE,
    shares: int = 1,
) -> StagedOperand:  # fmt: skip
    """An operand with blocks of `rows` rows and `depth` elements along K. The CTAs of a cluster split the rows, or each holds
    all of them (`shared`); each of the CTAs that share a tile has a block of its own.

    Tensor cores read elements of `transposable` bytes in either major-ness, all others only K-major."""
    dtype = DTYPES[form.dtype]
    along_k = form.contiguous != "rows" or dtype.itemsize not in transposable
    block = (rows, depth) if along_k else (depth, rows)
    cga = _copies(shares) or _split(cluster, None if shared else 0 if along_k else 1)
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype, cga_layout=cga)
    unit = max(form.unit // dtype.itemsize, 1)
    transposed = along_k and form.contiguous == "rows"
    vec = max(unit, THREAD_BYTES // dtype.itemsize) if form.path == "copies" else THREAD_BYTES // dtype.itemsize
    registers = _transposing(rows, vec) if transposed else _straight(block, vec)
    cut = 1 if transposed else 0
    held = block[cut] if form.path == "copies" else MOST_HELD * 32 * LOADING_WARPS // block[1 - cut]
    step = _step(block[cut], held)
    nbytes = rows * depth * dtype.itemsize
    return StagedOperand(
        dtype, form.path, form.contiguous, along_k, block, layout, nbytes, registers, cut, step, unit, form.batched
    )


def _box(side: StagedOperand | Output) -> tuple[tuple[int, ...], Any]:
    """The block that TMA copies, and its layout in shared memory: of a batch it has one more axis."""
    if not side.batched:
        return side.block, side.layout
    box = (1, *side.block)
    cga = [[0, *basis] for basis in side.layout.cga_layout or ()]
    return box, gl.NVMMASharedLayout.get_default_for(box, side.dtype, cga_layout=cga or None)


def _split(cluster: int, dim: int | None) -> list[list[int]] | None:
    """The `cga_layout` of a matrix that the CTAs of a cluster split along a dimension, or all hold (`dim` None)."""
    return [[int(d == dim) << bit for d in range(2)] for bit in range(cluster.bit_length() - 1)] or None


def _copies(shares: int) -> list[list[int]] | None:
    """The `cga_layout` of a matrix of which each of `shares` CTAs has one for itself."""
    return [[0, 0]] * (shares.bit_length() - 1) or None


def _in_registers(whole: LinearLayout, columns: int, shares: int) -> gl.SharedLinearLayout:
    """The layout of the first columns of an accumulator in the order of registers, a vector of them for each thread."""
    registers = [basis for basis in whole.bases("register") if basis[1] < columns]
    vector = (SUMS_BYTES // SUM_BYTES).bit_length() - 1
    bases = [*registers[:vector], *whole.bases("lane"), *whole.bases("warp"), *registers[vector:]]
    return gl.SharedLinearLayout(bases, _copies(shares) or ())


def _straight(block: tuple[int, int], vec: int) -> gl.BlockedLayout:
    """Lanes along the contiguous dimension of memory, for coalesced accesses."""
    lanes = min(_power_part(block[1] // vec), 32)
    return gl.BlockedLayout([1, vec], [32 // lanes, lanes], [LOADING_WARPS, 1], [1, 0])


def _transposing(rows: int, vec: int) -> gl.BlockedLayout:
    """Lanes along rows, for coalesced reads; each thread holds a few elements along K, which it writes to shared memory as one
    vector."""
    part = _power_part(rows)
    lanes = 32 if part == rows else max(part // vec, 1)
    return gl.BlockedLayout([vec, max(vec, 4)], [lanes, 32 // lanes], [1, LOADING_WARPS], [0, 1])


def _step(size: int, most: int) -> int:
    """The part of a block that warps load at a time: at most `most`, and all of it or a power of two that divides it."""
    return size if size <= most else min(_power_part(size), 1 << most.bit_length() - 1)


def _power_part(size: int) -> int:
    """The largest power of two that divides a size."""
    return size & -size


def output_of(form: OutputForm, rows: int, columns: int, warps: int, cluster: int, shares: int = 1) -> Output:
    """The output's pieces: the rows that the storing warps hold together, in each CTA of a cluster, by one swizzle span of
    columns."""
    kind = DTYPES[form.dtype]
    width = piece_width(columns, kind.itemsize)
    height = cluster * rows
    block = (width, height) if form.columns_first else (height, width)
    layout = gl.NVMMASharedLayout.get_default_for(
        block, kind, cga_layout=_copies(shares) or _split(cluster, int(form.columns_first))
    )
    lanes = min(_power_part((rows if form.columns_first else width) // form.unit), 32)
    if form.columns_first and width != _power_part(width):
        lanes = max(lanes, 32 * warps // _power_part(width))
    cga = _copies(shares) or _split(cluster, 0)
    registers = gl.BlockedLayout([1, form.unit], [32 // lanes, lanes], [warps, 1], [1, 0], cga_layout=cga)
    if form.columns_first:
        registers = gl.BlockedLayout([form.unit, 1], [lanes, 32 // lanes], [1, warps], [0, 1], cga_layout=cga)
    return Output(kind, form.described, form.columns_first, height, width, layout, registers, form.unit, form.batched)
