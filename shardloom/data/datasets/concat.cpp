#include "shardloom/data/datasets/concat.h"

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::data {

ConcatDataset::ConcatDataset(std::vector<Part> parts) : parts_(std::move(parts)) {
  SHARDLOOM_CHECK(!parts_.empty(), "no parts");
  for (const Part& part : parts_) {
    if (part.size > 0 && part.dataset->size() == 0)
      throw DataError("{}: the data set has no samples", part.dataset->fingerprint());
    size_ += part.size;
  }
}

ConcatDataset::Spot ConcatDataset::find(int64_t index) const {
  for (const Part& part : parts_) {
    if (index < part.size) return {*part.dataset, index % part.dataset->size()};
    index -= part.size;
  }
  throw InternalError("sample {} beyond the end of a data set of {}", index + size_, size_);
}

Sample ConcatDataset::get(int64_t index) const {
  const Spot spot = find(index);
  Sample sample = spot.dataset.get(spot.index);
  sample.index = index;
  return sample;
}

std::string ConcatDataset::place(int64_t index) const {
  const Spot spot = find(index);
  return spot.dataset.place(spot.index);
}

SampleView ConcatDataset::view(int64_t index) const {
  const Spot spot = find(index);
  SampleView view = spot.dataset.view(spot.index);
  view.sample.index = index;
  return view;
}

Batch ConcatDataset::collate(const std::vector<Sample>& samples) const {
  return parts_.front().dataset->collate(samples);
}

std::string ConcatDataset::fingerprint() const {
  std::vector<std::string> texts;
  for (const Part& part : parts_)
    texts.push_back(fmt::format("{} of {}", part.size, part.dataset->fingerprint()));
  return join(texts, "; ");
}

}  // namespace shardloom::data
