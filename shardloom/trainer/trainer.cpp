#include "shardloom/trainer/trainer.h"

#include "shardloom/base/interrupt.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/optim/clip_grad.h"
#include "shardloom/trainer/assembly.h"
#include "shardloom/trainer/memory_counter.h"
#include "shardloom/trainer/plan_check.h"
#include "shardloom/trainer/same_settings.h"

namespace shardloom::trainer {
namespace {

constexpr int64_t kMaxNonFiniteInARow = 10;

optim::LrScheduleOptions schedule_options(const config::TrainingConfig& t, int64_t train_iters) {
  optim::LrScheduleOptions o;
  o.lr = t.lr;
  o.lr_start = t.lr_start;
  o.lr_min = t.lr_min;
  o.decay_style = optim::parse_lr_decay_style(t.lr_decay_style);
  o.lr_decay_ratio = t.lr_decay_ratio;
  o.lr_warmup_ratio = t.lr_warmup_ratio;
  o.lr_warmup_iters = t.lr_warmup_iters;
  o.train_iters = train_iters;
  return o;
}

MemoryMetrics memory_metrics(int rank, int64_t iteration) {
  const MemoryUse use = cpu_memory_use();
  MemoryMetrics metrics;
  metrics.rank = rank;
  metrics.iteration = iteration;
  metrics.allocated = metrics.reserved = use.allocated;
  metrics.max_allocated = metrics.max_reserved = use.max_allocated;
  return metrics;
}

}  // namespace

Trainer::Trainer(config::LoadedConfig config,
                 TrainerParts parts,
                 std::shared_ptr<models::Model> model,
                 std::shared_ptr<distributed::World> world)
    : loaded_(std::move(config)),
      config_(loaded_.config),
      parts_(std::move(parts)),
      world_(std::move(world)),
      model_(std::move(model)) {
  const auto& training = config_.training;
  if (is_main()) prepare_folders(training);
  at::manual_seed(static_cast<uint64_t>(training.seed));
  source_ = find_load_source(config_);
  if (source_.kind == LoadSource::Kind::kDcp) saved_run_.emplace(source_, training, is_main());
  meshes_ =
      distributed::ParallelMeshes::make(*world_, parallel_dims(config_.parallel, world_->size()));
  loss_options_ = {loss::parse_loss_type(config_.features.loss_cfg.loss_type),
                   config_.features.loss_cfg.router_aux_loss_coef};
  // A layout that cannot say what the model is must not end the run at its first save.
  if (training.save && training.save_format == "hf") hf_config(training, *model_);
  shard_model();
  make_data();
  optimizer_.emplace(optim::AdamWOptions{training.adam_beta1, training.adam_beta2,
                                         training.adam_eps, training.weight_decay});
  load_weights();
  saved_run_.reset();  // its files must not stay mapped
  checkpoints_.emplace(config_, world_->group(), source_);
  describe();
}

// On the meta device until it is cut, so that no rank ever holds it whole.
void Trainer::shard_model() {
  apply_freeze(config_.model.freeze, *model_);
  weight_sources_ = weight_sources(*model_);
  ParallelModel parallel_model = parts_.make_parallel(config_, *model_, meshes_);
  sharded_ = parallel_model.sharded;
  offload_.watch(std::move(parallel_model.offload));
  expert_loads_ = std::move(parallel_model.expert_loads);
}

LoaderPlace Trainer::place_in(const data::Dataset& dataset) {
  const auto& training = config_.training;
  require_same_data(*world_->group(), dataset.fingerprint());
  num_samples_ = dataset.size();
  train_iters_ = training_steps(training, num_samples_);
  schedule_.emplace(schedule_options(training, train_iters_));
  LoaderPlace place;
  place.sampler = sampler_options(config_, num_samples_, *meshes_.data_parallel);
  state_ = initial_state(config_, dataset, place.sampler, *schedule_, train_iters_, world_->size());
  if (saved_run_) state_ = saved_run_->begin(state_);
  skipped_before_ = state_.skipped_samples;
  place.sampler.cut = state_.cut();
  place.consumed_samples = state_.consumed_samples;
  return place;
}

void Trainer::make_data() {
  const auto place_of = [this](const data::Dataset& dataset) {
    try {
      return place_in(dataset);
    } catch (const DataError& error) {
      const auto& files = config_.data.dataset_param.basic_parameters.dataset;
      throw DataError("{}: {}", join(files, ", "), error.what());
    }
  };
  RunData data = parts_.make_data(config_, place_of);
  loader_ = std::move(data.train);
  if (!loader_ || !schedule_)
    throw InternalError("the provider of the data sets returned no loader for training");
  const int64_t micro_batch_size =
      config_.training.val_micro_batch_size.value_or(config_.training.micro_batch_size);
  const config::DatasetParam& trained = config_.data.dataset_param;
  if (data.validation && config_.training.val_interval > 0)
    validator_.emplace(data.validation, micro_batch_size, loss_options_.type,
                       on_bad_sample(config_.data.val_dataset_param.value_or(trained)));
  if (data.test) {
    tester_.emplace(data.test, micro_batch_size, loss_options_.type, on_bad_sample(trained));
  }
}

void Trainer::load_weights() {
  parallel::materialize(*model_, at::kCPU);
  std::shared_ptr<distributed::Group> experts;
  if (meshes_.dims.ep > 1)
    experts = world_->make_group("experts", expert_owners(meshes_.dims, world_->rank()));
  parameters_ = whole_parameters(config_, *model_, meshes_, experts);
  const auto tensors = sharded_tensors(parameters_);
  const auto& training = config_.training;
  const bool random = source_.kind == LoadSource::Kind::kRandom;
  if (random)
    log::info("weights: random initialisation (model.random_init), seed {}", training.seed);
  // Without strictness a missing parameter keeps a defined value instead of raw memory.
  if (random || !training.load_strict) init_random(*model_, tensors);
  if (saved_run_) {
    saved_run_->load_weights(*model_, parameters_);
    saved_run_->load_optimizer(parameters_, *optimizer_);
    state_.optimizer_steps = optimizer_->steps();
    // Ranks that share samples draw alike.
    saved_run_->load_rng(meshes_.context_parallel->ranks()[0]);
  } else if (!random) {
    load_hf_weights(source_.folder, training, *model_, weight_sources_, tensors, is_main());
  }
}

void Trainer::describe() const {
  int64_t all = 0, trained = 0;
  for (const auto& p : parameters_) {
    const int64_t numel = c10::multiply_integers(p.tensor.shape);
    all += numel;
    if (p.parameter.requires_grad()) trained += numel;
  }
  log::info("model: {} with {:.3f} M parameters, {:.3f} M trained, computing in {}",
            config_.model.model_id, static_cast<double>(all) / 1e6,
            static_cast<double>(trained) / 1e6,
            config_.parallel.fsdp_plan.param_dtype.value_or("fp32"));
  if (world_->size() > 1) {
    log::info("parallel: {} ranks over {}, {}", world_->size(), world_->group()->backend_name(),
              meshes_.fully_shard->describe());
  }
  log::info("data: {} samples, {} a step ({} micro batches of {}), {} steps ({:.2f} epochs)",
            num_samples_, *config_.training.global_batch_size,
            *config_.training.gradient_accumulation_steps, config_.training.micro_batch_size,
            train_iters_,
            static_cast<double>(train_iters_ * *config_.training.global_batch_size) /
                static_cast<double>(std::max<int64_t>(1, num_samples_)));
  if (config_.training.metrics_dir) log::info("metrics: {}", *config_.training.metrics_dir);
}

std::vector<data::Batch> Trainer::next_micro_batches() {
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < *config_.training.gradient_accumulation_steps; ++i)
    batches.push_back(loader_->next());
  return batches;
}

