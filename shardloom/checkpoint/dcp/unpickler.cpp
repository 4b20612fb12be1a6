#include "shardloom/checkpoint/dcp/unpickler.h"

#include <map>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/dcp/pickle_input.h"
#include "shardloom/checkpoint/dcp/tree_check.h"

namespace shardloom::checkpoint::dcp {

class Unpickler {
 public:
  Unpickler(std::string_view bytes, const std::string& place, const PickleLimits& limits)
      : tree_(bytes), input_(*tree_.source_, place), limits_(limits) {}

  PickleTree run();

 private:
  using Kind = PickleNode::Kind;

  [[noreturn]] void fail(const std::string& cause) const { input_.fail(cause); }

  bool step_scalar();
  bool step_container();
  bool step_call();
  bool step_memo();

  // Nodes and the stack.
  PickleNode* make(Kind kind);
  void push(PickleNode* node) { stack_.push_back(node); }
  void push_integer(int64_t value);
  void push_text(Kind kind, std::string_view text);
  void push_tuple(std::vector<const PickleNode*> children);
  void push_object(PickleNode* type, PickleNode* arguments);
  void push_global(std::string_view module, std::string_view name);
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleNode* pop();
  PickleNode* top(Kind kind, const char* name);
  std::vector<const PickleNode*> pop_last(size_t count);
  std::vector<const PickleNode*> pop_to_mark();

  // Opcodes with more to them than a line.
  void append(const std::vector<const PickleNode*>& items);
  void set_items(const std::vector<const PickleNode*>& items);
  void reduce();
  void new_object();
  void build();
  void encode_latin1(const PickleNode& arguments);
  void put(uint64_t index);
  void get(uint64_t index);

