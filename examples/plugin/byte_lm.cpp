// A model and a data set of a user's own, built outside the shardloom tree: a language model over
// bytes that sees only the byte before, and a data set whose samples are the lines of a text file.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fstream>

#include "shardloom/base/json.h"
#include "shardloom/nn/layers.h"
#include "shardloom/ops/cross_entropy.h"
#include "shardloom/trainer/plugin.h"

namespace {

using namespace shardloom;

constexpr int64_t kBytes = 256;
constexpr int64_t kIgnore = -100;

class ByteLm : public models::Model {
 public:
  ByteLm(int64_t hidden_size, const at::TensorOptions& options)
      : hidden_size_(hidden_size),
        embed(kBytes, hidden_size, options),
        norm(hidden_size, 1e-6, options),
        head(hidden_size, kBytes, /*bias=*/true, options) {
    register_module("embed", embed);
    register_module("norm", norm);
    register_module("head", head);
  }

  void init_parameter(const std::string& name, const at::Tensor& value) const override {
    const at::NoGradGuard no_grad;
    value.dim() == 1 ? value.fill_(name == "norm.weight") : value.normal_(0, 0.02);
  }

  models::TensorMap idle_batch() const override {
    return {{"input_ids", at::zeros({1, 1}, at::kLong)}};
  }

  std::string export_config(const std::string& torch_dtype, nn::Layout) const override {
    return Json{{"hidden_size", hidden_size_}, {"torch_dtype", torch_dtype}}.dump(2);
  }

 protected:
  at::Tensor forward_logits(const models::TensorMap& batch) override {
    return head(norm(embed(batch.at("input_ids"))));
  }

  models::ModelOutput forward_loss(const models::TensorMap& batch,
                                   const models::LossTargets& t) override {
    const at::Tensor rows = at::nonzero(t.targets.flatten().ge(0)).squeeze(1);
    const at::Tensor hidden = norm(embed(batch.at("input_ids"))).flatten(0, 1);
    return {ops::weighted_cross_entropy(head(hidden.index_select(0, rows)),
                                        t.targets.flatten().index_select(0, rows),
                                        t.weights.flatten().index_select(0, rows)),
            {}};
  }

 private:
  int64_t hidden_size_;
  nn::Embedding embed;
  nn::RmsNorm norm;
  nn::Linear head;
};

class Lines : public data::Dataset {
 public:
  explicit Lines(const config::DatasetParam& param) : path_(param.basic_parameters.dataset.at(0)) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) lines_.push_back(line + "\n");
  }

  int64_t size() const override { return static_cast<int64_t>(lines_.size()); }
  std::string place(int64_t index) const override {
    return path_ + ":" + std::to_string(index + 1);
  }
  std::string fingerprint() const override { return path_ + " " + std::to_string(size()); }

  data::Sample get(int64_t index) const override {
    const std::string& line = lines_[index];
    if (line.size() < 2) throw DataError("{}: the line is empty", place(index));
    std::vector<int64_t> ids;
    for (const unsigned char c : line) ids.push_back(c);
    const auto length = static_cast<int64_t>(ids.size());
    return {index, place(index), {{"input_ids", data::Array::of_ints({length}, std::move(ids))}}};
  }

  data::Batch collate(const std::vector<data::Sample>& samples) const override {
    const auto rows = static_cast<int64_t>(samples.size());
    int64_t width = 0;
    for (const auto& s : samples) width = std::max(width, s.arrays.at("input_ids").shape[0]);
    std::vector<int64_t> ids(rows * width, 0), labels(rows * width, kIgnore);
    data::Batch batch;
    for (int64_t r = 0; r < rows; ++r) {
      const auto& line = samples[r].arrays.at("input_ids").ints;
      std::copy(line.begin(), line.end(), ids.begin() + r * width);
      std::copy(line.begin(), line.end(), labels.begin() + r * width);
      batch.num_tokens += static_cast<int64_t>(line.size());
      batch.sample_indices.push_back(samples[r].index);
      batch.sample_places.push_back(samples[r].place);
    }
    batch.num_targets = batch.num_tokens - rows;
    batch.arrays = {{"input_ids", data::Array::of_ints({rows, width}, std::move(ids))},
                    {"labels", data::Array::of_ints({rows, width}, std::move(labels))}};
    return batch;
  }

 private:
  std::string path_;
  std::vector<std::string> lines_;
};

}  // namespace

extern "C" void shardloom_plugin(shardloom::PluginRegistries& registries) {
  registries.models.add(
      "byte_lm", [](const models::BuildOptions& options) -> std::unique_ptr<models::Model> {
        const Json config = read_json_file(options.folder / "config.json", ExitCode::kCheckpoint);
        return std::make_unique<ByteLm>(config.at("hidden_size").get<int64_t>(),
                                        options.tensor_options);
      });
  registries.datasets.add(
      "lines",
      [](const config::DatasetParam& param, const std::string&) -> std::unique_ptr<data::Dataset> {
        return std::make_unique<Lines>(param);
      });
}
