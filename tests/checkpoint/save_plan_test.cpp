// Who writes what of a checkpoint, and which folders of a run's checkpoints stay.
#include "shardloom/checkpoint/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/checkpoint/state_names.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SavePlan, EachRowIsWrittenOnceByTheRankWithLeastToWrite) {
  // Shards of w are on two ranks each (replicas), b is on all, own on one.
  const std::vector<std::vector<HeldRows>> held = {
      {{"w", 0, 100}, {"b", 0, 10}, {"own", 0, 60}},
      {{"w", 4, 100}, {"b", 0, 10}},
      {{"w", 0, 100}, {"b", 0, 10}},
      {{"w", 4, 100}, {"b", 0, 10}},
  };
  EXPECT_THAT(assign_writers(held),
              ElementsAre(ElementsAre(false, false, true),  // 60 already
                          ElementsAre(false, true),         // b, the lowest of two with nothing
                          ElementsAre(true, false), ElementsAre(true, false)));
  const std::vector<std::vector<HeldRows>> replicas(3, {{"a", 0, 1}, {"b", 0, 1}, {"c", 0, 1}});
  EXPECT_THAT(assign_writers(replicas),
              ElementsAre(ElementsAre(true, false, false), ElementsAre(false, true, false),
                          ElementsAre(false, false, true)));
}

TEST(SavePlan, TextOfRowsComesBack) {
  const std::vector<HeldRows> rows = {{"model.a b.weight", 7, uint64_t{1} << 40}, {"x", 0, 0}};
  EXPECT_EQ(held_rows_from_text(to_text(rows)), rows);
  EXPECT_THAT(held_rows_from_text(""), IsEmpty());
}

TEST(SaveRoot, IterationsAreReadFromNames) {
  const TemporaryFolder folder;
  for (const char* name :
       {"iter_0000030", "iter_0000004", "iter_0000005.tmp", "iter_x", "release", "iter_12345678"}) {
    fs::create_directories(folder.path() / name);
  }
  folder.write("iter_0000009", "a file");
  EXPECT_THAT(saved_iterations(folder.path()), ElementsAre(4, 30, 12345678));
  EXPECT_EQ(iteration_of_folder("a/iter_0000030/"), 30);
  EXPECT_EQ(iteration_of_folder("a/release"), std::nullopt);
  EXPECT_TRUE(is_release_folder("a/release/"));
}

TEST(SaveRoot, OlderOnesGoAndLeftoversOfCrashesToo) {
  const TemporaryFolder folder;
  const auto folders = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  };
  for (const char* name : {"iter_0000001", "iter_0000002", "iter_0000002.tmp", "iter_0000003",
                           "iter_0000009", "release", "iter_0000004.old"}) {
    folder.write(std::string(name) + "/.metadata", "x");
  }
  remove_older(folder.path(), 3, 1);
  EXPECT_THAT(folders(),
              ElementsAre("iter_0000003", "iter_0000004.old", "iter_0000009", "release"));
  fs::create_directories(folder.path() / "iter_0000005.tmp" / "deep");
  remove_leftovers(folder.path());
  EXPECT_THAT(folders(), ElementsAre("iter_0000003", "iter_0000004", "iter_0000009", "release"));
}

// What another program left half done neither counts nor is ours to remove.
TEST(SaveRoot, OnlyCompleteCheckpointsCountAndAreOffered) {
  const TemporaryFolder folder;
  folder.write("iter_0000001/.metadata", "x");
  folder.write("iter_0000002/__0_0.distcp", "half");
  folder.write("iter_0000003/model.safetensors", "x");
  folder.write("iter_4/.metadata", "a name that is not asked for");
  EXPECT_THAT(saved_iterations(folder.path()), ElementsAre(1, 2, 3));
  EXPECT_THAT(complete_iterations(folder.path()), ElementsAre(1, 3));
  EXPECT_THAT(choice_text(folder.path()), HasSubstr("checkpoints of iterations 1, 3: write"));
  EXPECT_THAT(error_of([&] { latest_below(folder.path()); }),
              AllOf(HasSubstr("has no latest_checkpointed_iteration.txt"),
                    HasSubstr("such as " + (folder.path() / "iter_0000003").string())));
  folder.write(kLatestFileName, std::string("\xff\n\0", 3) + std::string(1000, 'x'));
  EXPECT_THAT(error_of([&] { read_latest(folder.path()); }),
              AllOf(HasSubstr("\"\\xff\\x0a\\x00xxx"), HasSubstr("x...\" is neither"),
                    HasSubstr("iterations 1, 3")));
  write_latest(folder.path(), 9);
  EXPECT_THAT(
      error_of([&] { latest_below(folder.path()); }),
      AllOf(HasSubstr("names iter_0000009, which does not exist"), HasSubstr("iterations 1, 3")));
  remove_older(folder.path(), 5, 2);
  EXPECT_THAT(saved_iterations(folder.path()), ElementsAre(2, 3));
  // A folder with files of its own is meant itself.
  EXPECT_EQ(latest_below(folder.path() / "iter_0000003"), folder.path() / "iter_0000003");
}

TEST(StateNames, AreThoseOfTheReference) {
  EXPECT_EQ(model_key("a.b.weight").name, "model.a.b.weight");
  EXPECT_EQ(model_key("a.b", kWrapperPrefix).path, (dcp::StatePath{"model", "model.a.b"}));
  EXPECT_EQ(optimizer_state_key("a.b", kExpAvg).path,
            (dcp::StatePath{"optimizer", "state", "a.b", "exp_avg"}));
  EXPECT_EQ(param_group_key(0, "lr").name, "optimizer.param_groups.0.lr");
  EXPECT_EQ(param_group_key(0, "lr").path,
            (dcp::StatePath{"optimizer", "param_groups", int64_t{0}, "lr"}));
}

TEST(StateNames, PrefixIsThatOfMostNames) {
  dcp::Metadata metadata;
  metadata.tensors["model.a"];
  metadata.tensors["model.model.a"];
  EXPECT_EQ(detect_prefix(metadata, {"a", "b"}), kNoPrefix);
  metadata.tensors["model.model.b"];
  EXPECT_EQ(detect_prefix(metadata, {"a", "b"}), kWrapperPrefix);
  EXPECT_EQ(detect_prefix({}, {"a", "b"}), kNoPrefix);
}

}  // namespace
}  // namespace shardloom::checkpoint
