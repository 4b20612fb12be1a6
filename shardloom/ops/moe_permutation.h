// The order of tokens by experts, on the host: which rows an expert computes, and the sum of each
// token's rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace shardloom::ops {

// Rows of the permuted order: expert e owns rows [first[e], first[e+1]); row r is slot
// slot_of_row[r] = t*K + k. Within an expert the slots ascend.
struct Permutation {
  std::vector<int64_t> first;
  std::vector<int64_t> slot_of_row;
  std::vector<int64_t> row_of_slot;
  int64_t top_k = 0;

  int64_t num_experts() const { return static_cast<int64_t>(first.size()) - 1; }
  int64_t num_rows() const { return static_cast<int64_t>(slot_of_row.size()); }
  int64_t rows_of(int64_t expert) const { return first[expert + 1] - first[expert]; }
};

// experts [T, K] int64 ids in 0..num_experts-1.
Permutation permute_by_expert(const at::Tensor& experts_TK, int64_t num_experts);

// `rows` rows of x32 [T, width] that belong to permuted rows `first`.., to `out`, whose rows are
// `stride` apart; then zeros up to `padded_rows`.
void gather_rows(const at::Tensor& x32,
                 const Permutation& p,
                 int64_t first,
                 int64_t rows,
                 int64_t padded_rows,
                 float* out,
                 int64_t stride);

// out[t] = sum over the token's rows, in ascending order of their experts, of scale[slot] * row;
// fp32 [T, width]. scale may be null (1). One thread adds rows as the experts come, which is that
// order; with several the rows are kept and added up at the end, to the same bits.
class TokenSum {
 public:
  TokenSum(const Permutation& p, int64_t width, const float* scale);
  // Where to compute the rows of an expert when they are kept; null when add() takes them from
  // anywhere.
  float* place(int64_t first);
  // Takes the rows of an expert from `rows`, which may be place(first).
  void add(int64_t first, int64_t count, const float* rows, int64_t stride);
  at::Tensor finish();

 private:
  void add_kept(int64_t begin, int64_t end);

  const Permutation& p_;
  int64_t width_;
  const float* scale_;
  at::Tensor sum_;
  at::Tensor kept_;  // [T*K, width]; undefined with one thread
};

}  // namespace shardloom::ops
