// What a pickle holds, as data: nothing in it is ever executed. Classes and functions stay names,
// calls stay (name, arguments). The tree of `unpickle` (unpickler.h).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::checkpoint::dcp {

class PickleNode {
 public:
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,  // UTF-8
    kBytes,
    kList,
    kTuple,         // torch.Size too
    kDict,          // collections.OrderedDict too
    kGlobal,        // text is "module name"
    kObject,        // a call, or an instance with a state
    kPersistentId,  // child 0 is the id; in torch.save archives the storage of a tensor
  };

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_global(std::string_view name) const { return kind_ == Kind::kGlobal && text_ == name; }

  // Only for the kind in the name; the caller has looked at kind().
  bool boolean() const { return number_.integer != 0; }
  int64_t integer() const { return number_.integer; }
  double real() const { return number_.real; }
  std::string_view text() const { return text_; }

  // List, tuple: its elements; dict: key, value, key, value, ...; object: type, arguments (a
  // tuple) and, if it has one, state.
  const std::vector<const PickleNode*>& children() const { return children_; }

  // Object of this class or function.
  bool is_object(std::string_view type) const {
    return kind_ == Kind::kObject && children_[0]->is_global(type);
  }
  const PickleNode& arguments() const { return *children_.at(1); }
  // nullptr when it has none.
  const PickleNode* state() const { return children_.size() > 2 ? children_[2] : nullptr; }

  // Value of a dict's text key; nullptr when there is none.
  const PickleNode* find(std::string_view key) const;

 private:
  friend class PickleTree;
  friend class Unpickler;
  friend class TreeCheck;

  Kind kind_ = Kind::kNone;
  uint32_t depth_ = 0;   // levels below and with this node; TreeCheck fills both
  uint64_t weight_ = 0;  // nodes of the tree below and with it, shared ones counted each time
  union {
    int64_t integer;
    double real;
  } number_ = {.integer = 0};
  std::string_view text_;
  std::vector<const PickleNode*> children_;
};

// "a list", "the int 7", "the global torch.Size": for messages.
std::string describe(const PickleNode& node);

// A tuple or list of ints (torch.Size); nothing for anything else.
std::optional<std::vector<int64_t>> int_list(const PickleNode& node);

// Owns the nodes and the bytes that their texts point into. Nodes may be shared, but there are no
// cycles.
class PickleTree {
 public:
  const PickleNode& root() const { return *root_; }

 private:
  friend class Unpickler;
  explicit PickleTree(std::string_view bytes)
      : source_(std::make_unique<const std::string>(bytes)) {}

  std::unique_ptr<const std::string> source_;
  std::deque<std::string> decoded_;  // texts that are not in the source as they are
  std::deque<PickleNode> nodes_;
  const PickleNode* root_ = nullptr;
};

}  // namespace shardloom::checkpoint::dcp
