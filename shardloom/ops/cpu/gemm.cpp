#include "shardloom/ops/cpu/gemm.h"

#ifdef SHARDLOOM_TORCH_HAS_SGEMM

// The BLAS that libtorch_cpu carries and exports; its headers declare it nowhere. ATen's mm ends
// here too, after 2-4 us of dispatch and views.
extern "C" void sgemm_(const char* trans_a,
                       const char* trans_b,
                       const int* m,
                       const int* n,
                       const int* k,
                       const float* alpha,
                       const float* a,
                       const int* lda,
                       const float* b,
                       const int* ldb,
                       const float* beta,
                       float* c,
                       const int* ldc);

namespace shardloom::ops {

void gemm(int64_t m,
          int64_t n,
          int64_t k,
          float alpha,
          const Matrix& a,
          const Matrix& b,
          float beta,
          float* c,
          int64_t c_stride) {
  if (m == 0 || n == 0) return;
  // BLAS counts in columns, so it is given the transposes: c' = b' a'.
  const int rows = static_cast<int>(n), columns = static_cast<int>(m), depth = static_cast<int>(k);
  const int ldb = static_cast<int>(b.stride), lda = static_cast<int>(a.stride),
            ldc = static_cast<int>(c_stride);
  sgemm_(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &rows, &columns, &depth, &alpha,
         b.data, &ldb, a.data, &lda, &beta, c, &ldc);
}

}  // namespace shardloom::ops

#else

#include <ATen/core/LegacyTypeDispatch.h>

namespace shardloom::ops {
namespace {

at::Tensor view(const float* data, int64_t rows, int64_t columns, int64_t stride) {
  return at::from_blob(const_cast<float*>(data), {rows, columns}, {stride, 1}, at::kFloat);
}

at::Tensor view(const Matrix& x, int64_t rows, int64_t columns) {
  return x.transposed ? view(x.data, columns, rows, x.stride).t()
                      : view(x.data, rows, columns, x.stride);
}

}  // namespace

void gemm(int64_t m,
          int64_t n,
          int64_t k,
          float alpha,
          const Matrix& a,
          const Matrix& b,
          float beta,
          float* c,
          int64_t c_stride) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor out = view(c, m, n, c_stride);
  at::addmm_out(out, out, view(a, m, k), view(b, k, n), beta, alpha);
}

}  // namespace shardloom::ops

#endif
