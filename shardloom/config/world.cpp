// resolve_sizes() and resolve_for_world(): the parallel and batch sizes, once the number of
// processes is known.
#include <fmt/format.h>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/load.h"

namespace shardloom::config {
namespace {

constexpr int64_t kMaxWorld = 1'000'000;

class Resolver {
 public:
  Resolver(LoadedConfig& loaded, int64_t world) : loaded_(loaded), world_(world) {}

  std::vector<std::string> run() {
    const int64_t dp = resolve_parallel();
    if (dp > 0) resolve_batch(dp);
    if (problems_.ok()) mark_derived();
    return problems_.errors();
  }

 private:
  void error(const std::string& path, const std::string& message) {
    problems_.error(loaded_.place(path), fmt::format("{} {}", path, message));
  }

  // The data-parallel size, or 0 when there is none.
  int64_t resolve_parallel() {
    ParallelConfig& p = loaded_.config.parallel;
    derive_expert_copies(p);
    check_experts(p);
    const int64_t tensor = p.tensor_parallel_size;
    const int64_t context = p.ring_attention_size * p.ulysses_parallel_size;
    const int64_t replica = tensor * context;
    if (world_ % replica != 0) {
      error("parallel",
            fmt::format("sizes do not fit: the world size {} is not a multiple of tensor {} x ring "
                        "{} x ulysses {}; start {} processes or a multiple of them",
                        world_, tensor, p.ring_attention_size, p.ulysses_parallel_size, replica));
      return 0;
    }
    const int64_t dp = world_ / replica;
    if (p.data_parallel_size.value_or(dp) != dp) {
      error("parallel.data_parallel_size",
            fmt::format("is {}, but {} processes make {} (world / (tensor x ring x ulysses))",
                        *p.data_parallel_size, world_, dp));
    }
    const int64_t fully_shard = p.fully_shard_parallel_size.value_or(world_ / tensor);
    if (world_ % (tensor * fully_shard) != 0) {
      error("parallel.fully_shard_parallel_size",
            fmt::format("is {}; the world size {} is not a multiple of it", fully_shard, world_));
    } else if (fully_shard < context || fully_shard % context != 0) {
      error(
          "parallel.fully_shard_parallel_size",
          fmt::format("is {}; it must be a multiple of ring x ulysses = {}", fully_shard, context));
    }
    p.data_parallel_size = dp;
    p.fully_shard_parallel_size = fully_shard;
    return dp;
  }

  // As many copies of each expert as there are ranks for, where only their sharding is given.
  void derive_expert_copies(ParallelConfig& p) {
    const char* const key = "parallel.expert_data_parallel_size";
    const int64_t one_copy =
        p.expert_parallel_size * p.expert_fully_shard_parallel_size.value_or(0);
    if (p.expert_parallel_size == 1 || one_copy == 0 || loaded_.sources.contains(key)) return;
    if (world_ % one_copy == 0) p.expert_data_parallel_size = world_ / one_copy;
  }

  void check_experts(const ParallelConfig& p) {
    const int64_t product = p.expert_parallel_size * p.expert_data_parallel_size *
                            p.expert_fully_shard_parallel_size.value_or(1);
    if (world_ % product == 0) return;
    error("parallel.expert_parallel_size",
          fmt::format("does not fit: the world size {} is not a multiple of expert_parallel {} x "
                      "expert_data_parallel {} x "
                      "expert_fully_shard {}",
                      world_, p.expert_parallel_size, p.expert_data_parallel_size,
                      p.expert_fully_shard_parallel_size.value_or(1)));
  }

  void resolve_batch(int64_t dp) {
    TrainingConfig& t = loaded_.config.training;
    if (!t.global_batch_size) {
      const int64_t steps = t.gradient_accumulation_steps.value_or(1);
      t.gradient_accumulation_steps = steps;
      t.global_batch_size = t.micro_batch_size * dp * steps;
      return;
    }
    const int64_t global = *t.global_batch_size;
    const bool micro_given = loaded_.sources.contains("training.micro_batch_size");
    if (t.gradient_accumulation_steps && !micro_given) {
      const int64_t rest = dp * *t.gradient_accumulation_steps;
      if (global % rest == 0) t.micro_batch_size = global / rest;
    }
    const int64_t step = t.micro_batch_size * dp;
    const int64_t steps = t.gradient_accumulation_steps.value_or(global / step);
    if (steps * step == global) {
      t.gradient_accumulation_steps = steps;
      return;
    }
    const int64_t unit = t.gradient_accumulation_steps ? steps * step : step;
    const int64_t above = (global / unit + 1) * unit;
    error(
        "training.global_batch_size",
        fmt::format("is {}, but micro_batch_size {} x data-parallel size {}{} = {}; {}", global,
                    t.micro_batch_size, dp,
                    t.gradient_accumulation_steps
                        ? fmt::format(" x gradient_accumulation_steps {}", steps)
                        : "",
                    unit,
                    t.gradient_accumulation_steps
                        ? fmt::format("set it to {} or remove one of the three", unit)
                    : above > unit ? fmt::format("nearest multiples: {} or {}", above - unit, above)
                                   : fmt::format("nearest multiple: {}", above)));
  }

  void mark_derived() {
    const Place derived{
        std::make_shared<const std::string>(fmt::format("derived for world size {}", world_))};
    for (const char* path : {"parallel.data_parallel_size", "parallel.fully_shard_parallel_size",
                             "training.micro_batch_size", "training.gradient_accumulation_steps",
                             "training.global_batch_size"}) {
      loaded_.sources.emplace(path, derived);
    }
  }

  LoadedConfig& loaded_;
  int64_t world_;
  Problems problems_;
};

}  // namespace

std::vector<std::string> resolve_sizes(LoadedConfig& loaded, int64_t world_size) {
  if (world_size < 1 || world_size > kMaxWorld) {
    throw ConfigError("the number of processes must be between 1 and {}, got {}", kMaxWorld,
                      world_size);
  }
  return Resolver(loaded, world_size).run();
}

void resolve_for_world(LoadedConfig& loaded, int64_t world_size) {
  const std::vector<std::string> problems = resolve_sizes(loaded, world_size);
  if (!problems.empty()) throw ConfigError("{}", join(problems, "\n"));
}

}  // namespace shardloom::config
