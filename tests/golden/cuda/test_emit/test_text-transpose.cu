extern "C" __global__ void __launch_bounds__(128)
transpose(f16* x, f16* out) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const u32 scratch = (u32)__cvta_generic_to_shared(shared_memory);
  const u32 warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);
  constexpr int table[8] = {3, 1, 2, 0, 7, 5, 4, 6};
#line 2 "kernel.py"
  const int t = mul_wrap((int)warp, 32); const int lane = (int)(threadIdx.x & 31u);
#line 2
  const int thread = add_wrap(t, lane);
  f16* const p = x + thread;
  f16 value[16];
  #pragma unroll
#line 3
  for (int r = 0; r < 2; ++r) load_f16x8(value + 8 * r, p + 1024 * r);
  #pragma unroll
#line 4
  for (int r = 0; r < 2; ++r) {
#line 4
    const f16 part[8] = {value[4 * r], value[4 * r + 8], value[4 * r + 1], value[4 * r + 9], value[4 * r + 2], value[4 * r + 10], value[4 * r + 3], value[4 * r + 11]};
#line 4
    store_shared_f16x8(scratch + 1024 + 2 * (thread ^ (16 * r)), part);
  }
#line 4
  __syncthreads();
  f16 t_1[8];
  #pragma unroll
#line 4
  for (int r = 0; r < 8; ++r) load_shared_f16x1(t_1 + table[r], scratch + 1024 + 2 * (thread ^ (32 * r)));
  f16* const p_1 = out + thread;
  #pragma unroll
#line 5
  for (int r = 0; r < 8; ++r) store_f16x1(p_1 + 128 * r, t_1 + r);
}
