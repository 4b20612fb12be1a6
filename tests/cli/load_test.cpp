// What training.load may name, and what is said when it is wrong.
#include <fstream>

#include "shardloom/base/files.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "tests/cli/checkpoint_runs.h"

namespace shardloom::testing {
namespace {

namespace fs = std::filesystem;

class Load : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    saved_ = std::make_unique<TemporaryFolder>();
    run(saved_->path() / "m", steps(2) + serial() + save_to(saved_->path() / "save", 1));
  }
  static void TearDownTestSuite() { saved_.reset(); }
  static Overrides serial() { return {"training.gradient_accumulation_steps=2"}; }

  // A copy to be damaged.
  fs::path copy() {
    fs::copy(saved_->path() / "save", folder_.path() / "save", fs::copy_options::recursive);
    return folder_.path() / "save";
  }
  ProcessResult load(const fs::path& path, int exit_code, const Overrides& more = {}) {
    return run(folder_.path() / "m", steps(3) + serial() + resume_from(path) + more, exit_code);
  }
  // `check` says the same without a start.
  void expect_checked(const fs::path& path,
                      const std::vector<std::string>& texts,
                      const Overrides& more = {}) {
    const ProcessResult result =
        shardloom(Overrides{"check", kTrajectory} + steps(3) + resume_from(path) + serial() + more);
    EXPECT_EQ(result.exit_code, 2);
    expect_text(result, texts);
    expect_text(load(path, 2, more), texts);
  }

  static std::unique_ptr<TemporaryFolder> saved_;
  const TemporaryFolder folder_;
};
std::unique_ptr<TemporaryFolder> Load::saved_;

TEST_F(Load, ByTheFolderAboveOrByItself) {
  expect_text(load(copy(), 0), {"after iteration 2 and 4 samples"});
  expect_text(load(folder_.path() / "save" / "iter_0000001", 0),
              {"after iteration 1 and 2 samples"});
}

TEST_F(Load, WhatIsNoCheckpointIsFoundByCheck) {
  expect_checked(folder_.path() / "nothing", {"training.load", "does not exist"});
  fs::create_directories(folder_.path() / "empty");
  expect_checked(folder_.path() / "empty", {"training.load", "holds no weights", "empty"});
  expect_checked(copy(), {"format dcp", "load_format is hf"}, {"training.load_format=hf"});
}

TEST_F(Load, TrackerThatIsMissingOrWrong) {
  const fs::path save = copy();
  const fs::path tracker = save / "latest_checkpointed_iteration.txt";
  std::ofstream(tracker) << "7";
  expect_checked(save, {"iter_0000007", "is not there", "iterations 1, 2"});
  std::ofstream(tracker) << "soon";
  expect_checked(save, {"\"soon\" is neither an iteration nor release"});
  fs::remove(save / "iter_0000002" / ".metadata");
  std::ofstream(tracker) << "2";
  expect_checked(save, {"iter_0000002", "has no .metadata", "iterations 1: write"});
  std::ofstream(tracker).close();
  expect_checked(save, {"\"\" is neither", "iterations 1: write"});
  fs::remove(tracker);
  expect_checked(save, {"no latest_checkpointed_iteration.txt", "(\"1\")"});
}

TEST_F(Load, InterruptedReplacementIsBroughtBack) {
  const fs::path save = copy();
  fs::rename(save / "iter_0000002", save / "iter_0000002.old");
  expect_text(load(save, 0), {"after iteration 2 and 4 samples"});
}

TEST_F(Load, ReleaseFolderGivesWeightsAlone) {
  const fs::path save = copy();
  fs::rename(save / "iter_0000002", save / "release");
  std::ofstream(save / "latest_checkpointed_iteration.txt") << "release";
  load(save, 0);
  EXPECT_EQ(read_metrics(folder_.path() / "m")[0]["iteration"], 1);
}

