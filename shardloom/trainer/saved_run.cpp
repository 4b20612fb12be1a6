#include "shardloom/trainer/saved_run.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros_like.h>

#include <mutex>
#include <tuple>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/checkpoint_reader.h"
#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/trainer/checkpoint_contents.h"
#include "shardloom/trainer/sharding.h"

namespace shardloom::trainer {
namespace {

using checkpoint::WantedTensor;

constexpr double kMaxSteps = 1e15;

// A value that is the same in the state of all these parameters.
int64_t common_step(const checkpoint::dcp::Reader& reader,
                    const std::vector<std::string>& parameters,
                    const std::string& prefix) {
  std::optional<double> common;
  for (const std::string& parameter : parameters) {
    const std::string name =
        checkpoint::optimizer_state_key(parameter, checkpoint::kStep, prefix).name;
    const at::Tensor step = at::zeros({}, at::kDouble);
    const WantedTensor wanted{name, distributed::ShardedTensor::whole(name, step)};
    if (!reader.metadata().tensors.contains(name)) continue;
    checkpoint::read_wanted(reader, {wanted});
    const double value = step.item<double>();
    if (!(value >= 0 && value < kMaxSteps)) {
      throw CheckpointError("{}: \"{}\" is {}, which is no count of steps",
                            reader.folder().string(), name, value);
    }
    if (common && *common != value) {
      throw CheckpointError(
          "{}: \"{}\" is {}, of other parameters it is {}; one count for all is needed. "
          "training.no_load_optim: true starts with a fresh optimizer",
          reader.folder().string(), name, value, *common);
    }
    common = value;
  }
  return static_cast<int64_t>(common.value_or(0));
}

// What the optimizer was set to in the checkpoint, where it was something else.
std::vector<std::string> changed_settings(const checkpoint::dcp::Reader& reader,
                                          const config::TrainingConfig& training) {
  using checkpoint::dcp::PythonValue;
  const std::tuple<const char*, const char*, PythonValue> settings[] = {
      {"betas", "(training.adam_beta1, training.adam_beta2)",
       PythonValue::Tuple{{training.adam_beta1, training.adam_beta2}}},
      {"eps", "training.adam_eps", training.adam_eps},
      {"weight_decay", "training.weight_decay", training.weight_decay},
  };
  std::vector<std::string> changed;
  for (const auto& [option, key, now] : settings) {
    const std::string name = checkpoint::param_group_key(0, option).name;
    if (!reader.metadata().values.contains(name)) continue;
    const std::string saved = python_text(reader.value(name));
    if (saved == python_text(now)) continue;
    changed.push_back(fmt::format("{} is {}, in the checkpoint {}", key, python_text(now), saved));
  }
  return changed;
}

}  // namespace

SavedRun::SavedRun(LoadSource source, const config::TrainingConfig& training, bool verbose)
    : source_(std::move(source)),
      training_(training),
      verbose_(verbose),
      reader_(source_.folder, {.verify_crc = true}) {
  if (checkpoint::is_release_folder(folder())) return;
  saved_ = read_train_state(reader_);
  if (saved_) source_.iteration = saved_->iteration;
}

TrainState SavedRun::begin(const TrainState& fresh) {
  if (!goes_on()) return fresh;
  if (!saved_) {
    saved_ = fresh;
    saved_->iteration = *source_.iteration;
    saved_->consumed_samples = *source_.iteration * fresh.global_batch_size;
    saved_->optimizer_steps = *source_.iteration;
    if (verbose_) {
      log::warn(
          "{} tells nothing of data and schedule: the run goes on after iteration {} and {} "
          "samples, as if the configuration had not changed",
          folder().string(), saved_->iteration, saved_->consumed_samples);
    }
  }
  const StateChanges changes = compare(*saved_, fresh);
  if (!changes.refused.empty()) {
    throw CheckpointError(
        "{} cannot be resumed with this configuration, the run would not see the data that it "
        "says:\n  {}\n  Restore these settings, or start a new run from the weights alone: set "
        "training.load to "
        "a copy of the folder, or a link to it, whose name is {}",
        folder().string(), join(changes.refused, "\n  "), checkpoint::kReleaseName);
  }
  if (verbose_) {
    log::info("resuming {}: after iteration {} and {} samples{}", folder().string(),
              saved_->iteration, saved_->consumed_samples,
              saved_->world_size == fresh.world_size
                  ? ""
                  : fmt::format(" ({} ranks then, {} now)", saved_->world_size, fresh.world_size));
    if (!changes.announced.empty()) log::warn("from here on: {}", join(changes.announced, "; "));
  }
  TrainState state = fresh;
  state.iteration = saved_->iteration;
  state.consumed_samples = saved_->consumed_samples;
  state.skipped_samples = saved_->skipped_samples;
  state.shuffled_samples = saved_->shuffled_samples;
  state.samples_per_epoch = saved_->samples_per_epoch;
  return state;
}

void SavedRun::load_weights(const models::Model& model,
                            const std::vector<parallel::ShardedParameter>& parameters) const {
  checkpoint::DcpLoadOptions options;
  options.strict = training_.load_strict;
  options.verbose = verbose_;
  options.may_ignore = [&model](const std::string& key) { return model.may_ignore(key); };
  checkpoint::load_dcp_weights(reader_, sharded_tensors(parameters), options);
}

void SavedRun::load_optimizer(const std::vector<parallel::ShardedParameter>& parameters,
                              optim::AdamW& optimizer) const {
  if (!goes_on()) return;
  if (training_.no_load_optim) {
    if (verbose_) log::warn("training.no_load_optim: the optimizer starts afresh");
    return;
  }
  std::vector<distributed::ShardedTensor> trained;
  std::vector<std::string> names;
  for (const auto& p : parameters) {
    if (!p.parameter.requires_grad()) continue;
    trained.push_back(p.tensor);
    names.push_back(p.tensor.name);
  }
  const std::string prefix = checkpoint::detect_prefix(reader_.metadata(), names);
  std::vector<optim::AdamW::Moments> moments;
  std::vector<WantedTensor> wanted;
  for (const distributed::ShardedTensor& tensor : trained) {
    const at::Tensor local = tensor.local.detach();
    moments.push_back({at::zeros_like(local), at::zeros_like(local)});
    for (const auto& [field, rows] :
         {std::pair(checkpoint::kExpAvg, moments.back().exp_avg),
          std::pair(checkpoint::kExpAvgSq, moments.back().exp_avg_sq)}) {
      distributed::ShardedTensor target = tensor;
      target.local = rows;
      wanted.push_back(
          {checkpoint::optimizer_state_key(tensor.name, field, prefix).name, std::move(target)});
    }
  }
  const checkpoint::KeyProblems problems = checkpoint::check_wanted(reader_, wanted);
  if (problems.missing.size() == wanted.size()) {
    if (saved_->optimizer_steps == 0) return;  // it was saved before the first step
    throw CheckpointError(
        "{} has no optimizer state (training.no_save_optim?); training.no_load_optim: true starts "
        "with a fresh optimizer",
        folder().string());
  }
  checkpoint::report_key_problems(folder().string() + " (optimizer state)", problems,
                                  training_.load_strict, verbose_);
  const auto changed = changed_settings(reader_, training_);
  if (verbose_ && !changed.empty()) log::warn("from here on: {}", join(changed, "; "));
  checkpoint::read_wanted(reader_, wanted);
  optimizer.restore(std::move(moments), common_step(reader_, names, prefix));
}

void SavedRun::load_rng(int rank) const {
  if (!goes_on() || training_.no_load_rng) return;
  const auto& tensors = reader_.metadata().tensors;
  const auto name_of = [](int64_t of_rank) { return rng_state_key(of_rank).name; };
  const int64_t of_rank = rank < saved_->world_size ? rank : rank % saved_->world_size;
  const auto found = tensors.find(name_of(of_rank));
  if (found == tensors.end()) {
    throw CheckpointError(
        "{} has no state of the random generators (training.no_save_rng?); training.no_load_rng: "
        "true goes on with those of training.seed",
        folder().string());
  }
  at::Generator generator = at::globalContext().defaultGenerator(c10::Device(c10::kCPU));
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  const auto& saved = found->second;
  if (saved.dtype != checkpoint::DType::kU8 || saved.shape != state.sizes().vec()) {
    throw CheckpointError(
        "{}: \"{}\" is {} {}, the state of a generator is U8 [{}]; training.no_load_rng: true goes "
        "on with those of training.seed",
        folder().string(), found->first, checkpoint::dtype_name(saved.dtype),
        checkpoint::shape_text(saved.shape), state.numel());
  }
  checkpoint::read_wanted(reader_,
                          {{found->first, distributed::ShardedTensor::whole(found->first, state)}});
  generator.set_state(state);
}

}  // namespace shardloom::trainer
