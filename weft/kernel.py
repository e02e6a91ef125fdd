"""`@jit`: the Python object of a kernel, from its decorator to its launch.

A `JITFunction` holds the author's function and the tables of its compiled variants. The fast path of a launch is the function
that `weft.runtime.binder` generates. A key that is not in its table goes through `_miss` here, which checks the arguments,
specialises, compiles (or simulates, for host arrays) and adds the result to the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any, cast, overload

from weft import settings, targets
from weft.bounded import keep
from weft.errors import WeftError, fail
from weft.errors.launch import (
    AMBIGUOUS,
    ARGUMENT_KIND,
    BLOCK_TWICE,
    CLUSTERS,
    DEVICE_MISMATCH,
    HOST_CALL,
    MOCK_LAUNCH,
    NO_FUNCTION,
    OPTION_VALUE,
    PDL_TARGET,
)
from weft.errors.location import keep_lines, lines_of
from weft.forms import library_of
from weft.loading import load_module
from weft.locks import Lock, lazy
from weft.plain import as_number, one_of, several
from weft.runtime import binder, driver, fingerprint, grid, rehearsal, streams, views, watch
from weft.runtime.arguments import HOST, array, host_buffer
from weft.runtime.compiled import CompiledKernel, CompileRequest, Launch, Options
from weft.runtime.descriptor import Descriptor, HostDescriptor, host_map
from weft.runtime.dynamo import opaque, pass_over
from weft.runtime.foreign import refuse_of_jit
from weft.runtime.grid import normalise, split
from weft.runtime.launch import Grid, Launcher
from weft.runtime.methods import Method, P, R
from weft.runtime.options import checked, fast_math_of, truth_of
from weft.runtime.reference import Referenced
from weft.runtime.shown import short
from weft.runtime.specialise import (
    ArgumentType,
    Constexpr,
    MockTensor,
    Pointer,
    Specialization,
    Tuple,
    View,
    constexpr,
    is_constant,
    passable,
    plain,
    specialise,
    spread,
    stand_in,
    view_argument,
)

_KERNELS_KEPT = 1024
"""A table of compiled variants is cleared at this size. A constexpr function created per call would fill it without bound."""
_SYNC_MODES = ("auto", "explicit", "none")


Keep = Callable[[Launcher, Grid, Sequence[Any]], None]


class JITFunction(Referenced, Method[P, R]):
    """A kernel, or a helper of kernels: made by `@weft.jit`.

    `kernel[grid](*args, num_warps=4, num_ctas=1, maxnreg=None, stream=None, debug=None, sanitize_overflow=False,
    launch_pdl=False, launch_cooperative_grid=False, enable_fp_fusion=True)` launches it and returns the `CompiledKernel`. The
    GPU runs it for CUDA arrays, the simulator for host arrays. With `debug` the GPU checks `device_assert` too, as the
    simulator always does; `sanitize_overflow` checks on both that the kernel's integer sums, differences and products of up to
    32 bits fit their type.
    With `launch_pdl` the kernel may start before the launch before it is complete, for which it waits by
    `gl.extra.cuda.gdc_wait` (programmatic dependent launch); one that makes tensor descriptors starts in stream order. With
    `launch_cooperative_grid` all programs run at the same time, or the launch is refused (launch-cooperative-grid), so that
    they may wait for one another in any order. Without `enable_fp_fusion` a product and a sum of floats round separately, as in
    NumPy, on both back ends.
    A thread-level kernel is launched with `block=` instead of `num_warps`, or as `kernel[grid, block](*args)`, where `block` is
    the number of threads of a block: an int or a tuple of up to three. Arguments are arrays, views, numbers and tensor
    descriptors.
    Attributes: `fn` (the Python function), `__name__`, `params` (`weft.runtime.binder.Parameter`s), `sync`, `debug`.
    """

    def __init__(
        self,
        fn: FunctionType,
        *,
        debug: bool | None,
        sync: str,
        fast_math: bool | Sequence[str] = False,
        do_not_specialize: Any = (),
        naming: Callable[[Specialization], str] | None = None,
    ) -> None:
        if not one_of(sync, *_SYNC_MODES):
            example = "sync='auto', 'explicit' or 'none'"
            raise fail(OPTION_VALUE, option="sync", value=sync, name=fn.__name__, expected="a mode", example=example)
        functools.update_wrapper(self, fn)
        keep_lines(fn)
        self.__name__ = fn.__name__
        self.fn = self.__weft_jit__ = fn
        self.sync = sync
        self.fast_math = fast_math_of(fn.__name__, fast_math)
        self.debug = None if debug is None else truth_of(fn.__name__, "debug", debug)
        self._do_not_specialize = several(do_not_specialize)
        self._naming = naming
        self._launches: dict[Hashable, Launch] = {}
        self._compiled: dict[CompileRequest, CompiledKernel] = {}
        self._launchers: dict[Hashable, Launcher] = {}
        self._repeats = False
        self._watches: watch.Watches = {}
        self._forgotten = 0
        self._lock = Lock()

    @lazy
    def signature(self) -> binder.Signature:
        """The kernel's name and parameters; raises what `weft.runtime.binder.signature` raises."""
        return binder.signature(self.fn, self._do_not_specialize)

    @property
    def params(self) -> tuple[binder.Parameter, ...]:
        """The kernel's parameters."""
        return self.signature.known

    @opaque
    def __getitem__(self, programs: Any) -> Launch:
        """The kernel with its grid: an int, a tuple of up to three, or a function of the bound arguments.

        `kernel[(4, 4), (8, 8)]` is the kernel with its grid and its block of threads.
        Raises LaunchError: launch-grid-kind, launch-grid-empty, launch-grid-limit.
        """
        if rehearsal.under_way and (visit := rehearsal.visitor()) is not None:
            if visit is rehearsal.leave_out:
                return _left_out
            size, block = split(programs)
            return self._with_block(functools.partial(self._rehearse, size), block)
        try:
            return self._launches[programs]
        except (KeyError, TypeError):
            pass
        pass_over()
        size, block = split(programs)
        if callable(size):
            return self._with_block(functools.partial(self.launch, size), block)
        made = self._with_block(functools.partial(self.launch, normalise(self.__name__, size)), block)
        with suppress(TypeError):  # A grid given as a list is not hashable and is normalised at every launch.
            keep(self._launches, programs, made)
        return made

    def _with_block(self, launch: Launch, block: Any) -> Launch:
        """A launch with the thread block given in brackets. The launch raises LaunchError (launch-block-twice)."""
        if block is None:
            return launch

        @opaque
        def with_block(*args: Any, **keywords: Any) -> CompiledKernel:
            return launch(*args, **self._in_brackets(block, keywords))

        return with_block

    def _in_brackets(self, block: Any, keywords: dict[str, Any]) -> dict[str, Any]:
        """The keywords of a launch plus the thread block given in brackets. Raises launch-block-twice."""
        if block is None:
            return keywords
        if "block" in keywords:
            raise fail(BLOCK_TWICE, name=self.__name__, brackets=block, keyword=keywords["block"])
        return {**keywords, "block": block}

    def __call__(self, *_: P.args, **__: P.kwargs) -> R:
        """The call as kernels write it. From the host it raises LaunchError (launch-host-call)."""
        raise fail(HOST_CALL, name=self.__name__)

    def __repr__(self) -> str:
        return f"<kernel {self.fn.__module__}.{self.fn.__qualname__}>"

    def symbol(self, arguments: Mapping[str, ArgumentType]) -> str:
        """The name that profilers and debuggers show for the kernel compiled for these arguments.

        It is the function's, or what `repr=` of the decorator makes of a `Specialization`. Raises LaunchError
        (launch-option-value) if that is no identifier."""
        if self._naming is None:
            return self.__name__
        found = self._naming(Specialization.of(arguments))
        if not isinstance(cast("object", found), str) or not (found.isascii() and found.isidentifier()):
            expected, example = "a function that returns a name (letters, digits, _)", "repr=lambda _: 'matmul'"
            raise fail(OPTION_VALUE, option="repr", value=found, name=self.__name__, expected=expected, example=example)
        return found

    def _made_by(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        options = (self.debug, self.sync, self.fast_math)
        return _kernel_of, (self.fn, lines_of(self.fn), options, self._do_not_specialize, self._naming)

    def warmup(self, *args: Any, grid: Any = None, target: Any = None, **keywords: Any) -> CompiledKernel:
        """Compile for arguments of these types without launching. Needs no GPU.

        An array may be real, a `MockTensor(dtype)`, a dtype, or a text such as '*fp32:16'; `target` is a name as in
        'sm_90a' (default: the current GPU, else the simulated one). `grid` is checked as in a launch; only the thread block
        beside it affects the compiled code.
        """
        try:
            size, block = split(grid)
            if size is not None and not callable(size):
                normalise(self.__name__, size)
            compiled = self._prepared(args, self._in_brackets(block, keywords), target)
            _ = compiled.binary
        except WeftError as error:
            raise short(error)  # noqa: B904 - the same error
        return compiled

    def _prepared(self, args: Sequence[Any], keywords: Mapping[str, Any], target: Any = None) -> CompiledKernel:
        """The kernel for arguments of these types, compiled up to tile IR."""
        bound, options = self.signature.bind(args, keywords)
        stand_ins = {p.name: bound[p.name] if p.constexpr else stand_in(bound[p.name]) for p in self.params}
        name = targets.get(driver.active.get_current_target().arch if target is None else target).name
        return self._compile(self._request(stand_ins, self._options(options), name))

    def _rehearse(self, programs: Any, *args: Any, **keywords: Any) -> CompiledKernel:
        """A launch under `weft.runtime.rehearsal`: checked and compiled, but not run."""
        compiled = self._prepared(args, keywords)
        size = grid.evaluate(self.__name__, programs, self.signature.bind(args, keywords)[0])
        grid.check_threads(self.__name__, size, compiled.block, compiled.num_ctas)
        visit = rehearsal.visitor()
        if visit is not None:
            visit(compiled)
        return compiled

    @property
    def launch(self) -> Callable[..., CompiledKernel]:
        """`launch(grid, *args, **options)` with a normalised or callable grid."""
        return self._binder.launch

    @opaque
    def generation(self) -> int | None:
        """A number that changes when compiled variants are dropped, as after an edit of what the kernel has read; None while
        launches are rehearsed and in a block of settings, which need other variants."""
        if rehearsal.under_way or settings.under_way():
            return None
        if watch.changed(self._binder.watched):
            self.forget()
        return self._forgotten

    @opaque
    def repeat(self, keep: Keep, programs: Any, *args: Any, **keywords: Any) -> CompiledKernel:
        """Launch on a grid; from the third launch of the kernel on `keep` is told the launcher, the grid and the values."""
        # What a caller keeps takes as long to generate as reading a kernel from disk, and many kernels are launched once.
        if rehearsal.under_way or settings.under_way() or not self._repeats:
            return self[programs](*args, **keywords)
        bound, options = self.signature.bind(args, keywords)
        return self._checked(None, programs, bound, options, keep)

    @lazy
    def _binder(self) -> binder.Binder:
        return binder.Binder(
            self.signature,
            first=self._first,
            miss=self._miss,
            forget=self.forget,
            evaluate=functools.partial(grid.evaluate, self.__name__),
            debug=self.debug,
        )

    def _first(self, programs: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> CompiledKernel:
        """A launch while the launch function does not exist yet.

        The launch function is generated once a compiled kernel is launched a second time: generating it takes as long as
        reading a kernel from disk, and many kernels are launched once. Simulated launches never need it.
        """
        bound, options = self.signature.bind(args, keywords)
        if not self._repeats:
            return self._checked(None, programs, bound, options)
        with self._lock:
            if not self._binder.made:
                self._binder.make(bound)
        return self.launch(programs, *args, **keywords)

    def _miss(self, key: Any, programs: Any, values: tuple[Any, ...], given: tuple[Any, ...], stream: Any) -> Any:
        """The launch function calls this for a key that is not in its table."""
        bound = {p.name: value for p, value in zip(self.params, values, strict=True)}
        self.signature.require(bound)
        options = dict(zip(binder.COMPILE_OPTIONS, given, strict=True))
        return self._checked(key, programs, bound, {**options, "stream": stream})

    def _checked(
        self, key: Any, programs: Any, bound: Mapping[str, Any], given: Mapping[str, Any], keep: Keep | None = None
    ) -> CompiledKernel:
        """Launch with every check, and add the launcher to the table when there is a key; `keep` gets it too."""
        pass_over()
        stream = given["stream"]
        options = self._options(given)
        size = grid.evaluate(self.__name__, programs, bound)
        grid.check_threads(self.__name__, size, options.block, options.num_ctas)
        run_time = dict(spread((p.name, bound[p.name]) for p in self.params if not p.constexpr))
        device = self._device(run_time)
        if device == HOST:
            return self._simulate(size, bound, options)
        ordinal = driver.active.get_current_device() if device is None else device
        target = targets.get(driver.device(ordinal).arch).name
        compiled = self._compile(self._request(bound, options, target))
        libraries = frozenset(_library_of(value) for value in run_time.values())
        launcher = self._launcher(compiled, ordinal, libraries)
        run = launcher.run if self._repeats or key is not None else launcher.first
        values = [_raw_value(bound[p.name]) for p in self.params if not p.constexpr]
        # Behind the loading of the code, for which CUDA may wait for kernels that wait for other ranks.
        together = self._agree(compiled, run_time)
        if together is not None:
            # The launch is not remembered, so that the next one comes here, too.
            with together:
                return run(size, stream, *values)
        if key is not None and device is not None:
            self._remember(key, run, compiled)
        if keep is not None:
            keep(launcher, size, values)
        return run(size, stream, *values)

    @lazy
    def _constexprs(self) -> frozenset[str]:
        """The parameters that are constants in every launch."""
        return frozenset(p.name for p in self.params if p.constexpr)

    def _launcher(self, compiled: CompiledKernel, ordinal: int, libraries: frozenset[str]) -> Launcher:
        """The launcher of a compiled kernel on a device, for arrays of these libraries: with PyTorch's on its current stream,
        else on the default stream, and with JAX's waiting for the kernel; made once."""
        # The key is the identity of the compiled kernel: after `forget` an equal request gets a new kernel. The launcher in
        # `_launchers` keeps the kernel alive, so its id is not reused.
        torch, jax = "torch" in libraries, "jax" in libraries
        known = id(compiled), ordinal, torch, jax
        found = self._launchers.get(known)
        self._repeats = self._repeats or found is not None
        if found is None:
            names = tuple(p.name for p in self.params if not p.constexpr)
            kinds = tuple(compiled.request.arguments[name] for name in names)
            current = streams.current_of_torch() if torch else None
            found = Launcher(compiled, ordinal, kinds, current, names, awaited=jax)
            with self._lock:
                self._launchers[known] = found
        return found

    def _device(self, run_time: Mapping[str, Any]) -> int | None:
        """The device of all arrays: an ordinal, `HOST`, or None for any GPU, when there are no arrays.

        Raises LaunchError: launch-ambiguous, launch-device-mismatch, launch-mock-argument.
        """
        where: dict[int, str] = {}
        for name, value in run_time.items():
            if isinstance(value, str):
                raise fail(
                    ARGUMENT_KIND,
                    name=self.__name__,
                    parameter=name,
                    value=f"the text {value!r}",
                    instead=passable(name, value),
                )
            device = self._place(name, value)
            if device is not None:
                where.setdefault(device, name)
        if not where:
            return None if driver.available() else HOST
        host = where.pop(HOST, None)
        if host is not None and where:
            raise fail(AMBIGUOUS, name=self.__name__, device=next(iter(where.values())), host=host)
        if len(where) > 1:
            (one, first), (two, second) = list(where.items())[:2]
            raise fail(
                DEVICE_MISMATCH, name=self.__name__, first=first, first_device=one, second=second, second_device=two
            )
        return HOST if host is not None else next(iter(where))

    def _place(self, name: str, value: Any) -> int | None:
        """The device of an array, view or descriptor, None for other arguments. Raises LaunchError (launch-mock-argument)."""
        value = views.base(value)
        if isinstance(value, MockTensor) or (isinstance(value, HostDescriptor) and value.tensor_map.device is None):
            raise fail(MOCK_LAUNCH, name=self.__name__, parameter=name)
        if isinstance(value, HostDescriptor):
            return value.tensor_map.device
        found = None if value is None else array(value)
        return None if found is None else found.device

    def _simulate(self, size: tuple[int, int, int], bound: Mapping[str, Any], options: Options) -> CompiledKernel:
        """Run on host arrays: compile to tile IR, then simulate directly on the arrays' memory."""
        target = targets.get(driver.simulated_target().arch).name
        request = self._request(bound, options, target)
        compiled = self._compile(request)
        arguments: dict[str, Any] = {}
        for name, kind in request.run_time.items():
            arguments.update(host_values(name, kind, bound[name]))
        self._agree(compiled, dict(spread((name, bound[name]) for name in request.run_time)))
        return compiled.with_report(_compiler().simulate(compiled, size, arguments))

    def _agree(self, compiled: CompiledKernel, run_time: Mapping[str, Any]) -> Any:
        """Let the ranks of symmetric arguments compare what they launch. Returns the last block to launch in, if any."""
        together: Any = None
        for value in run_time.values():
            agree: Any = getattr(value, "__weft_agree__", None)
            if agree is not None:
                together = agree(self.__name__, fingerprint.common(compiled.request, self._constexprs))
        return together

    def _options(self, given: Mapping[str, Any]) -> Options:
        """The checked launch options. Raises what `weft.runtime.options.checked` raises."""
        stream = given["stream"]
        streams.raw(0 if stream is None else stream)  # Checked for simulated launches too, which do not use it.
        values = {name: plain(given[name]) for name in binder.COMPILE_OPTIONS}
        return checked(self.__name__, values, debug=self.debug, sync=self.sync, fast_math=self.fast_math)

    def _request(self, bound: Mapping[str, Any], options: Options, target: str) -> CompileRequest:
        """What to compile. Raises LaunchError: launch-clusters, launch-pdl-target, and what `specialise` raises."""
        # A kernel that declares a launch option as a parameter gets the checked value, not the caller's spelling of it.
        declared = {name: getattr(options, name) for name in binder.COMPILE_OPTIONS}
        arguments = {
            p.name: constexpr(self.__name__, p.name, declared.get(p.name, plain(bound[p.name])))
            if p.constexpr
            else specialise(self.__name__, p.name, bound[p.name], facts=p.specialise)
            for p in self.params
        }
        most = targets.get(target).max_cluster
        if options.num_ctas > most:
            raise fail(CLUSTERS, name=self.__name__, num_ctas=options.num_ctas, target=target, most=most)
        if options.launch_pdl and not targets.get(target).has_programmatic_launch:
            raise fail(PDL_TARGET, name=self.__name__, target=target)
        return CompileRequest(self, arguments, options, target)

    def _compile(self, request: CompileRequest) -> CompiledKernel:
        """The compiled kernel of a request. The lock makes concurrent launches compile it once."""
        with self._lock:
            if watch.changed(self._binder.watched):
                self.forget()
            found = self._compiled.get(request)
            if found is None:
                if len(self._compiled) >= _KERNELS_KEPT:
                    self.forget()
                found = self._compiled[request] = _compiler().compile_kernel(request)
                self._binder.watched.extend(watch.find(found, self._watches))
            return found

    def _remember(self, key: Any, run: Callable[..., Any], compiled: CompiledKernel) -> None:
        with self._lock:
            # Another thread may have called `forget` meanwhile: then the entry is stale and the next launch compiles again.
            if self._compiled.get(compiled.request) is compiled:
                self._binder.table[key] = run

    def forget(self) -> None:
        """Drop every compiled variant of this kernel, so that the next launch compiles it again or finds it in the disk cache.

        A launch notices by itself when Python code or globals that its kernel read at compile time have changed. It does not
        notice changes of environment variables, files, the clock or the state of other libraries that this Python code
        consulted; after `forget` they are consulted again.
        """
        with self._lock:
            self._forgotten += 1
            self._binder.table.clear()
            self._binder.watched.clear()
            self._watches.clear()
            self._launchers.clear()
            self._compiled.clear()


class Repeated:
    """Launches of a kernel that differ in few values: grid, options, other values and what the kernel is specialised on are
    equal. A caller that knows this spares itself the key of all arguments, which takes most of a launch's time in weft.

    `places` are the numbers of those values among the run-time ones, where the values of tuples count one by one."""

    __slots__ = ("_kept", "_kernel", "_places")

    def __init__(self, kernel: JITFunction[..., Any], places: Sequence[int]) -> None:
        self._kernel, self._places = kernel, places
        self._kept: tuple[Callable[..., CompiledKernel], int] | None = None

    @opaque
    def ready(self) -> Callable[..., CompiledKernel] | None:
        """The launch as a function of a stream and the values at the places, in the form of `weft.runtime.launch.Run`.

        None before the third launch, after an edit of what the kernel has read, while launches are rehearsed and in a block of
        settings: `launch` is for these."""
        if self._kept is None:
            return None
        run, generation = self._kept
        return run if self._kernel.generation() == generation else None

    @opaque
    def launch(self, programs: Any, *args: Any, **keywords: Any) -> CompiledKernel:
        """Launch with all arguments on a grid."""
        generation = self._kernel.generation()

        def keep(launcher: Launcher, size: Grid, values: Sequence[Any]) -> None:
            run = launcher.fixed(size, values, self._places)
            self._kept = None if run is None or generation is None else (opaque(run), generation)

        return self._kernel.repeat(keep, programs, *args, **keywords)


@overload
def jit(fn: Callable[P, R], /) -> JITFunction[P, R]: ...
@overload
def jit(
    fn: None = None,
    /,
    *,
    debug: bool | None = None,
    sync: str = "auto",
    fast_math: bool | Sequence[str] = False,
    do_not_specialize: Sequence[int | str] = (),
    noinline: bool | None = None,
    repr: Callable[[Specialization], str] | None = None,
) -> Callable[[Callable[P, R]], JITFunction[P, R]]: ...


def jit(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    debug: bool | None = None,
    sync: str = "auto",
    fast_math: bool | Sequence[str] = False,
    do_not_specialize: Sequence[int | str] = (),
    noinline: bool | None = None,
    repr: Callable[[Specialization], str] | None = None,  # noqa: A002 - Triton's name
    **others: object,
) -> JITFunction[..., Any] | Callable[[Callable[..., Any]], JITFunction[..., Any]]:
    """Make a function a kernel, or a helper that kernels call.

    `debug` is the default of the launch option; on a GPU, `device_assert` is checked only with it. `sync` is "auto" (barriers
    and fences are inserted where accesses to shared memory need them), "explicit" (barriers are inserted; a missing fence is
    an error) or "none" (nothing is inserted, not even for scratch memory that weft itself uses: for experiments).
    `fast_math` lists operations of the kernel, and of the helpers that it calls, that are carried out by the GPU's approximate
    instructions (`exp2`, `tanh`, `div`, ...; True is all of them), within the bounds of libdevice's `fast_` functions; of a
    helper that another kernel calls, that kernel's counts.
    `do_not_specialize` lists parameters, by name or position, whose values the compiled code must not depend on. `noinline` is
    a hint of Gluon's that changes nothing here: a helper is always compiled into its callers. `repr` is a function from a
    `Specialization` (`constants` and `signature`, by parameter) to the name that profilers show for the compiled kernel; by
    default that is the function's name. Raises LaunchError:
    launch-option-value for another `sync` or `fast_math`, launch-no-function for an argument that is not a function,
    launch-option-of-jit and launch-no-option-of-jit for `others`.
    """
    for option, value in others.items():
        refuse_of_jit(option, value, binder.OPTIONS)

    def make(function: Callable[..., Any]) -> JITFunction[..., Any]:
        if not isinstance(function, FunctionType):
            raise fail(NO_FUNCTION, value=format(function))
        return JITFunction(
            function, debug=debug, sync=sync, fast_math=fast_math, do_not_specialize=do_not_specialize, naming=repr
        )

    return make if fn is None else make(fn)


def _kernel_of(
    fn: FunctionType, lines: list[str], options: tuple[bool | None, str, tuple[str, ...]], plain: Any, naming: Any
) -> JITFunction[..., Any]:
    """A kernel unpickled from another process, with the source text that it had there."""
    keep_lines(fn, lines)
    debug, sync, fast_math = options
    return JITFunction(fn, debug=debug, sync=sync, fast_math=fast_math, do_not_specialize=plain, naming=naming)


def _left_out(*_: Any, **__: Any) -> Any:
    """A launch that is neither checked nor compiled."""


def _compiler() -> ModuleType:
    # The compiler imports NumPy and both back ends, so it is loaded only when something is compiled.
    return load_module("weft.compiler")


def host_values(name: str, kind: ArgumentType, value: Any) -> Mapping[str, Any]:
    """The simulator's values of an argument, by parameter name: memory, a tensor map in memory, or numbers."""
    if isinstance(kind, Constexpr):
        return {}
    if isinstance(kind, Tuple):
        pairs = zip(kind.named(name), value, strict=True)
        return dict(chain.from_iterable(host_values(*named, item).items() for named, item in pairs))
    if isinstance(kind, View):
        return views.host_values(name, kind, value)
    if isinstance(kind, Descriptor):
        return {name: host_map(value)}
    return {name: host_buffer(value) if isinstance(kind, Pointer) else as_number(value)}


def _library_of(value: Any) -> str:
    """The library of an array, of a view's, or of a descriptor's."""
    return library_of(value.base if isinstance(value, HostDescriptor) else views.base(value))


def _raw_value(value: Any) -> Any:
    """The value that a launch passes for an argument: a tensor map, an address, a number, or 0 for None.

    `weft.runtime.launch.Run` documents the form of a view."""
    if value is None:
        return 0
    if isinstance(value, tuple):
        return tuple(map(_raw_value, cast("tuple[Any, ...]", value)))
    argument = view_argument(value)
    if argument is not None:
        return views.raw(argument)
    if isinstance(value, HostDescriptor):
        return value.tensor_map
    if is_constant(value):
        return 0
    found = array(value)
    return as_number(value) if found is None else found.pointer
