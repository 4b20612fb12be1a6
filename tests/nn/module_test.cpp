#include "shardloom/nn/module.h"

#include <gtest/gtest.h>

#include "shardloom/nn/layers.h"

namespace shardloom::nn {
namespace {

struct Pair {
  at::Tensor first;
  int count = 0;
  template <typename F>
  void visit_tensors(F&& f) {
    f(first);
  }
};

class Scale : public Callable<Scale> {
 public:
  Scale() : weight(at::full({1}, 3.0)) { register_parameter("weight", weight); }
  Pair forward(const at::Tensor& x, int count) { return {x * weight, count}; }
  at::Tensor weight;
};

class Net : public Callable<Net> {
 public:
  Net() {
    register_module("head", head);
    for (int i = 0; i < 2; ++i) layers.emplace_back();
    register_module("layers", layers);
  }
  at::Tensor forward(const at::Tensor& x) { return layers[1](layers[0](x, 1).first, 2).first; }
  ModuleList<Scale> layers;
  Linear head{2, 3, true, at::TensorOptions()};
};

TEST(Module, NamesFollowTheTree) {
  Net net;
  std::vector<std::string> names;
  for (const auto& p : net.named_parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"head.weight", "head.bias", "layers.0.weight",
                                             "layers.1.weight"}));
  EXPECT_EQ(net.named_modules().size(), 5u);
  EXPECT_EQ(net.named_modules()[4].first, "layers.1");
}

TEST(Module, RegisteredAddressSeesSwappedTensors) {
  Net net;
  *net.named_parameters()[2].tensor = at::full({1}, 5.0);
  EXPECT_FLOAT_EQ(net(at::ones({1})).item<float>(), 15.0f);
}

TEST(Module, TrainReachesEveryChild) {
  Net net;
  net.train(false);
  for (const auto& [name, module] : net.named_modules())
    EXPECT_FALSE(module->is_training()) << name;
}

// Records the order, may change inputs and outputs, and may run the inner call again later.
class Recorder : public CallWrapper {
 public:
  Recorder(std::string name, std::vector<std::string>& log) : name_(std::move(name)), log_(log) {}
  void around(const std::shared_ptr<Call>& call, const std::function<void()>& inner) override {
    log_.push_back(name_ + " in " + std::to_string(call->inputs().size()));
    *call->inputs()[0] = *call->inputs()[0] + 1;
    inner();
    *call->outputs()[0] = *call->outputs()[0] * 10;
    log_.push_back(name_ + " out");
    kept_call = call;
    again = inner;
  }
  std::shared_ptr<Call> kept_call;
  std::function<void()> again;

 private:
  std::string name_;
  std::vector<std::string>& log_;
};

TEST(CallSeam, WrappersStandOutermostFirstAndSeeTensorsOfInputsAndOutputs) {
  Scale scale;
  std::vector<std::string> log;
  auto outer = std::make_shared<Recorder>("outer", log),
       inner = std::make_shared<Recorder>("inner", log);
  scale.add_wrapper(inner);
  scale.add_wrapper(outer);
  const at::Tensor x = at::ones({1});
  const Pair out = scale(x, 7);
  EXPECT_EQ(log, (std::vector<std::string>{"outer in 1", "inner in 1", "inner out", "outer out"}));
  EXPECT_FLOAT_EQ(out.first.item<float>(), 900.0f);  // (1 + 1 + 1) * 3 * 10 * 10
  EXPECT_EQ(out.count, 7);
  EXPECT_FLOAT_EQ(x.item<float>(), 1.0f);  // the caller's handle is untouched
}

TEST(CallSeam, InnerCallCanRunAgainAfterItReturned) {
  Scale scale;
  std::vector<std::string> log;
  auto wrapper = std::make_shared<Recorder>("w", log);
  scale.add_wrapper(wrapper);
  scale(at::ones({1}), 1);
  *wrapper->kept_call->inputs()[0] = at::full({1}, 4.0);
  wrapper->again();
  EXPECT_FLOAT_EQ(wrapper->kept_call->outputs()[0]->item<float>(), 12.0f);
}

TEST(DropPath, KeepsOrDropsWholeRowsInTrainingOnly) {
  at::manual_seed(0);
  DropPath drop(0.25);
  const at::Tensor x = at::ones({4000, 2});
  const at::Tensor y = drop(x);
  EXPECT_TRUE(at::equal(y.select(1, 0), y.select(1, 1)));
  const double kept = (y.select(1, 0) > 0).to(at::kFloat).mean().item<double>();
  EXPECT_NEAR(kept, 0.75, 0.03);  // 4 standard deviations
  EXPECT_FLOAT_EQ(y.max().item<float>(), 1.0f / 0.75f);
  drop.train(false);
  EXPECT_TRUE(at::equal(drop(x), x));
}

}  // namespace
}  // namespace shardloom::nn