bool Trainer::check_finite(int64_t iteration, const StepResult& step, double grad_norm) {
  if (std::isfinite(step.loss) && std::isfinite(grad_norm)) {
    non_finite_in_a_row_ = 0;
    return true;
  }
  const std::string parameter = optim::first_non_finite(trained_shards(parameters_));
  const std::string text = fmt::format(
      "iteration {}: the loss is {} and the gradient norm {}{}; samples: {}", iteration, step.loss,
      grad_norm, parameter.empty() ? "" : fmt::format(" (first in {})", parameter),
      join(step.sample_places, ", "));
  if (config_.training.on_nan == "skip" && ++non_finite_in_a_row_ < kMaxNonFiniteInARow) {
    if (is_main()) log::warn("{}. The step is skipped.", text);
    return false;
  }
  throw InternalError(
      "{}. No weight was changed by it. Lower training.lr, look at the samples, or set "
      "training.on_nan: skip{}",
      text,
      non_finite_in_a_row_ > 1
          ? fmt::format(" ({} such steps in a row are too many to skip)", non_finite_in_a_row_)
          : "");
}

Trainer::StepOutcome Trainer::train_step(int64_t iteration) {
  const auto start = std::chrono::steady_clock::now();
  StepTarget target = step_target();
  const StepResult step =
      forward_backward(target, next_micro_batches(), loss_options_, interrupt_requested());
  sum_whole_gradients(parameters_, *meshes_.world);
  const double grad_norm = std::sqrt(optim::squared_norm(gradient_shards(parameters_)));
  StepOutcome outcome;
  outcome.skipped = !check_finite(iteration, step, grad_norm);
  outcome.interrupted = step.interrupted;
  StepMetrics& m = outcome.metrics;
  m.learning_rate = schedule_->at(iteration);
  if (!outcome.skipped) {
    optimizer_->step(trained_shards(parameters_, parts_.weight_decay), m.learning_rate,
                     optim::clip_factor(grad_norm, config_.training.clip_grad));
  }
  zero_gradients(parameters_);
  m.iteration = iteration;
  m.train_iters = train_iters_;
  m.consumed_samples = loader_->consumed_samples();
  m.elapsed_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  m.global_batch_size = *config_.training.global_batch_size;
  m.loss = step.loss;
  m.aux_loss = step.aux_loss;
  m.logged = step.logged;
  if (parts_.logs_tokens_per_sample) {
    m.logged["tokens per sample"] =
        static_cast<double>(step.tokens) / static_cast<double>(m.global_batch_size);
  }
  m.is_skipped = outcome.skipped;
  m.grad_norm = grad_norm;
  m.tokens = step.tokens;
  add_of_all_ranks(outcome);
  state_.iteration = iteration;
  state_.consumed_samples = m.consumed_samples;
  state_.optimizer_steps = optimizer_->steps();
  m.samples_without_target = step.counts.samples_without_targets;
  if (step.counts.tokens == 0 && is_main())
    log::warn("iteration {}: no sample of the global batch has a target; loss and gradients are 0",
              iteration);
  return outcome;
}

