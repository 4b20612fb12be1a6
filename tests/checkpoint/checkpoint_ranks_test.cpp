// The state of several ranks through a checkpoint into that of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/checkpoint_reader.h"
#include "shardloom/checkpoint/checkpoint_saver.h"
#include "shardloom/checkpoint/dcp/rank_writer.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/distributed/world.h"
#include "tests/distributed/ranks.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;
using distributed::ShardedTensor;
using distributed::World;
using distributed::testing::expect_ranks;
using distributed::testing::rank_values;
using distributed::testing::RankContext;
using distributed::testing::same_bits;
using ::testing::HasSubstr;

// With fewer rows than ranks, and with none.
const std::vector<std::vector<int64_t>> kShapes = {{7, 5}, {9}, {2, 3, 4}, {1, 6}, {0, 3}, {16, 2}};

at::Tensor whole_value(size_t index) {
  return rank_values(0, kShapes[index], at::kFloat, static_cast<int>(index));
}

std::vector<ShardedTensor> sharded(const std::shared_ptr<distributed::Group>& group, bool filled) {
  std::vector<ShardedTensor> tensors;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    const auto rows = distributed::shard_rows(kShapes[i][0], group->rank(), group->size());
    const at::Tensor values = whole_value(i).narrow(0, rows.first, rows.count).clone();
    tensors.push_back({"t" + std::to_string(i), filled ? values : at::zeros_like(values),
                       kShapes[i], rows.first, group});
  }
  return tensors;
}

std::shared_ptr<World> world_of(const RankContext& context) {
  return World::over(context.store, context.rank, context.size, distributed::BackendKind::kShm);
}

CheckpointState state_of(const std::vector<ShardedTensor>& tensors, int rank) {
  CheckpointState state;
  for (const ShardedTensor& t : tensors) state.tensors.push_back({model_key(t.name), t});
  // Whole on every rank: one of them writes it.
  state.tensors.push_back({model_key("all"), ShardedTensor::whole("all", at::full({3}, 5.0f))});
  state.tensors.push_back({model_key("scalar"), ShardedTensor::whole("", at::full({}, 6.0f))});
  state.tensors.push_back({model_key(fmt::format("of_{}", rank)),
                           ShardedTensor::whole("", at::full({4}, rank, at::kLong)), DType::kI64});
  state.values.push_back({extra_state_key("iteration"), 3});
  return state;
}

void save_on(int size, const fs::path& root, bool in_background) {
  expect_ranks(size, [&](const RankContext& context) {
    const auto world = world_of(context);
    CheckpointSaver saver(root, world->group(), {.in_background = in_background});
    const auto tensors = sharded(world->group(), true);
    saver.prepare(state_of(tensors, context.rank));
    saver.save(3, state_of(tensors, context.rank));
    // What is written in the background is a copy.
    if (in_background) {
      for (const ShardedTensor& t : tensors) t.local.zero_();
    }
    saver.finish();
    EXPECT_FALSE(saver.is_open());
    EXPECT_EQ(read_latest(root).iteration, 3);
  });
}

TEST(Checkpoint, AnyNumberOfRanksReadsWhatAnyOtherWrote) {
  for (const int writers : {1, 2, 3, 4}) {
    const TemporaryFolder folder;
    save_on(writers, folder.path(), writers % 2 == 0);
    for (const int readers : {1, 2, 3, 5}) {
      expect_ranks(readers, [&](const RankContext& context) {
        const auto world = world_of(context);
        const dcp::Reader reader(read_latest(folder.path()).folder, {.verify_crc = true});
        auto tensors = sharded(world->group(), false);
        tensors.push_back(ShardedTensor::whole("all", at::zeros({3})));
        tensors.push_back(ShardedTensor::whole("scalar", at::zeros({})));
        for (int rank = 0; rank < writers; ++rank) {
          tensors.push_back(
              ShardedTensor::whole(fmt::format("of_{}", rank), at::zeros({4}, at::kLong)));
        }
        load_dcp_weights(reader, tensors, {.verbose = false});
        const auto expected = sharded(world->group(), true);
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(same_bits(tensors[i].local, expected[i].local)) << i;
        EXPECT_EQ(tensors[kShapes.size()].local[2].item<float>(), 5.0f);
        EXPECT_EQ(tensors[kShapes.size() + 1].local.item<float>(), 6.0f);
        EXPECT_EQ(tensors.back().local[3].item<int64_t>(), writers - 1);
        EXPECT_EQ(python_text(reader.value("extra_state.iteration")), "3");
      });
    }
  }
}

