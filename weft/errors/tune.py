"""Mistakes in tuning: configs that do not fit the tuned function, keys, files of choices, and searches without a result."""

from __future__ import annotations

from weft.errors.base import UserError, row


class TuningError(UserError, ValueError):
    """An argument, a config or a file of `weft.autotune` cannot be used."""


# What is tuned, and over what

SUBJECT = row(
    "tune-subject",
    TuningError,
    "weft.autotune is above {value}, which is neither a kernel nor a Python function",
    "put @weft.autotune(...) above @weft.jit, or above a function that launches kernels",
)
CONFIGS_KIND = row(
    "tune-configs-kind",
    TuningError,
    "the configs of {name} contain {value}, which is not a Config",
    "write @weft.autotune([weft.Config({{'BLOCK': 64}}, num_warps=4)]), or a dictionary of values for each parameter",
)
EMPTY_SPACE = row(
    "tune-empty-space",
    TuningError,
    "{name} has no configs: {reason}",
    "give at least one weft.Config, or values that the constraint lets through",
)
CONSTRAINT = row(
    "tune-constraint",
    TuningError,
    "the constraint of a space takes {parameter}, but the space has values for {known}",
    "let the constraint take parameters of the space, by their names",
)
OPTION_KIND = row(
    "tune-option-kind",
    TuningError,
    "{option} of {name} is {value}, not {want}",
    "{fix}",
)
UNKNOWN_PARAMETER = row(
    "tune-unknown-parameter",
    TuningError,
    "the config ({config}) sets {parameter}, which is not a parameter of {name}{hint}",
    "its parameters are {parameters}; a function must have a parameter for each launch option that its configs set",
)
UNKNOWN_NAME = row(
    "tune-unknown-name",
    TuningError,
    "{option} of {name} names {parameter}, which is not a parameter of {name}{hint}",
    "its parameters are {parameters}",
)
TUNED_NAME = row(
    "tune-tuned-name",
    TuningError,
    "{option} of {name} names {parameter}, which its configs set",
    "name arguments of the call: the choice cannot depend on a value that it sets",
)

# Calls

ARGUMENT_TWICE = row(
    "tune-argument-twice",
    TuningError,
    "this call of {name} gives {parameter}, which its configs set",
    "leave {parameter} out; to choose by hand, call {name}.fn, which is not tuned",
)
GRID_MISSING = row(
    "tune-grid-missing",
    TuningError,
    "{name}.tune was called without a grid, and {name} is a kernel",
    "write {name}.tune(..., grid=...), with the grid of its launches",
)
NO_GRID = row(
    "tune-no-grid",
    TuningError,
    "{name} is a function that launches kernels itself, and got a grid",
    "call it: {name}(...)",
)
KEY_VALUE = row(
    "tune-key-value",
    TuningError,
    "the key {part} of {name} is {value}, which cannot be stored",
    "use a number, a text, a dtype, an array (for its shape), or a function of the arguments that returns one of these",
)
RESTORE_KIND = row(
    "tune-restore-kind",
    TuningError,
    "{option} of {name} names {parameter}, which is {value} and cannot be {done}",
    "name arrays of PyTorch, NumPy or CuPy, or None",
)
CAPTURING = row(
    "tune-capturing",
    TuningError,
    "{name}.tune was called while a CUDA graph is captured, and nothing can be measured then",
    "tune before the capture begins",
)

# Results

ALL_FAILED = row(
    "tune-all-failed",
    TuningError,
    "none of the {count} configs of {name} can be used\n{reasons}",
    "fix the reasons listed above, or give other configs",
)
DEVICE_LOST = row(
    "tune-device-lost",
    TuningError,
    "the config ({config}) of {name} broke the CUDA context: {reason}",
    "run it on NumPy arrays or CPU tensors: the simulator names the line; only a new process gets a new context",
)

# Files of choices

DAMAGED = row(
    "tune-damaged-file",
    TuningError,
    "{path} is not a file of tuning choices: {reason}",
    "export it again with weft.tune.export_choices(path)",
)
SHAPES_LINE = row(
    "tune-shapes-line",
    TuningError,
    "{path}:{line}: {reason}",
    "write a table whose first line is m,n,k,dtype,out_dtype,layout,lda,ldb (the last five may be left out), such as "
    "4096,4096,8192,float16 below m,n,k,dtype; or, in a .jsonl file, an object with these names in each line",
)
OTHER_VERSION = row(
    "tune-other-version",
    TuningError,
    "{path} has tuning choices in format {found}, and this weft reads format {known}",
    "export it again with this version of weft",
)
