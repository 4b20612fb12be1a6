// A model of one's own on the Megatron-style path: the call-backs of pretrain(), a model that
// shards itself by an overridden _fully_shard(), a data set. Run from the root of the repository:
//   examples/custom_model/train.sh
#include <ATen/ATen.h>

#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/nn/layers.h"
#include "shardloom/ops/cross_entropy.h"
#include "shardloom/parallel/fully_shard.h"
#include "shardloom/trainer/pretrain/pretrain.h"

namespace {

using namespace shardloom;

constexpr int64_t kBytes = 256;

struct Block : nn::Callable<Block> {
  Block(int64_t size, const at::TensorOptions& o)
      : norm(size, 1e-6, o), up(size, 4 * size, true, o), down(4 * size, size, true, o) {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(at::gelu(up(norm(x)))); }
  nn::RmsNorm norm;
  nn::Linear up, down;
};

// Predicts each byte from the one before.
class ByteModel : public models::Model, public FSDP2Mixin {
 public:
  ByteModel(int64_t size, int64_t num_blocks, const at::TensorOptions& options)
      : size_(size), embed(kBytes, size, options), head(size, kBytes, true, options) {
    for (int64_t i = 0; i < num_blocks; ++i) blocks.emplace_back(size, options);
    register_module("embed", embed);
    register_module("blocks", blocks);
    register_module("head", head);
  }

  models::Model& model() override { return *this; }
  void init_parameter(const std::string& name, const at::Tensor& value) const override {
    value.dim() == 1 ? value.fill_(name.ends_with("norm.weight")) : value.normal_(0, 0.02);
  }
  models::TensorMap idle_batch() const override {
    return {{"input_ids", at::zeros({1, 1}, at::kLong)}};
  }
  std::string export_config(const std::string& torch_dtype, nn::Layout) const override {
    return Json{{"hidden_size", size_}, {"torch_dtype", torch_dtype}}.dump(2);
  }

 protected:
  // Blocks run again in backward, each is a unit, and the next one is gathered ahead.
  void _fully_shard(const Fsdp2Kwargs& fsdp2_kwargs, const Fsdp2Config&) override {
    set_recompute_modules_to_wrap({"blocks.{*}"}, /*use_reentrant=*/false);
    for (auto& block : blocks)
      parallel::fully_shard(*block, fsdp2_kwargs.mesh, fsdp2_kwargs.options);
    parallel::fully_shard(*this, fsdp2_kwargs.mesh, fsdp2_kwargs.options);
    set_modules_to_prefetch({"blocks.{*}"}, 1, 1);
  }

  at::Tensor forward_logits(const models::TensorMap& batch) override {
    at::Tensor x = embed(batch.at("input_ids"));
    for (auto& block : blocks) x = (*block)(x);
    return head(x).to(at::kFloat);
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
  int64_t size_;
  nn::Embedding embed;
  nn::ModuleList<Block> blocks;
  nn::Linear head;
};

// The file of data.json in pieces of --seq-length bytes.
class Bytes : public data::Dataset {
 public:
  Bytes(std::string path, int64_t length)
      : path_(std::move(path)), length_(length), text_(read_file(path_)) {}

  int64_t size() const override { return static_cast<int64_t>(text_.size()) / length_; }
  std::string place(int64_t index) const override { return fmt::format("{} #{}", path_, index); }
  std::string fingerprint() const override { return fmt::format("{} {}", path_, text_.size()); }
  data::Sample get(int64_t index) const override {
    const auto first = text_.begin() + index * length_;
    return {index,
            place(index),
            {{"input_ids", data::Array::of_ints({length_}, {first, first + length_})}}};
  }
  data::Batch collate(const std::vector<data::Sample>& samples) const override {
    data::Batch batch;
    std::vector<int64_t> ids;
    for (const auto& sample : samples) {
      const auto& piece = sample.arrays.at("input_ids").ints;
      ids.insert(ids.end(), piece.begin(), piece.end());
      batch.sample_indices.push_back(sample.index);
      batch.sample_places.push_back(sample.place);
    }
    const std::vector<int64_t> shape = {static_cast<int64_t>(samples.size()), length_};
    batch.num_tokens = static_cast<int64_t>(ids.size());
    batch.arrays = {{"input_ids", data::Array::of_ints(shape, ids)},
                    {"labels", data::Array::of_ints(shape, ids)}};
    return batch;
  }

 private:
  std::string path_;
  int64_t length_;
  std::string text_;
};

std::shared_ptr<FSDP2Mixin> model_provider(const PretrainArgs& args) {
  const Json config =
      read_json_file(args.model.init_from_hf_path + "/config.json", ExitCode::kConfig);
  return std::make_shared<ByteModel>(config.at("hidden_size"), config.at("num_blocks"),
                                     at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
}

TrainValidTest train_valid_test_datasets_provider(const PretrainArgs& args,
                                                  const DataContext& context) {
  const auto dataset = std::make_shared<Bytes>(
      args.data.dataset_param.basic_parameters.at(0).data_path, args.args.seq_length);
  TrainValidTest data;
  data.train = build_mm_dataloader(dataset, args, context);
  data.test = dataset;  // what it has learnt by heart; one would take another file
  return data;
}

ForwardResult forward_step(DataIterator& data_iterator, models::Model& model) {
  const MicroBatch batch = get_batch(data_iterator);
  return {model.compute_loss(batch.tensors, batch.targets), loss_func};
}

}  // namespace

int main(int argc, char** argv) {
  return pretrain(train_valid_test_datasets_provider, model_provider, forward_step,
                  {argv + 1, argv + argc});
}
