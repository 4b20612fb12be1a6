#include "shardloom/config/override.h"

#include <fmt/format.h>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::config {
namespace {

using Kind = YamlNode::Kind;

bool is_null_text(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

YamlNode scalar(std::string_view text, const Place& place) {
  YamlNode node;
  node.place = place;
  if (is_null_text(text)) return node;
  node.kind = Kind::kScalar;
  node.text = text;
  return node;
}

// "[a, layers.{1,3}]": cut at commas outside braces, since an unquoted brace has another meaning in
// YAML.
YamlNode pattern_list(std::string_view body, const Place& place) {
  YamlNode list;
  list.kind = Kind::kSequence;
  list.place = place;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= body.size(); ++i) {
    if (i < body.size() && body[i] == '{') ++depth;
    if (i < body.size() && body[i] == '}') --depth;
    if (i < body.size() && (body[i] != ',' || depth > 0)) continue;
    list.items.push_back(scalar(trim(body.substr(start, i - start)), place));
    start = i + 1;
  }
  return list;
}

void set_place(YamlNode& node, const Place& place) {
  node.place = place;
  for (YamlNode& item : node.items) set_place(item, place);
  for (YamlEntry& entry : node.entries) {
    entry.key_place = place;
    set_place(entry.value, place);
  }
}

YamlNode parse_value(std::string_view text, const Place& place, Problems& problems) {
  text = trim(text);
  const bool plain_list = text.starts_with('[') && text.ends_with(']') &&
                          text.find('{') != std::string_view::npos &&
                          text.find_first_of("\"':") == std::string_view::npos;
  if (plain_list) return pattern_list(text.substr(1, text.size() - 2), place);
  if (text.empty() || std::string_view("[{\"'").find(text[0]) == std::string_view::npos)
    return scalar(text, place);
  YamlNode node = parse_yaml(text, *place.origin, problems);
  set_place(node, place);
  return node;
}

// The map entry at the dotted path, made where it is absent; null when something on the way is not
// a map.
YamlEntry* entry_at(YamlNode& root, const std::string& path, const Place& place) {
  YamlNode* map = &root;
  YamlEntry* entry = nullptr;
  for (const std::string& key : split(path, '.')) {
    if (map->kind == Kind::kNull) map->kind = Kind::kMap;
    if (map->kind != Kind::kMap) return nullptr;
    entry = map->find(key);
    if (entry == nullptr) {
      YamlEntry added;
      added.key = key;
      added.key_place = place;
      added.value.place = place;
      map->entries.push_back(std::move(added));
      entry = &map->entries.back();
    }
    map = &entry->value;
  }
  return entry;
}

// Two ways to say one thing; a file may have one of them.
constexpr std::pair<const char*, const char*> kAlternatives[] = {
    {"train_iters", "train_epochs"}, {"lr_warmup_ratio", "lr_warmup_iters"}};

bool is_overridden(const YamlNode& map, const char* key) {
  const YamlEntry* entry = map.find(key);
  return entry != nullptr && entry->key_place.line == 0 && entry->value.kind != Kind::kNull;
}

void remove(YamlNode& map, const char* key) {
  std::erase_if(map.entries, [key](const YamlEntry& entry) { return entry.key == key; });
}

// An override goes before the file, also where the file says the same by another key.
void drop_overridden_alternatives(YamlNode& root) {
  YamlEntry* training = root.find("training");
  if (training == nullptr) return;
  YamlNode& map = training->value;
  for (const auto& [a, b] : kAlternatives) {
    const bool a_overridden = is_overridden(map, a);
    const bool b_overridden = is_overridden(map, b);
    if (a_overridden && !b_overridden) remove(map, b);
    if (b_overridden && !a_overridden) remove(map, a);
  }
}

void apply_override(YamlNode& root, const std::string& text, Problems& problems) {
  const Place place{std::make_shared<const std::string>("override " + text)};
  const size_t equals = text.find('=');
  const std::string path(trim(std::string_view(text).substr(0, equals)));
  if (equals == std::string::npos || path.empty()) {
    problems.error(place, "expected key=value, as in training.lr=1e-4");
    return;
  }
  if (path.starts_with('-')) {
    problems.error(place, fmt::format("write it without dashes: {}",
                                      text.substr(text.find_first_not_of('-'))));
    return;
  }
  try {
    YamlNode value = parse_value(std::string_view(text).substr(equals + 1), place, problems);
    if (YamlEntry* entry = entry_at(root, path, place)) {
      entry->key_place = place;
      entry->value = std::move(value);
    } else {
      problems.error(place, fmt::format("{} is not inside a section of the file", path));
    }
  } catch (const ConfigError& error) {
    problems.error(place, fmt::format("cannot read the value: {}", error.what()));
  }
}

}  // namespace

void apply_overrides(YamlNode& root,
                     const std::vector<std::string>& overrides,
                     Problems& problems) {
  for (const std::string& text : overrides) apply_override(root, text, problems);
  drop_overridden_alternatives(root);
}

}  // namespace shardloom::config
