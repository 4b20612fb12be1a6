// Depth, size and freedom from cycles of a pickle's tree.
#pragma once

#include <string>

#include "shardloom/checkpoint/dcp/unpickler.h"

namespace shardloom::checkpoint::dcp {

// Walks each node once, so that what a pickle shares cannot make the walk long.
class TreeCheck {
 public:
  explicit TreeCheck(const PickleLimits& limits) : limits_(limits) {}

  // What is wrong; empty when nothing is.
  std::string check(PickleNode& root);

 private:
  // False when error_ is set.
  bool visit(PickleNode& node, uint32_t level);

  const PickleLimits& limits_;
  std::string error_;
};

}  // namespace shardloom::checkpoint::dcp
