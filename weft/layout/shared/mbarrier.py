"""The layout of mbarriers, one in each block of a cluster or one for several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import check_powers_of_two, ints, tile_dims, vectors
from weft.layout.cluster import BLOCK, Cga, block_bases, block_shape, cga_bases, split_of
from weft.layout.linear.f2 import log2
from weft.layout.linear.maps import LinearLayout
from weft.layout.shared.layouts import SharedLayout


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MBarrierLayout(SharedLayout):
    """One mbarrier, a 64-bit word, per block: a tile of shape [1], or [number of blocks] in a cluster.

    `cga_layout` numbers the barriers of the blocks of a cluster; blocks along a zero vector share the barrier of the first.
    An array of n barriers is an allocation of shape [n, 1].
    """

    cga_layout: Sequence[Sequence[int]] | None = None

    def _complete(self) -> None:
        self._freeze(cga_layout=cga_bases(1, self.cga_layout or ()) or None)

    @staticmethod
    def multicta(num_ctas: int, two_cta: bool = False) -> MBarrierLayout:
        """A barrier in each of `num_ctas` blocks, or with `two_cta` one for each pair, in its first block."""
        check_powers_of_two("num_ctas", ints([num_ctas], "num_ctas"))
        bits = log2(num_ctas)
        vectors = [[0], *([1 << bit] for bit in range(bits - 1))] if two_cta else [[1 << bit] for bit in range(bits)]
        return MBarrierLayout(vectors)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return 1

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in barriers."""
        return vectors(self.cga_layout or ())

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over the barriers of all blocks."""
        if block_shape(self.cga, shape) != (1,):
            raise fail(errors.BARRIER_SHAPE, shape=list(shape), count=shape[0], blocks=split_of(self.cga, 1)[0])
        return LinearLayout.make({"offset": [], BLOCK: block_bases(self.cga, shape)}, tile_dims(shape))
