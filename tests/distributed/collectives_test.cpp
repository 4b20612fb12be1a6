// Values of the collectives of the shared-memory backend: every element type, ragged and empty
// sizes, more than one chunk; against values computed on the rank itself and against gloo.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "shardloom/distributed/shm_backend_segment.h"
#include "tests/distributed/ranks.h"

namespace shardloom::distributed::testing {
namespace {

using RedOp = c10d::ReduceOp::RedOpType;

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16, at::kHalf, at::kLong,
                                            at::kByte};
// Elements: none, one, odd, and (but for bytes) several chunks of which the last is partial.
const std::vector<int64_t> kSizes = {0, 1, 1003, 3 * static_cast<int64_t>(kShmChunkBytes) / 4 + 5};

// What the backend promises: fp32 sums in rank order (int64: exact), one rounding.
at::Tensor serial_reduce(std::vector<at::Tensor> parts, RedOp op) {
  const at::ScalarType dtype = parts[0].scalar_type();
  const bool floating = c10::isFloatingType(dtype);
  at::Tensor sum = parts[0].to(floating ? at::kFloat : at::kLong);
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    const at::Tensor next = parts[rank].to(sum.scalar_type());
    sum = op == RedOp::MAX   ? at::max(sum, next)
          : op == RedOp::MIN ? at::min(sum, next)
                             : sum + next;
  }
  if (op == RedOp::AVG) sum = sum / static_cast<double>(parts.size());
  return sum.to(dtype);
}

std::vector<RedOp> reductions_of(at::ScalarType dtype) {
  std::vector<RedOp> ops = {RedOp::SUM, RedOp::MAX, RedOp::MIN};
  if (c10::isFloatingType(dtype)) ops.push_back(RedOp::AVG);
  return ops;
}

std::vector<at::Tensor> all_values(int size, std::vector<int64_t> shape, at::ScalarType dtype) {
  std::vector<at::Tensor> values;
  for (int rank = 0; rank < size; ++rank) values.push_back(rank_values(rank, shape, dtype));
  return values;
}

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  // Runs the body for every element type and size in one world.
  void for_all(
      const std::function<void(const RankContext&, c10d::Backend&, at::ScalarType, int64_t)>&
          body) {
    expect_ranks(GetParam(), [&](const RankContext& context) {
      const auto group = context.group(BackendKind::kShm);
      for (const at::ScalarType dtype : kTypes) {
        for (const int64_t numel : kSizes) {
          SCOPED_TRACE(fmt::format("rank {} {} {}", context.rank, c10::toString(dtype), numel));
          body(context, *group, dtype, numel);
        }
      }
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4));

TEST_P(Collectives, AllGatherIntoTensor) {
  for_all([](const RankContext& c, c10d::Backend& group, at::ScalarType dtype, int64_t numel) {
    at::Tensor input = rank_values(c.rank, {numel}, dtype);
    at::Tensor output = at::empty({c.size, numel}, dtype);
    group._allgather_base(output, input)->wait();
    EXPECT_TRUE(same_bits(output, at::stack(all_values(c.size, {numel}, dtype))));
  });
}

TEST_P(Collectives, AllGatherInPlace) {
  for_all([](const RankContext& c, c10d::Backend& group, at::ScalarType dtype, int64_t numel) {
    at::Tensor output = at::zeros({c.size, numel}, dtype);
    at::Tensor input = output[c.rank];
    input.copy_(rank_values(c.rank, {numel}, dtype));
    group._allgather_base(output, input)->wait();
    EXPECT_TRUE(same_bits(output, at::stack(all_values(c.size, {numel}, dtype))));
  });
}

TEST_P(Collectives, AllGatherListOfUnevenSizes) {
  for_all([](const RankContext& c, c10d::Backend& group, at::ScalarType dtype, int64_t numel) {
    std::vector<at::Tensor> inputs = {rank_values(c.rank, {numel * c.rank}, dtype)};
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int rank = 0; rank < c.size; ++rank) {
      outputs[0].push_back(at::empty({numel * rank}, dtype));
    }
    group.allgather(outputs, inputs)->wait();
    for (int rank = 0; rank < c.size; ++rank) {
      EXPECT_TRUE(same_bits(outputs[0][rank], rank_values(rank, {numel * rank}, dtype)));
    }
  });
}

