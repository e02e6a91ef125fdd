typedef signed char i8; typedef short i16; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
#define DEV __device__ __forceinline__
template <typename T> DEV T mul_wrap(T a, T b) { return (T)((u64)a * (u64)b); }
template <typename T> DEV T add_wrap(T a, T b) { return (T)((u64)a + (u64)b); }
DEV void load_f32x4_if(float* x, const float* p, bool on) {
  asm volatile("{\n.reg .pred on;\nsetp.ne.b32 on, %5, 0;\n@on ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
    : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
    : "l"(p), "r"((int)on)); }
DEV void load_f32x4_or(float* x, const float* p, bool on) {
  asm volatile("{\n.reg .pred on;\nsetp.ne.b32 on, %5, 0;\nmov.b32 %0, %6;\nmov.b32 %1, %7;\nmov.b32 %2, %8;\nmov.b32 %3, %9;\n@on ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
    : "=&f"(x[0]), "=&f"(x[1]), "=&f"(x[2]), "=&f"(x[3])
    : "l"(p), "r"((int)on), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])); }
DEV void store_f32x4_if(float* p, const float* x, bool on) {
  asm volatile("{\n.reg .pred on;\nsetp.ne.b32 on, %5, 0;\n@on st.global.v4.f32 [%0], {%1, %2, %3, %4};\n}"
    :
    : "l"(p), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"((int)on) : "memory"); }

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
