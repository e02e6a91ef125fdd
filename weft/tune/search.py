"""The search for the fastest config: prune, compile in parallel, check results, measure in rounds.

Compilation runs in threads: most of its time is spent in NVRTC, which runs without the GIL. Measurement starts after all
compilation, so that the host is idle. It alternates between configs in rounds, so that a GPU that warms up and clocks down
slows all of them alike. After each round, configs far behind the fastest are dropped.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, cast

from weft import targets
from weft.errors import UserError, fail
from weft.errors.tune import ALL_FAILED, DEVICE_LOST, OPTION_KIND
from weft.ir.core import walk
from weft.ir.types import DType, TileType
from weft.plain import as_number, real, truth, whole
from weft.runtime import driver, nvrtc
from weft.runtime.arguments import HOST
from weft.runtime.compiled import WARP_SIZE, CompiledKernel
from weft.runtime.rehearsal import rehearsal
from weft.tune import measure
from weft.tune.config import Config, check_hook
from weft.tune.progress import Display, display
from weft.tune.results import Result, Results, reason_of, reasons

Arguments = Mapping[str, Any]
_REGISTER_BITS = 32
_TILE_FACTOR = 8
"""A config with a tile that needs more than this many times the registers of a thread is not compiled."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a search: the arguments of `weft.autotune` with the same names."""

    prune: Callable[[list[Config], Arguments], Sequence[Config]] | None = None
    model: Callable[[Config, Arguments], float] | None = None
    top_k: int | None = None
    check: Callable[[Arguments, Any], object] | None = None
    restore: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()
    spills: bool = False
    bench: measure.Bench | None = None
    warmup: float = 25
    rep: float = 100
    rounds: int = 3
    within: float = 1.25
    progress: bool | None = None


def check_plan(name: str, plan: Plan) -> None:
    """Check the options of `name`. Raises TuningError (tune-option-kind)."""
    for option in ("prune", "model", "check", "bench"):
        check_hook(name, option, getattr(plan, option))
    for option, least, read, want, example in _NUMBERS:
        value = getattr(plan, option)
        found = read(value)
        if (found is None or found < least) and not (option == "top_k" and value is None):
            raise _wrong(name, option, value, want, f"write {option}={example}")
    for option in ("spills", "progress"):
        value = getattr(plan, option)
        if truth(value) is None and not (option == "progress" and value is None):
            want = "True, False or None" if option == "progress" else "True or False"
            raise _wrong(name, option, value, want, f"write {option}=True")


_NUMBERS: tuple[tuple[str, float, Callable[[Any], float | None], str, str], ...] = (
    ("top_k", 1, whole, "a number of configs", "10"),
    ("rounds", 1, whole, "a number of rounds", "3"),
    ("warmup", 0, real, "a number of milliseconds", "25"),
    ("rep", 0, real, "a number of milliseconds", "100"),
    ("within", 1, real, "a factor of at least 1", "1.25"),
)
"""Numeric options: minimum, conversion, description and example."""


def _wrong(name: str, option: str, value: object, want: str, fix: str) -> UserError:
    return fail(OPTION_KIND, option=option, name=name, value=repr(value), want=want, fix=fix)


@dataclass(frozen=True, slots=True)
class Call:
    """A call to tune: `name` of the kernel or function, `bound` arguments by name, `run(config)` makes the call."""

    name: str
    bound: Arguments
    run: Callable[[Config], Any]
    ordinal: int

    def hook(self, config: Config) -> None:
        """Call the config's `pre_hook`, as before each real launch."""
        if config.pre_hook is not None:
            config.pre_hook({**self.bound, **config.arguments})


class _Refused(Exception):
    """A config is dropped before compilation or measurement; the text gives the reason."""


@dataclass(slots=True)
class _Trial:
    """The state of a config during a search."""

    config: Config
    kernels: list[CompiledKernel] = field(default_factory=list[CompiledKernel])
    times: list[float] = field(default_factory=list[float])
    error: Exception | None = None

    @property
    def ms(self) -> float:
        return statistics.median(self.times)

    def result(self) -> Result:
        """The config's row of the results."""
        registers = max((kernel.n_regs for kernel in self.kernels), default=None)
        spills = max((kernel.n_spills for kernel in self.kernels), default=None)
        shared = max((kernel.shared for kernel in self.kernels), default=None)
        known = Result(self.config, "timed", None, "", registers, spills, shared)
        if isinstance(self.error, _Refused):
            return replace(known, status="refused", reason=str(self.error))
        if self.error is not None:
            return replace(known, status="failed", reason=reason_of(self.error))
        return replace(known, ms=self.ms)


