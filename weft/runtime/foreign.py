"""Advice on unknown keywords of launches, decorators and configs: the name that was meant, or weft's equivalent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import NoReturn

from weft.errors import fail
from weft.errors.launch import LAUNCH_OPTION, NO_DECORATOR_OPTION, NO_OPTION

_PIPELINING = (
    "pipelining is written in the kernel, as buffers with a leading dimension of stages and copies that run ahead"
)
_PARTITIONS = "warp specialisation is written in the kernel, with gl.warp_specialize"
_AMD = "it is for GPUs of AMD, and weft compiles for NVIDIA's"
_SHARED = "shared memory is what the kernel allocates, and weft counts it"
_BLOCK = "how many threads a block has is block=, or num_warps= of a kernel for tiles"
_CLUSTER = "a program of several blocks is a cluster: num_ctas="
_INSTEAD: dict[str, str] = {
    "num_stages": _PIPELINING, "num_buffers_warp_spec": _PIPELINING,
    "num_consumer_groups": _PARTITIONS, "reg_dec_producer": _PARTITIONS, "reg_inc_consumer": _PARTITIONS,
    "warp_specialize": _PARTITIONS,
    "kpack": _AMD, "matrix_instr_nonkdim": _AMD, "schedule_hint": _AMD, "waves_per_eu": _AMD,
    "shared": _SHARED, "shared_mem": _SHARED, "shared_memory": _SHARED, "smem": _SHARED,
    "blockDim": _BLOCK, "block_dim": _BLOCK, "num_threads": _BLOCK, "threads": _BLOCK,
    "allow_tf32": "mma_v2 takes input_precision=, and warpgroup_mma has the type of its operands",
    "cluster_dim": _CLUSTER, "cluster_dims": _CLUSTER,
    "do_not_specialize_on_alignment": "parameters whose values the code must not depend on are do_not_specialize=",
    "grid": "the grid stands in brackets, kernel[grid](...)",
    "launch_metadata": "a profiler gets the kernel's name from the driver; NVTX ranges around a launch carry more",
    "maxRegisters": "the bound on registers is maxnreg=", "maxregs": "the bound on registers is maxnreg=",
    "target": "the arrays decide where a kernel runs; warmup takes target=",
    "version": "what a kernel reads is part of its key in the cache, so it needs no version",
}  # fmt: skip
"""Options of other languages, of CUDA and of PyTorch, with weft's equivalents."""


def meant(keyword: str, known: Iterable[str]) -> str:
    """A clause about an unknown keyword; empty when there is no advice.

    >>> meant("num_warp", ["num_warps", "stream"])
    '; did you mean num_warps?'
    >>> meant("grid", ["num_warps", "stream"])
    ': the grid stands in brackets, kernel[grid](...)'
    """
    if keyword in _INSTEAD:
        return f": {_INSTEAD[keyword]}"
    close = get_close_matches(keyword, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def refuse_of_jit(option: str, value: object, launch: Sequence[str]) -> NoReturn:
    """Raise LaunchError for an unknown option of `weft.jit`: launch-option-of-jit, launch-no-option-of-jit."""
    if option in launch:
        raise fail(LAUNCH_OPTION, option=option, value=value)
    known = "debug", "sync", "fast_math", "do_not_specialize", "noinline", "repr"
    hint = meant(option, (*known, *launch))
    raise fail(NO_DECORATOR_OPTION, option=option, hint=hint, known=", ".join(known), options=", ".join(launch))


def refuse_others(name: str, function: Callable[..., object], others: Mapping[str, object]) -> None:
    """Raise LaunchError (launch-no-option) for keywords that `function`, which users know as `name`, has no parameter for."""
    for option in others:
        parameters = signature(function).parameters.values()
        known = [each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD and each.name != "self"]
        raise fail(NO_OPTION, name=name, option=option, hint=meant(option, known), known=", ".join(known))
