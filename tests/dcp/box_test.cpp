// Boxes: intersection, exact cover, strided copies.
#include "shardloom/checkpoint/dcp/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace shardloom::checkpoint::dcp {
namespace {

using ::testing::HasSubstr;

TEST(Box, IntersectionOrNothing) {
  EXPECT_EQ(intersection({{0, 2}, {4, 4}}, {{3, 0}, {4, 3}}), (Box{{3, 2}, {1, 1}}));
  EXPECT_EQ(intersection({{0, 0}, {3, 5}}, {{3, 0}, {4, 5}}), std::nullopt);
  EXPECT_EQ(intersection({{0}, {0}}, {{0}, {4}}), std::nullopt);
  EXPECT_EQ(intersection({}, {}), Box{});
}

TEST(Box, InsideCountsDimensionsAndSigns) {
  EXPECT_TRUE(is_inside({{3, 0}, {2, 3}}, {5, 3}));
  EXPECT_TRUE(is_inside({{5, 0}, {0, 3}}, {5, 3}));
  EXPECT_FALSE(is_inside({{4, 0}, {2, 3}}, {5, 3}));
  EXPECT_FALSE(is_inside({{-1, 0}, {1, 3}}, {5, 3}));
  EXPECT_FALSE(is_inside({{0}, {5}}, {5, 3}));
  EXPECT_FALSE(is_inside({{1, 0}, {INT64_MAX, 3}}, {5, 3}));
}

std::string problem(const std::vector<int64_t>& shape, const std::vector<Box>& boxes) {
  std::vector<const Box*> pointers;
  for (const Box& box : boxes) pointers.push_back(&box);
  return coverage_problem(shape, pointers);
}

TEST(Coverage, ShardsInAnyDimensionAndOrder) {
  EXPECT_EQ(problem({5, 3}, {{{3, 0}, {2, 3}}, {{0, 0}, {3, 3}}}), "");
  EXPECT_EQ(problem({5, 3}, {{{0, 1}, {5, 2}}, {{0, 0}, {5, 1}}}), "");
  EXPECT_EQ(
      problem({2, 2}, {{{0, 0}, {1, 1}}, {{1, 1}, {1, 1}}, {{0, 1}, {1, 1}}, {{1, 0}, {1, 1}}}),
      "");
  EXPECT_EQ(problem({1, 4}, {{{0, 0}, {1, 4}}, {{1, 0}, {0, 4}}, {{1, 0}, {0, 4}}}), "");
  EXPECT_EQ(problem({}, {{{}, {}}}), "");
  EXPECT_EQ(problem({0, 4}, {}), "");
}

TEST(Coverage, HolesAndOverlapsAreNamed) {
  EXPECT_THAT(problem({5, 3}, {{{0, 0}, {3, 3}}}),
              HasSubstr("hold 9 elements, the shape [5, 3] has 15"));
  EXPECT_THAT(problem({5, 3}, {{{0, 0}, {3, 3}}, {{2, 0}, {2, 3}}}),
              HasSubstr("[0, 0] + [3, 3] and [2, 0] + [2, 3] overlap"));
  // The number of elements is right by chance.
  EXPECT_THAT(problem({4, 2}, {{{0, 0}, {3, 2}}, {{2, 0}, {1, 2}}}), HasSubstr("overlap"));
  EXPECT_THAT(problem({}, {}), HasSubstr("hold 0 elements"));
  EXPECT_THAT(problem({}, {{{}, {}}, {{}, {}}}), HasSubstr("hold 2 elements"));
}

TEST(CopyStrided, TransposesAndLeavesGapsAlone) {
  std::vector<uint16_t> source(6);
  std::iota(source.begin(), source.end(), uint16_t{1});
  std::vector<uint16_t> target(8, 99);
  copy_strided({2, 3}, 2, reinterpret_cast<const char*>(source.data()), {3, 1},
               reinterpret_cast<char*>(target.data()), {1, 3});
  EXPECT_EQ(target, (std::vector<uint16_t>{1, 4, 99, 2, 5, 99, 3, 6}));
}

// Rows or columns beyond a whole number of cache blocks, gaps between the rows of both sides, and
// either side as the one that runs along memory.
TEST(CopyStrided, TransposesMatricesOfEverySizeOfElement) {
  for (const uint64_t element : {1, 2, 4, 8, 16}) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 5}, {7, 9}, {64, 64}, {65, 130}, {200, 33}, {128, 17}}) {
      const int64_t source_stride = rows + 3, target_stride = columns + 5;
      std::string source(static_cast<size_t>(columns * source_stride) * element, '\0');
      for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 7 + i / 251);
      std::string wanted(static_cast<size_t>(rows * target_stride) * element, '#');
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          wanted.replace(static_cast<size_t>(r * target_stride + c) * element, element, source,
                         static_cast<size_t>(c * source_stride + r) * element, element);
        }
      }
      std::string target(wanted.size(), '#');
      copy_strided({rows, columns}, element, source.data(), {1, source_stride}, target.data(),
                   {target_stride, 1});
      ASSERT_EQ(target, wanted) << element << ": " << rows << " x " << columns;
      target.assign(wanted.size(), '#');
      copy_strided({columns, rows}, element, source.data(), {source_stride, 1}, target.data(),
                   {1, target_stride});
      ASSERT_EQ(target, wanted) << element << ": " << rows << " x " << columns;
    }
  }
}

TEST(CopyStrided, EmptyAndScalar) {
  uint32_t value = 7;
  uint32_t copy = 0;
  copy_strided({}, 4, reinterpret_cast<const char*>(&value), {}, reinterpret_cast<char*>(&copy),
               {});
  EXPECT_EQ(copy, 7U);
  copy_strided({2, 0}, 4, nullptr, {0, 1}, nullptr, {0, 1});
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp
