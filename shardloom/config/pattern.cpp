#include "shardloom/config/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::config {
namespace {

struct Range {
  int64_t first = 0;
  int64_t last = 0;
};

// The text of one pair of braces.
struct IndexSet {
  std::string text;  // "{0-3}"
  bool any = false;
  std::vector<Range> ranges;

  bool contains(int64_t index) const {
    return any || std::any_of(ranges.begin(), ranges.end(),
                              [&](const Range& r) { return r.first <= index && index <= r.last; });
  }
};

// literals[0] sets[0] literals[1] sets[1] ... literals[n].
struct Pattern {
  std::vector<std::string> literals;
  std::vector<IndexSet> sets;
};

struct Hit {
  std::vector<int64_t> indices;
  std::string module;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int64_t parse_index(std::string_view text) {
  if (text.starts_with('-')) throw ConfigError("a negative index in {{{}}}", text);
  int64_t index = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), index);
  const bool whole =
      !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
  if (!whole)
    throw ConfigError("\"{}\" in braces is not an index (use {{*}}, {{a-b}}, {{1,3,5}} or {{7}})",
                      text);
  if (text.size() > 1 && text[0] == '0') throw ConfigError("index {} has a leading zero", text);
  return index;
}

Range parse_range(std::string_view text) {
  const size_t dash = text.find('-', 1);
  if (text.empty() || dash == std::string_view::npos) {
    const int64_t index = parse_index(text);
    return {index, index};
  }
  const Range range{parse_index(trim(text.substr(0, dash))),
                    parse_index(trim(text.substr(dash + 1)))};
  if (range.first > range.last) throw ConfigError("the range {{{}}} is empty", text);
  return range;
}

IndexSet parse_set(std::string_view body) {
  IndexSet set;
  set.text = fmt::format("{{{}}}", body);
  body = trim(body);
  if (body.empty()) throw ConfigError("empty braces (use {{*}} for every index)");
  if (body == "*") {
    set.any = true;
    return set;
  }
  for (const std::string& part : split(body, ',')) set.ranges.push_back(parse_range(trim(part)));
  return set;
}

Pattern parse_pattern(std::string_view text) {
  if (trim(text).empty()) throw ConfigError("an empty pattern");
  Pattern pattern;
  pattern.literals.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{') {
      const size_t end = text.find('}', i);
      if (end == std::string_view::npos) throw ConfigError("an unclosed brace");
      if (i > 0 && text[i - 1] == '}')
        throw ConfigError("two pairs of braces without text between them");
      pattern.sets.push_back(parse_set(text.substr(i + 1, end - i - 1)));
      pattern.literals.emplace_back();
      i = end;
    } else if (c == '}') {
      throw ConfigError("a closing brace without an opening one");
    } else if (c == '*' || c == '?') {
      throw ConfigError("a bare {} is not part of the grammar (use {{*}} for an index)", c);
    } else {
      pattern.literals.back() += c;
    }
  }
  return pattern;
}

// The indices that `name` has at the braces, if its literal parts are those of the pattern.
std::optional<std::vector<int64_t>> indices_of(const Pattern& pattern, std::string_view name) {
  std::vector<int64_t> indices;
  for (size_t i = 0; i < pattern.literals.size(); ++i) {
    if (!name.starts_with(pattern.literals[i])) return std::nullopt;
    name.remove_prefix(pattern.literals[i].size());
    if (i == pattern.sets.size()) break;
    size_t digits = 0;
    while (digits < name.size() && is_digit(name[digits])) ++digits;
    int64_t index = 0;
    const auto result = std::from_chars(name.data(), name.data() + digits, index);
    if (digits == 0 || result.ec != std::errc()) return std::nullopt;
    indices.push_back(index);
    name.remove_prefix(digits);
  }
  if (!name.empty()) return std::nullopt;
  return indices;
}

