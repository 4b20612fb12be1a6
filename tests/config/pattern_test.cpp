// CFG-03: module patterns.
#include "shardloom/config/pattern.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

const std::string kLayers = "language_model.model.layers.";

Names module_names() {
  std::ifstream file(data_path("cfg_03/modules.txt"));
  Names names;
  for (std::string line; std::getline(file, line);) names.push_back(line);
  return names;
}

nlohmann::json expected() {
  return nlohmann::json::parse(std::ifstream(data_path("cfg_03/expected.json")));
}

Names match(const Names& patterns) { return match_modules(patterns, module_names(), "key"); }

std::string fault(const std::string& pattern) {
  return error_of([&] { match({pattern}); });
}

TEST(Pattern, EveryPatternOfTheCase) {
  const auto patterns = expected().at("patterns");
  ASSERT_EQ(patterns.size(), 22u);
  for (const auto& row : patterns) {
    const std::string pattern = row.at("pattern");
    if (row.at("expect").is_string()) {
      EXPECT_THAT(fault(pattern), HasSubstr("key: pattern \"" + pattern + "\": ")) << row.dump();
    } else {
      EXPECT_EQ(match({pattern}), row.at("expect").get<Names>()) << row.dump();
    }
  }
}

TEST(Pattern, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(fault(kLayers + "{10-12}"),
              HasSubstr("index 12 of {10-12} does not exist (the model has 0-11)"));
  EXPECT_THAT(fault(kLayers + "{0-47}"),
              HasSubstr("index 12 of {0-47} does not exist (the model has 0-11)"));
  EXPECT_THAT(fault(kLayers + "{1,50}"), HasSubstr("index 50 of {1,50} does not exist"));
  EXPECT_THAT(fault("language_model.model.layer.{*}"),
              HasSubstr("matches no module (did you mean language_model.model.layers.{*}?)"));
  EXPECT_THAT(fault(kLayers + "{5-3}"), HasSubstr("the range {5-3} is empty"));
  EXPECT_THAT(fault(kLayers + "{a}"), HasSubstr("\"a\" in braces is not an index"));
  EXPECT_THAT(fault(kLayers + "{*"), HasSubstr("unclosed brace"));
  EXPECT_THAT(fault(kLayers + "{}"), HasSubstr("empty braces"));
  EXPECT_THAT(fault(kLayers + "{-1}"), HasSubstr("negative index"));
  EXPECT_THAT(fault(kLayers + "{01}"), HasSubstr("leading zero"));
  EXPECT_THAT(fault(kLayers + "{1,}"), HasSubstr("is not an index"));
  EXPECT_THAT(fault(kLayers + "{1-2-3}"), HasSubstr("is not an index"));
  EXPECT_THAT(fault(kLayers + "0}"), HasSubstr("closing brace"));
  EXPECT_THAT(fault(kLayers + "{1}{2}"), HasSubstr("without text between"));
  EXPECT_THAT(fault(kLayers + "*"), HasSubstr("a bare * is not part of the grammar"));
  EXPECT_THAT(fault("mlp?"), HasSubstr("a bare ?"));
  EXPECT_THAT(fault(""), HasSubstr("an empty pattern"));
  EXPECT_THAT(fault("Language_Model.model.embed_tokens"),
              HasSubstr("did you mean language_model.model.embed_tokens?"));
}

TEST(Pattern, HugeNumbersAreHandled) {
  EXPECT_THAT(fault(kLayers + "{0-9223372036854775807}"), HasSubstr("index 12 of"));
  EXPECT_THAT(fault(kLayers + "{99999999999999999999}"), HasSubstr("is not an index"));
}

TEST(Pattern, AllFaultsOfAListAtOnce) {
  const std::string error = error_of([&] { match({"nothing_like_it", "mlp1", kLayers + "{99}"}); });
  EXPECT_THAT(error, AllOf(HasSubstr("\"nothing_like_it\""), HasSubstr("{99}"), HasSubstr("\n")));
}

TEST(Pattern, SeveralBraces) {
  const Names names = {"a.0.b.0", "a.0.b.1", "a.1.b.0", "a.10.b.2", "a.2.b.2"};
  EXPECT_THAT(match_modules({"a.{*}.b.{0,2}"}, names, "k"),
              ElementsAre("a.0.b.0", "a.1.b.0", "a.2.b.2", "a.10.b.2"));
}

TEST(Pattern, MatchInfoIsKeptPerPattern) {
  const auto matches = match_patterns({"mlp1", kLayers + "{2,1}"}, module_names(), "k");
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].pattern, "mlp1");
  EXPECT_THAT(matches[1].modules, ElementsAre(kLayers + "1", kLayers + "2"));
}

// The three rules for lists of expected.json.
TEST(Pattern, ListsOfTheCase) {
  const auto lists = expected().at("lists");
  ASSERT_EQ(lists.size(), 3u);

  const Names overlap = match(lists[0].at("list").get<Names>());
  EXPECT_EQ(overlap.size(), 12u);
  EXPECT_EQ(std::set<std::string>(overlap.begin(), overlap.end()).size(), 12u);

  const Names nested = match(lists[1].at("list").get<Names>());
  EXPECT_EQ(children_first(nested).back(), "language_model.model");
  EXPECT_THAT(error_of([&] { check_not_nested(nested, "features.recompute_plan.apply_modules"); }),
              HasSubstr("language_model.model.layers.0 lies inside language_model.model"));

  const Names written = match(lists[2].at("list").get<Names>());
  EXPECT_EQ(written.front(), "mlp1");
  EXPECT_EQ(written.back(), "vision_model.encoder");
  const auto warning = order_warning(written, {"vision_model.encoder", "mlp1", kLayers + "0"}, "k");
  ASSERT_TRUE(warning.has_value());
  EXPECT_THAT(*warning, HasSubstr("vision_model.encoder runs before"));
}

TEST(Pattern, ChildrenStandBeforeParents) {
  EXPECT_THAT(children_first({"a", "a.b.c", "d", "a.b", "ab"}),
              ElementsAre("a.b.c", "d", "a.b", "a", "ab"));
}

TEST(Pattern, NoOrderWarningWithoutReason) {
  EXPECT_FALSE(order_warning({"x", "y", "unknown"}, {"x", "other", "y"}, "k").has_value());
  check_not_nested({"a.b", "a.bc", "ab"}, "k");
}

}  // namespace
}  // namespace shardloom::config
