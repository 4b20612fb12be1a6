// The interface of data sets and their registry. A data set is a random-access list of samples plus
// a collate rule.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/base/registry.h"
#include "shardloom/config/train_config.h"
#include "shardloom/data/batch.h"

namespace shardloom::data {

// One prepared sample; `place` names its origin ("train.jsonl:12").
struct Sample {
  int64_t index = 0;
  std::string place;
  Arrays arrays;
  bool is_truncated = false;  // its end was cut off to fit the sequence length
};

// What a person wants to see of a sample beside its arrays (`shardloom data show`).
struct PictureView {
  std::string path;
  int width = 0;  // of the file, in pixels
  int height = 0;
  std::vector<std::string> tile_sha256;  // of the resized 8-bit RGB pixels of each tile
};
struct SampleView {
  Sample sample;
  std::string text;  // the decoded input_ids
  std::vector<PictureView> pictures;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // Prepares sample `index` (0 <= index < size()). Called from several threads at once.
  // Throws DataError that starts with the sample's place when the sample is bad.
  virtual Sample get(int64_t index) const = 0;
  // "file.jsonl:12" of a sample, without preparing it.
  virtual std::string place(int64_t index) const = 0;
  // The sample as `data show` prints it. A data set that does not override this shows its arrays
  // only.
  virtual SampleView view(int64_t index) const { return {get(index), {}, {}}; }
  // Joins samples into one micro batch (padding rule of the data set).
  virtual Batch collate(const std::vector<Sample>& samples) const = 0;
  // Identifies the data (paths, sizes, counts), so that a resume can tell whether it changed.
  virtual std::string fingerprint() const = 0;
};

// Makes a data set from its part of the configuration and the folder of the model that it feeds
// (tokenizer files and config.json; weights need not be there).
using DatasetFactory = std::function<std::unique_ptr<Dataset>(const config::DatasetParam&,
                                                              const std::string& model_folder)>;

// Filled with the built-in data sets on first use; plug-ins add to it.
Registry<DatasetFactory>& dataset_registry();

}  // namespace shardloom::data
