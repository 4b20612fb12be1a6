// How a length is cut among ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace shardloom {

// Lengths of `parts` parts of `total`; the first total % parts ones are one longer.
inline std::vector<int64_t> split_evenly(int64_t total, int64_t parts) {
  std::vector<int64_t> lengths(static_cast<size_t>(parts), total / parts);
  for (int64_t i = 0; i < total % parts; ++i) ++lengths[static_cast<size_t>(i)];
  return lengths;
}

}  // namespace shardloom