TEST_P(Collectives, ReduceScatterIsTheSumInRankOrder) {
  for_all([](const RankContext& c, c10d::Backend& group, at::ScalarType dtype, int64_t numel) {
    const std::vector<at::Tensor> all = all_values(c.size, {c.size, numel}, dtype);
    for (const RedOp op : reductions_of(dtype)) {
      at::Tensor input = all[c.rank];
      at::Tensor output = at::empty({numel}, dtype);
      c10d::ReduceScatterOptions options;
      options.reduceOp = op;
      group._reduce_scatter_base(output, input, options)->wait();
      const at::Tensor right = serial_reduce(all, op);
      EXPECT_TRUE(same_bits(output, right[c.rank])) << "reduction " << static_cast<int>(op);
    }
  });
}

TEST_P(Collectives, ReduceScatterListOfUnevenSizes) {
  expect_ranks(GetParam(), [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    std::vector<std::vector<at::Tensor>> inputs(1);
    for (int to = 0; to < c.size; ++to) {
      inputs[0].push_back(rank_values(c.rank, {100'003 * to}, at::kFloat, to));
    }
    std::vector<at::Tensor> outputs = {at::empty({100'003 * c.rank})};
    group->reduce_scatter(outputs, inputs)->wait();
    std::vector<at::Tensor> parts;
    for (int from = 0; from < c.size; ++from) {
      parts.push_back(rank_values(from, {100'003 * c.rank}, at::kFloat, c.rank));
    }
    EXPECT_TRUE(same_bits(outputs[0], serial_reduce(parts, RedOp::SUM)));
  });
}

TEST_P(Collectives, AllReduceIsTheSumInRankOrder) {
  for_all([](const RankContext& c, c10d::Backend& group, at::ScalarType dtype, int64_t numel) {
    const std::vector<at::Tensor> all = all_values(c.size, {numel}, dtype);
    for (const RedOp op : reductions_of(dtype)) {
      std::vector<at::Tensor> tensors = {all[c.rank].clone()};
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      group.allreduce(tensors, options)->wait();
      EXPECT_TRUE(same_bits(tensors[0], serial_reduce(all, op)))
          << "reduction " << static_cast<int>(op);
    }
  });
}

// Rank r sends (r + 1) * (p + 2) % 4 blocks of rows to rank p: uneven, and some of them none.
int64_t rows_between(int from, int to, int64_t block) { return (from + 1) * (to + 2) % 4 * block; }

TEST_P(Collectives, AllToAllWithUnevenSplits) {
  for_all([](const RankContext& c, c10d::Backend& group, at::ScalarType dtype, int64_t numel) {
    const int64_t block = numel / 3;
    std::vector<int64_t> sent;
    std::vector<int64_t> received;
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> right;
    for (int peer = 0; peer < c.size; ++peer) {
      sent.push_back(rows_between(c.rank, peer, block));
      received.push_back(rows_between(peer, c.rank, block));
      inputs.push_back(rank_values(c.rank, {sent.back(), 3}, dtype, peer));
      right.push_back(rank_values(peer, {received.back(), 3}, dtype, c.rank));
    }
    at::Tensor input = at::cat(inputs);
    const at::Tensor expected = at::cat(right);
    at::Tensor output = at::empty_like(expected);
    group.alltoall_base(output, input, received, sent)->wait();
    EXPECT_TRUE(same_bits(output, expected));
  });
}

TEST_P(Collectives, BroadcastFromEachRank) {
  for_all([](const RankContext& c, c10d::Backend& group, at::ScalarType dtype, int64_t numel) {
    for (int root = 0; root < c.size; ++root) {
      std::vector<at::Tensor> tensors = {rank_values(c.rank, {numel}, dtype)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      group.broadcast(tensors, options)->wait();
      EXPECT_TRUE(same_bits(tensors[0], rank_values(root, {numel}, dtype)));
    }
  });
}

TEST_P(Collectives, InputsMayHaveAnyStrides) {
  expect_ranks(GetParam(), [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    at::Tensor input = rank_values(c.rank, {5, 7}, at::kFloat).t();
    at::Tensor output = at::empty({c.size, 7, 5});
    group->_allgather_base(output, input)->wait();
    for (int rank = 0; rank < c.size; ++rank) {
      EXPECT_TRUE(same_bits(output[rank], rank_values(rank, {5, 7}, at::kFloat).t()));
    }
  });
}

// Sums of a NaN, infinities and a bf16 that must round to even.
TEST(CollectiveValues, SpecialValuesOfBf16) {
  expect_ranks(2, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    const float mine[2][5] = {{NAN, INFINITY, 256, 258, 3e38f}, {1, -INFINITY, 1, 1, 3e38f}};
    std::vector<at::Tensor> tensors = {
        at::tensor(c10::ArrayRef<float>(mine[c.rank], 5)).to(at::kBFloat16)};
    group->allreduce(tensors)->wait();
    const at::Tensor sums = tensors[0].to(at::kFloat);
    EXPECT_TRUE(std::isnan(sums[0].item<float>()));
    EXPECT_TRUE(std::isnan(sums[1].item<float>()));
    EXPECT_EQ(sums[2].item<float>(), 256);  // 257 lies in the middle of 256 and 258
    EXPECT_EQ(sums[3].item<float>(), 260);  // 259 in the middle of 258 and 260
    EXPECT_EQ(sums[4].item<float>(), INFINITY);
  });
}

void compare_with_gloo(const RankContext& c, c10d::Backend& shm, c10d::Backend& gloo) {
  constexpr int64_t kNumel = 200'003;
  at::Tensor input = rank_values(c.rank, {kNumel}, at::kFloat);
  at::Tensor wide = rank_values(c.rank, {c.size * kNumel}, at::kFloat);
  at::Tensor gathered[2];
  at::Tensor scattered[2];
  std::vector<at::Tensor> reduced[2];
  c10d::Backend* groups[2] = {&shm, &gloo};
  for (int i = 0; i < 2; ++i) {
    gathered[i] = at::empty({c.size * kNumel});
    scattered[i] = at::empty({kNumel});
    reduced[i] = {input.clone()};
    groups[i]->_allgather_base(gathered[i], input)->wait();
    groups[i]->_reduce_scatter_base(scattered[i], wide)->wait();
    groups[i]->allreduce(reduced[i])->wait();
  }
  EXPECT_TRUE(same_bits(gathered[0], gathered[1]));
  // gloo adds along a ring: the same order, and so the same bits, with two ranks only.
  if (c.size == 2) {
    EXPECT_TRUE(same_bits(scattered[0], scattered[1]));
    EXPECT_TRUE(same_bits(reduced[0][0], reduced[1][0]));
  } else {
    // Values lie below 64 and 4 of them are added: two roundings of 2^-17 each.
    EXPECT_LT((scattered[0] - scattered[1]).abs().max().item<float>(), 6e-5);
    EXPECT_LT((reduced[0][0] - reduced[1][0]).abs().max().item<float>(), 6e-5);
  }
}

TEST_P(Collectives, AgreeWithGloo) {
  expect_ranks(GetParam(), [](const RankContext& c) {
    const auto shm = c.group(BackendKind::kShm, "shm");
    const auto gloo = c.group(BackendKind::kGloo, "gloo");
    compare_with_gloo(c, *shm, *gloo);
    gloo->barrier()->wait();
  });
}

}  // namespace
}  // namespace shardloom::distributed::testing
