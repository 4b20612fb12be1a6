#include "shardloom/features/chunk_loss.h"

#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/trainer/memory_counter.h"
#include "tests/features/nets.h"
#include "tests/testing/tensors.h"

namespace shardloom::features::testing {
namespace {

TEST(ChunkLoss, AStepIsThatOfTheWholeLoss) {
  Net off, on;
  chunk_loss(on.head, "head", 7);
  const StepResult expected = run_step(off), actual = run_step(on);
  // fp32 sums in another order, behind which small gradients are differences of large terms.
  EXPECT_NEAR(actual.loss, expected.loss, 1e-6 * expected.loss);
  for (const auto& [name, grad] : expected.grads) {
    const double largest = grad.abs().max().item<double>();
    EXPECT_LE(shardloom::testing::max_difference(actual.grads.at(name), grad), 1e-4 * largest)
        << name;
  }
}

// 4 MB of logits for all rows, which exist twice at the peak (with their gradient), 64 kB for a
// chunk, twice as well.
TEST(ChunkLoss, TheLogitsOfOneChunkAreAlive) {
  trainer::install_memory_counter();
  const at::TensorOptions floats = at::TensorOptions().dtype(at::kFloat);
  const int64_t rows = 1024, vocab = 1024, dim = 4;
  nn::LossHead head(dim, vocab, /*bias=*/false, floats);
  fill_parameters(head);
  const at::Tensor hidden = at::ones({rows, dim}).requires_grad_();
  const nn::LossRows targets{at::zeros({rows}, at::kLong), at::ones({rows})};
  const auto peak = [&] {
    const int64_t before = trainer::cpu_memory_use().allocated;
    trainer::reset_peak_memory();
    head.loss(hidden, targets).backward();
    hidden.mutable_grad().reset();
    head.weight.mutable_grad().reset();
    return trainer::cpu_memory_use().max_allocated - before;
  };
  const int64_t whole = peak();
  chunk_loss(head, "head", 16);
  const int64_t chunked = peak();
  EXPECT_GT(whole, 2 * rows * vocab * 4);
  EXPECT_LT(chunked, 2 * 16 * vocab * 4 + 200'000);
}

TEST(ChunkLoss, OtherModulesAndEmptyChunksAreRefusedByName) {
  Net net;
  EXPECT_NE(error_of<ConfigError>([&] { chunk_loss(net.blocks[0].proj, "proj", 8); }).find("proj"),
            std::string::npos);
  EXPECT_THROW(chunk_loss(net.head, "head", 0), ConfigError);
}

TEST(ChunkLoss, DynamicChunksAreThePowerOfTwoBelowTheTotal) {
  EXPECT_EQ(dynamic_chunk_rows(4096), 4096);
  EXPECT_EQ(dynamic_chunk_rows(5000), 4096);
  EXPECT_EQ(dynamic_chunk_rows(1), 1);
  EXPECT_EQ(dynamic_chunk_rows(0), 0);
}

}  // namespace
}  // namespace shardloom::features::testing
