#include "shardloom/checkpoint/dcp/pickle_tree.h"

#include <fmt/format.h>

namespace shardloom::checkpoint::dcp {

const PickleNode* PickleNode::find(std::string_view key) const {
  if (kind_ != Kind::kDict) return nullptr;
  // The last one wins, as in a dict.
  for (size_t i = children_.size(); i >= 2; i -= 2) {
    const PickleNode& name = *children_[i - 2];
    if (name.is(Kind::kText) && name.text() == key) return children_[i - 1];
  }
  return nullptr;
}

std::optional<std::vector<int64_t>> int_list(const PickleNode& node) {
  if (!node.is(PickleNode::Kind::kTuple) && !node.is(PickleNode::Kind::kList)) return std::nullopt;
  std::vector<int64_t> values;
  values.reserve(node.children().size());
  for (const PickleNode* child : node.children()) {
    if (!child->is(PickleNode::Kind::kInt)) return std::nullopt;
    values.push_back(child->integer());
  }
  return values;
}

std::string describe(const PickleNode& node) {
  constexpr size_t kShown = 60;
  switch (node.kind()) {
    case PickleNode::Kind::kNone:
      return "None";
    case PickleNode::Kind::kBool:
      return node.boolean() ? "True" : "False";
    case PickleNode::Kind::kInt:
      return fmt::format("the int {}", node.integer());
    case PickleNode::Kind::kFloat:
      return fmt::format("the float {}", node.real());
    case PickleNode::Kind::kText:
      return fmt::format("the text \"{}\"", node.text().substr(0, kShown));
    case PickleNode::Kind::kBytes:
      return fmt::format("{} bytes", node.text().size());
    case PickleNode::Kind::kList:
      return fmt::format("a list of {}", node.children().size());
    case PickleNode::Kind::kTuple:
      return fmt::format("a tuple of {}", node.children().size());
    case PickleNode::Kind::kDict:
      return fmt::format("a dict of {}", node.children().size() / 2);
    case PickleNode::Kind::kGlobal:
      return fmt::format("the global {}", node.text());
    case PickleNode::Kind::kObject:
      return fmt::format("an object of {}", node.children()[0]->text());
    case PickleNode::Kind::kPersistentId:
      return "a persistent id";
  }
  return "nothing known";
}

}  // namespace shardloom::checkpoint::dcp
