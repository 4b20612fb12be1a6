#include "shardloom/trainer/expert_load.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/graph_task.h>

#include "shardloom/nn/call.h"
#include "shardloom/nn/module_names.h"

namespace shardloom::trainer {

class ExpertLoads::Observer : public nn::CallWrapper {
 public:
  Observer(std::shared_ptr<Shared> shared, int64_t layer)
      : shared_(std::move(shared)), layer_(layer) {}

  void around(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) override {
    const bool in_backward = torch::autograd::get_current_graph_task_id() != -1;
    if (shared_->is_on && !in_backward) {
      const at::Tensor ids = call->inputs().at(2)->reshape({-1}).to(at::kCPU);
      shared_->counts.select(0, layer_).add_(
          at::bincount(ids, /*weights=*/{}, shared_->counts.size(1)));
    }
    inner();
  }

 private:
  std::shared_ptr<Shared> shared_;
  int64_t layer_;
};

ExpertLoads::ExpertLoads(models::Model& model) {
  const std::vector<std::string> layers = model.expert_modules();
  if (layers.empty()) return;
  shared_->counts =
      at::zeros({static_cast<int64_t>(layers.size()), model.facts()->experts}, at::kLong);
  const nn::ModulesByName modules(model);
  for (size_t i = 0; i < layers.size(); ++i) {
    modules.get(layers[i], "expert load")
        .add_wrapper(std::make_shared<Observer>(shared_, static_cast<int64_t>(i)));
  }
}

std::optional<ExpertLoadMetrics> ExpertLoads::take(distributed::Group& world) {
  if (!shared_->counts.defined()) return std::nullopt;
  if (world.size() > 1)
    world.all_reduce(shared_->counts, distributed::Reduction::kSum, "expert load").wait();
  const ExpertLoadMetrics metrics = load_metrics(shared_->counts);
  shared_->counts.zero_();
  return metrics;
}

ExpertLoadMetrics load_metrics(const at::Tensor& counts) {
  ExpertLoadMetrics metrics;
  for (int64_t layer = 0; layer < counts.size(0); ++layer) {
    const at::Tensor row = counts.select(0, layer);
    const double mean = row.to(at::kDouble).mean().item<double>();
    metrics.max_over_mean.push_back(mean > 0 ? row.max().item<double>() / mean : 0.0);
    metrics.unused.push_back(row.eq(0).sum().item<int64_t>());
  }
  return metrics;
}

}  // namespace shardloom::trainer
