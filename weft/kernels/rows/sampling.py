"""`sample`: tokens from rows of logits."""

from __future__ import annotations

from typing import Any

from weft.kernels.device.sampling import sample_rows
from weft.kernels.memory import empty_like
from weft.kernels.rows.choice import chosen_rows
from weft.kernels.rows.launch import groups_of
from weft.kernels.rows.operands import Lines, access_of, check_columns, lines_of, parameter, pitches, vector_of
from weft.kernels.rows.plan import BACKWARD_REGISTERS, RowConfig, plan_of, reached
from weft.plain import as_number, whole


def sample(
    logits: Any, *, seed: int, offset: int = 0, temperature: Any = 1.0, top_p: Any = 1.0, min_p: Any = 0.0,
    config: RowConfig | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """A random position of each row of logits [..., V], with the probabilities softmax(logits / temperature): int64 [...].

    `top_p` keeps the most likely tokens, as few as have this probability together, and those that are as likely as the last
    of them. `min_p` keeps tokens at least so likely as this part of the most likely one. Both are about the probabilities of
    all tokens; of what both keep one is chosen. Each is a number, or a float32 array of one for each row. A temperature of 0
    takes the most likely token, the first of equal ones being no more likely than the others.

    Row number i takes random number `offset` + i of the Philox generator with this seed (`gl.rand`), so that results repeat to
    the bit; give each step another offset. Logits are float32, float16 or bfloat16, and rows have up to 262,144. NaN counts as
    -inf; of a row of -inf alone the result is -1. Host arrays are simulated.

    Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides, kernels-rows-shape, kernels-rows-devices,
    kernels-rows-parameter, kernels-rows-columns, kernels-out-needed.
    """
    op = "sample"
    source = lines_of(op, "logits", logits)
    for name, value in (("seed", seed), ("offset", offset)):
        if whole(value) is None or not 0 <= value < 1 << 63:
            raise parameter(op, name, value, "an int from 0 to 2^63 - 1")
    limits = (("temperature", temperature, float("inf")), ("top_p", top_p, 1.0), ("min_p", min_p, 1.0))
    given = [_number(op, name, value, most, source) for name, value, most in limits]
    samples = empty_like(logits, source.shape[:-1], "int64")
    if not source.rows:
        return samples
    if not source.cols:
        raise parameter(op, "logits", list(source.shape), "at least one token")
    vec, align = access_of(config, source)
    config = config or chosen_rows(reached(source.cols, align))
    check_columns(op, source, config)
    plan = plan_of(config, source.rows, source.cols, vec, numbers=2, align=align, single=True)
    programs = groups_of(plan, source.rows)
    options: dict[str, Any] = {**plan.options, "maxnreg": BACKWARD_REGISTERS}
    each = tuple(is_array for _, is_array in given)
    top = each[1] or given[1][0] < 1
    sizes = source.rows, source.cols, *pitches(source), int(seed), int(offset), each, top, plan
    sample_rows[min(programs, config.programs or programs)](
        logits, samples, *(value for value, _ in given), *sizes, **options, stream=stream
    )
    return samples


def _number(op: str, name: str, value: Any, most: float, x: Lines) -> tuple[Any, bool]:
    """A number, or an array of one for each row, and whether it is an array."""
    if as_number(value) is not None:
        if not 0 <= value <= most:
            raise parameter(op, name, value, "a number that is not negative" if most > 1 else "a number from 0 to 1")
        return float(value), False
    vector_of(op, name, value, x, x.rows, ("float32",))
    return value, True
