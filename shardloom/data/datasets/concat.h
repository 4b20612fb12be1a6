// Several data sets as one, each as often as wanted (ConcatDataset and repeat_time of
// MindSpeed-MM).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardloom/data/dataset.h"

namespace shardloom::data {

class ConcatDataset : public Dataset {
 public:
  // `size` samples of `dataset` from its start, which begins again as often as it ends.
  struct Part {
    std::shared_ptr<const Dataset> dataset;
    int64_t size = 0;
  };
  // At least one part; the collate rule is that of the first. Throws DataError for a part that has
  // no sample but is to give some.
  explicit ConcatDataset(std::vector<Part> parts);

  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override;
  std::string place(int64_t index) const override;
  SampleView view(int64_t index) const override;
  Batch collate(const std::vector<Sample>& samples) const override;
  std::string fingerprint() const override;

 private:
  struct Spot {
    const Dataset& dataset;
    int64_t index;
  };
  Spot find(int64_t index) const;

  std::vector<Part> parts_;
  int64_t size_ = 0;
};

}  // namespace shardloom::data
