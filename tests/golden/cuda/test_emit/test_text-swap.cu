extern "C" __global__ void __launch_bounds__(128)
swap(float* x, const int n) {
#line 2 "kernel.py"
  float* const p = x + 0;
  float a[4];
  #pragma unroll
#line 2
  for (int r = 0; r < 4; ++r) load_f32x1(a + r, p + 128 * r);
  float* const p_1 = x + 1;
  float b[4];
  #pragma unroll
#line 3
  for (int r = 0; r < 4; ++r) load_f32x1(b + r, p_1 + 128 * r);
  for (int i = 0; i < n; ++i) {
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
#line 4
      const float old_a = a[r]; a[r] = b[r]; b[r] = old_a;
    }
  }
  #pragma unroll
#line 5
  for (int r = 0; r < 4; ++r) store_f32x1(x + 128 * r, a + r);
#line 5
  float* const p_2 = x + n;
  #pragma unroll
#line 5
  for (int r = 0; r < 4; ++r) store_f32x1(p_2 + 128 * r, b + r);
}
