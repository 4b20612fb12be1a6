#include "shardloom/base/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardloom {
namespace {

using ::testing::ElementsAre;

Registry<int> two_models() {
  Registry<int> registry("model_id");
  registry.add("internvl3_5", 1);
  registry.add("custom", 2);
  return registry;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RegistryTest, FindsByName) {
  const auto registry = two_models();
  EXPECT_EQ(registry.get("custom"), 2);
  EXPECT_EQ(*registry.find("internvl3_5"), 1);
  EXPECT_EQ(registry.find("other"), nullptr);
}

TEST(RegistryTest, KeepsTheOrderOfRegistration) {
  EXPECT_THAT(two_models().names(), ElementsAre("internvl3_5", "custom"));
}

TEST(RegistryTest, UnknownNameListsWhatIsKnown) {
  EXPECT_EQ(
      error_of([] { two_models().get("internvl3.5"); }),
      "unknown model_id \"internvl3.5\" (did you mean internvl3_5?); known: internvl3_5, custom");
}

TEST(RegistryTest, RefusesASecondEntryOfOneName) {
  auto registry = two_models();
  EXPECT_EQ(error_of([&] { registry.add("custom", 3); }),
            "model_id \"custom\" is registered twice");
  EXPECT_EQ(registry.get("custom"), 2);
}

}  // namespace
}  // namespace shardloom
