"""The order of the passes.

The simulator runs the result of `tile_pipeline`; CUDA text is emitted from that of `lower_pipeline`. `watch` is called after
each pass with its name, the function after it, and its time in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from weft import settings
from weft.analysis.scopes import scopes
from weft.ir.core import Func, Op
from weft.ir.verify import verify
from weft.passes.check.accumulators import check_accumulators, check_moves
from weft.passes.check.alignment import check_alignment
from weft.passes.check.apart import check_apart
from weft.passes.check.blocks import check_blocks_of_threads
from weft.passes.check.clusters import check_blocks
from weft.passes.dce import dce
from weft.passes.lower import lower_tiles
from weft.passes.lower.widths import Width
from weft.passes.lowered.allocate_scratch import allocate_scratch
from weft.passes.lowered.assign_registers import assign_registers
from weft.passes.lowered.bound_blocks import bound_blocks
from weft.passes.lowered.count_loops import count_loops
from weft.passes.lowered.hold_waits import hold_waits
from weft.passes.lowered.join_branches import join_branches
from weft.passes.lowered.mark_exact import mark_exact
from weft.passes.lowered.sort_indices import sort_indices
from weft.passes.lowered.unsigned import unsigned
from weft.passes.simplify import simplify
from weft.passes.sync.cluster_sync import cluster_sync
from weft.passes.sync.fence_tensor_memory import fence_tensor_memory
from weft.passes.sync.insert_sync import insert_sync
from weft.passes.sync.spread_arrivals import spread_arrivals
from weft.passes.sync.spread_requests import spread_requests
from weft.passes.tile.allocate_shared import allocate_shared
from weft.passes.tile.allocate_tensor_memory import allocate_tensor_memory
from weft.passes.tile.contract_fma import contract_fma
from weft.passes.tile.drop_parameters import drop_parameters
from weft.passes.tile.exchange_blocks import exchange_blocks
from weft.passes.tile.meet_partitions import meet_partitions
from weft.passes.tile.overlap_products import overlap_products
from weft.passes.tile.partition_plan import check_partitions
from weft.passes.tile.resolve_layouts import resolve_layouts
from weft.passes.tile.split_partitions import split_partitions
from weft.passes.tile.unroll_products import unroll_products
from weft.targets import Target

Pass = Callable[[Func], Func]
Watch = Callable[[str, Func, float], None]


def tile_pipeline(func: Func, target: Target, watch: Watch | None = None) -> Func:
    """From the author's tile IR to tile IR with resolved layouts, memory allocated, and barriers and fences inserted."""
    return _run(
        func,
        (
            ("simplify", simplify),
            ("dce", dce),
            ("resolve_layouts", lambda f: _resolved(f, target)),
            ("drop_parameters", drop_parameters),
            ("contract_fma", lambda f: contract_fma(f) if f.attrs.fp_fusion else f),
            ("check_scopes", _check_scopes),
            ("check_blocks_of_threads", check_blocks_of_threads),
            ("check_alignment", check_alignment),
            ("check_partitions", lambda f: check_partitions(f, target)),
            ("check_blocks", _check_blocks),
            ("exchange_blocks", exchange_blocks),
            ("meet_partitions", meet_partitions),
            ("check_apart", check_apart),
            ("overlap_products", lambda f: _by_author(f, overlap_products)),
            ("allocate_shared", lambda f: allocate_shared(f, target)),
            ("allocate_tensor_memory", lambda f: allocate_tensor_memory(f, target)),
            ("cluster_sync", lambda f: _by_author(f, cluster_sync)),
            ("spread_arrivals", lambda f: _by_author(f, spread_arrivals)),
            ("spread_requests", lambda f: _by_author(f, lambda g: spread_requests(g, target))),
            ("insert_sync", _synchronised),
            ("fence_tensor_memory", lambda f: _by_author(f, fence_tensor_memory)),
        ),
        watch,
    )


def access_widths(func: Func, target: Target) -> list[Width]:
    """The vector width of each access to global memory, and the reason why it is not wider."""
    widths: list[Width] = []
    lower_tiles(split_partitions(func, target), target, widths)
    return widths


def lower_pipeline(func: Func, target: Target, watch: Watch | None = None) -> Func:
    """From the result of `tile_pipeline` to lowered IR, which CUDA text follows operation by operation."""
    return _run(
        func,
        (
            ("check_accumulators", lambda f: check_accumulators(f, target)),
            ("unroll_products", unroll_products),
            ("split_partitions", lambda f: split_partitions(f, target)),
            ("lower_tiles", lambda f: lower_tiles(f, target)),
            ("sort_indices", sort_indices),
            ("unsigned", unsigned),
            ("dce", dce),
            ("drop_parameters", drop_parameters),
            ("allocate_scratch", lambda f: allocate_scratch(f, target)),
            ("insert_sync", _synchronised),
            ("join_branches", join_branches),
            ("hold_waits", hold_waits),
            ("bound_blocks", lambda f: bound_blocks(f, target)),
            ("mark_exact", mark_exact),
            ("count_loops", count_loops),
            ("assign_registers", assign_registers),
            ("check_moves", check_moves),
        ),
        watch,
    )


def _resolved(func: Func, target: Target) -> Func:
    """Value numbering never merges tiles with unresolved layouts, so a function that had some is simplified again."""
    resolved = resolve_layouts(func, target)
    return func if resolved is func else dce(simplify(resolved))


def _by_author(func: Func, insert: Pass) -> Func:
    """With `sync="none"` no barriers and fences are inserted besides the author's."""
    return func if func.attrs.sync == "none" else insert(func)


def _synchronised(func: Func) -> Func:
    return _by_author(func, insert_sync)


def _check_blocks(func: Func) -> Func:
    check_blocks(func)
    return func


def _check_scopes(func: Func) -> Func:
    scopes(func)
    return func


def _run(func: Func, passes: tuple[tuple[str, Pass], ...], watch: Watch | None) -> Func:
    checked, verified, known = settings.current().verify, None, frozenset[Op]()
    for name, apply in passes:
        start = perf_counter()
        func = apply(func)
        if checked and func is not verified:
            stage = verified is None or verified.attrs.stage == func.attrs.stage
            verified, known = func, verify(func, known if stage else frozenset())
        if watch is not None:
            watch(name, func, (perf_counter() - start) * 1e3)
    return func
