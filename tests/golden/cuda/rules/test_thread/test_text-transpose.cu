extern "C" __global__ void __launch_bounds__(256)
kernel(float* x, float* out, const int n) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const u32 scratch = (u32)__cvta_generic_to_shared(shared_memory);
  const u32 tile = scratch;
#line 3 "<kernel>"
  const int thread = (int)threadIdx.x; const int t = thread >> 5; const int t_1 = thread & 31;
#line 3
  const int t_2 = (int)blockIdx.y; const int t_3 = t_2 * 32; const int t_4 = (int)blockIdx.x;
#line 3
  const int t_5 = t_4 * 32;
#line 6
  for (int i = 0; i < 32; i += 8) {
#line 5
    const int down = t + i; const int t_6 = t_3 + down; const int t_7 = t_6 * n; const int t_8 = t_5 + t_1;
#line 5
    const int t_9 = t_7 + t_8; float* const p = x + t_9; const float t_10 = load_f32(p);
    const int t_11 = t * 33; const int t_12 = t_11 + t_1; const int t_13 = i * 33; const int t_14 = t_12 + t_13;
#line 6
    store_shared_f32(tile + 4 * t_14, t_10);
  }
#line 7
  __syncthreads();
#line 10
  for (int i_1 = 0; i_1 < 32; i_1 += 8) {
#line 9
    const int down_1 = t + i_1; const int t_15 = t_1 * 33; const int t_16 = t_15 + t; const int t_17 = t_16 + i_1;
#line 9
    const float t_18 = load_shared_f32(tile + 4 * t_17);
    const int t_19 = t_5 + down_1; const int t_20 = t_19 * n; const int t_21 = t_3 + t_1;
#line 10
    const int t_22 = t_20 + t_21; float* const p_1 = out + t_22; store_f32(p_1, t_18);
  }
}
