"""Mistakes in a launch: its grid, its options, its arguments, and what the machine lacks.

Compile-time mistakes have families of their own. These rows are for everything that `kernel[grid](...)`, `kernel.warmup` and
the runtime below them reject.
"""

from __future__ import annotations

from weft.errors.base import CompilationError, DeviceError, LaunchError, PerformanceWarning, UserError, row
from weft.errors.hazard import NotSimulated


class OutOfResources(UserError, RuntimeError):
    """A kernel needs more shared memory, tensor memory, registers or threads than a multiprocessor has."""


# Calling

NO_FUNCTION = row(
    "launch-no-function",
    LaunchError,
    "weft.jit makes a kernel of a Python function, not of {value}",
    "put @weft.jit directly above def; further decorators such as @weft.autotune go above it",
)
LAUNCH_OPTION = row(
    "launch-option-of-jit",
    LaunchError,
    "weft.jit got {option}={value!r}, which is an option of launches",
    "write @weft.jit, and kernel[grid](..., {option}={value!r}) where the kernel is launched",
)
NO_DECORATOR_OPTION = row(
    "launch-no-option-of-jit",
    LaunchError,
    "weft.jit has no option {option}{hint}",
    "its options are {known}; launch options are {options}",
)
NO_OPTION = row(
    "launch-no-option",
    LaunchError,
    "{name} has no option {option}{hint}",
    "its options are {known}",
)
PROGRAMS_WAIT = row(
    "launch-programs-wait",
    LaunchError,
    "kernel {name} waits for signals of other ranks, and of its {programs} programs only {resident} fit on the GPU at once: "
    "those that wait may keep out those that signal",
    "launch at most {resident} programs, and let each of them work on several parts in a loop",
)
COOPERATIVE = row(
    "launch-cooperative-grid",
    LaunchError,
    "{name} is launched with launch_cooperative_grid=True, but of its {programs} programs only {resident} run at the same time",
    "launch at most {resident} programs, each of which works on several parts in a loop, or leave launch_cooperative_grid out "
    "if no program waits for another",
)
HOST_CALL = row(
    "launch-host-call",
    LaunchError,
    "{name} is a kernel: it runs on a grid of programs and cannot be called like a Python function",
    "write {name}[grid](...), where grid is the number of programs; only @weft.jit functions may call {name}(...)",
)
SIGNATURE = row(
    "launch-signature",
    LaunchError,
    "parameter {parameter} of kernel {name} is {kind}, but a kernel takes a fixed list of arguments",
    "{instead}",
)
RESERVED_PARAMETER = row(
    "launch-reserved-parameter",
    LaunchError,
    "parameter {parameter} of kernel {name} has the name of the launch option {parameter}=",
    "rename the parameter: the launch could not tell it from the option",
)
MISSING_ARGUMENT = row(
    "launch-missing-argument",
    LaunchError,
    "{name} was launched without {missing}",
    "its parameters are {parameters}",
)
TOO_MANY_ARGUMENTS = row(
    "launch-too-many-arguments",
    LaunchError,
    "{name} was launched with {given} positional arguments, but it has {expected} parameters",
    "its parameters are {parameters}; launch options such as num_warps are passed by keyword",
)
DUPLICATE_ARGUMENT = row(
    "launch-duplicate-argument",
    LaunchError,
    "{name} got {parameter} twice: by position and by keyword",
    "pass {parameter} once",
)
UNKNOWN_KEYWORD = row(
    "launch-unknown-keyword",
    LaunchError,
    "{name} has no parameter or launch option {keyword}{hint}",
    "its parameters are {parameters}; launch options are {options}",
)

# Grid

