extern "C" __global__ void __launch_bounds__(128)
fences() {
#line 1 "kernel.py"
  fence_async();
#line 1
  fence_async_cluster();
#line 1
  fence_async_global();
#line 1
  fence_acq_rel_gpu();
#line 1
  fence_sc_sys();
}
