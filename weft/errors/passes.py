"""Mistakes that the passes over tile IR find: tiles whose layouts do not come together, fences, accumulators in flight."""

from __future__ import annotations

from weft.errors.base import CompilationError, PerformanceWarning, row

LAYOUT_CONFLICT = row(
    "resolve-conflict",
    CompilationError,
    "{value} is left to the compiler, but its uses need two layouts: {first} and {second}",
    "make one tile for each use, or give it the first layout and write gl.convert_layout({value}, {second}) for the second",
)
LAYOUT_OPEN = row(
    "resolve-open",
    CompilationError,
    "nothing says how the elements of {value} lie in threads: no tile that it meets has a layout",
    "make it with layout=..., or call set_auto_layout(value, layout) on it",
)
FENCE = row(
    "sync-fence",
    CompilationError,
    "{what} reaches {buffer} through the async proxy, but threads accessed it {line}, and nothing orders the two proxies",
    "write fence_async_shared() between the two, or let weft place it: drop sync='explicit'",
)

# Accumulators of asynchronous products

ACCUMULATOR_READ = row(
    "accumulator-in-flight",
    CompilationError,
    "{name} is used here, but the product that it is the result of may still be under way: it has no value yet",
    "wait for the product and use what the wait returns: {name} = warpgroup_mma_wait(0, ({name},))",
)
ACCUMULATOR_KEPT = row(
    "accumulator-kept",
    CompilationError,
    "{name} is used here again, after it has been handed on while its product was under way: it has changed in place, and "
    "could not be copied",
    "go on with what it was handed on to, or wait for the product first",
)
ACCUMULATOR_MOVED = row(
    "accumulator-moved",
    CompilationError,
    "{name} would have to move to other registers here while its product is under way",
    "wait for the product before, or let every accumulator keep its name from round to round",
)
ACCUMULATOR_SIZE = row(
    "accumulator-registers",
    PerformanceWarning,
    "accumulators take {bytes} bytes of each thread's registers at a time, which has {limit}: with addresses and operands "
    "that is too many, and some go to memory",
    "use more warps for the tile (now {warps}), or a smaller tile",
)