def search(call: Call, configs: Sequence[Config], plan: Plan) -> Results:
    """Measure every usable config. Arrays of `plan.restore` and `plan.reset` are restored or reset afterwards.

    Raises TuningError: tune-all-failed, tune-device-lost, tune-restore-kind.
    """
    originals = measure.Originals(call.name, call.bound, plan.restore, plan.reset)
    kept, refused = select(call, configs, plan)
    trials = [_Trial(config) for config in kept]
    try:
        with display(call.name, plan.progress) as shown:
            _compile(call, trials, shown)
            _refuse_spills(trials, plan)
            _check(call, trials, plan, originals, shown)
            _race(call, trials, plan, originals, shown)
    finally:
        originals.put_back()
    results = Results(call.name, [*(trial.result() for trial in trials), *refused])
    if results.best is None:
        raise all_failed(call.name, results, next((trial.error for trial in trials if trial.error), None))
    return results


def select(call: Call, configs: Sequence[Config], plan: Plan) -> tuple[list[Config], list[Result]]:
    """The configs to compile after the user's `prune` and `model`, and result rows of the others.

    Raises TuningError (tune-option-kind)."""
    kept = list(configs)
    refused: list[Result] = []
    if plan.prune is not None:
        given: Any = plan.prune(list(kept), call.bound)
        if not isinstance(given, Iterable):
            fix = "return the configs to keep: [config for config in configs if ...]"
            raise _wrong(call.name, "what prune= returns", given, "a list of configs", fix)
        chosen = set(cast("Iterable[Config]", given))
        refused += [Result(config, "refused", reason="left out by prune=") for config in kept if config not in chosen]
        kept = [config for config in kept if config in chosen]
    if plan.model is not None:
        estimate = {config: _estimate(call, plan.model, config) for config in kept}
        kept.sort(key=estimate.__getitem__)
        rest = kept[plan.top_k :] if plan.top_k is not None else []
        refused += [
            Result(
                config, "refused", reason=f"the model expects {estimate[config]:.4g}, not among the best {plan.top_k}"
            )
            for config in rest
        ]
        kept = kept[: plan.top_k]
    return kept, refused


def _estimate(call: Call, model: Callable[[Config, Arguments], float], config: Config) -> float:
    found = as_number(model(config, call.bound))
    if found is None:
        raise _wrong(
            call.name, "what model= returns", model(config, call.bound), "a number", "return a time, in any unit"
        )
    return found


def first_valid(call: Call, configs: Sequence[Config], plan: Plan) -> Config:
    """The first config for which CUDA text can be emitted. Needs neither GPU nor NVRTC.

    Raises TuningError (tune-all-failed)."""
    kept, refused = select(call, configs, plan)
    trials = [_Trial(config) for config in kept]
    for trial in trials:
        _rehearse(call, trial, _text_of)
        if trial.error is None:
            return trial.config
    results = [*(trial.result() for trial in trials), *refused]
    raise all_failed(call.name, results, next((trial.error for trial in trials), None))


def compile_all(call: Call, configs: Sequence[Config], plan: Plan) -> list[CompiledKernel]:
    """The kernels of every config that compiles. Raises TuningError (tune-all-failed)."""
    kept, refused = select(call, configs, plan)
    trials = [_Trial(config) for config in kept]
    with display(call.name, plan.progress) as shown:
        _compile(call, trials, shown)
    if all(trial.error is not None for trial in trials):
        results = [*(trial.result() for trial in trials), *refused]
        raise all_failed(call.name, results, next((trial.error for trial in trials), None))
    return [kernel for trial in trials if trial.error is None for kernel in trial.kernels]


def all_failed(name: str, results: Sequence[Result], cause: Exception | None) -> Exception:
    """The error of a search without a usable config, which lists every reason."""
    error = fail(ALL_FAILED, name=name, count=len(results), reasons=reasons(results))
    error.__cause__ = cause
    return error


def _compile(call: Call, trials: Sequence[_Trial], shown: Display) -> None:
    shown.phase("compiling", len(trials))

    def one(trial: _Trial) -> None:
        # A new thread has no current context; without this, device queries would refer to device 0 instead of the arrays' one.
        with nullcontext() if call.ordinal == HOST else driver.current_context(driver.device(call.ordinal)):
            _rehearse(call, trial, _machine_code_of)
        shown.step()

    if not trials:
        return
    nvrtc.available()  # loads it in this thread: if that is the main one, Ctrl-C is answered meanwhile
    with ThreadPoolExecutor(min(len(trials), _processors()), thread_name_prefix="weft-tune") as pool:
        # Each thread runs in a copy of the caller's `contextvars`: settings of a simulation, another tuner's rehearsal.
        done = [pool.submit(copy_context().run, one, trial) for trial in trials]
        for future in done:
            future.result()


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _rehearse(call: Call, trial: _Trial, make: Callable[[CompiledKernel], object]) -> None:
    """Rehearse the call with a config: its launches do not run, and `make` compiles each kernel."""

    def visit(kernel: CompiledKernel) -> None:
        make(kernel)
        trial.kernels.append(kernel)

    try:
        with rehearsal(visit):
            call.run(trial.config)
    except Exception as error:  # noqa: BLE001 - whatever a config leads to is a row of the table
        trial.error = error