GRID_KIND = row(
    "launch-grid-kind",
    LaunchError,
    "a grid is an int, a tuple of one to three ints, or a function of the arguments that returns one; got {grid}",
    "write {name}[(x, y, z)](...) with integers; weft.cdiv(n, size) divides and rounds up",
)
GRID_FUNCTION = row(
    "launch-grid-function",
    LaunchError,
    "the grid function of {name} raised {kind}: {message}",
    "let it take one dictionary, as in lambda meta: (weft.cdiv(n, meta[{example!r}]),); the names in it are {names}",
)
GRID_EMPTY = row(
    "launch-grid-empty",
    LaunchError,
    "the grid {grid} of {name} has no programs",
    "launch at least one program per dimension, or skip the launch when there is no work",
)
GRID_LIMIT = row(
    "launch-grid-limit",
    LaunchError,
    "dimension {dim} of the grid of {name} is {size}, but a GPU takes at most {limit}",
    "put the larger count on dimension 0 (up to 2147483647), or let each program do more work",
)
GRID_THREADS = row(
    "launch-grid-threads",
    LaunchError,
    "{name} is launched with {size} blocks of {block} threads along {axis}, {threads} threads, but gl.global_idx.{axis} "
    "has 32 bits",
    "let each thread do more work, so that there are fewer than {limit} threads along {axis}",
)
NO_SUCH_PROGRAM = row(
    "launch-no-such-program",
    LaunchError,
    "weft.simulate is given program {program} of {name}, but the grid is {grid}",
    "name programs inside the grid, or launch a larger one",
)

# Options

OPTION_VALUE = row(
    "launch-option-value",
    LaunchError,
    "{option}={value!r} of {name} is not {expected}",
    "write {example}",
)
BLOCK_TWICE = row(
    "launch-block-twice",
    LaunchError,
    "{name} got two blocks of threads: {brackets} in brackets, and block={keyword}",
    "keep one of them",
)
BLOCK_WARPS = row(
    "launch-block-warps",
    LaunchError,
    "num_warps={num_warps} of {name} disagrees with block={block}: its {threads} threads fill {warps} warps",
    "leave num_warps out: the block decides it",
)
ELEMENTWISE = row(
    "elementwise-function",
    LaunchError,
    "elementwise got a {got} and {count} arguments",
    "pass a @weft.jit function that takes the indices, up to {most} arguments, and simd_width: gl.constexpr",
)
ELEMENTWISE_SHAPE = row(
    "elementwise-shape",
    LaunchError,
    "elementwise got the shape {shape} and vectors of {width}",
    "give one to three sizes of at least 0, and a width of at least 1",
)
PDL_TARGET = row(
    "launch-pdl-target",
    LaunchError,
    "launch_pdl=True of {name} lets it start before the launch before it is complete, which {target} cannot do",
    "leave launch_pdl out, or launch on a GPU that has programmatic dependent launch (sm_90a and later)",
)
PDL_NEVER_WAITS = row(
    "launch-pdl-never-waits",
    CompilationError,
    "{name} is launched with launch_pdl=True, but never calls gdc_wait: it and all launches after it may run before the "
    "launches before it are complete",
    "call gl.extra.cuda.gdc_wait() before the first access to what earlier launches access, or leave launch_pdl out",
)
CLUSTERS = row(
    "launch-clusters",
    LaunchError,
    "num_ctas={num_ctas} of {name} needs a cluster of {num_ctas} blocks, but {target} has clusters of at most {most}",
    "launch with num_ctas={most}, or on a GPU that has clusters (sm_90a and later)",
)
STREAM = row(
    "launch-stream",
    LaunchError,
    "stream={stream!r} is not a CUDA stream",
    "pass a torch, CuPy or cuda-core stream, or the raw handle as an int",
)

# Arguments

