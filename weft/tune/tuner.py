"""`@autotune`: a kernel, or a function that launches kernels, whose config is chosen by measurement.

call -> quick key -> config           chosen before in this process: one look-up
     -> point -> store                chosen before in any process
     -> search                        measured now, and stored
     -> first config that compiles    when nothing may be measured: in the simulator, during a graph capture
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from weft import settings
from weft.bounded import keep
from weft.errors import fail
from weft.errors.launch import NO_BENCHMARK_DEVICE
from weft.errors.tune import ARGUMENT_TWICE, CAPTURING, CONFIGS_KIND, GRID_MISSING, NO_GRID
from weft.locks import Lock, lazy
from weft.plain import several
from weft.runtime import rehearsal
from weft.runtime.compiled import CompiledKernel
from weft.runtime.dynamo import opaque
from weft.runtime.foreign import refuse_others
from weft.runtime.reference import Referenced
from weft.runtime.rehearsal import visitor
from weft.tune import measure
from weft.tune.config import Config, Configs, expand
from weft.tune.identity import identity
from weft.tune.key import Part, Point, check_names, parts_of
from weft.tune.results import Results
from weft.tune.search import Call, Plan, check_plan, compile_all, first_valid, search
from weft.tune.store import Choice, default
from weft.tune.subject import Subject, subject_of

_CHOICES = 4096
"""A tuner's table of choices, by quick key and by point, is cleared at this size; the store still has them."""


