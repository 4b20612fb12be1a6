// Small models with odd sizes, how they are sharded, and what one process computes without
// sharding.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shardloom/nn/layers.h"
#include "shardloom/parallel/fully_shard.h"
#include "tests/distributed/ranks.h"

namespace shardloom::parallel::testing {

using distributed::BackendKind;
using distributed::DeviceMesh;
using distributed::World;
using distributed::testing::expect_ranks;
using distributed::testing::RankContext;
using distributed::testing::same_bits;

// x + down(gelu(up(norm(x))))
class Block : public nn::Callable<Block> {
 public:
  Block(int64_t dim, int64_t hidden);
  at::Tensor forward(const at::Tensor& x);
  nn::RmsNorm norm;
  nn::Linear up, down;
};

struct NetSizes {
  int64_t vocab = 101;
  int64_t dim = 33;
  int64_t hidden = 67;
  int64_t blocks = 3;
};

// Embedding, blocks, head: [B, S] ids -> [B, S, vocab].
class Net : public nn::Callable<Net> {
 public:
  explicit Net(const NetSizes& sizes = {});
  at::Tensor forward(const at::Tensor& ids);
  nn::Embedding embed;
  nn::ModuleList<Block> blocks;
  nn::Linear head;
};

// Blocks alone, so that the input needs no gradient: [B, dim] -> [B, dim].
class Tower : public nn::Callable<Tower> {
 public:
  explicit Tower(int64_t blocks = 3, int64_t dim = 5, int64_t hidden = 7);
  at::Tensor forward(const at::Tensor& x);
  nn::ModuleList<Block> blocks;
  nn::Linear head;
};

// x times the sum of the squares of its parameters "w0", "w1", ... of any shapes and types.
class Weights : public nn::Callable<Weights> {
 public:
  explicit Weights(const std::vector<at::Tensor>& values);
  at::Tensor forward(const at::Tensor& x);
  std::deque<at::Tensor> w;
};

// The same values on every rank and in every process; trained.
void fill_parameters(nn::Module& module, uint64_t seed = 1);

std::shared_ptr<World> world_of(const RankContext& rank, BackendKind backend = BackendKind::kShm);
std::shared_ptr<const DeviceMesh> mesh_of(const RankContext& rank,
                                          BackendKind backend = BackendKind::kShm);
// (replicate, shard) with `replicas` copies.
std::shared_ptr<const DeviceMesh> hsdp_mesh_of(const RankContext& rank, int replicas);

// Each block a unit, then the root.
template <typename T>
void shard_blocks(T& net,
                  const std::shared_ptr<const DeviceMesh>& mesh,
                  const FullyShardOptions& options = {}) {
  for (auto& block : net.blocks) fully_shard(*block, mesh, options);
  fully_shard(net, mesh, options);
}

// Token ids of rank `rank` at step `step`, [2, 5]; inputs of a Tower, [4, dim].
at::Tensor ids_of(int rank, int step, const NetSizes& sizes = {});
at::Tensor inputs_of(int rank, int step, int64_t dim = 5);
// Mean cross entropy of predicting the ids themselves shifted by one (rolled).
at::Tensor loss_of(Net& net, const at::Tensor& ids);
at::Tensor loss_of(Tower& net, const at::Tensor& inputs);
at::Tensor loss_of(Weights& net, const at::Tensor& inputs);

using Tensors = std::map<std::string, at::Tensor>;

// named_parameters() with each tied one once, under its first name.
std::vector<nn::NamedTensor> unique_parameters(const nn::Module& module);
// Gradients of the whole parameters, names as in the module; undefined ones are left out.
Tensors gradients(nn::Module& module);
Tensors values(nn::Module& module);
// Of a sharded module: this rank's rows of the local gradients / values are compared with those of
// `whole`, bit for bit, or within `tolerance` absolute.
void expect_gradients(nn::Module& sharded, const Tensors& whole, double tolerance = 0);
void expect_values(nn::Module& sharded, const Tensors& whole, double tolerance = 0);

// Sums in rank order of one process that runs the batches of all ranks one after the other, divided
// by their number; the module keeps them as its gradients.
template <typename T, typename Inputs>
std::vector<double> run_serially(T& net, int ranks, int step, const Inputs& inputs) {
  std::vector<double> losses;
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Tensor loss = loss_of(net, inputs(rank, step));
    losses.push_back(loss.template item<double>());
    loss.backward();
  }
  for (const auto& p : unique_parameters(net)) {
    if (p.tensor->grad().defined()) p.tensor->mutable_grad().div_(ranks);
  }
  return losses;
}

// p -= lr * grad, elementwise, and clears the gradients.
void step_whole(nn::Module& module, double lr = 0.05);
void step_sharded(nn::Module& module, double lr = 0.05);

// A training step of the sharded and of the whole module: loss, gradients, updated values.
template <typename T, typename Inputs>
void expect_same_step(T& whole,
                      T& net,
                      const RankContext& rank,
                      int step,
                      const Inputs& inputs,
                      double tolerance = 0) {
  const auto losses = run_serially(whole, rank.size, step, inputs);
  const at::Tensor loss = loss_of(net, inputs(rank.rank, step));
  loss.backward();
  EXPECT_NEAR(loss.template item<double>(), losses[rank.rank], tolerance) << "step " << step;
  expect_gradients(net, gradients(whole), tolerance);
  step_whole(whole);
  step_sharded(net);
  expect_values(net, values(whole), tolerance);
}

// Same with the inputs that the loss of the module is made for.
void expect_same_step(
    Net& whole, Net& net, const RankContext& rank, int step, double tolerance = 0);
void expect_same_step(
    Tower& whole, Tower& net, const RankContext& rank, int step, double tolerance = 0);

// "AG root", "RS blocks.0", ...: all events but reshards unless asked for.
class EventRecorder {
 public:
  explicit EventRecorder(nn::Module& root, bool with_reshards = false);
  std::vector<std::string> take();
  int count(const std::string& kind) const;  // "AG", "RS", "AR", of what take() has not taken
  // "AG 3 RS 2 AR 0", and forgets them.
  std::string take_counts();

 private:
  std::shared_ptr<std::vector<std::string>> events_ = std::make_shared<std::vector<std::string>>();
};

// The message of the ConfigError that `action` throws; fails the test when it throws nothing.
std::string config_error(const std::function<void()>& action);

}  // namespace shardloom::parallel::testing
