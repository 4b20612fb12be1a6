#include "shardloom/checkpoint/dcp/tree_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardloom::checkpoint::dcp {
namespace {

constexpr uint64_t kBeingVisited = UINT64_MAX;

}  // namespace

std::string TreeCheck::check(PickleNode& root) {
  visit(root, 1);
  return error_;
}

bool TreeCheck::visit(PickleNode& node, uint32_t level) {
  if (node.weight_ == kBeingVisited) {
    error_ = "a value contains itself";
    return false;
  }
  if (node.weight_ == 0) {
    node.weight_ = kBeingVisited;
    uint64_t weight = 1;
    uint32_t depth = 0;
    for (const PickleNode* child : node.children_) {
      if (level < limits_.max_depth && !visit(const_cast<PickleNode&>(*child), level + 1)) {
        return false;
      }
      // Both are bounded before the sum, which therefore cannot overflow.
      weight += std::min(child->weight_, limits_.max_nodes);
      depth = std::max(depth, child->depth_);
      if (weight > limits_.max_nodes) break;
    }
    if (level == limits_.max_depth && !node.children_.empty()) depth = limits_.max_depth;
    node.weight_ = weight;
    node.depth_ = depth + 1;
  }
  if (node.weight_ > limits_.max_nodes) {
    error_ = fmt::format("more than {} values", limits_.max_nodes);
  } else if (level - 1 + node.depth_ > limits_.max_depth) {
    error_ = fmt::format("values are nested more than {} deep", limits_.max_depth);
  }
  return error_.empty();
}

}  // namespace shardloom::checkpoint::dcp