def _text_of(kernel: CompiledKernel) -> None:
    _ = kernel.asm["cuda"]


def _machine_code_of(kernel: CompiledKernel) -> None:
    reason = too_many_registers(kernel)
    if reason:
        raise _Refused(reason)
    _ = kernel.binary


def too_many_registers(kernel: CompiledKernel) -> str:
    """Why a kernel is not worth compiling: a tile needs too many registers. Empty if it is worth compiling.

    An accumulator must be in registers as a whole. Other tiles may be spilled or processed in parts, but code for a tile that
    is many times larger than the registers takes minutes to compile. Kernels found in the disk cache are not checked, since
    their source was not read.
    """
    if "tile" not in getattr(kernel.front, "__dict__", ()):
        return ""
    target, cap = targets.get(kernel.request.target), kernel.request.options.maxnreg
    for op in walk(kernel.front.tile.body):
        for value in op.results:
            kind = value.type
            if not isinstance(kind, TileType) or not isinstance(kind.element, DType) or kind.linear is None:
                continue
            needed = kind.registers * kind.element.bits // _REGISTER_BITS
            threads = kind.linear.in_size("warp") * WARP_SIZE
            held = min(
                target.registers_per_thread, target.registers_per_block // threads, cap or target.registers_per_thread
            )
            accumulator = op.kind.family == "mma"
            if needed > (held if accumulator else held * _TILE_FACTOR):
                what = f"{'an accumulator' if accumulator else 'a tile'} of {'x'.join(map(str, kind.shape))}"
                return f"{what} takes {needed} registers of each of {threads} threads, which have {held}"
    return ""


def _refuse_spills(trials: Sequence[_Trial], plan: Plan) -> None:
    """Refuse configs that spill, unless the user allows spills or all configs spill."""
    alive = [trial for trial in trials if trial.error is None]
    spilling = [trial for trial in alive if any(kernel.n_spills for kernel in trial.kernels)]
    if plan.spills or len(spilling) == len(alive):
        return
    for trial in spilling:
        most = max(kernel.n_spills for kernel in trial.kernels)
        trial.error = _Refused(f"spills {most} bytes of registers, and others do not")


def _check(call: Call, trials: Sequence[_Trial], plan: Plan, originals: measure.Originals, shown: Display) -> None:
    """Run each config once and pass its result to the user's `check`."""
    alive = [trial for trial in trials if trial.error is None]
    if plan.check is None:
        return
    shown.phase("checking", len(alive))
    for trial in alive:
        _prepare(call, trial, originals)
        with _mishaps(call, trial):
            result = call.run(trial.config)
            if plan.check({**call.bound, **trial.config.arguments}, result) is False:
                raise AssertionError("check= found a wrong result")
        shown.step()


def _race(call: Call, trials: Sequence[_Trial], plan: Plan, originals: measure.Originals, shown: Display) -> None:
    bench = plan.bench or measure.gpu_bench(plan.warmup / plan.rounds, plan.rep / plan.rounds)
    running = [trial for trial in trials if trial.error is None]
    for number in range(plan.rounds):
        shown.phase(f"round {number + 1} of {plan.rounds}", len(running))
        # The order alternates, so that no config is always measured on the warmer GPU.
        for trial in running if number % 2 == 0 else reversed(running):
            with _mishaps(call, trial):
                time = bench(lambda: call.run(trial.config), lambda: _prepare(call, trial, originals))  # noqa: B023
                trial.times.append(time)
                best = min((t for t in trials if t.times and t.error is None), key=lambda t: t.ms)
                shown.best(best.config, best.ms)
            shown.step()
        running = [trial for trial in running if trial.error is None]
        fastest = min((trial.ms for trial in running), default=0.0)
        running = [trial for trial in running if trial.ms <= plan.within * fastest]
        if len(running) < 2:
            return


def _prepare(call: Call, trial: _Trial, originals: measure.Originals) -> None:
    originals.put_back()
    call.hook(trial.config)


@contextmanager
def _mishaps(call: Call, trial: _Trial) -> Iterator[None]:
    """An exception in the block becomes the config's reason; if the CUDA context is lost with it, the search fails."""
    try:
        yield
    except Exception as error:
        trial.error = error
        if call.ordinal != HOST and measure.lost(call.ordinal):
            raise fail(DEVICE_LOST, config=trial.config, name=call.name, reason=reason_of(error)) from error
