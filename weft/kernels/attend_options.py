"""The options of `attention`: their checks, and the parts of the kernel and the numbers that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernel import JITFunction
from weft.kernels.attend_blocks import BlockMask
from weft.kernels.attend_plan import AttentionConfig, Parts
from weft.kernels.heads import Heads
from weft.kernels.machines import place_of
from weft.plain import as_number, several
from weft.runtime.arguments import HOST, array, extents

LOG2_E = 1.4426950408889634
WIDEST = (1 << 30) - 1
"""The widest window, as wide as any."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a call, as `attention` takes them."""

    causal: bool = False
    scale: Any = None
    window: Any = None
    softcap: Any = None
    alibi: Any = None
    sinks: Any = None
    prefix: Any = None
    documents: Any = None
    cu_seqlens_q: Any = None
    cu_seqlens_k: Any = None
    score_mod: Any = None
    mask_mod: Any = None
    score_args: tuple[Any, ...] = ()
    mask_args: tuple[Any, ...] = ()
    return_lse: bool = False
    config: Any = None
    q_scale: Any = None
    k_scale: Any = None
    v_scale: Any = None

    def key(self, of_array: Callable[[Any], Any]) -> tuple[Any, ...]:
        """What a prepared call depends on."""
        found: list[Any] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in ("score_args", "mask_args"):
                value = value.key if isinstance(value, BlockMask) else value
                found.append(of_array(value) if hasattr(value, "data_ptr") else value)
        return tuple(found)

    def parts(self, left: int | None, right: int | None, out: Any = None) -> Parts:
        """The parts of the kernel, with a window of that many keys on either side. `out`: the type of results, if not q's."""
        return Parts(
            right is not None, left is not None, self.prefix is not None, self.documents is not None,
            self.cu_seqlens_q is not None, self.softcap is not None, self.alibi is not None, self.sinks is not None,
            bool(self.return_lse), self.score_mod, self.blocks.mask_mod if self.blocks else self.mask_mod,
            self.blocks is not None, out, len(getattr(self.k_scale, "shape", ())) == 3,
        )  # fmt: skip

    @property
    def blocks(self) -> BlockMask | None:
        """The block mask, if there is one."""
        return self.mask_mod if isinstance(self.mask_mod, BlockMask) else None


def check_options(options: Options, q: Heads, k: Heads) -> tuple[int | None, int | None]:
    """The window's sides, None for any number of keys.

    Raises LaunchError: attention-window, attention-softcap, attention-option, attention-prefix, attention-together,
    attention-sequences, attention-function, attention-config-kind, attention-devices, attention-block-mask."""
    left, right = _window(options.window)
    if options.causal:
        right = 0
    if options.softcap is not None and _positive(options.softcap) is None:
        raise fail(errors.SOFTCAP, got=repr(options.softcap))
    if options.config is not None and not isinstance(options.config, AttentionConfig):
        raise fail(errors.CONFIG_KIND, got=repr(options.config))
    for name in ("score_mod", "mask_mod"):
        function = getattr(options, name)
        if function is not None and function is not options.blocks and not isinstance(function, JITFunction):
            raise fail(errors.FUNCTION, name=name, got=repr(function))
    batch, heads, queries, _ = q.shape
    if options.cu_seqlens_q is not None:
        batch = _check_sequences(options, q, k)
    elif options.cu_seqlens_k is not None:
        raise fail(errors.SEQUENCES, got="cu_seqlens_k is given without cu_seqlens_q")
    for name in ("alibi", "sinks"):
        check_vector(name, getattr(options, name), "float32", (heads,), q)
    check_vector("prefix", options.prefix, "int32", (batch,), q)
    check_vector("documents", options.documents, "int32", (batch, queries), q)
    if options.prefix is not None and (right is None or left is not None):
        raise fail(errors.PREFIX, got="a window to the left" if left is not None else "no causal mask and no window")
    if options.documents is not None:
        for name in ("prefix", "cu_seqlens_q"):
            if getattr(options, name) is not None:
                raise fail(errors.TOGETHER, one="documents", other=name)
        if k.shape[2] != queries:
            raise fail(
                errors.OPTION,
                name="documents",
                got=f"for {queries} queries and {k.shape[2]} keys",
                want="as many of both",
            )
    if options.blocks is not None:
        _check_blocks(options, options.blocks, q, k)
    return left, right


