#include "shardloom/ops/moe.h"

#include "shardloom/ops/moe_composed.h"
#include "shardloom/ops/moe_fused.h"

namespace shardloom::ops {

at::Tensor moe_experts(const at::Tensor& x_TH,
                       const Routing& routing,
                       const at::Tensor& gate_up,
                       const at::Tensor& down) {
  return x_TH.is_cpu() ? fused_moe_experts(x_TH, routing, gate_up, down)
                       : composed_moe_experts(x_TH, routing, gate_up, down);
}

}  // namespace shardloom::ops
