// `shardloom convert` and mm-convert as a user runs them.
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/hf_folder.h"
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

namespace fs = std::filesystem;

ProcessResult mm_convert(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {std::string(SHARDLOOM_BIN_DIR) + "/mm-convert", "ExpertMergeDcpConverter"});
  return run_process(arguments);
}

// Name -> type, shape and bytes.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  const auto opened = checkpoint::HfFolder::open(folder);
  std::map<std::string, std::string> contents;
  for (const auto& [name, location] : opened.tensors()) {
    contents[name] = fmt::format("{} {} {}", checkpoint::dtype_name(location.info->dtype),
                                 checkpoint::shape_text(location.info->shape), location.data());
  }
  return contents;
}

void expect_failure(const ProcessResult& run, int code, const std::vector<std::string>& words) {
  EXPECT_EQ(run.exit_code, code) << run.out;
  for (const auto& word : words) {
    EXPECT_NE(run.err.find(word), std::string::npos) << "no \"" << word << "\" in: " << run.err;
  }
}

class ConvertCommand : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  // A copy of the tiny model.
  void copy_model() const {
    fs::copy(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model", at("model"));
  }

  TemporaryFolder folder_;
};

TEST_F(ConvertCommand, RoundTripIsExactForExpertsAndDense) {
  for (const std::string model : {"examples/tiny/model", "tests/data/tiny_dense"}) {
    for (const std::string prefix : {"", "model."}) {
      const TemporaryFolder folder;
      const std::string dcp = (folder.path() / "dcp").string(),
                        hf = (folder.path() / "hf").string();
      const ProcessResult there =
          mm_convert({"hf_to_dcp", "--hf_dir", model, "--save_dir", dcp, "--dcp_prefix", prefix});
      ASSERT_EQ(there.exit_code, 0) << there.err;
      const ProcessResult back = mm_convert(
          {"dcp_to_hf", "--hf_dir", model, "--dcp_dir", dcp + "/release", "--save_dir", hf});
      ASSERT_EQ(back.exit_code, 0) << back.err;
      EXPECT_NE(back.err.find("begin with \"model." + prefix + "\""), std::string::npos)
          << back.err;
      const fs::path original = fs::path(SHARDLOOM_SOURCE_DIR) / model;
      EXPECT_EQ(contents_of(hf), contents_of(original));
      for (const char* file : {"config.json", "tokenizer.json", "vocab.json", "merges.txt"}) {
        EXPECT_EQ(read_file(fs::path(hf) / file), read_file(original / file)) << file;
      }
    }
  }
}

