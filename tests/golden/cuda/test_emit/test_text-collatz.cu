extern "C" __global__ void __launch_bounds__(128)
collatz(int* out, const int n) {
#line 3 "kernel.py"
  int n_1 = n; int steps = 0;
#line 3
  for (;;) {
#line 3
    const bool more = n_1 > 1;
#line 3
    if (!more) break;
    const int t = n_1 & 1; const bool odd = t == 1;
#line 4
    if (odd) {
      const int t_1 = mul_wrap(n_1, 3); n_1 = add_wrap(t_1, 1);
    } else {
      n_1 = n_1 >> 1;
    }
#line 8
    steps = add_wrap(steps, 1);
  }
#line 9
  store_i32(out, steps);
}
