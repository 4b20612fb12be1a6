#include "shardloom/ops/moe_permutation.h"

#include "shardloom/base/error.h"

namespace shardloom::ops {
namespace {

void add_row(float* __restrict to, const float* __restrict row, float scale, int64_t width) {
  for (int64_t i = 0; i < width; ++i) to[i] += scale * row[i];
}

}  // namespace

Permutation permute_by_expert(const at::Tensor& experts_TK, int64_t num_experts) {
  const int64_t slots = experts_TK.numel();
  const at::Tensor experts = experts_TK.to(at::kCPU).contiguous();
  const int64_t* ids = experts.const_data_ptr<int64_t>();
  Permutation p;
  p.top_k = experts_TK.size(1);
  p.first.assign(num_experts + 1, 0);
  for (int64_t s = 0; s < slots; ++s) {
    SHARDLOOM_CHECK(ids[s] >= 0 && ids[s] < num_experts, "expert id {} of {}", ids[s], num_experts);
    ++p.first[ids[s] + 1];
  }
  for (int64_t e = 0; e < num_experts; ++e) p.first[e + 1] += p.first[e];
  std::vector<int64_t> next(p.first.begin(), p.first.end() - 1);
  p.slot_of_row.resize(slots);
  p.row_of_slot.resize(slots);
  for (int64_t s = 0; s < slots; ++s) {
    const int64_t row = next[ids[s]]++;
    p.slot_of_row[row] = s;
    p.row_of_slot[s] = row;
  }
  return p;
}

void gather_rows(const at::Tensor& x32,
                 const Permutation& p,
                 int64_t first,
                 int64_t rows,
                 int64_t padded_rows,
                 float* out,
                 int64_t stride) {
  const int64_t width = x32.size(1);
  const float* from = x32.const_data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(from + p.slot_of_row[first + r] / p.top_k * width, width, out + r * stride);
  for (int64_t r = rows; r < padded_rows; ++r) std::fill_n(out + r * stride, width, 0.0f);
}

TokenSum::TokenSum(const Permutation& p, int64_t width, const float* scale)
    : p_(p), width_(width), scale_(scale) {
  const int64_t tokens = p.top_k == 0 ? 0 : p.num_rows() / p.top_k;
  sum_ = at::zeros({tokens, width}, at::kFloat);
  if (at::get_num_threads() > 1 && !at::in_parallel_region())
    kept_ = at::empty({p.num_rows(), width}, at::kFloat);
}

float* TokenSum::place(int64_t first) {
  return kept_.defined() ? kept_.mutable_data_ptr<float>() + first * width_ : nullptr;
}

void TokenSum::add(int64_t first, int64_t count, const float* rows, int64_t stride) {
  if (kept_.defined()) {
    float* to = place(first);
    if (rows == to) return;
    for (int64_t r = 0; r < count; ++r) std::copy_n(rows + r * stride, width_, to + r * width_);
    return;
  }
  float* to = sum_.mutable_data_ptr<float>();
  for (int64_t r = 0; r < count; ++r) {
    const int64_t slot = p_.slot_of_row[first + r];
    add_row(to + slot / p_.top_k * width_, rows + r * stride,
            scale_ == nullptr ? 1.0f : scale_[slot], width_);
  }
}

void TokenSum::add_kept(int64_t begin, int64_t end) {
  const int64_t k = p_.top_k;
  const float* rows = kept_.const_data_ptr<float>();
  float* to = sum_.mutable_data_ptr<float>();
  std::vector<int64_t> slots(k);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < k; ++j) slots[j] = t * k + j;
    std::sort(slots.begin(), slots.end(),
              [&](int64_t a, int64_t b) { return p_.row_of_slot[a] < p_.row_of_slot[b]; });
    for (const int64_t slot : slots) {
      add_row(to + t * width_, rows + p_.row_of_slot[slot] * width_,
              scale_ == nullptr ? 1.0f : scale_[slot], width_);
    }
  }
}

at::Tensor TokenSum::finish() {
  if (kept_.defined()) {
    at::parallel_for(0, sum_.size(0), 16,
                     [&](int64_t begin, int64_t end) { add_kept(begin, end); });
  }
  return sum_;
}

}  // namespace shardloom::ops