// As MindSpeed MM writes it, whose extra_state stands in other files; with its names and with those
// of its wrapper.
TEST_F(Load, CheckpointOfAnotherProgramGoesOnByItsNumber) {
  const fs::path save = copy();
  const fs::path folder = save / "iter_0000002";
  const checkpoint::dcp::Metadata ours = checkpoint::dcp::read_metadata(folder);
  run(folder_.path() / "ours", steps(3) + serial() + resume_from(save));
  const auto expected = read_metrics(folder_.path() / "ours");
  for (const std::string prefix : {"", "model."}) {
    checkpoint::dcp::Metadata theirs;
    for (const auto& [name, tensor] : ours.tensors) {
      for (const std::string part : {"model.", "optimizer.state."}) {
        if (name.starts_with(part))
          theirs.tensors[part + prefix + name.substr(part.size())] = tensor;
      }
    }
    fs::remove(folder / ".metadata");
    checkpoint::dcp::write_metadata(folder, theirs);
    expect_text(load(save, 4), {"no state of the random generators"});
    expect_text(load(save, 0, {"training.no_load_rng=true"}),
                {"tells nothing of data and schedule", "after iteration 2 and 4 samples",
                 "named model." + prefix + "<parameter>"});
    const auto rows = read_metrics(folder_.path() / "m");
    ASSERT_EQ(rows.size(), 1u);
    expect_same_rows(rows, {expected[0], expected[0], expected[0]});
  }
}

TEST_F(Load, DamagedByteIsNamedWithPathAndKey) {
  const fs::path save = copy();
  const fs::path file = save / "iter_0000002" / "__0_0.distcp";
  const auto metadata = checkpoint::dcp::read_metadata(save / "iter_0000002");
  for (const std::string name : {"model.mlp1.0.weight", "optimizer.state.mlp1.1.weight.exp_avg"}) {
    const std::string good = read_file(file);
    std::string bad = good;
    const auto& range = metadata.tensors.at(name).chunks[0].range;
    bad[range.offset + range.length / 2] ^= 1;
    std::ofstream(file, std::ios::binary) << bad;
    expect_text(load(save, 4), {file.string(), name, "CRC"});
    std::ofstream(file, std::ios::binary) << good;
  }
}

// By another program, or on purpose: what memory is asked for is not up to the file.
TEST_F(Load, StateOfAnotherGeneratorIsRefused) {
  const fs::path save = copy();
  const fs::path folder = save / "iter_0000002";
  checkpoint::dcp::Metadata metadata = checkpoint::dcp::read_metadata(folder);
  auto& rng = metadata.tensors.at("extra_state.torch_rng_state_rank_0");
  rng.shape = rng.chunks.at(0).box.sizes = {int64_t{1} << 45};
  fs::remove(folder / ".metadata");
  checkpoint::dcp::write_metadata(folder, metadata);
  expect_text(load(save, 4), {"torch_rng_state_rank_0", "U8 [35184372088832]", "no_load_rng"});
  load(save, 0, {"training.no_load_rng=true"});
}

TEST_F(Load, ChangedSettingsOfTheOptimizerAreTold) {
  const ProcessResult same = load(copy(), 0);
  EXPECT_EQ(same.err.find("adam"), std::string::npos) << same.err;
  expect_text(
      load(folder_.path() / "save", 0,
           {"training.adam_beta2=0.95", "training.adam_eps=1e-6", "training.weight_decay=0.5"}),
      {"adam_beta2) is (0.9, 0.95), in the checkpoint (0.9, 0.999)",
       "training.adam_eps is 1e-06, in the checkpoint 1e-08",
       "training.weight_decay is 0.5, in the checkpoint "});
}

TEST_F(Load, MissingAndUnexpectedKeysAreListedWithCounts) {
  const fs::path small = folder_.path() / "small";
  const Overrides two_layers = {"model.num_hidden_layers=2"};
  run(folder_.path() / "s", steps(1) + serial() + two_layers + save_to(small));
  const ProcessResult missing = load(small, 4);
  expect_text(missing, {"the weights do not fit the model", "missing (the model needs them)",
                        "model.language_model.model.layers.2.input_layernorm.weight",
                        "training.load_strict: false"});
  EXPECT_EQ(missing.err.find("unexpected"), std::string::npos) << missing.err;
  expect_text(load(small, 0, {"training.load_strict=false"}), {"missing", "optimizer state"});

  // Layers that num_hidden_layers leaves out are no surprise.
  load(copy(), 0, two_layers);
}

}  // namespace
}  // namespace shardloom::testing