class Autotuner(Referenced):
    """A kernel or a host function under `@autotune`. It is launched, or called, with the arguments that no config sets.

    A kernel is launched by `kernel[grid](*args, **options)`; a grid function also receives the config's arguments. A function
    is called by `function(*args)` and receives them by keyword. To compile the kernels of a function, a search first runs the
    function once per config, in parallel threads, with its launches rehearsed. So the function must not depend on results of
    its kernels, and its other side effects are repeated.

    Attributes: `fn` (the tuned object; calling it directly bypasses tuning), `name`, `configs`, `best_config` (the config of
    the latest call; None before the first), `results` (of the latest search in this process).
    """

    def __init__(self, subject: Subject, configs: Configs, key: Sequence[Part], plan: Plan) -> None:
        self.__name__ = self.name = subject.name
        self.__doc__ = subject.function.__doc__
        self.__module__ = subject.function.__module__
        self.__qualname__ = subject.function.__qualname__
        self.__wrapped__ = subject.function
        self.fn = subject.fn
        self.configs = expand(self.name, configs)
        for config in self.configs:
            subject.check_config(config)
        self._tuned = tuned = frozenset(name for config in self.configs for name in config.arguments)
        check_plan(self.name, plan)
        self._keys = parts_of(self.name, key, subject.parameters, tuned)
        check_names(self.name, "restore", plan.restore, subject.parameters, tuned)
        check_names(self.name, "reset", plan.reset, subject.parameters, tuned)
        self.best_config: Config | None = None
        self.results = Results(self.name)
        self._subject = subject
        self._plan = plan
        self._defaults = {name: value for name, value in subject.defaults.items() if name not in tuned}
        self._chosen: dict[Any, Config] = {}
        self._made_of = (subject.fn, configs, key, plan)
        self._lock = Lock()

    def _made_by(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _tuner_of, self._made_of

    @opaque
    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        """A kernel with its grid, as in `JITFunction`. Raises TuningError (tune-no-grid) for a function."""
        if not self._subject.takes_grid:
            raise fail(NO_GRID, name=self.name)
        return opaque(lambda *args, **keywords: self._run(grid, args, keywords))

    @opaque
    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call a function with the config of these arguments. Raises LaunchError (launch-host-call) for a kernel."""
        if self._subject.takes_grid:
            return self.fn(*args, **keywords)
        return self._run(None, args, keywords)

    @lazy
    def identity(self) -> str:
        """The identity under which choices are stored, see `weft.tune.identity`."""
        return identity(self._subject.function, self.configs)

    def tune(self, *args: Any, grid: Any = None, **keywords: Any) -> Results:
        """Measure for these arguments even if a choice is stored; the new choice replaces it.

        `grid` is the grid of a kernel's launches. Arrays are overwritten as by calls, except those of `restore` and `reset`.
        Raises TuningError: tune-grid-missing, tune-argument-twice, tune-capturing, tune-key-value, and what
        `weft.tune.search.search` raises; DeviceError (device-no-benchmark) for host arrays, unless a `bench` was given.
        """
        if self._subject.takes_grid and grid is None:
            raise fail(GRID_MISSING, name=self.name)
        bound = self._bound(args, keywords)
        point = self._point(bound, args, keywords)
        if not point.simulated and measure.capturing(bound, point.ordinal):
            raise fail(CAPTURING, name=self.name)
        if point.simulated and self._plan.bench is None:
            raise fail(NO_BENCHMARK_DEVICE, reason=f"the arguments of {self.name} run in the simulator")
        with self._lock:
            config = self._search(self._sought(grid, args, keywords, bound, point.ordinal), point)
            self._remember(bound, point, config)
        return self.results

    def warmup(self, *args: Any, grid: Any = 1, **keywords: Any) -> list[CompiledKernel]:
        """Compile every config for arguments of these types without launching. Needs no GPU.

        Arguments are those of `JITFunction.warmup`. Returns the kernels of the configs that compile. Raises TuningError:
        tune-argument-twice, and tune-all-failed if none does.
        """
        bound = self._bound(args, keywords)
        return compile_all(self._sought(grid, args, keywords, bound, measure.here()), self.configs, self._plan)

    def _run(self, grid: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        bound = self._bound(args, keywords)
        if rehearsal.under_way and visitor() is rehearsal.leave_out:
            return self._subject.call(grid, args, {**keywords, **self.configs[0].arguments})
        try:
            config = self._chosen.get(self._keys.quick(bound))
        except (KeyError, TypeError):
            # An argument is missing, or a part is not hashable: the checked path reports it.
            config = None
        if config is None:
            config = self._choose(grid, args, keywords, bound)
        self.best_config = config
        if config.pre_hook is not None and visitor() is None:
            config.pre_hook({**bound, **config.arguments})
        return self._subject.call(grid, args, {**keywords, **config.arguments})

    def _bound(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, including defaults. Raises TuningError (tune-argument-twice)."""
        bound = {**self._defaults, **dict(zip(self._subject.positional, args, strict=False)), **keywords}
        if not self._tuned.isdisjoint(bound):
            parameter = min(self._tuned.intersection(bound))
            raise fail(ARGUMENT_TWICE, name=self.name, parameter=parameter)
        return bound

    def _point(self, bound: Mapping[str, Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Point:
        self._subject.check(args, {**keywords, **self.configs[0].arguments})
        return self._keys.point(bound)

    def _choose(self, grid: Any, args: tuple[Any, ...], keywords: dict[str, Any], bound: dict[str, Any]) -> Config:
        point = self._point(bound, args, keywords)
        call = self._sought(grid, args, keywords, bound, point.ordinal)
        if visitor() is not None:
            # This call is rehearsed by another tuner, possibly in several threads, so nothing may be measured.
            return self._stored(point) or first_valid(call, self.configs, self._plan)
        with self._lock:
            # Another thread may have made the choice while this one waited for the lock.
            config = self._chosen.get(point) or self._stored(point)
            if config is None and not point.simulated and measure.capturing(bound, point.ordinal):
                return self._unmeasured(point)
            if config is None and (point.simulated or not settings.current().tune):
                config = first_valid(call, self.configs, self._plan)
            return self._remember(bound, point, config or self._search(call, point))

    def _stored(self, point: Point) -> Config | None:
        store = default()
        return None if store is None else self._config_of(store.find(self.name, self.identity, point))

    def _unmeasured(self, point: Point) -> Config:
        """The config of a launch during a graph capture: that of the nearest stored key, or the first. Warns."""
        store = default()
        near = None if store is None else self._config_of(store.nearest(self.name, self.identity, point))
        config = near or self.configs[0]
        which = "that of the nearest stored key" if near else "the first config"
        warnings.warn(
            f"{self.name} cannot be tuned while a CUDA graph is captured, and takes {which} ({config}); call it, or "
            f"{self.name}.tune, with such arguments before the capture",
            RuntimeWarning,
            stacklevel=5,
        )
        return config

    def _config_of(self, choice: Choice | None) -> Config | None:
        """The config with the text of a stored choice."""
        return None if choice is None else next((c for c in self.configs if str(c) == choice.config), None)

    def _search(self, call: Call, point: Point) -> Config:
        self.results = search(call, self.configs, self._plan)
        best = self.results.best
        assert best is not None
        assert best.ms is not None
        store = default()
        if store is not None:
            store.put(Choice(self.name, self.identity, point, str(best.config), best.ms))
        return best.config

    def _remember(self, bound: Mapping[str, Any], point: Point, config: Config) -> Config:
        keep(self._chosen, point, config, _CHOICES)
        # A quick key may contain an unhashable value, such as a list: then each call is looked up by its point.
        with contextlib.suppress(TypeError):
            keep(self._chosen, self._keys.quick(bound), config, _CHOICES)
        return config

    def _sought(
        self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any], bound: Mapping[str, Any], ordinal: int
    ) -> Call:
        def run(config: Config) -> Any:
            return self._subject.call(grid, args, {**keywords, **config.arguments})

        return Call(self.name, bound, run, ordinal)

    def __repr__(self) -> str:
        return f"<{self.fn!r}, tuned over {len(self.configs)} configs>"


def autotune(
    configs: Configs,
    key: Sequence[Part] = (),
    *,
    prune: Callable[[list[Config], Mapping[str, Any]], Sequence[Config]] | None = None,
    model: Callable[[Config, Mapping[str, Any]], float] | None = None,
    top_k: int | None = None,
    check: Callable[[Mapping[str, Any], Any], object] | None = None,
    restore: Sequence[str] = (),
    reset: Sequence[str] = (),
    spills: bool = False,
    bench: measure.Bench | None = None,
    warmup: float = 25,
    rep: float = 100,
    rounds: int = 3,
    within: float = 1.25,
    progress: bool | None = None,
    **others: NoReturn,
) -> Callable[[Callable[..., Any]], Autotuner]:
    """Choose among configs by measurement. Decorates a kernel, above `@weft.jit`, or a function that launches kernels.

        @weft.autotune([weft.Config({"BLOCK": 64}, num_warps=2), weft.Config({"BLOCK": 256})], key=["n"])
        @weft.jit
        def scale(x, y, n, BLOCK: gl.constexpr): ...

        scale[lambda arguments: (weft.cdiv(n, arguments["BLOCK"]),)](x, y, n)

    `configs`: `Config`s, or a dictionary or `weft.tune.Space` of values for each parameter, or a list of these. A call passes
    the arguments that no config sets. A function receives launch options by keyword, so it needs parameters for them.
    `key`: names of arguments (the value of an array is its shape), or functions of the arguments by name. A choice is made for
    each combination of their values, the dtypes of all arrays, and the GPU. It is stored for other processes.
    `prune(configs, arguments)` returns the configs to keep; `model(config, arguments)` estimates their time, and `top_k` keeps
    the best of these. Configs that need too much shared memory or too many registers are dropped. Configs that spill are
    dropped if others do not, unless `spills`.
    `check(arguments, result)` is called after a run of each config, and returns False or raises for a wrong result.
    `restore` names arrays whose contents are restored before each run, `reset` those that are filled with zeros.
    `bench(run, prepare)` measures a run in milliseconds; by default `weft.testing.do_bench`, with `warmup` and `rep`
    milliseconds in `rounds` rounds. After each round, configs that take more than `within` times as long as the fastest are
    dropped. `progress`: True shows a bar, False none, None only on a terminal.
    Nothing is measured for host arrays, during the capture of a CUDA graph, and with WEFT_TUNE=0. The choice is then the stored
    one, or the first config that compiles; during a capture, with a warning, that of the nearest stored key, or the first.

    Raises TuningError: tune-subject, tune-configs-kind, tune-empty-space, tune-constraint, tune-unknown-parameter,
    tune-unknown-name, tune-tuned-name, tune-option-kind; calls raise tune-argument-twice, tune-key-value and what a search
    raises. LaunchError: launch-no-option.
    """
    refuse_others("weft.autotune", autotune, others)
    if callable(configs):
        raise fail(CONFIGS_KIND, name="weft.autotune", value=repr(configs))
    plan = Plan(
        prune=prune, model=model, top_k=top_k, check=check, restore=several(restore), reset=several(reset), spills=spills,
        bench=bench, warmup=warmup, rep=rep, rounds=rounds, within=within, progress=progress,
    )  # fmt: skip
    return lambda fn: _tuner_of(fn, configs, several(key), plan)


def _tuner_of(fn: Any, configs: Configs, key: Sequence[Part], plan: Plan) -> Autotuner:
    return Autotuner(subject_of(fn), configs, key, plan)
