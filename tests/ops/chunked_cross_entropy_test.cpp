#include "shardloom/ops/chunked_cross_entropy.h"

#include <gtest/gtest.h>

#include "shardloom/ops/cross_entropy.h"
#include "shardloom/ops/linear.h"
#include "tests/testing/tensors.h"

namespace shardloom::ops {
namespace {

using testing::max_difference;

constexpr int64_t kRows = 9, kDim = 6, kVocab = 31;

struct Inputs {
  at::Tensor hidden, weight, bias, targets, weights;

  explicit Inputs(at::ScalarType type = at::kFloat) {
    at::manual_seed(0);
    hidden = at::randn({kRows, kDim}).to(type).requires_grad_();
    weight = at::randn({kVocab, kDim}).to(type).requires_grad_();
    bias = at::randn({kVocab}).to(type).requires_grad_();
    targets = at::randint(kVocab, {kRows}, at::kLong);
    weights = at::rand({kRows});
  }
  at::Tensor chunked(int64_t chunk_rows) const {
    return chunked_cross_entropy(hidden, weight, bias, targets, weights, chunk_rows);
  }
  at::Tensor whole() const {
    return weighted_cross_entropy(linear(hidden, weight, bias), targets, weights);
  }
  std::vector<at::Tensor> take_grads() const {
    std::vector<at::Tensor> grads;
    for (const at::Tensor* t : {&hidden, &weight, &bias}) {
      grads.push_back(t->grad());
      t->mutable_grad().reset();
    }
    return grads;
  }
};

TEST(ChunkedCrossEntropy, ValueAndGradientsEqualTheWholeWithIncomingGradient) {
  const Inputs in;
  const double expected = in.whole().item<double>();
  (in.whole() * 0.3).backward();
  const auto expected_grads = in.take_grads();
  for (const int64_t rows : {1, 4, 9, 100}) {
    const at::Tensor loss = in.chunked(rows);
    (loss * 0.3).backward();
    EXPECT_NEAR(loss.item<double>(), expected, 1e-6 * expected) << rows;
    const auto grads = in.take_grads();
    // fp32, other order of sums.
    for (size_t i = 0; i < grads.size(); ++i)
      EXPECT_LT(max_difference(grads[i], expected_grads[i]), 2e-6) << rows << " input " << i;
  }
}

TEST(ChunkedCrossEntropy, LowPrecisionComputesAsTheWholeDoes) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const Inputs in(type);
    const double unit = type == at::kHalf ? 1.0 / 2048 : 1.0 / 256;
    in.whole().backward();
    const auto expected = in.take_grads();
    const at::Tensor loss = in.chunked(4);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_NEAR(loss.item<double>(), in.whole().item<double>(), 1e-5);
    loss.backward();
    const auto grads = in.take_grads();
    for (size_t i = 0; i < grads.size(); ++i) {
      EXPECT_EQ(grads[i].scalar_type(), type);
      // Both are rounded once from nearly the same fp32 sum: one step of the type apart at most.
      const double largest = expected[i].abs().max().item<double>();
      EXPECT_LE(max_difference(grads[i], expected[i]), unit * largest) << "input " << i;
    }
  }
}

// 256 chunks of the same row: a bf16 sum would stop growing at 2^8 times a term.
TEST(ChunkedCrossEntropy, TheWeightGradientIsSummedInFp32) {
  const at::Tensor hidden = at::ones({1024, 1}, at::kBFloat16);
  const at::Tensor weight = at::zeros({2, 1}, at::kBFloat16).requires_grad_();
  chunked_cross_entropy(hidden, weight, {}, at::zeros({1024}, at::kLong), at::ones({1024}), 1)
      .backward();
  EXPECT_EQ(weight.grad()[0].item<float>(), -512.0f);
  EXPECT_EQ(weight.grad()[1].item<float>(), 512.0f);
}

TEST(ChunkedCrossEntropy, OnlyWhatRequiresGradGetsOne) {
  const Inputs in;
  in.weight.set_requires_grad(false);
  in.chunked(4).backward();
  const auto grads = in.take_grads();
  EXPECT_TRUE(grads[0].defined());
  EXPECT_FALSE(grads[1].defined());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(in.chunked(4).requires_grad());
}

TEST(ChunkedCrossEntropy, BackwardTwiceThroughAKeptGraph) {
  const Inputs in;
  const at::Tensor loss = in.chunked(4) * 0.3;
  loss.backward({}, /*keep_graph=*/true);
  const auto first = in.take_grads();
  loss.backward();
  const auto second = in.take_grads();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i]));
  EXPECT_ANY_THROW(loss.backward());
}

TEST(ChunkedCrossEntropy, GradientsOfTwoBackwardsAddUp) {
  const Inputs in;
  in.chunked(4).backward();
  const at::Tensor once = in.weight.grad().clone();
  in.chunked(4).backward();
  EXPECT_TRUE(at::equal(in.weight.grad(), 2 * once));
}

TEST(ChunkedCrossEntropy, NoRowGivesZeroAndZeroGradients) {
  const at::Tensor weight = at::ones({5, 2}).requires_grad_();
  const at::Tensor hidden = at::zeros({0, 2}).requires_grad_();
  const at::Tensor loss =
      chunked_cross_entropy(hidden, weight, {}, at::zeros({0}, at::kLong), at::zeros({0}), 4);
  loss.backward();
  EXPECT_EQ(loss.item<float>(), 0.0f);
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({5, 2})));
  EXPECT_EQ(hidden.grad().sizes(), hidden.sizes());
}

TEST(ChunkedCrossEntropy, HugeLogitsStayFinite) {
  const at::Tensor weight = at::tensor({3e4f, -3e4f}).view({2, 1}).requires_grad_();
  const at::Tensor loss = chunked_cross_entropy(at::ones({1, 1}), weight, {},
                                                at::ones({1}, at::kLong), at::ones({1}), 1);
  loss.backward();
  EXPECT_FLOAT_EQ(loss.item<float>(), 6e4f);
  EXPECT_TRUE(at::isfinite(weight.grad()).all().item<bool>());
}

}  // namespace
}  // namespace shardloom::ops
