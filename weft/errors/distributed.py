"""Mistakes with several GPUs: symmetric tensors, ranks and signals, in kernels and on the host.

What goes wrong between ranks while kernels run is a hazard (`weft.errors.hazard`).
"""

from __future__ import annotations

from weft.errors.base import CompilationError, LaunchError, row

SYMMETRIC_NEEDED = row(
    "ranks-symmetric-needed",
    CompilationError,
    "gl.{what} needs a symmetric tensor, whose group it signals in, and got {got}",
    "pass weft.Symmetric(t) to the kernel, and its parameter here",
)
NO_RANK = row(
    "ranks-no-rank",
    CompilationError,
    "{what} got rank {rank}, and the group has {ranks} ranks",
    "use ranks 0 to {last}; the next one of a ring is (x.rank + 1) % x.world_size",
)
RANK_TYPE = row(
    "ranks-rank-type",
    CompilationError,
    "{what} needs the number of a rank, and got {got}",
    "pass an integer, or an integer scalar such as x.rank or gl.program_id(0)",
)
FLAG = row(
    "ranks-flag",
    CompilationError,
    "gl.{what} got {got} as a flag, and the signal pad has {flags} of them",
    "use integers from 0 to {last}, such as gl.program_id(0): signals on a flag are counted, so a flag serves again",
)
TIMEOUT = row(
    "ranks-timeout",
    CompilationError,
    "gl.{what} waits for a number of nanoseconds that is known at compile time, and got {got}",
    "pass a positive integer, as in timeout_ns=2_000_000_000",
)
COUNT = row(
    "ranks-count",
    CompilationError,
    "gl.wait_signal takes a number of signals that is known at compile time, and got {got}",
    "pass a positive integer, as in count=4",
)
SYMMETRIC_HOST = row(
    "ranks-symmetric-host",
    LaunchError,
    "weft.distributed.{what} needs a symmetric tensor first, and got {got}",
    "make it once, shared = weft.Symmetric(t), and pass that",
)
PEER = row(
    "ranks-peer",
    LaunchError,
    "Symmetric.peer gives a rank's memory as an array whose elements lie one after another, and this tensor is {got}",
    "make a weft.Symmetric of the whole tensor, take its peer, and slice that",
)
WORD_TYPE = row(
    "ranks-word-type",
    CompilationError,
    "gl.wait_value waits for a word of a symmetric tensor of int32 or int64, and got one of {got}",
    "allocate a symmetric tensor of int32 for such words, and pass weft.Symmetric(words) to the kernel",
)
WORD_NUMBER = row(
    "ranks-word-number",
    CompilationError,
    "gl.wait_value got {got} as its {name}",
    "pass an integer, or an integer scalar such as gl.program_id(0)",
)
WORD = row(
    "ranks-word",
    LaunchError,
    "weft.distributed.write_value writes a word of a symmetric tensor of int32, and got {got}",
    "allocate a symmetric tensor of int32 for such words, and make a weft.Symmetric of it",
)
NO_MULTICAST = row(
    "ranks-no-multicast",
    CompilationError,
    "{name} has no multicast address: its group has none (NVLink multicast needs NVSwitch and a driver that offers it)",
    "store to {name}.peer(rank) for each rank",
)
MULTIMEM_TYPE = row(
    "multimem-type",
    CompilationError,
    "gl.{what} got {got}, and takes {known}",
    "convert the values first, or load from and store to x.peer(rank) for each rank",
)
MULTIMEM_PAIRS = row(
    "multimem-pairs",
    CompilationError,
    "a multimem access moves 32 bits or more, and this one has single elements of {dtype}",
    "let neighbouring elements lie in one thread, at an address and with a mask whose divisibility is known: a length that is "
    "a multiple of 16 is known to be one; gl.multiple_of() says so of other numbers",
)
NVSHMEM_NEEDED = row(
    "ranks-nvshmem-needed",
    CompilationError,
    "gl.{what} is NVSHMEM's, and {name} is not in its memory",
    'call torch.distributed._symmetric_memory.set_backend("NVSHMEM") before the first symmetric tensor is allocated; in the '
    "simulator weft.distributed.simulate(..., nvshmem=True)",
)
NOT_REACHED = row(
    "ranks-not-reached",
    CompilationError,
    "{name}.peer(rank) is a pointer, and no pointer reaches the memory of some ranks of the group from here",
    "send with gl.put({name}, rank, source, count) and gl.signal({name}, rank)",
)
PUT_SOURCE = row(
    "ranks-put-source",
    CompilationError,
    "gl.put copies from a pointer to {dtype} in symmetric memory of this rank, and got {got}",
    "pass x.local + offset, of a symmetric tensor of this type",
)
PUT_NUMBER = row(
    "ranks-put-number",
    CompilationError,
    "gl.put takes {what} as a number of elements, 0 or more, and got {got}",
    "pass an integer, or an integer scalar",
)
PUT_BLOCK = row(
    "ranks-put-block",
    CompilationError,
    "gl.{what} is executed by all threads of a program of one block, and this kernel is launched with {got}",
    "launch it with neither block= nor num_ctas=",
)
COPY = row(
    "ranks-copy",
    LaunchError,
    "weft.distributed.copy got {got}, and the symmetric tensor is {wanted}",
    "copy between arrays of one shape and dtype, whose elements lie one after another; for a part of a symmetric tensor make a "
    "weft.Symmetric of that part",
)
PLAIN = row(
    "ranks-plain-tensor",
    LaunchError,
    "weft.Symmetric needs a symmetric tensor, and got {got}",
    "{instead}",
)
OUTSIDE = row(
    "ranks-outside",
    LaunchError,
    "{what} was called outside of weft.distributed.simulate, and host arrays have no ranks otherwise",
    "call it in the function that weft.distributed.simulate runs for every rank; on GPUs allocate with "
    "torch.distributed._symmetric_memory.empty and pass weft.Symmetric(t)",
)
DIFFERENT = row(
    "ranks-different",
    LaunchError,
    "the ranks disagree in {what}: {one}; {other}",
    "make the same calls with the same shapes, dtypes and options on every rank",
)
SILENT = row(
    "ranks-silent",
    LaunchError,
    "rank {ranks} has said nothing of {what} to rank {own} for {seconds:g} s: it has died, hangs, or makes other calls",
    "look at the output of that rank; all ranks make the same calls in the same order",
)
OPTION = row(
    "ranks-option",
    LaunchError,
    "weft.distributed.{what} got {option}={value!r}, which is not {expected}",
    "write, for example, {example}",
)
NO_PEER = row(
    "ranks-no-peer-access",
    LaunchError,
    "the memory of rank {rank} cannot be reached from rank {own}: its address is 0",
    "run the group on GPUs of one host with peer access (nvidia-smi topo -p2p r), or within one NVLink domain",
)
