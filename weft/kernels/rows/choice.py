"""Which configuration rows of a length take: what was fastest on an H200, in sweeps of lengths for bfloat16 unless it says
otherwise. Rates below are parts of the rate of a copy of the same bytes.

Blocks that wait for memory need others beside them, and a row's instructions (sums over lanes and warps, exchanges, draws of
tickets) are shared by the elements that a thread has of it. So a thread has as many as leave a multiprocessor about 16
warps."""

from __future__ import annotations

from weft.kernels.rows.plan import (
    CLUSTERS,
    EACH,
    LONG_EACH,
    LONGEST_PART,
    MIDDLE_EACH,
    MOST_EACH,
    USUAL_PART,
    USUAL_WARPS,
    RowConfig,
    power_of_two,
    warps_of,
)

MOST_WARPS = 32
LONG_PART = 8192
"""Columns of a block of 4 warps, with 64 elements of a row in a thread."""
SUMS_PART = 4096
"""Columns of a block that adds up two gradients over its rows."""
MIDDLE_PART, LOG_PART = 12288, 10240
"""Columns of the longest rows of 16 bits that 8 warps have with 48 elements in a thread. The programs of a softmax of longer
ones are persistent (`stays`), and with logarithms those of more than the second number."""
NORMS = ((256, 2048, RowConfig(num_warps=2)), (3072, 8192, RowConfig(each=LONG_EACH)))
"""Configurations of norms of rows of more than so many columns, up to so many; the second for 16 bits."""
MOMENTS = ((512, 2, 32), (1280, 2, 64), (3072, 2, 40), (9216, 4, 72))
"""Up to so many columns, so many warps that add up deviations from a mean, and elements of each thread."""
SUMS = (
    (768, 1024, RowConfig(1, 4, 8)),
    (1536, 2048, RowConfig(1, 4, 16)),
    (3072, 4096, RowConfig(1, 8, 16)),
    (7168, 10240, RowConfig(4, 4)),
)
"""Configurations of gradients of norms of rows of more than so many columns, up to so many; the first two also of two sums."""
SEVERAL = 512
"""Columns of logits of which a program has several rows."""
LOSSES = ((5120, 2), (10240, 4))
"""Up to so many logits, so many warps of a block that has a row alone, with up to 80 elements in a thread."""


def chosen_rows(cols: int, usual: int = USUAL_PART) -> RowConfig:
    """The configuration for rows of `cols` elements, 32 of them in a thread, `usual` columns to a block as long as larger
    clusters exist."""
    return _divided(cols, next((blocks for blocks in CLUSTERS if cols <= blocks * usual), CLUSTERS[-1]), EACH)


