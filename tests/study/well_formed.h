// A strict check of markup, as an XML parser makes it: tags balance, attributes are quoted, '<' and
// '&' are escaped.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::study {

class MarkupChecker {
 public:
  explicit MarkupChecker(std::string_view text) : rest_(text) {}

  // What is wrong, and where; empty when nothing is.
  std::string check() {
    take("<!DOCTYPE html>\n");
    while (!rest_.empty() && problem_.empty()) {
      check_text(rest_.substr(0, rest_.find('<')));
      check_outside(rest_.substr(0, rest_.find('<')));
      rest_.remove_prefix(std::min(rest_.find('<'), rest_.size()));
      if (!rest_.empty() && problem_.empty()) check_tag();
    }
    if (problem_.empty() && !open_.empty()) problem_ = "never closed: " + open_.back();
    return problem_;
  }

  int num_elements(const std::string& name) const {
    return static_cast<int>(std::count(names_.begin(), names_.end(), name));
  }

 private:
  static bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-'; }

  bool take(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  std::string take_name() {
    size_t length = 0;
    while (length < rest_.size() && is_name(rest_[length])) ++length;
    const std::string name(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return name;
  }

  void fail(const std::string& what) {
    if (problem_.empty()) problem_ = what + " before: " + std::string(rest_.substr(0, 60));
  }

  void check_text(std::string_view text) {
    for (size_t at = 0; (at = text.find('&', at)) != std::string_view::npos; ++at) {
      const std::string entity(text.substr(at, text.find(';', at) - at + 1));
      if (!std::set<std::string>{"&amp;", "&lt;", "&gt;", "&quot;"}.contains(entity))
        fail("bare '&'");
    }
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') fail("control character");
    }
  }

  void check_outside(std::string_view text) {
    if (open_.empty() && text.find_first_not_of('\n') != std::string_view::npos)
      fail("text outside the root");
  }

  void check_tag() {
    if (take("</")) {
      const std::string name = take_name();
      if (open_.empty() || open_.back() != name) return fail("wrong end of " + name);
      open_.pop_back();
      if (!take(">")) fail("bad end tag");
      return;
    }
    take("<");
    const std::string name = take_name();
    if (name.empty()) return fail("bare '<'");
    if (open_.empty() && !names_.empty()) return fail("second root " + name);
    names_.push_back(name);
    check_attributes();
    if (take("/>")) return;
    if (!take(">")) return fail("bad tag " + name);
    open_.push_back(name);
  }

  void check_attributes() {
    std::set<std::string> seen;
    while (take(" ")) {
      const std::string name = take_name();
      if (name.empty() || !seen.insert(name).second) return fail("bad attribute " + name);
      if (!take("=\"")) return fail("attribute without quotes: " + name);
      const size_t end = rest_.find('"');
      if (end == std::string_view::npos) return fail("open quotes");
      if (rest_.substr(0, end).find('<') != std::string_view::npos) return fail("'<' in " + name);
      check_text(rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
    }
  }

  std::string_view rest_;
  std::vector<std::string> open_;
  std::vector<std::string> names_;
  std::string problem_;
};

// Nothing that a browser would fetch or run; the name of the SVG namespace is no address.
inline void expect_self_contained(std::string text) {
  const std::string kNamespace = "xmlns=\"http://www.w3.org/2000/svg\"";
  for (size_t at; (at = text.find(kNamespace)) != std::string::npos;)
    text.erase(at, kNamespace.size());
  for (const char* outside : {"http:", "https:", "//", "<script", "<link", "<img", "<iframe",
                              "@import", "url(", "src=", "href="}) {
    EXPECT_EQ(text.find(outside), std::string::npos) << outside;
  }
}

inline void expect_well_formed(const std::string& text) {
  EXPECT_EQ(MarkupChecker(text).check(), "");
}

}  // namespace shardloom::study
