"""What runs on the GPU: the texts of kernels, in weft's language, and nothing of the host's.

    schedules      which tile a program computes when
    rings          buffers of both operands in shared memory, and requests to TMA
    feeding        warps that bring blocks
    epilogue       from accumulators to the output
    uniform        kernels whose warps all do the same
    specialised    warp-specialized kernels
    taking         how these go through a program's tiles together where the GPU hands them out
    tensor_memory  kernels whose sums are in tensor memory
    scaled         the same for operands with a scale for each run of elements
    parts          the kernel that adds the parts of sums
    packing        the kernel that copies an operand to where TMA can read it

Each takes one constant, a `weft.kernels.plan.Plan` or a smaller one, beside its arguments.
"""
