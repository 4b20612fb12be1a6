// Seven tokens routed to two of eight experts each, with the outputs and gradients: experts 5, 6
// and 7 get none, expert 0 six, and token 5 ties three experts exactly.
#pragma once

#include <ATen/ATen.h>

#include "tests/testing/tensors.h"

namespace shardloom::testing {

struct ExpertsCase {
  at::Tensor x, logits, gate_up, down;  // fp32; weights in the fused layout
  at::Tensor dy;
  at::Tensor y, dx, dlogits, dgate_up, ddown;  // fp64
  double aux_loss = 0, aux_loss_first_five = 0;
  std::vector<int64_t> idle_experts;
};

// gate [E, I, H] and up [E, I, H] as in HF files -> [E*H, 2I].
inline at::Tensor fuse_gate_up(const at::Tensor& gate, const at::Tensor& up) {
  return at::cat({gate.transpose(1, 2), up.transpose(1, 2)}, 2).flatten(0, 1).contiguous();
}
inline at::Tensor fuse_down(const at::Tensor& down) {
  return down.transpose(1, 2).flatten(0, 1).contiguous();
}

inline ExpertsCase experts_case() {
  const Json c = read_json_file(SHARDLOOM_TEST_DATA "/num/NUM-02.json", ExitCode::kInternal);
  const auto fp32 = [&](const char* key) { return tensor_of(c[key]).to(at::kFloat); };
  ExpertsCase e;
  e.x = fp32("x");
  e.logits = fp32("router_logits");
  e.gate_up = fuse_gate_up(fp32("Wg"), fp32("Wu"));
  e.down = fuse_down(fp32("Wd"));
  e.dy = fp32("dY");
  e.y = tensor_of(c["y"]);
  e.dx = tensor_of(c["dx"]);
  e.dlogits = tensor_of(c["dlogits"]);
  e.dgate_up = fuse_gate_up(tensor_of(c["dWg"]), tensor_of(c["dWu"]));
  e.ddown = fuse_down(tensor_of(c["dWd"]));
  e.aux_loss = c["aux_loss"]["all_tokens"].get<double>();
  e.aux_loss_first_five = c["aux_loss"]["padding_masked(tokens 5,6 are padding)"].get<double>();
  e.idle_experts = c["zero_grad_experts"].get<std::vector<int64_t>>();
  return e;
}

}  // namespace shardloom::testing
