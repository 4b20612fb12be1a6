// Conversions stream: a model of several layers takes less memory than two of them.
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/checkpoint/safetensors_writer.h"
#include "shardloom/models/model.h"
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

namespace fs = std::filesystem;

// The tiny model with bigger experts.
void write_big_model(const fs::path& folder) {
  const fs::path tiny = fs::path(SHARDLOOM_SOURCE_DIR) / "examples" / "tiny" / "model";
  Json config = Json::parse(read_file(tiny / "config.json"));
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

}  // namespace
}  // namespace shardloom::testing
