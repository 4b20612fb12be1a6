#include "shardloom/trainer/pretrain/pretrain.h"

#include <cstdio>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/megatron/reference.h"
#include "shardloom/config/megatron/terms.h"
#include "shardloom/trainer/rank.h"

namespace shardloom {
namespace {

// Ties the call-backs to the trainer. Each process builds its model once.
trainer::TrainerParts make_parts(DatasetsProvider datasets_provider,
                                 ModelProvider model_provider,
                                 ForwardStep forward_step,
                                 std::shared_ptr<const PretrainArgs> args) {
  auto mixin = std::make_shared<std::shared_ptr<FSDP2Mixin>>();
  trainer::TrainerParts parts;
  parts.build_model = [mixin, model_provider, args](const config::TrainConfig&, trainer::TokenIds) {
    *mixin = model_provider(*args);
    if (!*mixin) throw InternalError("model_provider returned no model");
    return std::shared_ptr<models::Model>(*mixin, &(*mixin)->model());
  };
  parts.make_parallel = [mixin, args](const config::TrainConfig& config, models::Model&,
                                      const distributed::ParallelMeshes& meshes) {
    return (*mixin)->fully_shard(config, meshes, args->fsdp2);
  };
  parts.make_data = [datasets_provider, args](const config::TrainConfig& config,
                                              const trainer::TrainerParts::PlaceOf& place_of) {
    DataContext context;
    context.train_samples = config.training.train_iters * *config.training.global_batch_size;
    context.place_of = place_of;
    return datasets_provider(*args, context);
  };
  parts.forward_step = std::move(forward_step);
  parts.line_shape = trainer::LineShape::kMegatron;
  parts.weight_decay = trainer::WeightDecay::kMatrices;
  parts.logs_tokens_per_sample = args->args.log_tps;
  return parts;
}

// The arguments for each rank: those given without --nproc.
std::vector<std::string> without_nproc(const std::vector<std::string>& args) {
  constexpr const char* kFlag = "--nproc";
  std::vector<std::string> kept;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == kFlag) {
      ++i;
    } else if (args[i].rfind(std::string(kFlag) + "=", 0) != 0) {
      kept.push_back(args[i]);
    }
  }
  return kept;
}

// Scripts for accelerators ask for nccl, and are rehearsed on CPUs.
distributed::BackendKind backend_kind(const config::megatron::Arguments& args) {
  const auto kind = distributed::parse_backend_kind(args.distributed_backend);
  if (kind != distributed::BackendKind::kNccl) return kind;
  log::info(
      "--distributed-backend nccl: tensors of this run are on the CPU, so a backend for those is "
      "used");
  return distributed::BackendKind::kAuto;
}

// All paths that are not there, where one of them is only named in data.json.
void check_sources(const PretrainArgs& args) {
  const std::vector<std::string> further = config::megatron::check_further_sources(args);
  if (further.empty()) return;
  std::vector<std::string> faults = config::check_paths(args.loaded);
  faults.insert(faults.end(), further.begin(), further.end());
  throw ConfigError("{}", join(faults, "\n"));
}

int start(const std::shared_ptr<const PretrainArgs>& args,
          trainer::TrainerParts parts,
          const std::vector<std::string>& arguments) {
  check_sources(*args);
  const int64_t nproc = args->args.nproc.value_or(1);
  if (nproc > 1) {
    return trainer::launch_ranks(args->loaded, parts, static_cast<int>(nproc),
                                 without_nproc(arguments));
  }
  return trainer::run_as_rank(args->loaded, std::move(parts), backend_kind(args->args));
}

int run(DatasetsProvider datasets_provider,
        ModelProvider model_provider,
        ForwardStep forward_step,
        const std::vector<std::string>& arguments) {
  auto args =
      std::make_shared<const PretrainArgs>(config::megatron::load_megatron_config(arguments));
  if (args->args.help) {
    std::fputs(config::megatron::arguments_help().c_str(), stdout);
    return 0;
  }
  if (args->args.reference) {
    std::fputs(config::megatron::reference_markdown().c_str(), stdout);
    return 0;
  }
  trainer::TrainerParts parts = make_parts(std::move(datasets_provider), std::move(model_provider),
                                           std::move(forward_step), args);
  try {
    return start(args, std::move(parts), arguments);
  } catch (const Error& error) {
    throw Error(error.code(), config::megatron::in_own_terms(error.what(), *args));
  }
}

}  // namespace

int pretrain(DatasetsProvider train_valid_test_datasets_provider,
             ModelProvider model_provider,
             ForwardStep forward_step,
             const std::vector<std::string>& args) {
  return trainer::exit_code_of([&] {
    return run(std::move(train_valid_test_datasets_provider), std::move(model_provider),
               std::move(forward_step), args);
  });
}

MicroBatch get_batch(DataIterator& data_iterator) { return data_iterator.next(); }

}  // namespace shardloom
