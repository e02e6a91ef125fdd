extern "C" __global__ void __launch_bounds__(96)
kernel(float* x, float* out) {
  float acc[8];
#line 2 "<kernel>"
  const int t = (int)blockIdx.x; const int t_1 = t * 96; const int thread = (int)threadIdx.x;
#line 2
  const int x_1 = t_1 + thread; const int start = mul_wrap(x_1, 8);
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
#line 4
    const int t_2 = add_wrap(start, i); float* const p = x + t_2; const float t_3 = load_f32(p); acc[i] = t_3;
  }
  #pragma unroll
#line 6
  for (int i_1 = 1; i_1 < 8; ++i_1) {
#line 6
    const float t_4 = acc[i_1]; const int t_5 = i_1 + -1; const float t_6 = acc[t_5]; const float t_7 = t_4 + t_6;
#line 6
    acc[i_1] = t_7;
  }
#line 7
  float* const p_1 = out + start;
  float t_8[4];
  #pragma unroll
#line 7
  for (int r = 0; r < 4; ++r) t_8[r] = acc[r];
#line 7
  store_f32x4(p_1, t_8); const int t_10 = add_wrap(start, 4); float* const p_2 = out + t_10;
  float t_9[4];
  #pragma unroll
#line 7
  for (int r = 0; r < 4; ++r) t_9[r] = acc[r + 4];
#line 7
  store_f32x4(p_2, t_9);
}