TEST(Checkpoint, FailureOfOneRankIsTheSameErrorOnAllAndLeavesTheOldOne) {
  for (const bool in_background : {false, true}) {
    const TemporaryFolder folder;
    save_on(3, folder.path(), false);
    expect_ranks(3, [&](const RankContext& context) {
      ::signal(SIGXFSZ, SIG_IGN);
      const auto world = world_of(context);
      CheckpointSaver saver(folder.path(), world->group(), {.in_background = in_background});
      // Enough for messages of the test, less than the rank's own tensor.
      const rlimit limit{1 << 20, 1 << 20};
      if (context.rank == 1) {
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
      }
      std::string error;
      try {
        CheckpointState state = state_of(sharded(world->group(), true), context.rank);
        state.tensors.push_back({model_key(fmt::format("big_{}", context.rank)),
                                 ShardedTensor::whole("", at::zeros({1 << 20}))});
        saver.save(4, state);
        saver.finish();
      } catch (const CheckpointError& caught) {
        error = caught.what();
      }
      EXPECT_THAT(error, HasSubstr("cannot write"));
      EXPECT_THAT(error, HasSubstr("iter_0000004: rank 1: "));
      world->group()->barrier();
      EXPECT_EQ(saved_iterations(folder.path()), std::vector<int64_t>{3});
      EXPECT_FALSE(fs::exists(folder.path() / "iter_0000004.tmp"));
      EXPECT_EQ(read_latest(folder.path()).iteration, 3);
    });
  }
}

TEST(Checkpoint, DroppedSaverLeavesNothing) {
  const TemporaryFolder folder;
  expect_ranks(2, [&](const RankContext& context) {
    const auto world = world_of(context);
    {
      CheckpointSaver saver(folder.path(), world->group(), {.in_background = true});
      saver.save(4, state_of(sharded(world->group(), true), context.rank));
      world->group()->barrier();
    }
    world->group()->barrier();
    EXPECT_TRUE(fs::is_empty(folder.path()));
  });
}

// Two tensors with the prefix of mm-convert.
class Weights : public ::testing::Test {
 protected:
  void write(const std::vector<std::string>& names, DType dtype = DType::kF32) {
    fs::remove_all(folder_.path());
    fs::create_directories(folder_.path());
    dcp::RankWriter writer(folder_.path(), 0);
    for (const std::string& name : names) {
      const at::Tensor value = at::arange(6, at::kFloat).to(scalar_type_of_state(dtype));
      writer.add_tensor({name, dtype, {2, 3}}, {{0, 0}, {2, 3}}, {name}, [&](const auto& sink) {
        sink({static_cast<const char*>(value.const_data_ptr()), value.nbytes()});
      });
    }
    dcp::write_metadata(folder_.path(), writer.finish());
  }

  // The error, or "".
  std::string load(bool strict, const std::function<bool(const std::string&)>& may_ignore = {}) {
    for (ShardedTensor& p : parameters_) p.local.zero_();
    try {
      load_dcp_weights(dcp::Reader(folder_.path(), {.verify_crc = true}), parameters_,
                       {.strict = strict, .verbose = false, .may_ignore = may_ignore});
      return "";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  }

  const TemporaryFolder folder_;
  std::vector<ShardedTensor> parameters_ = {ShardedTensor::whole("a.weight", at::zeros({2, 3})),
                                            ShardedTensor::whole("b.weight", at::zeros({2, 3}))};
};

TEST_F(Weights, BothPrefixesAreRecognised) {
  for (const std::string prefix : {"model.", "model.model."}) {
    write({prefix + "a.weight", prefix + "b.weight", "optimizer.state.x.step"});
    EXPECT_EQ(load(true), "");
    for (const ShardedTensor& p : parameters_) EXPECT_EQ(p.local[1][2].item<float>(), 5.0f);
  }
}

TEST_F(Weights, NothingThatFitsIsAnErrorEvenWhenLoose) {
  write({"model.foo.a.weight", "model.foo.b.weight"});
  EXPECT_THAT(load(/*strict=*/false), HasSubstr("Not one of the names fits"));
  write({"model.a.weight"});
  EXPECT_EQ(load(/*strict=*/false), "");
}

TEST_F(Weights, OtherFloatingTypesAreConverted) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF64}) {
    write({"model.a.weight", "model.b.weight"}, dtype);
    EXPECT_EQ(load(true), "");
    EXPECT_EQ(parameters_[1].local[1][1].item<float>(), 4.0f);
  }
  write({"model.a.weight", "model.b.weight"}, DType::kI64);
  EXPECT_THAT(load(true), HasSubstr("has type I64"));
}

TEST_F(Weights, NamesThatDoNotFitAreListedWithTheNearest) {
  write({"model.a.weight", "model.b.weigth", "model.old"});
  const std::string error = load(true);
  EXPECT_THAT(error,
              HasSubstr("1 missing (the model needs them):\n    model.b.weight (did you mean "
                        "model.b.weigth?)"));
  EXPECT_THAT(error, HasSubstr("2 unexpected (the model has no place for them):\n    "
                               "model.b.weigth\n    model.old"));
  EXPECT_EQ(load(false), "");
  EXPECT_EQ(parameters_[0].local[1][2].item<float>(), 5.0f);
  EXPECT_EQ(parameters_[1].local[1][2].item<float>(), 0.0f);

  write({"model.model.a.weight", "model.model.b.weight", "model.model.c"});
  EXPECT_THAT(load(true), HasSubstr("1 unexpected"));
  EXPECT_EQ(load(true, [](const std::string& name) { return name == "c"; }), "");
}

TEST_F(Weights, OtherShapesAreErrorsAlways) {
  write({"model.a.weight", "model.b.weight"});
  parameters_[1] = ShardedTensor::whole("b.weight", at::zeros({3, 2}));
  EXPECT_THAT(load(false), HasSubstr("model.b.weight: [2, 3] in the checkpoint, [3, 2] is wanted"));
}

}  // namespace
}  // namespace shardloom::checkpoint
