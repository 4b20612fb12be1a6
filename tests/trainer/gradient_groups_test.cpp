// The gradient norm of every part of the model, for every way to cut it: a factor of cp or ep in
// one part changes the total norm too little to be seen there.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "shardloom/base/json.h"
#include "shardloom/trainer/assembly.h"
#include "shardloom/trainer/plan_check.h"
#include "shardloom/trainer/run_check.h"
#include "shardloom/trainer/sharding.h"
#include "shardloom/trainer/step.h"
#include "tests/distributed/ranks.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::trainer {
namespace {

using distributed::testing::expect_ranks;
using distributed::testing::RankContext;
using Overrides = std::vector<std::string>;
using Norms = std::map<std::string, double>;

const std::string kSource = SHARDLOOM_SOURCE_DIR;

std::string part_of(const std::string& name) {
  const auto has = [&](const char* text) { return name.find(text) != std::string::npos; };
  if (name.rfind("vision_model", 0) == 0) return "vision";
  if (name.rfind("mlp1", 0) == 0) return "mlp1";
  if (has("embed_tokens")) return "embedding";
  if (has("lm_head")) return "head";
  if (has("norm")) return "norms";
  if (has(".self_attn.")) return "attention";
  if (has(".mlp.gate.")) return "router";
  if (has(".experts.")) return "experts";
  return "other";
}

constexpr const char* kData = "data.dataset_param.basic_parameters.dataset";

config::LoadedConfig load(const Overrides& overrides, int world) {
  Overrides all = {
      "model.model_name_or_path=" + kSource + "/examples/tiny/model",
      "training.load=" + kSource + "/examples/tiny/model",
      "data.dataset_param.basic_parameters.dataset_dir=" + kSource + "/examples/tiny/data"};
  const bool own_data = std::any_of(overrides.begin(), overrides.end(), [](const auto& text) {
    return text.rfind(std::string(kData) + "=", 0) == 0;
  });
  if (!own_data)
    all.push_back(std::string(kData) + "=" + kSource + "/examples/tiny/data/train.jsonl");
  all.insert(all.end(), overrides.begin(), overrides.end());
  config::LoadedConfig loaded =
      config::load_train_config(kSource + "/tests/data/trajectory.yaml", all);
  check_run(loaded, world);
  return loaded;
}

std::shared_ptr<distributed::World> connect(const RankContext& rank) {
  if (rank.size == 1) return distributed::World::alone();
  return distributed::World::over(rank.store, rank.rank, rank.size, distributed::BackendKind::kShm,
                                  std::chrono::seconds(60));
}

// Forward and backward of the first global batch.
Norms norms_of(const Overrides& overrides, const RankContext& rank) {
  const config::LoadedConfig loaded = load(overrides, rank.size);
  const config::TrainConfig& config = loaded.config;
  const auto world = connect(rank);
  const auto meshes =
      distributed::ParallelMeshes::make(*world, parallel_dims(config.parallel, rank.size));
  const auto model = build_model(config, TokenIds::kFromTokenizer);
  apply_freeze(config.model.freeze, *model);
  const WeightSources sources = weight_sources(*model);
  ParallelModel parallel_model = make_parallel(config, *model, meshes);
  parallel::materialize(*model, at::kCPU);
  std::shared_ptr<distributed::Group> experts;
  if (meshes.dims.ep > 1)
    experts = world->make_group("experts", expert_owners(meshes.dims, rank.rank));
  const auto parameters = whole_parameters(config, *model, meshes, experts);
  load_hf_weights(*config.training.load, config.training, *model, sources,
                  sharded_tensors(parameters), /*verbose=*/false);

  const auto dataset = build_dataset(config, config.data.dataset_param);
  data::Loader loader(dataset, sampler_options(config, dataset->size(), *meshes.data_parallel),
                      loader_options(config));
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < *config.training.gradient_accumulation_steps; ++i)
    batches.push_back(loader.next());
  StepTarget target{*model, parallel_model.sharded, *meshes.data_parallel, *meshes.context_parallel,
                    *meshes.world};
  forward_backward(target, std::move(batches),
                   {loss::parse_loss_type(config.features.loss_cfg.loss_type),
                    config.features.loss_cfg.router_aux_loss_coef},
                   /*interrupted=*/false);
  std::map<std::string, std::vector<parallel::ShardedParameter>> parts;
  for (const auto& p : parameters) parts[part_of(p.tensor.name)].push_back(p);
  Norms norms;
  for (const auto& [part, members] : parts)
    norms[part] = std::sqrt(optim::squared_norm(gradient_shards(members)));
  return norms;
}

