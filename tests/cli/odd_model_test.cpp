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

  // What can be cut of this model in two, and all that saves memory.
  std::vector<std::string> features() const {
    std::vector<std::string> on = {
        "features.recompute=true", "features.enable_activation_offload=true",
        "features.enable_chunk_loss=true", "features.chunkloss_plan.chunk_size=7",
        "features.chunkloss_plan.apply_module=language_model.lm_head"};
    const bool cut = GetParam().heads % 2 == 0;
    if (cut) on.push_back("parallel.ulysses_parallel_size=2");
    if (GetParam().experts % 2 == 0 && GetParam().experts > 0)
      on.push_back("parallel.expert_parallel_size=2");
    on.push_back(cut ? "training.micro_batch_size=2" : "training.micro_batch_size=1");
    return on;
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
                "training.save=" + save, "training.save_interval=2", "training.save_format=hf"});
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

TEST_P(OddModels, AllFeaturesOnTwoRanksFollowOneProcess) {
  const std::vector<std::string> random = {"training.train_iters=3", "training.load=null",
                                           "model.random_init=true"};
  const ProcessResult one = run("one", random);
  ASSERT_EQ(one.exit_code, 0) << one.err;
  std::vector<std::string> all = random;
  for (const std::string& feature : features()) all.push_back(feature);
  all.insert(all.end(), {"--nproc", "2"});
  const ProcessResult two = run("two", all);
  ASSERT_EQ(two.exit_code, 0) << two.err;
  const auto expected = read_metrics(folder_.path() / "one");
  const auto rows = read_metrics(folder_.path() / "two");
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    // Other orders of summation in fp32, grown over three steps.
    for (const char* key : {"loss", "grad_norm"}) {
      const double value = expected[i][key];
      EXPECT_NEAR(rows[i][key], value, 1e-5 * value) << key << " of step " << i + 1;
    }
  }
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
