// examples/plugin, built outside the tree against the installed package, as its README says.
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

TEST(Plugin, BuildsAgainstTheInstalledPackageAndTrains) {
  const TemporaryFolder folder;
  const std::string prefix = (folder.path() / "prefix").string(),
                    build = (folder.path() / "build").string();
  const ProcessResult install =
      run_process({SHARDLOOM_CMAKE, "--install", SHARDLOOM_BUILD_DIR, "--prefix", prefix});
  ASSERT_EQ(install.exit_code, 0) << install.err;
  const ProcessResult configure =
      run_process({SHARDLOOM_CMAKE, "-G", "Ninja", "-S", "examples/plugin", "-B", build,
                   "-DCMAKE_PREFIX_PATH=" + prefix});
  ASSERT_EQ(configure.exit_code, 0) << configure.err;
  const ProcessResult compile = run_process({SHARDLOOM_CMAKE, "--build", build});
  ASSERT_EQ(compile.exit_code, 0) << compile.out << compile.err;

  const auto metrics = folder.path() / "metrics";
  const ProcessResult run = run_process(
      {prefix + "/bin/shardloom", "train", "examples/plugin/train.yaml",
       "training.plugin=[" + build + "/libbyte_lm.so]", "training.metrics_dir=" + metrics.string(),
       "training.save=" + (folder.path() / "save").string(), "training.save_format=hf"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto values = losses(metrics);
  EXPECT_NEAR(values.front(), std::log(256.0), 0.1);  // untrained: every byte equally likely
  EXPECT_LT(values.back(), 3.0);                      // it has learnt which byte follows which
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "save" / "iter_0000100" /
                                      "model.safetensors.index.json"));
}

TEST(Plugin, LibraryWithoutTheFunctionIsNamed) {
  const ProcessResult run =
      shardloom({"train", "examples/plugin/train.yaml",
                 std::string("training.plugin=[") + SHARDLOOM_BUILD_DIR + "/lib/libshardloom.so]"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("shardloom_plugin"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace shardloom::testing
