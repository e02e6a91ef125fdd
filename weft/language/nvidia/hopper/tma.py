"""TMA: asynchronous copies of blocks of tensors between global and shared memory, issued by one thread.

    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_copy_global_to_shared(desc, [row, col], bar, smem)
    mbarrier.wait(bar, phase)
    ...
    tma.async_copy_shared_to_global(out, [row, col], smem)
    tma.store_wait(0)

The block (or partition) issues a copy collectively. Out-of-bounds elements are read as the descriptor's padding and are not
written, except that stores write whole chunks of 16 bytes: if a row ends within a chunk, the rest of the chunk is written too.
The last coordinate must be a multiple of 16 bytes, also if it is negative; otherwise the hardware traps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from weft.errors import asynchronous as errors
from weft.errors import cluster as cluster_errors
from weft.errors import fail
from weft.errors import views as view_errors
from weft.ir.types import (
    DType,
    Pointer,
    bfloat16,
    float16,
    float32,
    int16,
    int32,
    int64,
    uint32,
    uint64,
)  # fmt: skip
from weft.language.broadcast import constant
from weft.language.context import current
from weft.language.creation import check_int, check_shape
from weft.language.descriptor import (
    tensor_descriptor,
    tensor_descriptor_im2col,
    tensor_descriptor_type,
)  # fmt: skip
from weft.language.marks import builtin
from weft.language.nvidia.checks import check_own_barrier, check_pendings, demand
from weft.language.policies import AnyPolicy, policy_attrs
from weft.language.promote import convert
from weft.language.runtime_value import describe, name_of
from weft.language.scalars import is_integer_scalar, predicate
from weft.language.shared_memory import check_buffer, shared_memory_descriptor
from weft.language.tensor import apply_many, tensor
from weft.layout import NVMMASharedLayout, SharedLayout
from weft.layout.cluster import receivers
from weft.layout.shared.tma import GRANULE, MOST_DIMS, MOST_STRIDE_BYTES, check
from weft.ops import tma as ops
from weft.ops.mbarrier import blocks_sharing
from weft.views import AddressSpace, LayoutTensor
from weft.views.extents import extents

_INTEGERS = (int32, uint32, int64, uint64)
_HALVES = (float16, bfloat16)
REDUCIBLE: dict[str, tuple[DType, ...]] = {
    "add": (int32, uint32, uint64, *_HALVES, float32),
    "min": (*_INTEGERS, *_HALVES),
    "max": (*_INTEGERS, *_HALVES),
    "and": _INTEGERS,
    "or": _INTEGERS,
    "xor": _INTEGERS,
}
"""The element types of each reduction (PTX ISA, cp.reduce.async.bulk.tensor and the types of tensor maps)."""


@builtin
def async_copy_global_to_shared(
    tensor_desc: tensor_descriptor, coord: Sequence[Any], barrier: shared_memory_descriptor,
    result: shared_memory_descriptor, pred: Any = True, multicast: bool = False, sender: int = 0, *,
    cache_policy: AnyPolicy | None = None,
) -> None:  # fmt: skip
    """Start a copy of the block whose first element is at `coord` to shared memory, if `pred` is true.

    `coord` is in elements, outermost dimension first: Python integers or scalars of at most 32 bits. The bytes of the whole
    block, `tensor_desc.block_type.nbytes`, count on the barrier's current phase. `result` is a buffer of the block's shape in
    the descriptor's layout, or such a slice of a larger buffer if it consists of whole TMA boxes.

    In a cluster the memory of a slice may be in other blocks than those whose parts of the block it receives. On Blackwell, a
    CTA loads to the other CTA of its pair then, and signals its own barrier: the other CTA sees the elements after a wait by
    this one and a cluster barrier.

    In a cluster each CTA copies its own part, `tensor_desc.nbytes_per_cta` bytes, which signals its own barrier. With
    `multicast`, the first of the CTAs that hold copies of a part (zero vectors in `cga_layout`) loads it once and writes it to
    the shared memory of all of them, which must have finished with the buffer by then. `sender` selects another CTA: it is the
    value of the rank bits in which these CTAs differ. CTAs can so divide the loads of several parts. A CTA pair on Blackwell
    may share the barrier, on which the bytes of both CTAs then count. `cache_policy` is a `CachePolicy` with `l2`.

    Raises CompilationError: language-cache-policy-needed, language-cache-policy-part, cluster-sender, async-target, async-
    descriptor-needed, async-descriptor-mode, async-coordinates, async-coordinate-step, async-coordinate-type, language-
    predicate, and the errors of an invalid barrier or buffer; LayoutError (async-block, cluster-slice).
    """
    what = "async_copy_global_to_shared"
    desc = tiled_descriptor(what, tensor_desc)
    bar = check_own_barrier(what, barrier, pairs=current().target.has_tcgen05)
    memory = _check_block(what, desc, result, loads=True)
    coords = _coordinates(what, desc, coord, desc.rank)
    many = is_multicast(multicast)
    operands = (desc.handle, bar, memory, predicate(what, pred), *coords)
    sent = {"multicast": many, "sender": _check_sender(desc, many, sender)}
    apply_many(ops.load, operands, **sent, **signalled(bar, memory), **l2_of(what, cache_policy))


@builtin
def async_copy_global_to_shared_im2col(
    tensor_desc: tensor_descriptor, coord: Sequence[Any], offsets: Sequence[Any], barrier: shared_memory_descriptor,
    result: shared_memory_descriptor, pred: Any = True, multicast: bool = False, *,
    cache_policy: AnyPolicy | None = None,
) -> None:  # fmt: skip
    """As `async_copy_global_to_shared`, with an im2col descriptor: [pixels, channels] of a tensor of N, space and C.

    `coord` is the first pixel and channel, `offsets` the position within the filter, one integer (int16) for each spatial
    dimension. Raises the same errors.
    """
    what = "async_copy_global_to_shared_im2col"
    desc = _descriptor(what, tensor_desc)
    if desc.handle.descriptor.mode != "im2col":
        fix = "make it with TensorDescriptorIm2Col, or use async_copy_global_to_shared"
        raise fail(errors.DESCRIPTOR_MODE, what=what, want="an im2col descriptor", got=describe(desc.handle), fix=fix)
    bar, memory = check_own_barrier(what, barrier), _check_block(what, desc, result)
    rank = len(desc.shape)
    coords = _coordinates(what, desc, coord, rank)
    places = _coordinates(f"the offsets of {what}", desc, offsets, rank - 2, int16)
    operands = (desc.handle, bar, memory, predicate(what, pred), *coords, *places)
    apply_many(ops.load_im2col, operands, multicast=is_multicast(multicast), **l2_of(what, cache_policy))


@builtin
def async_copy_shared_to_global(
    tensor_desc: tensor_descriptor, coord: Sequence[Any], src: shared_memory_descriptor, *,
    cache_policy: AnyPolicy | None = None,
) -> None:  # fmt: skip
    """Start a copy of a block from shared memory to the tensor, at `coord`.

    Each store forms a group for `store_wait`. Threads that wrote the buffer must execute `fence_async_shared` first. Raises the
    same errors as `async_copy_global_to_shared`.
    """
    what = "async_copy_shared_to_global"
    desc = stored_descriptor(what, tensor_desc)
    memory = _check_block(what, desc, src)
    operands = (desc.handle, memory, *_coordinates(what, desc, coord, desc.rank))
    apply_many(ops.store, operands, **l2_of(what, cache_policy))


def _reduction(kind: str, operation: str) -> Callable[..., None]:
    def reduce(
        tensor_desc: tensor_descriptor, coord: Sequence[Any], src: shared_memory_descriptor, *,
        cache_policy: AnyPolicy | None = None,
    ) -> None:  # fmt: skip
        desc = stored_descriptor(reduce.__name__, tensor_desc)
        memory = _check_block(reduce.__name__, desc, src)
        if desc.dtype not in REDUCIBLE[kind]:
            known = ", ".join(dtype.name for dtype in REDUCIBLE[kind])
            raise fail(errors.REDUCE_TYPE, what=reduce.__name__, dtype=desc.dtype.name, known=known)
        coords = _coordinates(reduce.__name__, desc, coord, desc.rank)
        apply_many(ops.reduce, (desc.handle, memory, *coords), kind=kind, **l2_of(reduce.__name__, cache_policy))

    reduce.__name__ = reduce.__qualname__ = f"async_atomic_{kind}"
    reduce.__doc__ = f"""Start an element-wise atomic {operation} of a block in shared memory into the tensor at `coord`.

    It forms a group for `store_wait`, and raises the errors, as `async_copy_shared_to_global`. Also raises async-reduce-type.
    """
    return builtin(reduce)


async_atomic_add = _reduction("add", "addition")
async_atomic_min = _reduction("min", "minimum")
async_atomic_max = _reduction("max", "maximum")
async_atomic_and = _reduction("and", "bitwise AND")
async_atomic_or = _reduction("or", "bitwise OR")
async_atomic_xor = _reduction("xor", "bitwise XOR")

async_load = async_copy_global_to_shared
async_load_im2col = async_copy_global_to_shared_im2col
async_store = async_copy_shared_to_global


@builtin
def store_wait(pendings: int, read_only: bool = True) -> None:
    """Wait until the source buffers of all but the latest `pendings` stores and reductions have been read.

    These buffers may then be overwritten. With `read_only=False` it also waits until the tensors have been written. One thread
    waits: others see the tensors after a `gl.barrier()`, other programs after a release that follows. Raises async-pendings,
    async-target.
    """
    demand("store_wait", "TMA")
    writes = not check_int("store_wait, read_only,", read_only)
    apply_many(ops.store_wait, (), pendings=check_pendings("store_wait", pendings), writes=writes)


@builtin
def make_tensor_descriptor(
    base: Any, shape: Sequence[Any] | None = None, strides: Sequence[Any] | None = None,
    block_shape: Sequence[int] | None = None, layout: SharedLayout | None = None, padding_option: str = "zero",
) -> tensor_descriptor:  # fmt: skip
    """Create a descriptor of the tensor at `base` in the kernel. `strides` are in elements; the last one is 1.

    `make_tensor_descriptor(view, block_shape=[64, 64])` takes address, shape and strides from a view in global memory, and the
    bounds from a masked one. The default layout is `NVMMASharedLayout.get_default_for`.

    Addresses and strides are multiples of 16 bytes. `padding_option` is the value of out-of-bounds elements: "zero" or "nan".
    In a loop, every iteration overwrites the descriptor of the previous one: loads through that one must be complete, and it
    must not be used afterwards.

    Raises CompilationError: async-target, async-make-base, async-make-rank, async-make-stride, async-make-padding,
    async-make-extent, async-make-outer-stride, async-coordinate-type, bridge-descriptor-arguments, bridge-descriptor-space;
    LayoutError: async-make-layout, bridge-descriptor-nested, bridge-descriptor-vectors, and layout-tma-* for layouts that TMA
    does not support.
    """
    demand("make_tensor_descriptor", "TMA")
    if isinstance(base, LayoutTensor):
        if shape is not None or strides is not None or block_shape is None:
            own = "with a shape or strides of its own" if block_shape is not None else "without a block_shape"
            raise fail(view_errors.BRIDGE_DESCRIPTOR_ARGUMENTS, base=base.history, problem=own)
        base, shape, strides = _of_view(base)
    if shape is None or strides is None or block_shape is None:
        missing = "without shape, strides and block_shape"
        raise fail(view_errors.BRIDGE_DESCRIPTOR_ARGUMENTS, base=name_of(base), problem=missing)
    element = base.element if isinstance(base, tensor) and base.is_scalar else None
    if not isinstance(element, Pointer):
        raise fail(errors.MAKE_BASE, got=name_of(base))
    block = check_shape("make_tensor_descriptor", block_shape)
    dtype = element.element_ty
    if layout is None:
        layout = NVMMASharedLayout.get_default_for(block, dtype)
    if not 1 <= len(shape) <= MOST_DIMS or not len(shape) == len(strides) == len(block):
        raise fail(errors.MAKE_RANK, shape=len(shape), strides=len(strides), block=len(block))
    if not isinstance(layout, NVMMASharedLayout) or layout.fp4_padded:
        raise fail(errors.MAKE_LAYOUT, layout=layout)
    check(block, layout, dtype.itemsize * 8)
    if isinstance(strides[-1], tensor) or strides[-1] != 1:
        raise fail(errors.MAKE_STRIDE, got=name_of(strides[-1]))
    floats = dtype.is_floating() and dtype.bits >= 16
    if padding_option not in ("zero", *(["nan"] if floats else [])):
        raise fail(errors.MAKE_PADDING, got=repr(padding_option), dtype=dtype.name)
    extents = [request_integer("the shape", d, x, int32) for d, x in enumerate(shape)]
    steps = [request_integer("the strides", d, x, int64) for d, x in enumerate(strides)]
    _check_known(shape, strides, dtype.itemsize)
    handles = [x.handle for x in (base, *extents, *steps)]
    made = current().builder.emit(
        ops.make_descriptor, *handles, block_shape=block, layout=layout, padding=padding_option
    )
    return tensor_descriptor.of(made, [x.handle for x in extents], [x.handle for x in steps])


@builtin
def update_tensor_descriptor(
    desc: tensor_descriptor, base: Any = None, shape: Sequence[Any] | None = None, strides: Sequence[Any] | None = None
) -> tensor_descriptor:
    """The descriptor of another tensor of the same kind, as of the next matrix of a group (PTX `tensormap.replace`).

    `base` is its address, `shape` its extents and `strides` its strides in elements; what is None, also within a list, remains.
    Block, layout, padding and the rounding of loads are those of `desc`, an argument of the kernel or a descriptor made in it,
    which stays as it was. It takes fewer instructions than `make_tensor_descriptor`, and has the same restrictions: in a loop
    every iteration overwrites the descriptor of the previous one, so that loads through that one must be complete. The fences
    of the tensormap proxy are part of it.

    Raises CompilationError: async-target, async-descriptor-needed, async-descriptor-mode, async-update-nothing,
    async-update-base, async-make-rank, async-make-stride, async-make-extent, async-make-outer-stride, async-coordinate-type.
    """
    what = "update_tensor_descriptor"
    known = stored_descriptor(what, desc)
    rank, element = known.rank, known.dtype
    if base is None and shape is None and strides is None:
        raise fail(errors.UPDATE_NOTHING)
    given = base.element if isinstance(base, tensor) and base.is_scalar else None
    if base is not None and (not isinstance(given, Pointer) or given.element_ty != element):
        raise fail(errors.UPDATE_BASE, got=name_of(base), dtype=element.name)
    extents_ = [None] * rank if shape is None else list(shape)
    steps = [None] * rank if strides is None else list(strides)
    if not len(extents_) == len(steps) == rank:
        raise fail(errors.MAKE_RANK, shape=len(extents_), strides=len(steps), block=rank)
    if steps[-1] is not None and (isinstance(steps[-1], tensor) or steps[-1] != 1):
        raise fail(errors.MAKE_STRIDE, got=name_of(steps[-1]))
    changed = tuple(
        dim for dim in range(rank) if extents_[dim] is not None or (steps[dim] is not None and dim < rank - 1)
    )
    whole = [old if new is None else new for new, old in zip(extents_, known.shape, strict=True)]
    paces = [old if new is None else new for new, old in zip(steps, known.strides, strict=True)]
    _check_known(whole, paces, element.itemsize)
    sizes = [request_integer("the shape", dim, x, int32) for dim, x in enumerate(whole)]
    pitches = [request_integer("the strides", dim, x, int64) for dim, x in enumerate(paces)]
    operands = [known.handle.handle, None if base is None else base.handle]
    operands += [numbers[dim].handle for numbers in (sizes, pitches) for dim in changed]
    made = current().builder.emit(ops.update_descriptor, *operands, changed=changed)
    return tensor_descriptor.of(made, [x.handle for x in sizes], [x.handle for x in pitches])


def l2_of(what: str, policy: AnyPolicy | None) -> dict[str, Any]:
    """The attribute of a TMA copy under a cache policy. Raises language-cache-policy-needed, language-cache-policy-part."""
    return policy_attrs(what, policy, ("l2",))


def _of_view(view: LayoutTensor) -> tuple[tensor, list[Any], list[Any]]:
    """Address, shape and strides of a view."""
    if view.address_space is not AddressSpace.GLOBAL:
        raise fail(view_errors.BRIDGE_DESCRIPTOR_SPACE, view=view.history, space=view.address_space.value)
    shape, strides = extents(view)
    # Extents of a tensor map are 32-bit, also for a view whose sizes are 64-bit scalars.
    return view.ptr, [convert(size, int32) if isinstance(size, tensor) else size for size in shape], strides


def _check_known(shape: Sequence[Any], strides: Sequence[Any], itemsize: int) -> None:
    """Checks the constant extents and strides against TMA's limits. The stride of a dimension of size 1 is irrelevant."""
    for dim, extent in enumerate(shape):
        if not isinstance(extent, tensor) and int(extent) < 1:
            raise fail(errors.MAKE_EXTENT, dim=dim, got=int(extent))
    for dim, (extent, stride) in enumerate(zip(shape[:-1], strides[:-1], strict=True)):
        if isinstance(stride, tensor) or (not isinstance(extent, tensor) and int(extent) == 1):
            continue
        nbytes = int(stride) * itemsize
        if nbytes % GRANULE or not 0 < nbytes < MOST_STRIDE_BYTES:
            raise fail(errors.MAKE_OUTER_STRIDE, dim=dim, nbytes=nbytes, count=max(GRANULE // itemsize, 1))


def _descriptor(what: str, x: object) -> tensor_descriptor:
    demand(what, "TMA")
    if not isinstance(x, tensor_descriptor):
        raise fail(errors.DESCRIPTOR_NEEDED, what=what, got=name_of(x))
    if _is_padded(x.handle.descriptor.layout):
        demand(what, "fp4 spread by TMA")
    return x


def _is_padded(layout: SharedLayout) -> bool:
    return isinstance(layout, NVMMASharedLayout) and layout.fp4_padded


def tiled_descriptor(what: str, x: object) -> tensor_descriptor:
    """Checks for a tiled descriptor. Raises async-target, async-descriptor-needed, async-descriptor-mode."""
    desc = _descriptor(what, x)
    if desc.handle.descriptor.mode != "tiled":
        fix = "make it with TensorDescriptor, or load through async_load_im2col"
        raise fail(errors.DESCRIPTOR_MODE, what=what, want="a tiled descriptor", got=describe(desc.handle), fix=fix)
    return desc


def stored_descriptor(what: str, x: object) -> tensor_descriptor:
    """Checks for a descriptor that supports stores: TMA does not pack expanded fp4. Raises the errors of
    `tiled_descriptor`."""
    desc = tiled_descriptor(what, x)
    layout = desc.handle.descriptor.layout
    if _is_padded(layout):
        got, fix = f"one in {layout}", "store packed bytes, through a descriptor without fp4_padded"
        raise fail(errors.DESCRIPTOR_MODE, what=what, want="a descriptor of memory without padding", got=got, fix=fix)
    return desc


def _check_block(what: str, desc: tensor_descriptor, x: object, loads: bool = False) -> shared_memory_descriptor:
    """Checks for a buffer of the descriptor's element type, shape and layout, or a slice that consists of whole TMA boxes.
    `loads` as in `check_reached`."""
    memory = check_buffer(what, x)
    d, t = desc.handle.descriptor, memory.memory
    fits = (t.element, t.shape, t.layout) == (d.element, d.block_shape, d.layout)
    if not fits or ops.reached(t) == "no box":
        part = "" if t.alloc_shape == t.shape[memory.leading :] else f", a part of a tile {list(t.alloc_shape)},"
        raise fail(
            errors.BLOCK,
            what=what,
            desc=f"{d.element.name} blocks {list(d.block_shape)}",
            desc_layout=d.layout,
            got=name_of(memory) + part,
            layout=t.layout,
        )
    check_reached(what, memory, loads)
    return memory


def check_reached(what: str, memory: shared_memory_descriptor, loads: bool) -> None:
    """Checks that the memory of a slice is in the blocks that copy its parts, or where this `loads` tiles, in those of their
    pairs. Raises cluster-slice."""
    t = memory.memory
    where = ops.reached(t)
    pairs = current().target.has_tcgen05
    if where == "own" or (where == "pair" and loads and pairs):
        return
    limit = "only loads of tiles write to another block"
    if loads:
        limit = "a load writes to the other block of its pair only (ranks 2n and 2n + 1)"
    if loads and not pairs:
        limit = f"the TMA of {current().target.name} writes to the block's own memory"
    raise fail(
        cluster_errors.SLICE, what=what, got=name_of(memory), tile=list(t.alloc_shape), layout=t.layout, limit=limit
    )


def signalled(bar: shared_memory_descriptor, memory: shared_memory_descriptor) -> dict[str, Any]:
    """The attributes of a load by which blocks it signals, and which it writes to."""
    return {"shared_by": blocks_sharing(bar.handle), "remote": ops.reached(memory.memory) == "pair"}


def _coordinates(what: str, desc: tensor_descriptor, coord: Any, rank: int, dtype: DType = int32) -> list[tensor]:
    if not isinstance(coord, (list, tuple)):
        raise fail(errors.COORDINATES, what=what, got=name_of(coord), desc=describe(desc.handle), rank=rank)
    values = cast("Sequence[Any]", coord)
    if len(values) != rank:
        count = "1 coordinate" if len(values) == 1 else f"{len(values)} coordinates"
        raise fail(errors.COORDINATES, what=what, got=count, desc=describe(desc.handle), rank=rank)
    if dtype is int32:
        check_column(what, desc, values[-1])
    return [request_integer(what, number, x, dtype) for number, x in enumerate(values)]


def check_column(what: str, desc: tensor_descriptor, column: Any) -> None:
    """Reject a constant last coordinate that is not a multiple of 16 bytes (async-coordinate-step)."""
    step = max(GRANULE // desc.dtype.itemsize, 1)
    if isinstance(column, int) and column % step:
        raise fail(errors.COORDINATE_STEP, what=what, column=column, desc=describe(desc.handle), step=step)


def request_integer(what: str, number: int, x: Any, dtype: DType) -> tensor:
    """An integer operand of a TMA instruction: a Python integer, or a scalar of at most 32 bits (64 for strides).

    Raises async-coordinate-type."""
    if not isinstance(x, tensor):
        if not hasattr(x, "__index__"):
            raise fail(errors.COORDINATE_TYPE, number=number, what=what, got=name_of(x))
        return constant(int(x), dtype)
    if not is_integer_scalar(x) or x.element.bits > max(dtype.bits, int32.bits):
        raise fail(errors.COORDINATE_TYPE, number=number, what=what, got=name_of(x))
    return convert(x, dtype)


def _check_sender(desc: tensor_descriptor, multicast: bool, sender: Any) -> int:
    number, blocks, t = check_int("sender", sender), current().num_ctas, desc.handle.descriptor
    bits = receivers(t.layout.to_linear(t.block_shape), blocks) if multicast else 0
    known = [rank for rank in range(blocks) if not rank & ~bits]
    if number not in known:
        what = f"blocks of {describe(desc.handle)}"
        raise fail(cluster_errors.SENDER, got=number, desc=what, known=known)
    return number


def is_multicast(multicast: Any) -> bool:
    """True if the copy is multicast; without a cluster there are no other receivers."""
    return bool(multicast) and current().num_ctas > 1


__all__ = [
    "async_atomic_add", "async_atomic_and", "async_atomic_max", "async_atomic_min", "async_atomic_or", "async_atomic_xor",
    "async_copy_global_to_shared", "async_copy_global_to_shared_im2col", "async_copy_shared_to_global", "async_load",
    "async_load_im2col", "async_store", "make_tensor_descriptor", "store_wait", "tensor_descriptor",
    "tensor_descriptor_im2col", "tensor_descriptor_type", "update_tensor_descriptor",
]  # fmt: skip
