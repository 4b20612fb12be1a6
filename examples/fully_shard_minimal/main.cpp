// fully_shard by itself: a small network on two ranks of this host, without trainer or YAML file.
//   build/release/bin/fully_shard_minimal
#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>

#include "shardloom/distributed/launcher.h"
#include "shardloom/nn/layers.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/parallel/fully_shard.h"

using namespace shardloom;

struct Block : nn::Callable<Block> {
  Block() { register_module("up", up), register_module("down", down); }
  at::Tensor forward(const at::Tensor& x) { return x + down(at::gelu(up(x))); }
  nn::Linear up{64, 256, true, at::kFloat}, down{256, 64, true, at::kFloat};
};

struct Net : nn::Callable<Net> {
  Net() {
    for (int i = 0; i < 4; ++i) blocks.emplace_back();
    register_module("blocks", blocks), register_module("head", head);
    for (auto& p : named_parameters()) p.tensor->normal_(0, 0.05).requires_grad_();
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) x = (*block)(x);
    return head(x);
  }
  nn::ModuleList<Block> blocks;
  nn::Linear head{64, 1, true, at::kFloat};
};

int main() {
  // Started by hand it starts two copies of itself, which find each other by RANK and WORLD_SIZE.
  if (std::getenv("RANK") == nullptr)
    return distributed::launch({.command = {"/proc/self/exe"}, .nproc = 2});
  const auto world = distributed::World::connect(distributed::WorldOptions::from_environment());
  const auto mesh = std::make_shared<distributed::DeviceMesh>(
      *world, std::vector<std::pair<std::string, int>>{{"dp_shard", world->size()}});

  at::manual_seed(0);  // the same weights on both ranks before they are cut
  Net net;
  for (auto& block : net.blocks) parallel::fully_shard(*block, mesh);
  parallel::fully_shard(net, mesh);

  at::manual_seed(1 + world->rank());  // other samples on each rank
  optim::AdamW adam({});
  for (int step = 1; step <= 50; ++step) {
    const at::Tensor x = at::randn({32, 64}), y = x.narrow(1, 0, 8).sum(1, true);
    const at::Tensor loss = at::mse_loss(net(x), y);
    loss.backward();
    std::vector<optim::OptimizedTensor> shards;
    for (auto& p : parallel::sharded_parameters(net))
      shards.push_back({p.tensor.name, p.tensor.local, p.parameter.grad()});
    adam.step(shards, /*learning_rate=*/3e-3, /*grad_scale=*/1.0);
    for (auto& p : parallel::sharded_parameters(net)) p.parameter.mutable_grad().reset();
    if (world->rank() == 0 && step % 10 == 0)
      std::printf("step %d loss %.4f\n", step, loss.item<float>());
  }
}
