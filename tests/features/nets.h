// A small transformer with stochastic depth, and what a training step of it gives.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <string>

#include "shardloom/nn/layers.h"
#include "shardloom/nn/loss_head.h"

namespace shardloom::features::testing {

// down(gelu(up(x)))
class Mlp : public nn::Callable<Mlp> {
 public:
  explicit Mlp(int64_t dim);
  at::Tensor forward(const at::Tensor& x);
  nn::Linear up, down;
};

// x + drop(attention(norm(x))), then x + drop(mlp(norm(x))). Counts how often it runs.
class Block : public nn::Callable<Block> {
 public:
  explicit Block(int64_t dim);
  at::Tensor forward(const at::Tensor& x_BSD);
  nn::RmsNorm norm1, norm2;
  nn::Linear qkv, proj;
  Mlp mlp;
  nn::DropPath drop_path{0.4};
  int runs = 0;
};

struct NetSizes {
  int64_t vocab = 53;
  int64_t dim = 24;
  int64_t blocks = 3;
  int64_t samples = 6;
  int64_t length = 5;
};

// Loss of predicting the next token.
class Net : public nn::Callable<Net> {
 public:
  explicit Net(const NetSizes& sizes = {});
  at::Tensor forward(const at::Tensor& ids);
  at::Tensor ids() const;
  int runs() const;
  nn::Embedding embed;
  nn::ModuleList<Block> blocks;
  nn::LossHead head;

 private:
  NetSizes sizes_;
};

// All parameters of `module`, trained, with values that depend on nothing but their order.
void fill_parameters(nn::Module& module);

struct StepResult {
  double loss;
  std::map<std::string, at::Tensor> grads;
  at::Tensor random_state;  // of the CPU generator after the step
};
// Gradients of all parameters, which are cleared.
std::map<std::string, at::Tensor> take_gradients(nn::Module& module);
// Seeds the generator and runs loss().backward().
StepResult run_step(nn::Module& module, const std::function<at::Tensor()>& loss);
StepResult run_step(Net& net);
void expect_same_bits(const StepResult& actual, const StepResult& expected);
void expect_same_bits(const std::map<std::string, at::Tensor>& actual,
                      const std::map<std::string, at::Tensor>& expected);

// The message of the error of type E that `action` throws; fails the test when it throws none.
template <typename E>
std::string error_of(const std::function<void()>& action);

}  // namespace shardloom::features::testing
