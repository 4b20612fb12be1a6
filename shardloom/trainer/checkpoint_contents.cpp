#include "shardloom/trainer/checkpoint_contents.h"

#include <ATen/Context.h>

#include <mutex>
#include <utility>

#include "shardloom/checkpoint/checkpoint_reader.h"

namespace shardloom::trainer {
namespace {

using checkpoint::CheckpointState;
using checkpoint::DType;
using checkpoint::dcp::PythonValue;
using distributed::ShardedTensor;

void add_optimizer(CheckpointState& state, const RunTensors& run) {
  size_t index = 0;
  for (const auto& p : run.parameters) {
    if (!p.parameter.requires_grad()) continue;
    const auto& moments = run.optimizer.moments().at(index++);
    const auto add = [&](const char* field, const at::Tensor& rows) {
      ShardedTensor tensor = p.tensor;
      tensor.local = rows;
      state.tensors.push_back(
          {checkpoint::optimizer_state_key(p.tensor.name, field), std::move(tensor), DType::kF32});
    };
    add(checkpoint::kExpAvg, moments.exp_avg);
    add(checkpoint::kExpAvgSq, moments.exp_avg_sq);
    const auto step = checkpoint::optimizer_state_key(p.tensor.name, checkpoint::kStep);
    state.tensors.push_back(
        {step,
         ShardedTensor::whole(step.name,
                              at::full({}, static_cast<double>(run.optimizer.steps()), at::kFloat)),
         DType::kF32});
  }
}

// As torch.optim.AdamW.state_dict() has it behind a learning-rate scheduler.
void add_param_group(CheckpointState& state,
                     const config::TrainingConfig& training,
                     const RunTensors& run,
                     double next_lr) {
  PythonValue::List names;
  for (const auto& p : run.parameters) {
    if (p.parameter.requires_grad()) names.items.emplace_back(p.tensor.name);
  }
  const std::vector<std::pair<const char*, PythonValue>> options = {
      {"lr", next_lr},
      {"betas", PythonValue::Tuple{{training.adam_beta1, training.adam_beta2}}},
      {"eps", training.adam_eps},
      {"weight_decay", training.weight_decay},
      {"amsgrad", false},
      {"maximize", false},
      {"foreach", !training.adam_fused},
      {"capturable", false},
      {"differentiable", false},
      {"fused", training.adam_fused},
      {"decoupled_weight_decay", true},
      {"initial_lr", training.lr},
      {"params", std::move(names)},
  };
  for (const auto& [name, value] : options)
    state.values.push_back({checkpoint::param_group_key(0, name), value});
}

at::Tensor cpu_rng_state() {
  at::Generator generator = at::globalContext().defaultGenerator(c10::Device(c10::kCPU));
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

checkpoint::StateKey rng_state_key(int64_t rank) {
  return checkpoint::extra_state_key(fmt::format("torch_rng_state_rank_{}", rank));
}

DType save_dtype(const std::optional<std::string>& name) {
  if (!name || *name == "fp32") return DType::kF32;
  return *name == "bf16" ? DType::kBF16 : DType::kF16;
}

CheckpointState checkpoint_contents(const config::TrainingConfig& training,
                                    const RunTensors& run,
                                    const TrainState& state,
                                    double next_lr,
                                    int rank) {
  CheckpointState contents;
  contents.values = to_values(state);
  for (const auto& p : run.parameters) {
    contents.tensors.push_back(
        {checkpoint::model_key(p.tensor.name), p.tensor, save_dtype(training.save_ckpt_dtype)});
  }
  if (!training.no_save_optim && run.optimizer.steps() > 0) {
    add_optimizer(contents, run);
    add_param_group(contents, training, run, next_lr);
  }
  if (!training.no_save_rng) {
    const auto key = rng_state_key(rank);
    contents.tensors.push_back({key, ShardedTensor::whole(key.name, cpu_rng_state()), DType::kU8});
  }
  return contents;
}

}  // namespace shardloom::trainer
