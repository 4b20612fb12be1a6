// CFG-01: misspelt and misplaced keys.
#include <fstream>
#include <nlohmann/json.hpp>

#include "shardloom/config/suggest.h"
#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* file;
  const char* error;  // after "<path>:"; "" when the file is good
};

// The files of expected.json, and the place besides.
const Case kCases[] = {
    {"typo_leaf.yaml",
     "4:3: unknown key parallel.expert_paralel_size (did you mean expert_parallel_size?)"},
    {"typo_feature.yaml", "16:3: unknown key features.recompte (did you mean recompute?)"},
    {"hyphen.yaml", "33:3: unknown key training.train-iters (did you mean train_iters?)"},
    {"wrong_section.yaml", "30:3: unknown key training.enable_chunk_loss (belongs under features)"},
    {"top_level_lr.yaml", "39:1: unknown top-level key lr (belongs under training)"},
    {"typo_section.yaml",
     "15:1: unknown section feature; all its keys would be lost (did you mean features?)"},
    {"indent_slip.yaml",
     "14:3: unknown key parallel.num_to_backward_prefetch (belongs under parallel.fsdp_plan)"},
    {"case.yaml", "39:3: unknown key training.Load_Strict (did you mean load_strict?)"},
    {"plan_without_switch.yaml", ""},
    {"switch_without_plan.yaml",
     "18:30: features.enable_activation_offload needs "
     "features.activation_offload_plan.apply_modules"},
};

TEST(UnknownKey, EveryFileOfTheCase) {
  const auto expected = nlohmann::json::parse(std::ifstream(data_path("cfg_01/expected.json")));
  ASSERT_EQ(expected.at("files").size(), std::size(kCases));
  for (const Case& c : kCases) {
    const std::string path = data_path(std::string("cfg_01/") + c.file);
    const std::string outcome = expected.at("files").at(c.file);
    EXPECT_EQ(std::string(c.error).empty(), outcome.starts_with("ok")) << c.file;
    const std::string error = error_of([&] { load_train_config(path, {}, FeatureCheck::kAll); });
    EXPECT_EQ(error, std::string(c.error).empty() ? "" : path + ":" + c.error);
  }
}

TEST(UnknownKey, IsReportedBesideWhatIsNotBuiltYet) {
  const std::string path = data_path("cfg_01/typo_leaf.yaml");
  const std::string error = error_of([&] { load_train_config(path, {"training.optimizer=muon"}); });
  EXPECT_THAT(error, HasSubstr(path + ":4:3: unknown key parallel.expert_paralel_size"));
  EXPECT_THAT(error, HasSubstr("training.optimizer muon is not supported yet"));
}

TEST(UnknownKey, BaseFileIsGood) {
  const LoadedConfig loaded =
      load_train_config(data_path("cfg_01/base.yaml"), {}, FeatureCheck::kAll);
  EXPECT_TRUE(loaded.warnings.empty());
  EXPECT_EQ(loaded.config.training.lr, 1e-5);
  EXPECT_EQ(loaded.config.parallel.fsdp_plan.apply_modules.size(), 5u);
}

TEST(UnknownKey, PlanWithoutSwitchWarns) {
  const std::string path = data_path("cfg_01/plan_without_switch.yaml");
  const LoadedConfig loaded = load_train_config(path, {}, FeatureCheck::kAll);
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_EQ(loaded.warnings[0],
            path +
                ":18:20: features.recompute_plan.apply_modules has no effect while "
                "features.recompute is false");
}

TEST(UnknownKey, AllOfAFileAtOnce) {
  EXPECT_EQ(parse_error(minimal("  lrr: 1\n  train_iters: abc\n  micro_batch_size: 0\n")),
            "run.yaml:11:3: unknown key training.lrr (did you mean lr?)\n"
            "run.yaml:12:16: training.train_iters: expected a whole number, got \"abc\"\n"
            "run.yaml:13:21: training.micro_batch_size: must be >= 1 and <= 1000000, got 0");
}

TEST(UnknownKey, NearKeyOfAnotherSection) {
  EXPECT_THAT(
      parse_error(minimal("  enable_chunkloss: true\n")),
      HasSubstr(
          "unknown key training.enable_chunkloss (did you mean features.enable_chunk_loss?)"));
}

TEST(UnknownKey, SeveralHomes) {
  EXPECT_THAT(parse_error(minimal("  save_path: x\n")),
              HasSubstr("belongs under tools.profile.static_param or tools.memory_profile"));
}

TEST(UnknownKey, SectionInsideAnother) {
  EXPECT_THAT(parse_error(minimal("  features:\n    recompute: true\n")),
              HasSubstr("unknown key training.features (belongs under the top level)"));
}

TEST(UnknownKey, NothingNear) {
  EXPECT_EQ(parse_error(minimal("  zzzzzzzzzzzz: 1\n")),
            "run.yaml:11:3: unknown key training.zzzzzzzzzzzz");
}

TEST(UnknownKey, NamesOfOtherPrograms) {
  EXPECT_EQ(parse_error(minimal("  learning_rate: 1e-5\n")),
            "run.yaml:11:3: unknown key training.learning_rate; here it is training.lr");
  EXPECT_EQ(parse_error(minimal("  gradient_checkpointing: true\n")),
            "run.yaml:11:3: unknown key training.gradient_checkpointing; here it is "
            "features.recompute");
}

TEST(UnknownKey, EveryNameOfAnotherProgramLeadsToAKey) {
  for (const auto& [foreign, here] : foreign_names()) {
    const auto& keys = known_keys();
    EXPECT_TRUE(std::any_of(keys.begin(), keys.end(),
                            [&](const KnownKey& key) { return key.path == here; }))
        << foreign << " -> " << here;
  }
}

TEST(UnknownKey, AnchorsHaveAPlace) {
  const std::string text = "x-common: &common {lr: 1e-3, seed: 7}\n" + minimal("  <<: *common\n");
  const LoadedConfig loaded = parse_all(text);
  EXPECT_EQ(loaded.config.training.lr, 1e-3);
  EXPECT_EQ(loaded.config.training.seed, 1);
}

}  // namespace
}  // namespace shardloom::config