ARGUMENT_KIND = row(
    "launch-argument-kind",
    LaunchError,
    "argument {parameter} of {name} is {value}, which a kernel cannot take at run time",
    "{instead}",
)
ARGUMENT_RANGE = row(
    "launch-argument-range",
    LaunchError,
    "argument {parameter}={value} of {name} does not fit {limit}",
    "{fix}",
)
ARRAY_DTYPE = row(
    "launch-array-dtype",
    LaunchError,
    "an array of dtype {dtype} cannot be passed to a kernel",
    "convert it first; kernels take {known}",
)
ARRAY_DEVICE = row(
    "launch-array-device",
    LaunchError,
    "an array on device {device} cannot be passed to a kernel",
    "move it to a CUDA device, or to the host to run in the simulator",
)
ARRAY_FORM = row(
    "launch-array-form",
    LaunchError,
    "{what} cannot be passed to a kernel: {why}",
    "pass {instead}",
)
DEVICE_MISMATCH = row(
    "launch-device-mismatch",
    LaunchError,
    "{name} got arrays of different devices: {first} is on cuda:{first_device}, {second} is on cuda:{second_device}",
    "move them to one device: a kernel runs on one",
)
AMBIGUOUS = row(
    "launch-ambiguous",
    LaunchError,
    "{name} got arrays on the GPU ({device}) and in host memory ({host}): it could run on the GPU or in the simulator",
    "move {host} to the GPU to run there, or the others to the host to simulate",
)
CONSTEXPR_KIND = row(
    "launch-constexpr-kind",
    LaunchError,
    "constexpr argument {parameter} of {name} is {value}, which cannot be compared with that of an earlier launch",
    "{instead}",
)
MOCK_LAUNCH = row(
    "launch-mock-argument",
    LaunchError,
    "argument {parameter} of {name} stands for an array or a type and has no value to launch with",
    "use {name}.warmup(...) to compile only, or pass a real array",
)
TYPE_TEXT = row(
    "launch-type-text",
    LaunchError,
    "{text!r} does not name the type of an argument",
    "write a dtype such as 'fp32' or 'i32', '*' before it for an array, ':16' after it when divisible by 16",
)
# Resources

SHARED_LIMIT = row(
    "launch-shared-memory",
    OutOfResources,
    "{name} needs {needed} bytes of shared memory per block, but the GPU has {limit}",
    "use smaller or fewer buffers",
)
TOO_MUCH_SHARED = row(
    "compile-shared-memory",
    OutOfResources,
    "{name} needs more shared memory than a block can have: {detail}",
    "use smaller or fewer buffers",
)
CLUSTER_SIZE = row(
    "launch-cluster-size",
    OutOfResources,
    "{name} cannot start: {device} cannot place a cluster of {num_ctas} blocks of {threads} threads, {registers} registers a "
    "thread and {shared} bytes of shared memory",
    "launch with a smaller num_ctas (every GPU with clusters can place 8 blocks, not every one 16), or use less shared memory",
)
REGISTER_LIMIT = row(
    "launch-registers",
    OutOfResources,
    "{name} cannot start: {threads} threads of {registers} registers each do not fit a multiprocessor",
    "use fewer warps, smaller tiles per warp, or pass maxnreg=",
)

# Machine

