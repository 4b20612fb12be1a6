// A model of shapes that no fixture has, from its config.json to a loaded export: random weights,
// real pictures.
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

struct OddModel {
  std::string name;
  int64_t image_size, experts, top_k, heads, kv_heads, head_dim, layers, vocab;
  bool tokenizer_json;
};

class OddModels : public ::testing::TestWithParam<OddModel> {
 protected:
  void SetUp() override {
    const OddModel& m = GetParam();
    const std::filesystem::path tiny = std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model";
    for (const auto& entry : std::filesystem::directory_iterator(tiny)) {
      const std::string name = entry.path().filename().string();
      const bool weights = name.find("safetensors") != std::string::npos;
      if (!weights && (m.tokenizer_json || name != "tokenizer.json"))
        std::filesystem::copy_file(entry.path(), folder_.path() / name);
    }
    Json config = read_json_file(tiny / "config.json", ExitCode::kInternal);
    config["force_image_size"] = m.image_size;
    config["vision_config"]["image_size"] = m.image_size;
    Json& language = config["llm_config"];
    language["vocab_size"] = m.vocab;
    language["num_hidden_layers"] = m.layers;
    language["num_attention_heads"] = m.heads;
    language["num_key_value_heads"] = m.kv_heads;
    language["head_dim"] = m.head_dim;
    language["model_type"] = m.experts > 0 ? "qwen3_moe" : "qwen3";
    language["num_experts"] = m.experts;
    language["num_experts_per_tok"] = m.top_k;
    std::filesystem::remove(folder_.path() / "config.json");
    std::ofstream(folder_.path() / "config.json") << config.dump();
  }

  ProcessResult run(const std::string& metrics, const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {
        "model.model_name_or_path=" + folder_.path().string(), "training.lr_warmup_ratio=0.0",
        "data.dataset_param.basic_parameters.cutoff_len=1153", "data.dataset_param.pad_to=longest"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return train(kTrajectory, folder_.path() / metrics, overrides);
  }

  TemporaryFolder folder_;
};

TEST_P(OddModels, TrainsExportsAndLoadsAgain) {
  const std::string save = (folder_.path() / "save").string();
  const ProcessResult first =
      run("a", {"training.train_iters=4", "training.load=null", "model.random_init=true",
                "training.save=" + save, "training.save_interval=2"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto before = losses(folder_.path() / "a");
  EXPECT_NEAR(before[0], std::log(static_cast<double>(GetParam().vocab)),
              0.5);  // random weights: nearly uniform
  // Step 3 sees the weights after step 2.
  const ProcessResult second = run("b", {"training.train_iters=3", "training.lr=0.0",
                                         "training.load=" + save + "/iter_0000002"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(losses(folder_.path() / "b")[2], before[2]);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    OddModels,
    ::testing::Values(OddModel{"one_kv_head_84px", 84, 6, 3, 4, 1, 24, 3, 867, false},
                      OddModel{"dense_140px", 140, 0, 0, 3, 3, 10, 5, 865, true},
                      OddModel{"one_expert_448px", 448, 1, 1, 2, 2, 8, 1, 1001, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shardloom::testing