def long_rows(cols: int, most: int = CLUSTERS[-1], each: int = LONG_EACH) -> RowConfig:
    """The configuration for rows of `cols` elements, `each` of them at most in a thread, which share the instructions of a row,
    and by a cluster of up to `most` blocks, as small as can be: while one waits, another of them runs on the multiprocessor."""
    return _divided(cols, 1 if cols <= USUAL_PART else min(power_of_two(-(-cols // LONG_PART)), most), each)


def _divided(cols: int, blocks: int, each: int) -> RowConfig:
    """Rows among so many blocks of as many warps as have at most `each` elements in a thread."""
    return RowConfig(blocks, min(max(warps_of(-(-cols // blocks), each), USUAL_WARPS), MOST_WARPS), each)


def chosen_powers(cols: int, *, short: bool) -> RowConfig:
    """The configuration of a softmax, of 16 bits (`short`) or 32. Of 16 bits a thread has up to 48 elements (2,571 columns,
    which begin anywhere, 0.94 instead of 0.89), and of rows that take a cluster up to 80 (151,936 columns 0.97 instead of
    0.84)."""
    if USUAL_PART < cols <= CLUSTERS[-1] * USUAL_PART:
        return long_rows(cols, each=MOST_EACH if short else LONG_EACH)
    if short and cols <= USUAL_PART:
        return long_rows(cols, each=MIDDLE_EACH if cols <= MIDDLE_PART else LONG_EACH)
    return chosen_rows(cols)


def stays(cols: int, *, short: bool, log: bool) -> bool:
    """Whether programs of a softmax that have a row in one block are persistent, and copy their next row meanwhile. Otherwise
    each has a row or a few and ends, which balances multiprocessors of different rates. If they are and if they are not: 12,288
    columns 0.94 and 0.96, with logarithms 0.95 and 0.89; 16,384 with logarithms 0.96 and 0.93."""
    least = LONG_PART
    if short:
        least = LOG_PART if log else MIDDLE_PART
    return least < cols <= LONGEST_PART


def chosen_norm(cols: int, *, short: bool) -> RowConfig:
    """The configuration of a norm. Rows of up to 2,048 columns take two warps alone (RMSNorm of 2,048 columns 0.98, by four
    warps 0.96), longer ones of 16 bits (`short`) four with up to 64 elements in a thread (with a residual, 4,096 columns 0.98
    instead of 0.97)."""
    for least, most, config in NORMS[: 2 if short else 1]:
        if least < cols <= most:
            return config
    return chosen_rows(cols)


def chosen_moments(cols: int, *, few: bool, short: bool) -> RowConfig:
    """The configuration of a norm that adds up deviations from a mean. For rows that take a cluster, 32 elements with their
    mean, weight and bias are too many for the registers of large blocks: 0.94 instead of 0.77 (65,536), 0.92 instead of 0.64
    (131,072; with 16 blocks 0.90).

    `few`: an element takes few registers, which is one array of 16 bits, in vectors. Then few warps share what they do for a
    row, without copying the next one: 0.97 instead of 0.88 (1,024 columns), 0.98 instead of 0.95 (2,048), 0.96 instead of 0.94
    (6,144)."""
    if cols > USUAL_PART:
        return long_rows(cols, 8 if cols <= 16 * LONG_PART else CLUSTERS[-1])
    if not few or cols <= NORMS[0][0] or cols == USUAL_PART:
        return chosen_norm(cols, short=short)
    for most, warps, each in MOMENTS:
        if cols <= most:
            return RowConfig(1, warps, each, ahead=0)
    return long_rows(cols)


def chosen_sums(cols: int, *, both: bool, clusters: bool = True) -> RowConfig:
    """The configuration of gradients of norms, which add up that of the weight over their rows, or `both` it and the bias's; of
    rows that fit into a block, by `clusters` only if there are any.

    With 8 and 16 elements in each thread of a block that has one row at a time, instead of 32 and several rows: 0.94 instead of
    0.80 (1,024 columns), 0.95 instead of 0.91 (2,048), 0.92 instead of 0.90 (4,096); by clusters of small blocks 0.94 instead
    of 0.90 (8,192). Both: 0.87 instead of 0.82 (1,024 and 2,048); by blocks of 4 warps 0.85 instead of 0.71 (5,120), 0.88
    instead of 0.82 (8,192 and 16,384)."""
    for least, most, config in SUMS[: 2 if both else None]:
        if least < cols <= most and (clusters or config.num_ctas == 1):
            return config
    return chosen_rows(cols, SUMS_PART if both and clusters else USUAL_PART)


def chosen_losses(cols: int, *, smooth: bool = False, clusters: bool = True) -> RowConfig:
    """The configuration of losses with gradients of rows of `cols` logits, by `clusters` if there are any: 128,256 logits 0.98
    (0.87 with 32 of a row in a thread), 151,936 0.97 with up to 80 (0.84 with 40); 16,384 by two blocks 0.94, by one 0.58;
    5,000 by two warps 0.96, by four 0.87; 9,216 by four 0.98, by two blocks 0.93.

    With label smoothing (`smooth`) the blocks of a cluster have no registers for 80. Rows that are not held are read twice, by
    small blocks."""
    if cols <= SEVERAL or cols > (CLUSTERS[-1] if clusters else 1) * USUAL_PART:
        return RowConfig()
    for most, warps in LOSSES:
        if cols <= most:
            return RowConfig(num_warps=warps, each=MOST_EACH)
    if cols <= USUAL_PART and clusters:
        return RowConfig(2, USUAL_WARPS, LONG_EACH)
    return long_rows(cols, each=MOST_EACH if cols > USUAL_PART and not smooth else LONG_EACH)
