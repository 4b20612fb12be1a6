#include "shardloom/trainer/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/distributed/device_mesh.h"
#include "shardloom/nn/layers.h"
#include "shardloom/ops/cross_entropy.h"
#include "shardloom/parallel/apply.h"

namespace shardloom::trainer {
namespace {

// Logits from the token alone; enough to see denominators.
class TokenModel : public models::Model {
 public:
  TokenModel() {
    register_module("embed", embed);
    at::manual_seed(5);
    const at::NoGradGuard no_grad;
    embed.weight.normal_();
    embed.weight.requires_grad_();
  }
  void init_parameter(const std::string&, const at::Tensor&) const override {}
  models::TensorMap idle_batch() const override {
    return {{"input_ids", at::zeros({1, 1}, at::kLong)}};
  }
  std::string export_config(const std::string&, nn::Layout) const override { return "{}"; }
  at::Tensor forward_logits(const models::TensorMap& batch) override {
    return embed(batch.at("input_ids"));
  }
  models::ModelOutput forward_loss(const models::TensorMap& batch,
                                   const models::LossTargets& t) override {
    const at::Tensor rows = at::nonzero(t.targets.flatten().ge(0)).squeeze(1);
    return {ops::weighted_cross_entropy(forward_logits(batch).flatten(0, 1).index_select(0, rows),
                                        t.targets.flatten().index_select(0, rows),
                                        t.weights.flatten().index_select(0, rows)),
            {}};
  }

  nn::Embedding embed{7, 7, at::TensorOptions().dtype(at::kFloat)};
};

// Rows of token ids; a target is every token behind the first `prompt` ones.
data::Batch batch_of(const std::vector<std::vector<int64_t>>& rows, int64_t prompt) {
  data::Batch batch;
  std::vector<int64_t> ids, labels;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      ids.push_back(row[i]);
      labels.push_back(static_cast<int64_t>(i) < prompt ? loss::kIgnoreIndex : row[i]);
    }
    batch.sample_indices.push_back(static_cast<int64_t>(batch.sample_indices.size()));
    batch.sample_places.push_back("rows:" + std::to_string(batch.sample_places.size() + 1));
    batch.num_tokens += static_cast<int64_t>(row.size());
  }
  const auto B = static_cast<int64_t>(rows.size());
  const auto S = rows.empty() ? int64_t{1} : static_cast<int64_t>(rows[0].size());
  batch.arrays = {{"input_ids", data::Array::of_ints({B, S}, ids)},
                  {"labels", data::Array::of_ints({B, S}, labels)}};
  return batch;
}

struct Outcome {
  StepResult result;
  at::Tensor grad;
};

struct Sharded {
  explicit Sharded(models::Model& model)
      : target{model, parallel::apply(model, meshes.fully_shard, {}), *meshes.data_parallel,
               *meshes.context_parallel, *meshes.world} {}
  std::shared_ptr<distributed::World> world = distributed::World::alone();
  distributed::ParallelMeshes meshes = distributed::ParallelMeshes::make(*world, {});
  StepTarget target;
};

Outcome run(std::vector<data::Batch> batches, loss::LossType type) {
  TokenModel model;
  Sharded sharded(model);
  Outcome outcome;
  outcome.result = forward_backward(sharded.target, std::move(batches), {type, 0.0}, false);
  outcome.grad = parallel::sharded_parameters(model)[0].parameter.grad();
  return outcome;
}

TEST(Step, LossAndGradientDoNotDependOnTheCutIntoMicroBatches) {
  const std::vector<int64_t> a = {1, 2, 3, 4, 5, 6}, b = {6, 6, 1, 0, 0, 0};
  for (const auto type :
       {loss::LossType::kTokenMean, loss::LossType::kSampleMean, loss::LossType::kSquare}) {
    std::vector<data::Batch> whole, cut;
    whole.push_back(batch_of({a, b}, 2));
    cut.push_back(batch_of({a}, 2));
    cut.push_back(batch_of({}, 2));  // all samples of a micro batch skipped
    cut.push_back(batch_of({b}, 2));
    const Outcome one = run(std::move(whole), type), three = run(std::move(cut), type);
    EXPECT_NEAR(one.result.loss, three.result.loss, 1e-6);
    EXPECT_LT((one.grad - three.grad).abs().max().item<float>(), 1e-6f);
    EXPECT_EQ(three.result.counts.tokens, 8);
    EXPECT_EQ(three.result.tokens, 12);
    EXPECT_EQ(three.result.sample_places.size(), 2u);
  }
}

