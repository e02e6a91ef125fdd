extern "C" __global__ void __launch_bounds__(64)
kernel(float* t, const int rows, const int columns, const int stride) {
#line 2 "<kernel>"
  const int t_1 = (int)blockIdx.x; const int t_2 = t_1 * 8; const int thread = (int)threadIdx.x;
#line 2
  const int t_3 = thread & 7; const int x = t_2 + t_3; const int t_4 = (int)blockIdx.y; const int t_5 = t_4 * 8;
#line 2
  const int t_6 = thread >> 3; const int y = t_5 + t_6;
  const bool on = x < rows; const bool on_1 = y < columns; const bool on_2 = on & on_1;
  if (on_2) {
#line 4
    const int t_7 = x * stride; const int t_8 = t_7 + y; float* const p = t + t_8; const float t_9 = load_f32(p);
#line 4
    const float t_10 = t_9 + 1.0f; store_f32(p, t_10);
  }
}
