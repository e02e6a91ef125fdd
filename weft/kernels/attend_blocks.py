"""`block_mask`: which blocks of keys a mask function leaves, found once and used by many calls of `attention`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernel import JITFunction
from weft.kernels.device.attend_blocks import EDGE, find_blocks
from weft.kernels.memory import empty_like


@dataclass(frozen=True, slots=True, eq=False)
class BlockMask:
    """A mask function with its arguments, and the blocks of 128 by 128 queries and keys of which it leaves something.

    `batch` and `heads` are 1 where the mask is the same for all. `counts` [batch, heads, blocks of queries] are the numbers of
    blocks of keys that queries see some of, and `lists` [batch, heads, blocks of queries, blocks of keys] twice their numbers,
    plus 1 where some key is masked."""

    mask_mod: JITFunction[..., Any]
    mask_args: tuple[Any, ...]
    batch: int
    heads: int
    queries: int
    keys: int
    counts: Any
    lists: Any

    @property
    def key(self) -> tuple[Any, ...]:
        """What a prepared call depends on."""
        return self.mask_mod, self.batch, self.heads, self.queries, self.keys

    def arguments(self) -> tuple[Any, ...]:
        """The kernel's arguments: the arrays, and the rows of lists from a batch to the next, from a head to the next."""
        rows = -(-self.queries // EDGE)
        by_batch = self.heads * rows if self.batch > 1 else 0
        return self.counts, self.lists, by_batch, rows if self.heads > 1 else 0, -(-self.keys // EDGE)


def block_mask(
    mask_mod: JITFunction[..., Any], like: Any, queries: int, keys: int, *, batch: int | None = None, heads: int | None = None,
    mask_args: tuple[Any, ...] = (), stream: Any = None,
) -> BlockMask:  # fmt: skip
    """The blocks of keys that `mask_mod` leaves to blocks of queries, for `attention(..., mask_mod=...)`: others are not
    visited, and the function is asked about keys only in blocks of which it leaves a part.

    `mask_mod(batch, head, query, key, *mask_args)` is the `@weft.jit` function that `attention` takes; here it is asked about
    every query and key once. With `batch` and `heads` it is evaluated for each of them; without, it must be the same for all,
    and is evaluated for number 0. Make the mask once for many calls: it depends on lengths and on the contents of `mask_args`
    only. Its arrays are made by the framework and on the device of `like`.

    Raises LaunchError: attention-function, attention-block-mask, kernels-out-needed."""
    # A function of the caller may be anything at run time.
    if not isinstance(mask_mod, JITFunction):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise fail(errors.FUNCTION, name="mask_mod", got=repr(mask_mod))
    sizes = {"queries": queries, "keys": keys, "batch": batch or 1, "heads": heads or 1}
    for name, size in sizes.items():
        if size < 1:
            raise fail(errors.BLOCK_MASK, got=f"{name} is {size}")
    rows, width = -(-queries // EDGE), -(-keys // EDGE)
    shape = (sizes["batch"], sizes["heads"], rows)
    counts, lists = empty_like(like, shape, "int32"), empty_like(like, (*shape, width), "int32")
    grid = (rows, shape[0] * shape[1])
    find_blocks[grid](counts, lists, tuple(mask_args), shape[1], queries, keys, mask_mod, num_warps=4, stream=stream)
    return BlockMask(mask_mod, tuple(mask_args), shape[0], shape[1], queries, keys, counts, lists)
