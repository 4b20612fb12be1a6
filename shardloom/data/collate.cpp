#include "shardloom/data/collate.h"

#include <algorithm>

namespace shardloom::data {

Array pad_right(const std::vector<Sample>& samples,
                const std::string& name,
                int64_t length,
                int64_t fill) {
  const auto rows = static_cast<int64_t>(samples.size());
  std::vector<int64_t> values(static_cast<size_t>(rows * length), fill);
  auto row = values.begin();
  for (const auto& sample : samples) {
    const auto& ints = sample.arrays.at(name).ints;
    SHARDLOOM_CHECK(static_cast<int64_t>(ints.size()) <= length, "{} of {} has {} values, limit {}",
                    name, sample.place, ints.size(), length);
    std::copy(ints.begin(), ints.end(), row);
    row += length;
  }
  return Array::of_ints({rows, length}, std::move(values));
}

Array mask_from_lengths(const std::vector<Sample>& samples,
                        const std::string& name,
                        int64_t length) {
  const auto rows = static_cast<int64_t>(samples.size());
  std::vector<int64_t> values(static_cast<size_t>(rows * length), 0);
  auto row = values.begin();
  for (const auto& sample : samples) {
    std::fill_n(row, sample.arrays.at(name).ints.size(), 1);
    row += length;
  }
  return Array::of_ints({rows, length}, std::move(values));
}

Array concatenate(const std::vector<Sample>& samples, const std::string& name, Array joined) {
  size_t ints = joined.ints.size();
  size_t floats = joined.floats.size();
  for (const auto& sample : samples) {
    ints += sample.arrays.at(name).ints.size();
    floats += sample.arrays.at(name).floats.size();
  }
  joined.ints.reserve(ints);
  joined.floats.reserve(floats);
  for (const auto& sample : samples) {
    const Array& part = sample.arrays.at(name);
    SHARDLOOM_CHECK(part.dtype == joined.dtype && part.shape.size() == joined.shape.size(),
                    "{} of {} has another type or rank", name, sample.place);
    joined.shape[0] += part.shape[0];
    joined.ints.insert(joined.ints.end(), part.ints.begin(), part.ints.end());
    joined.floats.insert(joined.floats.end(), part.floats.begin(), part.floats.end());
  }
  return joined;
}

}  // namespace shardloom::data
