// What each group of a study is started with.
#include "shardloom/study/plan.h"

#include <map>

#include "shardloom/study/baseline_inputs.h"
#include "shardloom/study/group_overrides.h"
#include "tests/study/fake_runs.h"

namespace shardloom::study {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const config::Patterns kLayers = {"vision_model.encoder.layers.{*}",
                                  "language_model.model.layers.{*}"};

std::vector<std::string> names(const StudyPlan& plan) {
  std::vector<std::string> result;
  for (const study::Run& run : plan.runs) result.push_back(run.name);
  return result;
}

// The configuration that a run of the YAML path trains with: what its command says, on `nproc`.
config::LoadedConfig resolved(const study::Run& run, int nproc) {
  EXPECT_EQ(run.command.at(1), "train");
  const std::vector<std::string> overrides(run.command.begin() + 3, run.command.end() - 2);
  config::LoadedConfig loaded = config::load_train_config(run.command.at(2), overrides);
  config::resolve_for_world(loaded, nproc);
  return loaded;
}

std::map<std::string, config::TrainConfig> groups_of(const StudyPlan& plan) {
  std::map<std::string, config::TrainConfig> result;
  for (const study::Run& run : plan.runs) {
    if (!run.group->megatron) result[run.name] = resolved(run, plan.options.nproc).config;
  }
  return result;
}

TEST(StudyPlan, HasEightGroupsInOrder) {
  const TemporaryFolder folder;
  const StudyPlan plan = plan_study(options_for(folder.path()));
  EXPECT_THAT(names(plan), ElementsAre("baseline", "none", "cp", "ep", "recompute", "chunk_loss",
                                       "offload", "all"));
  EXPECT_EQ(plan.steps, 4);
  EXPECT_EQ(plan.runs[0].command[0], "/bin/true");
  for (const study::Run& run : plan.runs) {
    EXPECT_TRUE(run.selected);
    EXPECT_THAT(run.command, Contains("--nproc"));
  }
}

TEST(StudyPlan, EveryGroupHasTheSameGlobalBatchAndItsOwnFeatures) {
  const TemporaryFolder folder;
  const auto groups = groups_of(plan_study(options_for(folder.path())));
  ASSERT_EQ(groups.size(), 7u);
  for (const auto& [name, c] : groups) {
    SCOPED_TRACE(name);
    const bool all = name == "all", cp = all || name == "cp";
    EXPECT_EQ(*c.training.global_batch_size, 2);
    EXPECT_EQ(*c.training.gradient_accumulation_steps, 1);
    EXPECT_EQ(c.training.train_iters, 4);
    EXPECT_EQ(c.training.micro_batch_size, cp ? 2 : 1);
    EXPECT_EQ(*c.parallel.data_parallel_size, cp ? 1 : 2);
    EXPECT_EQ(c.parallel.ulysses_parallel_size, cp ? 2 : 1);
    EXPECT_EQ(c.parallel.expert_parallel_size, all || name == "ep" ? 2 : 1);
    EXPECT_EQ(c.features.recompute, all || name == "recompute");
    EXPECT_EQ(c.features.enable_chunk_loss, all || name == "chunk_loss");
    EXPECT_EQ(c.features.enable_activation_offload, all || name == "offload");
    EXPECT_EQ(c.features.chunkloss_plan.chunk_size, 64);  // as the file has it
  }
}

TEST(StudyPlan, SwitchesOffWhatTheConfigurationHasOn) {
  const TemporaryFolder folder;
  StudyOptions options = options_for(folder.path());
  options.config = kSource + "/examples/internvl3.5/internvl3_5_config.yaml";
  options.overrides = {"training.save=out/model", "training.save_interval=2"};
  const auto groups = groups_of(plan_study(options));
  const config::TrainConfig& none = groups.at("none");
  EXPECT_EQ(none.parallel.ulysses_parallel_size, 1);
  EXPECT_EQ(none.parallel.expert_parallel_size, 1);
  EXPECT_FALSE(none.features.recompute || none.features.enable_chunk_loss ||
               none.features.enable_activation_offload);
  // CP2 with micro batches of 2 is a global batch of 2, so the others have micro batches of 1.
  EXPECT_EQ(*none.training.global_batch_size, 2);
  EXPECT_EQ(none.training.micro_batch_size, 1);
  EXPECT_EQ(groups.at("cp").training.micro_batch_size, 2);
  EXPECT_FALSE(none.training.save.has_value());
}

TEST(StudyPlan, EmptyPlansGetTheModulesOfInternVl) {
  const TemporaryFolder folder;
  StudyOptions options = options_for(folder.path());
  options.config = kSource + "/examples/tiny/train.yaml";
  const auto groups = groups_of(plan_study(options));
  const config::TrainConfig& all = groups.at("all");
  EXPECT_THAT(all.parallel.fsdp_plan.apply_modules,
              ElementsAre("vision_model.embeddings", "vision_model.encoder", "mlp1",
                          "language_model.model.layers.{*}", "language_model.lm_head"));
  EXPECT_EQ(groups.at("none").parallel.fsdp_plan.apply_modules,
            all.parallel.fsdp_plan.apply_modules);
  EXPECT_THAT(all.parallel.ep_plan.apply_modules,
              ElementsAre("language_model.model.layers.{*}.mlp.experts"));
  EXPECT_EQ(all.features.recompute_plan.apply_modules, kLayers);
  EXPECT_EQ(*all.features.activation_offload_plan.apply_modules, kLayers);
  EXPECT_EQ(all.features.chunkloss_plan.apply_module, "language_model.lm_head");
}

TEST(StudyPlan, GivenPlansStay) {
  const TemporaryFolder folder;
  StudyOptions options = options_for(folder.path());
  options.overrides.push_back(
      "features.recompute_plan.apply_modules=[language_model.model.layers.{0-1}]");
  const auto groups = groups_of(plan_study(options));
  EXPECT_THAT(groups.at("all").features.recompute_plan.apply_modules,
              ElementsAre("language_model.model.layers.{0-1}"));
}

TEST(StudyPlan, WindowIsThatOfTheReportsOrTheSecondHalf) {
  const TemporaryFolder folder;
  const auto window = [&](int64_t steps) { return plan_study(options_for(folder.path(), steps)); };
  EXPECT_EQ(window(2000).window.first, 100);
  EXPECT_EQ(window(2000).window.last, 200);
  EXPECT_EQ(window(9).window.first, 5);
  EXPECT_EQ(window(9).window.last, 9);
  StudyOptions options = options_for(folder.path(), 9);
  options.window = Window{2, 9};
  EXPECT_EQ(plan_study(options).window.first, 2);
  options.window = Window{5, 10};
  EXPECT_THAT(config_error([&] { plan_study(options); }),
              HasSubstr("--window 5:10 ends behind the last step: the study has 9"));
}

TEST(StudyPlan, AllFaultsAtOnce) {
  const TemporaryFolder folder;
  StudyOptions options = options_for(folder.path());
  options.nproc = 3;
  options.baseline_program = folder.path() / "no_such_program";
  const std::string error = config_error([&] { plan_study(options); });
  EXPECT_THAT(error, HasSubstr("baseline: no program "));
  EXPECT_THAT(error, HasSubstr("cp, all: CP2 needs an even number of processes, but --nproc is 3"));
  EXPECT_THAT(error, HasSubstr("ep: EP2 needs an even number of processes"));
  EXPECT_THAT(error, Not(HasSubstr("recompute")));
}

TEST(StudyPlan, FaultsOfGroupsThatAreLeftOutDoNotCount) {
  const TemporaryFolder folder;
  StudyOptions options = options_for(folder.path());
  options.nproc = 1;
  options.overrides.clear();
  options.baseline_program = folder.path() / "no_such_program";
  options.groups = {"offload", "none"};
  const StudyPlan plan = plan_study(options);
  std::vector<std::string> selected;
  for (const study::Run& run : plan.runs) {
    if (run.selected) selected.push_back(run.name);
  }
  EXPECT_THAT(selected, ElementsAre("none", "offload"));
  EXPECT_THAT(names(plan), Not(Contains("cp")));
}

TEST(StudyPlan, RefusesABatchThatCannotBeSplit) {
  const TemporaryFolder folder;
  StudyOptions options = options_for(folder.path());
  options.config = kSource + "/examples/internvl3.5/internvl3_5_config.yaml";
  EXPECT_THAT(config_error([&] { plan_study(options); }),
              HasSubstr("the global batch of 1 cannot be split over 2 data-parallel ranks"));
}

TEST(StudyPlan, NamesWhatIsWrongInTheOptions) {
  const TemporaryFolder folder;
  const auto error = [&](const std::function<void(StudyOptions&)>& change) {
    StudyOptions options = options_for(folder.path());
    change(options);
    return config_error([&] { plan_study(options); });
  };
  EXPECT_THAT(error([](auto& o) {
                o.groups = {"none", "chunkloss"};
              }),
              HasSubstr("no group chunkloss (did you mean chunk_loss?)"));
  EXPECT_THAT(error([](auto& o) { o.steps = 0; }), HasSubstr("--steps is 0"));
  EXPECT_THAT(error([](auto& o) { o.nproc = 0; }), HasSubstr("--nproc is 0"));
  EXPECT_THAT(error([](auto& o) { o.out = ""; }), HasSubstr("--out is empty"));
  EXPECT_THAT(error([](auto& o) { o.preset = "prefech"; }), HasSubstr("did you mean prefetch?"));
  EXPECT_THAT(error([](auto& o) { o.baseline_log = "/no/such.log"; }),
              HasSubstr("no file /no/such.log"));
  EXPECT_THAT(error([](auto& o) { o.baseline_log = kSource; }),
              HasSubstr("not a folder or a pipe"));
  EXPECT_THAT(error([](auto& o) {
                o.baseline_log = kSource + "/README.md";
                o.groups = {"baseline"};
              }),
              HasSubstr("leave out one of the two"));
  std::string text = read_file(kSource + "/tests/data/trajectory.yaml");
  text.replace(text.find("train_iters: 200"), 16, "train_epochs: 2 ");
  const std::string epochs = folder.write("epochs.yaml", text).string();
  EXPECT_THAT(error([&epochs](auto& o) {
                o.steps.reset();
                o.config = epochs;
              }),
              HasSubstr("say how many with --steps"));
  EXPECT_THAT(error([](auto& o) { o.overrides.push_back("training.lrr=1"); }),
              HasSubstr("training.lrr"));
}

TEST(StudyPlan, PrefetchPresetChangesCountsAndOrderAlone) {
  const TemporaryFolder folder;
  StudyOptions options = options_for(folder.path());
  options.preset = "prefetch";
  const StudyPlan plan = plan_study(options);
  ASSERT_EQ(plan.runs.size(), 12u);
  EXPECT_EQ(plan.runs[0].name, "prefetch_0_2_run1");
  EXPECT_EQ(plan.runs[6].name, "prefetch_0_2_run2");
  const auto groups = groups_of(plan);
  const auto counts = [&](const std::string& name) {
    const config::FsdpPlan& p = groups.at(name + "_run1").parallel.fsdp_plan;
    return std::pair(p.num_to_forward_prefetch, p.num_to_backward_prefetch);
  };
  EXPECT_EQ(counts("prefetch_0_2"), std::pair(int64_t{0}, int64_t{2}));
  EXPECT_EQ(counts("prefetch_1_1"), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_THAT(groups.at("mlp1_after_language_run2").parallel.fsdp_plan.apply_modules,
              ElementsAre("vision_model.embeddings", "vision_model.encoder",
                          "language_model.model.layers.{*}", "mlp1", "language_model.lm_head"));
}

TEST(StudyPlan, EpPresetHasBothPaths) {
  const TemporaryFolder folder;
  StudyOptions options = options_for(folder.path());
  options.preset = "ep";
  const StudyPlan plan = plan_study(options);
  ASSERT_EQ(plan.runs.size(), 8u);
  EXPECT_EQ(plan.runs[1].name, "baseline_ep2_run1");
  const std::string& yaml = plan.runs[1].files.back().second;
  EXPECT_THAT(yaml, HasSubstr("expert_parallel_size: 2"));
  EXPECT_THAT(yaml,
              HasSubstr("moe_modules:\n  - \"language_model.model.layers.{*}.mlp.experts\"\n"));
  EXPECT_THAT(plan.runs[0].files.back().second, Not(HasSubstr("expert_parallel_size")));
}

TEST(BaselineInputs, DescribeTheSameTraining) {
  const TemporaryFolder folder;
  const auto faults = [&](const std::vector<std::string>& more) {
    StudyOptions options = options_for(folder.path() / "study");
    options.overrides.insert(options.overrides.end(), more.begin(), more.end());
    return config_error([&] { plan_study(options); });
  };
  EXPECT_EQ(faults({}), "no error");
  EXPECT_EQ(
      faults({"training.lr_decay_ratio=0.5", "training.lr_min=1e-6", "training.lr_start=1e-7",
              "training.weight_decay=0.1", "training.clip_grad=0.0", "training.seed=7",
              "training.lr_warmup_ratio=0.25", "features.loss_cfg.loss_type=raw",
              "features.loss_cfg.router_aux_loss_coef=0.01", "parallel.fsdp_plan.param_dtype=bf16",
              "model.num_hidden_layers=2", "data.dataset_param.pad_to=longest",
              "data.dataset_param.max_dynamic_patch=4", "data.dataloader_param.shuffle=true",
              "data.dataloader_param.shuffle_seed=epoch"}),
      "no error");
  // Planning writes nothing into the study's folder: it may be another's, or stop half-way.
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "study"));
  EXPECT_THAT(faults({"data.dataset_param.basic_parameters.max_samples=7"}),
              HasSubstr("baseline: data.dataset_param.basic_parameters.max_samples is 7, but the "
                        "Megatron-style path would train with null"));
}

TEST(BaselineInputs, HaveTheFlagsOfTheConfiguration) {
  const TemporaryFolder folder;
  const StudyPlan plan = plan_study(options_for(folder.path()));
  const std::vector<std::string>& command = plan.runs[0].command;
  const auto value = [&](const std::string& flag) {
    const auto found = std::find(command.begin(), command.end(), flag);
    return found == command.end() ? std::string("absent") : *(found + 1);
  };
  EXPECT_EQ(value("--micro-batch-size"), "1");
  EXPECT_EQ(value("--global-batch-size"), "2");
  EXPECT_EQ(value("--lr"), "0.001");
  EXPECT_EQ(value("--train-iters"), "4");
  EXPECT_EQ(value("--seq-length"), "256");
  EXPECT_EQ(value("--load"), "examples/tiny/model");
  EXPECT_EQ(value("--metrics-dir"), (folder.path() / "baseline" / "metrics").string());
  EXPECT_EQ(value("--nproc"), "2");
}

}  // namespace
}  // namespace shardloom::study
