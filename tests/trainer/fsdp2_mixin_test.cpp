// FSDP2Mixin against the schedule that it leads to, on two ranks without communication.
#include "shardloom/trainer/pretrain/fsdp2_mixin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/nn/layers.h"
#include "shardloom/parallel/unit_schedule.h"

namespace shardloom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Stack : public models::Model, public FSDP2Mixin {
 public:
  Stack() {
    for (int i = 0; i < 3; ++i) blocks.emplace_back(4, 4, true, options_);
    register_module("blocks", blocks);
    register_module("head", head);
  }
  models::Model& model() override { return *this; }
  void init_parameter(const std::string&, const at::Tensor&) const override {}
  models::TensorMap idle_batch() const override { return {}; }
  std::string export_config(const std::string&, nn::Layout) const override { return "{}"; }

 protected:
  at::Tensor forward_logits(const models::TensorMap&) override { return {}; }
  models::ModelOutput forward_loss(const models::TensorMap&, const models::LossTargets&) override {
    return {};
  }

 public:
  at::TensorOptions options_ = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  nn::ModuleList<nn::Linear> blocks;
  nn::Linear head{4, 4, true, options_};
};

struct Sharded {
  std::vector<std::string> units;
  std::vector<std::vector<size_t>> forward_prefetch;  // of each unit
};

Sharded shard(Stack& model, const Fsdp2Config& fsdp2) {
  const auto world = distributed::World::fake(0, 2);
  const auto meshes = distributed::ParallelMeshes::make(
      *world, distributed::ParallelDims::from_sizes(2, 2, 1, 1, 0, 1));
  config::TrainConfig config;
  config.parallel.fsdp_plan.apply_modules = fsdp2.sub_modules_to_wrap;
  const std::vector<std::string> order = model.execution_order();
  model.fully_shard(config, meshes, fsdp2);
  Sharded sharded;
  const parallel::UnitSchedule schedule = parallel::schedule_of(model, order);
  for (const parallel::UnitInfo& unit : schedule.units()) {
    sharded.units.push_back(unit.name);
    sharded.forward_prefetch.push_back(unit.forward_prefetch);
  }
  return sharded;
}

TEST(Fsdp2Mixin, ShardsAndPrefetchesInTheOrderOfTheTree) {
  Stack model;
  Fsdp2Config fsdp2;
  fsdp2.sub_modules_to_wrap = {"head", "blocks.{2,0}"};
  fsdp2.num_to_forward_prefetch = 1;
  const Sharded sharded = shard(model, fsdp2);
  EXPECT_THAT(sharded.units, ElementsAre("(root)", "blocks.0", "blocks.2", "head"));
  EXPECT_THAT(sharded.forward_prefetch,
              ElementsAre(ElementsAre(), ElementsAre(2u), ElementsAre(3u), ElementsAre()));
}

class Chooses : public Stack {
 protected:
  void _fully_shard(const Fsdp2Kwargs& fsdp2_kwargs, const Fsdp2Config& config) override {
    EXPECT_EQ(config.param_dtype, "bf16");
    for (auto& block : blocks)
      parallel::fully_shard(*block, fsdp2_kwargs.mesh, fsdp2_kwargs.options);
    parallel::fully_shard(*this, fsdp2_kwargs.mesh, fsdp2_kwargs.options);
    set_modules_to_prefetch({"blocks.{*}"}, 2, 0);
  }
};

TEST(Fsdp2Mixin, AnOverrideChoosesItsUnits) {
  Chooses model;
  Fsdp2Config fsdp2;
  fsdp2.param_dtype = "bf16";
  const Sharded sharded = shard(model, fsdp2);
  EXPECT_EQ(sharded.units.size(), 4u);
  EXPECT_THAT(sharded.forward_prefetch[1], ElementsAre(2u, 3u));
}

class Forgets : public Stack {
 protected:
  void _fully_shard(const Fsdp2Kwargs& fsdp2_kwargs, const Fsdp2Config&) override {
    parallel::fully_shard(head, fsdp2_kwargs.mesh, fsdp2_kwargs.options);
  }
};

std::string fault_of(Stack& model, const Fsdp2Config& fsdp2) {
  try {
    shard(model, fsdp2);
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Fsdp2Mixin, AnOverrideThatForgetsTheModelIsNamed) {
  Forgets model;
  EXPECT_THAT(fault_of(model, {}), HasSubstr("_fully_shard() did not shard the model itself"));
}

TEST(Fsdp2Mixin, ModulesOfNoNameAreAnError) {
  Stack model;
  Fsdp2Config fsdp2;
  fsdp2.recompute_modules = {"layers.{*}"};
  EXPECT_THAT(fault_of(model, fsdp2), HasSubstr("recompute_modules"));
}

}  // namespace
}  // namespace shardloom
