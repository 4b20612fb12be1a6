// resolve_for_world(): sizes against the number of processes.
#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainConfig resolved(const std::vector<std::string>& overrides, int64_t world) {
  LoadedConfig loaded = parse_all(minimal(), overrides);
  resolve_for_world(loaded, world);
  return loaded.config;
}

std::string world_error(const std::vector<std::string>& overrides, int64_t world) {
  return error_of([&] { resolved(overrides, world); });
}

TEST(World, FillsTheGlobalBatch) {
  const TrainConfig config =
      resolved({"training.micro_batch_size=2", "training.gradient_accumulation_steps=3"}, 4);
  EXPECT_EQ(config.training.global_batch_size, 24);
  EXPECT_EQ(config.parallel.data_parallel_size, 4);
  EXPECT_EQ(config.parallel.fully_shard_parallel_size, 4);
}

TEST(World, NothingGivenIsOneMicroBatchPerRank) {
  const TrainConfig config = resolved({}, 2);
  EXPECT_EQ(config.training.micro_batch_size, 1);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 1);
  EXPECT_EQ(config.training.global_batch_size, 2);
}

TEST(World, FillsTheAccumulation) {
  const TrainConfig config =
      resolved({"training.global_batch_size=16", "training.micro_batch_size=2"}, 2);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 4);
}

TEST(World, FillsTheMicroBatch) {
  const TrainConfig config =
      resolved({"training.global_batch_size=16", "training.gradient_accumulation_steps=4"}, 2);
  EXPECT_EQ(config.training.micro_batch_size, 2);
}

TEST(World, ContextParallelRanksShareSamples) {
  const TrainConfig config =
      resolved({"parallel.ulysses_parallel_size=2", "training.micro_batch_size=2"}, 4);
  EXPECT_EQ(config.parallel.data_parallel_size, 2);
  EXPECT_EQ(config.training.global_batch_size, 4);
  EXPECT_EQ(config.parallel.fully_shard_parallel_size, 4);
}

TEST(World, BatchRelation) {
  EXPECT_EQ(world_error({"training.global_batch_size=3"}, 2),
            "override training.global_batch_size=3: training.global_batch_size is 3, but "
            "micro_batch_size 1 x "
            "data-parallel size 2 = 2; nearest multiples: 2 or 4");
  EXPECT_THAT(world_error({"training.global_batch_size=1"}, 4), HasSubstr("nearest multiple: 4"));
  EXPECT_THAT(world_error({"training.global_batch_size=8", "training.micro_batch_size=2",
                           "training.gradient_accumulation_steps=2"},
                          4),
              HasSubstr("x gradient_accumulation_steps 2 = 16; set it to 16"));
}

TEST(World, DerivedSizesAreExplained) {
  LoadedConfig loaded =
      parse_all(minimal(), {"training.global_batch_size=16", "training.micro_batch_size=2"});
  resolve_for_world(loaded, 2);
  const std::string text = loaded.dump(true);
  EXPECT_THAT(text, HasSubstr("gradient_accumulation_steps: 4  # derived for world size 2"));
  EXPECT_THAT(text, HasSubstr("micro_batch_size: 2  # override training.micro_batch_size=2"));
}

TEST(World, NumberOfProcesses) {
  EXPECT_THAT(world_error({}, 0),
              HasSubstr("the number of processes must be between 1 and 1000000, got 0"));
}

TEST(World, ParallelSizes) {
  EXPECT_THAT(world_error({"parallel.ulysses_parallel_size=2"}, 3),
              HasSubstr("the world size 3 is not a multiple of"));
  EXPECT_THAT(world_error({"parallel.data_parallel_size=3"}, 4),
              HasSubstr("is 3, but 4 processes make 4"));
  EXPECT_THAT(world_error({"parallel.fully_shard_parallel_size=3"}, 4),
              HasSubstr("fully_shard_parallel_size is 3"));
  EXPECT_THAT(
      world_error({"parallel.fully_shard_parallel_size=1", "parallel.ulysses_parallel_size=2"}, 4),
      HasSubstr("must be a multiple of ring x ulysses = 2"));
  EXPECT_THAT(
      world_error({"parallel.expert_parallel_size=3", "parallel.ep_plan.apply_modules=[x]"}, 4),
      HasSubstr("expert_parallel_size does not fit"));
  EXPECT_EQ(
      resolved({"parallel.fully_shard_parallel_size=2"}, 4).parallel.fully_shard_parallel_size, 2);
}

TEST(World, AllFaultsAtOnce) {
  EXPECT_THAT(world_error({"parallel.data_parallel_size=3", "training.global_batch_size=3"}, 4),
              AllOf(HasSubstr("data_parallel_size is 3"), HasSubstr("global_batch_size is 3")));
}

}  // namespace
}  // namespace shardloom::config
