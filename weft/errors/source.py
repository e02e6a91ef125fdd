"""Mistakes in the Python source of a kernel: source that cannot be read, unknown names and values, unsupported Python."""

from __future__ import annotations

from weft.errors.base import CompilationError, row

# Source files

NO_SOURCE = row(
    "lang-no-source",
    CompilationError,
    "the source of {function} cannot be read from {file}",
    "{instead}",
)
SOURCE_CHANGED = row(
    "lang-source-changed",
    CompilationError,
    "{file} has changed since {function} was imported: line {line} does not define it any more",
    "start Python again, or reload the module",
)
LAMBDA = row(
    "lang-lambda-kernel",
    CompilationError,
    "a lambda has no lines of its own, so it cannot be a kernel or a helper",
    "write it as a function with def",
)

# Python that kernels do not support

UNSUPPORTED = row("lang-unsupported", CompilationError, "{what} is not supported in a kernel", "{instead}")
RETURN_IN_LOOP = row(
    "lang-return-in-loop",
    CompilationError,
    "{path} would be {value}, which exists only in this iteration of the loop of line {line}",
    "return numbers, tiles, or values from before the loop; or break, and create it after the loop",
)
KERNEL_RETURN = row(
    "lang-kernel-return",
    CompilationError,
    "kernel {function} returns {value}, but a kernel cannot return a value",
    "store the result with gl.store, and return nothing",
)
RECURSION = row(
    "lang-recursion",
    CompilationError,
    "{function} calls itself without end: {chain}",
    "helpers are inlined: let a constant argument, which each call changes, decide where it ends, or write a loop",
)
NESTING = row(
    "lang-nesting",
    CompilationError,
    "{function} is nested too deeply to read: expressions, blocks and inlined helpers together exceed Python's stack",
    "split the expression, or call fewer helpers within helpers",
)
TOO_LONG = row(
    "lang-too-long",
    CompilationError,
    "{function} has more than {most} statements once constant loops are unrolled and helpers are inlined",
    "use range, which is a loop on the GPU, instead of static_range; WEFT_MAX_STATEMENTS sets another bound",
)
UNROLL = row(
    "lang-unroll",
    CompilationError,
    "cannot unroll over {value}",
    "{instead}",
)

# Names and values

UNDEFINED = row(
    "lang-undefined-name",
    CompilationError,
    "{name!r} is not defined",
    "{instead}",
)
UNASSIGNED = row(
    "lang-unassigned",
    CompilationError,
    "{name!r} has no value yet: {function} assigns it, but not before this line",
    "assign it first",
)
ONE_BRANCH = row(
    "lang-one-branch",
    CompilationError,
    "{name!r} has a value in only one branch of the if in line {line}",
    "assign it in both branches, or before the if",
)
IN_LOOP = row(
    "lang-loop-local",
    CompilationError,
    "{name!r} is assigned only in the loop of line {line}, which may run no iterations",
    "assign it before the loop as well",
)
COUNTER = row(
    "lang-loop-counter",
    CompilationError,
    "{name!r} is the counter of the loop in line {line} and has no value after it",
    "assign another variable in the loop's body, or compute the last value from the bounds",
)
ATTRIBUTE = row(
    "lang-attribute",
    CompilationError,
    "{owner} has no attribute {name!r}",
    "{instead}",
)
NOT_CONSTEXPR = row(
    "lang-not-constexpr",
    CompilationError,
    "{what} must be known at compile time, but {got} is a run-time value",
    "{instead}",
)
UNPACK = row(
    "lang-unpack",
    CompilationError,
    "{count} values for {targets} names",
    "write as many names as there are values",
)
NOT_SEQUENCE = row(
    "lang-not-a-sequence",
    CompilationError,
    "{got} cannot be unpacked into names",
    "unpack a tuple or a list; gl.split divides a tile",
)
IMMUTABLE = row(
    "lang-immutable",
    CompilationError,
    "{got} cannot be modified in a kernel",
    "{instead}",
)
INDEX = row(
    "lang-index",
    CompilationError,
    "{owner} is known at compile time, but its index {got} only at run time",
    "index with a constant, or unroll the loop with gl.static_range",
)
BRACKETS = row(
    "lang-brackets",
    CompilationError,
    "{got} takes no brackets",
    "{instead}",
)
OPERATOR = row(
    "lang-operator",
    CompilationError,
    "{symbol} does not work between {left} and {right}",
    "{instead}",
)