// Runs in processes of their own: threads of this one would not survive the forks.
Norms run(const Overrides& overrides, int ranks) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "norms.json";
  expect_ranks(ranks, [&](const RankContext& rank) {
    const Norms norms = norms_of(overrides, rank);
    if (rank.rank == 0) std::ofstream(path) << Json(norms).dump();
  });
  return read_json_file(path.string(), ExitCode::kInternal).get<Norms>();
}

void expect_equal(const Norms& got, const Norms& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (const auto& [part, norm] : expected) {
    EXPECT_GT(norm, 0) << part;
    EXPECT_NEAR(got.at(part) / norm, 1.0, 1e-4) << what << ": " << part;
  }
}

const Overrides kCp2 = {"parallel.ulysses_parallel_size=2"};
const Overrides kEp2 = {"parallel.expert_parallel_size=2"};
const Overrides kEp4 = {"parallel.expert_parallel_size=4"};
const Overrides kAllGather = {"parallel.ep_plan.dispatcher=allgather"};
const Overrides kRecompute = {"features.recompute=true"};
const Overrides kChunkLoss = {"features.enable_chunk_loss=true",
                              "features.chunkloss_plan.chunk_size=16"};
const Overrides kOffload = {"features.enable_activation_offload=true"};

Overrides batch(int global, int ranks_of_data) {
  return {"training.micro_batch_size=" + std::to_string(global / ranks_of_data)};
}

