#include "shardloom/config/schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardloom/base/strings.h"
#include "shardloom/config/scalar.h"
#include "shardloom/config/suggest.h"

namespace shardloom::config {
namespace {

std::string number_text(double value) { return fmt::format("{}", value); }

// A value that is written as one scalar.
template <typename T>
class ScalarCodec : public Codec {
 public:
  using Read = T (*)(const YamlNode&);
  using Write = std::string (*)(const T&);

  ScalarCodec(const char* type_name, Read read, Write write, Rule rule)
      : type_name_(type_name), read_(read), write_(write), rule_(std::move(rule)) {}

  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const override {
    context.sources[path] = node.place;
    if (node.kind == YamlNode::Kind::kNull) {
      context.problems.error(node.place, fmt::format("{} is empty; give a value{}", path,
                                                     required() ? "" : " or remove the line"));
      return;
    }
    try {
      T value = read_(node);
      const std::string fault = check(value);
      if (!fault.empty()) throw BadValue(fault);
      *static_cast<T*>(target) = std::move(value);
    } catch (const BadValue& error) {
      context.problems.error(node.place, fmt::format("{}: {}", path, error.what()));
    }
  }
  std::string dump(const void* target) const override {
    return write_(*static_cast<const T*>(target));
  }
  std::string type_name() const override {
    const std::string rule = rule_.describe();
    return rule.empty() ? type_name_ : fmt::format("{} {}", type_name_, rule);
  }
  bool required() const override { return rule_.required; }

 private:
  std::string check(const T& value) const {
    if constexpr (std::is_same_v<T, std::string>) {
      return rule_.fault(value);
    } else {
      return rule_.fault(static_cast<double>(value));
    }
  }

  std::string type_name_;
  Read read_;
  Write write_;
  Rule rule_;
};

class AutoIntCodec : public Codec {
 public:
  explicit AutoIntCodec(Rule rule) : inner_(int_codec(std::move(rule))) {}

  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const override {
    auto& value = *static_cast<std::optional<int64_t>*>(target);
    if (node.kind == YamlNode::Kind::kScalar && node.text == "auto") {
      value.reset();
      context.sources[path] = node.place;
      return;
    }
    int64_t number = 0;
    inner_->read(node, path, &number, context);
    value = number;
  }
  std::string dump(const void* target) const override {
    const auto& value = *static_cast<const std::optional<int64_t>*>(target);
    return value ? inner_->dump(&*value) : "auto";
  }
  std::string type_name() const override { return "\"auto\" or " + inner_->type_name(); }

 private:
  std::shared_ptr<const Codec> inner_;
};

class PathsCodec : public Codec {
 public:
  explicit PathsCodec(Rule rule) : inner_(text_codec(rule)), rule_(std::move(rule)) {}

  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const override {
    auto& paths = *static_cast<std::vector<std::string>*>(target);
    std::vector<std::string> found;
    if (node.kind == YamlNode::Kind::kSequence) {
      found.resize(node.items.size());
      for (size_t i = 0; i < found.size(); ++i) {
        inner_->read(node.items[i], fmt::format("{}[{}]", path, i), &found[i], context);
      }
    } else {
      std::string text;
      inner_->read(node, path, &text, context);
      if (node.kind != YamlNode::Kind::kScalar || text.empty()) return;
      for (const std::string& part : split(text, ',')) found.emplace_back(trim(part));
    }
    const bool blank =
        std::any_of(found.begin(), found.end(), [](const auto& file) { return file.empty(); });
    if (found.empty() || (blank && node.kind == YamlNode::Kind::kScalar)) {
      context.problems.error(
          node.place,
          fmt::format("{} {}", path, blank ? "has an empty path between its commas" : "is empty"));
    }
    context.sources[path] = node.place;
    paths = std::move(found);
  }
  std::string dump(const void* target) const override {
    std::vector<std::string> parts;
    for (const std::string& path : *static_cast<const std::vector<std::string>*>(target)) {
      parts.push_back(write_text(path));
    }
    return fmt::format("[{}]", join(parts, ", "));
  }
  std::string type_name() const override { return "path or list of paths"; }
  bool required() const override { return rule_.required; }

