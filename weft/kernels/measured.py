"""Choices that `tune_matmul` measured, in the store of `weft.tune`: they replace the built-in choice for the same problem.

A choice holds for one GPU by its name, and for the text of the kernels: after a change of these it counts as absent.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from functools import cache, lru_cache
from typing import Any

from weft.errors import LaunchError
from weft.kernels.config import DESCRIBED, MatmulConfig, config_of
from weft.kernels.device import split_k
from weft.kernels.device.packing import pack, pack_both
from weft.kernels.device.specialised import matmul_cooperative, matmul_ping_pong
from weft.kernels.device.tensor_memory import matmul_tensor_memory
from weft.kernels.device.uniform import matmul_uniform
from weft.kernels.model import Problem
from weft.runtime import driver, folder
from weft.runtime.arguments import HOST
from weft.runtime.function_text import digest
from weft.tune.identity import identity
from weft.tune.key import SIMULATOR, Point, Value
from weft.tune.store import Choice, Store, default

NAME = "weft.kernels.matmul"
"""The name under which choices are stored."""
_KERNELS: list[Any] = [
    matmul_cooperative, matmul_ping_pong, matmul_uniform, matmul_tensor_memory, split_k.reduce_splits, pack, pack_both,
]  # fmt: skip
_APART = ("dtype", "machine", "programs", "device", "finish")
"""Fields of a problem that are not part of the key's values: the type has a place of its own, others belong to the GPU, and a
choice that was measured without an epilogue serves products with one."""


def find(problem: Problem) -> MatmulConfig | None:
    """The measured configuration for a problem; in the simulator that for any GPU of the simulated architecture."""
    store = default()
    choices = {} if store is None else _stored(store)
    if not choices:
        return None
    point = point_of(problem)
    if not point.simulated:
        choice = choices.get(point)
    else:
        alike = (
            c for p, c in choices.items() if (p.values, p.dtypes, p.arch) == (point.values, point.dtypes, point.arch)
        )
        choice = next(alike, None)
    return None if choice is None else _config_of(choice, problem)


def keep(problem: Problem, config: MatmulConfig, ms: float) -> None:
    """Store a choice."""
    store = default()
    if store is not None:
        store.put(Choice(NAME, kernels(), point_of(problem), json.dumps(asdict(config)), ms))
    _stored.cache_clear()


def settings_of(config: MatmulConfig) -> dict[str, Any]:
    """The fields of a configuration that differ from their defaults."""
    usual = MatmulConfig()
    values = {field.name: getattr(config, field.name) for field in fields(MatmulConfig)}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


def point_of(problem: Problem) -> Point:
    """The key of a problem."""
    names = (field.name for field in fields(Problem) if field.name not in _APART)
    values: tuple[tuple[str, Value], ...] = tuple((name, getattr(problem, name)) for name in names)
    dtypes = (("a", problem.dtype),)
    if problem.device == HOST:
        return Point(values, dtypes, SIMULATOR, driver.simulated_target().arch)
    gpu = driver.device(problem.device)
    return Point(values, dtypes, gpu.name, gpu.arch, problem.device)


@cache
def kernels() -> str:
    """A digest of the text of all matmul kernels."""
    return digest(*(identity(kernel.fn, ()) for kernel in _KERNELS))


@lru_cache(maxsize=4)
def _stored(store: Store) -> dict[Point, Choice]:
    """All choices, read once: the first call for a shape looks them up, and reads no files then. Their identity takes long to
    compute, so it is not computed without need."""
    return {choice.point: choice for choice in store.of(NAME, kernels())} if store.has(NAME) else {}


def _config_of(choice: Choice, problem: Problem) -> MatmulConfig | None:
    """The configuration of a stored choice; None, with a warning, if it cannot compute the problem."""
    try:
        config = config_of(MatmulConfig(**json.loads(choice.config)), None, "")
        if config is None or config.variant not in problem.machine.variants:
            raise ValueError(choice.config)
        config.check(problem.itemsize, problem.stored_by(config), problem.fast, problem.seen_by(config).b_rows)
        if not problem.described and not config.pack and (config.variant in DESCRIBED or config.ctas > 1):
            raise ValueError(choice.config)
    except (LaunchError, ValueError, TypeError):
        store = default()
        assert store is not None
        what = f"weft ignores a stored choice for matmul that cannot be used: {choice.config}; others are not reported"
        folder.warn_once(store.directory, "matmul", what)
        return None
    return config
