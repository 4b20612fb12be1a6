// One expert layer, forward and backward, in four ways that take turns: a loop over experts with
// index_select and index_add, at::_grouped_mm composed (ops::composed_moe_experts, what devices
// take), and the fused operation for CPU. All give the same gradients up to rounding, which is
// checked.
//
//   expert_bench [ROUNDS=15] [TOKENS=512] [THREADS=1]
//
// Shapes of step_bench's mini: 64 experts, 8 a token, hidden 512, inner 192, fp32.
#include <ATen/ATen.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/ops/activation.h"
#include "shardloom/ops/moe_composed.h"
#include "shardloom/ops/moe_fused.h"

namespace shardloom {
namespace {

constexpr int64_t kExperts = 64, kTopK = 8, kHidden = 512, kInner = 192;

using Experts = at::Tensor (*)(const at::Tensor&,
                               const ops::Routing&,
                               const at::Tensor&,
                               const at::Tensor&);

// The straightforward way (transformers' eager experts, without its selects of single weights).
at::Tensor looped_moe_experts(const at::Tensor& x,
                              const ops::Routing& routing,
                              const at::Tensor& gate_up,
                              const at::Tensor& down) {
  const auto gate_ups = gate_up.view({kExperts, kHidden, 2 * kInner}).unbind(0);
  const auto downs = down.view({kExperts, kInner, kHidden}).unbind(0);
  at::Tensor out = at::zeros_like(x);
  for (int64_t e = 0; e < kExperts; ++e) {
    const auto found = at::where(routing.experts_TK == e);
    const at::Tensor hidden = at::mm(x.index_select(0, found[0]), gate_ups[e]);
    const at::Tensor act =
        ops::swiglu(hidden.narrow(1, 0, kInner), hidden.narrow(1, kInner, kInner));
    const at::Tensor weights = routing.weights_TK.index({found[0], found[1]}).unsqueeze(1);
    out = out.index_add(0, found[0], at::mm(act, downs[e]) * weights);
  }
  return out;
}

struct Way {
  const char* name;
  Experts experts;
  std::vector<double> forward_ms, step_ms;
  at::Tensor grad_gate_up;
};

struct Inputs {
  at::Tensor x, logits, gate_up, down, grad;
};

Inputs make_inputs(int64_t tokens) {
  at::manual_seed(0);
  return {at::randn({tokens, kHidden}), at::randn({tokens, kExperts}),
          (at::randn({kExperts * kHidden, 2 * kInner}) * 0.02).requires_grad_(),
          (at::randn({kExperts * kInner, kHidden}) * 0.02).requires_grad_(),
          at::randn({tokens, kHidden})};
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void measure(Way& way, const Inputs& in, bool counts) {
  const at::Tensor x = in.x.detach().requires_grad_(), logits = in.logits.detach().requires_grad_();
  const ops::Routing routing = ops::route_top_k(logits, kTopK, /*normalize=*/true);
  const auto start = std::chrono::steady_clock::now();
  const at::Tensor y = way.experts(x, routing, in.gate_up, in.down);
  const double forward = ms_since(start);
  y.backward(in.grad);
  const double step = ms_since(start);
  way.grad_gate_up = in.gate_up.grad();
  for (const at::Tensor& weight : {in.gate_up, in.down}) weight.mutable_grad().reset();
  if (!counts) return;
  way.forward_ms.push_back(forward);
  way.step_ms.push_back(step);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double lowest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

int run(int rounds, int64_t tokens) {
  const Inputs in = make_inputs(tokens);
  std::vector<Way> ways = {{"loop, index_select, index_add", &looped_moe_experts, {}, {}, {}},
                           {"grouped_mm, composed", &ops::composed_moe_experts, {}, {}, {}},
                           {"fused", &ops::fused_moe_experts, {}, {}, {}}};
  for (int round = -1; round < rounds; ++round) {
    for (Way& way : ways) measure(way, in, round >= 0);
  }
  for (const Way& way : ways) {
    const double difference =
        (way.grad_gate_up - ways.back().grad_gate_up).abs().max().item<double>();
    SHARDLOOM_CHECK(difference < 1e-3, "{} differs by {}", way.name, difference);
  }
  const Way& ours = ways.back();
  // Forward 2 products, backward 4, each with 2 operations a term.
  const double gigaflops = 6e-9 * static_cast<double>(tokens * kTopK * kHidden * 3 * kInner);
  fmt::print("{} tokens, {} experts, {} a token, {} x {}, {} threads, {} rounds, {:.2f} Gflop\n\n",
             tokens, kExperts, kTopK, kHidden, kInner, at::get_num_threads(), rounds, gigaflops);
  fmt::print(
      "| way | forward ms | forward+backward ms (min) | Gflop/s | ours / this |\n"
      "|---|---|---|---|---|\n");
  for (const Way& way : ways) {
    const double step = median(way.step_ms);
    fmt::print("| {} | {:.1f} | {:.1f} ({:.1f}) | {:.0f} | {:.2f} |\n", way.name,
               median(way.forward_ms), step, lowest(way.step_ms), gigaflops / step * 1e3,
               median(ours.step_ms) / step);
  }
  return 0;
}

}  // namespace
}  // namespace shardloom

int main(int argc, char** argv) {
  // As the training program does: freed blocks stay in the process.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const int64_t tokens = argc > 2 ? std::atoll(argv[2]) : 512;
  at::set_num_threads(argc > 3 ? std::atoi(argv[3]) : 1);
  return shardloom::run(std::max(rounds, 1), tokens);
}
