"""A copy in one dimension: the number of neighbours per thread decides the width of its loads.

A program copies XBLOCK elements. `R` consecutive ones belong to one thread, the next R to the next lane, and so on: R=4 gives
a thread 16 contiguous bytes, the widest access. With R=8 a thread holds 32 bytes, in two accesses.

    python examples/copy_1d.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl


@weft.jit
def copy_1d(src, dst, numel, XBLOCK: gl.constexpr, layout: gl.constexpr):
    offsets = gl.program_id(0) * XBLOCK + gl.arange(0, XBLOCK, layout=layout)
    mask = offsets < numel
    gl.store(dst + offsets, gl.load(src + offsets, mask=mask), mask=mask)


def run(src: Any, dst: Any, numel: int, XBLOCK: int = 2048, R: int = 4, num_warps: int = 4) -> Any:
    """Copy `numel` elements; returns the compiled kernel."""
    layout = gl.BlockedLayout([R], [32], [num_warps], [0])
    return copy_1d[(weft.cdiv(numel, XBLOCK),)](src, dst, numel, XBLOCK, layout, num_warps=num_warps)


def row(place: Place, R: int, XBLOCK: int = 2048) -> dict[str, Any]:
    """One line of the table: copy with R elements per thread, check, measure."""
    from weft.layout.cost import coalescing

    # A multiple of 16, as most array sizes are: then one predicate holds for a whole vector. The last program is partly masked.
    numel = place.size(250_000_000, 100_000)
    src, dst = place.random(numel), place.poisoned(numel)
    compiled = run(src, dst, numel, XBLOCK, R)
    place.check(dst, src)
    warp = coalescing(gl.BlockedLayout([R], [32], [4], [0]).to_linear([XBLOCK]), [XBLOCK], [1], 4)
    return {
        "R": R,
        "programs": weft.cdiv(numel, XBLOCK),
        "bits per access": warp.vec * 32,
        "accesses per thread": warp.requests,
        "sectors per access": warp.sectors // warp.requests,
        "machine code": workbench.accesses(compiled),
        "TB/s": place.throughput(lambda: run(src, dst, numel, XBLOCK, R), 2 * numel * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, R) for R in (1, 2, 4, 8, 16)]
    workbench.report("1D copy, 2048 elements a program", rows, given.place, given.plot, "bits per access")


if __name__ == "__main__":
    main()