void Trainer::add_of_all_ranks(StepOutcome& outcome) {
  const at::Tensor greatest = at::empty({2}, at::kLong);
  greatest[0] = cpu_memory_use().max_allocated;
  greatest[1] = checkpoints_->is_writing() ? 1 : 0;
  const at::Tensor skipped = at::full({1}, loader_->skipped_samples(), at::kLong);
  if (world_->size() > 1) {
    world_->group()->all_reduce(greatest, distributed::Reduction::kMax, "peak memory").wait();
    meshes_.data_parallel->all_reduce(skipped, distributed::Reduction::kSum, "skipped samples")
        .wait();
  }
  outcome.writing = greatest[1].item<int64_t>() != 0;
  StepMetrics& metrics = outcome.metrics;
  metrics.memory_allocated = greatest[0].item<int64_t>();
  metrics.memory_reserved = metrics.memory_allocated;  // the CPU allocator keeps nothing back
  metrics.skipped_samples = state_.skipped_samples = skipped_before_ + skipped.item<int64_t>();
  metrics.expert_load = expert_loads_->take(*world_->group());
  metrics.offload = offload_.take();
}

StepTarget Trainer::step_target() {
  return {*model_,        *sharded_,           *meshes_.data_parallel, *meshes_.context_parallel,
          *meshes_.world, expert_loads_.get(), parts_.forward_step};
}