 private:
  std::shared_ptr<const Codec> inner_;
  Rule rule_;
};

}  // namespace

std::string Rule::fault(double value) const {
  const bool too_small = min && (above_min ? value <= *min : value < *min);
  const bool too_large = max && (below_max ? value >= *max : value > *max);
  return too_small || too_large ? fmt::format("must be {}, got {}", describe(), number_text(value))
                                : "";
}

std::string Rule::fault(const std::string& value) const {
  if (non_empty && value.empty()) return "must not be empty";
  if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end())
    return "";
  const auto hint = hints.find(value);
  return fmt::format(
      "\"{}\" is not one of {}{}", value, join(choices, ", "),
      hint != hints.end() ? fmt::format(" ({})", hint->second) : did_you_mean(value, choices));
}

std::string Rule::describe() const {
  if (!choices.empty()) return "one of " + join(choices, ", ");
  std::string text;
  if (min) text = fmt::format("{} {}", above_min ? ">" : ">=", number_text(*min));
  if (min && max) text += " and ";
  if (max) text += fmt::format("{} {}", below_max ? "<" : "<=", number_text(*max));
  return text;
}

Rule at_least(double min) {
  Rule rule;
  rule.min = min;
  return rule;
}

Rule above(double min) {
  Rule rule = at_least(min);
  rule.above_min = true;
  return rule;
}

Rule between(double min, double max) {
  Rule rule = at_least(min);
  rule.max = max;
  return rule;
}

Rule between_half_open(double min, double max) {
  Rule rule = between(min, max);
  rule.below_max = true;
  return rule;
}

Rule one_of(std::vector<std::string> choices, std::map<std::string, std::string> hints) {
  Rule rule;
  rule.choices = std::move(choices);
  rule.hints = std::move(hints);
  return rule;
}

Rule non_empty() {
  Rule rule;
  rule.non_empty = true;
  return rule;
}

Rule required() {
  Rule rule = non_empty();
  rule.required = true;
  return rule;
}

std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::shared_ptr<const Codec> bool_codec() {
  return std::make_shared<ScalarCodec<bool>>(
      "true or false", read_bool, [](const bool& value) { return write_bool(value); }, Rule{});
}

std::shared_ptr<const Codec> int_codec(Rule rule) {
  return std::make_shared<ScalarCodec<int64_t>>(
      "whole number", read_int, [](const int64_t& value) { return std::to_string(value); },
      std::move(rule));
}

std::shared_ptr<const Codec> float_codec(Rule rule) {
  return std::make_shared<ScalarCodec<double>>(
      "number", read_float, [](const double& value) { return write_float(value); },
      std::move(rule));
}

std::shared_ptr<const Codec> text_codec(Rule rule) {
  return std::make_shared<ScalarCodec<std::string>>("text", read_text, write_text, std::move(rule));
}

std::shared_ptr<const Codec> auto_int_codec(Rule rule) {
  return std::make_shared<AutoIntCodec>(std::move(rule));
}
std::shared_ptr<const Codec> paths_codec(Rule rule) {
  return std::make_shared<PathsCodec>(std::move(rule));
}

const Field* Section::find(std::string_view name) const {
  const auto it = std::find_if(fields_.begin(), fields_.end(),
                               [&](const Field& field) { return field.name == name; });
  return it == fields_.end() ? nullptr : &*it;
}

std::vector<std::string> Section::names() const {
  std::vector<std::string> names;
  for (const Field& field : fields_) names.push_back(field.name);
  return names;
}

void Section::read(const YamlNode& node,
                   const std::string& path,
                   void* target,
                   ReadContext& context) const {
  if (node.kind != YamlNode::Kind::kMap && node.kind != YamlNode::Kind::kNull) {
    context.problems.error(node.place,
                           fmt::format("{}: expected a section (key: value lines), got {}",
                                       path.empty() ? "configuration" : path, node.describe()));
    return;
  }
  for (const YamlEntry& entry : node.entries) {
    // As in other tools, x-... at the top level holds anchors and nothing else.
    const bool ignored = path.empty() && entry.key.starts_with("x-");
    if (!ignored && find(entry.key) == nullptr) {
      context.problems.error(entry.key_place, unknown_key_message(*this, path, entry));
    }
  }
  for (const Field& field : fields_) {
    const std::string field_path = join_path(path, field.name);
    const YamlEntry* entry = node.find(field.name);
    if (entry != nullptr) {
      if (field.codec->section() != nullptr) context.sources[field_path] = entry->key_place;
      field.codec->read(entry->value, field_path, field.get(target), context);
    } else if (field.codec->required()) {
      context.problems.error(node.place, field_path + " is missing");
    } else if (field.codec->section_target(field.get(target)) != nullptr) {
      YamlNode absent;
      absent.place = node.place;
      field.codec->read(absent, field_path, field.get(target), context);
    }
  }
}

}  // namespace shardloom::config
