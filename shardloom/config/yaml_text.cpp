#include "shardloom/config/yaml_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/problems.h"

namespace shardloom::config {
namespace {

std::string_view line_of(std::string_view text, int line) {
  size_t start = 0;
  for (int i = 1; i < line; ++i) {
    const size_t end = text.find('\n', start);
    if (end == std::string_view::npos) return {};
    start = end + 1;
  }
  return text.substr(start, text.find('\n', start) - start);
}

// What yaml-cpp means, for those of its messages that do not say it.
std::string plain_words(const std::string& message) {
  static const std::map<std::string, std::string> words = {
      {"illegal map value", "a colon where no value can stand"},
      {"end of sequence flow not found", "a [ is not closed, or a comma is missing"},
      {"end of map flow not found", "a { is not closed, or a comma is missing"},
      {"end of sequence not found", "this line does not belong to the list above it; indentation?"},
      {"end of map not found", "this line does not belong to the section above it; indentation?"},
      {"bad file", "brackets are nested too deeply"}};
  const auto it = words.find(message);
  return it == words.end() ? message : it->second;
}

// A line without a colon goes on in the next one for YAML, which is where the error shows.
std::string missing_colon_hint(std::string_view text, int line) {
  for (int number = line - 1; number >= 1; --number) {
    const std::string_view source = trim(line_of(text, number));
    if (source.empty() || source.starts_with('#')) continue;
    const bool is_entry = source.find(": ") != std::string_view::npos || source.ends_with(':');
    return is_entry || source.starts_with('-')
               ? ""
               : fmt::format("; line {} has no colon and blank between key and value", number);
  }
  return "";
}

// What most likely went wrong near a syntax error.
std::string syntax_hint(std::string_view text, int line) {
  const std::string_view source = line_of(text, line);
  if (source.find("{*}") != std::string_view::npos) {
    return R"(; an unquoted {*} here is a YAML map with an alias, so quote the pattern: "layers.{*}")";
  }
  if (source.find('{') != std::string_view::npos || source.find('*') != std::string_view::npos) {
    return R"(; text with { } or a leading * must be quoted: "layers.{0-3}")";
  }
  if (source.find("\\") != std::string_view::npos) {
    return "; a backslash inside double quotes starts an escape, single quotes keep it";
  }
  return missing_colon_hint(text, line);
}

void check_bytes(std::string_view text, const std::shared_ptr<const std::string>& origin) {
  const auto position = [&](size_t offset) {
    const std::string_view head = text.substr(0, offset);
    const size_t last_break = head.rfind('\n');
    return Place{
        origin, static_cast<int>(std::count(head.begin(), head.end(), '\n')) + 1,
        static_cast<int>(last_break == std::string_view::npos ? offset : offset - last_break - 1) +
            1};
  };
  const auto bad = find_invalid_utf8(text);
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos && !text.starts_with("\xFF\xFE") &&
      !text.starts_with("\xFE\xFF")) {
    throw ConfigError("{}: a NUL byte; this is not a text file", position(nul).str());
  }
  if (bad) {
    throw ConfigError("{}: not UTF-8 (byte 0x{:02x}); save the file as UTF-8", position(*bad).str(),
                      static_cast<unsigned char>(text[*bad]));
  }
  if (text.find('\r') != std::string_view::npos && text.find('\n') == std::string_view::npos) {
    throw ConfigError("{}: the lines end in CR alone; save the file with LF or CRLF", *origin);
  }
}

// Tabs in the indentation of a value are errors. In front of a comment, or on a blank line, they
// mean nothing, but yaml-cpp trips over them, so they become blanks.
void check_tabs(std::string& text, const std::shared_ptr<const std::string>& origin) {
  Problems tabs;
  int line = 0;
  size_t start = 0;
  while (start < text.size()) {
    ++line;
    const size_t end = std::min(text.find('\n', start), text.size());
    const size_t first = std::min(text.find_first_not_of(" \t", start), end);
    const size_t tab = text.find('\t', start);
    if (tab < first) {
      if (first < end && text[first] != '#') {
        tabs.error({origin, line, static_cast<int>(tab - start) + 1},
                   "tab in indentation; YAML allows only spaces there");
      }
      std::replace(text.begin() + static_cast<ptrdiff_t>(start),
                   text.begin() + static_cast<ptrdiff_t>(first), '\t', ' ');
    }
    start = end + 1;
  }
  tabs.throw_if_any();
}

std::string without_bom_and_cr(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string clean;
  clean.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    clean += text[i];
  }
  return clean;
}

}  // namespace

std::string plain_text(std::string_view raw, const std::shared_ptr<const std::string>& origin) {
  std::string text = without_bom_and_cr(raw);
  check_bytes(text, origin);
  check_tabs(text, origin);
  return text;
}

std::string syntax_fault(std::string_view text, int line, const std::string& message) {
  return plain_words(message) + syntax_hint(text, line);
}

}  // namespace shardloom::config
