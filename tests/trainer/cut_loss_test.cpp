// The loss of sequences that are cut among ranks: labels are shifted before the cut, so the target
// of a part's last position, here the only one of its sample, is not lost.
#include <gtest/gtest.h>

#include "shardloom/distributed/world.h"
#include "shardloom/loss/loss.h"
#include "shardloom/ops/cross_entropy.h"
#include "shardloom/parallel/context_parallel.h"
#include "tests/distributed/ranks.h"
#include "tests/testing/tensors.h"

namespace shardloom::trainer {
namespace {

using distributed::testing::expect_ranks;
using distributed::testing::RankContext;
using testing::max_difference;
using testing::tensor_of;

TEST(CutLoss, IsThatOfTheWholeForTwoAndFourParts) {
  const Json c = read_json_file(SHARDLOOM_TEST_DATA "/num/NUM-01.json", ExitCode::kInternal);
  const Json& right = c["right"]["sample_mean_skip_empty (seed rule; empty samples left out)"];
  for (const int ranks : {2, 4}) {
    expect_ranks(ranks, [&](const RankContext& rank) {
      const auto world =
          distributed::World::over(rank.store, rank.rank, rank.size, distributed::BackendKind::kShm,
                                   std::chrono::seconds(60));
      const auto own = [&](const at::Tensor& t) {
        return parallel::own_part(t, 1, *world->group()).flatten(0, 1);
      };
      const at::Tensor targets = loss::shift_labels(tensor_of(c["labels"]).to(at::kLong));
      const at::Tensor weights =
          loss::token_weights(targets, loss::LossType::kSampleMean, loss::count_targets(targets));
      const at::Tensor w = tensor_of(c["W"]).to(at::kFloat).requires_grad_();
      const at::Tensor rows = at::nonzero(own(targets).ge(0)).squeeze(1);
      const at::Tensor hidden = own(tensor_of(c["h"]).to(at::kFloat)).index_select(0, rows);
      const at::Tensor loss =
          ops::weighted_cross_entropy(at::mm(hidden, w.t()), own(targets).index_select(0, rows),
                                      own(weights).index_select(0, rows));
      loss.backward();
      at::Tensor total = loss.detach().reshape({1}).clone(), grad = w.grad().clone();
      world->group()->all_reduce(total, distributed::Reduction::kSum).wait();
      world->group()->all_reduce(grad, distributed::Reduction::kSum).wait();
      // The fp32 tolerance that the case states.
      EXPECT_NEAR(total.item<double>(), right["loss"].get<double>(), 2e-5);
      EXPECT_LT(max_difference(grad, tensor_of(right["dW"])), 2e-5);
    });
  }
}

}  // namespace
}  // namespace shardloom::trainer