# Conditions and control flow

TILE_CONDITION = row(
    "lang-tile-condition",
    CompilationError,
    "{where} needs one value, but {got} has many",
    "choose element by element with gl.where(condition, a, b), or reduce the tile to a scalar first",
)
TILE_LOGIC = row(
    "lang-tile-logic",
    CompilationError,
    "{word} works on one value, but {got} has many",
    "write {instead}",
)
PRECEDENCE = row(
    "lang-precedence",
    CompilationError,
    "{symbol} binds tighter than comparisons: {middle} is between them, and is compared on both sides",
    "write {instead}; or put {middle} in parentheses if that is intended",
)
TRUTH = row(
    "lang-truth",
    CompilationError,
    "{got} is neither true nor false",
    "compare a number of it with something, such as an element or a field",
)
RANGE = row(
    "lang-range",
    CompilationError,
    "range takes integers, but its {which} is {got}",
    "{instead}",
)
RANGE_ARGUMENTS = row(
    "lang-range-arguments",
    CompilationError,
    "range takes one to three positional arguments, not {got}",
    "write range(stop), range(start, stop) or range(start, stop, step)",
)
RANGE_STEP = row("lang-range-step", CompilationError, "the step of this range is 0", "use another step")
ENDLESS = row(
    "lang-endless-loop",
    CompilationError,
    "the condition of this while is always {value!r}, so the loop never ends",
    "make the condition depend on something that the body changes",
)
CARRIED = row(
    "lang-carried",
    CompilationError,
    "{path} is {before} before the loop of line {line}, but {after} at the end of its body",
    "{fix}",
)
BRANCHES = row(
    "lang-branches",
    CompilationError,
    "{path} is {one} after one branch of the if in line {line}, but {other} after the other",
    "{fix}",
)
RETURNS = row(
    "lang-returns",
    CompilationError,
    "{function} returns {one} {here}, but {other} {there}: {path} differs",
    "{fix}",
)

# Calls

HOST_FUNCTION = row(
    "lang-host-function",
    CompilationError,
    "{function} is {kind}, which a kernel cannot call",
    "{instead}",
)
PYTHON_FUNCTION = row(
    "lang-python-function",
    CompilationError,
    "{function} of Python works on constants and sequences, but {got} exists at run time only",
    "{instead}",
)
DROPPED = row(
    "lang-result-dropped",
    CompilationError,
    "{function} returns its result and changes nothing in place, but this line drops the result",
    "assign it, as in {target} = {call}",
)
NOT_CALLABLE = row("lang-not-callable", CompilationError, "{got} cannot be called", "{instead}")
ARGUMENTS = row(
    "lang-call-arguments",
    CompilationError,
    "{function} {problem}",
    "it takes {signature}",
)
MATH = row(
    "lang-math",
    CompilationError,
    "math.{function} works on constants, but {got} is a run-time value",
    "{instead}",
)
RAISED = row(
    "lang-raised",
    CompilationError,
    "this line raises {kind} at compile time: {message}",
    "change what it computes, or guard it with an if on constants",
)
ASSERTION = row(
    "lang-assertion",
    CompilationError,
    "assertion fails at compile time: {message}",
    "call the kernel with constants that satisfy it",
)
INTERNAL = row(
    "lang-internal",
    CompilationError,
    "weft could not build this line: {message}",
    "please report it with the kernel; rewriting the line may avoid it",
)
