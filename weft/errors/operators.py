"""Mistakes in PyTorch operators (`weft.torch`)."""

from __future__ import annotations

from weft.errors.base import DeviceError, LaunchError, row

NO_PYTORCH = row(
    "operator-pytorch",
    DeviceError,
    "{name} is an operator of PyTorch, which is not installed",
    "python -m pip install torch; weft.kernels has the same functions for NumPy, CuPy and JAX arrays",
)
NAME = row(
    "operator-name",
    LaunchError,
    "an operator's name is namespace::name, but got {got!r}",
    "write weft.torch.operator('mylib::{example}')",
)
SIGNATURE = row(
    "operator-signature",
    LaunchError,
    "operator {name} has no schema: {cause}",
    "annotate every parameter and the result with torch.Tensor, int, float, bool, str, torch.dtype, torch.device, these with "
    "| None, or lists of them; a result is a Tensor, a tuple of them, or None; other values (configurations, streams) are no "
    "parameters of operators",
)
MUTATES = row(
    "operator-mutates-args",
    LaunchError,
    "mutates_args of operator {name} names {unknown}, but its parameters are {known}",
    "name the parameters whose tensors the function writes to, as in mutates_args=('out',)",
)
NO_FAKE = row(
    "operator-no-fake",
    LaunchError,
    "{name} needs a fake function: its host function does not work on tensors without memory ({cause})",
    "write a function that only allocates results, and register it with {variable}.register_fake",
)
FAKE_DIFFERS = row(
    "operator-fake-differs",
    LaunchError,
    "result {index} of {name} is {got}, but its fake function made {fake}",
    "allocate the same in both: torch.compile plans memory and strides by the fake function",
)
WRITES = row(
    "operator-writes",
    LaunchError,
    "{name} has written to its argument {argument}, which mutates_args does not name",
    "declare it: mutates_args=('{argument}',), or write to a copy; torch.compile reorders calls by that list",
)
ALIASES = row(
    "operator-aliases",
    LaunchError,
    "result {index} of {name} shares memory with its argument {argument}",
    "return a tensor of its own, or return None and name {argument} in mutates_args",
)
NO_BACKWARD = row(
    "operator-no-backward",
    LaunchError,
    "{name} has no backward function, but a gradient through it is wanted",
    "register one with register_autograd, or call it on x.detach() or under torch.no_grad()",
)
BACKWARD_ARGUMENT = row(
    "operator-no-gradient",
    LaunchError,
    "{name} has no gradient for {what}, which requires one",
    "{fix}",
)
MUTATED_GRADIENT = row(
    "operator-mutates-gradient",
    LaunchError,
    "{name} writes to {written}, which autograd cannot follow, and {argument} requires a gradient",
    "call it under torch.no_grad(), or on detached tensors",
)
MUTABLE_BACKWARD = row(
    "operator-mutates-backward",
    LaunchError,
    "{name} writes to {written}, so it cannot have a backward function",
    "write an operator that returns a new tensor, and register its backward function",
)
REDUCTION = row(
    "operator-reduction",
    LaunchError,
    "reduction is {got!r}, but there are none, sum and mean",
    'pass reduction="none" for a loss of each label, or leave it out for their mean',
)
