#include "shardloom/features/saved_tensor_hooks.h"

#include <gtest/gtest.h>

#include <thread>

#include "shardloom/base/error.h"
#include "tests/features/nets.h"

namespace shardloom::features::testing {
namespace {

// Keeps twice the value, and notes what it saw.
class Doubling final : public SavedTensorHooks {
 public:
  class Twice final : public PackedTensor {
   public:
    explicit Twice(at::Tensor value) : value_(std::move(value)) {}
    at::Tensor unpack() override { return value_; }

   private:
    at::Tensor value_;
  };

  std::shared_ptr<PackedTensor> pack(const at::Tensor& variable) override {
    EXPECT_FALSE(at::GradMode::is_enabled());
    ++packed;
    was_parameter.push_back(is_parameter(variable));
    return std::make_shared<Twice>(variable.detach() * 2);
  }
  int packed = 0;
  std::vector<bool> was_parameter;
};

class Keeping final : public SavedTensorHooks {
 public:
  std::shared_ptr<PackedTensor> pack(const at::Tensor&) override { return nullptr; }
};

at::Tensor leaf(double value) { return at::full({3}, value).requires_grad_(); }

TEST(SavedTensorHooks, BackwardSeesWhatUnpackGives) {
  const at::Tensor x = leaf(5);
  at::Tensor y;
  {
    const SavedTensorScope scope(std::make_shared<Doubling>());
    y = x * x;  // d/dx = 2x, with x doubled 4x
  }
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 20.0)));
}

TEST(SavedTensorHooks, InnermostScopeAloneSeesATensorAndTheOuterComesBack) {
  const auto outer = std::make_shared<Doubling>(), inner = std::make_shared<Doubling>();
  const at::Tensor x = leaf(1);
  const SavedTensorScope outer_scope(outer);
  {
    const SavedTensorScope scope(inner);
    x.exp();
  }
  EXPECT_EQ(outer->packed, 0);
  EXPECT_EQ(inner->packed, 1);
  try {
    const SavedTensorScope scope(inner);
    throw std::runtime_error("leaves the scope");
  } catch (const std::runtime_error&) {
  }
  x.exp();
  EXPECT_EQ(outer->packed, 1);
  EXPECT_EQ(inner->packed, 1);
}

TEST(SavedTensorHooks, NothingIsPackedWithoutGradModeOrOutsideOfScopes) {
  const auto hooks = std::make_shared<Doubling>();
  const at::Tensor x = leaf(1);
  x.exp();
  const SavedTensorScope scope(hooks);
  const at::NoGradGuard no_grad;
  x.exp();
  EXPECT_EQ(hooks->packed, 0);
}

TEST(SavedTensorHooks, AnotherThreadHasItsOwnScopes) {
  const auto hooks = std::make_shared<Doubling>();
  const SavedTensorScope scope(hooks);
  std::thread([] { leaf(1).exp(); }).join();
  EXPECT_EQ(hooks->packed, 0);
}

TEST(SavedTensorHooks, ParametersAndTheirViewsAreKnown) {
  const auto hooks = std::make_shared<Doubling>();
  const at::Tensor w = at::ones({2, 2}).requires_grad_(), x = w * 1;
  const SavedTensorScope scope(hooks);
  w.exp();                                // saves the result
  w.t().mul(x);                           // saves x, then the view
  x.view({4}).mul(x.detach().view({4}));  // saves the second alone: the other needs no gradient
  EXPECT_EQ(hooks->was_parameter, (std::vector<bool>{false, false, true, false}));
}

TEST(SavedTensorHooks, KeptTensorsGiveTheSameGradientAndKeepAutogradsCheck) {
  const at::Tensor x = leaf(2);
  at::Tensor good, bad;
  {
    const SavedTensorScope scope(std::make_shared<Keeping>());
    good = (x * x).exp();
    bad = x.exp();
    bad.add_(1);
  }
  good.sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), at::full({3}, 4 * std::exp(4.0))));
  EXPECT_NE(error_of<InternalError>([&] { bad.sum().backward(); }).find("changed in place"),
            std::string::npos);
}

TEST(SavedTensorHooks, TheGraphIsFreedWithItsOutput) {
  const at::Tensor x = leaf(2);
  at::Tensor y = x * 1;
  const auto memory = y.storage().getWeakStorageImpl();
  {
    const SavedTensorScope scope(std::make_shared<Keeping>());
    y = y * y;
  }
  EXPECT_FALSE(memory.expired());
  y.reset();
  EXPECT_TRUE(memory.expired());
}

}  // namespace
}  // namespace shardloom::features::testing
