#include "shardloom/optim/clip_grad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "tests/optim/sample_gradients.h"

namespace shardloom::optim {
namespace {

using testing::sample_gradients;
using testing::shard_of;

long double reference(const std::vector<OptimizedTensor>& tensors) {
  long double sum = 0;
  for (const auto& t : tensors) {
    const at::Tensor flat = t.grad.contiguous();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const long double x = flat.const_data_ptr<float>()[i];
      sum += x * x;
    }
  }
  return sum;
}

TEST(ClipGrad, NormIsThatOfAllGradientsTogether) {
  const auto gradients = sample_gradients();
  // A row of 1000 is summed in double: 2^-53 a step.
  const auto expected = static_cast<double>(reference(gradients));
  EXPECT_NEAR(squared_norm(gradients).value(), expected, 1e-13 * expected);
  const at::Tensor a = at::tensor({3.0f, 4.0f});
  EXPECT_EQ(squared_norm({{"a", a, a}, {"none", a, {}}}).value(), 25.0);
  EXPECT_EQ(squared_norm(std::vector<OptimizedTensor>{}).value(), 0.0);
  EXPECT_EQ(squared_norm({{"scalar", a[0], a[0]}}).value(), 9.0);
}

TEST(ClipGrad, StridedGradientsCountAsTheyAreSeen) {
  const at::Tensor wide = sample_gradients()[0].grad;
  EXPECT_EQ(squared_norm({{"t", wide.t(), wide.t()}}).value(),
            squared_norm({{"t", wide.t().contiguous(), wide.t().contiguous()}}).value());
}

TEST(ClipGrad, HugeAndTinyGradientsNeitherOverflowNorVanish) {
  const at::Tensor huge = at::full({4, 20}, 3e38), tiny = at::full({4, 20}, 1e-38);
  EXPECT_TRUE(std::isfinite(squared_norm({{"huge", huge, huge}}).value()));
  EXPECT_GT(squared_norm({{"tiny", tiny, tiny}}).value(), 0.0);
}

TEST(ClipGrad, NormHasTheSameBitsForAnyCutOfTheRows) {
  const auto gradients = sample_gradients();
  const auto whole = std::bit_cast<uint64_t>(squared_norm(gradients).value());
  for (int size = 1; size <= 5; ++size) {
    ExactSum forward, backward;
    for (int rank = 0; rank < size; ++rank) {
      forward += squared_norm(shard_of(gradients, rank, size));
      backward += squared_norm(shard_of(gradients, size - 1 - rank, size));
    }
    EXPECT_EQ(std::bit_cast<uint64_t>(forward.value()), whole) << size;
    EXPECT_EQ(std::bit_cast<uint64_t>(backward.value()), whole) << size;
  }
}

TEST(ClipGrad, NormHasTheSameBitsForAnyOrderOfTensorsAndNumberOfThreads) {
  auto gradients = sample_gradients();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = squared_norm(gradients).value();
  std::reverse(gradients.begin(), gradients.end());
  EXPECT_EQ(std::bit_cast<uint64_t>(squared_norm(gradients).value()), std::bit_cast<uint64_t>(one));
  at::set_num_threads(3);
  EXPECT_EQ(std::bit_cast<uint64_t>(squared_norm(gradients).value()), std::bit_cast<uint64_t>(one));
  at::set_num_threads(threads);
}

TEST(ClipGrad, SetsWithoutAGroupAreWhole) {
  const auto gradients = sample_gradients();
  const std::vector<GradientShards> sets = {{{gradients[0], gradients[1]}, nullptr},
                                            {{gradients.begin() + 2, gradients.end()}, nullptr}};
  EXPECT_EQ(squared_norm(sets), squared_norm(gradients).value());
}

TEST(ClipGrad, NonFiniteGradientsShowInTheNorm) {
  const at::Tensor good = at::ones({2, 40});
  const at::Tensor nan = at::full({2, 40}, NAN), inf = at::full({2, 40}, -INFINITY);
  EXPECT_TRUE(std::isnan(squared_norm({{"a", good, good}, {"b", nan, nan}}).value()));
  EXPECT_EQ(squared_norm({{"a", inf, inf}, {"b", good, good}}).value(), INFINITY);
}

TEST(ClipGrad, FactorScalesDownOnly) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
}

TEST(ClipGrad, FirstNonFiniteIsNamed) {
  const at::Tensor good = at::ones({2});
  EXPECT_EQ(first_non_finite({{"a", good, good}}), "");
  for (const double bad : {NAN, INFINITY}) {
    EXPECT_EQ(
        first_non_finite(
            {{"a", good, good}, {"b", good, at::full({2}, bad)}, {"c", good, at::full({2}, bad)}}),
        "b");
  }
}

}  // namespace
}  // namespace shardloom::optim
