#include "shardloom/data/datasets/concat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"

namespace shardloom::data {
namespace {

class Numbers : public Dataset {
 public:
  Numbers(std::string name, int64_t size) : name_(std::move(name)), size_(size) {}
  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override { return {index, place(index), {}}; }
  std::string place(int64_t index) const override { return name_ + std::to_string(index); }
  Batch collate(const std::vector<Sample>&) const override { return {.num_tokens = size_}; }
  std::string fingerprint() const override { return name_; }

 private:
  std::string name_;
  int64_t size_;
};

TEST(Concat, PartsFollowEachOtherAndRepeat) {
  const ConcatDataset all({{std::make_shared<Numbers>("a", 2), 5},    // 2.5 times
                           {std::make_shared<Numbers>("b", 4), 2}});  // a prefix
  ASSERT_EQ(all.size(), 7);
  std::string places;
  for (int64_t i = 0; i < all.size(); ++i) {
    const Sample sample = all.get(i);
    EXPECT_EQ(sample.index, i);
    EXPECT_EQ(sample.place, all.place(i));
    EXPECT_EQ(all.view(i).sample.index, i);
    places += sample.place;
  }
  EXPECT_EQ(places, "a0a1a0a1a0b0b1");
  EXPECT_EQ(all.collate({}).num_tokens, 2);
  EXPECT_EQ(all.fingerprint(), "5 of a; 2 of b");
  EXPECT_THROW(all.get(7), InternalError);
}

TEST(Concat, AnEmptyPartCannotGiveSamples) {
  EXPECT_THROW(ConcatDataset({{std::make_shared<Numbers>("empty", 0), 3}}), DataError);
}

}  // namespace
}  // namespace shardloom::data