NO_DRIVER = row(
    "device-no-driver",
    DeviceError,
    "there is no usable CUDA driver on this machine: {reason}",
    "install the NVIDIA driver, or pass NumPy arrays or CPU tensors to run in the simulator",
)
NO_DEVICE = row(
    "device-none",
    DeviceError,
    "the CUDA driver sees no GPU: {reason}",
    "check nvidia-smi and CUDA_VISIBLE_DEVICES, or pass NumPy arrays or CPU tensors to run in the simulator",
)
NO_NVRTC = row(
    "device-no-nvrtc",
    DeviceError,
    "NVRTC, the CUDA compiler library, cannot be loaded: {reason}",
    "pip install nvidia-cuda-nvrtc cuda-bindings",
)
NO_NVSHMEM = row(
    "device-no-nvshmem",
    DeviceError,
    "the kernel calls NVSHMEM, and it cannot be linked: {reason}",
    "pip install 'weft[nvshmem]', with nvidia-nvshmem-cu13 of the version that PyTorch was installed with",
)
NVSHMEM_LINK = row(
    "nvshmem-link",
    DeviceError,
    "{name} cannot be compiled and linked with NVSHMEM {version} for {arch}:\n{log}",
    "install nvidia-cuda-cccl, whose headers those of newer versions of NVSHMEM include; otherwise please report this",
)
NVSHMEM_VERSION = row(
    "nvshmem-version",
    DeviceError,
    "kernel {name} is linked with NVSHMEM {installed}, and this process runs {running}",
    "install nvidia-nvshmem-cu13=={running}",
)
NVSHMEM_INIT = row(
    "nvshmem-init",
    DeviceError,
    "kernel {name} calls NVSHMEM, which does not run in this process: {reason}",
    "allocate its symmetric tensors with PyTorch, after torch.distributed._symmetric_memory.set_backend('NVSHMEM'), in a "
    "process that torchrun has started",
)
NVRTC_REJECTED = row(
    "nvrtc-rejected",
    CompilationError,
    "NVRTC cannot compile the CUDA text of {name} for {arch}:\n{log}",
    "if the kernel has inline assembly, check it; otherwise please report this with the kernel",
)
NVRTC_SLOW = row(
    "nvrtc-slow",
    PerformanceWarning,
    "NVRTC took {seconds:.0f} s for {name}, whose CUDA text has {lines} lines",
    "its time grows faster than linearly: use range, a loop on the GPU, instead of static_range or repeated statements",
)
NVRTC_SERIALISED = row(
    "nvrtc-serialised",
    PerformanceWarning,
    "in {name} ptxas waits for every MMA at once, so that nothing overlaps them: {complaint}",
    "leave more registers (a smaller tile, more warps, no maxnreg=), and wait for MMAs before anything else touches the "
    "registers of their accumulators and operands",
)
NVRTC_ARCHITECTURE = row(
    "nvrtc-architecture",
    DeviceError,
    "this NVRTC ({version}) does not know the architecture {arch}",
    "install a newer nvidia-cuda-nvrtc, or choose another target",
)
WRONG_ARCHITECTURE = row(
    "device-wrong-architecture",
    DeviceError,
    "{name} was compiled for another architecture than that of {device}",
    "compile it for this GPU: launch with its arrays, or name its target in warmup",
)
DRIVER_ERROR = row(
    "device-driver-error",
    DeviceError,
    "{what} failed: {error} ({text})",
    "{advice}",
)
NO_SCIPY = row(
    "launch-no-scipy",
    NotSimulated,
    "the simulator computes libdevice.{function} by SciPy, which is not installed",
    "pip install scipy",
)
NO_DISASSEMBLER = row(
    "device-no-disassembler",
    DeviceError,
    "SASS needs NVIDIA's nvdisasm or cuobjdump, and neither is installed",
    "pip install 'weft[sass]'",
)
DISASSEMBLER_FAILED = row(
    "device-disassembler-failed",
    DeviceError,
    "{tool} cannot read the compiled kernel: {reason}",
    "install a {tool} that is as new as NVRTC: pip install --upgrade 'weft[sass]'",
)
NO_BENCHMARK_DEVICE = row(
    "device-no-benchmark",
    DeviceError,
    "timing a kernel needs PyTorch with a CUDA device: {reason}",
    "run it where torch.cuda.is_available() holds",
)
UNKNOWN_STAGE = row(
    "asm-unknown-stage",
    LaunchError,
    "{name} has no stage {stage!r}",
    "its stages are {known}",
)
PICKLE_COMPILED = row(
    "launch-pickle-compiled",
    LaunchError,
    "{name} is compiled for this process, and a compiled kernel cannot be pickled",
    "pickle the kernel itself and launch it in the other process: the disk cache has its machine code; the texts of its stages "
    "are dict(compiled.asm)",
)
SETTING = row(
    "setting-value",
    LaunchError,
    "the environment variable {variable}={text!r} is not {expected}",
    "write {variable}={example}",
)

# The target

TARGET_UNKNOWN = row(
    "target-unknown",
    LaunchError,
    "there is no target {spelling!r}; weft compiles for {known}",
    "write one of those names, its number as in 90, or 'cuda:90', in WEFT_TARGET too",
)
