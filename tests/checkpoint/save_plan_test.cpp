// Who writes what of a checkpoint, and which folders of a run's checkpoints stay.
#include "shardloom/checkpoint/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/checkpoint/state_names.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
