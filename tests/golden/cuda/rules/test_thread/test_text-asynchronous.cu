extern "C" __global__ void __launch_bounds__(128)
kernel(float* x, float* out, const int n) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const u32 scratch = (u32)__cvta_generic_to_shared(shared_memory);
  const u32 room = scratch;
#line 2 "<kernel>"
  const int t = (int)threadIdx.x; const int start = t * 4;
  float* const p = x + start; copy_async_16(room + 4 * start, p);
  copy_async_commit();
#line 4
  copy_async_wait<0>();
  __syncthreads();
  const int t_1 = start ^ 4;
  float t_2[4];
#line 6
  load_shared_f32x4(t_2, room + 4 * t_1); float* const p_1 = out + start; store_f32x4(p_1, t_2);
}
