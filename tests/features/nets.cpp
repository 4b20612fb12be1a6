#include "tests/features/nets.h"

#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/ops/attention.h"

namespace shardloom::features::testing {
namespace {

const at::TensorOptions kFloats = at::TensorOptions().dtype(at::kFloat);
constexpr double kEps = 1e-6;

at::Tensor random_state() {
  return at::globalContext().defaultGenerator(c10::Device(c10::kCPU)).get_state();
}

}  // namespace

Mlp::Mlp(int64_t dim) : up(dim, 4 * dim, true, kFloats), down(4 * dim, dim, true, kFloats) {
  register_module("up", up);
  register_module("down", down);
}

at::Tensor Mlp::forward(const at::Tensor& x) { return down(at::gelu(up(x))); }

Block::Block(int64_t dim)
    : norm1(dim, kEps, kFloats),
      norm2(dim, kEps, kFloats),
      qkv(dim, 3 * dim, true, kFloats),
      proj(dim, dim, false, kFloats),
      mlp(dim) {
  register_module("norm1", norm1);
  register_module("qkv", qkv);
  register_module("proj", proj);
  register_module("norm2", norm2);
  register_module("mlp", mlp);
  register_module("drop_path", drop_path);
}

at::Tensor Block::forward(const at::Tensor& x_BSD) {
  ++runs;
  const auto qkv_BS1hd =
      qkv(norm1(x_BSD)).view({x_BSD.size(0), x_BSD.size(1), 3, 2, x_BSD.size(2) / 2}).unbind(2);
  const at::Tensor attended =
      ops::attention(qkv_BS1hd[0], qkv_BS1hd[1], qkv_BS1hd[2], /*causal=*/true)
          .reshape(x_BSD.sizes());
  const at::Tensor h = x_BSD + drop_path(proj(attended));
  return h + drop_path(mlp(norm2(h)));
}

Net::Net(const NetSizes& sizes)
    : embed(sizes.vocab, sizes.dim, kFloats),
      head(sizes.dim, sizes.vocab, /*bias=*/true, kFloats),
      sizes_(sizes) {
  for (int64_t i = 0; i < sizes.blocks; ++i) blocks.emplace_back(sizes.dim);
  register_module("embed", embed);
  register_module("blocks", blocks);
  register_module("head", head);
  fill_parameters(*this);
}

at::Tensor Net::ids() const {
  return (at::arange(sizes_.samples * sizes_.length, at::kLong) * 7)
      .remainder(sizes_.vocab)
      .view({sizes_.samples, sizes_.length});
}

at::Tensor Net::forward(const at::Tensor& ids) {
  at::Tensor hidden = embed(ids);
  for (auto& block : blocks) hidden = (*block)(hidden);
  return head.loss(hidden.flatten(0, 1), {.targets = ids.roll(-1, 1).flatten(),
                                          .weights = at::full({ids.numel()}, 1.0 / ids.numel())});
}

int Net::runs() const {
  int sum = 0;
  for (const auto& [name, block] : blocks.children()) sum += static_cast<Block*>(block)->runs;
  return sum;
}

void fill_parameters(nn::Module& module) {
  double phase = 0;
  for (const auto& p : module.named_parameters()) {
    const at::NoGradGuard no_grad;
    phase += 0.7;
    const at::Tensor values = (at::arange(p.tensor->numel(), at::kDouble) * 1.3 + phase).sin();
    p.tensor->copy_(p.tensor->dim() == 1 ? (1.0 + 0.1 * values).view(p.tensor->sizes())
                                         : (0.3 * values).view(p.tensor->sizes()));
    p.tensor->set_requires_grad(true);
  }
}

std::map<std::string, at::Tensor> take_gradients(nn::Module& module) {
  std::map<std::string, at::Tensor> grads;
  for (const auto& p : module.named_parameters()) {
    grads.emplace(p.name, p.tensor->grad());
    p.tensor->mutable_grad().reset();
  }
  return grads;
}

StepResult run_step(nn::Module& module, const std::function<at::Tensor()>& loss) {
  at::manual_seed(3);
  const at::Tensor value = loss();
  value.backward();
  return {value.item<double>(), take_gradients(module), random_state()};
}

StepResult run_step(Net& net) {
  return run_step(net, [&net] { return net(net.ids()); });
}

void expect_same_bits(const std::map<std::string, at::Tensor>& actual,
                      const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, grad] : expected) {
    ASSERT_EQ(actual.at(name).defined(), grad.defined()) << name;
    if (!grad.defined()) continue;
    EXPECT_TRUE(at::equal(actual.at(name), grad)) << name;
  }
}

void expect_same_bits(const StepResult& actual, const StepResult& expected) {
  EXPECT_EQ(actual.loss, expected.loss);
  expect_same_bits(actual.grads, expected.grads);
  EXPECT_TRUE(at::equal(actual.random_state, expected.random_state));
}

template <typename E>
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}
template std::string error_of<ConfigError>(const std::function<void()>&);
template std::string error_of<InternalError>(const std::function<void()>&);

}  // namespace shardloom::features::testing
