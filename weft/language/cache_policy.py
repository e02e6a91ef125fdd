"""The cache policy that says the same for every vendor's GPU, and the checks that it shares with those of one vendor's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors import language as errors

_MODIFIERS = ("none", "ca", "cg", "wb", "cs", "wt", "cv")
_EVICTIONS = ("evict_normal", "evict_first", "evict_last")


@dataclass(frozen=True)
class CachePolicy:
    """How the caches treat an access: `cache_modifier` and `eviction_policy` of `gl.load` and `gl.store` as one value.

    `cache_modifier`: "none", "ca", "cg", "cs", "cv" for loads, "wb", "cg", "cs", "wt" for stores (with or without a dot).
    `eviction_policy`: "evict_normal", "evict_first" or "evict_last", in L1, and for `async_copy` and `tma` in L2. The policies
    of `gl.nvidia` say more. A policy is a hint: it changes no value. Raises CompilationError: language-cache-policy.
    """

    cache_modifier: str = "none"
    eviction_policy: str = "evict_normal"

    def __post_init__(self) -> None:
        what = "CachePolicy"
        unwrap(self, ("cache_modifier", "eviction_policy"))
        among(what, "cache_modifier", self.cache_modifier, _MODIFIERS)
        among(what, "eviction_policy", self.eviction_policy, _EVICTIONS)


def unwrap(policy: Any, names: tuple[str, ...]) -> None:
    """Set fields that are constants of a kernel (`gl.constexpr`) to the values in them, and take the dot off a modifier."""
    for name in names:
        value = getattr(policy, name)
        if type(value).__name__ == "constexpr":
            value = value.value
        if name == "cache_modifier" and isinstance(value, str):
            value = value.removeprefix(".")
        object.__setattr__(policy, name, value)


def among(what: str, field: str, value: Any, known: tuple[Any, ...]) -> None:
    """Reject a value of a field that is none of the known ones (language-cache-policy)."""
    if not any(value is each or (type(value) is type(each) and value == each) for each in known):
        names = " or ".join(repr(each) for each in known if each is not None)
        raise fail(errors.POLICY, what=what, field=field, got=repr(value), known=names)
