"""Kernels of the dispatcher between a call and the host function: gradients, versions of written tensors, autocast.

PyTorch's dispatcher calls the kernel of each key that the arguments have, from autograd down to the device. These are the ones
in Python that an operator needs, with as little work as possible where nothing requires a gradient. Only names that
`torch.library.custom_op` itself is built from are used here.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft.errors import fail
from weft.errors import operators as errors

Kernel = Callable[..., Any]
_CAST = ("float16", "bfloat16", "float32")
"""Types that autocast converts. An fp8 operand has scales that go with its type."""


def differentiable(overload: Any, info: Any, backends: Mapping[str, Kernel]) -> Kernel:
    """The autograd kernel of an operator that writes to none of its arguments.

    `info` has `_backward_fn` and `_setup_context_fn`, as PyTorch's function has it that makes the differentiable call, and
    `_differentiable_fn`, a function to call instead or None. `backends` are the kernels of devices, by dispatch key."""
    import torch

    recorded = _recording(overload, info)
    below, redispatch = torch._C._after_autograd_keyset, overload.redispatch
    enabled, wanted = torch.is_grad_enabled, torch._C._any_requires_grad
    direct = _direct(backends).get

    def kernel(keys: Any, *args: Any, **keywords: Any) -> Any:
        if enabled() and wanted(*args):
            instead: Kernel | None = info._differentiable_fn
            return recorded(keys, *args, **keywords) if instead is None else instead(*args, **keywords)
        backend = direct(keys.raw_repr())
        return redispatch(keys & below, *args, **keywords) if backend is None else backend(*args, **keywords)

    return kernel


def _recording(overload: Any, info: Any) -> Kernel:
    """The call that autograd records.

    Its class is the one below `torch.autograd.Function`, which has no way through PyTorch's transformations of its own: within
    `torch.func.grad` this kernel is called once for each level of them anyway, as those of PyTorch's operators are."""
    import torch

    schema, utils = overload._schema, torch._library.utils
    if any(utils.is_tensorlist_like_type(each.type) for each in (*schema.arguments, *schema.returns)):
        return torch._library.autograd.make_autograd_impl(overload, info)
    below, redispatch = torch._C._after_autograd_keyset, overload.redispatch
    named: bool = utils.has_kwarg_only_args(schema)
    transforming = torch._C._are_functorch_transforms_active

    def forward(ctx: Any, *given: Any) -> Any:
        *args, keys, keywords = given
        with torch._C._AutoDispatchBelowAutograd():
            result = redispatch(keys & below, *args, **keywords)
            if info._setup_context_fn is not None:
                # The dispatcher has left out arguments that are equal to their defaults.
                inputs, others = utils.fill_defaults(schema, args, keywords)
                more: dict[str, Any] = {"keyword_only_inputs": others} if named else {}
                info._setup_context_fn(ctx=ctx, inputs=inputs, output=result, **more)
        return result

    def backward(ctx: Any, *grads: Any) -> Any:
        needed = ctx.needs_input_grad
        ctx.needs_input_grad = needed[:-2]
        try:
            found = info._backward_fn(ctx, *grads)
        finally:
            ctx.needs_input_grad = needed
        return (*found, None, None) if isinstance(found, tuple) else (found, None, None)

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    name = f"{schema.name.replace('::', '_')}_backward"
    function: Any = type(name, (torch.autograd.function._SingleLevelFunction,), methods)

    def recorded(keys: Any, *args: Any, **keywords: Any) -> Any:
        if not transforming():
            return function.apply(*args, keys, keywords)
        with torch._functorch.utils.enable_single_level_autograd_function():
            return function.apply(*args, keys, keywords)

    return recorded


def mutating(overload: Any, name: str, written: Sequence[str], backends: Mapping[str, Kernel]) -> Kernel:
    """The kernel of an operator that writes to arguments: it refuses gradients, and counts versions up.

    It serves two keys: autograd, and the one below, which is all that tensors have under `torch.inference_mode`."""
    import torch

    below, redispatch = torch._C._after_ADInplaceOrView_keyset, overload.redispatch
    enabled, wanted = torch.is_grad_enabled, torch._C._any_requires_grad
    names = tuple(argument.name for argument in overload._schema.arguments)
    changed = torch.autograd.graph.increment_version
    direct = _direct(backends, "ADInplaceOrView").get

    def kernel(keys: Any, *args: Any, **keywords: Any) -> Any:
        if enabled() and wanted(*args, **keywords):
            given = {**dict(zip(names, args, strict=False)), **keywords}
            culprit = next(key for key, value in given.items() if wanted(value))
            what = ", ".join(written)
            raise fail(errors.MUTATED_GRADIENT, name=name, written=what, argument=culprit)
        backend = direct(keys.raw_repr())
        result = redispatch(keys & below, *args, **keywords) if backend is None else backend(*args, **keywords)
        for argument in tensors_of(names, args, keywords, written):
            changed(argument)
        return result

    return kernel


def _direct(backends: Mapping[str, Kernel], *others: str) -> dict[int, Kernel]:
    """The kernels of devices by the keys of a call on ordinary tensors, where nothing lies between autograd and the device.

    There the kernel is called as a Python function, which saves a second way through the dispatcher (1.6 of 4.9 us with
    PyTorch 2.13). Any mode, transformation or subclass adds a key, and its calls go through the dispatcher."""
    import torch

    key, keys = torch._C.DispatchKey, torch._C.DispatchKeySet
    found: dict[int, Kernel] = {}
    for backend, kernel in backends.items():
        ordinary = keys(getattr(key, backend)) | keys(getattr(key, f"Autograd{backend}"))
        for other in others:
            ordinary = ordinary | keys(getattr(key, other))
        found[ordinary.raw_repr()] = kernel
    return found


def tensors_of(
    names: Sequence[str], args: Sequence[Any], keywords: Mapping[str, Any], chosen: Iterable[str]
) -> Iterable[Any]:
    """The tensors given for some parameters. The dispatcher leaves out arguments that are equal to their defaults."""
    given = {**dict(zip(names, args, strict=False)), **keywords}
    for name in chosen:
        value = given.get(name)
        if value is not None:
            yield from value if isinstance(value, (list, tuple)) else (value,)


def casting(overload: Any, device_type: str, dtype: Any, only: Iterable[str] | None) -> tuple[str, Kernel]:
    """The dispatch key of autocast for a device, and its kernel: floats become `dtype`, or the type that autocast has."""
    import torch

    key = f"Autocast{torch._C._dispatch_key_for_device(device_type)}"
    off = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    types = tuple(getattr(torch, name) for name in _CAST)
    names = tuple(argument.name for argument in overload._schema.arguments)
    chosen = frozenset(names if only is None else only)
    fixed = getattr(torch, dtype) if isinstance(dtype, str) else dtype

    def kernel(_: Any, *args: Any, **keywords: Any) -> Any:
        to = fixed or torch.get_autocast_dtype(device_type)

        def cast(name: str, value: Any) -> Any:
            if name not in chosen:
                return value
            if isinstance(value, (list, tuple)):
                return [cast(name, item) for item in typing.cast("Sequence[Any]", value)]
            floating = isinstance(value, torch.Tensor) and value.dtype in types and value.device.type == device_type
            return value.to(to) if floating else value

        with torch._C._ExcludeDispatchKeyGuard(off):
            given = (cast(name, value) for name, value in zip(names, args, strict=False))
            return overload(*given, **{name: cast(name, value) for name, value in keywords.items()})

    return key, kernel
