"""Mistakes that show when a kernel is lowered to a target."""

from weft.errors.base import CompilationError, row
from weft.errors.launch import OutOfResources

SHARED_MEMORY = row(
    "shared-memory",
    OutOfResources,
    "the kernel needs {total} bytes of shared memory, the target has {limit} for a block: {bill}",
    "use smaller or fewer buffers, smaller tiles, or layouts between which a conversion needs no shared memory",
)
SCOPE = row(
    "control-scope",
    CompilationError,
    "{what} must be executed by the whole {needs}, but it stands under a condition that each {scope} decides for itself",
    "{instead}",
)
HANDLES = row(
    "lower-handles",
    CompilationError,
    "two handles {type} come together here that are parts of different kinds: one begins at {first}, the other at {second}",
    "let only whole tiles vary at run time, as in bufs.index(i), and slice them where they are used",
)
TARGET = row(
    "lower-target",
    CompilationError,
    "{what} needs a GPU that has {needs}, which {target} has not",
    "compile for {since} or later",
)
ASYNC_COPY_WIDTH = row(
    "async-copy-width",
    CompilationError,
    "an asynchronous copy moves 4, 8 or 16 bytes at a time, but of a thread's elements of {dtype} ({bits} bits each) no more "
    "than {in_global} are known to lie side by side in global memory under one mask, and {in_shared} lie so in shared memory",
    "give each thread {least} neighbours along the dimension that is contiguous in both memories; promise what cannot be seen "
    "(gl.multiple_of, gl.max_contiguous, of the mask gl.max_constancy); or load the tile and store it",
)
IM2COL_PIXELS = row(
    "tma-im2col-pixels",
    CompilationError,
    "a block of {pixels} pixels is more than one im2col request copies, {limit}",
    "use blocks of at most {limit} pixels and issue several loads",
)
