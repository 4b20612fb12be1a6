#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Override, StandsAboveTheFile) {
  const LoadedConfig loaded =
      parse_all(minimal("  lr: 1e-3\n  lr_min: 1e-9\n"), {"training.lr=1e-4"});
  EXPECT_EQ(loaded.config.training.lr, 1e-4);
  EXPECT_EQ(loaded.config.training.lr_min, 1e-9);
  EXPECT_EQ(loaded.place("training.lr").str(), "override training.lr=1e-4");
  EXPECT_EQ(loaded.place("training.lr_min").str(), "run.yaml:12:11");
}

TEST(Override, LastOneWins) {
  EXPECT_EQ(with({"training.seed=1", "training.seed=2"}).training.seed, 2);
}

TEST(Override, ReplacesAFaultyValue) {
  EXPECT_EQ(parse_all(minimal("  lr: .nan\n"), {"training.lr=1"}).config.training.lr, 1.0);
}

TEST(Override, MakesSections) {
  EXPECT_EQ(with({"features.loss_cfg.loss_type=default"}).features.loss_cfg.loss_type, "default");
  EXPECT_TRUE(with({"parallel.fsdp_plan.cpu_offload=true"}).parallel.fsdp_plan.cpu_offload);
}

TEST(Override, Lists) {
  EXPECT_THAT(with({"model.freeze=[vision_model, mlp1]"}).model.freeze,
              ElementsAre("vision_model", "mlp1"));
  EXPECT_THAT(
      with({"model.freeze=[mlp1, language_model.model.layers.{1,3,5}, a.{*}]"}).model.freeze,
      ElementsAre("mlp1", "language_model.model.layers.{1,3,5}", "a.{*}"));
  EXPECT_THAT(with({R"(model.freeze=["a.{*}", 'b'])"}).model.freeze, ElementsAre("a.{*}", "b"));
  EXPECT_THAT(with({"model.freeze=[mlp1]"}).model.freeze, ElementsAre("mlp1"));
  EXPECT_THAT(with({"model.freeze=[]"}).model.freeze, IsEmpty());
  EXPECT_THAT(with({"tools.profile.ranks=[0, 1]"}).tools.profile.ranks, ElementsAre(0, 1));
  EXPECT_THAT(with({"training.lr_scaling_plan=[{match: a.*b, scale: 0.5}]"})
                  .training.lr_scaling_plan->size(),
              1u);
}

TEST(Override, TextNeedsNoQuotes) {
  EXPECT_EQ(with({"model.model_name_or_path=/a b: c#d, *e"}).model.model_name_or_path,
            "/a b: c#d, *e");
  EXPECT_EQ(with({"model.model_name_or_path=x=y"}).model.model_name_or_path, "x=y");
  EXPECT_EQ(with({"model.model_name_or_path=\"42\""}).model.model_name_or_path, "42");
}

TEST(Override, Null) {
  EXPECT_FALSE(with({"training.load=x", "training.load=null"}).training.load.has_value());
  EXPECT_FALSE(with({"training.load="}).training.load.has_value());
  EXPECT_THAT(override_error({"training.lr="}), HasSubstr("training.lr is empty"));
}

TEST(Override, TypesAreStrict) {
  EXPECT_EQ(override_error({"features.recompute=yes"}),
            "override features.recompute=yes: features.recompute: expected true or false, got "
            "\"yes\"; write true");
  EXPECT_THAT(override_error({"training.train_iters=1.5"}), HasSubstr("expected a whole number"));
  EXPECT_THAT(override_error({"model.freeze=mlp1"}),
              HasSubstr("expected a list of text, got \"mlp1\"; write [mlp1]"));
  EXPECT_THAT(override_error({"training=5"}), HasSubstr("training: expected a section"));
}

TEST(Override, UnknownKeys) {
  EXPECT_EQ(override_error({"training.lrr=1"}),
            "override training.lrr=1: unknown key training.lrr (did you mean lr?)");
  EXPECT_THAT(override_error({"lr=1"}),
              HasSubstr("override lr=1: unknown top-level key lr (belongs under training)"));
  EXPECT_THAT(override_error({"trainng.lr=1"}), HasSubstr("unknown section trainng"));
  EXPECT_THAT(override_error({"training.lr.x=1"}), HasSubstr("override training.lr.x=1"));
}

TEST(Override, Malformed) {
  EXPECT_EQ(override_error({"training.lr"}),
            "override training.lr: expected key=value, as in training.lr=1e-4");
  EXPECT_EQ(override_error({"=1"}), "override =1: expected key=value, as in training.lr=1e-4");
  EXPECT_EQ(override_error({"--training.lr=1"}),
            "override --training.lr=1: write it without dashes: training.lr=1");
  EXPECT_THAT(override_error({"model.freeze=[a"}),
              HasSubstr("override model.freeze=[a: cannot read the value"));
}

TEST(Override, TakesThePlaceOfItsAlternativeInTheFile) {
  const std::string file = minimal("  train_iters: 60\n  lr_warmup_ratio: 0.1\n");
  const TrainConfig config =
      parse_all(file, {"training.train_epochs=3", "training.lr_warmup_iters=5"}).config;
  EXPECT_EQ(config.training.train_epochs, 3);
  EXPECT_EQ(config.training.lr_warmup_iters, 5);
  EXPECT_EQ(config.training.lr_warmup_ratio, 0.0);
  EXPECT_EQ(parse_all(file, {"training.train_epochs=null"}).config.training.train_iters, 60);
  // Of one source, one must go.
  EXPECT_THAT(override_error({"training.train_epochs=3", "training.train_iters=5"}),
              HasSubstr("are both given"));
  EXPECT_THAT(parse_error(minimal("  train_iters: 60\n  train_epochs: 3\n")),
              HasSubstr("are both given"));
}

TEST(Override, AllFaultsAtOnce) {
  const std::string error = override_error({"training.lrr=1", "training.seed=x", "nonsense"});
  EXPECT_THAT(error, HasSubstr("override training.lrr=1"));
  EXPECT_THAT(error, HasSubstr("override training.seed=x"));
  EXPECT_THAT(error, HasSubstr("override nonsense"));
}

}  // namespace
}  // namespace shardloom::config
