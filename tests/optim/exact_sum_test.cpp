#include "shardloom/optim/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace shardloom::optim {
namespace {

__extension__ using Int128 = __int128;

constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiniest = std::numeric_limits<double>::denorm_min();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

TEST(ExactSum, NothingIsLostToCancellation) {
  EXPECT_EQ(sum_of({}).value(), 0.0);
  EXPECT_EQ(sum_of({1, 1e100, 1, -1e100}).value(), 2.0);
  EXPECT_EQ(sum_of({1e308, 1e308, -1e308}).value(), 1e308);
  EXPECT_EQ(sum_of({-1e308, kTiniest, 1e308}).value(), kTiniest);
  EXPECT_EQ(sum_of({kTiniest, kTiniest, -5 * kTiniest}).value(), -3 * kTiniest);
  EXPECT_EQ(sum_of({kMax, -kMax, 0x1p-1022, -kTiniest}).value(), 0x1p-1022 - kTiniest);
}

TEST(ExactSum, RoundsOnceToNearestTiesToEven) {
  EXPECT_EQ(sum_of({1, 0x1p-53}).value(), 1.0);
  EXPECT_EQ(sum_of({1, 0x1p-53, kTiniest}).value(), 1 + 0x1p-52);
  EXPECT_EQ(sum_of({1, 0x1p-52, 0x1p-53}).value(), 1 + 0x1p-51);
  EXPECT_EQ(sum_of({-1, -0x1p-53, -kTiniest}).value(), -1 - 0x1p-52);
  EXPECT_EQ(sum_of({2, -0x1p-54}).value(), 2.0);  // the mantissa carries into the next power of two
  EXPECT_EQ(sum_of({kMax, 0x1p969}).value(), kMax);
  EXPECT_EQ(sum_of({kMax, 0x1p970}).value(), kInfinity);
  EXPECT_EQ(sum_of({-kMax, -kMax}).value(), -kInfinity);
}

TEST(ExactSum, InfinitiesAndNanStay) {
  EXPECT_EQ(sum_of({1, kInfinity, -kMax}).value(), kInfinity);
  EXPECT_EQ(sum_of({-kInfinity, kMax}).value(), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity}).value()));
  EXPECT_TRUE(std::isnan(sum_of({1, NAN, kInfinity}).value()));
  ExactSum merged = sum_of({kInfinity});
  merged += sum_of({1});
  EXPECT_EQ(merged.value(), kInfinity);
  EXPECT_EQ(ExactSum::of_limbs(merged.limbs()).value(), kInfinity);
}

// Terms whose exact sum fits 128 bits: the compiler's conversion rounds it correctly.
class RandomTerms : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::mt19937_64 random(static_cast<uint64_t>(GetParam()) + 1);
    for (int i = 0; i < 1000; ++i) {
      const auto mantissa = static_cast<int64_t>(random() >> 11);
      const int64_t term = random() % 2 == 0 ? mantissa : -mantissa;
      const int shift = static_cast<int>(random() % 60);
      exact_ += static_cast<Int128>(term) << shift;
      terms_.push_back(std::ldexp(static_cast<double>(term), shift + GetParam()));
    }
    expected_ = std::ldexp(static_cast<double>(exact_), GetParam());
  }

  std::vector<double> terms_;
  Int128 exact_ = 0;
  double expected_ = 0;
};

TEST_P(RandomTerms, AreSummedExactlyInAnyOrder) {
  EXPECT_EQ(sum_of(terms_).value(), expected_);
  std::mt19937 random(7);
  for (int i = 0; i < 10; ++i) {
    std::shuffle(terms_.begin(), terms_.end(), random);
    EXPECT_EQ(sum_of(terms_).value(), expected_);
  }
}

TEST_P(RandomTerms, AreSummedExactlyInAnyGrouping) {
  for (const size_t parts : {1, 2, 3, 7, 1000}) {
    ExactSum merged;
    ExactSum::Limbs added{};
    for (size_t part = 0; part < parts; ++part) {
      ExactSum sum;
      for (size_t i = part; i < terms_.size(); i += parts) sum.add(terms_[i]);
      merged += sum;
      const auto limbs = sum.limbs();
      for (size_t i = 0; i < limbs.size(); ++i) added[i] += limbs[i];
    }
    EXPECT_EQ(merged.value(), expected_) << parts;
    EXPECT_EQ(ExactSum::of_limbs(added).value(), expected_) << parts;
  }
}

INSTANTIATE_TEST_SUITE_P(Exponents, RandomTerms, ::testing::Values(-1074, -900, -60, 0, 31, 850));

TEST(ExactSum, ManyTermsDoNotOverflowALimb) {
  for (const double term : {-1.0, std::nextafter(2.0, 0.0), -kTiniest}) {
    ExactSum sum = sum_of({term});
    for (int i = 0; i < 62; ++i) sum += sum;
    EXPECT_EQ(sum.value(), std::ldexp(term, 62));
  }
}

}  // namespace
}  // namespace shardloom::optim