Overrides join(std::initializer_list<Overrides> lists) {
  Overrides all;
  for (const Overrides& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

struct Layout {
  const char* name;
  int ranks;
  int data_parallel;
  Overrides overrides;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class GradientGroups : public ::testing::TestWithParam<Layout> {};

TEST_P(GradientGroups, AreThoseOfOneProcess) {
  constexpr int kBatch = 4;
  const Layout& layout = GetParam();
  static const Norms one = run(batch(kBatch, 1), 1);
  EXPECT_EQ(one.size(), 8u) << "vision, mlp1, embedding, attention, router, experts, norms, head";
  expect_equal(run(join({layout.overrides, batch(kBatch, layout.data_parallel)}), layout.ranks),
               one, layout.name);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts,
    GradientGroups,
    ::testing::Values(Layout{"None2", 2, 2, {}},
                      Layout{"Cp2", 2, 1, kCp2},
                      Layout{"Ep2", 2, 2, kEp2},
                      Layout{"Ep2AllGather", 2, 2, join({kEp2, kAllGather})},
                      Layout{"Recompute", 2, 2, kRecompute},
                      Layout{"ChunkLoss", 2, 2, kChunkLoss},
                      Layout{"Offload", 2, 2, kOffload},
                      Layout{"All", 2, 1, join({kCp2, kEp2, kRecompute, kChunkLoss, kOffload})},
                      Layout{"Cp2Dp2", 4, 2, kCp2},
                      Layout{"Ep2Dp4", 4, 4, kEp2},
                      Layout{"Ep4", 4, 4, kEp4},
                      Layout{"Ep4AllGather", 4, 4, join({kEp4, kAllGather})},
                      Layout{"Cp2Ep4", 4, 2, join({kCp2, kEp4})}),
    [](const auto& info) { return std::string(info.param.name); });

// Positions of <IMG_CONTEXT> in the sample's ids.
std::vector<int64_t> picture_positions(const data::Sample& sample) {
  constexpr int64_t kImageToken = 762;  // of the tiny tokenizer
  std::vector<int64_t> positions;
  const std::vector<int64_t>& ids = sample.arrays.at("input_ids").ints;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kImageToken) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

std::string record(int words_before, int words_between, int pictures) {
  const auto words = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "one ";
    return text;
  };
  Json images = Json::array();
  std::string text = words(words_before) + "<image>";
  for (int i = 0; i < pictures; ++i) images.push_back("images/digit_0114.png");
  if (pictures > 1) text += words(words_between) + "<image>";
  return Json{{"image", images},
              {"conversations",
               {{{"from", "human"}, {"value", text + " Read the handwritten digit."}},
                {{"from", "gpt"}, {"value", "The digit is eight."}}}}}
             .dump() +
         "\n";
}

// A batch of sequences of 256, cut at 128: a picture across the cut, one behind it, one on each
// side of it.
TEST(GradientGroupsOfPictures, OnEitherSideOfTheCutAndAcrossIt) {
  const TemporaryFolder folder;
  const auto candidates = folder.path() / "candidates.jsonl";
  std::vector<std::string> lines;
  for (int before = 0; before < 70; ++before) lines.push_back(record(2 * before, 0, 1));
  for (int before = 0; before < 8; ++before) lines.push_back(record(8 * before, 60, 2));
  std::ofstream all(candidates);
  for (const std::string& line : lines) all << line;
  all.close();
  const auto dataset = build_dataset(
      load({std::string(kData) + "=" + candidates.string()}, 1).config,
      load({std::string(kData) + "=" + candidates.string()}, 1).config.data.dataset_param);
  constexpr int64_t kCut = 128, kTokens = 16;
  std::optional<int64_t> across, behind, both;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const std::vector<int64_t> places = picture_positions(dataset->get(i));
    const bool one = static_cast<int64_t>(places.size()) == kTokens;
    if (one && places.front() < kCut && places.back() >= kCut) across = i;
    if (one && places.front() >= kCut) behind = i;
    if (!one && places.size() == 2 * kTokens && places[kTokens - 1] < kCut &&
        places[kTokens] >= kCut)
      both = i;
  }
  ASSERT_TRUE(across && behind && both);
  const std::string data =
      folder.write("data.jsonl", lines[*across] + lines[*behind] + lines[*both] + lines[*across])
          .string();
  const Overrides own = {std::string(kData) + "=" + data};
  const Norms one = run(join({own, batch(4, 1)}), 1);
  expect_equal(run(join({own, kCp2, batch(4, 1)}), 2), one, "cp2");
  expect_equal(run(join({own, kCp2, batch(4, 2)}), 4), one, "cp2 dp2");
}

// Ranks that share sequences read the same samples, others read others.
TEST(SamplesOfRanks, PeersOfASequenceReadTheSame) {
  expect_ranks(4, [](const RankContext& rank) {
    const config::LoadedConfig loaded = load(join({kCp2, batch(4, 2)}), 4);
    const config::TrainConfig& config = loaded.config;
    const auto world = connect(rank);
    const auto meshes =
        distributed::ParallelMeshes::make(*world, parallel_dims(config.parallel, 4));
    const auto dataset = build_dataset(config, config.data.dataset_param);
    data::Loader loader(dataset, sampler_options(config, dataset->size(), *meshes.data_parallel),
                        loader_options(config));
    for (int step = 0; step < 5; ++step) {
      const at::Tensor own = at::tensor(loader.next().sample_indices, at::kLong);
      const at::Tensor all = at::empty({4, own.numel()}, at::kLong);
      world->group()->all_gather(all.view({-1}), own).wait();
      EXPECT_TRUE(at::equal(all[0], all[1]) && at::equal(all[2], all[3])) << all;
      EXPECT_FALSE(at::equal(all[0], all[2])) << all;
    }
  });
}

// The auxiliary loss is one of the global batch: its gradient does not depend on the cut either,
// nor on micro batches.
TEST(GradientGroupsWithAuxiliaryLoss, AreThoseOfOneProcess) {
  const Overrides aux = {"features.loss_cfg.router_aux_loss_coef=0.5"};
  const Norms one = run(join({aux, batch(4, 1)}), 1);
  EXPECT_GT(std::abs(one.at("router") / run(batch(4, 1), 1).at("router") - 1), 0.1);
  const std::vector<Layout> layouts = {
      {"four micro batches", 1, 1, {"training.gradient_accumulation_steps=4"}},
      {"two ranks", 2, 2, {}},
      {"cp2", 2, 1, kCp2},
      {"ep2", 2, 2, kEp2},
      {"ep2, two micro batches", 2, 2, join({kEp2, {"training.gradient_accumulation_steps=2"}})},
      {"all", 2, 1, join({kCp2, kEp2, kRecompute, kChunkLoss, kOffload})}};
  for (const Layout& layout : layouts) {
    const bool four = layout.ranks == 1;
    const int samples = std::string(layout.name).find("two micro") != std::string::npos ? 2 : 4;
    expect_equal(run(join({layout.overrides, aux, batch(four ? 1 : samples, layout.data_parallel)}),
                     layout.ranks),
                 one, layout.name);
  }
}

}  // namespace
}  // namespace shardloom::trainer
