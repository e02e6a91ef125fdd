extern "C" __global__ void __launch_bounds__(128)
add_kernel(float* x, float* y, float* z, const int n) {
  const u32 warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);
#line 2 "kernel.py"
  const int pid = (int)blockIdx.x; const int first = mul_wrap(pid, 1024);
  const int t = mul_wrap((int)warp, 32); const int lane = (int)(threadIdx.x & 31u);
#line 3
  const int thread = add_wrap(t, lane); const int t_1 = mul_wrap(thread, 4); const int start = add_wrap(first, t_1);
#line 5
  float* const p = x + start;
  bool mask[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
#line 3
    const int offsets = add_wrap(start, 512 * r);
    mask[r] = offsets < n;
  }
  float a[8];
  #pragma unroll
#line 5
  for (int r = 0; r < 2; ++r) load_f32x4_if(a + 4 * r, p + 512 * r, mask[r]);
  float* const p_1 = y + start;
  float b[8];
  #pragma unroll
#line 6
  for (int r = 0; r < 8; ++r) b[r] = 0.0f;
  #pragma unroll
#line 6
  for (int r = 0; r < 2; ++r) load_f32x4_or(b + 4 * r, p_1 + 512 * r, mask[r]);
#line 8
  float* const p_2 = z + start;
  float total[8];
  #pragma unroll
#line 7
  for (int r = 0; r < 8; ++r) total[r] = a[r] + b[r];
  #pragma unroll
#line 8
  for (int r = 0; r < 2; ++r) store_f32x4_if(p_2 + 512 * r, total + 4 * r, mask[r]);
}
