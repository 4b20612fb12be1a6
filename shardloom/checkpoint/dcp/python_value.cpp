#include "shardloom/checkpoint/dcp/python_value.h"

#include <fmt/format.h>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint::dcp {
namespace {

std::vector<PythonValue> to_values(const PickleNode& node, const std::string& place) {
  std::vector<PythonValue> values;
  values.reserve(node.children().size());
  for (const PickleNode* child : node.children()) values.push_back(to_python_value(*child, place));
  return values;
}

PythonValue::Dict to_dict(const PickleNode& node, const std::string& place) {
  PythonValue::Dict dict;
  const auto& children = node.children();
  for (size_t i = 0; i + 1 < children.size(); i += 2) {
    dict.items.push_back(
        {to_python_value(*children[i], place), to_python_value(*children[i + 1], place)});
  }
  return dict;
}

std::string quoted(std::string_view text, const char* prefix) {
  std::string result = fmt::format("{}'", prefix);
  for (const char byte : text) {
    if (byte == '\'' || byte == '\\') {
      result += '\\';
      result += byte;
    } else if (static_cast<uint8_t>(byte) < 0x20 || (*prefix != '\0' && (byte & 0x80) != 0)) {
      result += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
    } else {
      result += byte;
    }
  }
  return result + "'";
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string joined(const std::vector<PythonValue>& items) {
  std::vector<std::string> texts;
  for (const PythonValue& item : items) texts.push_back(python_text(item));
  return join(texts, ", ");
}

struct Printer {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return float_text(value); }
  std::string operator()(const std::string& value) const { return quoted(value, ""); }
  std::string operator()(const PythonValue::Bytes& value) const { return quoted(value.data, "b"); }
  std::string operator()(const PythonValue::List& value) const {
    return fmt::format("[{}]", joined(value.items));
  }
  std::string operator()(const PythonValue::Tuple& value) const {
    return fmt::format("({}{})", joined(value.items), value.items.size() == 1 ? "," : "");
  }
  std::string operator()(const PythonValue::Dict& value) const {
    std::vector<std::string> texts;
    for (const auto& [key, item] : value.items) {
      texts.push_back(fmt::format("{}: {}", python_text(key), python_text(item)));
    }
    return fmt::format("{{{}}}", join(texts, ", "));
  }
};

}  // namespace

PythonValue::PythonValue(bool value) : value_(value) {}
PythonValue::PythonValue(int value) : value_(int64_t{value}) {}
PythonValue::PythonValue(int64_t value) : value_(value) {}
PythonValue::PythonValue(double value) : value_(value) {}
PythonValue::PythonValue(const char* value) : value_(std::string(value)) {}
PythonValue::PythonValue(std::string value) : value_(std::move(value)) {}
PythonValue::PythonValue(Bytes value) : value_(std::move(value)) {}
PythonValue::PythonValue(List value) : value_(std::move(value)) {}
PythonValue::PythonValue(Tuple value) : value_(std::move(value)) {}
PythonValue::PythonValue(Dict value) : value_(std::move(value)) {}

PythonValue to_python_value(const PickleNode& node, const std::string& place) {
  switch (node.kind()) {
    case PickleNode::Kind::kNone:
      return {};
    case PickleNode::Kind::kBool:
      return node.boolean();
    case PickleNode::Kind::kInt:
      return node.integer();
    case PickleNode::Kind::kFloat:
      return node.real();
    case PickleNode::Kind::kText:
      return std::string(node.text());
    case PickleNode::Kind::kBytes:
      return PythonValue::Bytes{std::string(node.text())};
    case PickleNode::Kind::kList:
      return PythonValue::List{to_values(node, place)};
    case PickleNode::Kind::kTuple:
      return PythonValue::Tuple{to_values(node, place)};
    case PickleNode::Kind::kDict:
      return to_dict(node, place);
    case PickleNode::Kind::kGlobal:
    case PickleNode::Kind::kObject:
    case PickleNode::Kind::kPersistentId:
      break;
  }
  throw CheckpointError("{}: holds {}, which is no plain value and is not read here", place,
                        describe(node));
}

std::string python_text(const PythonValue& value) { return std::visit(Printer(), value.get()); }

}  // namespace shardloom::checkpoint::dcp
