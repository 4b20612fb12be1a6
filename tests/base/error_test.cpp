#include "shardloom/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardloom {
namespace {

using ::testing::HasSubstr;

// The codes are promised to users (docs/errors.md).
TEST(ErrorTest, CarriesTheExitCode) {
  EXPECT_EQ(static_cast<int>(ConfigError("x").code()), 2);
  EXPECT_EQ(static_cast<int>(DataError("x").code()), 3);
  EXPECT_EQ(static_cast<int>(CheckpointError("x").code()), 4);
  EXPECT_EQ(static_cast<int>(DistributedError("x").code()), 5);
  EXPECT_EQ(static_cast<int>(InternalError("x").code()), 70);
  EXPECT_EQ(static_cast<int>(InterruptedError("x").code()), 130);
}

TEST(ErrorTest, FormatsArguments) {
  EXPECT_STREQ(DataError("{}:{}: bad role {}", "a.jsonl", 3, "\"bot\"").what(),
               "a.jsonl:3: bad role \"bot\"");
}

// A text that came from a file may hold braces; the string constructor must not read them as a
// format.
TEST(ErrorTest, LeavesBracesOfAReadyTextAlone) {
  EXPECT_STREQ(ConfigError(std::string("layers.{*}")).what(), "layers.{*}");
}

TEST(ErrorTest, CheckNamesTheConditionAndThePlace) {
  const int rows = 3;
  EXPECT_NO_THROW(SHARDLOOM_CHECK(rows == 3, "rows {}", rows));
  try {
    SHARDLOOM_CHECK(rows == 4, "rows {}", rows);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("error_test.cpp:"));
    EXPECT_THAT(error.what(), HasSubstr("rows == 4 is false: rows 3"));
  }
}

}  // namespace
}  // namespace shardloom
