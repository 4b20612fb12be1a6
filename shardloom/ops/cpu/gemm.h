// Matrix products on raw pointers for kernels that run many small ones: no tensor, no dispatch, any
// row stride.
#pragma once

#include <cstdint>

namespace shardloom::ops {

// A row-major matrix in memory, or its transpose; `stride` is the distance of stored rows.
struct Matrix {
  const float* data;
  int64_t stride;
  bool transposed = false;
};

// c [m, n] = alpha * a [m, k] b [k, n] + beta * c, with c's rows `c_stride` apart. Sizes are those
// of the product, after transposition. beta 0 does not read c. Inside a parallel region serial.
void gemm(int64_t m,
          int64_t n,
          int64_t k,
          float alpha,
          const Matrix& a,
          const Matrix& b,
          float beta,
          float* c,
          int64_t c_stride);

}  // namespace shardloom::ops
