"""What the text of a matrix product's kernel depends on: everything that is known when it is compiled.

Kernels take a `Plan` as one constant. Plans are kept, so that equal ones are one object, which launches compare by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from weft import language as gl
from weft.kernels.config import EITHER_WAY, PROMOTED, MatmulConfig
from weft.language.nvidia.blackwell import TensorMemoryLayout

Path = Literal["descriptor", "copies", "loads"]
"""How the blocks of an operand come to shared memory: by TMA, by cp.async, or through registers."""

DTYPES: dict[str, Any] = {
    "float16": gl.float16, "bfloat16": gl.bfloat16, "float8_e4m3fn": gl.float8e4nv, "float8_e5m2": gl.float8e5,
    "float32": gl.float32, "int8": gl.int8, "uint8": gl.uint8, "int32": gl.int32,
}  # fmt: skip
"""Element types of arrays, by their canonical names."""
SWIZZLE_BYTES = 128
THREAD_BYTES = 4
"""What a thread of a loading warp reads, and writes to shared memory, at a time at least."""
MOST_HELD = 64
"""Elements that such a thread holds at a time."""
LOADING_WARPS = 4


@dataclass(frozen=True, slots=True)
class Form:
    """How an operand lies in global memory, as far as kernels depend on it. Operands are seen as [rows, K].

    `contiguous` is the dimension whose elements follow one another, "k", "rows" or "" for none, and `unit` the bytes at a time
    that may be read along it.
    """

    dtype: str
    path: Path
    contiguous: str
    unit: int


@dataclass(frozen=True, slots=True)
class OutputForm:
    """How the output lies in global memory. TMA stores it if `described`; `columns_first` says that its columns are what is
    contiguous, and `unit` how many elements along them, or along rows, are aligned together."""

    dtype: str
    described: bool
    columns_first: bool
    unit: int


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """An operand: how its blocks lie in shared memory and come there.

    `block` is the shape of a block in memory, [rows, K] if `along_k`, else [K, rows]. `registers` is the layout in which warps
    hold what they copy, `step` how much of the block's dimension `cut` they copy at a time, and `unit` the elements that are
    aligned together.
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


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The output: it is stored by TMA if `described`, in pieces of `width` columns that lie as `layout` says.

    `columns_first` says that its columns are contiguous, so that TMA sees its transpose. Threads that store it hold it in
    `registers`, `unit` elements at a time that are aligned together.
    """

    dtype: Any
    described: bool
    columns_first: bool
    height: int
    width: int
    layout: Any
    registers: Any
    unit: int

    @property
    def block(self) -> tuple[int, int]:
        """Shape in memory of a piece."""
        return (self.width, self.height) if self.columns_first else (self.height, self.width)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a kernel is compiled for. `scale_a` and `scale_b`: "" for none, "number", "one" (in memory), or "each".

    `promoted` is after how many elements along K sums of the tensor core are added in float32; None where they stay in it.
    Tiles, and blocks of a, are of all `cluster` blocks of threads of a program, which share their rows; a slot has as many
    blocks of b, each of which one of them sends to all.
    """

    a: Side
    b: Side
    out: Output
    sums: Any
    scale_a: str
    scale_b: str
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
    overlap: bool
    registers: tuple[int, ...] | None
    promoted: int | None

    @property
    def described(self) -> bool:
        """Both operands come by TMA."""
        return self.a.path == self.b.path == "descriptor"

    @property
    def parts(self) -> int:
        """Blocks of a in a slot: one for each consumer in a cluster, where a part of the rows is no slice, else one for all."""
        return self.consumers if self.cluster > 1 else 1

    @property
    def sent(self) -> int:
        """Blocks of b in a slot: one that each block of a cluster sends to all."""
        return self.cluster

    @property
    def b_block(self) -> tuple[int, int]:
        """Shape in memory of a slot's block of b."""
        return (self.block_n, self.block_k) if self.b.along_k else (self.block_k, self.block_n)

    @property
    def split_rows(self) -> list[list[int]] | None:
        """How the rows of tiles [rows, columns] are spread over the blocks of a cluster."""
        return _split(self.cluster, 0)

    @property
    def producers(self) -> int:
        """Warps that bring blocks."""
        return 1 if self.described else LOADING_WARPS

    @property
    def copies(self) -> bool:
        """Some blocks come by cp.async, so that those who multiply have to fence."""
        return "copies" in (self.a.path, self.b.path)

    @property
    def loads(self) -> bool:
        """Some blocks come through registers."""
        return "loads" in (self.a.path, self.b.path)

    @property
    def arrivals(self) -> int:
        """Arrivals that make a slot ready: one that says how many bytes to expect, and those of warps that copy."""
        return bool(self.expected) + 32 * LOADING_WARPS * self.copies + self.loads

    @property
    def expected(self) -> int:
        """Bytes that TMA brings into a slot of a block of threads."""
        a, b = (side.nbytes if side.path == "descriptor" else 0 for side in (self.a, self.b))
        return self.parts * a // self.cluster + self.sent * b


