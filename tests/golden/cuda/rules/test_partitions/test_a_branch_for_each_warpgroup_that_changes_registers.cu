extern "C" __global__ void __launch_bounds__(384, 1)
partitioned(float* out, const int n) {
  const u32 warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);
#line 9 "kernel.py"
  if (warp < 4) {
#line 9
    take_registers<232>();
#line 1
    barrier_sync<0, 384>();
#line 1
    const int thread = (int)threadIdx.x; float* const p = out + thread;
    float tile[4];
    #pragma unroll
#line 1
    for (int r = 0; r < 4; ++r) load_f32x1(tile + r, p + 128 * r);
    float acc[4];
    #pragma unroll
#line 1
    for (int r = 0; r < 4; ++r) acc[r] = tile[r];
#line 1
    for (int i = 0; i < n; ++i) {
#line 1
      bar_sync<1, 128>();
      #pragma unroll
#line 1
      for (int r = 0; r < 4; ++r) acc[r] = acc[r] * tile[r];
    }
    #pragma unroll
#line 1
    for (int r = 0; r < 4; ++r) store_f32x1(p + 128 * r, acc + r);
#line 1
    barrier_sync<0, 384>();
  } else if (warp < 8) {
#line 1
    barrier_sync<0, 384>();
#line 1
    const int thread_1 = (int)(threadIdx.x - 128u); float* const p_1 = out + thread_1;
    float tile_1[8];
    #pragma unroll
#line 1
    for (int r = 0; r < 8; ++r) load_f32x1(tile_1 + r, p_1 + 128 * r);
    float acc_1[8];
    #pragma unroll
#line 1
    for (int r = 0; r < 8; ++r) acc_1[r] = tile_1[r];
#line 1
    for (int i_1 = 0; i_1 < n; ++i_1) {
#line 1
      bar_sync<3, 128>();
#line 1
      barrier_sync<4, 160>();
      #pragma unroll
#line 1
      for (int r = 0; r < 8; ++r) acc_1[r] = acc_1[r] * tile_1[r];
    }
    #pragma unroll
#line 1
    for (int r = 0; r < 8; ++r) store_f32x1(p_1 + 128 * r, acc_1 + r);
#line 1
    barrier_sync<0, 384>();
  } else {
#line 9
    give_registers<40>();
#line 9
    if (warp < 9) {
#line 1
      barrier_sync<0, 384>();
#line 1
      const int thread_2 = (int)(threadIdx.x - 256u); float* const p_2 = out + thread_2;
      float tile_2[2];
      #pragma unroll
#line 1
      for (int r = 0; r < 2; ++r) load_f32x1(tile_2 + r, p_2 + 128 * r);
      float acc_2[2];
      #pragma unroll
#line 1
      for (int r = 0; r < 2; ++r) acc_2[r] = tile_2[r];
#line 1
      for (int i_2 = 0; i_2 < n; ++i_2) {
#line 1
        __syncwarp();
#line 1
        bar_arrive<4, 160>();
        #pragma unroll
#line 1
        for (int r = 0; r < 2; ++r) acc_2[r] = acc_2[r] * tile_2[r];
      }
      #pragma unroll
#line 1
      for (int r = 0; r < 2; ++r) store_f32x1(p_2 + 128 * r, acc_2 + r);
#line 1
      barrier_sync<0, 384>();
    } else {
#line 1
      barrier_sync<0, 384>();
#line 1
      barrier_sync<0, 384>();
    }
  }
}
