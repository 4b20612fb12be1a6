#include "shardloom/config/megatron/picture_pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "shardloom/config/megatron/document.h"

namespace shardloom::config::megatron {
namespace {

constexpr const char* kSteps = "dataset_param.preprocess_parameters.train_pipeline.image";
// In the order in which they must stand; the first one may be left out.
const std::vector<std::string> kOrder = {"Pad2Square", "Resize", "ToTensor", "norm_fun"};
const std::vector<double> kMean = {0.485, 0.456, 0.406};
const std::vector<double> kStd = {0.229, 0.224, 0.225};

class PipelineChecker {
 public:
  PipelineChecker(const DataJson& data, Problems& problems)
      : data_(data),
        steps_(data.dataset_param.preprocess_parameters.train_pipeline.image),
        problems_(problems) {}

  void run() {
    if (steps_.empty()) return;
    if (!check_order()) return;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const ImageTransform& step = steps_[i];
      if (step.trans_type == "Pad2Square") check_padding(i);
      if (step.trans_type == "Resize") check_resize(i, step.param);
      if (step.trans_type == "norm_fun") {
        check_values(i, "mean", step.param.mean, kMean);
        check_values(i, "std", step.param.std_, kStd);
      }
    }
  }

 private:
  void error(size_t step, const std::string& key, const std::string& message) {
    const std::string path = fmt::format("{}[{}]{}", kSteps, step, key);
    const std::string place = key.empty() ? path + ".trans_type" : path;
    problems_.error(place_in(data_.sources, place), fmt::format("{} {}", path, message));
  }

  bool check_order() {
    std::vector<std::string> names;
    for (const ImageTransform& step : steps_) names.push_back(step.trans_type);
    const std::vector<std::string> without_padding(kOrder.begin() + 1, kOrder.end());
    if (names == kOrder || names == without_padding) return true;
    problems_.error(place_in(data_.sources, kSteps),
                    fmt::format("{} is {}; only {} is supported, with or without Pad2Square",
                                kSteps, fmt::join(names, ", "), fmt::join(kOrder, ", ")));
    return false;
  }

  void check_padding(size_t step) {
    // A tile is a square, so that nothing is padded; a whole picture is not.
    if (data_.dataset_param.dynamic_image_size) return;
    error(step, "",
          "(Pad2Square) pads pictures when dynamic_image_size is false, which is not supported; "
          "remove it, or set dynamic_image_size true and max_dynamic_patch 1");
  }

  void check_resize(size_t step, const TransformParam& param) {
    if (!param.size) {
      error(step, ".param.size", "is missing");
    } else if (const auto& size = *param.size;
               size.empty() || size.size() > 2 || size.front() != size.back()) {
      error(step, ".param.size",
            fmt::format("is [{}]; tiles are squares, write [448, 448]", fmt::join(size, ", ")));
    } else if (const auto& image = data_.dataset_param.image_size; image && *image != size[0]) {
      error(step, ".param.size",
            fmt::format("is [{}], but dataset_param.image_size is {}", fmt::join(size, ", "),
                        *image));
    }
    std::string way = param.interpolation.value_or("");
    std::transform(way.begin(), way.end(), way.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (way != "BICUBIC") {
      error(step, ".param.interpolation",
            fmt::format("is {}; only BICUBIC is supported",
                        param.interpolation.value_or("not given, which means BILINEAR")));
    }
  }

  void check_values(size_t step,
                    const std::string& key,
                    const std::optional<std::vector<double>>& values,
                    const std::vector<double>& wanted) {
    if (values == wanted) return;
    error(step, ".param." + key,
          fmt::format("{}; only [{}] is supported",
                      values ? fmt::format("is [{}]", fmt::join(*values, ", ")) : "is missing",
                      fmt::join(wanted, ", ")));
  }

  const DataJson& data_;
  const std::vector<ImageTransform>& steps_;
  Problems& problems_;
};

}  // namespace

void check_picture_pipeline(const DataJson& data, Problems& problems) {
  PipelineChecker(data, problems).run();
}

std::optional<int64_t> tile_size(const MmDatasetParam& dataset) {
  if (dataset.image_size) return dataset.image_size;
  for (const ImageTransform& step : dataset.preprocess_parameters.train_pipeline.image) {
    if (step.trans_type == "Resize" && step.param.size && !step.param.size->empty())
      return step.param.size->front();
  }
  return std::nullopt;
}

}  // namespace shardloom::config::megatron
