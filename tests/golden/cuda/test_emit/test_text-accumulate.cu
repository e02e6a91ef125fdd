extern "C" __global__ void __launch_bounds__(128)
accumulate(float* x, float* out, const int count) {
  const u32 warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);
#line 2 "kernel.py"
  const int t = mul_wrap((int)warp, 32); const int lane = (int)(threadIdx.x & 31u);
#line 2
  const int thread = add_wrap(t, lane); const int t_1 = mul_wrap(thread, 4); float* place = x + t_1;
  float acc[16];
  #pragma unroll
#line 4
  for (int r = 0; r < 16; ++r) acc[r] = 0.0f;
#line 4
  for (int i = 0; i < count; ++i) {
    float tile[16];
    #pragma unroll
#line 5
    for (int r = 0; r < 4; ++r) load_f32x4(tile + 4 * r, place + 512 * r);
    #pragma unroll
#line 6
    for (int r = 0; r < 16; ++r) acc[r] = acc[r] + tile[r];
    place = place + 2048;
  }
#line 8
  float* const p = out + t_1;
  #pragma unroll
#line 8
  for (int r = 0; r < 4; ++r) store_f32x4(p + 512 * r, acc + 4 * r);
}
