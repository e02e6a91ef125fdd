extern "C" __global__ void __launch_bounds__(96)
kernel(float* x, float* out) {
  float acc[8];
#line 2 "<kernel>"
  const int t = (int)blockIdx.x; const int t_1 = t * 96; const int thread = (int)threadIdx.x;
#line 2
  const int x_1 = t_1 + thread; const int start = x_1 * 8;
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
#line 4
    float* const p = x + start; float* const p_1 = p + i; const float t_2 = load_f32(p_1); acc[i] = t_2;
  }
  #pragma unroll
#line 6
  for (int i_1 = 1; i_1 < 8; ++i_1) {
#line 6
    const float t_3 = acc[i_1]; const int t_4 = i_1 + -1; const float t_5 = acc[t_4]; const float t_6 = t_3 + t_5;
#line 6
    acc[i_1] = t_6;
  }
#line 7
  float* const p_2 = out + start;
  float t_7[4];
  #pragma unroll
#line 7
  for (int r = 0; r < 4; ++r) t_7[r] = acc[r];
#line 7
  store_f32x4(p_2, t_7); float* const p_3 = p_2 + 4;
  float t_8[4];
  #pragma unroll
#line 7
  for (int r = 0; r < 4; ++r) t_8[r] = acc[r + 4];
#line 7
  store_f32x4(p_3, t_8);
}
