// The call-backs of pretrain(), in this process: their order, what they are handed, what their
// faults become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/nn/layers.h"
#include "shardloom/ops/cross_entropy.h"
#include "shardloom/trainer/pretrain/pretrain.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kTokens = 8;

// The next token from the last one.
class Bigram : public models::Model, public FSDP2Mixin {
 public:
  Bigram() { register_module("embed", embed); }
  models::Model& model() override { return *this; }
  void init_parameter(const std::string&, const at::Tensor& value) const override {
    value.normal_();
  }
  models::TensorMap idle_batch() const override {
    return {{"input_ids", at::zeros({1, 1}, at::kLong)}};
  }
  std::string export_config(const std::string&, nn::Layout) const override { return "{}"; }

 protected:
  at::Tensor forward_logits(const models::TensorMap& batch) override {
    return embed(batch.at("input_ids"));
  }
  models::ModelOutput forward_loss(const models::TensorMap& batch,
                                   const models::LossTargets& targets) override {
    const at::Tensor ids = targets.targets.flatten(), rows = at::nonzero(ids.ge(0)).squeeze(1);
    return {ops::weighted_cross_entropy(forward_logits(batch).flatten(0, 1).index_select(0, rows),
                                        ids.index_select(0, rows),
                                        targets.weights.flatten().index_select(0, rows)),
            {}};
  }

 private:
  nn::Embedding embed{kTokens, kTokens, at::TensorOptions().dtype(at::kFloat).device(at::kMeta)};
};

class Counting : public data::Dataset {
 public:
  int64_t size() const override { return 16; }
  std::string place(int64_t index) const override { return std::to_string(index); }
  std::string fingerprint() const override { return "counting"; }
  data::Sample get(int64_t index) const override { return {index, place(index), {}}; }
  data::Batch collate(const std::vector<data::Sample>& samples) const override {
    data::Batch batch;
    std::vector<int64_t> ids;
    for (const auto& sample : samples) {
      for (int64_t i = 0; i < 4; ++i) ids.push_back((sample.index + i) % kTokens);
      batch.sample_indices.push_back(sample.index);
      batch.sample_places.push_back(sample.place);
    }
    const std::vector<int64_t> shape = {static_cast<int64_t>(samples.size()), 4};
    batch.num_tokens = static_cast<int64_t>(ids.size());
    batch.arrays = {{"input_ids", data::Array::of_ints(shape, ids)},
                    {"labels", data::Array::of_ints(shape, ids)}};
    return batch;
  }
};

class Pretrain : public ::testing::Test {
 protected:
  Pretrain() {
    folder_.write("config.json", "{}");
    folder_.write("model.json",
                  R"({"model_id": "bigram", "random_init": true, "init_from_hf_path": ")" +
                      folder_.path().string() + R"("})");
    data_ = folder_.write("data.txt", "");
    folder_.write("data.json", R"({"dataset_param": {"dataset_type": "counting", "basic_parameters":
                                 {"data_path": ")" +
                                   data_.string() + R"("}}})");
    folder_.write("fsdp2.yaml", "sharding_size: auto\n");
  }

  std::string file(const char* name) const { return (folder_.path() / name).string(); }

  int run(ForwardStep forward_step) {
    const auto model_provider = [this](const PretrainArgs& args) -> std::shared_ptr<FSDP2Mixin> {
      calls_.emplace_back("model_provider of " + args.model.model_id);
      return std::make_shared<Bigram>();
    };
    const auto datasets = [this](const PretrainArgs& args, const DataContext& context) {
      calls_.emplace_back(fmt::format("datasets for {}", context.train_samples));
      const auto dataset = std::make_shared<Counting>();
      TrainValidTest data;
      data.train = build_mm_dataloader(dataset, args, context);
      data.test = dataset;
      return data;
    };
    return pretrain(datasets, model_provider, std::move(forward_step),
                    {"--use-torch-fsdp2",
                     "--fsdp2-config-path",
                     file("fsdp2.yaml"),
                     "--mm-model",
                     file("model.json"),
                     "--mm-data",
                     file("data.json"),
                     "--seq-length",
                     "4",
                     "--untie-embeddings-and-output-weights",
                     "--micro-batch-size",
                     "2",
                     "--global-batch-size",
                     "4",
                     "--train-iters",
                     "2",
                     "--lr",
                     "0.1",
                     "--lr-decay-style",
                     "constant"});
  }

  TemporaryFolder folder_;
  std::filesystem::path data_;
  std::vector<std::string> calls_;
};

TEST_F(Pretrain, CallBacksComeInThePublishedOrder) {
  std::vector<int64_t> first_ids;
  const int code = run([&](DataIterator& data_iterator, models::Model& model) -> ForwardResult {
    const MicroBatch batch = get_batch(data_iterator);
    calls_.emplace_back(model.is_training() ? "forward_step" : "forward_step of the test set");
    first_ids.push_back(batch.tensors.at("input_ids")[0][0].item<int64_t>());
    return {model.compute_loss(batch.tensors, batch.targets),
            [this](const models::ModelOutput& output) {
              calls_.emplace_back("loss_func");
              return loss_func(output);
            }};
  });
  EXPECT_EQ(code, 0);
  // Two micro batches for each of two steps, then sixteen samples by two.
  ASSERT_EQ(calls_.size(), 2u + 2 * (2 * 2 + 8));
  EXPECT_EQ(calls_[0], "model_provider of bigram");
  EXPECT_EQ(calls_[1], "datasets for 8");
  for (size_t i = 2; i < calls_.size(); i += 2) {
    EXPECT_EQ(calls_[i], i < 10 ? "forward_step" : "forward_step of the test set") << i;
    EXPECT_EQ(calls_[i + 1], "loss_func") << i;
  }
  first_ids.resize(4);
  EXPECT_THAT(first_ids, ElementsAre(0, 2, 4, 6));  // in file order, two samples each
}

TEST_F(Pretrain, FaultsOfCallBacksBecomeExitCodes) {
  EXPECT_EQ(
      run([](DataIterator&, models::Model&) -> ForwardResult { throw DataError("a bad sample"); }),
      static_cast<int>(ExitCode::kData));
  EXPECT_EQ(run([](DataIterator&, models::Model&) { return ForwardResult{}; }),
            static_cast<int>(ExitCode::kInternal));
  const auto no_model = [](const PretrainArgs&) -> std::shared_ptr<FSDP2Mixin> { return nullptr; };
  EXPECT_EQ(pretrain({}, no_model, {}, {"--lr"}), static_cast<int>(ExitCode::kConfig));
}

}  // namespace
}  // namespace shardloom
