// Memory of conversions and saves. Conversions stream: a model of several layers takes less memory
// than two of them.
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/checkpoint/safetensors_writer.h"
#include "shardloom/models/model.h"
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = fs::path(SHARDLOOM_SOURCE_DIR) / "examples" / "tiny" / "model";

// The tiny model with bigger experts.
void write_big_model(const fs::path& folder) {
  Json config = Json::parse(read_file(kTiny / "config.json"));
  config["llm_config"]["num_experts"] = 32;
  config["llm_config"]["moe_intermediate_size"] = 4096;
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << config.dump();
  models::BuildOptions build;
  build.folder = folder;
  build.tensor_options = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  const auto model = models::model_registry().get("internvl3_5")(build);
  std::vector<checkpoint::TensorSpec> specs;
  for (const auto& source : model->weight_sources(nn::Layout::kRemoteCode)) {
    for (const auto& piece : source.pieces) {
      specs.push_back({piece.key, checkpoint::DType::kBF16, piece.shape});
    }
  }
  checkpoint::SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (const auto& spec : writer.tensors()) {
    writer.write(spec.name, std::string(checkpoint::spec_bytes(spec), 'x'));
  }
  writer.finish();
}

// Experts of 32 * 3 * 64 * 4096 elements of 2 bytes; the rest of a layer is small.
constexpr int64_t kLayerBytes = int64_t{32} * 3 * 64 * 4096 * 2;

int64_t peak_of(const std::vector<std::string>& arguments) {
  // Buffers grow with the number of threads.
  const ProcessResult run = shardloom(arguments, {.environment = {"OMP_NUM_THREADS=2"}});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run.peak_bytes;
}

// What the program and its libraries take stays out of the count.
TEST(ConvertMemory, PeakIsBelowTwoLayers) {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return (folder.path() / name).string(); };
  write_big_model(at("big"));
  const auto to_dcp = [&](const std::string& hf, const std::string& dcp) {
    return peak_of({"convert", "hf_to_dcp", "--hf_dir", hf, "--save_dir", dcp});
  };
  const auto to_hf = [&](const std::string& hf, const std::string& dcp, const std::string& back) {
    return peak_of({"convert", "dcp_to_hf", "--hf_dir", hf, "--dcp_dir", dcp, "--save_dir", back});
  };
  const int64_t tiny_there = to_dcp("examples/tiny/model", at("tiny_dcp"));
  const int64_t tiny_back = to_hf("examples/tiny/model", at("tiny_dcp"), at("tiny_back"));
  EXPECT_LT(to_dcp(at("big"), at("dcp")), tiny_there + 2 * kLayerBytes);
  EXPECT_LT(to_hf(at("big"), at("dcp"), at("back")), tiny_back + 2 * kLayerBytes);
  // Otherwise a program that reads everything would pass.
  EXPECT_GT(fs::file_size(at("big") + std::string("/model.safetensors")), 3U * kLayerBytes);
}

// Config and tokenizer of the tiny model with bigger experts.
fs::path write_wide_model(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(kTiny)) {
    if (!entry.path().filename().string().starts_with("model"))
      fs::copy_file(entry.path(), folder / entry.path().filename());
  }
  Json config = Json::parse(read_file(folder / "config.json"));
  config["llm_config"]["moe_intermediate_size"] = 4096;
  std::ofstream(folder / "config.json") << config.dump();
  return folder;
}

// Weights and optimizer of 4 layers of 8 * 3 * 64 * 4096 elements, and some small parts.
constexpr int64_t kStateBytes = int64_t{4} * 8 * 3 * 64 * 4096 * 3 * 4 * 21 / 20;
// Pieces on their way to the disk, the files' directory.
constexpr int64_t kSlackBytes = 48 << 20;

TEST(SaveMemory, TakesOneBufferInTheBackgroundAndNoneInTheForeground) {
  const TemporaryFolder folder;
  const fs::path model = write_wide_model(folder.path() / "wide");
  const auto peak_with = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> arguments = {"train",
                                          "examples/tiny/train.yaml",
                                          "training.train_iters=1",
                                          "model.random_init=true",
                                          "model.model_name_or_path=" + model.string(),
                                          "training.metrics_dir=" + (folder.path() / "m").string()};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return peak_of(arguments);
  };
  const auto save_to = [&](const char* name) {
    return "training.save=" + (folder.path() / name).string();
  };
  const int64_t without = peak_with({});
  EXPECT_GT(without, kStateBytes);
  EXPECT_LT(peak_with({save_to("sync")}), without + kSlackBytes);
  EXPECT_LT(peak_with({save_to("async"), "training.save_async=true"}),
            without + kStateBytes + kSlackBytes);
  EXPECT_GT(fs::file_size(folder.path() / "async" / "iter_0000001" / "__0_0.distcp"),
            static_cast<uint64_t>(kStateBytes) * 9 / 10);
}

}  // namespace
}  // namespace shardloom::testing
