// Settings of a run, seen from outside.
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

const std::vector<std::string> kShort = {"training.train_iters=12", "training.lr_warmup_ratio=0.0"};

std::vector<std::string> with(std::vector<std::string> overrides,
                              const std::vector<std::string>& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

TEST(Train, Bf16LearnsAndFollowsFp32) {
  const TemporaryFolder high, low;
  ASSERT_EQ(train(kTrajectory, high.path(), kShort).exit_code, 0);
  const ProcessResult run =
      train(kTrajectory, low.path(), with(kShort, {"parallel.fsdp_plan.param_dtype=bf16"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto a = losses(high.path()), b = losses(low.path());
  ASSERT_EQ(a.size(), b.size());
  EXPECT_NE(a[0], b[0]);
  // One forward with 8-bit mantissas; the drift grows from there.
  EXPECT_NEAR(b[0], a[0], 5e-3 * a[0]);
  EXPECT_NEAR(b.back(), a.back(), 5e-2 * a.back());
}

TEST(Train, ExportLoadsAndGoesOnWithTheSameLoss) {
  const TemporaryFolder folder;
  for (const std::string layout : {"auto", "hf"}) {
    const std::filesystem::path save = folder.path() / layout, metrics = folder.path() / "metrics";
    std::filesystem::remove_all(metrics);
    ASSERT_EQ(train(kTrajectory, metrics,
                    with(kShort, {"training.save=" + save.string(), "training.save_interval=6",
                                  "training.save_format=hf", "training.save_hf_layout=" + layout}))
                  .exit_code,
              0);
    const std::filesystem::path sixth = save / "iter_0000006";
    EXPECT_EQ(read_json_file(sixth / "config.json", ExitCode::kInternal)["model_type"],
              layout == "hf" ? "internvl" : "internvl_chat");
    EXPECT_TRUE(std::filesystem::exists(sixth / "tokenizer.json"));
    std::ifstream latest(save / "latest_checkpointed_iteration.txt");
    int64_t iteration = 0;
    latest >> iteration;
    EXPECT_EQ(iteration, 12);
    // The weights after 6 steps see the data of step 1 again: validate through a run at lr 0 on
    // both.
    const ProcessResult run =
        train(kTrajectory, folder.path() / (layout + "_again"),
              {"training.train_iters=7", "training.lr=0.0", "training.lr_warmup_ratio=0.0",
               "model.model_name_or_path=" + sixth.string(), "training.load=" + sixth.string()});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(losses(folder.path() / (layout + "_again"))[6], losses(metrics)[6]);
  }
}

TEST(Train, FrozenModulesKeepTheirWeights) {
  const TemporaryFolder folder;
  const ProcessResult run =
      train(kTrajectory, folder.path(), with(kShort, {"model.freeze=[vision_model, mlp1]"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("trained"), std::string::npos);
  EXPECT_LT(losses(folder.path()).back(), losses(folder.path()).front());
}

TEST(Train, ValidationLossAtLearningRateZeroStaysTheSame) {
  const TemporaryFolder folder;
  const ProcessResult run =
      train("tests/data/validation.yaml", folder.path(),
            {"training.train_iters=4", "training.val_interval=2", "training.lr=0.0"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::vector<double> values;
  for (const Json& row : read_metrics(folder.path())) {
    if (row.contains("validation_loss")) values.push_back(row["validation_loss"]);
  }
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0], values[1]);
  EXPECT_NE(run.out.find("** validation after iteration 2 **"), std::string::npos);
}

TEST(Train, RouterAuxiliaryLossIsLoggedAndCoefficientZeroChangesNoBit) {
  const TemporaryFolder plain, zero, some;
  ASSERT_EQ(train(kTrajectory, plain.path(), kShort).exit_code, 0);
  ASSERT_EQ(
      train(kTrajectory, zero.path(), with(kShort, {"features.loss_cfg.router_aux_loss_coef=0.0"}))
          .exit_code,
      0);
  const ProcessResult run =
      train(kTrajectory, some.path(), with(kShort, {"features.loss_cfg.router_aux_loss_coef=0.5"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(losses(plain.path()), losses(zero.path()));
  const auto rows = read_metrics(some.path());
  EXPECT_GE(rows[0]["aux_loss"].get<double>(), 2.0);  // its least value is top_k
  EXPECT_EQ(losses(some.path())[0], losses(plain.path())[0]);
  EXPECT_NE(losses(some.path())[5], losses(plain.path())[5]);
}

TEST(Train, LayersAreCutByNumHiddenLayers) {
  const TemporaryFolder folder;
  const std::filesystem::path save = folder.path() / "save";
  const ProcessResult run = train(kTrajectory, folder.path(),
                                  {"training.train_iters=1", "model.num_hidden_layers=2",
                                   "training.save=" + save.string(), "training.save_format=hf"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json config = read_json_file(save / "iter_0000001" / "config.json", ExitCode::kInternal);
  EXPECT_EQ(config["llm_config"]["num_hidden_layers"], 2);
}

TEST(Train, MemoryIsPrintedOnceAfterTheSecondStep) {
  const TemporaryFolder folder;
  const ProcessResult run = train(kTrajectory, folder.path(), {"training.train_iters=3"});
  const size_t line = run.out.find("[Rank 0] (after 2 iterations) memory (MB) | allocated: ");
  ASSERT_NE(line, std::string::npos) << run.out;
  EXPECT_GT(line, run.out.find("iteration        2/"));
  EXPECT_GT(read_metrics(folder.path())[2]["memory_allocated"].get<int64_t>(),
            10'000'000);  // 0.57 M weights, gradients, moments
}

TEST(Train, ZeroStepsEndWell) {
  const TemporaryFolder folder;
  const ProcessResult run = train(kTrajectory, folder.path(), {"training.train_iters=0"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(losses(folder.path()).empty());
}

TEST(Train, RandomInitialisationFollowsTheSeed) {
  const TemporaryFolder a, b, c;
  const std::vector<std::string> overrides = {"training.train_iters=2", "model.random_init=true",
                                              "training.load=null"};
  ASSERT_EQ(train(kTrajectory, a.path(), overrides).exit_code, 0);
  ASSERT_EQ(train(kTrajectory, b.path(), overrides).exit_code, 0);
  ASSERT_EQ(train(kTrajectory, c.path(), with(overrides, {"training.seed=43"})).exit_code, 0);
  EXPECT_EQ(losses(a.path()), losses(b.path()));
  EXPECT_NE(losses(a.path()), losses(c.path()));
}

}  // namespace
}  // namespace shardloom::testing
