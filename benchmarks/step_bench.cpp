// Time of one training step, random weights: forward and backward, clip and AdamW. One process, or
// one rank of several under RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
// (benchmarks/compare_pytorch.sh).
//   step_bench [tiny|mini] [fp32|bf16] [steps] [feature ...]      threads: OMP_NUM_THREADS
// Features: cp2, ep2 (two ranks), recompute, chunk_loss, offload. Sizes: seq=N (length of a
// sequence), batch=N, vocab=N, layers=N.
// mini: 92 M parameters, 6 vision layers at 224 px, 4 MoE layers with 64 experts (8 a token), one
// sequence of 512 a rank; with cp2 both ranks share two.
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/optim/clip_grad.h"
#include "shardloom/trainer/assembly.h"
#include "shardloom/trainer/memory_counter.h"
#include "shardloom/trainer/sharding.h"
#include "shardloom/trainer/step.h"

namespace {

using namespace shardloom;
using Clock = std::chrono::steady_clock;

struct Shape {
  Json config;
  int64_t batch, sequence, image_tokens, image_token_id;
};

Shape mini_shape() {
  return {{{"model_type", "internvl_chat"},
           {"force_image_size", 224},
           {"ps_version", "v2"},
           {"vision_config",
            {{"hidden_size", 256},
             {"num_hidden_layers", 6},
             {"num_attention_heads", 8},
             {"intermediate_size", 1024},
             {"image_size", 224},
             {"patch_size", 14}}},
           {"llm_config",
            {{"model_type", "qwen3_moe"},
             {"vocab_size", 8192},
             {"hidden_size", 512},
             {"num_hidden_layers", 4},
             {"num_attention_heads", 8},
             {"num_key_value_heads", 2},
             {"head_dim", 64},
             {"moe_intermediate_size", 192},
             {"num_experts", 64},
             {"num_experts_per_tok", 8},
             {"norm_topk_prob", true},
             {"intermediate_size", 1536}}}},
          1,
          512,
          64,
          8190};
}

Shape tiny_shape() {
  return {read_json_file(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model/config.json",
                         ExitCode::kInternal),
          2, 256, 16, 762};
}

std::string layers_of(const char* tower) { return std::string(tower) + ".layers.{*}"; }

// The units of the peer, and the features.
config::TrainConfig make_config(const std::string& dtype,
                                const std::vector<std::string>& features) {
  config::TrainConfig c;
  const std::string decoder = layers_of("language_model.model");
  c.model.model_id = "internvl3_5";
  config::FsdpPlan& fsdp = c.parallel.fsdp_plan;
  fsdp.apply_modules = {"vision_model.embeddings", "vision_model.encoder", "mlp1", decoder,
                        "language_model.lm_head"};
  fsdp.num_to_forward_prefetch = fsdp.num_to_backward_prefetch = 1;
  fsdp.param_dtype = dtype;
  fsdp.reduce_dtype = "fp32";
  c.parallel.ep_plan.apply_modules = {decoder + ".mlp.experts"};
  const config::Patterns blocks = {layers_of("vision_model.encoder"), decoder};
  c.features.recompute_plan.apply_modules = blocks;
  c.features.activation_offload_plan.apply_modules = blocks;
  c.features.chunkloss_plan.apply_module = "language_model.lm_head";
  c.features.chunkloss_plan.chunk_size = 128;
  for (const std::string& feature : features) {
    if (feature == "cp2") {
      c.parallel.ulysses_parallel_size = 2;
    } else if (feature == "ep2") {
      c.parallel.expert_parallel_size = 2;
    } else if (feature == "recompute") {
      c.features.recompute = true;
    } else if (feature == "chunk_loss") {
      c.features.enable_chunk_loss = true;
    } else if (feature == "offload") {
      c.features.enable_activation_offload = true;
    } else if (feature.find('=') == std::string::npos) {
      throw ConfigError("step_bench: unknown feature {}", feature);
    }
  }
  return c;
}

void set_size(Shape& shape, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return;
  const std::string key = word.substr(0, equals);
  const int64_t value = std::stoll(word.substr(equals + 1));
  if (key == "seq") {
    shape.sequence = value;
  } else if (key == "batch") {
    shape.batch = value;
  } else if (key == "vocab") {
    shape.config["llm_config"]["vocab_size"] = value;
  } else if (key == "layers") {
    shape.config["llm_config"]["num_hidden_layers"] = value;
  } else {
    throw ConfigError("step_bench: unknown size {}", key);
  }
}

std::unique_ptr<models::Model> build(const Shape& shape, int rank) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("shardloom_step_bench" + std::to_string(rank));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << shape.config.dump();
  models::BuildOptions options;
  options.folder = folder;
  options.tensor_options = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  options.token_id = [&](const std::string&) {
    return std::optional<int64_t>(shape.image_token_id);
  };
  auto model = models::model_registry().get("internvl3_5")(options);
  for (const auto& p : model->named_parameters()) p.tensor->requires_grad_();
  return model;
}

