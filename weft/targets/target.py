"""The record that describes one GPU architecture.

Passes and the simulator query a target's capabilities and sizes. They never compare architecture numbers, so a new GPU is a new
constant and nothing else. Properties of one board (clock, memory size, number of multiprocessors) are not here: they belong to
the device that a kernel runs on, not to the code compiled for it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Named capabilities and sizes of one architecture. Sizes are in bytes, registers are 32 bits wide.

    A capability is named after the instruction it stands for and is True when *this target's* code may contain that
    instruction; an architecture-specific one (wgmma, tcgen05) is therefore False on the next architecture.
    """

    name: str
    """Its name in the CUDA tools, as in `-arch=sm_90a`."""
    arch: int
    """Compute capability times ten; a label for caches and messages, not for comparisons."""
    backend: str = "cuda"

    # Threads
    warp_size: int = 32
    max_threads: int = 1024
    """Maximum threads of a block."""
    max_warps_per_sm: int = 64
    max_blocks_per_sm: int = 32
    max_cluster: int = 1
    """Blocks of the largest cluster. Every device can place `portable_cluster` blocks; more must fit one of its GPCs."""
    portable_cluster: int = 8
    named_barriers: int = 16
    """Hardware barriers of a block (PTX `barrier`, 0 to 15); number 0 is the one of `__syncthreads`."""

    # Memory
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    register_granularity: int = 256
    """Registers are allocated per warp in multiples of this."""
    shared_bytes_per_sm: int
    shared_bytes: int
    """Maximum shared memory of one block, static and dynamic together, after the opt-in."""
    reserved_shared_bytes: int = 1024
    """Shared memory that the system reserves per resident block, on top of the block's own."""
    shared_granularity: int = 128
    """Shared memory is allocated to a block in multiples of this many bytes."""
    tensor_memory_columns: int = 0
    """Columns of tensor memory per multiprocessor, each of 128 lanes by 32 bits."""
    max_access_bits: int = 128
    """The widest global load or store of one thread."""

    # Blocks
    max_block: tuple[int, int, int] = (1024, 1024, 64)

    # Copies and synchronisation
    has_cp_async: bool = False
    has_mbarrier: bool = False
    has_mbarrier_tx: bool = False
    """mbarriers count transaction bytes (`expect_tx`) and support `try_wait`."""
    has_tma: bool = False
    has_tma_gather: bool = False
    has_tma_fp4: bool = False
    """Tensor maps of packed fp4 that TMA expands to twice the size in shared memory (16U4_ALIGN16B)."""
    has_st_async: bool = False
    has_cluster: bool = False
    has_elect: bool = False
    has_setmaxnreg: bool = False
    has_programmatic_launch: bool = False
    has_cluster_launch_control: bool = False

    # Matrix instructions
    has_ldmatrix: bool = False
    has_stmatrix: bool = False
    has_mma: bool = False
    has_mma_fp8: bool = False
    has_wgmma: bool = False
    has_tcgen05: bool = False

    # Arithmetic
    has_bf16_fma: bool = False
    has_bf16_arith: bool = False
    """add, sub and mul on bfloat16, in addition to fma."""
    has_bf16_atomics: bool = False
    has_vector_atomics: bool = False
    """Atomics on two or four adjacent floats in global memory."""
    has_multimem: bool = False
    """Accesses to the memory of several GPUs at once, by a multicast address."""
    has_fp8_cvt: bool = False
    has_fp4_cvt: bool = False
    has_f32x2: bool = False
    """add, mul and fma on pairs of fp32."""
    has_redux: bool = False
    """Integer reduction over a warp in one instruction."""

    @property
    def has_256_bit_access(self) -> bool:
        """True when one thread can load or store 32 bytes of global memory at once."""
        return self.max_access_bits >= 256

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int:
        """Occupancy: resident blocks of one kernel per multiprocessor; 0 when not even one fits.

        `threads` per block, `registers` per thread, `shared` bytes per block (without the reserved ones). The limits and
        granularities are those of the occupancy section of NVIDIA's CUDA C++ Programming Guide.
        """
        if not 0 < threads <= self.max_threads or shared > self.shared_bytes or registers > self.registers_per_thread:
            return 0
        warps = -(-threads // self.warp_size)
        per_warp = _round_up(max(registers, 1) * self.warp_size, self.register_granularity)
        # A warp resides in one of four sub-partitions and takes its registers from that sub-partition's quarter.
        warps_by_registers = 4 * (self.registers_per_sm // 4 // per_warp)
        return min(
            self.max_blocks_per_sm,
            self.max_warps_per_sm // warps,
            warps_by_registers // warps,
            self.shared_bytes_per_sm // _round_up(shared + self.reserved_shared_bytes, self.shared_granularity),
        )

    def __str__(self) -> str:
        return self.name


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
