"""Mistakes in calls of `weft.kernels.attention`."""

from __future__ import annotations

from weft.errors.base import LaunchError, row

ARRAY = row(
    "attention-array",
    LaunchError,
    "attention takes arrays [batch, heads, length, head size], but {name} is {got}",
    "pass a PyTorch, NumPy, CuPy or JAX array of four dimensions; x[None] adds a batch, x.unflatten or x.reshape splits heads",
)
DTYPES = row(
    "attention-dtypes",
    LaunchError,
    "q holds {q}, k {k} and v {v}",
    "convert them to one type, {known}",
)
DEVICES = row(
    "attention-devices",
    LaunchError,
    "q lies on {first}, {name} on {other}",
    "move one of them; arrays of the host go to the simulator, arrays of a GPU to that GPU",
)
SHAPES = row(
    "attention-shapes",
    LaunchError,
    "{first} has shape {one} and {second} has shape {other}: the dimension {what} is {a} in one and {b} in the other",
    "q is [batch, heads, queries, head size], k [batch, kv heads, keys, head size], v [batch, kv heads, keys, its head size]",
)
HEADS = row(
    "attention-heads",
    LaunchError,
    "q has {q} heads and k has {k}: they do not divide into groups of query heads that share one of k",
    "the heads of q are a multiple of those of k and v",
)
SIZE = row(
    "attention-size",
    LaunchError,
    "attention has no kernel for head size {size} with {v_size} for v",
    "there are {known}, nearest first; zeros behind the elements of q and k change no score if you pass the scale, and "
    "those behind the elements of v are zeros of the result",
)
BACKWARD_SIZE = row(
    "attention-backward-size",
    LaunchError,
    "attention has no gradients for head size {size} with {v_size} for v",
    "there are those of head sizes {known}",
)
STRIDES = row(
    "attention-strides",
    LaunchError,
    "TMA has no descriptor for {name}: {reason}",
    "pass a contiguous copy, as of x.contiguous() or np.ascontiguousarray(x): it moves {size} through memory",
)
QUERIES = row(
    "attention-queries",
    LaunchError,
    "q has {got} queries of each sequence, but decode_attention takes 1 to {most}",
    "use attention for more, with cu_seqlens_k for lengths of their own",
)
LATENT = row(
    "attention-latent",
    LaunchError,
    "without v the cache is latent, and the values are the first {v_size} elements of its keys, but {got}",
    "pass q and k with a head size of {size}, one head of k, and no window, softcap or sinks; or pass v",
)
CACHE_SCALE = row(
    "attention-cache-scale",
    LaunchError,
    "the factor {name} is {got}",
    "pass a positive number, or a float32 array with one for each head of k, for a cache of float8_e4m3fn; leave it out else",
)
ANGLES = row(
    "attention-angles",
    LaunchError,
    "append_to_cache rotates keys by cos and sin, but {got}",
    "pass both, float arrays [positions, n] of one shape and type with contiguous rows, n up to {most}, on the device of key",
)
SCALE = row(
    "attention-scale",
    LaunchError,
    "scale is {got}, but it must be a positive number",
    "leave it out for 1 / sqrt(head size); for a negative one negate q",
)
WINDOW = row(
    "attention-window",
    LaunchError,
    "window is {got}, but it must be a pair of keys before and behind a query",
    "write window=(1023, 0) for 1,024 keys up to the query's position; None on a side means any number",
)
SOFTCAP = row(
    "attention-softcap",
    LaunchError,
    "softcap is {got}, but it must be a positive number",
    "leave it out for scores without a cap",
)
OPTION = row(
    "attention-option",
    LaunchError,
    "the option {name} is {got}",
    "pass {want}, on the device of q",
)
PREFIX = row(
    "attention-prefix",
    LaunchError,
    "prefix extends what a mask leaves to a query at its right, but there is {got}",
    "pass it with causal=True and without a window to the left; a mask_mod expresses anything else",
)
TOGETHER = row(
    "attention-together",
    LaunchError,
    "{one} and {other} are given together",
    "pass one of them; a mask_mod with mask_args expresses both",
)
SCALE_ARRAY = row(
    "attention-scales",
    LaunchError,
    "the scales of float8 arrays {name} are {got}",
    "pass {want}; arrays of 16 bits have no scales but scale=",
)
BLOCK_MASK = row(
    "attention-block-mask",
    LaunchError,
    "a block mask has blocks of 128 queries by 128 keys of at least one of each, for one or all of the batch and of the heads, "
    "but {got}",
    "make one by weft.kernels.block_mask for the lengths of q and k, and of their batch and heads or of none",
)
SEQUENCES = row(
    "attention-sequences",
    LaunchError,
    "sequences of variable lengths lie behind one another in arrays of batch 1, but {got}",
    "pass int32 arrays [n + 1] that begin with 0, never decrease, and end with the number of positions",
)
FUNCTION = row(
    "attention-function",
    LaunchError,
    "{name} is {got}, which is no kernel function",
    "decorate it with @weft.jit; it gets (score, batch, head, query, key) or, to mask, (batch, head, query, key)",
)
OUT = row(
    "attention-out",
    LaunchError,
    "out is {got}, but the result is {want}",
    "make out of that shape and type, or leave it out",
)
OUT_OVERLAPS = row(
    "attention-out-overlaps",
    LaunchError,
    "out shares memory with {name}, which is read while out is written",
    "pass a separate array",
)
EMPTY = row(
    "attention-empty",
    LaunchError,
    "the attention of shape {shape} needs no kernel: there are no queries or no keys",
    "pass arrays with elements; attention itself takes empty ones",
)
CONFIG = row(
    "attention-config",
    LaunchError,
    "an AttentionConfig has {field}={value}",
    "{field} is {rule}",
)
CONFIG_KIND = row(
    "attention-config-kind",
    LaunchError,
    "config is {got}, but it must be an AttentionConfig",
    "write weft.kernels.AttentionConfig(block_n=128, consumers=2), or leave the choice to attention",
)
ROOM = row(
    "attention-room",
    LaunchError,
    "{config} needs {need} bytes of shared memory, but a program has {most}",
    "take fewer stages, or a smaller block_n",
)
TARGET = row(
    "attention-target",
    LaunchError,
    "attention multiplies with wgmma, which {target} does not have",
    "run it on a Hopper GPU, or in the simulator with weft.simulate(target='sm_90a')",
)
