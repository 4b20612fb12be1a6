#include "shardloom/optim/adamw.h"

#include <gtest/gtest.h>

#include "shardloom/base/json.h"

namespace shardloom::optim {
namespace {

// The update as torch.optim.AdamW writes it, in double.
void reference_step(at::Tensor& p,
                    const at::Tensor& g,
                    at::Tensor& m,
                    at::Tensor& v,
                    int t,
                    double lr,
                    const AdamWOptions& o) {
  p = p * (1 - lr * o.weight_decay);
  m = m * o.beta1 + g * (1 - o.beta1);
  v = v * o.beta2 + g * g * (1 - o.beta2);
  const at::Tensor denominator = (v / (1 - std::pow(o.beta2, t))).sqrt() + o.eps;
  p = p - lr / (1 - std::pow(o.beta1, t)) * m / denominator;
}

TEST(AdamW, FollowsTheFormula) {
  at::manual_seed(0);
  AdamWOptions options;
  options.weight_decay = 0.1;
  AdamW optimizer(options);
  OptimizedTensor t{"w", at::randn({37}), {}};
  at::Tensor p = t.value.to(at::kDouble), m = at::zeros_like(p), v = at::zeros_like(p);
  for (int step = 1; step <= 20; ++step) {
    t.grad = at::randn({37});
    optimizer.step({t}, 1e-2, 0.5);
    reference_step(p, t.grad.to(at::kDouble) * 0.5, m, v, step, 1e-2, options);
  }
  // 20 fp32 updates of values of order 1.
  EXPECT_LT((t.value.to(at::kDouble) - p).abs().max().item<double>(), 1e-5);
}

// fp32 weights keep updates that bf16 weights would round away.
TEST(AdamW, SmallUpdatesOfFp32WeightsAreNotLost) {
  const Json right = read_json_file(std::string(SHARDLOOM_TEST_DATA) + "/num/NUM-04.json",
                                    ExitCode::kInternal)["result"];
  for (const auto& [start, key] : {std::pair{1.0, "torch.float32 start 1.0"},
                                   std::pair{0.0078125, "torch.float32 start 0.0078125"}}) {
    AdamW optimizer({});
    OptimizedTensor t{"w", at::full({1}, start), at::full({1}, 0.01)};
    for (int step = 0; step < 200; ++step) optimizer.step({t}, 1e-5, 1.0);
    EXPECT_NEAR(t.value.item<double>(), right[key].get<double>(), 2e-6 * start + 1e-8) << key;
  }
}

TEST(AdamW, AnElementGetsTheSameBitsWhereverItLies) {
  at::manual_seed(0);
  const at::Tensor value = at::randn({1000}), grad = at::randn({1000});
  AdamW whole({}), parts({});
  OptimizedTensor a{"a", value.clone(), grad};
  std::vector<OptimizedTensor> b;
  for (const auto& [begin, length] : {std::pair{0, 333}, std::pair{333, 1}, std::pair{334, 666}}) {
    b.push_back(
        {"b", value.narrow(0, begin, length).clone(), grad.narrow(0, begin, length).clone()});
  }
  for (int step = 0; step < 5; ++step) {
    whole.step({a}, 1e-3, 0.7);
    parts.step(b, 1e-3, 0.7);
  }
  EXPECT_TRUE(at::equal(a.value, at::cat({b[0].value, b[1].value, b[2].value})));
}

TEST(AdamW, MissingGradientCountsAsZero) {
  AdamWOptions options;
  options.weight_decay = 0.5;
  AdamW optimizer(options);
  OptimizedTensor t{"w", at::ones({3}), {}};
  optimizer.step({t}, 0.1, 1.0);
  EXPECT_FLOAT_EQ(t.value[0].item<float>(), 0.95f);
}

}  // namespace
}  // namespace shardloom::optim
