"""All-reduce with a residual and RMSNorm in one launch; the kernels are in `weft.kernels.device.ranks`."""

from __future__ import annotations

from typing import Any, cast

from weft import language as gl
from weft.distributed import Symmetric
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import ranks
from weft.kernels.distributed.collectives import ONE_SHOT_BYTES, REGISTERS, Method
from weft.kernels.distributed.operands import (
    MOST_PROGRAMS,
    SUMS,
    check_dtype,
    check_shape,
    flat,
    refuse_shape,
    symmetric,
)
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.plain import one_of
from weft.runtime.dtypes import ITEMSIZE

NORMED = {name: SUMS[name] for name in ("float16", "bfloat16", "float32")}
"""The types of rows that are normalised."""
EACH = 16
"""Elements of a row that a thread has, if that takes at most MOST_WARPS warps: with eight ranks 64 registers of 16-bit
elements."""
MOST_WARPS = 16
LONGEST = 16384
"""Elements of the longest row: 32 of a thread."""


@prepared("residual", "out")
def all_reduce_rms_norm(
    x: Symmetric, residual: Any = None, weight: Any = None, out: Any = None, *, eps: float = 1e-6,
    method: Method | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """RMSNorm of the sum of `x` over all ranks and `residual`, on every rank, in one launch; returns `out`.

    `x` is `[..., d]`, symmetric; its contents are lost. With `residual`, an ordinary tensor of its shape, h = sum + residual is
    stored there; otherwise h is the sum. `out` (by default a new tensor) is h / sqrt(mean(h * h) + eps) * weight, with `weight`
    of shape `[d]`. All are float16, bfloat16 or float32, alike; sums are float32 in the order of the ranks, so all ranks get
    the same bits from the same residual and weight. `method` as for `all_reduce`: "one_shot" reads all ranks' rows on every
    rank, "two_shot" shares the sums, and all ranks normalise.

    Rows have up to 16,384 elements. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype,
    kernels-ranks-shape, kernels-ranks-method.
    """
    what = "all_reduce_rms_norm"
    given = symmetric(what, "x", x)
    check_dtype(what, given.dtype, NORMED)
    if not given.shape or given.shape[-1] > LONGEST:
        refuse_shape(what, "x", given, given.dtype, ("...", f"at most {LONGEST}"))
    d = given.shape[-1]
    if method is not None and not one_of(method, "one_shot", "two_shot"):
        raise fail(errors.RANKS_METHOD, what=what, got=repr(method), size=f"{given.size} elements", limit="")
    if residual is not None:
        check_shape(what, "residual", flat(what, "residual", residual), given.dtype, given.shape)
    if weight is not None:
        check_shape(what, "weight", flat(what, "weight", weight), given.dtype, (d,))
    if out is None:
        out = empty_like(x.tensor, given.shape, given.dtype)
    check_shape(what, "out", flat(what, "out", out), given.dtype, given.shape)
    if not given.size:
        return out
    rows, block = given.size // d, max(1 << (d - 1).bit_length(), 32)
    warps = max(min(block // (32 * EACH), MOST_WARPS), 1)
    small = given.size * ITEMSIZE[given.dtype] <= ONE_SHOT_BYTES
    alone = method == "one_shot" or (method is None and small)
    programs = min(rows if alone else -(-rows // x.world_size), MOST_PROGRAMS)
    line = gl.BlockedLayout([min(given.each, block // 32)], [32], [warps], [0])
    kernel = cast("Any", ranks.one_shot_norm if alone else ranks.two_shot_norm)
    options = {"num_warps": warps, "maxnreg": REGISTERS}
    launched(kernel, programs, (x, residual, weight, out, rows, d, eps, line, block), options, stream)
    return out