// "layers.3.mlp" and "layers.{0-3}.mlp" both become "layers.{*}.mlp".
std::string generalised(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') {
      const size_t end = text.find('}', i);
      out += "{*}";
      i = end;
    } else if (is_digit(text[i]) && i > 0 && text[i - 1] == '.') {
      out += "{*}";
      while (i + 1 < text.size() && is_digit(text[i + 1])) ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string no_match_message(const std::string& pattern, const std::vector<std::string>& names) {
  std::set<std::string> forms;
  for (const std::string& name : names) forms.insert(generalised(name));
  const std::string form = generalised(pattern);
  // "lm_head" for "language_model.lm_head": names are whole.
  for (const std::string& whole : forms) {
    if (whole.ends_with("." + form))
      return fmt::format("matches no module (did you mean {}?)", whole);
  }
  return "matches no module" + did_you_mean(form, {forms.begin(), forms.end()});
}

// "0-11" or "0, 2, 4".
std::string index_text(const std::set<int64_t>& indices) {
  std::vector<std::string> parts;
  for (auto it = indices.begin(); it != indices.end();) {
    const int64_t first = *it;
    int64_t last = first;
    while (++it != indices.end() && *it == last + 1) last = *it;
    parts.push_back(first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
  }
  return join(parts, ", ");
}

// An index that the pattern names but no module has.
std::string missing_index_message(const Pattern& pattern,
                                  const std::vector<Hit>& hits,
                                  const std::vector<std::vector<int64_t>>& existing) {
  for (size_t position = 0; position < pattern.sets.size(); ++position) {
    std::set<int64_t> hit_indices;
    std::set<int64_t> all_indices;
    for (const Hit& hit : hits) hit_indices.insert(hit.indices[position]);
    for (const auto& indices : existing) all_indices.insert(indices[position]);
    for (const Range& range : pattern.sets[position].ranges) {
      int64_t index = range.first;
      while (index <= range.last && hit_indices.contains(index)) ++index;
      if (index > range.last) continue;
      return fmt::format("index {} of {} does not exist (the model has {})", index,
                         pattern.sets[position].text, index_text(all_indices));
    }
  }
  return "";
}

PatternMatch match_one(const std::string& text, const std::vector<std::string>& names) {
  const Pattern pattern = parse_pattern(text);
  std::vector<Hit> hits;
  std::vector<std::vector<int64_t>> existing;
  for (const std::string& name : names) {
    auto indices = indices_of(pattern, name);
    if (!indices) continue;
    existing.push_back(*indices);
    bool in = true;
    for (size_t i = 0; i < indices->size(); ++i) in = in && pattern.sets[i].contains((*indices)[i]);
    if (in) hits.push_back({std::move(*indices), name});
  }
  if (existing.empty()) throw ConfigError("{}", no_match_message(text, names));
  const std::string missing = missing_index_message(pattern, hits, existing);
  if (!missing.empty()) throw ConfigError("{}", missing);
  std::stable_sort(hits.begin(), hits.end(),
                   [](const Hit& a, const Hit& b) { return a.indices < b.indices; });
  PatternMatch match{text, {}};
  for (Hit& hit : hits) match.modules.push_back(std::move(hit.module));
  return match;
}

bool is_inside(const std::string& child, const std::string& parent) {
  return child.size() > parent.size() && child.starts_with(parent) && child[parent.size()] == '.';
}

}  // namespace

std::string pattern_fault(const std::string& pattern) {
  try {
    parse_pattern(pattern);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::vector<PatternMatch> match_patterns(const std::vector<std::string>& patterns,
                                         const std::vector<std::string>& names,
                                         const std::string& key) {
  std::vector<PatternMatch> matches;
  std::vector<std::string> faults;
  for (const std::string& pattern : patterns) {
    try {
      matches.push_back(match_one(pattern, names));
    } catch (const ConfigError& error) {
      faults.push_back(fmt::format("{}: pattern \"{}\": {}", key, pattern, error.what()));
    }
  }
  if (!faults.empty()) throw ConfigError("{}", join(faults, "\n"));
  return matches;
}

std::vector<std::string> match_modules(const std::vector<std::string>& patterns,
                                       const std::vector<std::string>& names,
                                       const std::string& key) {
  std::vector<std::string> modules;
  std::set<std::string> seen;
  for (const PatternMatch& match : match_patterns(patterns, names, key)) {
    for (const std::string& module : match.modules) {
      if (seen.insert(module).second) modules.push_back(module);
    }
  }
  return modules;
}

void check_not_nested(const std::vector<std::string>& modules, const std::string& key) {
  for (const std::string& child : modules) {
    for (const std::string& parent : modules) {
      if (!is_inside(child, parent)) continue;
      throw ConfigError("{}: {} lies inside {}, which is listed too; name one of them", key, child,
                        parent);
    }
  }
}

std::vector<std::string> children_first(std::vector<std::string> modules) {
  std::vector<std::string> ordered;
  while (!modules.empty()) {
    const auto next = std::find_if(modules.begin(), modules.end(), [&](const std::string& parent) {
      return std::none_of(modules.begin(), modules.end(),
                          [&](const std::string& child) { return is_inside(child, parent); });
    });
    ordered.push_back(std::move(*next));
    modules.erase(next);
  }
  return ordered;
}

std::optional<std::string> order_warning(const std::vector<std::string>& modules,
                                         const std::vector<std::string>& execution,
                                         const std::string& key) {
  std::map<std::string, size_t> position;
  for (size_t i = 0; i < execution.size(); ++i) position.emplace(execution[i], i);
  const std::string* last = nullptr;
  for (const std::string& module : modules) {
    const auto it = position.find(module);
    if (it == position.end()) continue;
    if (last != nullptr && it->second < position[*last]) {
      return fmt::format(
          "{}: {} runs before {}, but stands after it; prefetch follows the written order", key,
          module, *last);
    }
    last = &module;
  }
  return std::nullopt;
}

}  // namespace shardloom::config
