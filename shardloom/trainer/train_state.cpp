#include "shardloom/trainer/train_state.h"

#include <type_traits>

#include "shardloom/base/error.h"
#include "shardloom/data/dataset.h"

namespace shardloom::trainer {
namespace {

using checkpoint::extra_state_key;
using checkpoint::dcp::PythonValue;

constexpr const char* kSkippedSamples = "skipped_samples";

// All fields with their names in a checkpoint.
template <typename State, typename Visitor>
void visit_fields(State& state, Visitor&& visit) {
  visit("iteration", state.iteration);
  visit("consumed_train_samples", state.consumed_samples);
  visit("optimizer_steps", state.optimizer_steps);
  visit(kSkippedSamples, state.skipped_samples);
  visit("data", state.data);
  visit("shuffle", state.shuffle);
  visit("shuffle_seed", state.shuffle_seed);
  visit("seed", state.seed);
  visit("shuffled_samples", state.shuffled_samples);
  visit("samples_per_epoch", state.samples_per_epoch);
  visit("global_batch_size", state.global_batch_size);
  visit("world_size", state.world_size);
  visit("train_iters", state.train_iters);
  visit("lr_warmup_iters", state.lr_warmup_iters);
  visit("lr", state.lr);
  visit("lr_start", state.lr_start);
  visit("lr_min", state.lr_min);
  visit("lr_decay_ratio", state.lr_decay_ratio);
  visit("lr_decay_style", state.lr_decay_style);
}

template <typename T>
std::string change(const char* key, const T& saved, const T& now) {
  return fmt::format("{} is {}, in the checkpoint {}", key, now, saved);
}

}  // namespace

TrainState initial_state(const config::TrainConfig& config,
                         const data::Dataset& dataset,
                         const data::SamplerOptions& sampler,
                         const optim::LrSchedule& schedule,
                         int64_t train_iters,
                         int64_t world_size) {
  const auto& training = config.training;
  const data::EpochCut cut = data::Sampler(sampler).cut();
  TrainState state;
  state.data = dataset.fingerprint();
  state.shuffle = sampler.shuffle;
  state.shuffle_seed = config.data.dataloader_param.shuffle_seed;
  state.seed = training.seed;
  state.shuffled_samples = cut.shuffled;
  state.samples_per_epoch = cut.used;
  state.global_batch_size = *training.global_batch_size;
  state.world_size = world_size;
  state.train_iters = train_iters;
  state.lr_warmup_iters = schedule.warmup_iters();
  state.lr = training.lr;
  state.lr_start = training.lr_start;
  state.lr_min = training.lr_min;
  state.lr_decay_ratio = training.lr_decay_ratio;
  state.lr_decay_style = training.lr_decay_style;
  return state;
}

std::vector<checkpoint::StateValue> to_values(const TrainState& state) {
  std::vector<checkpoint::StateValue> values;
  visit_fields(state, [&](const char* name, const auto& value) {
    values.push_back({extra_state_key(name), PythonValue(value)});
  });
  return values;
}

std::optional<TrainState> read_train_state(const checkpoint::dcp::Reader& reader) {
  const auto& values = reader.metadata().values;
  if (!values.contains(extra_state_key("iteration").name)) return std::nullopt;
  TrainState state;
  visit_fields(state, [&](const char* field, auto& target) {
    using Field = std::remove_reference_t<decltype(target)>;
    const std::string name = extra_state_key(field).name;
    if (std::string_view(field) == kSkippedSamples && !values.contains(name)) return;
    const PythonValue value = reader.value(name);
    const Field* found = value.get_if<Field>();
    if (found == nullptr) {
      throw CheckpointError("{}: \"{}\" is {}, which is of another type than expected",
                            reader.folder().string(), name, python_text(value));
    }
    target = *found;
  });
  if (state.iteration < 0 || state.consumed_samples < 0 || state.skipped_samples < 0 ||
      state.samples_per_epoch <= 0 || state.shuffled_samples < state.samples_per_epoch ||
      state.world_size <= 0) {
    throw CheckpointError(
        "{}: iteration {}, consumed samples {}, skipped samples {}, world size {}, samples of an "
        "epoch {} of {} cannot be",
        reader.folder().string(), state.iteration, state.consumed_samples, state.skipped_samples,
        state.world_size, state.samples_per_epoch, state.shuffled_samples);
  }
  return state;
}

StateChanges compare(const TrainState& saved, const TrainState& now) {
  StateChanges changes;
  auto& refused = changes.refused;
  if (saved.data != now.data) {
    refused.push_back(fmt::format("the data are\n    {}\n  in the checkpoint they were\n    {}",
                                  now.data, saved.data));
  }
  const auto check = [](auto& list, const char* key, const auto& before, const auto& after) {
    if (before != after) list.push_back(change(key, before, after));
  };
  check(refused, "data.dataloader_param.shuffle", saved.shuffle, now.shuffle);
  const bool shuffled = saved.shuffle && now.shuffle;
  if (shuffled) {
    check(refused, "data.dataloader_param.shuffle_seed", saved.shuffle_seed, now.shuffle_seed);
  }
  const bool seed_orders = shuffled && now.shuffle_seed == "training";
  auto& announced = changes.announced;
  check(seed_orders ? refused : announced, "training.seed", saved.seed, now.seed);
  check(announced, "training.global_batch_size", saved.global_batch_size, now.global_batch_size);
  check(announced, "training.train_iters", saved.train_iters, now.train_iters);
  check(announced, "warm-up iterations", saved.lr_warmup_iters, now.lr_warmup_iters);
  check(announced, "training.lr", saved.lr, now.lr);
  check(announced, "training.lr_start", saved.lr_start, now.lr_start);
  check(announced, "training.lr_min", saved.lr_min, now.lr_min);
  check(announced, "training.lr_decay_ratio", saved.lr_decay_ratio, now.lr_decay_ratio);
  check(announced, "training.lr_decay_style", saved.lr_decay_style, now.lr_decay_style);
  return changes;
}

}  // namespace shardloom::trainer
