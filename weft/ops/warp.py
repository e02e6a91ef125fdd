"""Warp shuffles, in which each lane reads a register of another lane of its warp, and votes."""

from __future__ import annotations

from weft.ir.core import Value
from weft.ir.define import op
from weft.ir.types import ScalarType, Type, int1, uint32
from weft.ops.check import integer, require, scalar


@op("warp.shuffle_xor", needs="warp", scope="thread")
def shuffle_xor(x: Value, mask: int) -> Type:
    """Each lane's value (scalar or array, element by element) from lane `lane ^ mask` (PTX `shfl.sync.bfly`)."""
    require(0 < mask < 32, "the mask picks another lane")
    return x.type


@op("warp.shuffle_idx", needs="warp", scope="thread")
def shuffle_idx(x: Value, lane: Value) -> Type:
    """Each lane's value from lane `lane` modulo 32 (PTX `shfl.sync.idx`)."""
    scalar(lane)
    integer(lane)
    return x.type


@op("warp.vote", needs="warp", scope="thread")
def vote(x: Value) -> Type:
    """In each lane the warp's flags, that of lane `i` in bit `i` (PTX `vote.sync.ballot.b32`)."""
    require(x.type == ScalarType(int1), "a vote is an int1")
    return ScalarType(uint32)
