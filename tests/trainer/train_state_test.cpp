// The state of a run besides its tensors: to values and back, and what may differ on a resume.
#include "shardloom/trainer/train_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/rank_writer.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TrainState example() {
  TrainState state;
  state.iteration = 30;
  state.consumed_samples = int64_t{1} << 40;
  state.optimizer_steps = 29;
  state.skipped_samples = 3;
  state.data = "5 samples of n5.jsonl";
  state.shuffle = true;
  state.shuffle_seed = "training";
  state.seed = 42;
  state.shuffled_samples = 5;
  state.samples_per_epoch = 4;
  state.global_batch_size = 2;
  state.world_size = 2;
  state.train_iters = 60;
  state.lr_warmup_iters = 6;
  state.lr = 0.1;
  state.lr_start = 1e-7;
  state.lr_min = 1.0 / 3;
  state.lr_decay_ratio = 1;
  state.lr_decay_style = "cosine";
  return state;
}

class TrainStates : public ::testing::Test {
 protected:
  void write(const std::vector<checkpoint::StateValue>& values) {
    std::filesystem::remove_all(folder_.path());
    std::filesystem::create_directories(folder_.path());
    checkpoint::dcp::RankWriter writer(folder_.path(), 0);
    for (const auto& v : values) writer.add_value(v.key.name, v.key.path, v.value);
    checkpoint::dcp::write_metadata(folder_.path(), writer.finish());
  }

  std::string read_error() {
    try {
      read_train_state(checkpoint::dcp::Reader(folder_.path()));
      return "";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  }

  const TemporaryFolder folder_;
};

TEST_F(TrainStates, ValuesComeBackExactly) {
  const TrainState state = example();
  write(to_values(state));
  const auto read = read_train_state(checkpoint::dcp::Reader(folder_.path()));
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(*read == state);
  EXPECT_EQ(read->cut(), (data::EpochCut{.shuffled = 5, .used = 4}));
}

// Checkpoints that were written before they were counted over restarts.
TEST_F(TrainStates, SkippedSamplesMayBeMissing) {
  auto values = to_values(example());
  ASSERT_EQ(std::erase_if(
                values, [](const auto& v) { return v.key.name == "extra_state.skipped_samples"; }),
            1u);
  write(values);
  TrainState wanted = example();
  wanted.skipped_samples = 0;
  EXPECT_TRUE(read_train_state(checkpoint::dcp::Reader(folder_.path())) == wanted);
}

TEST_F(TrainStates, WhatIsMissingWrongOrImpossibleIsNamed) {
  write({});
  EXPECT_FALSE(read_train_state(checkpoint::dcp::Reader(folder_.path())).has_value());
  auto values = to_values(example());
  const auto value_of = [&](const std::string& name) -> checkpoint::dcp::PythonValue& {
    for (auto& v : values) {
      if (v.key.name == name) return v.value;
    }
    throw InternalError("no {}", name);
  };
  value_of("extra_state.seed") = "many";
  write(values);
  EXPECT_THAT(read_error(), HasSubstr("\"extra_state.seed\" is 'many'"));
  value_of("extra_state.seed") = 1;
  value_of("extra_state.samples_per_epoch") = 0;
  write(values);
  EXPECT_THAT(read_error(), HasSubstr("samples of an epoch 0 of 5 cannot be"));
  value_of("extra_state.samples_per_epoch") = 4;
  value_of("extra_state.world_size") = 0;
  write(values);
  EXPECT_THAT(read_error(), HasSubstr("world size 0"));
  value_of("extra_state.world_size") = 2;
  values.pop_back();
  write(values);
  EXPECT_THAT(read_error(), HasSubstr("no value \"extra_state.lr_decay_style\""));
}

TEST(TrainState, SeedIsRefusedOnlyWhereItOrdersTheData) {
  TrainState saved = example(), now = saved;
  now.seed = 43;
  EXPECT_THAT(compare(saved, now).refused,
              ElementsAre("training.seed is 43, in the checkpoint 42"));
  saved.shuffle_seed = now.shuffle_seed = "epoch";
  EXPECT_THAT(compare(saved, now).refused, IsEmpty());
  EXPECT_THAT(compare(saved, now).announced, ElementsAre(HasSubstr("training.seed is 43")));
  saved.shuffle = now.shuffle = false;
  now.shuffle_seed = "training";
  EXPECT_THAT(compare(saved, now).refused, IsEmpty());
}

// The cut of an epoch and the number of ranks are the saved run's business.
TEST(TrainState, SizesOfRanksAreNoChange) {
  const TrainState saved = example();
  TrainState now = saved;
  now.world_size = 8;
  now.shuffled_samples = now.samples_per_epoch = 5;
  EXPECT_THAT(compare(saved, now).refused, IsEmpty());
  EXPECT_THAT(compare(saved, now).announced, IsEmpty());
}

TEST(TrainState, EveryPartOfTheScheduleIsAnnounced) {
  const TrainState saved = example();
  TrainState now = saved;
  now.train_iters = 90;
  now.lr_warmup_iters = 9;
  now.lr = 0.2;
  now.lr_start = 0;
  now.lr_min = 0;
  now.lr_decay_ratio = 0.5;
  now.lr_decay_style = "linear";
  now.global_batch_size = 4;
  EXPECT_EQ(compare(saved, now).announced.size(), 8u);
  EXPECT_THAT(compare(saved, now).refused, IsEmpty());
}

}  // namespace
}  // namespace shardloom::trainer
