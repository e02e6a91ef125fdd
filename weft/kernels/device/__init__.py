"""Device code: the kernels of `weft.kernels`, in weft's language.

    schedulers     orders of tiles, and which program computes which tile or part of one
    schedules      the tiles of one program of a matmul
    rings          the shared-memory ring of operand blocks, its barriers, and TMA loads into it
    producer       the producer role: TMA, cp.async or register copies
    epilogue       from accumulators to the output
    activations    functions of accumulators by name
    factors        factors of rows from what epilogues wrote
    uniform        Hopper kernels without warp specialization
    specialised    Hopper kernels with warp specialization: cooperative and ping-pong
    tensor_memory  Blackwell kernels with accumulators in tensor memory
    scaled         the same for block-scaled operands
    split_k        the reduction of split-K partial results
    selection      the top k of rows
    chain          how these follow one another
    packing        the copy of an operand into memory that TMA can read
    scan           prefix sums in one pass, with a program that adds up for the others

Besides run-time arguments each kernel takes one constexpr: a `weft.kernels.plan.Plan`, or a smaller one.
"""