  PickleTree tree_;
  PickleInput input_;
  const PickleLimits& limits_;
  std::vector<PickleNode*> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleNode*> memo_;
  std::map<std::string, PickleNode*, std::less<>> globals_;
};

PickleTree Unpickler::run() {
  while (input_.next_opcode() != Opcode::kStop) {
    if (!step_scalar() && !step_container() && !step_call() && !step_memo()) {
      fail("this opcode is not read here");
    }
  }
  if (stack_.size() != 1 || !marks_.empty()) {
    fail(fmt::format("{} values and {} marks are left, not one value", stack_.size(),
                     marks_.size()));
  }
  if (input_.left() != 0) fail(fmt::format("{} bytes follow the end", input_.left()));
  const std::string error = TreeCheck(limits_).check(*stack_[0]);
  if (!error.empty()) fail(error);
  tree_.root_ = stack_[0];
  return std::move(tree_);
}

bool Unpickler::step_scalar() {
  switch (input_.opcode()) {
    case Opcode::kNone:
      push(make(Kind::kNone));
      return true;
    case Opcode::kNewTrue:
    case Opcode::kNewFalse:
      push(make(Kind::kBool));
      stack_.back()->number_.integer = input_.opcode() == Opcode::kNewTrue ? 1 : 0;
      return true;
    case Opcode::kBinInt:
      push_integer(input_.take_signed(4));
      return true;
    case Opcode::kBinInt1:
      push_integer(static_cast<int64_t>(input_.take_unsigned(1)));
      return true;
    case Opcode::kBinInt2:
      push_integer(static_cast<int64_t>(input_.take_unsigned(2)));
      return true;
    case Opcode::kLong1:
      push_integer(input_.take_signed(input_.take_unsigned(1)));
      return true;
    case Opcode::kBinFloat:
      push(make(Kind::kFloat));
      stack_.back()->number_.real = input_.take_real();
      return true;
    case Opcode::kShortBinUnicode:
      push_text(Kind::kText, input_.take_text(1));
      return true;
    case Opcode::kBinUnicode:
      push_text(Kind::kText, input_.take_text(4));
      return true;
    case Opcode::kBinUnicode8:
      push_text(Kind::kText, input_.take_text(8));
      return true;
    case Opcode::kShortBinBytes:
      push_text(Kind::kBytes, input_.take(input_.take_unsigned(1)));
      return true;
    case Opcode::kBinBytes:
      push_text(Kind::kBytes, input_.take(input_.take_unsigned(4)));
      return true;
    case Opcode::kBinBytes8:
      push_text(Kind::kBytes, input_.take(input_.take_unsigned(8)));
      return true;
    default:
      return false;
  }
}

bool Unpickler::step_container() {
  switch (input_.opcode()) {
    case Opcode::kMark:
      marks_.push_back(stack_.size());
      return true;
    case Opcode::kEmptyList:
      push(make(Kind::kList));
      return true;
    case Opcode::kEmptyDict:
      push(make(Kind::kDict));
      return true;
    case Opcode::kEmptyTuple:
      push_tuple({});
      return true;
    case Opcode::kTuple1:
      push_tuple(pop_last(1));
      return true;
    case Opcode::kTuple2:
      push_tuple(pop_last(2));
      return true;
    case Opcode::kTuple3:
      push_tuple(pop_last(3));
      return true;
    case Opcode::kTuple:
      push_tuple(pop_to_mark());
      return true;
    case Opcode::kAppend:
      append(pop_last(1));
      return true;
    case Opcode::kAppends:
      append(pop_to_mark());
      return true;
    case Opcode::kSetItem:
      set_items(pop_last(2));
      return true;
    case Opcode::kSetItems:
      set_items(pop_to_mark());
      return true;
    default:
      return false;
  }
}

bool Unpickler::step_call() {
  switch (input_.opcode()) {
    case Opcode::kGlobal: {
      const std::string_view module = input_.take_line();
      push_global(module, input_.take_line());
      return true;
    }
    case Opcode::kStackGlobal: {
      const PickleNode* name = top(Kind::kText, "a text");
      stack_.pop_back();
      const PickleNode* module = top(Kind::kText, "a text");
      stack_.pop_back();
      push_global(module->text(), name->text());
      return true;
    }
    case Opcode::kReduce:
      reduce();
      return true;
    case Opcode::kNewObj:
      new_object();
      return true;
    case Opcode::kBuild:
      build();
      return true;
    case Opcode::kBinPersId: {
      std::vector<const PickleNode*> id = pop_last(1);
      push(make(Kind::kPersistentId));
      stack_.back()->children_ = std::move(id);
      return true;
    }
    default:
      return false;
  }
}

bool Unpickler::step_memo() {
  switch (input_.opcode()) {
    case Opcode::kProto:
      input_.read_protocol();
      return true;
    case Opcode::kFrame:
      input_.read_frame();
      return true;
    case Opcode::kMemoize:
      put(memo_.size());
      return true;
    case Opcode::kBinPut:
      put(input_.take_unsigned(1));
      return true;
    case Opcode::kLongBinPut:
      put(input_.take_unsigned(4));
      return true;
    case Opcode::kBinGet:
      get(input_.take_unsigned(1));
      return true;
    case Opcode::kLongBinGet:
      get(input_.take_unsigned(4));
      return true;
    default:
      return false;
  }
}

PickleNode* Unpickler::make(Kind kind) {
  if (tree_.nodes_.size() >= limits_.max_nodes) {
    fail(fmt::format("more than {} values", limits_.max_nodes));
  }
  PickleNode& node = tree_.nodes_.emplace_back();
  node.kind_ = kind;
  return &node;
}

void Unpickler::push_integer(int64_t value) {
  push(make(Kind::kInt));
  stack_.back()->number_.integer = value;
}

void Unpickler::push_text(Kind kind, std::string_view text) {
  push(make(kind));
  stack_.back()->text_ = text;
}

void Unpickler::push_tuple(std::vector<const PickleNode*> children) {
  push(make(Kind::kTuple));
  stack_.back()->children_ = std::move(children);
}

void Unpickler::push_object(PickleNode* type, PickleNode* arguments) {
  push(make(Kind::kObject));
  stack_.back()->children_ = {type, arguments};
}

void Unpickler::push_global(std::string_view module, std::string_view name) {
  const std::string text = fmt::format("{} {}", module, name);
  auto found = globals_.find(text);
  if (found == globals_.end()) {
    if (!is_known_global(text)) {
      fail(fmt::format("the global {}.{} is not allowed in a checkpoint", module, name));
    }
    found = globals_.emplace(text, make(Kind::kGlobal)).first;
    found->second->text_ = tree_.decoded_.emplace_back(text);
  }
  push(found->second);
}

PickleNode* Unpickler::pop() {
  if (stack_.size() <= floor()) fail("there is no value to take");
  PickleNode* node = stack_.back();
  stack_.pop_back();
  return node;
}

PickleNode* Unpickler::top(Kind kind, const char* name) {
  if (stack_.size() <= floor()) fail("there is no value to work on");
  if (!stack_.back()->is(kind)) {
    fail(fmt::format("wants {}, found {}", name, describe(*stack_.back())));
  }
  return stack_.back();
}

std::vector<const PickleNode*> Unpickler::pop_last(size_t count) {
  if (stack_.size() - floor() < count) fail(fmt::format("takes {} values", count));
  std::vector<const PickleNode*> nodes(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return nodes;
}

std::vector<const PickleNode*> Unpickler::pop_to_mark() {
  if (marks_.empty()) fail("there is no mark");
  std::vector<const PickleNode*> nodes = pop_last(stack_.size() - marks_.back());
  marks_.pop_back();
  return nodes;
}

void Unpickler::append(const std::vector<const PickleNode*>& items) {
  auto& children = top(Kind::kList, "a list")->children_;
  children.insert(children.end(), items.begin(), items.end());
}

void Unpickler::set_items(const std::vector<const PickleNode*>& items) {
  if (items.size() % 2 != 0) fail("a key has no value");
  auto& children = top(Kind::kDict, "a dict")->children_;
  children.insert(children.end(), items.begin(), items.end());
}

void Unpickler::reduce() {
  PickleNode* arguments = top(Kind::kTuple, "a tuple of arguments");
  stack_.pop_back();
  PickleNode* function = top(Kind::kGlobal, "a function");
  stack_.pop_back();
  const auto& children = arguments->children_;
  if (function->is_global("torch Size") && children.size() == 1 && children[0]->is(Kind::kTuple)) {
    push_tuple(children[0]->children_);
  } else if (function->is_global("collections OrderedDict") && children.empty()) {
    push(make(Kind::kDict));
  } else if (function->is_global("_codecs encode")) {
    encode_latin1(*arguments);
  } else {
    push_object(function, arguments);
  }
}

void Unpickler::encode_latin1(const PickleNode& arguments) {
  const auto& children = arguments.children_;
  if (children.size() != 2 || !children[0]->is(Kind::kText) || !children[1]->is(Kind::kText) ||
      children[1]->text() != "latin1") {
    fail("_codecs.encode is only read as (text, 'latin1')");
  }
  // U+0080..U+00FF are two bytes of UTF-8, the first of them 0xC2 or 0xC3.
  std::string bytes;
  const std::string_view text = children[0]->text();
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<uint8_t>(text[i]);
    if (byte > 0xC3) fail("a letter outside latin1");
    if (byte >= 0x80) {
      ++i;
      byte = static_cast<uint8_t>((byte & 0x03) << 6 | (static_cast<uint8_t>(text[i]) & 0x3F));
    }
    bytes += static_cast<char>(byte);
  }
  push_text(Kind::kBytes, tree_.decoded_.emplace_back(std::move(bytes)));
}

void Unpickler::new_object() {
  PickleNode* arguments = top(Kind::kTuple, "a tuple of arguments");
  stack_.pop_back();
  PickleNode* type = top(Kind::kGlobal, "a class");
  stack_.pop_back();
  push_object(type, arguments);
}

void Unpickler::build() {
  const PickleNode* state = pop();
  PickleNode* object = top(Kind::kObject, "an object");
  if (object->state() != nullptr) fail("the object has a state already");
  object->children_.push_back(state);
}

void Unpickler::put(uint64_t index) {
  if (stack_.size() <= floor()) fail("there is no value to remember");
  // Picklers count without gaps; a gap would let a few bytes ask for a huge memo.
  if (index > memo_.size()) {
    fail(fmt::format("memo {} comes after memo {}", index, memo_.size()));
  }
  if (index == memo_.size()) {
    memo_.push_back(stack_.back());
  } else {
    memo_[index] = stack_.back();
  }
}

void Unpickler::get(uint64_t index) {
  if (index >= memo_.size()) fail(fmt::format("there is no memo {}", index));
  push(memo_[index]);
}

PickleTree unpickle(std::string_view bytes, const std::string& place, const PickleLimits& limits) {
  if (bytes.empty()) throw CheckpointError("{}: the pickle is empty", place);
  if (bytes.size() > limits.max_bytes) {
    throw CheckpointError("{}: a pickle of {}, over the limit of {}", place,
                          human_bytes(bytes.size()), human_bytes(limits.max_bytes));
  }
  if (static_cast<Opcode>(static_cast<uint8_t>(bytes[0])) != Opcode::kProto) {
    throw CheckpointError("{}: not a pickle of protocol 2 to 5 (it begins with byte 0x{:02x})",
                          place, static_cast<uint8_t>(bytes[0]));
  }
  return Unpickler(bytes, place, limits).run();
}

}  // namespace shardloom::checkpoint::dcp
