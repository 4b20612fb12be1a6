#include "shardloom/ops/attention.h"

#include "shardloom/ops/cpu/causal_attention.h"
#include "shardloom/ops/linear.h"

namespace shardloom::ops {

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  if (computes_in_fp32(q)) {
    return attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), causal)
        .to(q.scalar_type());
  }
  if (causal && q.is_cpu() && q.scalar_type() == at::kFloat) return causal_attention(q, k, v);
  const int64_t groups = q.size(2) / k.size(2);
  auto heads_first = [&](const at::Tensor& x, int64_t repeat) {
    const at::Tensor moved = x.transpose(1, 2);
    return repeat == 1 ? moved : moved.repeat_interleave(repeat, 1);
  };
  return at::scaled_dot_product_attention(heads_first(q, 1), heads_first(k, groups),
                                          heads_first(v, groups),
                                          /*attn_mask=*/std::nullopt, /*dropout_p=*/0.0, causal)
      .transpose(1, 2);
}

}  // namespace shardloom::ops
