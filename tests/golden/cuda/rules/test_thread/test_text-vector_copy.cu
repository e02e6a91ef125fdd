extern "C" __global__ void __launch_bounds__(256)
kernel(float* x, float* out, const int n) {
#line 2 "<kernel>"
  const int t = (int)blockIdx.x; const int t_1 = t * 256; const int thread = (int)threadIdx.x;
#line 2
  const int x_1 = t_1 + thread; const int start = mul_wrap(x_1, 4);
  const bool on = start < n;
  if (on) {
#line 4
    float* const p = x + start;
    float four[4];
#line 4
    load_f32x4(four, p); float* const p_1 = out + start; store_f32x4(p_1, four);
  }
}