TEST(Step, NoTargetGivesZeroLossAndZeroGradients) {
  std::vector<data::Batch> batches;
  batches.push_back(batch_of({{1, 2, 3}}, 3));
  const Outcome outcome = run(std::move(batches), loss::LossType::kSampleMean);
  EXPECT_EQ(outcome.result.loss, 0.0);
  EXPECT_EQ(outcome.result.counts.samples_without_targets, 1);
  EXPECT_EQ(outcome.grad.abs().max().item<float>(), 0.0f);
}

TEST(Step, EvaluationLeavesNoGradient) {
  TokenModel model;
  Sharded sharded(model);
  loss::TargetCounts counts;
  const double loss =
      evaluate(sharded.target, batch_of({{1, 2, 3, 4}}, 1), loss::LossType::kTokenMean, counts);
  EXPECT_GT(loss, 0.0);
  EXPECT_EQ(counts.tokens, 3);
  EXPECT_FALSE(parallel::sharded_parameters(model)[0].parameter.grad().defined());
}

// A forward step of a program's own, as pretrain() takes it.
StepResult run_with(ForwardStep forward_step) {
  TokenModel model;
  Sharded sharded(model);
  sharded.target.forward_step = std::move(forward_step);
  std::vector<data::Batch> batches;
  batches.push_back(batch_of({{1, 2, 3, 4}}, 1));
  batches.push_back(batch_of({{5, 6, 1, 2}}, 1));
  return forward_backward(sharded.target, std::move(batches), {loss::LossType::kTokenMean, 0.0},
                          false);
}

TEST(ForwardStepOfTheProgram, ItsLossIsTheOneThatCountsAndItsFieldsAreSummed) {
  const StepResult own = run_with(model_forward_step);
  const StepResult twice = run_with([](DataIterator& data, models::Model& model) -> ForwardResult {
    const MicroBatch batch = data.next();
    const auto targets = static_cast<double>(batch.targets.targets.ge(0).sum().item<int64_t>());
    return {model.compute_loss(batch.tensors, batch.targets),
            [targets](const models::ModelOutput& output) -> LossReport {
              return {output.loss * 2, {{"targets", targets}}};
            }};
  });
  EXPECT_NEAR(twice.loss, 2 * own.loss, 1e-6);
  EXPECT_EQ(twice.logged.at("targets"), 6);
  EXPECT_TRUE(own.logged.empty());
}

std::string fault_of(ForwardStep forward_step) {
  try {
    run_with(std::move(forward_step));
    return {};
  } catch (const InternalError& error) {
    return error.what();
  }
}

TEST(ForwardStepOfTheProgram, BrokenRulesAreNamed) {
  const auto with_loss = [](LossFunction loss_func) {
    return fault_of([loss_func](DataIterator& data, models::Model& model) -> ForwardResult {
      const MicroBatch batch = data.next();
      return {model.compute_loss(batch.tensors, batch.targets), loss_func};
    });
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(with_loss({}), HasSubstr("no loss function"));
  EXPECT_THAT(with_loss([](const models::ModelOutput&) { return LossReport{}; }),
              HasSubstr("returned no loss"));
  EXPECT_THAT(with_loss([](const models::ModelOutput& output) -> LossReport {
                return {output.loss.expand({3}), {}};
              }),
              HasSubstr("of shape [3]"));
  EXPECT_THAT(fault_of([](DataIterator&, models::Model&) { return ForwardResult{}; }),
              HasSubstr("took 0 micro batches"));
  EXPECT_THAT(fault_of([](DataIterator& data, models::Model& model) {
                data.next();
                return model_forward_step(data, model);
              }),
              HasSubstr("took 2 micro batches"));
}

}  // namespace
}  // namespace shardloom::trainer
