// Time of one training step in one process, random weights: forward and backward, clip and AdamW.
//   step_bench [tiny|mini] [fp32|bf16] [steps]      threads: OMP_NUM_THREADS
// mini: 92 M parameters, 6 vision layers at 224 px, 4 MoE layers with 64 experts (8 a token), one
// sequence of 512.
#include <malloc.h>

#include <cstdio>
#include <fstream>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/optim/clip_grad.h"
#include "shardloom/trainer/memory_counter.h"
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

std::unique_ptr<models::Model> build(const Shape& shape) {
  const auto folder = std::filesystem::temp_directory_path() / "shardloom_step_bench";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << shape.config.dump();
  models::BuildOptions options;
  options.folder = folder;
  options.tensor_options = at::TensorOptions().dtype(at::kFloat);
  options.token_id = [&](const std::string&) {
    return std::optional<int64_t>(shape.image_token_id);
  };
  auto model = models::model_registry().get("internvl3_5")(options);
  at::manual_seed(42);
  model->init_random();
  for (const auto& p : model->named_parameters()) p.tensor->requires_grad_();
  return model;
}

// About four fifths of the positions behind the picture have a target, as in the peer's batch.
data::Batch make_batch(const Shape& s) {
  const int64_t pixels = s.config["force_image_size"].get<int64_t>();
  std::vector<int64_t> ids, labels;
  uint64_t state = 1;
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

}  // namespace

int main(int argc, char** argv) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  trainer::install_memory_counter();
  const std::string name = argc > 1 ? argv[1] : "mini", dtype = argc > 2 ? argv[2] : "fp32";
  const int steps = argc > 3 ? std::atoi(argv[3]) : 8;
  const Shape shape = name == "tiny" ? tiny_shape() : mini_shape();
  auto model = build(shape);
  trainer::MasterWeights weights(*model, trainer::compute_dtype(dtype));
  optim::AdamW optimizer({});
  std::vector<double> compute, update;
  double loss = 0;
  for (int i = 0; i < steps + 1; ++i) {
    auto start = Clock::now();
    std::vector<data::Batch> batches;
    batches.push_back(make_batch(shape));
    loss = trainer::forward_backward(*model, weights, std::move(batches), {}).loss;
    if (i > 0) compute.push_back(ms_since(start));
    start = Clock::now();
    const auto trained = weights.trained();
    optimizer.step(trained, 1e-4, optim::clip_factor(std::sqrt(optim::squared_norm(trained)), 1.0));
    weights.refresh_model();
    weights.zero_grad();
    if (i > 0) update.push_back(ms_since(start));
  }
  std::printf(
      "%s %s: forward+backward %.1f ms, clip+AdamW %.1f ms, step %.1f ms (medians of %d), loss "
      "%.4f, peak tensors %.1f MiB, %d threads\n",
      name.c_str(), dtype.c_str(), median(compute), median(update),
      median(compute) + median(update), steps, loss,
      static_cast<double>(trainer::cpu_memory_use().max_allocated) / (1 << 20),
      at::get_num_threads());
}
