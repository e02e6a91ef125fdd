"""`operator`: a host function that launches weft kernels becomes an operator of PyTorch.

A host function takes tensors, allocates its results, launches kernels and returns. As an operator it is one node with a schema
to PyTorch, which does not trace into its Python: `torch.compile` and `torch.export` keep it whole, autograd calls its backward
function, and the profiler shows its name. The dispatcher's kernels are in `weft.torch.autograd`, what is checked of a call on
CPU tensors in `weft.torch.contract`.

Where PyTorch is not installed, operators can be declared but not called, so that this package can be imported anywhere.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints, overload

from weft.errors import UserError, WeftError, fail
from weft.errors import operators as errors
from weft.runtime import rehearsal
from weft.torch.autograd import casting, differentiable, mutating
from weft.torch.contract import Contract

P = ParamSpec("P")
R = TypeVar("R")
_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
_OF_FAKES = ("RuntimeError", "DataDependentOutputException")
"""What PyTorch raises where a tensor without memory is asked for an address or for elements."""
OPERATORS: dict[str, Operator[..., Any]] = {}
"""Every operator by name. A name that is declared again, as in a notebook, is replaced."""


class Operator(Generic[P, R]):
    """An operator of PyTorch, made by `weft.torch.operator`. Calling it is calling `torch.ops.<namespace>.<name>`.

    Attributes: `name` ("namespace::name"), `fn` (the host function), `mutates_args`, `overload` (PyTorch's `OpOverload`, for
    `torch.library.opcheck` and other functions of PyTorch).
    """

    def __init__(
        self, name: str, fn: Callable[P, R], *, mutates_args: Iterable[str], schema: str | None, tags: Iterable[Any]
    ) -> None:
        if not _NAME.fullmatch(name):
            raise fail(errors.NAME, got=name, example=getattr(fn, "__name__", "scale"))
        functools.update_wrapper(self, fn)
        self.name, self.fn = name, fn
        self.mutates_args = (mutates_args,) if isinstance(mutates_args, str) else tuple(mutates_args)
        unknown = set(self.mutates_args) - set(inspect.signature(fn).parameters)
        if unknown:
            known = ", ".join(inspect.signature(fn).parameters)
            raise fail(errors.MUTATES, name=name, unknown=", ".join(sorted(unknown)), known=known)
        self._backward_fn: Callable[..., Any] = self._no_backward
        self._setup_context_fn: Callable[..., Any] | None = None
        self._differentiable_fn: Callable[..., Any] | None = None
        self._fake: Callable[..., Any] = self._fake_of_host
        self.overload: Any = self._absent
        self._library: Any = None
        replaced = OPERATORS.pop(name, None)
        if find_spec("torch") is not None:
            if replaced is not None:
                replaced._library._destroy()
            self._define(schema, tuple(tags))
        OPERATORS[name] = self

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> R:
        """Call the operator. Raises DeviceError (operator-pytorch) without PyTorch, and what the host function raises."""
        return self.overload(*args, **keywords)

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A module that holds an operator is copied and pickled with its name.
        return _restored, (self.fn.__module__, self.name)

    def register_fake(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Register the function that makes results without memory: it allocates as the host function does, without launches.

        It takes the operator's arguments, with tensors that have a shape and no elements, as in `torch.library.register_fake`.
        Needed where the host function asks for more than shapes, strides and types: addresses, or elements. Without it the
        host function itself runs on such tensors, with its launches left out.
        """
        self._fake = function
        return function

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Register the backward function, as in `torch.library.register_autograd`.

        `backward(ctx, *grads)` returns a gradient, or None, for each argument. `setup_context(ctx, inputs, output)` keeps what
        it needs (`ctx.save_for_backward`, attributes of `ctx`); for an operator with keyword-only parameters it is
        `setup_context(ctx, inputs, keyword_only_inputs, output)`. Both are traced by `torch.compile`: launch kernels in them
        through operators. Raises LaunchError (operator-mutates-backward) for an operator that writes to its arguments.
        """
        if self.mutates_args:
            raise fail(errors.MUTABLE_BACKWARD, name=self.name, written=", ".join(self.mutates_args))
        self._backward_fn = functools.wraps(backward)(_named(self.name, backward))
        self._setup_context_fn = setup_context

    def register_differentiable(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Register a function that a call goes to instead where a gradient is wanted.

        It computes the same by operators that have gradients, such as one that also returns what the backward function needs.
        Raises LaunchError (operator-mutates-backward) for an operator that writes to its arguments.
        """
        if self.mutates_args:
            raise fail(errors.MUTABLE_BACKWARD, name=self.name, written=", ".join(self.mutates_args))
        self._differentiable_fn = function
        return function

    def register_vmap(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Register the rule of `torch.vmap`, as in `torch.library.register_vmap`.

        `function(info, in_dims, *args)` gets tensors with one dimension more, at the position in `in_dims` (None for those that
        have none), and returns the results and the positions of that dimension in them. Without a rule PyTorch calls the
        operator once for each element of the dimension, and warns.
        """
        if self._library is not None:
            import torch

            torch.library.register_vmap(self.name, function, lib=self._library)
        return function

    def register_autocast(
        self, device_type: str, cast_inputs: Any = None, /, *, only: Iterable[str] | None = None
    ) -> None:
        """Convert tensors of float16, bfloat16 and float32 under `torch.autocast(device_type)`.

        They become `cast_inputs` (a dtype, or its name), or where that is None the type that autocast has there. `only` names
        the parameters whose tensors are converted. Without this, an operator takes its arguments as they are.
        """
        if self._library is not None:
            key, kernel = casting(self.overload, device_type, cast_inputs, only)
            self._library.impl(self._short, kernel, key, with_keyset=True)

    @property
    def _short(self) -> str:
        return self.name.partition("::")[2]

    def _define(self, schema: str | None, tags: tuple[Any, ...]) -> None:
        import torch

        text = schema or self._schema()
        self._library = torch.library.Library(self.name.partition("::")[0], "FRAGMENT")
        # The strides that a call is traced with are those that its fake function has seen.
        exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
        self._library.define(self._short + text, tags=(torch.Tag.pt2_compliant_tag, exact, *tags))
        self.overload = getattr(getattr(torch.ops, self.name.partition("::")[0]), self._short).default
        names = [argument.name for argument in self.overload._schema.arguments]
        contract = Contract(self.name, self.overload, names, self.mutates_args)
        named = _named(self.name, self.fn)

        def simulated(*args: Any, **keywords: Any) -> Any:
            return contract.checked(named, args, keywords)

        takes_tensors = any("Tensor" in str(argument.type) for argument in self.overload._schema.arguments)
        backends = {"CPU": _named(self.name, simulated), "CUDA": named} if takes_tensors else {}
        for key, kernel in (backends or {"CompositeExplicitAutograd": named}).items():
            self._library.impl(self._short, kernel, key)
        torch.library.register_fake(self.name, self._call_fake, lib=self._library)
        if self.mutates_args:
            kernel = _named(self.name, mutating(self.overload, self.name, self.mutates_args, backends))
            self._library.impl(self._short, kernel, "ADInplaceOrView", with_keyset=True)
        else:
            kernel = differentiable(self.overload, self, backends)
        self._library.impl(self._short, kernel, "Autograd", with_keyset=True)

    def _schema(self) -> str:
        """The schema of the host function's annotations. Raises LaunchError (operator-signature)."""
        import torch

        # Names that only a type checker imports are known here, so that a module may import PyTorch late.
        known = {"torch": torch, "Tensor": torch.Tensor, "dtype": torch.dtype, "device": torch.device}
        try:
            hints = get_type_hints(self.fn, localns={**known, **getattr(self.fn, "__globals__", {})})
            drawn = inspect.signature(self.fn)
            parameters = [p.replace(annotation=hints.get(name, p.empty)) for name, p in drawn.parameters.items()]
            result = hints.get("return", inspect.Signature.empty)

            def described() -> None: ...

            result = None if result is type(None) else result
            vars(described)["__signature__"] = drawn.replace(parameters=parameters, return_annotation=result)
            return torch.library.infer_schema(described, mutates_args=self.mutates_args)
        except (NameError, TypeError, ValueError) as error:
            cause = str(error).removeprefix("infer_schema(func): ").partition(" Got func with")[0].rstrip(". ")
            raise fail(errors.SIGNATURE, name=self.name, cause=cause) from error

    def _call_fake(self, *args: Any, **keywords: Any) -> Any:
        return self._fake(*args, **keywords)

    def _fake_of_host(self, *args: Any, **keywords: Any) -> Any:
        """The host function on tensors without memory, with its launches left out. Raises LaunchError (operator-no-fake)."""
        try:
            with rehearsal.rehearsal(rehearsal.leave_out):
                return self.fn(*args, **keywords)
        except (WeftError, RuntimeError) as error:
            if not isinstance(error, WeftError) and type(error).__name__ not in _OF_FAKES:
                raise  # Tracers know the others.
            cause = error.message if isinstance(error, UserError) else str(error).partition(". ")[0]
            variable = getattr(self.fn, "__name__", self._short)
            raise fail(errors.NO_FAKE, name=self.name, cause=cause, variable=variable) from error

    def _no_backward(self, *_: Any) -> Any:
        raise fail(errors.NO_BACKWARD, name=self.name)

    def _absent(self, *_: Any, **__: Any) -> Any:
        raise fail(errors.NO_PYTORCH, name=self.name)


@overload
def operator(
    name: str,
    fn: None = None,
    /,
    *,
    mutates_args: Iterable[str] = (),
    schema: str | None = None,
    tags: Iterable[Any] = (),
) -> Callable[[Callable[P, R]], Operator[P, R]]: ...
@overload
def operator(
    name: str,
    fn: Callable[P, R],
    /,
    *,
    mutates_args: Iterable[str] = (),
    schema: str | None = None,
    tags: Iterable[Any] = (),
) -> Operator[P, R]: ...


def operator(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: Iterable[str] = (),
    schema: str | None = None,
    tags: Iterable[Any] = (),
) -> Operator[..., Any] | Callable[[Callable[..., Any]], Operator[..., Any]]:
    """Make a host function that launches kernels an operator of PyTorch, `torch.ops.namespace.name`.

    `name` is "namespace::name". The schema comes from the annotations of the function, also where these are strings: tensors,
    numbers, texts, `torch.dtype`, `torch.device`, these with `| None`, and lists of them; the result is a tensor, a tuple of
    tensors, or None. `mutates_args` names the parameters whose tensors the function writes to. `schema` and `tags` are as in
    `torch.library.custom_op`.

    `torch.compile` keeps a call as one node. Shapes of results come from the host function itself, run with its launches left
    out, or from `register_fake`. `register_autograd`, `register_vmap` and `register_autocast` add the rest; a gradient that is
    wanted where there is no backward function is an error. CPU tensors run in the simulator, which also checks the operator:
    that it writes to the arguments it says, and that its results are memory of their own, as the fake function has them.

    Raises LaunchError: operator-name, operator-signature, operator-mutates-args; and when it is called operator-no-fake,
    operator-no-backward, operator-mutates-gradient, operator-writes, operator-aliases, operator-fake-differs.
    """

    def make(function: Callable[..., Any]) -> Operator[..., Any]:
        return Operator(name, function, mutates_args=mutates_args, schema=schema, tags=tags)

    return make if fn is None else make(fn)


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose errors say which operator was being called."""
    what = f"operator {name}"

    def named(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except UserError as error:
            raise error.within(what)  # noqa: B904 - the same error

    return named


def _restored(module: str, name: str) -> Operator[..., Any]:
    if name not in OPERATORS and module not in sys.modules:
        import_module(module)
    return OPERATORS[name]
