"""Mistakes that show when a kernel is lowered to a target."""

from weft.errors.base import CompilationError, row

SHARED_MEMORY = row(
    "shared-memory",
    CompilationError,
    "the kernel needs {total} bytes of shared memory, the target has {limit} for a block: {bill}",
    "use smaller tiles, or layouts between which a conversion needs no shared memory",
)
SCOPE = row(
    "control-scope",
    CompilationError,
    "{what} must be executed by the whole {needs}, but it stands under a condition that each {scope} decides for itself",
    "decide with block-wide values, or claim that they are with gl.uniform(x)",
)