void Trainer::warn_of_unit_order() {
  if (!is_main()) return;
  const std::string warning = unit_order_warning(config_, *model_, sharded_->first_run_order());
  if (!warning.empty()) log::warn("{}", warning);
}

void Trainer::save() {
  checkpoints_->save(*model_, weight_sources_, {parameters_, *optimizer_}, state_,
                     schedule_->at(state_.iteration + 1));
}

bool Trainer::tells_steps() const {
  return parts_.line_shape == LineShape::kMegatron ? world_->rank() == world_->size() - 1
                                                   : is_main();
}

void Trainer::evaluate(Validator& set, bool is_test, MetricsSinks& sinks) {
  StepTarget target = step_target();
  ValidationMetrics metrics = set.run(target, state_.iteration);
  metrics.is_test = is_test;
  sinks.validation(metrics);
}

// The whole log on one rank; each other rank that stands for data of its own tells its memory.
MetricsSinks Trainer::make_sinks() const {
  if (tells_steps()) {
    MetricsOptions options;
    options.log_interval = config_.training.log_interval;
    options.train_iters = train_iters_;
    options.first_iteration = state_.iteration + 1;
    options.line_shape = parts_.line_shape;
    options.metrics_dir = config_.training.metrics_dir.value_or("");
    return MetricsSinks::make(options);
  }
  return meshes_.data_parallel->rank() == 0 ? MetricsSinks::memory_only() : MetricsSinks();
}

RunSummary Trainer::run() {
  MetricsSinks sinks = make_sinks();
  RunSummary summary;
  summary.num_ranks = world_->size();
  summary.iterations = state_.iteration;
  const int64_t first = state_.iteration + 1;
  if (first > 1 && first > train_iters_ && is_main()) {
    log::warn("nothing is left to do: {} steps are behind, training.train_iters is {}",
              state_.iteration, train_iters_);
  }
  double elapsed_ms = 0;
  reset_peak_memory();
  for (int64_t iteration = first; iteration <= train_iters_ && !summary.interrupted; ++iteration) {
    const StepOutcome outcome = train_step(iteration);
    sinks.step(outcome.metrics);
    if (iteration == first + 1) sinks.memory(memory_metrics(world_->rank(), iteration));
    if (iteration == first) {
      summary.first_loss = outcome.metrics.loss;
      warn_of_unit_order();
      checkpoints_->prepare({parameters_, *optimizer_}, state_);
    } else {
      elapsed_ms += outcome.metrics.elapsed_ms;
    }
    summary.last_loss = outcome.metrics.loss;
    summary.max_allocated = std::max(summary.max_allocated, outcome.metrics.memory_allocated);
    summary.max_reserved = std::max(summary.max_reserved, outcome.metrics.memory_reserved);
    summary.iterations = iteration;
    ++summary.steps;
    summary.skipped_steps += outcome.skipped ? 1 : 0;
    summary.interrupted = outcome.interrupted;
    checkpoints_->after_step(outcome.writing);
    if (checkpoints_->is_due(iteration)) save();
    if (validator_ && iteration % config_.training.val_interval == 0)
      evaluate(*validator_, /*is_test=*/false, sinks);
  }
  save();
  if (tester_ && !summary.interrupted) evaluate(*tester_, /*is_test=*/true, sinks);
  checkpoints_->finish();
  const int64_t timed = summary.steps - 1;
  if (timed > 0) summary.mean_elapsed_ms = elapsed_ms / static_cast<double>(timed);
  return summary;
}

}  // namespace shardloom::trainer
