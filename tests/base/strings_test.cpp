#include "shardloom/base/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardloom {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TEST(SplitTest, KeepsEmptyParts) {
  EXPECT_THAT(split("a,b", ','), ElementsAre("a", "b"));
  EXPECT_THAT(split(",a,,", ','), ElementsAre("", "a", "", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(JoinTest, IsTheInverseOfSplit) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join(split(",a,,", ','), ","), ",a,,");
}

TEST(TrimTest, RemovesBlanksAtBothEnds) {
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim("a"), "a");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(EditDistanceTest, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("lr_mim", "lr_min"), 1);
  EXPECT_EQ(edit_distance("sead", "seed"), 1);
  EXPECT_EQ(edit_distance("esed", "seed"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3);
}

TEST(NearestTest, FindsALikelySlip) {
  const std::vector<std::string> keys = {"lr", "lr_min", "train_iters", "micro_batch_size"};
  EXPECT_THAT(nearest("train_iter", keys), Optional(std::string("train_iters")));
  EXPECT_THAT(nearest("Micro-Batch-Size", keys), Optional(std::string("micro_batch_size")));
  EXPECT_THAT(nearest("lr", keys), Optional(std::string("lr")));
}

TEST(NearestTest, SaysNothingWhenAllAreFar) {
  EXPECT_EQ(nearest("dropout", {"lr", "train_iters"}), std::nullopt);
  EXPECT_EQ(nearest("xyz", {"lr"}), std::nullopt);
  EXPECT_EQ(nearest("lr", {}), std::nullopt);
}

TEST(NearestTest, TakesTheFirstOfEquallyNear) {
  EXPECT_THAT(nearest("lora", {"lorb", "lorc"}), Optional(std::string("lorb")));
}

TEST(DidYouMeanTest, IsAReadySuffix) {
  EXPECT_EQ(did_you_mean("sead", {"seed"}), " (did you mean seed?)");
  EXPECT_EQ(did_you_mean("dropout", {"seed"}), "");
}

TEST(Utf8Test, AcceptsEveryWellFormedLength) {
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("plain"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("\u00e9 \u4e2d\u6587 \U0001F600"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("\xEF\xBF\xBF"), std::nullopt);      // U+FFFF
  EXPECT_EQ(find_invalid_utf8("\xF4\x8F\xBF\xBF"), std::nullopt);  // U+10FFFF
}

TEST(Utf8Test, NamesTheOffsetOfTheFirstBadByte) {
  EXPECT_THAT(find_invalid_utf8("ab\xFF"), Optional(2u));
  EXPECT_THAT(find_invalid_utf8("a\x80"), Optional(1u));             // continuation without a lead
  EXPECT_THAT(find_invalid_utf8("\xC3"), Optional(0u));              // cut after the lead
  EXPECT_THAT(find_invalid_utf8("\xE4\xB8"), Optional(0u));          // cut in the middle
  EXPECT_THAT(find_invalid_utf8("\xC0\xAF"), Optional(0u));          // overlong '/'
  EXPECT_THAT(find_invalid_utf8("\xE0\x9F\xBF"), Optional(0u));      // overlong U+07FF
  EXPECT_THAT(find_invalid_utf8("\xED\xA0\x80"), Optional(0u));      // surrogate
  EXPECT_THAT(find_invalid_utf8("\xF0\x8F\xBF\xBF"), Optional(0u));  // overlong U+FFFF
  EXPECT_THAT(find_invalid_utf8("\xF4\x90\x80\x80"), Optional(0u));  // above U+10FFFF
  EXPECT_THAT(find_invalid_utf8("\u4e2d\xE4\xB8z"), Optional(3u));   // bad after good
}

TEST(HumanBytesTest, PicksTheUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(1536 * 1024), "1.5 MiB");
  EXPECT_EQ(human_bytes(uint64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(human_bytes(uint64_t{5000} << 40), "5000.0 TiB");
}

}  // namespace
}  // namespace shardloom