def _check_blocks(options: Options, blocks: BlockMask, q: Heads, k: Heads) -> None:
    """Raises LaunchError: attention-together, attention-block-mask, attention-devices."""
    for name in ("causal", "window", "prefix", "documents", "cu_seqlens_q", "mask_args"):
        if getattr(options, name) not in (None, False, ()):
            raise fail(errors.TOGETHER, one="a block mask", other=name)
    (batch, heads, queries, _), keys = q.shape, k.shape[2]
    if (
        (blocks.queries, blocks.keys) != (queries, keys)
        or blocks.batch not in (1, batch)
        or blocks.heads not in (1, heads)
    ):
        of_mask = f"{blocks.queries} queries, {blocks.keys} keys, a batch of {blocks.batch} and {blocks.heads} heads"
        raise fail(errors.BLOCK_MASK, got=f"this one is for {of_mask}, and q is {list(q.shape)} with {keys} keys")
    found = array(blocks.counts)
    if found is not None and found.device != q.device:
        raise fail(errors.DEVICES, first=q.place, name="the block mask", other=place_of(found.device))


def factors(options: Options, size: int) -> tuple[float, float]:
    """The factor of scores in exponents of 2, or of their capped tangents, and that of exponents for tangents.

    Raises LaunchError (attention-scale)."""
    scale = 1 / math.sqrt(size) if options.scale is None else _positive(options.scale)
    if scale is None:
        raise fail(errors.SCALE, got=repr(options.scale))
    if options.softcap is None:
        return scale * LOG2_E, 0.0
    return float(options.softcap) * LOG2_E, 2 * LOG2_E * scale / float(options.softcap)


def sequences_of(options: Options) -> int:
    """The number of sequences of variable lengths."""
    return int(options.cu_seqlens_q.shape[0]) - 1


def _positive(value: Any) -> float | None:
    number = as_number(value)
    good = number is not None and not isinstance(number, complex) and 0 < number < math.inf
    return float(number) if good and number is not None else None


def _window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    sides = several(window)
    if len(sides) != 2 or not all(side is None or (type(side) is int and side >= 0) for side in sides):
        raise fail(errors.WINDOW, got=repr(window))
    left, right = (None if side is None else min(side, WIDEST) for side in sides)
    return left, right


def check_vector(name: str, value: Any, dtype: str, shape: tuple[int, ...], q: Heads, needed: bool = False) -> None:
    """None is right unless it is `needed`. Raises LaunchError: attention-option, attention-devices."""
    if value is None and not needed:
        return
    want = f"a contiguous {dtype} array of shape {list(shape)}"
    found, measured = array(value), extents(value)
    if found is None or measured is None:
        raise fail(errors.OPTION, name=name, got=repr(value), want=want)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    alike = (found.dtype, tuple(measured[0])) == (dtype, shape)
    if not alike or any(a != b for a, b, size in zip(measured[1], strides, shape, strict=True) if size > 1):
        raise fail(
            errors.OPTION, name=name, got=f"{found.dtype} {list(measured[0])}, strides {list(measured[1])}", want=want
        )
    if found.device != q.device:
        raise fail(errors.DEVICES, first=q.place, name=name, other=place_of(found.device))


def _check_sequences(options: Options, q: Heads, k: Heads) -> int:
    """The number of sequences. The numbers themselves are checked on the host only: on a GPU that would mean to wait for it.
    Raises LaunchError: attention-sequences, attention-option, attention-devices."""
    if q.shape[0] != 1:
        raise fail(errors.SEQUENCES, got=f"q has a batch of {q.shape[0]}")
    measured = extents(options.cu_seqlens_q)
    count = int(measured[0][0]) if measured is not None and len(measured[0]) == 1 else 0
    if count < 2:
        raise fail(errors.SEQUENCES, got=f"cu_seqlens_q is {options.cu_seqlens_q!r}")
    pairs = [("cu_seqlens_q", options.cu_seqlens_q, q.shape[2])]
    keys = options.cu_seqlens_q if options.cu_seqlens_k is None else options.cu_seqlens_k
    pairs.append(("cu_seqlens_q, for k too," if options.cu_seqlens_k is None else "cu_seqlens_k", keys, k.shape[2]))
    for name, value, total in pairs:
        check_vector(name.partition(",")[0], value, "int32", (count,), q)
        if q.device == HOST:
            numbers = np.asarray(value)
            if numbers[0] or (np.diff(numbers) < 0).any() or numbers[-1] != total:
                raise fail(errors.SEQUENCES, got=f"{name} is {numbers.tolist()} for {total} positions")
    return count - 1