// About four fifths of the positions behind the picture have a target, as in the peer's batch.
data::Batch make_batch(const Shape& s, int rank) {
  const int64_t pixels = s.config["force_image_size"].get<int64_t>();
  std::vector<int64_t> ids, labels;
  uint64_t state = 1 + static_cast<uint64_t>(rank);
  for (int64_t i = 0; i < s.batch * s.sequence; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const int64_t position = i % s.sequence;
    const bool image = position >= 4 && position < 4 + s.image_tokens;
    ids.push_back(
        image ? s.image_token_id
              : static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(s.image_token_id)));
    labels.push_back(position < 4 + s.image_tokens + 40 ? -100 : ids.back());
  }
  std::vector<float> pixel_values(s.batch * 3 * pixels * pixels);
  for (size_t i = 0; i < pixel_values.size(); ++i)
    pixel_values[i] = static_cast<float>(i % 251) / 125.0f - 1.0f;
  data::Batch batch;
  batch.arrays = {
      {"input_ids", data::Array::of_ints({s.batch, s.sequence}, ids)},
      {"labels", data::Array::of_ints({s.batch, s.sequence}, labels)},
      {"attention_mask",
       data::Array::of_ints({s.batch, s.sequence}, std::vector<int64_t>(ids.size(), 1))},
      {"pixel_values", data::Array::of_floats({s.batch, 3, pixels, pixels}, pixel_values)},
      {"image_flags", data::Array::of_ints({s.batch}, std::vector<int64_t>(s.batch, 1))}};
  batch.sample_indices.assign(s.batch, 0);
  batch.num_tokens = s.batch * s.sequence;
  return batch;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Wall time since the process began, linking included.
double seconds_since_start() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // field 22: start time in ticks
  double uptime = 0;
  std::ifstream("/proc/uptime") >> uptime;
  return uptime - std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

int main(int argc, char** argv) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  trainer::install_memory_counter();
  const std::string name = argc > 1 ? argv[1] : "mini", dtype = argc > 2 ? argv[2] : "fp32";
  const int steps = argc > 3 ? std::atoi(argv[3]) : 8;
  const std::vector<std::string> features(argv + std::min(argc, 4), argv + argc);
  const config::TrainConfig config = make_config(dtype, features);
  Shape shape = name == "tiny" ? tiny_shape() : mini_shape();
  for (const std::string& word : features) set_size(shape, word);
  shape.batch *= config.parallel.ulysses_parallel_size;
  const auto world =
      std::getenv("RANK") != nullptr
          ? distributed::World::connect(distributed::WorldOptions::from_environment())
          : distributed::World::alone();
  const auto meshes = distributed::ParallelMeshes::make(
      *world, trainer::parallel_dims(config.parallel, world->size()));
  const auto model = build(shape, world->rank());
  const trainer::ParallelModel parallel_model = trainer::make_parallel(config, *model, meshes);
  parallel::materialize(*model, at::kCPU);
  std::shared_ptr<distributed::Group> experts;
  if (meshes.dims.ep > 1)
    experts = world->make_group("experts", trainer::expert_owners(meshes.dims, world->rank()));
  const auto parameters = trainer::whole_parameters(config, *model, meshes, experts);
  at::manual_seed(42);
  trainer::init_random(*model, trainer::sharded_tensors(parameters));
  trainer::StepTarget target{*model, parallel_model.sharded, *meshes.data_parallel,
                             *meshes.context_parallel, *meshes.world};
  optim::AdamW optimizer({});
  std::vector<double> compute, update;
  double loss = 0, first_step = 0;
  for (int i = 0; i < steps + 1; ++i) {
    auto start = Clock::now();
    std::vector<data::Batch> batches;
    batches.push_back(make_batch(shape, meshes.data_parallel->rank()));
    loss = trainer::forward_backward(target, std::move(batches), {}, false).loss;
    if (i > 0) compute.push_back(ms_since(start));
    start = Clock::now();
    const double norm = std::sqrt(optim::squared_norm(trainer::gradient_shards(parameters)));
    optimizer.step(trainer::trained_shards(parameters), 1e-4, optim::clip_factor(norm, 1.0));
    trainer::zero_gradients(parameters);
    if (i > 0) update.push_back(ms_since(start));
    if (i == 0) {
      first_step = seconds_since_start();
      trainer::reset_peak_memory();
    }
  }
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  if (world->rank() != 0) return 0;
  std::printf(
      "%s %s: forward+backward %.1f ms, clip+AdamW %.1f ms, step %.1f ms (medians of %d), start to "
      "first step %.2f s, loss %.4f, peak tensors %.1f MiB, peak RSS %ld MiB, %d ranks of %d "
      "threads\n",
      name.c_str(), dtype.c_str(), median(compute), median(update),
      median(compute) + median(update), steps, first_step, loss,
      static_cast<double>(trainer::cpu_memory_use().max_allocated) / (1 << 20),
      use.ru_maxrss / 1024, world->size(), at::get_num_threads());
}
