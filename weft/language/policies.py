"""Cache policies of accesses to global memory: hints to the caches, which change no value.

    stream = CachePolicy(l1="no_allocate", l2=FractionalEvictionPolicy("evict_first", 1.0))
    gl.load(pointers, cache_policy=stream)

(PTX ISA, "Cache Operators", "Cache Eviction Priority Hints", "createpolicy" and the qualifiers of ld, st, cp.async and
cp.async.bulk.tensor.)
"""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args

from weft.errors import fail
from weft.errors import language as errors
from weft.language import cache_policy
from weft.language.cache_policy import among, unwrap
from weft.ops.memory import Eviction, L2Policy, L2Primary, L2Secondary
from weft.plain import as_number

EVICTIONS = ("evict_first", "evict_last")
"""What `eviction_policy` of an access may be. A `CachePolicy` says more."""
PREFETCHES = (64, 128, 256)
_MODIFIERS = ("ca", "cg", "cs", "cv", "wb", "wt")


@dataclass(frozen=True)
class FractionalEvictionPolicy:
    """An eviction priority in L2, for a `fraction` (above 0, up to 1) of the cache lines; the others have `secondary`.

    `primary`: "evict_first", "evict_last", "evict_normal" or "evict_unchanged". `secondary`: "evict_unchanged" or
    "evict_first". Lines with evict_first are the first to be evicted, as suits data that are read once; those with evict_last
    are the last, as suits data that all programs read. Raises CompilationError (language-cache-policy).
    """

    primary: str
    fraction: float
    secondary: str = "evict_unchanged"

    def __post_init__(self) -> None:
        unwrap(self, ("primary", "fraction", "secondary"))
        among("FractionalEvictionPolicy", "primary", self.primary, get_args(L2Primary))
        among("FractionalEvictionPolicy", "secondary", self.secondary, get_args(L2Secondary))
        fraction = as_number(self.fraction)
        if fraction is None or isinstance(fraction, bool) or not 0 < fraction <= 1:
            known = "a number above 0 and up to 1"
            raise fail(
                errors.POLICY, what="FractionalEvictionPolicy", field="fraction", got=repr(self.fraction), known=known
            )


@dataclass(frozen=True)
class CachePolicy:
    """How the caches treat an access: `gl.load`, `gl.store`, `async_copy` and `tma` take it as `cache_policy`.

    `cache_modifier`: "ca", "cg", "cs", "cv" for loads, "wb", "cg", "cs", "wt" for stores (with or without a dot). `l1`: the
    eviction priority in L1: "evict_normal", "evict_unchanged", "evict_first", "evict_last" or "no_allocate". `l2`: that in L2.
    `l2_prefetch_size`: a load also brings the 64, 128 or 256 bytes around it to L2. An access has a modifier or an L1
    priority. cp.async takes "ca" and "cg", `l2` and `l2_prefetch_size`; TMA takes `l2`; stores take no `l2_prefetch_size`.
    A policy is a hint: it changes no value, and the simulator only checks it. Raises CompilationError: language-cache-policy,
    language-cache-policy-empty, cuda-cache-and-eviction.
    """

    cache_modifier: str | None = None
    l1: str | None = None
    l2: FractionalEvictionPolicy | None = None
    l2_prefetch_size: int | None = None

    def __post_init__(self) -> None:
        what = "CachePolicy"
        unwrap(self, ("cache_modifier", "l1", "l2", "l2_prefetch_size"))
        if (self.cache_modifier, self.l1, self.l2, self.l2_prefetch_size) == (None,) * 4:
            raise fail(errors.POLICY_EMPTY)
        among(what, "cache_modifier", self.cache_modifier, (None, *_MODIFIERS))
        among(what, "l1", self.l1, (None, *get_args(Eviction)[1:]))
        among(what, "l2_prefetch_size", self.l2_prefetch_size, (None, *PREFETCHES))
        if type(self.l2) not in (NoneType, FractionalEvictionPolicy):
            known = 'FractionalEvictionPolicy("evict_first", 1.0)'
            raise fail(errors.POLICY, what=what, field="l2", got=repr(self.l2), known=known)


Part = Literal["l1", "l2", "l2_prefetch_size"]


def policy_attrs(what: str, given: Any, parts: tuple[Part, ...], modifiers: tuple[str, ...] = ()) -> dict[str, Any]:
    """The attributes of an access under a `cache_policy`, those among `cache`, `eviction`, `l2` and `prefetch` that it sets.

    `parts` and `modifiers` are those that the access takes. Raises CompilationError: language-cache-policy-needed,
    language-cache-policy-part, language-cache-modifier."""
    if isinstance(given, cache_policy.CachePolicy):
        given = _specific(given, parts)
    if given is None:
        return {}
    if not isinstance(given, CachePolicy):
        raise fail(errors.POLICY_NEEDED, what=what, got=repr(given))
    for part in ("l1", "l2", "l2_prefetch_size"):
        if getattr(given, part) is not None and part not in parts:
            raise fail(
                errors.POLICY_PART, what=what, part=f"{part}={getattr(given, part)!r}", known=" and ".join(parts)
            )
    attrs: dict[str, Any] = {}
    if given.cache_modifier is not None:
        attrs["cache"] = f".{given.cache_modifier}"
        if attrs["cache"] not in modifiers:
            known = ", ".join(modifiers[1:]) or "none"
            raise fail(errors.CACHE_MODIFIER, what=what, got=repr(attrs["cache"]), known=known)
    if given.l1 is not None:
        attrs["eviction"] = given.l1
    if given.l2 is not None:
        attrs["l2"] = l2_policy(given.l2.primary, given.l2.fraction, given.l2.secondary)
    if given.l2_prefetch_size is not None:
        attrs["prefetch"] = given.l2_prefetch_size
    check_one(attrs.get("cache"), attrs.get("eviction"))
    return attrs


def _specific(given: cache_policy.CachePolicy, parts: tuple[Part, ...]) -> CachePolicy | None:
    """A generic policy as one of an access that takes some `parts`; None if it sets nothing."""
    modifier = None if given.cache_modifier == "none" else given.cache_modifier
    eviction = None if given.eviction_policy == "evict_normal" else given.eviction_policy
    if modifier is None and eviction is None:
        return None
    if eviction is not None and "l1" not in parts:
        return CachePolicy(modifier, l2=FractionalEvictionPolicy(eviction, 1.0))
    return CachePolicy(modifier, eviction)


AnyPolicy = CachePolicy | cache_policy.CachePolicy


def l2_policy(primary: Any, fraction: float = 1.0, secondary: Any = "evict_unchanged") -> L2Policy:
    """An L2 policy as an attribute of an operation."""
    return primary, float(fraction), secondary


def one_way(what: str, policy: Any, cache: Any, eviction: Any) -> None:
    """Reject a `cache_policy` beside the older arguments (language-cache-policy-twice)."""
    for name, value in (("cache_modifier", cache), ("eviction_policy", eviction)):
        if policy is not None and value:
            raise fail(errors.POLICY_TWICE, what=what, name=name, value=value)


def check_eviction(eviction: Any) -> None:
    """Check an `eviction_policy` (language-eviction-policy)."""
    if eviction and eviction not in EVICTIONS:
        raise fail(errors.EVICTION_POLICY, got=repr(eviction))


def check_one(cache: Any, eviction: Any) -> None:
    """Reject a cache modifier beside an L1 eviction priority (cuda-cache-and-eviction)."""
    if cache and eviction:
        raise fail(errors.CACHE_AND_EVICTION, cache=cache, eviction=eviction)