// training.load_strict is true: every weight must be found under its name.
TEST_F(ConvertCommand, TrainingTakesTheCheckpointWithEitherPrefix) {
  const auto first_losses = [&](const std::string& load) {
    const TemporaryFolder metrics;
    const ProcessResult run =
        train(kTrajectory, metrics.path(),
              {"training.train_iters=2", "training.load=" + load, "training.load_format=auto",
               "training.load_strict=true", "training.no_load_optim=true"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return losses(metrics.path());
  };
  const std::vector<double> wanted = first_losses("examples/tiny/model");
  ASSERT_EQ(wanted.size(), 2U);
  for (const std::vector<std::string>& prefix :
       std::vector<std::vector<std::string>>{{}, {"--dcp_prefix", "model."}}) {
    const std::string dcp = at(prefix.empty() ? "default" : "wrapped");
    std::vector<std::string> command = {"hf_to_dcp", "--hf_dir", "examples/tiny/model",
                                        "--save_dir", dcp};
    command.insert(command.end(), prefix.begin(), prefix.end());
    ASSERT_EQ(mm_convert(command).exit_code, 0);
    EXPECT_EQ(first_losses(dcp), wanted);
  }
}

TEST_F(ConvertCommand, SplitsFilesAndChangesTheTypeOnRequest) {
  ASSERT_EQ(shardloom({"convert", "hf_to_dcp", "--hf_dir", "examples/tiny/model", "--save_dir",
                       at("dcp")})
                .exit_code,
            0);
  const ProcessResult run =
      shardloom({"convert", "dcp_to_hf", "--hf_dir", "examples/tiny/model", "--dcp_dir", at("dcp"),
                 "--save_dir", at("hf"), "--dtype", "fp32", "--max_shard_size", "500KB"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto folder = checkpoint::HfFolder::open(at("hf"));
  EXPECT_EQ(folder.get("mlp1.1.weight").info->dtype, checkpoint::DType::kF32);
  EXPECT_TRUE(fs::exists(at("hf") + "/model-00006-of-00006.safetensors"));
  EXPECT_EQ(Json::parse(read_file(at("hf") + "/config.json"))["llm_config"]["torch_dtype"],
            "float32");
}

// To the other layout and back: the same weights, and a folder that training takes as it is.
TEST_F(ConvertCommand, OtherLayoutIsTheSameModel) {
  const auto convert = [&](const std::string& from, const std::string& to,
                           const std::string& layout) {
    const std::string dcp = at(layout + "_dcp");
    ASSERT_EQ(mm_convert({"hf_to_dcp", "--hf_dir", from, "--save_dir", dcp}).exit_code, 0);
    const ProcessResult run = mm_convert(
        {"dcp_to_hf", "--hf_dir", from, "--dcp_dir", dcp, "--save_dir", to, "--layout", layout});
    ASSERT_EQ(run.exit_code, 0) << run.err;
  };
  convert("examples/tiny/model", at("hf"), "hf");
  const Json config = Json::parse(read_file(at("hf") + "/config.json"));
  EXPECT_EQ(config["model_type"], "internvl");
  EXPECT_EQ(config["image_token_id"], 762);
  EXPECT_TRUE(contents_of(at("hf")).contains("vision_tower.embeddings.cls_token"));
  convert(at("hf"), at("back"), "remote_code");
  EXPECT_EQ(contents_of(at("back")),
            contents_of(fs::path(SHARDLOOM_SOURCE_DIR) / "examples/tiny/model"));
  const auto first_losses = [&](const std::string& model) {
    const TemporaryFolder metrics;
    const ProcessResult run = train(kTrajectory, metrics.path(),
                                    {"training.train_iters=2", "model.model_name_or_path=" + model,
                                     "training.load=" + model, "training.load_strict=true"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return losses(metrics.path());
  };
  const std::vector<double> wanted = first_losses("examples/tiny/model");
  ASSERT_EQ(wanted.size(), 2U);
  EXPECT_EQ(first_losses(at("hf")), wanted);
  EXPECT_EQ(first_losses(at("back")), wanted);
}

TEST_F(ConvertCommand, BadInputIsNamedBeforeAnythingIsWritten) {
  const auto to_dcp = [&] {
    return mm_convert({"hf_to_dcp", "--hf_dir", at("model"), "--save_dir", at("dcp")});
  };
  expect_failure(to_dcp(), 4, {"model", "No such file or directory"});
  copy_model();
  fs::remove(at("model") + "/config.json");
  expect_failure(to_dcp(), 4, {"config.json", "No such file or directory"});
  fs::copy(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model/config.json", at("model"));
  const std::string index = read_file(at("model") + "/model.safetensors.index.json");
  Json without = Json::parse(index);
  without["weight_map"].erase("language_model.model.layers.2.mlp.experts.5.up_proj.weight");
  folder_.write("model/model.safetensors.index.json", without.dump());
  expect_failure(to_dcp(), 4,
                 {"language_model.model.layers.2.mlp.experts.5.up_proj.weight", "1 missing"});
  folder_.write("model/model.safetensors.index.json", index);
  folder_.write("dcp/notes.txt", "x");
  expect_failure(to_dcp(), 4, {"dcp exists and is not empty"});
  EXPECT_FALSE(fs::exists(at("dcp") + "/release"));
}

TEST_F(ConvertCommand, WrongCheckpointForTheWayBack) {
  const auto to_hf = [&](const std::string& dcp, const std::string& prefix) {
    return mm_convert({"dcp_to_hf", "--hf_dir", "examples/tiny/model", "--dcp_dir", dcp,
                       "--save_dir", at("hf"), "--dcp_prefix", prefix});
  };
  expect_failure(to_hf(at("nowhere"), ""), 4, {"nowhere"});
  expect_failure(to_hf("tests/data/dcp/ranks2/saved_on_2", ""), 4,
                 {"no weight is named", "the first name is model.experts.gate_up_proj"});
  expect_failure(to_hf("tests/data/dcp/ranks2/saved_on_2", "x."), 4, {"Leave --dcp_prefix out"});
  EXPECT_FALSE(fs::exists(at("hf")));
}

TEST_F(ConvertCommand, UsageErrors) {
  EXPECT_EQ(mm_convert({}).exit_code, 2);
  EXPECT_EQ(mm_convert({"hf_to_mm"}).exit_code, 2);
  expect_failure(mm_convert({"hf_to_dcp", "--save_dir", at("dcp")}), 2, {"--hf_dir is required"});
  EXPECT_EQ(run_process({std::string(SHARDLOOM_BIN_DIR) + "/mm-convert", "--help"}).exit_code, 0);
  expect_failure(mm_convert({"dcp_to_hf", "--hf_dir", "x", "--dcp_dir", "x", "--save_dir", "x",
                             "--dtype", "int8"}),
                 2, {"--dtype", "int8 not in {bf16,fp16,fp32}"});
  expect_failure(mm_convert({"dcp_to_hf", "--hf_dir", "x", "--dcp_dir", "x", "--save_dir", "x",
                             "--max_shard_size", "0"}),
                 2, {"--max_shard_size", "0 not in range 1 to"});
  expect_failure(mm_convert({"dcp_to_hf", "--hf_dir", "x", "--dcp_dir", "x", "--save_dir", "x",
                             "--layout", "onnx"}),
                 2, {"--layout"});
}

}  // namespace
}  // namespace shardloom::testing
