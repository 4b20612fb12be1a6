// CFG-04: parallel size rules.
#include "shardloom/config/size_rules.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "shardloom/base/split_evenly.h"
#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SizeInputs inputs_of(const nlohmann::json& row) {
  SizeInputs sizes;
  sizes.world = row.at("world");
  sizes.cp = row.at("cp");
  sizes.ep = row.at("ep");
  sizes.seq = row.at("seq");
  sizes.micro_batch = row.at("micro_batch");
  sizes.global_batch = row.at("global_batch");
  sizes.heads = row.at("heads");
  sizes.kv_heads = row.at("kv_heads");
  sizes.vision_heads = row.at("vision_heads");
  sizes.vision_tokens = row.at("vision_tokens");
  sizes.experts = row.at("experts");
  sizes.top_k = row.at("top_k");
  return sizes;
}

std::vector<std::string> rules_of(const SizeReport& report) {
  std::vector<std::string> rules;
  for (const BrokenRule& rule : report.broken) rules.push_back(rule.rule);
  return rules;
}

TEST(SizeRules, EveryRowOfTheCase) {
  const auto rows =
      nlohmann::json::parse(std::ifstream(data_path("cfg_04/expected.json"))).at("rows");
  ASSERT_EQ(rows.size(), 22u);
  for (const auto& row : rows) {
    const SizeReport report = check_sizes(inputs_of(row));
    EXPECT_EQ(report.ok(), row.at("ok").get<bool>()) << row.dump();
    EXPECT_EQ(rules_of(report), row.at("broken_rules").get<std::vector<std::string>>())
        << row.dump();
    if (!report.ok()) continue;
    EXPECT_EQ(report.text_pad_to, row.at("text_pad_to").get<int64_t>()) << row.dump();
    EXPECT_EQ(report.kv_repeat, row.at("kv_repeat").get<int64_t>()) << row.dump();
    EXPECT_EQ(report.vision_split, row.at("vision_split").get<std::vector<int64_t>>())
        << row.dump();
  }
}

SizeInputs large() {
  return {.world = 8,
          .cp = 1,
          .ep = 1,
          .seq = 1024,
          .micro_batch = 1,
          .global_batch = 8,
          .heads = 32,
          .kv_heads = 4,
          .vision_heads = 16,
          .vision_tokens = 1025,
          .experts = 128,
          .top_k = 8};
}

TEST(SizeRules, NearestLegalValues) {
  SizeInputs sizes = large();
  sizes.ep = 6;
  EXPECT_THAT(check_sizes(sizes).broken.at(0).message, HasSubstr("nearest legal sizes: 4 or 8"));
  sizes = large();
  sizes.cp = 3;
  EXPECT_THAT(check_sizes(sizes).broken.at(0).message, HasSubstr("nearest legal sizes: 2 or 4"));
  sizes = large();
  sizes.cp = 32;
  EXPECT_THAT(check_sizes(sizes).broken.at(0).message, HasSubstr("nearest legal sizes: 8"));
  sizes = large();
  sizes.global_batch = 12;
  EXPECT_THAT(check_sizes(sizes).broken.at(0).message, HasSubstr("nearest legal values: 8 or 16"));
}

TEST(SizeRules, SizesBelowOneAreNamed) {
  SizeInputs sizes = large();
  sizes.cp = 0;
  sizes.kv_heads = -1;
  EXPECT_THAT(rules_of(check_sizes(sizes)), ElementsAre("size >= 1", "size >= 1"));
}

TEST(SizeRules, DenseModels) {
  SizeInputs sizes = large();
  sizes.experts = 0;
  sizes.top_k = 0;
  EXPECT_TRUE(check_sizes(sizes).ok());
  sizes.ep = 2;
  EXPECT_THAT(rules_of(check_sizes(sizes)), ElementsAre("ep without experts"));
}

TEST(SizeRules, ModelsWithoutVision) {
  SizeInputs sizes = large();
  sizes.vision_heads = sizes.vision_tokens = 0;
  sizes.cp = 8;
  EXPECT_TRUE(check_sizes(sizes).ok());
  sizes.cp = 3;
  EXPECT_THAT(rules_of(check_sizes(sizes)),
              ElementsAre("world % cp", "heads % cp", "kv_heads vs cp"));
}

TEST(SizeRules, EachRuleNamesItsKeyAndWhetherItIsAboutTheModel) {
  SizeInputs sizes = large();
  sizes.cp = 3;
  for (const BrokenRule& rule : check_sizes(sizes).broken) {
    EXPECT_EQ(rule.key, "parallel.ulysses_parallel_size") << rule.rule;
    EXPECT_EQ(rule.of_model, rule.rule != "world % cp") << rule.rule;
  }
  sizes = large();
  sizes.ep = 3;
  for (const BrokenRule& rule : check_sizes(sizes).broken) {
    EXPECT_EQ(rule.key, "parallel.expert_parallel_size") << rule.rule;
    EXPECT_EQ(rule.of_model, rule.rule == "experts % ep") << rule.rule;
  }
}

TEST(SizeRules, SplitEvenly) {
  EXPECT_THAT(split_evenly(5, 2), ElementsAre(3, 2));
  EXPECT_THAT(split_evenly(1, 3), ElementsAre(1, 0, 0));
}

}  // namespace
}  // namespace shardloom::config
