// `shardloom inspect` as a user runs it.
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/save_root.h"
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDcp = "tests/data/dcp/ranks2/saved_on_2";

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
  }
}

TEST(InspectCommand, EveryKindOfCheckpoint) {
  const ProcessResult hf = shardloom({"inspect", "examples/tiny/model"});
  EXPECT_EQ(hf.exit_code, 0) << hf.err;
  expect_words(hf.out, {"language_model.model.layers.3.mlp.experts.7.up_proj.weight", "BF16",
                        "[32, 64]", "model-00003-of-00003.safetensors", "187 tensors", "1.1 MiB"});
  const ProcessResult file =
      shardloom({"inspect", "examples/tiny/model/model-00002-of-00003.safetensors"});
  EXPECT_EQ(file.exit_code, 0) << file.err;
  expect_words(file.out, {"safetensors file"});
  const ProcessResult dcp = shardloom({"inspect", kDcp});
  EXPECT_EQ(dcp.exit_code, 0) << dcp.err;
  expect_words(dcp.out, {"model.w_uneven", "[5, 3]", "__1_0.distcp [2, 3] at [3, 0]", "'two ranks'",
                         "DCP folder, 6 tensors"});
}

TEST(InspectCommand, JsonWithTheResultOfVerify) {
  const ProcessResult run = shardloom({"inspect", kDcp, "--json", "--verify"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["kind"], "DCP folder");
  EXPECT_EQ(json["tensors"].size(), 6U);
  EXPECT_EQ(json["verify"]["checksums"], 12);
  EXPECT_TRUE(json["verify"]["errors"].empty());
  EXPECT_FALSE(Json::parse(shardloom({"inspect", kDcp, "--json"}).out).contains("verify"));
}

TEST(InspectCommand, VerifySaysThatSafetensorsHaveNoChecksums) {
  const ProcessResult run = shardloom({"inspect", "examples/tiny/model", "--verify"});
  EXPECT_EQ(run.exit_code, 0);
  expect_words(run.out, {"no checksums"});
}

// A byte in the middle of a tensor: a load by PyTorch would not notice.
TEST(InspectCommand, VerifyFindsADamagedByteInTheLatestCheckpoint) {
  const TemporaryFolder root;
  const fs::path checkpoint = root.path() / "iter_0000040";
  fs::copy(std::string(SHARDLOOM_SOURCE_DIR) + "/" + kDcp, checkpoint);
  checkpoint::write_latest(root.path(), 40);
  const ProcessResult good = shardloom({"inspect", root.path().string(), "--verify"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  expect_words(good.out, {"iter_0000040: DCP folder", "all 12 checksums are right"});

  const fs::path file = checkpoint / "__0_0.distcp";
  std::string content = read_file(file);
  const Json description = Json::parse(shardloom({"inspect", checkpoint.string(), "--json"}).out);
  const size_t data = content.find("data/0");
  ASSERT_NE(data, std::string::npos);
  content[data + 80] ^= 0x10;
  fs::remove(file);
  std::ofstream(file, std::ios::binary) << content;
  const ProcessResult bad = shardloom({"inspect", root.path().string(), "--verify"});
  EXPECT_EQ(bad.exit_code, 4);
  expect_words(bad.err, {"1 of 12 items are damaged", "__0_0.distcp", "model.", "CRC-32"});
  EXPECT_EQ(shardloom({"inspect", root.path().string()}).exit_code, 0);
  const ProcessResult json = shardloom({"inspect", root.path().string(), "--verify", "--json"});
  EXPECT_EQ(json.exit_code, 4);
  EXPECT_EQ(Json::parse(json.out)["verify"]["errors"].size(), 1U);
}

TEST(InspectCommand, PathsNeedNotBeUtf8) {
  const TemporaryFolder folder;
  const fs::path checkpoint = folder.path() / "a \xFF b";
  fs::copy(std::string(SHARDLOOM_SOURCE_DIR) + "/" + kDcp, checkpoint);
  const ProcessResult run = shardloom({"inspect", checkpoint.string(), "--json", "--verify"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["tensors"].size(), 6U);
}

TEST(InspectCommand, OutputThatCannotBeWrittenIsAnError) {
  const std::string program = std::string(SHARDLOOM_BIN_DIR) + "/shardloom";
  const ProcessResult run =
      testing::run_process({"/bin/sh", "-c", program + " inspect " + kDcp + " --json > /dev/full"});
  EXPECT_EQ(run.exit_code, 70);
  expect_words(run.err, {"cannot write to the standard output: No space left on device"});
}

TEST(InspectCommand, WhatIsNoCheckpoint) {
  const TemporaryFolder folder;
  const ProcessResult missing = shardloom({"inspect", (folder.path() / "x").string()});
  EXPECT_EQ(missing.exit_code, 4);
  expect_words(missing.err, {"x does not exist"});
  const ProcessResult empty = shardloom({"inspect", folder.path().string()});
  EXPECT_EQ(empty.exit_code, 4);
  expect_words(empty.err, {"has neither model.safetensors nor"});
  EXPECT_EQ(shardloom({"inspect"}).exit_code, 2);
}

}  // namespace
}  // namespace shardloom::testing