@dataclass(frozen=True, slots=True, eq=False)
class TensorPlan(Plan):
    """What a kernel is compiled for whose sums are in tensor memory, as `acc` lays them out; tiles are `handed` out by the GPU.

    Blocks of a and b are of both blocks of threads of a cluster, which have halves of them."""

    acc: Any
    handed: bool

    @property
    def pairs(self) -> bool:
        """Two blocks of threads multiply together."""
        return self.cluster == 2

    @property
    def tiles(self) -> int:
        """Tiles whose sums are in tensor memory at a time."""
        return 2

    @property
    def parts(self) -> int:
        """One block of a in a slot."""
        return 1

    @property
    def sent(self) -> int:
        """One block of b in a slot."""
        return 1

    @property
    def expected(self) -> int:
        """Bytes that TMA brings into a slot of a block of threads."""
        return (self.a.nbytes + self.b.nbytes) // self.cluster


@dataclass(frozen=True, slots=True)
class Adding:
    """What the kernel that adds parts is compiled for: how many, the output's type, kinds of scales of its rows and columns."""

    splits: int
    dtype: Any
    scale_rows: str
    scale_columns: str


@lru_cache(maxsize=1024)
def make_plan(
    a: Form, b: Form, out: OutputForm, scale_a: str, scale_b: str, config: MatmulConfig, fast: bool
) -> Plan:  # fmt: skip
    """The plan of a product: operands and output as they lie in memory, kinds of scales, and the configuration."""
    cluster = config.cluster
    output = output_of(out, config.rows_of_warps, config.block_n, config.num_warps, cluster)
    pieces = config.sums_per_thread * 32 * config.num_warps // (config.rows_of_warps * output.width)
    rows = config.rows // config.consumers if cluster > 1 else config.rows
    return Plan(
        side_of(a, rows, config.block_k, cluster),
        side_of(b, config.block_n // cluster, config.block_k, cluster, shared=True),
        output,
        sums_of(a),
        scale_a,
        scale_b,
        config.rows,
        config.block_n,
        config.block_k,
        config.stages,
        # Every tile begins with the first buffer, which must be the one that was used longest ago.
        min(config.buffers, pieces),
        config.splits,
        config.order,
        config.group,
        config.consumers,
        cluster,
        config.overlap,
        config.registers_for(a.path == b.path == "descriptor"),
        None if fast else min(PROMOTED, config.block_k),
    )


@lru_cache(maxsize=1024)
def make_tensor_plan(
    a: Form, b: Form, out: OutputForm, scale_a: str, scale_b: str, config: MatmulConfig, either_way: tuple[int, ...]
) -> TensorPlan:
    """The plan of a product in tensor memory; as `make_plan`. `either_way`: see `side_of`."""
    rows, columns, cluster = config.rows, config.block_n, config.cluster
    output = output_of(out, config.rows_of_warps, columns, config.num_warps, cluster)
    return TensorPlan(
        side_of(a, rows, config.block_k, cluster, either_way=either_way),
        side_of(b, columns, config.block_k, cluster, either_way=either_way),
        output,
        sums_of(a),
        scale_a,
        scale_b,
        rows,
        columns,
        config.block_k,
        config.stages,
        min(config.buffers, columns // output.width),
        config.splits,
        config.order,
        config.group,
        config.consumers,
        cluster,
        overlap=False,
        registers=None,
        promoted=None,
        acc=TensorMemoryLayout(
            [config.block_m, columns], col_stride=1, cga_layout=_split(cluster, 0), two_ctas=cluster == 2
        ),
        handed=config.variant == "tcgen05_clc",
    )


def sums_of(form: Form) -> Any:
    """The type of sums of products of an operand's elements."""
    return gl.int32 if form.dtype in ("int8", "uint8") else gl.float32


def side_of(
    form: Form, rows: int, depth: int, cluster: int, shared: bool = False, either_way: tuple[int, ...] = EITHER_WAY
) -> Side:
    """An operand's blocks of `rows` and `depth` elements along K. Blocks of a cluster all have theirs, or share its rows.

    Tensor cores read elements of `either_way` bytes along any dimension, all others along K only."""
    dtype = DTYPES[form.dtype]
    along_k = form.contiguous != "rows" or dtype.itemsize not in either_way
    block = (rows, depth) if along_k else (depth, rows)
    cga = _split(cluster, None if shared else 0 if along_k else 1)
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype, cga_layout=cga)
    unit = max(form.unit // dtype.itemsize, 1)
    turned = along_k and form.contiguous == "rows"
    vec = max(unit, THREAD_BYTES // dtype.itemsize) if form.path == "copies" else THREAD_BYTES // dtype.itemsize
    registers = _turning(vec) if turned else _straight(block, vec)
    cut = 1 if turned else 0
    held = block[cut] if form.path == "copies" else MOST_HELD * 32 * LOADING_WARPS // block[1 - cut]
    step = min(block[cut], held)
    nbytes = rows * depth * dtype.itemsize
    return Side(dtype, form.path, form.contiguous, along_k, block, layout, nbytes, registers, cut, step, unit)


def _split(cluster: int, dim: int | None) -> list[list[int]] | None:
    """The `cga_layout` of a matrix of which the two blocks of a cluster hold halves along a dimension, or all of it."""
    return None if cluster == 1 else [[int(d == dim) for d in range(2)]]


def _straight(block: tuple[int, int], vec: int) -> gl.BlockedLayout:
    """Threads side by side along memory's contiguous dimension."""
    lanes = min(block[1] // vec, 32)
    return gl.BlockedLayout([1, vec], [32 // lanes, lanes], [LOADING_WARPS, 1], [1, 0])


def _turning(vec: int) -> gl.BlockedLayout:
    """Threads side by side along rows, each of which holds a few elements along K, which it writes together."""
    return gl.BlockedLayout([vec, max(vec, 4)], [32, 1], [1, LOADING_WARPS], [0, 1])


def output_of(form: OutputForm, rows: int, columns: int, warps: int, cluster: int) -> Output:
    """The output's pieces: of all rows that some warps hold together, in each block of a cluster, and as many columns as a
    swizzle spans."""
    kind = DTYPES[form.dtype]
    width = min(SWIZZLE_BYTES // kind.itemsize, columns)
    height = cluster * rows
    block = (width, height) if form.columns_first else (height, width)
    layout = gl.NVMMASharedLayout.get_default_for(block, kind, cga_layout=_split(cluster, int(form.columns_first)))
    lanes = min((rows if form.columns_first else width) // form.unit, 32)
    cga = _split(cluster, 0)
    registers = gl.BlockedLayout([1, form.unit], [32 // lanes, lanes], [warps, 1], [1, 0], cga_layout=cga)
    if form.columns_first:
        registers = gl.BlockedLayout([form.unit, 1], [lanes, 32 // lanes], [1, warps], [0, 1], cga_layout=cga)
    return Output(kind, form.described, form.columns_first, height, width, layout, registers, form.unit)
